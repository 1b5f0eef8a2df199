"""Statistics of people: who counts as one, what is left out, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Table
from tacit.statistics import Session, prepare, read_table

QUICK = Effort(trials=0)
PURE = Table(epsilon=1.0, person="who")
BOUNDED = {"epsilon": 1.0, "delta": 1e-6, "bounds": {"x": (0, 10)}}


def persons(pool, **more):
    """The count of persons before its noise."""
    prepared = prepare("count", pool, PURE, QUICK, **more)
    return prepared.plan.persons.whole(prepared.plan.metric).sum()


@pytest.mark.parametrize(
    ("who", "count"),
    [
        (["a", "b", None, "a", float("nan"), "", "c"], 3),
        (["Z\u00fcrich", "Zu\u0308rich", " Z\u00fcrich "], 1),
        ([1.0, 1.0, float("nan"), 2.0], 2),
        ([None, None], 0),
    ],
)
def test_who_counts_as_one(who, count):
    frame = pd.DataFrame({"who": who, "x": np.arange(len(who)) * 1.0})
    assert persons(frame) == count


def test_rows_of_nobody_in_an_array_are_left_out():
    rows = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, np.nan]])
    assert persons(rows, columns=["x", "who"]) == 1


@pytest.mark.parametrize(
    "pool", [np.array([[1.0], [2.0], [1.0]]), pd.DataFrame({"who": [1, 2, 1]})]
)
def test_persons_are_counted_in_a_table_of_nothing_else(pool):
    assert persons(pool, columns=["who"]) == 2


def test_in_a_quantile_a_person_weighs_one():
    frame = pd.DataFrame({"who": [0] * 500 + list(range(1, 100)), "x": [9.0] * 500 + [2.0] * 99})
    promise = Table(epsilon=8.0, person="who", bounds={"x": (0, 10)})
    release = prepare("median", frame, promise, QUICK).draw()
    assert abs(release.values[0] - 2.0) < 0.01


def test_a_quantile_of_texts_that_were_found_is_refused():
    frame = pd.DataFrame({"who": range(9), "x": list("abcabcabc")})
    table = read_table(frame, categories={"x": None, "who": None}, missing="drop-unreadable")
    promise = Table(epsilon=8.0, person="who", bounds={"x": (0, 10)})
    with pytest.raises(ValueError, match=r"^levels: expected the categories of x"):
        prepare("median", table, promise, QUICK)


def test_a_person_with_many_rows_counts_once_in_every_cell():
    frame = pd.DataFrame({"who": ["a"] * 50 + ["b"], "x": [1.0] * 25 + [6.0] * 26})
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=2, bounds={"x": (0, 10)})
    plan = prepare("histogram:x:0,5,10", frame, promise, QUICK).plan
    assert plan.metric.restore(plan.metric.coordinates(plan.persons.sums)).round(3).tolist() == [
        [1, 1],
        [0, 1],
    ]


@pytest.mark.parametrize(
    ("promise", "names"),
    [
        ({"person": "nobody", "clip": 2}, "person"),
        ({"clip": 2}, "clip"),
        ({"unit": "household"}, "unit"),
        ({"person": "who", "clip": 0.5}, "clip"),
        ({"person": "who", "clip": float("nan")}, "clip"),
        ({"person": "who"}, "clip"),
        ({"person": "who", "clip": "auto"}, "clip"),
        ({"person": "who", "clip": 2, "unit": "<b>x</b>"}, "unit"),
        ({"person": " ", "clip": 2}, "person"),
    ],
)
def test_what_is_refused_names_its_field(promise, names):
    rows = np.column_stack([np.arange(20.0), np.arange(20) % 5])
    with pytest.raises(ValueError, match=f"^{names}: expected"):
        prepare("mean", rows, Table(**BOUNDED, **promise), QUICK, columns=["x", "who"])


@pytest.mark.parametrize(
    ("promise", "names"),
    [({"epsilon": 1.0, "clip": 3}, "delta"), ({**BOUNDED, "clip": "auto"}, "clip")],
)
def test_a_session_adds_what_it_can_add(promise, names):
    rows = np.column_stack([np.arange(20.0), np.arange(20) % 5])
    with pytest.raises(ValueError, match=f"^{names}: expected"):
        Session(rows, Table(**promise, person="who"), columns=["x", "who"])


def test_a_session_refuses_when_the_budget_is_gone():
    rows = np.column_stack([np.arange(20.0) % 10, np.arange(20) % 5])
    session = Session(rows, Table(**BOUNDED, person="who", clip=3), columns=["x", "who"])
    first = session.ask("mean", share=0.9)
    assert first.kind == "statistic-people"
    with pytest.raises(ValueError, match="what is left of the budget"):
        session.ask("count", share=0.6)
    assert len(session.answers) == 1
