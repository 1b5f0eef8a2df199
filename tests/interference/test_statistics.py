"""Statistics tell nothing beside the noise: numbers, pages, prices, sessions, refusals."""

import contextlib
import json
import sqlite3

import numpy as np
import pandas as pd
import pytest

from tacit import Draw, Effort, Rows, Table, prepare
from tacit.statistics import Session

from .registry import tells_nothing_beside

PAGES = ("page.html", "all.json")
OUT = ["--certificate", "public.html", "--report", PAGES[0], "--json", PAGES[1], "--no-attack"]
BOUNDS = "age=0:100,income=0:1000"


def table(last="40,400,Rome", count=30, city=True):
    lines = [f"{20 + n},{100 + 7 * n},{('Rome', 'Bern')[n % 2]}" for n in range(count - 1)]
    rows = [*lines, *([last] if last is not None else [])]
    head = "age,income,city"
    if not city:
        head, rows = "age,income", [one.rpartition(",")[0] for one in rows]
    return head + "\n" + "\n".join(rows) + "\n"


ROWS = {
    "extreme": "1e300,-1e300,Rome",
    "duplicate": "20,100,Rome",
    "rare": "40,400,Ulan Bator",
    "longest": "40,400," + "x" * 300,
    "composed": "40,400,Z\u00fcrich",
    "decomposed": "40,400,Zu\u0308rich",
    "nothing": "nan,,Rome",
    "no number": "forty,inf,Rome",
}
QUERIES = [
    "count",
    "sum",
    "mean",
    "std",
    "covariance",
    "correlation",
    "median",
    "histogram:age:0,25,50,100",
    "mean by age:0,30,60",
    "cumulative:age:20,40",
    "least-squares",
]


def asked(query, *more, columns="age,income"):
    return ["statistic", "in.csv", "--query", query, "--columns", columns, *more]


def of_table(query, adjacency="replace", *more):
    chosen = ["--protect", "table", "--success", "0.6", "--bounds", BOUNDS]
    return asked(query, *chosen, "--adjacency", adjacency, *more)


def published(interference, command, first, second, **options):
    pair = interference.commands(command, {"in.csv": first}, {"in.csv": second})
    pair.assert_equal(holder=PAGES, holder_terminal=True, **options)
    assert pair.first.code == 0, pair.first.err
    return pair


@pytest.mark.parametrize("query", QUERIES)
@tells_nothing_beside("statistic", "statistic-table")
def test_a_hidden_table(interference, query):
    command = of_table(query, "replace", *OUT)
    # the number of rows is taken as public, and is all that a count tells
    released = query != "count"
    published(interference, command, table(), table(ROWS["extreme"]), released=released)


@pytest.mark.parametrize("query", ["count", "mean", "std", "median", "mean by age:0,30,60"])
@tells_nothing_beside("statistic", "statistic-table")
def test_a_hidden_table_with_one_row_less(interference, query):
    published(interference, of_table(query, "add-remove", *OUT), table(), table(None))


@pytest.mark.parametrize("other", ROWS)
@tells_nothing_beside("statistic", "statistic-table")
def test_columns_of_text_that_are_read(interference, other):
    # how many cities there are is not told where nothing of them is computed
    command = asked(
        "histogram:age:0,25,50,100", "--protect", "table", "--success", "0.6", "--category", "city",
        *OUT, columns="age,city",
    )  # fmt: skip
    published(interference, command, table(), table(ROWS[other]))


@pytest.mark.parametrize("other", ["rare", "longest", "gone"])
@pytest.mark.parametrize("query", ["count", "histogram:age:0,25,50,100", "count by city"])
@tells_nothing_beside("statistic", "statistic-table")
def test_columns_of_text_that_are_not_read_and_words_that_are_declared(interference, query, other):
    command = ["statistic", "in.csv", "--query", query, "--protect", "table", "--success", "0.6"]
    command += ["--levels", "city=Bern,Rome", "--missing", "drop-unreadable"]
    second = table(ROWS.get(other))
    if "city" not in query:
        command = [part for part in command if part not in ("--levels", "city=Bern,Rome")]
        if other != "gone":
            # a row of its own, whatever stands in a column that is not read
            second = table(ROWS[other])
    published(interference, [*command, *OUT], table(), second)


