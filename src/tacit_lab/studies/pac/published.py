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
# Numbers that are released, and the power from which a printed one has four digits or more.
DIMENSIONS = {"cifar10": 10, "cifar100": 100, "mnist": 10, "agnews": 4, "iris": 4, "rice": 7}
ENOUGH_DIGITS = 100.0
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


def covariance_shaped(power: float, dimension: int, beta: float) -> float:
    """Power tr S/(e^{2β/d} − 1) of noise in the shape of the covariance S of d outputs.

    ½ ln det(I + (e^{2β/d} − 1) I) = β: the log-det bound is met, whatever S.
    """
    return power / math.expm1(2.0 * beta / dimension)


def fitted(dataset: str, column: str) -> tuple[float, float]:
    """Least and largest tr S that printed rows of 100 or more take by their rule, as published.

    Auto-PAC: ``Σ_B ∝ Σ`` (Appendix S), so power (e^{2β/d} − 1) is one number. Efficient-PAC:
    ``e_i ∝ √λ_i``, so power β is. Smaller powers have too few printed digits.
    """
    table = TABLES[dataset]
    rows = zip(table["beta"], table[f"noise_{column}"], strict=True)
    found = [
        noise * (math.expm1(2.0 * beta / DIMENSIONS[dataset]) if column == "auto" else beta)
        for beta, noise in rows
        if noise >= ENOUGH_DIGITS
    ]
    return min(found), max(found)
