"""Ranking by cosine, the verdict on the best, and compact cosines against the full space's."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.specifications import (
    Specification,
    SpecificationSpace,
    cosine_agreement,
    identify,
    judge_match,
)

WIDTH = 48
SPACE = SpecificationSpace(
    backbone="sha256:0",
    layers=("fc",),
    shapes=((WIDTH, 1),),
    factor="gaussian:0",
    subspace="none",
    output="labels",
)


def made(vector, kind="model", space=SPACE):
    return Specification(
        kind=kind,
        space=space,
        factors={"fc": np.asarray(vector, float)[:, None]},
        method="compact",
        guarantees=(),
        created="2026-01-01",
    )


def models(count, rng):
    return {f"m{place}": made(rng.normal(size=WIDTH)) for place in range(count)}


def test_the_order_is_that_of_raw_cosines():
    rng = np.random.default_rng(0)
    held, task = models(20, rng), made(rng.normal(size=WIDTH), "task")
    found = identify(task, held, limit=5)
    expected = sorted(held, key=lambda name: -task.cosine(held[name]))[:5]
    assert [match.name for match in found.matches] == expected
    assert found.compared == 20
    assert found.matches[0].similarity == task.cosine(held[expected[0]])


@pytest.mark.parametrize("count", [1, 30])
def test_directions_without_relation_pass_once_in_a_hundred(count):
    rng = np.random.default_rng(1)
    threshold = judge_match(0.0, count, WIDTH).threshold
    draws = 20_000
    vectors = rng.normal(size=(draws, count, WIDTH))
    best = (vectors[:, :, 0] / np.linalg.norm(vectors, axis=2)).max(axis=1)
    share = (best > threshold).mean()
    # the union over n cosines is at most 1%, and close to it
    assert share <= 0.01 + 5 * math.sqrt(0.01 / draws)
    assert share > 0.007


def test_a_planted_match_is_told_from_none():
    rng = np.random.default_rng(2)
    held, wanted = models(30, rng), rng.normal(size=WIDTH)
    unrelated = identify(made(wanted, "task"), held)
    assert unrelated.verdict.good_match == (
        unrelated.matches[0].similarity > unrelated.verdict.threshold
    )
    held["planted"] = made(wanted + 0.8 * rng.normal(size=WIDTH))
    found = identify(made(wanted, "task"), held)
    assert found.matches[0].name == "planted"
    assert found.verdict.good_match


def test_nothing_to_compare_is_no_match():
    found = identify(made(np.ones(WIDTH), "task"), {})
    assert found.matches == ()
    assert "nothing to compare" in found.verdict.sentence


def test_another_space_is_refused_by_name():
    other = replace(SPACE, backbone="sha256:1")
    with pytest.raises(ValueError, match=r"models: 'far': .*another backbone"):
        identify(made(np.ones(WIDTH), "task"), {"far": made(np.ones(WIDTH), space=other)})


@pytest.mark.parametrize("zero", ["task", "model"])
def test_zero_is_refused(zero):
    nothing, something = np.zeros(WIDTH), np.ones(WIDTH)
    task = made(nothing if zero == "task" else something, "task")
    with pytest.raises(ValueError, match="not zero"):
        identify(task, {"one": made(something if zero == "task" else nothing)})


def test_agreement_is_the_correlation_of_all_pairs():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(6, WIDTH))
    same = [made(row) for row in rows]
    exact = cosine_agreement(same, same)
    assert exact.correlation == pytest.approx(1.0)
    assert exact.error == 0.0
    assert exact.pairs == 15
    noisy = cosine_agreement(same, [made(row + 0.5 * rng.normal(size=WIDTH)) for row in rows])
    assert noisy.error > 0.0
    assert noisy.correlation < 1.0


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ((0.5, -3, 4), "compared"), ((float("nan"), 3, 4), "best"), ((2.0, 3, 4), "best"),
        (("x", 3, 4), "best"), ((0.5, 1.5, 4), "compared"), ((0.5, 3, 0), "size"),
    ],
)  # fmt: skip
def test_a_verdict_on_what_is_no_search_is_refused(given, name):
    with pytest.raises(ValueError, match=name):
        judge_match(*given)


def test_the_same_direction_is_a_match_however_many_there_are():
    assert judge_match(1.0, 10**9, 2).good_match
    assert judge_match(1.0, 10**400, 48).good_match
