"""Tables, queries and persons at random, with every awkward number, and their integers."""

import math

import numpy as np
import pandas as pd

from tacit import Effort, Table
from tacit.statistics import prepare
from tacit.statistics.people.contributors import InMemory
from tacit.statistics.people.vectors import person_sums
from tacit.statistics.queries import (
    Correlation,
    Count,
    CumulativeCounts,
    GroupBy,
    Histogram,
    LeastSquares,
    Mean,
    SecondMoments,
    StandardDeviation,
    Sum,
    Variance,
)
from tacit.statistics.queries.counts import RowCount

NUMBERS = ("a", "b")
QUERIES = (
    (Count(),), (RowCount(),), (Mean(NUMBERS),), (Sum(NUMBERS), Count()),
    (Mean(NUMBERS), StandardDeviation(NUMBERS)), (SecondMoments(NUMBERS),), (Correlation(NUMBERS),),
    (GroupBy(Count(), "group"),), (GroupBy(Mean(NUMBERS), "group"), GroupBy(RowCount(), "group")),
    (GroupBy(Variance(NUMBERS), "group"),), (LeastSquares("a", ("b",)),),
    (Histogram("a", (-1, 0, 1)), GroupBy(Count(), "group")),
    (CumulativeCounts("a", (-1, 0, 1)), Mean(NUMBERS)), (GroupBy(Mean(("a",)), "group"), Count()),
)  # fmt: skip
ODD = (1e300, -1e300, math.inf, -math.inf, -0.0, 5e-324, 2.5, 3.5, math.nan, 1e-160, 0.5)
LEVELS = ("Bern", "O'Hare", 'a "b"', "Zürich\u00e9", "x;--")
BOUNDS = ({"a": (-2.0, 1.5), "b": (0.0, 3.0)}, {"a": (-1e6, 1e6), "b": (-1e-3, 1e-3)})


def table(number, rows=None):
    """Rows (person, group, a, b): persons with one row, several, or one with nearly all."""
    rng = np.random.default_rng([71, number])
    count = int(rng.integers(5, 60)) if rows is None else rows
    structure = number % 3
    who = [np.arange(count), rng.integers(0, 6, count), (rng.random(count) < 0.1) * 1][structure]
    groups = rng.choice([*LEVELS, "elsewhere"], count)
    numbers = rng.standard_t(1.2, (count, 2)) * 10.0 ** rng.uniform(-3, 3)
    odd = rng.random((count, 2)) < 0.2
    numbers[odd] = rng.choice(ODD, int(odd.sum()))
    names = [None if rng.random() < 0.03 else f"p'{one}" for one in who]
    return names, groups.tolist(), numbers


def rows_of(names, groups, numbers):
    """Rows (person, group, a, b) as an engine is given them."""
    return [
        (name, group, float(a), float(b))
        for name, group, (a, b) in zip(names, groups, numbers.tolist(), strict=True)
    ]


def plan(number):
    """A plan of a query under a promise, as it is made before any row is read."""
    rng = np.random.default_rng([73, number])
    pure = number % 4 == 3
    promise = Table(
        epsilon=0.7,
        delta=None if pure else 1e-6,
        person="who",
        clip=float(rng.choice([1.0, 2.5, 40.0])),
        bounds=BOUNDS[int(rng.integers(2))],
        levels={"group": list(range(len(LEVELS)))},
    )
    empty = np.array([[0.0, 0.0, 0.0, 0.0]])
    query = QUERIES[number % len(QUERIES)]
    prepared = prepare(query, empty, promise, Effort(trials=0), columns=["a", "b", "group", "who"])
    return prepared.plan


def in_memory(found, names, groups, numbers):
    """The persons of the rows that hold something in every column, in memory."""
    kept = [
        (*pair.tolist(), float(LEVELS.index(group)), name)
        for name, group, pair in zip(names, groups, numbers, strict=True)
        if name is not None and group in LEVELS and not np.isnan(pair).any()
    ]
    rows = np.array([one[:3] for one in kept]).reshape(-1, 3)
    people = np.unique([one[3] for one in kept], return_inverse=True)[1].reshape(-1)
    return InMemory(person_sums(found.added, rows, people))


def shop():
    """Visits, the people who made them, and shops."""
    rng = np.random.default_rng(4)
    visits = pd.DataFrame(
        {
            "customer": rng.choice([*(f"c{one}" for one in range(60)), None], 500),
            "city": rng.choice(["Bern", "Oslo", "Rome", None], 500),
            "kind": rng.integers(1, 4, 500),
            "spent": rng.choice([*np.arange(0.0, 60.0, 2.5), np.nan], 500),
            "day": pd.to_datetime(rng.choice(["2024-01-05", "2024-02-07", "2025-01-01"], 500)),
            "shop": rng.integers(0, 4, 500),
        }
    )
    people = pd.DataFrame(
        {
            "customer": [f"c{one}" for one in range(50)],
            "income": rng.choice([3e4, 5e4, 8e4, np.nan, 3e5], 50),
            "age": rng.integers(10, 90, 50),
            "rate": rng.choice([-0.5, 0.25, 1.0], 50),
            "member": rng.random(50) < 0.5,
        }
    )
    shops = pd.DataFrame({"shop": [0, 1, 2], "size": [10.0, 20.0, 30.0]})
    return {"visits": visits, "people": people, "shops": shops}
