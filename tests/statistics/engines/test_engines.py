"""The same integers from every engine as from memory, whatever the rows hold."""

import pandas as pd
import pytest

from tacit.statistics.engines.contributors import InEngine
from tacit.statistics.engines.duck import DuckDB
from tacit.statistics.engines.statement import RowSource

from .awkward import LEVELS, QUERIES, in_memory, plan, table

NAN = "CAST('NaN' AS DOUBLE)"


def duckdb_rows(names, groups, numbers):
    engine = DuckDB()
    frame = pd.DataFrame({"who": names, "city": groups, "a": numbers[:, 0], "b": numbers[:, 1]})
    engine.connection.register("t", frame)
    text = (
        f"SELECT who AS p, a AS x0, b AS x1, city AS k2 FROM t WHERE a <> {NAN} AND b <> {NAN} "
        f"AND city IN ({', '.join(map(engine.dialect.quoted, LEVELS))})"
    )
    return engine, RowSource(text, {2: dict(enumerate(map(engine.dialect.quoted, LEVELS)))})


@pytest.mark.parametrize("number", range(4 * len(QUERIES)))
def test_duckdb_returns_the_integers_of_memory(number):
    names, groups, numbers = table(number)
    found = plan(number)
    metric, radius, norm = found.metric, found.radius, found.budget.norm
    ours = in_memory(found, names, groups, numbers)
    engine, rows = duckdb_rows(names, groups, numbers)
    theirs = InEngine(engine, rows, found.added)
    assert theirs.total(metric, radius, norm).tolist() == ours.total(metric, radius, norm).tolist()
    assert theirs.whole(metric).tolist() == ours.whole(metric).tolist()
    tried = [1, radius // 7 + 1, radius, 10 * radius]
    tried = [min(one, 2**30) for one in tried]
    assert theirs.beyond(metric, tried, norm).tolist() == ours.beyond(metric, tried, norm).tolist()
