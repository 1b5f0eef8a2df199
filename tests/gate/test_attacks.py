"""Attacks in files of their own: read back, and refused where they were edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.cli import run
from tacit.measured import Interval
from tacit.releases import Attack
from tacit.releases.attack_file import AttackFile, is_attack


def stored(count: int = 100, top1: float = 0.5, ends: Any = None, **success: Any) -> dict[str, Any]:
    """What stands in a file of an attack that named 50 of 100 states right."""
    low, high = proportion_interval(round(top1 * count), count, 0.95) if ends is None else ends
    attack = Attack(
        name="euclidean retrieval", task="which of 50 candidates it is", prior=0.02, trials=count,
        success=Interval(value=top1, low=low, high=high, confidence=0.95),
    )  # fmt: skip
    found = AttackFile(about="states", digest="a" * 64, attack=attack, measured={"top5": 0.9})
    content: dict[str, Any] = json.loads(json.dumps(found.to_dict()))
    content["attack"]["success"] |= success
    return content


def test_what_a_file_of_an_attack_says_is_no_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = stored()
    content["attack"]["name"] = "near[/bold] [red]euclidean"
    (tmp_path / "attack.json").write_text(json.dumps(content))
    assert run(["show", str(tmp_path / "attack.json")]) == 0
    assert "near[/bold] [red]euclidean: right about" in capsys.readouterr().out


def test_intervals_of_counts_and_of_shares_are_read() -> None:
    source = np.random.default_rng(0)
    for count in (1, 2, 40, 1000):
        for hits in {0, 1, count // 2, count}:
            content = stored(count, hits / count, proportion_interval(hits, count, 0.95))
            assert is_attack(content)
            assert AttackFile.from_dict(content).to_dict() == content
        for shares in (np.full(count, 0.5), 1.0 / source.integers(1, 4, size=count)):
            ends = (0.0, 1.0) if count < 2 else mean_interval(shares, 0.95)
            content = stored(count, float(shares.mean()), ends)
            assert AttackFile.from_dict(content).to_dict() == content


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("attack", "success", "high"), 0.5, "100 trials give an upper end of 0.6"),
        (("attack", "success", "high"), 0.55, "100 trials give an upper end of 0.6"),
        (("attack", "success", "high"), 0.4, "attack.success"),
        (("attack", "success", "confidence"), None, "attack.success.confidence"),
        (("attack", "trials"), 10, "10 trials give an upper end"),
        (("attack", "trials"), 0, "attack.trials: expected an integer >= 1"),
        (("attack", "name"), 3, "attack.name: expected text"),
        (("attack", "prior"), 2.0, "attack.prior"),
        (("digest",), None, "attack.digest: expected text"),
        (("about",), "", "attack.about: expected a non-empty string"),
        (("measured", "top5"), "most", "attack.measured.top5: expected a number"),
        (("smuggled",), "the prompts", "missing or unknown"),
        (("attack", "smuggled"), "the prompts", "missing or unknown"),
    ],
)
def test_an_edited_attack_is_refused(path: tuple[str, ...], value: Any, sentence: str) -> None:
    content = stored()
    place = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=sentence):
        AttackFile.from_dict(content)
