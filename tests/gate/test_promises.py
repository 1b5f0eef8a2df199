"""Releases by rows, of a table and of sessions, worked out again by the gate."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from tacit import Draw, Effort, Rows, Table, load, privatize
from tacit.gate import Policy, check_release
from tacit.measured import Interval
from tacit.releases.contradiction import surely
from tacit.releases.promises import Promise
from tacit.statistics import Session

ROWS = np.random.default_rng(2).normal(size=(41, 2))
BOUNDS = [(-5.0, 5.0)] * 2


def stored(release: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(release.to_dict()))
    return content


def released(promise: Promise, query: str = "mean+std") -> dict[str, Any]:
    return stored(privatize(query, ROWS, promise, Effort(trials=0)))


def middle(rows: np.ndarray) -> np.ndarray:
    return np.sort(rows, axis=0)[3:-3].mean(axis=0)


CONTENT = {
    "rows": released(Rows(success=0.6)),
    "thirds": released(Rows(success=0.75, rate=1 / 3)),
    "median": released(Rows(success=0.6), "median"),
    "callable": stored(
        privatize(middle, ROWS, Rows(success=0.6), Effort(simulations=200, trials=0, workers=1))
    ),
    "table": released(Table(success=0.6, bounds=BOUNDS)),
    "session": stored(Session(ROWS, Rows(success=0.6)).ask("mean", share=0.5)),
    "session of a table": stored(
        Session(ROWS, Table(success=0.6, bounds=BOUNDS)).ask("mean", share=0.5)
    ),
    "session of a draw": stored(
        Session(ROWS, Draw(success=0.6), Effort(simulations=60)).ask("mean", share=0.5)
    ),
}


def success(content: dict[str, Any]) -> int:
    """Return which guarantee is the bound on success."""
    return [held["type"] for held in content["guarantees"]].index("SuccessBound")


@pytest.mark.parametrize("name", CONTENT)
def test_a_release_as_it_was_written_passes(name: str) -> None:
    content = CONTENT[name]
    limit = content["guarantees"][success(content)]["success"] + 1e-9
    assert check_release(content, Policy(max_success=limit)).passed
    assert check_release(published(content), Policy(max_success=limit)).passed


def published(content: dict[str, Any]) -> dict[str, Any]:
    """Return what may be published of a stored release."""
    return stored(load(content).public())


def edit(content: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


EDITS = {
    "success": ("success", 0.55),
    "prior": ("prior", 0.3),
    "law": ("law", "nothing"),
    "task": ("task", "something else"),
    "assumptions": ("assumptions", ["the attacker knows nothing"]),
}


@pytest.mark.parametrize("what", EDITS)
@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("public", [False, True])
def test_an_edited_guarantee_is_refused(name: str, what: str, public: bool) -> None:
    content = published(CONTENT[name]) if public else copy.deepcopy(CONTENT[name])
    field, value = EDITS[what]
    content["guarantees"][success(content)][field] = value
    with pytest.raises(ValueError, match=r"contradicts itself|expected"):
        check_release(content, Policy(max_success=0.9))


BESIDE = {
    "error": (("numbers", "errors", 0), 1e-6),
    "names": (("numbers", "names"), ["one"]),
    "values": (("numbers", "values"), [3.0]),
    "truth": (("numbers", "truth"), "something else"),
    "secret": (("secret",), "nothing"),
    "kind": (("kind",), "statistic-draw"),
    "seed": (("seed",), 3),
}


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("name", ["rows", "thirds", "median", "table", "session"])
def test_an_edit_beside_the_guarantees_is_refused(name: str, what: str) -> None:
    content = copy.deepcopy(CONTENT[name])
    edit(content, *BESIDE[what])
    with pytest.raises(ValueError, match=r"contradicts itself|expected"):
        check_release(content, Policy(max_success=0.9))


@pytest.mark.parametrize("name", CONTENT)
def test_every_other_promise_beside_the_guarantees_is_refused(name: str) -> None:
    content = copy.deepcopy(CONTENT[name])
    content["details"]["promise"]["success"] = 0.55
    with pytest.raises(ValueError, match=r"contradicts itself|expected"):
        check_release(content, Policy(max_success=0.9))


@pytest.mark.parametrize("name", ["rows", "thirds", "median", "table"])
def test_a_smaller_mu_is_refused(name: str) -> None:
    content = copy.deepcopy(CONTENT[name])
    changed = 0
    for held in content["guarantees"]:
        if held["type"] == "GaussianDP":
            held["mu"], changed = 0.01, changed + 1
    if not changed:
        pytest.skip("it states none")
    with pytest.raises(ValueError, match="contradicts itself"):
        check_release(content, Policy(max_success=0.9))


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