@tells_nothing_beside("statistic", "statistic-table")
def test_four_rows_and_three(interference):
    command = of_table("mean", "add-remove", *OUT)
    published(interference, command, table(count=4), table(None, count=4))


UNREADABLE = {
    "infinite": "-Infinity,400,Rome",
    "not a number": "nan,400,Rome",
    "blank": ",400,Rome",
    "text": "forty,400,Rome",
    "beyond 2^53": "9007199254740993,400,Rome",
}
SHORT = "77"


@pytest.mark.parametrize("other", UNREADABLE)
@pytest.mark.parametrize("query", ["count", "mean", "median", "histogram:age:0,25,50,100"])
@tells_nothing_beside("statistic", "statistic-table")
def test_rows_that_cannot_be_read_are_hidden_as_others_are(interference, query, other):
    adjacency = "replace" if query == "mean" else "add-remove"
    command = of_table(query, adjacency, *OUT)
    published(interference, command, table(), table(UNREADABLE[other]))


@tells_nothing_beside("statistic", "statistic-table")
def test_a_level_that_is_not_declared_is_dropped_with_its_row(interference):
    command = asked(
        "histogram:age:0,25,50,100", "--protect", "table", "--success", "0.6", "--missing",
        "drop-unreadable", "--category", "city=Bern,Rome", *OUT, columns="age,city",
    )  # fmt: skip
    published(interference, command, table(), table(ROWS["rare"]))


@pytest.mark.parametrize("row", [SHORT])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@tells_nothing_beside("statistic", "statistic-table")
def test_where_a_row_refuses_the_table_the_certificate_says_so(interference, adjacency, row):
    command = of_table("mean", adjacency, *OUT)
    pair = interference.commands(command, {"in.csv": table()}, {"in.csv": table(row)})
    read, refused = pair.first, pair.second
    assert (read.code, refused.code) == (0, 2), refused.err
    assert not refused.files, "something is left of a refusal"
    assert not refused.passed, "something was released"
    assert not refused.out
    # where in the file, but nothing of what it holds
    assert not any(cell in refused.err for cell in row.split(",") if cell), refused.err
    assert "whether the table could be read is not hidden" in read.files["public.html"].decode()


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("query", ["std", "median", "mean", "correlation"])
@tells_nothing_beside("statistic")
def test_a_dry_run(interference, query, adjacency):
    other = ROWS["extreme"] if adjacency == "replace" else None
    pair = interference.commands(
        of_table(query, adjacency, "--dry-run", "--json", "dry.json"),
        {"in.csv": table()},
        {"in.csv": table(other)},
    )
    pair.assert_equal(released=False)
    assert pair.first.code == 0, pair.first.err


def visits(last=("40,400", "30,1e300"), count=12):
    """Three rows of every person, and those of one more, or none."""
    lines = [f"p{n % count},{20 + n},{100 + 7 * n}" for n in range(3 * count)]
    own = [f"last,{cells}" for cells in last]
    return "who,age,income\n" + "\n".join([*lines[:7], *own, *lines[7:]]) + "\n"


PERSONS = {
    "gone": (),
    "one row": ("40,400",),
    "many rows": ("40,400", "0,1000") * 40,
    "unreadable": ("forty,400", "nan,1", ",3"),
    "extreme": ("-1e300,1e308",),
}
OF_PEOPLE = {
    "count": ["--epsilon", "1"],
    "rows": ["--epsilon", "1", "--clip", "3"],
    "mean": ["--success", "0.6", "--clip", "2.5"],
    "std": ["--epsilon", "2", "--delta", "1e-6", "--clip", "4", "--unit", "household"],
    "mean by age:0,30,60": ["--mu", "0.3", "--clip", "2"],
    "histogram:age:0,25,50,100": ["--mu", "0.3", "--clip", "2"],
    "median": ["--epsilon", "1"],
    "quantiles:0.1,0.9+count": ["--mu", "0.3", "--clip", "2"],
}


