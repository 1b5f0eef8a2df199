"""PostgreSQL and Spark return the integers of memory and of DuckDB, whatever the rows hold."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Table
from tacit.statistics.engines.contributors import InEngine
from tacit.statistics.engines.postgres import PostgreSQL
from tacit.statistics.engines.spark import Spark
from tacit.statistics.engines.statement import RowSource
from tacit.statistics.engines.workflow import answer

from .awkward import LEVELS, QUERIES, in_memory, plan, rows_of, shop, table
from .test_caps import there as capped
from .test_engine_quantiles import agree as quantiles_agree
from .test_select import ANSWERED, BOUNDS, PROMISE, TOLD, moments, persons, told

SCHEMA = "who string, city string, a double, b double"


@pytest.fixture(scope="module")
def session():
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = pyspark.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    made = builder.config("spark.sql.ansi.enabled", "true").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


def source(dialect, relation):
    listed = tuple(f"CAST({dialect.quoted(one)} AS {dialect.text})" for one in LEVELS)
    nothing = f"CAST('NaN' AS {dialect.double})"
    return RowSource(
        f"SELECT who AS p, a AS x0, b AS x1, city AS k2 FROM {relation} WHERE a <> {nothing} "
        f"AND b <> {nothing} AND city IN ({', '.join(listed)})",
        {2: dict(enumerate(listed))},
    )


def agree(engine, relation, number):
    found = plan(number)
    metric, radius, norm = found.metric, found.radius, found.budget.norm
    ours = in_memory(found, *table(number))
    theirs = InEngine(engine, source(engine.dialect, relation), found.added)
    assert theirs.total(metric, radius, norm).tolist() == ours.total(metric, radius, norm).tolist()
    tried = [1, radius, min(10 * radius, 2**30)]
    assert theirs.beyond(metric, tried, norm).tolist() == ours.beyond(metric, tried, norm).tolist()


@pytest.mark.postgres
@pytest.mark.parametrize("number", range(0, 4 * len(QUERIES), 3))
def test_postgresql_returns_the_integers_of_memory(number, postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("create table t (who text, city text, a float8, b float8)")
        with connection.cursor() as cursor:
            rows = rows_of(*table(number))
            cursor.executemany("insert into t values (%s, %s, %s, %s)", rows)
    engine = PostgreSQL(postgres)
    agree(engine, "t", number)
    engine.close()


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(0, 4 * len(QUERIES), 9))
def test_spark_returns_the_integers_of_memory(number, session):
    frame = session.createDataFrame(rows_of(*table(number)), SCHEMA)
    frame.createOrReplaceTempView("t")
    agree(Spark(session), "t", number)


def asked(sql):
    used = {name: BOUNDS[name] for name in BOUNDS if name in sql}
    if "size" in sql:
        used = {"s.size": (0.0, 40.0)}
    return replace(PROMISE, bounds=used or None, levels=None, clip=3.0)


def integers(sql, tables, engine=None):
    found = answer(sql, tables, asked(sql), public=("shops",), engine=engine)
    plan = found.prepared.plan
    return plan.persons.total(plan.metric, plan.radius, plan.budget.norm).tolist()


BY_KEY = "SELECT city, COUNT(*) FROM t GROUP BY city"
BY_NUMBER = BY_KEY.replace("city", "a")


def weighed(sql, tables, engine=None):
    promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=2)
    keys = answer(sql, tables, promise, engine=engine).request.pool.keys_elsewhere
    keys = replace(keys, statement=replace(keys.statement, salt="0f"))
    found = keys.weigh((), 2)
    return found, keys.weigh(found[0][:2], 2)


@pytest.mark.postgres
def test_postgresql_weighs_the_keys_that_duckdb_does(postgres):
    import psycopg

    names, groups, numbers = table(0)
    with psycopg.connect(postgres) as connection:
        connection.execute("create table t (who text, city text, a float8, b float8)")
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into t values (%s, %s, %s, %s)", rows_of(names, groups, numbers)
            )
    frame = pd.DataFrame(rows_of(names, groups, numbers), columns=["who", "city", "a", "b"])
    engine = PostgreSQL(postgres)
    assert weighed(BY_KEY, {"t": "t"}, engine) == weighed(BY_KEY, {"t": frame})
    assert weighed(BY_NUMBER, {"t": "t"}, engine)[0][0] == weighed(BY_NUMBER, {"t": frame})[0][0]
    engine.close()


PERSONS = {"number": 3, "double": 3, "real": 3, "padded": 4, "folded": 5}


@pytest.mark.postgres
def test_equal_cells_of_postgresql_are_one_person(postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute(
            "create collation folded (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false); create domain whole as integer check (value > 0); "
            "create table t (number numeric, double float8, real real, padded char(4), "
            "folded varchar(9) collate folded, part whole, moment timestamptz(3));"
            "insert into t values (1.0, 0, 0, 'a', 'a', 1, now()), (1.00, '-0', '-0', 'a  ', 'A', "
            "2, now()), (2, 1, 1, 'A', 'a ', 2, now()), ('NaN', 'NaN', 'NaN', 'b', '', 3, now()), "
            "('Infinity', 'Infinity', 'Infinity', ' b', 'b', 3, now()),"
            "(null, null, null, null, null, 9, now())"
        )
    engine = PostgreSQL(postgres)
    found = {name: persons("t", f"SELECT COUNT(DISTINCT {name}) FROM t", name, engine)
             for name in PERSONS}  # fmt: skip
    assert found == PERSONS
    assert persons("t", "SELECT COUNT(*) FROM t WHERE part = 2", "padded", engine) == 2
    assert persons("t", "SELECT COUNT(*) FROM t WHERE folded = 'a'", "padded", engine) == 1
    with pytest.raises(ValueError, match="a comparison of others with a text"):
        persons("t", "SELECT COUNT(*) FROM t WHERE moment > '2024-01-01'", "padded", engine)
    engine.close()


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore")
def test_whole_numbers_and_dates_are_compared_as_such_in_postgresql(postgres):
    import sqlalchemy

    place = sqlalchemy.create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    moments().to_sql("t", place, index=False)
    place.dispose()
    engine = PostgreSQL(postgres)
    assert {where: told(where, "t", engine) for where in TOLD} == TOLD
    engine.close()


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(2))
def test_spark_weighs_at_quantiles_what_memory_does(number, session):
    frame = session.createDataFrame(rows_of(*table(number)), SCHEMA)
    quantiles_agree(number, {"t": frame}, Spark(session))


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(3))
def test_spark_keeps_the_rows_that_duckdb_does(number, session):
    rows = rows_of(*table(number))
    there, frame = session.createDataFrame(rows, SCHEMA), pd.DataFrame(rows)
    frame.columns = ["who", "city", "a", "b"]
    assert capped(number, {"t": there}, Spark(session)) == capped(number, {"t": frame})


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
def test_spark_weighs_the_keys_that_duckdb_does(session):
    rows = rows_of(*table(0))
    there, frame = session.createDataFrame(rows, SCHEMA), pd.DataFrame(rows)
    frame.columns = ["who", "city", "a", "b"]
    found = weighed(BY_KEY, {"t": there}, Spark(session))
    assert found == weighed(BY_KEY, {"t": frame})
    numbers = weighed(BY_NUMBER, {"t": there}, Spark(session))
    assert numbers[0][0] == weighed(BY_NUMBER, {"t": frame})[0][0]


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore")
def test_a_select_means_the_same_in_postgresql(postgres):
    import psycopg
    import sqlalchemy

    frames = shop()
    place = sqlalchemy.create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    for name, frame in frames.items():
        frame.to_sql(name, place, index=False)
    place.dispose()
    engine = PostgreSQL(postgres)
    tables = {name: name for name in frames}
    for sql in ANSWERED:
        assert integers(sql, tables, engine) == integers(sql, frames), sql
    engine.close()
    # decimals that no double holds, and a cell that a cast would fail on
    with psycopg.connect(postgres) as connection:
        connection.execute("create table d (who text, x numeric)")
        for held in ("1e400", "-1e400", "1e-400", "NaN", "2.5"):
            connection.execute("insert into d values ('a', %s::numeric)", (held,))
    engine = PostgreSQL(postgres)
    promise = Table(epsilon=1.0, person="who", bounds={"x": (-1.0, 2.0)}, clip=10)
    found = answer("SELECT SUM(x), SUM(x * x / 3) FROM d", {"d": "d"}, promise, engine=engine)
    known = found.prepared.plan.persons.whole(found.prepared.plan.metric)
    assert np.isfinite(known).all()
    engine.close()


def as_spark(cell, column):
    """A cell of pandas as Spark takes it: of texts, NaN is nothing."""
    if "string" in column and not isinstance(cell, str):
        return None
    return cell.to_pydatetime() if isinstance(cell, pd.Timestamp) else cell


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
def test_a_select_means_the_same_in_spark(session):
    frames = shop()
    tables = {}
    for name, frame in frames.items():
        kinds = {"int64": "bigint", "float64": "double", "bool": "boolean"}
        schema = ", ".join(
            f"{key} {kinds.get(str(kind), 'timestamp' if key == 'day' else 'string')}"
            for key, kind in frame.dtypes.items()
        )
        cells = [
            [as_spark(*pair) for pair in zip(row, schema.split(", "), strict=True)]
            for row in frame.astype(object).to_numpy().tolist()
        ]
        tables[name] = session.createDataFrame(cells, schema)
    for sql in ANSWERED:
        assert integers(sql, tables, Spark(session)) == integers(sql, frames), sql
