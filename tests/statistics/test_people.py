"""Statistics of people: who counts as one, what is left out, what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from shutil import copy

import numpy as np
import pandas as pd
import pytest

import tacit.statistics.people.contributors
from tacit import Draw, Effort, Ledger, Rows, Table
from tacit.statistics import Session, prepare, privatize, read_table
from tacit.statistics.people.noise import PARTS, laplace_noise
from tacit.statistics.people.release import recompute
from tacit.statistics.people.vectors import PersonMetric
from tacit.statistics.queries import RowCount, Sum
from tests.forks import dying_at, forked

QUICK = Effort(trials=0)
PURE = Table(epsilon=1.0, person="who")
BOUNDED = {"epsilon": 1.0, "delta": 1e-6, "bounds": {"x": (0, 10)}}


def persons(pool, **more):
    """The count of persons before its noise."""
    prepared = prepare("count", pool, PURE, QUICK, **more)
    return prepared.plan.persons.whole(prepared.plan.metric).sum()


@pytest.mark.parametrize("query", ["ratio:x,y+rows", [Sum(("x",)), RowCount()]])
def test_a_text_in_a_column_that_nobody_asks_for_leaves_no_row_out(query):
    frame = pd.DataFrame({"who": range(50), "name": ["a name"] * 50, "x": 2.0, "y": 4.0})
    bounds = {"x": (0, 10), "y": (0, 10)} if isinstance(query, str) else {"x": (0, 10)}
    promise = Table(mu=1.0, person="who", clip=1, bounds=bounds)
    plan = prepare(query, frame, promise, QUICK).plan
    whole = plan.added.finish(plan.metric.restore(plan.persons.whole(plan.metric)), None)
    assert whole[-1] == pytest.approx(50.0, abs=0.01)
    # of a session the questions are still to come
    with Session(frame, promise, QUICK) as session:
        release = session.ask("rows", share=0.99)
    assert abs(release.numbers.values[0] - 50.0) < 6.0 * release.numbers.errors[0]
    assert release.numbers.errors[0] < 8.0


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


def test_keys_are_found_for_no_promise_about_rows():
    with pytest.raises(ValueError, match=r"^levels: .*--protect table.*, got auto"):
        Rows(success=0.6, levels={"city": "auto"})


@pytest.mark.parametrize(
    ("promise", "names"),
    [
        ({"epsilon": 1.0, "clip": 3}, "delta"),
        ({"mu": 1.0, "clip": 3, "levels": {"x": "auto"}}, "levels"),
        ({"epsilon": 1.0, "delta": 1e-6, "clip": 3, "levels": {"y": "auto"}}, "levels"),
    ],
)
def test_a_session_adds_what_it_can_add(promise, names):
    rows = np.column_stack([np.arange(20.0), np.arange(20) % 5])
    with pytest.raises(ValueError, match=f"^{names}: expected"):
        Session(rows, Table(**promise, person="who"), columns=["x", "who"])


def of_cities(persons=900):
    rng = np.random.default_rng(89)
    who = rng.integers(0, persons, 3 * persons)
    city = rng.choice(["Bern", "Oslo", "Rome"], len(who))
    return pd.DataFrame({"who": who, "city": city, "x": rng.lognormal(9.0, 0.3, len(who))})


SEEKING = Table(
    epsilon=2.0, delta=1e-5, person="who", clip=6,
    bounds={"x": "auto"}, levels={"city": "auto"},
)  # fmt: skip


def test_what_a_session_found_stands_and_a_ledger_counts_it_once(tmp_path):
    frame, book, kept = of_cities(), Ledger(tmp_path / "book.db"), tmp_path / "kept"
    with Session(frame, SEEKING, path=kept, ledger=book, secret="shop") as session:
        offer = session.price("rows by city", share=0.2)
        assert offer.expected[0].name == "rows|city=each key found"
        assert session.spends == ()
        first = offer.draw()
        assert first.names[0] == "keys[city]"
        copy(kept, tmp_path / "copied")
        second = session.ask("mean by city", share=0.4)
    # taken up again, what was found is known, for nothing
    with Session(frame, SEEKING, path=kept, ledger=book, secret="shop") as session:
        third = session.ask("mean by city", share=0.3)
        assert third.details.keys is third.details.ranges is None
        assert third.details.session.earlier == ("city", "x")
        assert third.details.promise.bounds == second.details.promise.bounds
        with pytest.raises(ValueError, match="left of the budget"):
            session.ask("rows", share=0.2)
    assert len(third.names) == len(second.names) == len(first.names) - 1
    spent = book.spent("shop")
    assert list(spent.approximate.values()) == [(2.0, 1e-5)]
    assert (spent.releases, spent.open) == (3, 0)
    # of a copy the same turns would come out twice, and be counted once
    with Session(frame, SEEKING, path=tmp_path / "copied", ledger=book, secret="shop") as session:
        with pytest.raises(ValueError, match="answer 2 of the session of release 1 already"):
            session.ask("rows by city", share=0.4)
        assert len(session.spends) == 1
    # another ledger has not counted it
    other = Ledger(tmp_path / "other.db")
    with Session(frame, SEEKING, path=kept, ledger=other, secret="shop") as session:
        with pytest.raises(ValueError, match=r"reserv"):
            session.ask("rows", share=0.05)
        assert len(session.spends) == 3


@pytest.mark.parametrize("lost", [True, False])
def test_of_two_copies_that_ask_at_once_one_is_answered(tmp_path, lost):
    frame, book, kept = of_cities(), Ledger(tmp_path / "book.db"), tmp_path / "kept"
    with Session(frame, SEEKING, path=kept, ledger=book, secret="shop") as session:
        session.ask("rows by city", share=0.2)
    copy(kept, tmp_path / "copied")

    class Between:
        """A ledger in which a copy asks between the look at it and the reservation."""

        def __getattr__(self, name):
            return getattr(book, name)

        def reserve(self, *given, **more):
            if lost:
                raise ValueError("ledger: the connection was lost")
            opened = {"path": tmp_path / "copied", "ledger": book, "secret": "shop"}
            with Session(frame, SEEKING, **opened) as other:
                other.ask("rows by city", share=0.4)
            return book.reserve(*given, **more)

    why = "the connection was lost" if lost else "answer 2 of the session of release 1 already"
    with Session(frame, SEEKING, path=kept, ledger=Between(), secret="shop") as session:
        with pytest.raises(ValueError, match=why):
            session.ask("rows by city", share=0.4)
        # nothing was entered or all was taken back, and nothing is charged
        assert len(session.spends) == 1
    entered = ["committed"] if lost else ["committed", "committed", "cancelled"]
    assert [one.status for one in book.entries("shop")] == entered


def test_what_is_charged_before_the_ledger_is_not_asked_twice(tmp_path):
    frame, book, kept = of_cities(), Ledger(tmp_path / "book.db"), tmp_path / "kept"
    with Session(frame, SEEKING, path=kept, ledger=book, secret="shop") as session:
        session.ask("rows by city", share=0.2)

    def dying():
        dying_at("tacit.ledger.reservation.Reservation.mark_drawn")()
        with Session(frame, SEEKING, path=kept, ledger=Ledger(book.location), secret="shop") as one:
            one.ask("rows by city", share=0.2)

    died = forked(dying)
    assert died.returncode == -9, died.stderr
    with Session(frame, SEEKING, path=kept, ledger=book, secret="shop") as session:
        assert len(session.spends) == 2
        third = session.ask("rows by city", share=0.2)
    assert third.details.session.turn == 3
    assert [one.status for one in book.entries("shop")] == ["committed", "reserved", "committed"]


def test_a_session_that_finds_too_few_persons_has_spent_what_it_was_charged():
    session = Session(of_cities(40)[["who", "x"]], replace(SEEKING, levels=None))
    with pytest.raises(ValueError, match="in one part of the log scale"):
        session.ask("mean", share=0.01)
    assert len(session.spends) == 1
    assert session.answers == (None,)
    # and may be asked again
    assert session.price("mean", share=0.9).expected[0].name.startswith("mean[x] (as if x")


def test_what_is_grouped_by_elsewhere_is_no_number():
    frame = of_cities(400).assign(shop=["s", "t"] * 600)
    promise = replace(SEEKING, bounds={"x": (0, 1e5)}, levels={"city": "auto", "shop": ["s", "t"]})
    with Session(frame, promise) as session:
        session.ask("rows by city+mean", share=0.4)
        release = session.ask("mean by shop", share=0.4)
    assert release.names == ("mean[x]|shop=s", "mean[x]|shop=t")
    assert recompute(release) == ""


def test_no_more_keys_are_kept_than_can_be_summed(monkeypatch):
    for module in ("found", "workflow"):
        monkeypatch.setattr(f"tacit.statistics.people.{module}.MOST_SUMS", 4)
    promise = replace(SEEKING, bounds={"x": (0, 1e5)})
    release = prepare("mean by city", of_cities(), promise, QUICK).draw()
    # a sum and a count each: a third would be refused when the keys' budget is spent
    assert release.names[1:] == ("mean[x]|city=Bern", "mean[x]|city=Oslo")


def test_a_session_finds_how_far_a_person_moves_each_answer(tmp_path):
    rng = np.random.default_rng(83)
    frame = pd.DataFrame({"city": rng.integers(0, 40, 6000), "who": rng.integers(0, 400, 6000)})
    promise = Table(mu=2.0, person="who", clip="auto", levels={"city": list(range(40))})
    with Session(frame, promise, path=tmp_path / "session") as session:
        releases = [session.ask(one, share=0.4) for one in ("rows by city", "count by city")]
        with pytest.raises(ValueError, match=r"^clip: expected a number of rows"):
            session.price("rows", share=0.1)
        # of persons alone each is 1: nothing is to be found
        assert session.price("count", share=0.1).spend > 0.0
    assert [one.details.found for one in releases] == ["private", "private"]
    # 15 rows of a person, two cells of them alike at the most
    assert 3.0 < releases[0].details.radius / 2**16 < 9.0
    assert all(recompute(one) == "" for one in releases)
    assert releases[0].values.sum() == pytest.approx(6000, rel=0.1)
    with Session(frame, promise, path=tmp_path / "session") as again:
        assert len(again.answers) == 2


def test_a_session_refuses_when_the_budget_is_gone():
    rows = np.column_stack([np.arange(20.0) % 10, np.arange(20) % 5])
    session = Session(rows, Table(**BOUNDED, person="who", clip=3), columns=["x", "who"])
    first = session.ask("mean", share=0.9)
    assert first.kind == "statistic-people"
    with pytest.raises(ValueError, match="what is left of the budget"):
        session.ask("count", share=0.6)
    assert len(session.answers) == 1


def cities(*keys, rows=3000):
    rng = np.random.default_rng(3)
    who = rng.integers(0, 800, rows)
    return pd.DataFrame({"who": who, "city": rng.choice(keys, rows), "x": rng.random(rows)})


FOUND = Table(epsilon=1.0, delta=1e-6, person="who", clip=6)


def test_keys_that_nobody_declared_are_found():
    frame = cities("Bern", "Oslo", "Z\u00fcrich")
    frame.loc[7, "city"] = "Ulan Bator"
    prepared = prepare("count by city+count", frame, FOUND, QUICK)
    assert [one.name for one in prepared.expected] == ["count|city=each key found", "count"]
    release = prepared.draw()
    # a key of one person alone is found once in two million
    names = ["keys[city]", *(f"count|city={one}" for one in ("Bern", "Oslo", "Z\u00fcrich"))]
    assert release.names == (*names, "count")
    assert abs(release.values[4] - frame["who"].nunique()) < 6 * release.errors[4]
    whole = frame.groupby("city")["who"].nunique()
    for name, value, error in zip(names[1:], release.values[1:], release.errors[1:], strict=False):
        assert abs(value - whole[name.partition("=")[2]]) < 6 * error + 2
    assert release.values[0] == 3
    assert all("Ulan" not in line for line in release.notes)


def test_numbers_are_keys_and_those_of_nobody_else_are_none():
    rows = np.column_stack([np.repeat([7.0, 0.5], 1500), np.arange(3000) % 900])
    release = prepare("count by y", rows, FOUND, QUICK, columns=["y", "who"]).draw()
    assert release.names == ("keys[y]", "count|y=0.5", "count|y=7")


@pytest.mark.parametrize("persons", [3, 400])
@pytest.mark.parametrize("query", ["two-way:city,kind", "two-way:city,kind+rows by kind"])
def test_pairs_of_categories_are_counted_of_keys_that_are_found(query, persons):
    frame = pd.DataFrame({"who": range(persons), "city": "Bern", "kind": "old"})
    levels = {"city": ["Bern", "Oslo"], "kind": "auto"}
    promise = Table(epsilon=2.0, delta=1e-3, person="who", clip=2, levels=levels)
    release = privatize(query, frame, promise, QUICK, columns=np.array(["city", "kind"]))
    found = dict(zip(release.names, release.values, strict=True))
    assert found["keys[kind]"] == (persons > 3)
    assert ("count[city=Bern,kind=old]" in found) == (persons > 3)
    assert type(release).from_dict(release.published()).names == release.names


@pytest.mark.parametrize("rows", [0, 3])
def test_where_no_key_is_found_that_is_the_answer(rows):
    frame = cities("a", "b", "c")[:rows]
    release = prepare("count by city", frame, FOUND, QUICK).draw()
    assert (release.names, release.values.tolist()) == (("keys[city]",), [0.0])
    release = prepare("count by city+count", frame, FOUND, QUICK).draw()
    assert release.names == ("keys[city]", "count")


@pytest.mark.parametrize(
    ("query", "promise", "names"),
    [
        ("count by city", {"success": 0.6, "clip": 3}, "levels"),
        ("count by city", {"epsilon": 1.0, "clip": 3}, "levels"),
        ("count by city", {"epsilon": 1.0, "delta": 1e-6}, "clip"),
        ("count by city by town", {"epsilon": 1.0, "delta": 1e-6, "clip": 3}, "levels"),
    ],
)
def test_keys_are_found_where_they_can_be(query, promise, names):
    frame = cities("a", "b").assign(town="c")
    with pytest.raises(ValueError, match=f"^{names}: expected"):
        prepare(query, frame, Table(person="who", **promise), QUICK)


def test_declared_keys_stay_and_are_there_where_they_are_empty():
    promise = Table(epsilon=1.0, person="who", clip=3, levels={"city": ["a", "b", "none"]})
    release = prepare("count by city", cities("a", "b"), promise, QUICK).draw()
    assert release.names == ("count|city=a", "count|city=b", "count|city=none")
    assert release.details.keys is None


def test_a_person_of_as_many_rows_as_the_clip_is_not_cut():
    """Whether all rows are in one group, or each is in another."""
    for keys in ([0.0] * 5, [0.0, 1.0, 2.0, 3.0, 4.0]):
        rows = np.column_stack([keys, np.ones(5)])
        promise = Table(epsilon=1.0, delta=1e-6, person="who", clip=5, levels={"x": list(range(9))})
        for query in ("count by x", "rows by x", "count by x+count"):
            plan = prepare(query, rows, promise, QUICK, columns=["x", "who"]).plan
            total = plan.persons.total(plan.metric, plan.radius, 2)
            np.testing.assert_allclose(total, plan.persons.whole(plan.metric), rtol=1e-4)


def test_alike_groups_have_alike_noise():
    promise = Table(
        epsilon=1.0, delta=1e-6, person="who", clip=3,
        levels={"city": [f"c{k}" for k in range(90)]}, bounds={"x": (0, 1)},
    )  # fmt: skip
    prepared = prepare("sum by city+count by city", cities("c1", "c7"), promise, QUICK)
    errors = np.array([one.error for one in prepared.expected])
    assert len(set(errors[:90])) == len(set(errors[90:])) == 1


def test_a_session_by_pairs_takes_no_persons_and_no_promise_takes_a_unit_alone():
    rows = np.column_stack([np.arange(20.0), np.arange(20) % 10])
    for promise in (Rows(success=0.6, person="who"), Draw(success=0.6, person="who")):
        with pytest.raises(ValueError, match=r"^person: expected none through a session"):
            Session(rows, promise, columns=["x", "who"])
    for kind in (Rows, Draw):
        with pytest.raises(ValueError, match=r"^unit: expected person"):
            kind(success=0.6, unit="household")
    with pytest.raises(ValueError, match=r"^delta: expected a value beside epsilon"):
        Rows(epsilon=1.0, person="who")


def test_persons_that_are_drawn_are_said_to_be():
    rows = np.column_stack([np.arange(60.0), np.arange(60) % 20])
    for kind in (Rows, Draw):
        promise = kind(success=0.7, person="who", unit="household")
        release = prepare("mean", rows, promise, QUICK, columns=["x", "who"]).draw()
        assert "any one household of the pool" in release.membership.task
        assert "household" in release.secret
        assert "row" not in release.membership.task + release.secret
        assert any("under two names count as two" in one for one in release.membership.assumptions)


def test_persons_that_are_summed_some_at_a_time_are_summed_alike(monkeypatch):
    rng = np.random.default_rng(7)
    rows = np.stack([rng.normal(size=400), rng.integers(0, 4, 400), rng.integers(0, 60, 400)], 1)
    promise = Table(
        epsilon=1.0, delta=1e-6, person="who", clip=3,
        bounds={"x": (-2, 2)}, levels={"g": [0, 1, 2, 3]},
    )  # fmt: skip

    def persons():
        return prepare("sum by g+count by g", rows, promise, QUICK, columns=["x", "g", "who"]).plan

    plan, whole = persons(), persons().persons
    monkeypatch.setattr(tacit.statistics.people.contributors, "HELD", 50)
    pieces = persons().persons
    assert type(pieces) is not type(whole)
    metric, radius = plan.metric, plan.radius
    for norm in (1, 2):
        for one, other in (
            (whole.total(metric, radius, norm), pieces.total(metric, radius, norm)),
            (whole.beyond(metric, [9, radius], norm), pieces.beyond(metric, [9, radius], norm)),
            (whole.longest(metric, radius, norm, 7), pieces.longest(metric, radius, norm, 7)),
        ):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(whole.whole(metric), pieces.whole(metric))


def test_a_clip_beyond_what_a_count_can_move_makes_no_noise():
    # one person moves the number of persons by 1, and discrete Laplace noise of scale 1 keeps ε = 1
    frame = pd.DataFrame({"who": ["a", "a", "b", "c"], "x": [0.0, 1.0, 2.0, 3.0]})
    for clip in (None, 30.0):
        found = prepare("count", frame, Table(epsilon=1.0, person="who", clip=clip), QUICK)
        assert found.planned.details.scale == (1, 1)


def test_a_scale_is_rounded_up_by_less_than_one_part_of_the_largest_denominator():
    metric = PersonMetric(np.ones(1), np.zeros(1, dtype=np.int64), whole=True)
    for epsilon in (1.0 - 2.0**-50, 0.3, 1.0 / 3.0, 7.123456789):
        numerator, denominator = laplace_noise(metric, 1, epsilon).scale
        excess = Fraction(numerator, denominator) - 1 / Fraction(epsilon)
        assert 0 <= excess <= Fraction(1, PARTS)
    # as a double .001 is more than .001, of which b = reach/.001 is no more than enough
    scale = Fraction(*laplace_noise(metric, 10**9, 0.001).scale)
    assert scale == 10**12 > 10**9 / Fraction(0.001)
    frame = pd.DataFrame({"who": [1, 2], "x": [0.2, 0.4]})
    # which the checker holds against what the file says before it is released
    for query, epsilon, clip in (("rows", 0.001, 1000), ("sum", 0.001, 1000), ("sum", 7e-30, 7.3)):
        promise = Table(epsilon=epsilon, person="who", clip=clip, bounds={"x": (0, 1)})
        privatize(query, frame, promise, Effort(trials=0), columns=["x"])


def test_an_infinite_number_is_the_bound_wherever_the_table_is(tmp_path):
    from tacit.cli.tables import PoolFlags
    from tacit.statistics import prepare_sql
    from tacit.statistics.engines.files import pool_in_file

    frame = pd.DataFrame({"who": range(400), "x": [1.0, 2.0, np.inf, -np.inf] * 100})
    parquet, csv = str(tmp_path / "t.parquet"), str(tmp_path / "t.csv")
    frame.to_parquet(parquet)
    frame.to_csv(csv, index=False)
    promise = Table(mu=300.0, person="who", clip=1, bounds={"x": (0.0, 5.0)})
    query = "rows+mean"
    read = PoolFlags(missing="bounded").read_pool(csv, query, None, None, None, "who")
    for pool in (
        frame,
        frame.to_numpy(),
        read,
        pool_in_file(parquet, None, query, promise, None),
    ):
        columns = ["who", "x"] if isinstance(pool, np.ndarray) else None
        prepared = prepare(query, pool, promise, Effort(trials=0), columns=columns)
        np.testing.assert_allclose(prepared.draw().values, [400.0, 2.0], atol=0.01, rtol=0.01)
    for table in (frame, parquet, csv):
        prepared = prepare_sql("SELECT COUNT(x), AVG(x) FROM t", {"t": table}, promise)
        np.testing.assert_allclose(prepared.draw().values, [400.0, 2.0], atol=0.01, rtol=0.01)


@pytest.mark.parametrize(
    ("strength", "told"),
    [({"epsilon": 1.0, "delta": 1e-6}, True), ({"epsilon": 1.0}, False), ({"mu": 1.0}, False)],
)
def test_the_holder_is_told_where_epsilon_alone_costs_less(strength, told):
    rows = np.column_stack([np.arange(20.0), np.arange(20) % 5])
    promise = Table(person="who", clip=3, bounds={"x": (0.0, 20.0)}, **strength)
    release = privatize("sum", rows, promise, QUICK, columns=["x", "who"])
    assert (
        any("--epsilon without --delta would need 0.33 of this" in one for one in release.remarks)
        == told
    )
    assert not any("without --delta" in one for one in release.public().remarks + release.notes)