@pytest.mark.parametrize("other", PERSONS)
@pytest.mark.parametrize("query", OF_PEOPLE)
@tells_nothing_beside("statistic", "statistic-people")
def test_a_person_with_all_rows(interference, query, other):
    columns = "age,income" if query in ("mean", "std", "mean by age:0,30,60") else "age"
    command = asked(
        query, "--protect", "table", "--person", "who", *OF_PEOPLE[query], "--bounds", BOUNDS,
        *OUT, columns=columns,
    )  # fmt: skip
    if columns == "age":
        command[command.index(BOUNDS)] = "age=0:100"
    published(interference, command, visits(), visits(PERSONS[other]))


@pytest.mark.parametrize("other", ["gone", "many rows"])
@tells_nothing_beside("statistic", "statistic-people")
def test_how_far_a_person_moves_the_numbers_that_was_found(interference, other):
    command = asked(
        "mean by age:0,10,20,30,40,50,60,70,80,90,100", "--protect", "table", "--person", "who",
        "--epsilon", "6", "--delta", "1e-6", "--clip", "auto", "--bounds", BOUNDS, *OUT,
    )  # fmt: skip
    published(interference, command, visits(), visits(PERSONS[other]))


def records(last):
    lines = [f"{n % 9},{20 + n},{100 + n}" for n in range(30)]
    return "customer_id,age,income\n" + "\n".join([*lines, *last]) + "\n"


@tells_nothing_beside("statistic", "statistic-table")
def test_how_many_rows_share_an_identifier_is_told_to_the_holder_alone(interference):
    first, second = records(["2,40,400"]), records(["77,40,400"] * 50)
    pair = published(interference, of_table("mean", "add-remove", *OUT), first, second)
    assert "up to 5 rows share one value of 'customer_id'" in pair.first.out + pair.first.err
    assert "up to 50 rows share one value of 'customer_id'" in pair.second.out + pair.second.err


def towns(own, count=200):
    lines = [f"p{n % count},{('Bern', 'Rome', 'Oslo')[n % 3]}" for n in range(3 * count)]
    return (
        "who,city\n" + "\n".join([*lines[:7], *(f"last,{one}" for one in own), *lines[7:]]) + "\n"
    )


OWN_KEYS = {
    "gone": (),
    "rare": ("Ulan Bator", "Bern"),
    "many": tuple(f"town{n}" for n in range(300)),
    "blank": ("",),
    "long": ("x" * 300,),
}


@pytest.mark.parametrize("other", OWN_KEYS)
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@tells_nothing_beside("statistic", "statistic-people")
def test_keys_that_are_found(interference, other, more):
    command = ["statistic", "in.csv", "--query", "count by city+count", "--protect", "table"]
    command += ["--person", "who", "--epsilon", "1", "--delta", "1e-6", "--clip", "2"]
    command += [*more, *(["--json", "dry.json"] if more else OUT)]
    first, second = towns(("Rome",)), towns(OWN_KEYS[other])
    if more:
        pair = interference.commands(command, {"in.csv": first}, {"in.csv": second})
        pair.assert_equal(released=False)
        assert pair.first.code == 0, pair.first.err
        return
    published(interference, command, first, second)


@pytest.mark.parametrize("other", ["gone", "many rows"])
@tells_nothing_beside("statistic", "statistic-people")
def test_a_dry_run_about_people(interference, other):
    command = asked(
        "mean", "--protect", "table", "--person", "who", "--epsilon", "1", "--delta", "1e-6",
        "--clip", "2", "--bounds", BOUNDS, "--dry-run", "--json", "dry.json",
    )  # fmt: skip
    pair = interference.commands(command, {"in.csv": visits()}, {"in.csv": visits(PERSONS[other])})
    pair.assert_equal(released=False)
    assert pair.first.code == 0, pair.first.err


