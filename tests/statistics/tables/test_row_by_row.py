"""A promise about a table rests on this: one record more or less changes at most one row read."""

import datetime
import decimal
import importlib
import sqlite3
from collections import Counter
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from tacit import Effort, Table
from tacit.statistics import privatize, read_query, read_table
from tacit.statistics.tables.cells import value_of
from tacit.statistics.tables.columns import spell

DAY = datetime.date(2020, 1, 1)
BASES = {
    "integers": [1, 2] * 4,
    "numbers": [1.5, 2.0] * 4,
    "digits": ["1", "2.0"] * 4,
    "words": ["a", "b"] * 4,
    "truth": [True, False] * 4,
    "large": [2**60, 2**60 + 1, 3] * 3,
    "decimals": [decimal.Decimal("1.5"), decimal.Decimal("2")] * 4,
    "days": [DAY, datetime.date(2020, 1, 2)] * 4,
    "times": [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2, 3)] * 4,
    "single": [np.float32(0.1), np.float32(2)] * 4,
}
ODD = [
    None, float("nan"), float("inf"), "x", "1", "1.0", 1.0, 1, 2**60, 2**70, -(2**63), True, b"1",
    b"\xff", 1e300, "é", "e\u0301", DAY, datetime.datetime(2020, 1, 1, 1),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    datetime.timedelta(1), decimal.Decimal("1.50"), "NaN", "NA", "", (1,),
    1 + 2j, np.float32(1.5), np.int8(1), decimal.Decimal("NaN"),
    "\ud800", 10**400,
]  # fmt: skip
LEVELS = [
    None,
    {"k": ["1", "2", "1.5", "a", "b", "0.1", "2020-01-01", "2020-01-02 03:00"]},
    {"k": [1, 2, 0, 2.0**60]},
]


def holds(column, cells):
    """Whether a frame holds each cell as it was given, whatever type it has: Counter of values."""

    def values(some):
        return Counter(value_of(spell(one) or "") for one in some)

    return not values(cells) - values(column)


def pandas(cells):
    frame = importlib.import_module("pandas").DataFrame({"k": cells})
    return frame, frame["k"].tolist()


def objects(cells):
    frame = importlib.import_module("pandas").DataFrame({"k": cells}, dtype=object)
    return frame, cells


def polars(cells):
    frame = importlib.import_module("polars").DataFrame({"k": cells}, strict=False)
    return frame, frame["k"].to_list()


def arrow(cells):
    frame = pa.table({"k": cells})
    return frame, frame["k"].to_pylist()


def read(make, cells, levels):
    """Return the rows read of a frame; None where its own maker made others of the base cells."""
    try:
        frame, held = make(cells)
    except Exception:
        # no frame of such cells
        return None
    if not holds(held, cells[1:-1]):
        return None
    return rows_of(read_table(frame, ["k"], missing="drop-unreadable", categories=levels))


def rows_of(table):
    return Counter(table.rows[:, 0].tolist())


def distance(one, other):
    return sum(((one - other) + (other - one)).values())


@pytest.mark.parametrize("levels", LEVELS, ids=["numbers", "words", "codes"])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("make", [pandas, objects, polars, arrow])
def test_one_cell_more_changes_one_row_of_a_frame(make, base, levels):
    if make is not arrow:
        pytest.importorskip("polars" if make is polars else "pandas")
    if levels is None and base in ("days", "times"):
        # refused whole, as a column of days is
        return
    first, last = [BASES[base][0]], [BASES[base][-1]]
    before = read(make, [*first, *BASES[base], *last], levels)
    compared = 0
    # polars panics at the last three, before there is a frame
    odd_ones = ODD[:-3] if make is polars else ODD
    for odd in odd_ones:
        for cells in ([*first, *BASES[base], *last, odd], [odd, *first, *BASES[base], *last]):
            after = read(make, cells, levels)
            if before is not None and after is not None:
                compared += 1
                assert distance(before, after) <= 1, (odd, before, after)
    assert compared or before is None


@pytest.mark.parametrize("levels", LEVELS, ids=["numbers", "words", "codes"])
def test_one_cell_more_changes_one_row_of_a_query(levels, tmp_path):
    def query(cells):
        path = tmp_path / "t.db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("create table t (k)")
            database.executemany("insert into t values (?)", [(cell,) for cell in cells])
        sql = "select k from t"
        return rows_of(read_query(sql, path, missing="drop-unreadable", categories=levels))

    odd = [None, float("inf"), "x", "1", "1.0", 1, 1.5, 2**60, -(2**63), b"1", b"\xff", "NaN", ""]
    for base in ("integers", "numbers", "digits", "words", "large"):
        before = query(BASES[base])
        for one in odd:
            assert distance(before, query([*BASES[base], one])) <= 1, (base, one)
            assert distance(before, query([one, *BASES[base]])) <= 1, (base, one)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_word_among_numbers_leaves_the_counts_of_the_others(name):
    library = pytest.importorskip(name)
    strict = {"strict": False} if name == "polars" else {}
    scores = [1.5, 2.0, 2.5, 3.0] * 25

    def counts(cells):
        frame = library.DataFrame({"score": cells}, **strict)
        table = read_table(frame, missing="drop-unreadable", categories={"score": [1.5, 2, 2.5, 3]})
        promise = Table(epsilon=1.0, delta=1e-6)
        return privatize("count by score", table, promise, Effort(trials=0), rng=1).values

    np.testing.assert_array_equal(counts(scores), counts([*scores, "absent"]))


def test_levels_that_types_do_not_tell_apart_are_refused():
    with pytest.raises(ValueError, match="categories: expected levels that columns with types"):
        read_table(pa.table({"k": ["1", "01"]}), categories={"k": ["1", "01"]})


def test_a_text_file_tells_spellings_apart(tmp_path):
    (tmp_path / "t.csv").write_text("k\n1\n01\n")
    table = read_table(tmp_path / "t.csv", categories={"k": ["1", "01"]})
    assert sorted(table.rows[:, 0].tolist()) == [0.0, 1.0]


def test_python_values_that_arrow_has_no_column_for_are_read_one_by_one():
    library = pytest.importorskip("pandas")
    frame = library.DataFrame({"k": [1, 2, 2**70]})
    assert read_table(frame, missing="drop-unreadable").rows[:, 0].tolist() == [1, 2, 2.0**70]
    mixed = library.DataFrame({"k": [DAY, float("inf"), 7]})
    assert read_table(mixed, missing="drop-unreadable").rows[:, 0].tolist() == [7]


@pytest.mark.parametrize("odd", ["x", b"x", 3, None])
def test_a_category_stays_one_whatever_its_levels_are(odd):
    pandas = pytest.importorskip("pandas")
    for cells in ([1.5, 2.0, 2.0], [1.5, 2.0, 2.0, odd]):
        frame = pandas.DataFrame({"k": pandas.Categorical(cells)})
        table = read_table(frame, missing="drop-unreadable")
        assert not table.categories["k"].declared
        with pytest.raises(ValueError, match="declared"):
            privatize("mean", table, Table(mu=1.0, bounds=[(0.0, 4.0)]), Effort(trials=0))


def test_a_zero_has_one_sign_whatever_stands_beside_it():
    pandas = pytest.importorskip("pandas")
    for cells in ([-0.0, 1.0], [-0.0, 1.0, "x"]):
        rows = read_table(pandas.DataFrame({"k": cells}), missing="drop-unreadable").rows
        assert rows.shape == (2, 1)
        assert not np.signbit(rows).any()
