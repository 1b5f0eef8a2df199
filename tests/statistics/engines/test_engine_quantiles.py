"""Quantiles in an engine: what persons weigh is what it is in memory, integer by integer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tacit import Table
from tacit.statistics import prepare_sql
from tacit.statistics.engines.postgres import PostgreSQL
from tacit.statistics.engines.workflow import answer
from tacit.statistics.people.quantiles import WeighedRows
from tests.statistics.engines.awkward import LEVELS, rows_of, table

SQL = (
    "SELECT city, MEDIAN(a), QUANTILE_CONT(b, 0.9), COUNT(*), "
    "PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY a) FROM t GROUP BY city"
)


def asked(number, tables, engine=None):
    bounds = [{"a": (-3.0, 7.0), "b": (0.0, 1e-90)}, {"a": (0.0, 1e99), "b": (-1e3, 1e3)}]
    promise = Table(
        mu=1.0, person="who", clip=3, bounds=bounds[number % 2], levels={"city": LEVELS}
    )
    return answer(SQL, tables, promise, engine=engine).prepared.plan.chooser


def agree(number, tables, engine=None):
    names, groups, numbers = table(number)
    held = [name is not None for name in names]
    codes = [LEVELS.index(one) if one in LEVELS else np.nan for one in groups]
    rows = np.column_stack([numbers, np.array(codes)])[held]
    people = np.unique([one for one in names if one is not None], return_inverse=True)[1]
    memory, chooser = WeighedRows(rows, people.reshape(-1)), asked(number, tables, engine)
    assert len(chooser.asked) == 3 * len(LEVELS)
    for one in chooser.asked:
        places, weights = memory.weights(one)
        points, inverse = np.unique(places, return_inverse=True)
        found = dict(zip(*map(np.ndarray.tolist, chooser.weighed.weights(one)), strict=True))
        own = np.bincount(inverse.reshape(-1), weights, len(points)).astype(int)
        assert found == dict(zip(points.tolist(), own.tolist(), strict=True))


@pytest.mark.parametrize("number", range(6))
def test_duckdb_weighs_what_memory_does(number):
    frame = pd.DataFrame(rows_of(*table(number)), columns=["who", "city", "a", "b"])
    agree(number, {"t": frame})


@pytest.mark.postgres
@pytest.mark.parametrize("number", range(4))
def test_postgresql_weighs_what_memory_does(number, postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("create table t (who text, city text, a float8, b float8)")
        with connection.cursor() as cursor:
            rows = rows_of(*table(number))
            cursor.executemany("insert into t values (%s, %s, %s, %s)", rows)
    engine = PostgreSQL(postgres)
    agree(number, {"t": "t"}, engine)
    engine.close()


def test_a_median_is_near_the_persons_own():
    """Persons with many rows weigh no more than others."""
    frame = pd.DataFrame({"who": [*range(4000), *[0] * 3000], "x": [*range(4000), *[9] * 3000]})
    promise = Table(epsilon=1.0, person="who", bounds={"x": (0, 4000)})
    release = prepare_sql("SELECT MEDIAN(x) AS m FROM t", {"t": frame}, promise).draw()
    (number,) = release.numbers
    assert number.name == "m"
    assert abs(number.value - 2000) < 100
    low, high = number.interval()
    assert low <= number.value <= high < 2600


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("QUANTILE_CONT(x, y)", "without one level"),
        ("QUANTILE_CONT(x, 1.5)", "without one level"),
        ("MEDIAN(DISTINCT x)", "MEDIAN(DISTINCT)"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x DESC)", "WITHIN GROUP"),
        ("QUANTILE_CONT(x, [0.1, 0.9])", "without one level"),
    ],
)
def test_other_quantiles_are_refused_by_name(sql, named):
    frame = pd.DataFrame({"who": ["a"], "x": [1.0], "y": [0.5]})
    promise = Table(mu=1.0, person="who", bounds={"x": (0, 9)})
    with pytest.raises(ValueError, match="sql: ") as error:
        prepare_sql(f"SELECT {sql} FROM t", {"t": frame}, promise)
    assert named in str(error.value)