def as_parquet():
    """Make a Parquet file of the table there is."""
    held = pd.read_csv("in.csv")
    for name in ("age", "income"):
        held[name] = pd.to_numeric(held[name], errors="coerce").astype("float64")
    held.to_parquet("in.parquet")


@pytest.mark.parametrize("other", PERSONS)
@tells_nothing_beside("statistic", "statistic-people")
def test_a_file_of_persons_that_is_summed_where_it_is(interference, other):
    command = [
        "statistic", "in.parquet", "--query", "mean+histogram:age:0,25,50", "--columns", "age",
        "--protect", "table", "--person", "who", "--bounds", "age=0:100", "--mu", "0.3",
        "--clip", "2", *OUT,
    ]  # fmt: skip
    files = [{"in.csv": visits()}, {"in.csv": visits(PERSONS[other])}]
    pair = interference.commands(command, *files, prepare=as_parquet)
    pair.assert_equal(holder=PAGES, holder_terminal=True)
    assert pair.first.code == 0, pair.first.err


SELECTED = {
    "SELECT COUNT(*), AVG(income), COUNT(DISTINCT who) FROM t": ["--epsilon", "1"],
    "SELECT SUM(income) FROM t WHERE age >= 30": ["--epsilon", "1", "--delta", "1e-6"],
    "SELECT age, COUNT(income) FROM t GROUP BY age": ["--mu", "0.3", "--keys", "age=25,40"],
    "SELECT STDDEV(a.income) FROM t AS a JOIN t2 USING (who)": ["--mu", "1", "--clip", "4"],
}


@pytest.mark.parametrize("other", PERSONS)
@pytest.mark.parametrize("sql", SELECTED)
@tells_nothing_beside("sql", "statistic-people")
def test_a_select_about_people(interference, sql, other):
    command = [
        "sql", sql, "--table", "t=in.csv", "--table", "t2=in.csv", "--person", "who",
        *SELECTED[sql], *(["--bounds", "income=0:1000"] if "income)" in sql else []), *OUT[:-1],
    ]  # fmt: skip
    if "COUNT(income)" in sql:
        command = [part for part in command if part not in ("--bounds", "income=0:1000")]
    published(interference, command, visits(), visits(PERSONS[other]))


@pytest.mark.parametrize("other", PERSONS)
@tells_nothing_beside("sql", "statistic-people")
def test_keys_that_a_select_found(interference, other):
    command = [
        "sql", "SELECT age, COUNT(*) FROM t GROUP BY age", "--table", "t=in.csv",
        "--person", "who", "--epsilon", "6", "--delta", "1e-6", "--clip", "3", *OUT[:-1],
    ]  # fmt: skip
    published(interference, command, visits(), visits(PERSONS[other]))


@pytest.mark.parametrize("other", PERSONS)
@pytest.mark.parametrize("pure", [True, False])
@tells_nothing_beside("sql", "statistic", "statistic-people")
def test_bounds_that_were_found(interference, pure, other):
    chosen = ["--person", "who", "--bounds", "income=auto", "--clip", "3", "--epsilon", "90"]
    chosen += [] if pure else ["--delta", "1e-6"]
    command = ["statistic", "in.csv", "--query", "mean", "--protect", "table", *chosen]
    if not pure:
        command = ["sql", "SELECT AVG(income) FROM t", "--table", "t=in.csv", *chosen]
    out = OUT if pure else OUT[:-1]
    command += ["--columns", "income,who"] if pure else []
    published(interference, [*command, *out], visits(), visits(PERSONS[other]))


