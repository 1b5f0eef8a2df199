"""The gate: what passes, what is crossed, and what it refuses to judge."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.conversions import success_from_information
from tacit.gate import check_release
from tacit.statistics import StatisticRelease, privatize


@pytest.fixture(scope="module")
def release() -> StatisticRelease:
    pool = np.random.default_rng(2).normal(size=(41, 2))
    return privatize(
        "mean", pool, Draw(success=0.6), Effort(simulations=100, trials=200, workers=1)
    )


@pytest.fixture
def content(release: StatisticRelease) -> dict[str, Any]:
    return copy.deepcopy(release.to_dict())


def test_thresholds_at_the_bound_hold_and_just_below_do_not(release: StatisticRelease) -> None:
    success, nats = release.membership.success, release.guarantee.nats
    assert check_release(release, max_success=success, max_information=nats).passed
    assert check_release(release, max_success=0.6).passed
    lower = check_release(release, max_success=math.nextafter(success, 0.0))
    assert not lower.passed
    assert [check.name for check in lower.checks] == ["max_success"]
    assert not check_release(release, max_information=math.nextafter(nats, 0.0)).passed


@pytest.mark.parametrize(
    ("spread", "level", "size"), [(1e-6, 1e6, 5), (1e-14, 1.0, 2), (1e-14, 1.0, 30), (1.0, 1e12, 3)]
)
def test_outputs_far_from_zero_contradict_nothing(spread: float, level: float, size: int) -> None:
    """The spread about a rounded mean is larger than that which the noise was designed for."""
    pool = level + spread * np.random.default_rng(1).normal(size=(9, size))
    found = privatize("mean", pool, Draw(success=0.9), Effort(simulations=60, trials=40, workers=1))
    assert check_release(json.loads(json.dumps(found.to_dict())), max_success=0.95).passed


def test_each_crossed_threshold_is_named(release: StatisticRelease) -> None:
    result = check_release(release, max_success=0.51, max_information=1e-6, max_attack=0.99)
    assert not result.passed
    assert [check.name for check in result.checks if not check.holds] == [
        "max_success",
        "max_information",
    ]
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["passed"] is False


def edited(content: dict[str, Any], **fields: float) -> dict[str, Any]:
    """The release with another membership bound, wherever it stands."""
    content["membership"].update(fields)
    content["form"]["guarantees"][0].update(fields)
    return content


def test_an_edited_success_is_held_against_the_information(content: dict[str, Any]) -> None:
    nats = content["guarantee"]["nats"]
    prior = content["form"]["attacks"][0]["prior"]
    with pytest.raises(ValueError, match=r"the information beside a success of 0\.5 gives"):
        check_release(edited(content, success=0.5), max_success=0.55)
    # of a form alone, which has no details, what the information gives is judged
    held = edited(content, success=0.5)["form"]
    result = check_release(held, max_success=0.55)
    assert not result.passed
    assert result.checks[0].found == success_from_information(nats, prior)


def test_an_edited_prior_is_held_against_the_attack(content: dict[str, Any]) -> None:
    content["form"]["attacks"][0]["prior"] = content["attack"]["prior"] = 0.9
    assert not check_release(content, max_success=0.89).passed


def test_a_success_stored_above_the_information_counts(content: dict[str, Any]) -> None:
    result = check_release(edited(content, success=0.95), max_success=0.9)
    assert result.checks[0].found == 0.95
    assert not result.passed


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("membership", lambda content: content["membership"].update(success=0.51)),
        ("guarantee", lambda content: content["guarantee"].update(nats=0.0)),
        ("reproducible", lambda content: content.update(reproducible=True)),
    ],
)
def test_details_that_contradict_the_form_are_refused(
    content: dict[str, Any], name: str, change: Any
) -> None:
    change(content)
    with pytest.raises(ValueError, match=f"contradicts itself.*{name}"):
        check_release(content, max_success=0.99)


def test_a_page_without_its_covariance_is_not_judged(content: dict[str, Any]) -> None:
    content["design"]["covariance"] = None
    with pytest.raises(ValueError, match="give the release's JSON"):
        check_release(content, max_success=0.9)


def test_a_seeded_release_never_passes(content: dict[str, Any]) -> None:
    for part in (content, content["form"]):
        part["reproducible"], part["seed"] = True, 3
    result = check_release(content, max_success=1.0)
    assert result.checks[0].holds
    assert result.reproducible
    assert not result.passed


def test_the_attack_is_judged_by_the_upper_end_of_its_interval(content: dict[str, Any]) -> None:
    attack, measured = content["form"]["attacks"][0], content["attack"]
    attack["success"].update(value=0.51, low=0.5, high=0.53)
    attack["worst"].update(value=0.55, low=0.51, high=0.6)
    measured.update(success=0.51, interval=[0.5, 0.53])
    measured.update(worst_success=0.55, worst_interval=[0.51, 0.6])
    assert check_release(content, max_attack=0.53).passed
    assert not check_release(content, max_attack=0.52).passed
    attack["worst"].update(low=0.54)
    measured.update(worst_interval=[0.54, 0.6])
    worst = check_release(content, max_attack=0.53)
    assert not worst.passed
    assert "worst record" in worst.checks[0].sentence


def test_no_attack_does_not_hold_a_threshold_on_it(content: dict[str, Any]) -> None:
    content["form"]["attacks"], content["attack"] = [], None
    result = check_release(content, max_attack=0.9)
    assert not result.passed
    assert result.checks[0].found is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda form: form.pop("attacks"), "missing or unknown: \\['attacks'\\]"),
        (lambda form: form.update(more=1), "missing or unknown: \\['more'\\]"),
        (lambda form: form.update(version=9), "expected version 1, got 9"),
        (lambda form: form.update(reproducible="no"), "reproducible: expected true or false"),
        (lambda form: form.update(use="much"), "use: expected a list"),
        (lambda form: form.update(title=3), "title: expected text"),
        (lambda form: form["attacks"][0].update(trials=0), "attacks: trials"),
        (lambda form: form["attacks"][0].pop("name"), "attacks: expected the fields of Attack"),
        (lambda form: form["attacks"][0]["success"].update(low=0.9), "attacks.success.value"),
        (lambda form: form["attacks"][0]["success"].update(high=2.0), "attacks: success"),
        (lambda form: form["numbers"][0].update(error=-1.0), "numbers: error"),
        (lambda form: form["guarantees"][0].update(prior=2.0), "prior"),
    ],
)
def test_a_damaged_form_is_refused(content: dict[str, Any], damage: Any, message: str) -> None:
    damage(content["form"])
    with pytest.raises(ValueError, match=message):
        check_release(content, max_success=0.6)


def test_the_path_of_a_file_is_read(content: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    path.write_text(json.dumps(content))
    assert check_release(path, max_success=0.6) == check_release(content, max_success=0.6)


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
    release: StatisticRelease, thresholds: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        check_release(release, **thresholds)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "expected a release of tacit, got list"),
        ('"release.json"', "expected a release of tacit, got a text"),
        ("{}", "expected a release of tacit, with its form"),
        ('{"names": NaN}', "not strict JSON"),
    ],
)
def test_files_that_are_no_release_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "release.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        check_release(path, max_success=0.6)


def test_a_binary_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "release.json"
    with pytest.raises(ValueError, match="no such file"):
        check_release(path, max_success=0.6)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        check_release(path, max_success=0.6)
    with pytest.raises(ValueError, match="folder"):
        check_release(tmp_path, max_success=0.6)
