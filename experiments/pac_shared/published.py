"""Tables 1 to 6 as printed, and what Fano's inequality says about each row."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tacit.conversions import fano_information

TABLES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
)
COLUMNS = ("auto", "efficient", "sr")
# Accuracy is printed to a tenth of a per cent.
ROUNDING = 0.0005
# Test images of each digit; the other test sets are balanced.
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def label_entropy(dataset: str) -> float:
    """H(L) of the paper's test labels, in nats."""
    if dataset == "mnist":
        total = sum(MNIST_TEST)
        return -sum(n / total * math.log(n / total) for n in MNIST_TEST)
    return math.log(TABLES[dataset]["classes"])


def leaked(dataset: str, column: str) -> list[float]:
    """Nats that each printed accuracy takes at least, by Fano's inequality."""
    table = TABLES[dataset]
    entropy = label_entropy(dataset)
    return [
        fano_information(max(0.0, accuracy - ROUNDING), table["classes"], entropy)
        for accuracy in table[f"accuracy_{column}"]
    ]


def impossible(dataset: str, column: str) -> list[bool]:
    """Whether each printed accuracy takes more nats than the budget printed beside it."""
    budgets = TABLES[dataset]["beta"]
    return [nats > beta for nats, beta in zip(leaked(dataset, column), budgets, strict=True)]


def most_entropy(dimension: int) -> float:
    """Differential entropy that no vector of unit variances exceeds: ½ d ln(2πe)."""
    return 0.5 * dimension * math.log(2.0 * math.pi * math.e)
