"""Releases by rows, of a table and of sessions, worked out again by the gate."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from tacit.gate import check_release
from tacit.measured import Interval
from tacit.releases.contradiction import surely
from tacit.statistics import Session, privatize

ROWS = np.random.default_rng(2).normal(size=(41, 2))
BOUNDS = [(-5.0, 5.0)] * 2


def stored(release: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(release.to_dict()))
    return content


def released(protect: str, **more: Any) -> dict[str, Any]:
    options = {"success": 0.6, "attack": False, "progress": False, **more}
    if protect == "table":
        options["bounds"] = BOUNDS
    return stored(privatize("mean+std", ROWS, protect=protect, **options))


CONTENT = {
    "rows": released("rows"),
    "thirds": released("rows", success=0.75, sampling_rate=1 / 3),
    "table": released("table"),
    "session": stored(Session(ROWS, Rows(success=0.6)).ask("mean", share=0.5)),
}


@pytest.mark.parametrize("name", CONTENT)
def test_a_release_as_it_was_written_passes(name: str) -> None:
    limit = CONTENT[name]["membership"]["success"] + 1e-9
    assert check_release(CONTENT[name], max_success=limit).passed


def edit(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


EDITS = {
    "success": (("membership", "success"), 0.55),
    "mu": (("further", 0, "mu"), 0.01),
    "error": (("errors", 0), 1e-6),
    "value": (("values", 0), 3.0),
    "interval": (("intervals", 0, "noise", 0), 0.0),
    "prior": (("membership", "prior"), 0.3),
    "assumptions": (("membership", "assumptions"), ["the attacker knows nothing"]),
    "protect": (("protect",), "draw"),
}


@pytest.mark.parametrize("what", EDITS)
@pytest.mark.parametrize("name", CONTENT)
def test_an_edited_file_is_refused(name: str, what: str) -> None:
    content = copy.deepcopy(CONTENT[name])
    edit(content, *EDITS[what])
    with pytest.raises(ValueError, match=r"contradicts itself|expected"):
        check_release(content, max_success=0.9)


@pytest.mark.parametrize("name", ["rows", "table"])
@pytest.mark.parametrize(
    ("guarantee", "field", "value"),
    [(0, "success", 0.55), (1, "mu", 0.01), (0, "assumptions", ["the attacker knows nothing"])],
)
def test_an_edit_in_both_places_is_refused(
    name: str, guarantee: int, field: str, value: Any
) -> None:
    content = copy.deepcopy(CONTENT[name])
    content["form"]["guarantees"][guarantee][field] = value
    place = content["membership"] if guarantee == 0 else content["further"][0]
    place[field] = value
    with pytest.raises(ValueError, match="contradicts itself"):
        check_release(content, max_success=0.9)


def test_a_bound_that_is_met_is_not_contradicted_by_chance() -> None:
    """Of 20,000 attacks that succeed as often as is certified none contradicts, some of 95% do."""
    source = np.random.default_rng(0)
    shares = source.binomial(1000, 0.55, size=20_000) / 1000
    half = 1.96 * np.sqrt(shares * (1 - shares) / 1000)
    assert (shares - half > 0.55).mean() > 0.01
    ends = [
        surely(Interval(value=float(p), low=float(p - h), high=float(p + h), confidence=0.95))
        for p, h in zip(shares[:2000], half[:2000], strict=True)
    ]
    assert max(ends) < 0.55
    assert surely(Interval(value=0.72, low=0.7, high=0.74, confidence=0.95)) > 0.6