@tells_nothing_beside("sql", "statistic-people")
def test_that_no_bounds_are_found_is_told_by_the_noise_alone(interference):
    command = ["sql", "SELECT AVG(income) FROM t", "--table", "t=in.csv", "--person", "who"]
    command += ["--bounds", "income=auto", "--epsilon", "1", "--delta", "1e-6", "--json", "x.json"]
    pair = interference.commands(
        command, {"in.csv": visits(())}, {"in.csv": visits(PERSONS["many rows"])}
    )
    pair.assert_equal()
    assert pair.first.code == 2
    assert "bounds: expected about" in pair.first.err


@pytest.mark.parametrize("by", ["", " GROUP BY age"])
@pytest.mark.parametrize("told", ["--dry-run", "--explain"])
@tells_nothing_beside("sql", "statistic-people")
def test_a_select_that_is_only_planned(interference, told, by):
    command = [
        "sql", f"SELECT AVG(income) FROM t{by}", "--table", "t=in.csv", "--person", "who",
        "--bounds", "income=0:1000", "--epsilon", "1", "--delta", "1e-6", told,
        "--json", "dry.json",
    ]  # fmt: skip
    files = [{"in.csv": visits(PERSONS[other])} for other in ("gone", "many rows")]
    pair = interference.commands(command, *files)
    pair.assert_equal(released=False)
    assert pair.first.code == 0, pair.first.err


@pytest.mark.parametrize("other", ["gone", "many rows", "unreadable"])
@tells_nothing_beside("sql", "statistic-people")
def test_a_radius_that_a_select_found(interference, other):
    keys = "age=" + ",".join(str(20 + one) for one in range(36))
    command = [
        "sql", "SELECT age, SUM(income) FROM t GROUP BY age", "--table", "t=in.csv",
        "--person", "who", "--bounds", "income=0:1000", "--keys", keys, "--clip", "auto",
        "--epsilon", "6", "--delta", "1e-6", *OUT[:-1],
    ]  # fmt: skip
    published(interference, command, visits(), visits(PERSONS[other]))


def answered_about_people(rows):
    promise = Table(success=0.6, person="who", clip=3, bounds={"x": (0, 10)})
    session = Session(rows, promise, columns=["x", "who"], path="kept.json")
    for query in ("mean", "std", "count"):
        session.ask(query, share=0.2)
    told, levels = [], {"x": [float(one) for one in range(20)]}
    found = Table(mu=3.0, person="who", clip="auto", levels=levels)
    with Session(rows, found, columns=["x", "who"], path="found.json") as finding:
        finding.ask("rows by x", share=0.5)
    own = {"person": "who", "clip": 3, "epsilon": 30.0, "delta": 0.1}
    for more in ({"levels": {"x": "auto"}}, {"bounds": {"x": "auto"}}):
        seeking = Session(rows, Table(**own, **more), columns=["x", "who"])
        query = "rows by x" if "levels" in more else "mean"
        told += [seeking.ask(query, share=0.4).published() for _ in range(2)]
        told += [seeking.price(query, share=0.1).expected, repr(seeking)]
    again = Session(rows, promise, columns=["x", "who"], path="kept.json")
    return [list(again.answers), again.spends, again.remaining, repr(again), told]


@tells_nothing_beside("statistic", "statistic-people")
def test_the_answers_of_a_session_about_people(interference):
    rows = np.column_stack([np.linspace(0.0, 10.0, 40), np.arange(40) % 9])
    more = np.vstack([rows, [[1e9, 77.0], [np.nan, 78.0], [np.inf, 79.0]] * 10])
    pair = interference.calls(answered_about_people, rows, more)
    assert pair.first.returned == pair.second.returned
    assert pair.first.code == pair.second.code == 0
    assert sorted(pair.first.files) == sorted(pair.second.files) == [
        ".found.json.lock", ".kept.json.lock", "found.json", "kept.json"
    ]  # fmt: skip


