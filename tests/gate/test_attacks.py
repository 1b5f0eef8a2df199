"""Attacks in files of their own: read back, and refused where they were edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit.gate.attacks import read_attack

from tacit.attacks.intervals import mean_interval, proportion_interval

STORED: dict[str, Any] = {
    "released": "a" * 64, "origin": None, "metric": "euclidean", "queries": 100, "bank": 50,
    "confidence": 0.95, "top1": 0.5, "top1_interval": proportion_interval(50, 100, 0.95),
}  # fmt: skip


def written(folder: Path, **change: Any) -> Path:
    place = folder / "attack.json"
    place.write_text(json.dumps({**STORED, **change}))
    return place


def test_intervals_of_counts_and_of_shares_are_read(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    for count in (1, 2, 40, 1000):
        for hits in {0, 1, count // 2, count}:
            ends = proportion_interval(hits, count, 0.95)
            place = written(tmp_path, queries=count, top1=hits / count, top1_interval=ends)
            assert read_attack(place) is not None
        for shares in (np.full(count, 0.5), 1.0 / source.integers(1, 4, size=count)):
            ends = (0.0, 1.0) if count < 2 else mean_interval(shares, 0.95)
            place = written(tmp_path, queries=count, top1=float(shares.mean()), top1_interval=ends)
            assert read_attack(place) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"top1_interval": [0.5, 0.5]}, "100 queries give an upper end of 0.6"),
        ({"top1_interval": [0.4, 0.55]}, "100 queries give an upper end of 0.6"),
        ({"queries": 10}, "10 queries give an upper end"),
        ({"released": None}, "released: expected text"),
        ({"metric": 3}, "metric: expected text"),
    ],
)
def test_an_edited_attack_is_refused(change: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_attack(written(tmp_path, **change))
