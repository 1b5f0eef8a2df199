"""Caps on a person's rows and groups: the same rows stay wherever they are, for theirs alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Table
from tacit.cli.statistic.commands import read_pool
from tacit.cli.tables import PoolFlags
from tacit.statistics import Session, prepare, prepare_sql
from tacit.statistics.caps import Caps
from tacit.statistics.engines.files import pool_in_file
from tacit.statistics.engines.postgres import PostgreSQL
from tacit.statistics.engines.workflow import answer
from tacit.statistics.opening import open_pool
from tests.statistics.engines.awkward import LEVELS, rows_of, table
from tests.statistics.engines.test_files import frame

QUIET = Effort(trials=0)
CAPS = ({"max_rows": 3}, {"max_groups": 2}, {"max_rows": 4, "max_groups": 1})
SQL = "SELECT city, SUM(a), COUNT(*) FROM t WHERE b IS NOT NULL GROUP BY city"


def whole(prepared):
    return prepared.plan.persons.whole(prepared.plan.metric).tolist()


@pytest.mark.parametrize("number", range(6))
def test_a_file_and_memory_keep_the_same_rows(number, tmp_path):
    path = tmp_path / "t.parquet"
    frame(number).to_parquet(path)
    # numbers of no level are in no group, and their rows are rows
    levels = {"group": LEVELS[: 2 + number % 2], "kind": (0, 2)}
    promise = Table(mu=1.0, person="who", bounds={"a": (-2, 1.5)}, levels=levels, clip=3,
                    **CAPS[number % 3])  # fmt: skip
    query = "mean by group by kind+rows by group+count"
    there = pool_in_file(str(path), ["a", "group", "kind"], query, promise)
    here = read_pool(str(path), query, None, PoolFlags(columns="a,group,kind"), promise)[0]
    found = [whole(prepare(query, pool, promise, QUIET)) for pool in (here, there)]
    assert found[0] == found[1]


@pytest.mark.parametrize("number", range(3))
def test_keys_that_are_found_keep_the_rows_that_they_were_found_of(number, tmp_path):
    rng = np.random.default_rng(number)
    rows = pd.DataFrame({"who": rng.integers(0, 9, 90), "a": rng.integers(0, 4, 90) + 0.5,
                         "city": rng.choice(list("ABCDE"), 90)})  # fmt: skip
    rows.to_parquet(tmp_path / "t.parquet")
    promise = Table(epsilon=1.0, delta=1e-6, person="who", bounds={"a": (0, 5)}, clip=3,
                    **CAPS[number])  # fmt: skip
    query, path = "mean by city", str(tmp_path / "t.parquet")
    there = pool_in_file(path, ["a", "city"], query, promise)
    here = open_pool(rows[["who", "a", "city"]], None, promise, query=query)
    known = [pool.with_keys(("B", "D")) for pool in (here, there)]
    found = [whole(prepare(query, pool, promise, QUIET)) for pool in known]
    assert found[0] == found[1]


def test_which_rows_stay_depends_on_that_person_alone():
    rng = np.random.default_rng(3)
    for number in range(60):
        caps = Caps(*((3, None), (None, 2), (4, 2))[number % 3])
        rows = int(rng.integers(1, 60))
        persons = np.unique(rng.integers(0, 6, rows), return_inverse=True)[1]
        names = [f"p{one}é" for one in range(6)]
        values, keys = rng.integers(0, 3, rows) + 0.5, rng.integers(0, 5, rows).astype(float)
        keys[rng.random(rows) < 0.2] = np.nan
        stays = caps.kept(persons, names, [values], [keys])
        for who in np.unique(persons):
            own = persons == who
            alone = caps.kept(np.zeros(own.sum(), int), [names[who]], [values[own]], [keys[own]])
            assert alone.tolist() == stays[own].tolist()
            left = keys[own][alone]
            if caps.groups is not None:
                assert len(set(left[~np.isnan(left)])) <= caps.groups
            if caps.rows is not None:
                assert len(left) <= caps.rows
                assert len(left) == min(caps.rows, own.sum()) or caps.groups is not None
        # the order in which rows stand decides nothing but which of two alike stays
        turn = rng.permutation(rows)
        again = caps.kept(persons[turn], names, [values[turn]], [keys[turn]])
        triples = [
            Counter(zip(a.tolist(), b.tolist(), np.nan_to_num(c, nan=-1).tolist(), strict=True))
            for a, b, c in (
                (persons[stays], values[stays], keys[stays]),
                (persons[turn][again], values[turn][again], keys[turn][again]),
            )
        ]
        assert triples[0] == triples[1]


def test_every_row_is_as_likely_to_stay():
    """Of a thousand persons with the same ten rows each row stays in three of ten."""
    persons, values = np.repeat(np.arange(1000), 10), np.tile(np.arange(10.0), 1000)
    stays = Caps(3, None).kept(persons, [str(one) for one in range(1000)], [values], [])
    share = np.bincount(values[stays].astype(int)) / 1000.0
    # six deviations of a share of 1000
    assert np.abs(share - 0.3).max() < 6 * (0.3 * 0.7 / 1000) ** 0.5


def test_what_is_asked_of_caps():
    visits = pd.DataFrame({"who": [1, 1, 1, 2], "city": list("ABCA"), "x": [1.0, 2.0, 3.0, 4.0]})
    promise = Table(epsilon=1.0, person="who", bounds={"x": (0, 9)}, max_rows=2)
    # rows that are capped need no clip
    prepared = prepare("mean", visits[["who", "x"]], promise, QUIET)
    assert prepared.planned.details.radius == 2 * 2**16
    assert any("than 2 rows:" in one for one in prepared.draw().notes)
    sql = prepare_sql("SELECT SUM(x) FROM t", {"t": visits}, promise)
    assert sql.planned.details.radius == 2 * 2**16
    many = replace(promise, max_rows=10**6)
    assert prepare("mean", visits[["who", "x"]], many, QUIET).planned.details.radius == 2**30
    assert repr(prepared).startswith("<Prepared mean: not drawn")
    # a longer clip cuts nobody, and is no more noise
    longer = replace(promise, clip=7)
    assert prepare("mean", visits[["who", "x"]], longer, QUIET).plan.radius == 2 * 2**16
    assert prepare_sql("SELECT SUM(x) FROM t", {"t": visits}, longer).plan.radius == 2 * 2**16
    assert Session(visits, Table(mu=1.0, person="who", bounds={"x": (0, 9)}, max_rows=2))
    with pytest.raises(ValueError, match=r"^max_groups: expected a query by groups"):
        prepare("mean", visits[["who", "x"]], Table(mu=1.0, person="who", clip=2, max_groups=1,
                bounds={"x": (0, 9)}), QUIET)  # fmt: skip
    with pytest.raises(ValueError, match=r"^max_rows: expected person"):
        Table(mu=1.0, max_rows=2)
    with pytest.raises(ValueError, match=r"^max_rows: expected"):
        Table(mu=1.0, person="who", max_rows=0)


def there(number, tables, engine=None):
    promise = Table(mu=1.0, person="who", clip=3, bounds={"a": (-3.0, 7.0)},
                    levels={"city": LEVELS}, **CAPS[number % 3])  # fmt: skip
    return whole(answer(SQL, tables, promise, engine=engine).prepared)


@pytest.mark.postgres
@pytest.mark.parametrize("number", range(6))
def test_postgresql_keeps_the_rows_that_duckdb_does(number, postgres):
    import psycopg

    rows = rows_of(*table(number))
    with psycopg.connect(postgres) as connection:
        connection.execute("create table t (who text, city text, a float8, b float8)")
        with connection.cursor() as cursor:
            cursor.executemany("insert into t values (%s, %s, %s, %s)", rows)
    engine = PostgreSQL(postgres)
    here = pd.DataFrame(rows, columns=["who", "city", "a", "b"])
    assert there(number, {"t": "t"}, engine) == there(number, {"t": here})
    engine.close()