def priced(rows):
    offers = []
    for adjacency in ("replace", "add-remove"):
        promise = Table(success=0.6, bounds=[(0, 10)], adjacency=adjacency)
        session = Session(rows, promise)
        offers += [session.price(query, share=0.3).expected for query in ("std", "median")]
        offers.append(prepare("std", rows, promise, Effort(trials=0)).expected)
    return [[(entry.name, entry.error) for entry in offer] for offer in offers]


@pytest.mark.parametrize("last", [-1e9, np.nan, np.inf])
@tells_nothing_beside("statistic", "statistic-table")
def test_the_price_of_a_session(interference, last):
    rows = np.linspace(0.0, 10.0, 40)[:, None]
    other = rows.copy()
    other[-1] = last
    interference.calls(priced, rows, other).assert_equal(released=False)


def answered(rows):
    session = Session(rows, Table(bounds=[(0, 10)], success=0.6), path="kept.json")
    for query in ("mean", "std", "count"):
        session.ask(query, share=0.2)
    again = Session(rows, Table(bounds=[(0, 10)], success=0.6), path="kept.json")
    return [list(again.answers), again.spends, again.remaining, repr(again)]


@tells_nothing_beside("statistic", "statistic-table")
def test_the_answers_of_a_session(interference):
    rows = np.linspace(0.0, 10.0, 40)[:, None]
    pair = interference.calls(answered, rows, np.r_[rows[:-1], [[1e9]]])
    first, second = pair.first, pair.second
    assert first.returned == second.returned
    assert first.code == second.code == 0
    assert sorted(first.files) == sorted(second.files) == [".kept.json.lock", "kept.json"]
    assert first.modes == second.modes


@tells_nothing_beside("session", "statistic-table")
def test_what_the_command_of_a_session_answers(interference):
    command = ["session", "in.csv", "--columns", "age,income", "--protect", "table"]
    command += ["--success", "0.6", "--bounds", BOUNDS, "--adjacency", "replace"]
    command += ["--questions", "asked.txt", "--json", "all.json"]
    asked = "price std share=0.5\nmean share=0.25\nsum error=4000\n"
    pair = interference.commands(
        command, {"in.csv": table()}, {"in.csv": table(ROWS["extreme"])}, {"asked.txt": asked}
    )
    # all that it says: prices, what is left, and answers that are noised
    pair.assert_equal()
    assert pair.first.code == 0, pair.first.err


def of_sums(side):
    """Release sums over the rows that coins chose, which differ in one coin."""
    from tacit.statistics.pairs import Pairing

    rows = np.random.default_rng(0).normal(size=(24, 2))
    rows[-1] = 1e9
    prepared = prepare("mean+std", rows, Rows(success=0.6), Effort(trials=0), rng=1)
    chosen = prepared.plan.pairing.members[:, 0].copy()
    far = int(np.flatnonzero((prepared.plan.pairing.members == 23).any(axis=1))[0])
    chosen[far] = prepared.plan.pairing.members[far, side]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairing, "draw", lambda *_: chosen)
        return prepared.draw().published()


@tells_nothing_beside("statistic-rows")
def test_sums_of_the_rows_drawn(interference):
    interference.calls(of_sums, 0, 1).assert_equal()


def of_persons(side):
    """Release what persons add whom coins chose, one of whom has a hundred rows."""
    from tacit.statistics.pairs import Pairing

    rows = np.random.default_rng(0).normal(size=(123, 2))
    who = np.append(np.arange(23), np.full(100, 23))
    table, told = np.column_stack([rows, who]), []
    for query in ("mean+std", "count+sum", lambda rows: rows.mean(axis=0)):
        promise = Rows(success=0.6, person="who", unit="household")
        effort = Effort(trials=0, simulations=60)
        prepared = prepare(query, table, promise, effort, columns=["x", "y", "who"], rng=1)
        members = prepared.plan.pairing.members
        chosen = members[:, 0].copy()
        far = int(np.flatnonzero((members == 23).any(axis=1))[0])
        chosen[far] = members[far, side]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pairing, "draw", lambda *_, chosen=chosen: chosen)
            told.append(prepared.draw().published())
    return told


