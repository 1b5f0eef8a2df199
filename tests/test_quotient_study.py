"""The study of quotients: what is compared, and a published result that keeps its bounds."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "experiments" / "results" / "quotient.json"


@pytest.fixture
def load() -> Any:
    """Import a module of the study."""
    return lambda name: importlib.import_module(f"tacit_lab.studies.quotient.{name}")


def rows(mechanism: str, attack: float, kl: float, **more: Any) -> list[dict[str, Any]]:
    """Two readings under B and one under A, the decoder the worse."""
    shared = {
        "mechanism": mechanism, "family": "any", "setting": "", "bound": 0.5, "information": 3.0,
        "factor_nats": 4.0, "attack": [attack, attack, attack], **more,
    }  # fmt: skip
    read = [("decoder", "B", kl + 1), ("posterior-behaviour", "B", kl), ("posterior-mean", "A", 9)]
    return [
        {**shared, "reading": name, "protocol": protocol, "agreement": [1 / (1 + nats)] * 3,
         "kl": [nats, nats, nats]}
        for name, protocol, nats in read
    ]  # fmt: skip


def test_the_better_reader_counts_and_levels_are_told_from_kinds(load: Any) -> None:
    study = load("study")
    entries = rows("quotient(16,3)", 0.2, 1.0) + rows("quotient(16,2)", 0.0, 2.0)
    entries += rows("quotient(4,3)", 0.2, 5.0) + rows("quotient(16,3,2,0.5)", 0.1, 4.0)
    found = study.releases(entries)
    assert [held.kl("B")[0] for held in found] == [1.0, 2.0, 5.0, 4.0]
    assert found[3].title == "quotient of the state, k = 16, β = 0.5"
    held = study.groups(found)
    assert [len(group) for group in held.values()] == [2, 1, 1]
    between = study.at_attack(next(iter(held.values())), 0.05, "B")
    assert between["kl"] == pytest.approx(1.75)
    assert study.at_attack(found[:2], 0.3, "B") is None
    assert study.certified_at(found, 4.0) == found
    assert study.certified_at(found, 3.5) == []


def test_the_published_result_keeps_its_bounds_and_its_page_says_so(
    load: Any, tmp_path: Path
) -> None:
    if not RESULT.is_file():
        pytest.skip("quotient was not run")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    for row in result["rows"]:
        if row["bound"] is not None:
            # shares are stored to four digits
            assert row["attack"][1] <= row["bound"] + 5e-5
    told = result["estimates"]
    assert told["log_det"] < told["certified"] <= told["factor_nats"]
    page = load("quotient_page").lines(result)
    words = {line.split(" | ")[-1] for line in page if line.startswith("| ") and "**" in line}
    assert words <= {"**holds** |", "**does not hold** |", "**holds in part** |"}
    widths = [line.count(" | ") for line in page if line.startswith("| ")]
    assert min(widths) >= 2
    first, second = tmp_path / "quotient.svg", tmp_path / "again" / "quotient.svg"
    second.parent.mkdir()
    for path in (first, second):
        load("figure").draw(result, path)
    assert first.read_bytes() == second.read_bytes()
