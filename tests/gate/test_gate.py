"""The gate: what passes, what is crossed, and what it refuses to judge."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Draw, Effort, privatize
from tacit.gate import Policy, check_release
from tacit.releases import Release


@pytest.fixture(scope="module")
def release() -> Release[Any]:
    pool = np.random.default_rng(2).normal(size=(41, 2))
    effort = Effort(simulations=100, trials=200, workers=1)
    return privatize("mean", pool, Draw(success=0.6), effort)


@pytest.fixture
def content(release: Release[Any]) -> dict[str, Any]:
    return copy.deepcopy(release.to_dict())


def test_thresholds_at_the_bound_hold_and_just_below_do_not(release: Release[Any]) -> None:
    success, nats = release.membership.success, release.information
    assert nats is not None
    assert check_release(release, Policy(max_success=success, max_information=nats)).passed
    assert check_release(release, Policy(max_success=0.6)).passed
    lower = check_release(release, Policy(max_success=math.nextafter(success, 0.0)))
    assert not lower.passed
    assert [check.name for check in lower.checks] == ["max_success"]
    assert not check_release(release, Policy(max_information=math.nextafter(nats, 0.0))).passed


@pytest.mark.parametrize(
    ("spread", "level", "size"), [(1e-6, 1e6, 5), (1e-14, 1.0, 2), (1e-14, 1.0, 30), (1.0, 1e12, 3)]
)
def test_outputs_far_from_zero_contradict_nothing(spread: float, level: float, size: int) -> None:
    """The spread about a rounded mean is larger than that which the noise was designed for."""
    pool = level + spread * np.random.default_rng(1).normal(size=(9, size))
    effort = Effort(simulations=60, trials=40, workers=1)
    found = privatize("mean", pool, Draw(success=0.9), effort)
    stored = json.loads(json.dumps(found.to_dict()))
    assert check_release(stored, Policy(max_success=0.95)).passed


def test_each_crossed_threshold_is_named(release: Release[Any]) -> None:
    limits = Policy(max_success=0.51, max_information=1e-6, max_attack=0.99)
    result = check_release(release, limits)
    assert not result.passed
    assert [check.name for check in result.checks if not check.holds] == [
        "max_success",
        "max_information",
    ]
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["passed"] is False


@pytest.mark.parametrize("success", [0.5, 0.95])
def test_an_edited_success_is_held_against_the_information(
    content: dict[str, Any], success: float
) -> None:
    content["guarantees"][0]["success"] = success
    with pytest.raises(ValueError, match=r"its details give a success of 0\.59999"):
        check_release(content, Policy(max_success=0.99))


def test_an_edited_prior_is_held_against_the_attack(content: dict[str, Any]) -> None:
    content["attacks"][0]["prior"] = 0.9
    assert not check_release(content, Policy(max_success=0.89)).passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["guarantees"][1].update(nats=0.0), "designed for nats"),
        (lambda content: content["guarantees"].reverse(), "other guarantees"),
        (lambda content: content.update(seed=3), "seed"),
        (lambda content: content["details"].update(budget=0.5), "a budget of"),
        (lambda content: content["details"].update(share=[1, 3]), "success"),
        (lambda content: content["details"].update(candidates=50), "law"),
        (lambda content: content["details"].update(output_mean=None), "not in the file"),
    ],
)
def test_details_that_contradict_the_guarantees_are_refused(
    content: dict[str, Any], change: Any, message: str
) -> None:
    change(content)
    with pytest.raises(ValueError, match=message):
        check_release(content, Policy(max_success=0.99))


def test_what_may_be_published_says_what_was_not_checked(release: Release[Any]) -> None:
    (check,) = check_release(release.public().to_dict(), Policy(max_success=0.6)).checks
    assert check.holds
    assert "the noise it was designed with is not in the file" in check.sentence


def test_a_seeded_release_never_passes(content: dict[str, Any]) -> None:
    content["reproducible"], content["seed"] = True, 3
    with pytest.raises(ValueError, match="'proof' of its proof is not what"):
        check_release(content, Policy(max_success=1.0))
    # of what a seed repeats nothing is claimed
    del content["proof"]
    result = check_release(content, Policy(max_success=1.0))
    assert result.checks[0].holds
    assert result.reproducible
    assert not result.passed


def test_an_interval_that_no_so_many_trials_give_is_refused(content: dict[str, Any]) -> None:
    attack = content["attacks"][0]
    attack["success"].update(value=0.51, low=0.5, high=0.53)
    with pytest.raises(ValueError, match=r"attacks\[0\]\.success\.high: 200 trials give"):
        check_release(content, Policy(max_attack=0.53))
    attack["success"].update(high=0.58, confidence=None)
    with pytest.raises(ValueError, match="confidence"):
        check_release(content, Policy(max_attack=0.58))


def test_the_attack_is_judged_by_the_upper_end_of_its_interval(content: dict[str, Any]) -> None:
    attack = content["attacks"][0]
    attack["success"].update(value=0.51, low=0.5, high=0.58)
    attack["worst"].update(value=0.55, low=0.51, high=0.6)
    assert check_release(content, Policy(max_attack=0.58)).passed
    assert not check_release(content, Policy(max_attack=0.57)).passed
    attack["worst"].update(low=0.54)
    worst = check_release(content, Policy(max_attack=0.53))
    assert not worst.passed
    assert "worst record" in worst.checks[0].sentence


def test_no_attack_does_not_hold_a_threshold_on_it(content: dict[str, Any]) -> None:
    content["attacks"] = []
    result = check_release(content, Policy(max_attack=0.9))
    assert not result.passed
    assert result.checks[0].found is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda form: form.pop("attacks"), "missing or unknown.*attacks"),
        (lambda form: form.update(more=1), "missing or unknown.*more"),
        (lambda form: form.update(version=9), "expected version 2"),
        (lambda form: form.update(reproducible="no"), "reproducible: expected"),
        (lambda form: form.update(use="much"), "use: expected"),
        (lambda form: form.update(title=3), "title: expected text"),
        (lambda form: form["attacks"][0].update(trials=0), r"attacks\[0\].*trials"),
        (lambda form: form["attacks"][0].pop("name"), r"attacks\[0\]: expected the fields"),
        (lambda form: form["attacks"][0]["success"].update(low=0.9), r"attacks\[0\].success"),
        (lambda form: form["attacks"][0]["success"].update(high=2.0), r"attacks\[0\].*success"),
        (lambda form: form["numbers"]["errors"].__setitem__(0, -1.0), "errors"),
        (lambda form: form["guarantees"][0].update(prior=2.0), "prior"),
    ],
)
def test_a_damaged_release_is_refused(content: dict[str, Any], damage: Any, message: str) -> None:
    damage(content)
    with pytest.raises(ValueError, match=message):
        check_release(content, Policy(max_success=0.6))


def test_the_path_of_a_file_is_read(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text(json.dumps(content))
    limits = Policy(max_success=0.6)
    assert check_release(path, limits) == check_release(content, limits)


@pytest.mark.parametrize(
    ("thresholds", "named"),
    [
        ({}, "at least one threshold"),
        ({"max_success": 0.0}, "max_success"),
        ({"max_success": 1.01}, "max_success"),
        ({"max_success": math.nan}, "max_success"),
        ({"max_attack": -0.5}, "max_attack"),
        ({"max_attack": math.inf}, "max_attack"),
        ({"max_information": 0.0}, "max_information"),
        ({"max_information": math.nan}, "max_information"),
    ],
)
def test_bad_thresholds_are_refused(
    release: Release[Any], thresholds: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        check_release(release, Policy(**thresholds))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "expected a release of tacit, got list"),
        ('"release.json"', "expected a release of tacit, got str"),
        ("{}", "expected a document of format 'tacit.release'"),
        ('{"names": NaN}', "not strict JSON"),
    ],
)
def test_files_that_are_no_release_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        check_release(path, Policy(max_success=0.6))


def test_a_binary_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    with pytest.raises(ValueError, match="no such file"):
        check_release(path, Policy(max_success=0.6))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        check_release(path, Policy(max_success=0.6))
    with pytest.raises(ValueError, match="folder"):
        check_release(tmp_path, Policy(max_success=0.6))