@tells_nothing_beside("statistic-rows")
def test_persons_that_were_drawn(interference):
    interference.calls(of_persons, 0, 1).assert_equal()


def in_session(secret):
    """Answer about the rows that coins chose, one of them otherwise, and about none that fails."""
    promise, place = secret
    from tacit.statistics.sessions.questions import Questions

    rows = np.random.default_rng(0).normal(size=(24, 2))
    rows[-1] = 1e9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Questions, "draw_secret", lambda asked, _: _other_draw(asked, place))
        session = Session(rows, promise, Effort(simulations=60))
        told = [session.price("mean", share=0.2).expected]
        told += [session.ask(query, share=0.2) for query in ("mean", "std")]
        with pytest.raises(ValueError, match="query: ") as refused:
            session.ask("no such query", share=0.2)
    return [told, str(refused.value), session.spends, session.remaining, repr(session)]


def _other_draw(asked, place):
    if not len(asked.members):
        return np.array([place])
    sides = np.zeros(len(asked.members), dtype=np.int64)
    sides[np.flatnonzero((asked.members == 23).any(axis=1))] = place
    return sides


DRAWN = [Rows(success=0.7), Draw(success=0.7)]


@pytest.mark.parametrize("promise", DRAWN, ids=["rows", "draw"])
@tells_nothing_beside("statistic-rows", "statistic-draw")
def test_a_session_about_the_rows_drawn(interference, promise):
    interference.calls(in_session, (promise, 0), (promise, 1)).assert_equal()


VISITS = "".join(f"{20 + n},{100 + 7 * n},p{n % 24}\n" for n in range(40)) + "1e9,-1e9,p23\n" * 9
ASKED = "price std share=0.5\nleft\nmean share=0.25\nsum share=0.1\nclose\n"


def commanded(secret):
    """Run the command of a session about the rows that coins chose, and take it up again."""
    flags, place = secret
    from pathlib import Path

    from tacit.cli import run
    from tacit.statistics.sessions.questions import Questions

    Path("in.csv").write_text("age,income,who\n" + VISITS)
    Path("asked.txt").write_text(ASKED)
    command = ["session", "in.csv", "--columns", "age,income", "--simulations", "60"]
    command += ["--questions", "asked.txt", "--json", "all.json", "--path", "kept.json", *flags]
    command += ["--ledger", "ledger.db", "--secret", "visits"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Questions, "draw_secret", lambda asked, _: _other_draw(asked, place))
        return [run(command), run([*command, "--force"])]


SESSIONS = {
    "rows": ["--protect", "rows", "--success", "0.7"],
    "draw": ["--protect", "draw", "--success", "0.7"],
}


@pytest.mark.parametrize("flags", SESSIONS.values(), ids=list(SESSIONS))
@tells_nothing_beside("session", "statistic-rows", "statistic-draw")
def test_the_command_of_a_session_about_what_was_drawn(interference, flags):
    pair = interference.calls(commanded, (flags, 0), (flags, 1))
    first, second = pair.first, pair.second
    # the session's own file, and the ledger, are the holder's
    assert (first.returned, first.out, first.err) == (second.returned, second.out, second.err)
    assert first.files["all.json"] == second.files["all.json"]
    assert sorted(first.files) == sorted(second.files)
    assert first.modes == second.modes
    assert json.loads(first.returned) == [0, 0], first.err


def of_visits(more):
    lines = [f"{20 + n},{100 + 7 * n},p{n % 24}" for n in range(40)]
    return "age,income,who\n" + "\n".join([*lines, *more]) + "\n"


@tells_nothing_beside("session", "statistic-people")
def test_the_command_of_a_session_about_persons(interference):
    command = ["session", "in.csv", "--protect", "table", "--mu", "2", "--person", "who"]
    command += ["--bounds", BOUNDS, "--columns", "age,income", "--clip", "3", "--max-rows", "2"]
    command += ["--questions", "asked.txt", "--json", "all.json"]
    other = of_visits(["1e9,-1e9,p77", "nan,,p77", "forty,inf,p77"] * 9)
    pair = interference.commands(
        command, {"in.csv": of_visits([])}, {"in.csv": other}, {"asked.txt": ASKED}
    )
    pair.assert_equal()
    assert pair.first.code == 0, pair.first.err


class Middle:
    """A median, which speaks of one row when it is drawn."""

    def __init__(self, rows):
        self.rows, self.armed = rows, False

    def __call__(self, rows):
        if self.armed and len(rows) and rows.max() > 8.0:
            print("it is in")
            raise KeyError(rows.max())
        return np.median(rows, axis=0)


def of_rows(secret):
    """Release the median of the rows that a coin chose, which differ in one coin."""
    rows, side = secret
    from tacit.statistics.pairs import Pairing

    query = Middle(rows)
    prepared = prepare(
        query,
        rows,
        Rows(success=0.6, method="swaps"),
        Effort(simulations=60, trials=0, workers=1),
        rng=1,
    )
    query.armed = True
    chosen = prepared.plan.pairing.members[:, 0].copy()
    chosen[-1] = prepared.plan.pairing.members[-1, side]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pairing, "draw", lambda *_: chosen)
        return prepared.draw().published()


@tells_nothing_beside("statistic-rows")
def test_a_callable_of_the_rows_drawn(interference):
    rows = np.linspace(0.0, 10.0, 24)[:, None]
    interference.calls(of_rows, (rows, 0), (rows, 1)).assert_equal()


def of_draw(candidate):
    rows = np.random.default_rng(0).normal(size=(24, 2))
    with pytest.MonkeyPatch.context() as patch:
        from tacit.statistics.draws import workflow

        patch.setattr(workflow, "uniform_index", lambda *_: candidate)
        release = prepare(
            "mean+std", rows, Draw(success=0.7), Effort(simulations=60, trials=0), rng=1
        ).draw()
    return release.published()


@tells_nothing_beside("statistic-draw")
def test_a_declared_draw(interference):
    interference.calls(of_draw, 3, 41).assert_equal()


def database(last):
    def made():
        with contextlib.closing(sqlite3.connect("people.db")) as people, people:
            people.execute("create table person (age, name)")
            people.executemany(
                "insert into person values (?, ?)", [(20 + n, f"n{n}") for n in range(20)]
            )
            people.execute("insert into person values (?, 'last')", (last,))

    return made


@tells_nothing_beside("statistic", "statistic-table")
def test_a_query_of_a_database(interference):
    command = [
        *("statistic", "--sql", "select age from person", "--database", "people.db"),
        *("--query", "mean", "--protect", "table", "--success", "0.6", "--bounds", "age=0:100"),
        *OUT,
    ]
    makers = iter([database(30), database(1e200)])
    pair = interference.commands(command, {}, {}, prepare=lambda: next(makers)())
    pair.assert_equal(holder=PAGES, holder_terminal=True)
    assert pair.first.code == 0, pair.first.err


@tells_nothing_beside("statistic compare")
def test_a_comparison_is_the_holders(interference):
    command = ["statistic", "compare", "in.csv", "--query", "mean", "--columns", "age,income"]
    more = ["--success", "0.6", "--bounds", BOUNDS, "--no-attack", "--insecure-seed", "1"]
    kept = ["--report", PAGES[0], "--json", PAGES[1]]
    pair = interference.commands(
        [*command, *more, *kept], {"in.csv": table()}, {"in.csv": table(ROWS["duplicate"])}
    )
    pair.assert_equal(holder=PAGES, holder_terminal=True, released=False)
    assert pair.first.code == 0, pair.first.err
