"""Sessions: prices before anything is asked, budgets, files that survive restarts and kills."""

import base64
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Draw, Effort, Ledger, Rows, Table
from tacit.releases import Release
from tacit.statistics import Session, read_table
from tests.forks import dying_at, forked

BOUNDS = {"x0": (-4.0, 4.0), "x1": (-4.0, 4.0)}
PROMISES = {
    "rows": Rows(success=0.7),
    "table": Table(success=0.7, bounds=BOUNDS, adjacency="replace"),
    "draw": Draw(nats=0.5),
}
FEW = Effort(simulations=100)


def rows(seed=0, count=60):
    return np.random.default_rng(seed).normal(size=(count, 2))


def opened(promise, path=None, **options):
    kept = PROMISES[promise] if isinstance(promise, str) else promise
    return Session(rows(), kept, FEW, path=path, **options)


@pytest.mark.parametrize("protect", PROMISES)
def test_a_price_is_what_is_charged_and_promised(protect, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    session = opened(protect, ledger=ledger, secret="pool")
    offer = session.price("mean", share=0.25)
    assert session.spends == ()
    assert session.remaining == pytest.approx(session.budget)
    release = offer.draw()
    assert session.spends == (offer.spend,)
    np.testing.assert_allclose(release.errors, [entry.error for entry in offer.expected])
    stored = json.loads(json.dumps(release.to_dict()))
    assert Release.from_dict(stored) == release
    assert (release.details.session.turn, release.details.session.spend) == (1, offer.spend)
    spent = ledger.spent("pool")
    charged = spent.nats if protect == "draw" else next(iter(spent.gaussian.values()))
    assert charged == pytest.approx(offer.spend)
    assert session.answers[0] == release.published()
    with pytest.raises(ValueError, match="ask for the price again"):
        offer.draw()


@pytest.mark.parametrize("protect", PROMISES)
def test_the_budget_is_never_overrun_and_whole_shares_use_it_up(protect):
    session = opened(protect)
    for _ in range(10):
        session.ask("mean", share=0.1)
    assert session.remaining < 1e-5 * session.budget
    with pytest.raises(ValueError, match="left of the budget"):
        session.ask("mean", share=0.1)
    assert len(session.spends) == 10


@pytest.mark.parametrize("protect", PROMISES)
def test_an_error_has_a_price(protect):
    session = opened(protect)
    error = 3.0 * max(one.error for one in session.price("mean", share=1.0).expected)
    offer = session.price("mean", error=error)
    assert 0.98 * error <= max(one.error for one in offer.expected) <= error
    assert offer.spend < 0.5 * session.budget
    with pytest.raises(ValueError, match="times as large"):
        session.price("mean", error=1e-12)
    with pytest.raises(ValueError, match="times as large"):
        session.price("mean", error=1e-308)
    # more than any noise: a price all the same
    assert 0.0 < session.price("mean", error=1e308).spend < 1e-12


def test_a_price_by_error_would_tell_of_a_hidden_table():
    with pytest.raises(ValueError, match="depend on the table"):
        opened(Table(success=0.7, bounds=BOUNDS)).price("mean", error=1.0)
    with pytest.raises(ValueError, match="depend on the table"):
        opened("table").price("std", error=1.0)


@pytest.mark.parametrize("protect", PROMISES)
def test_a_session_is_taken_up_again_with_the_same_draw(protect, tmp_path):
    path = tmp_path / "kept.session"
    first = opened(protect, path)
    first.ask("mean", share=0.3)
    assert path.stat().st_mode & 0o777 == 0o600
    second = opened(protect, path)
    np.testing.assert_array_equal(first._state.drawn, second._state.drawn)
    np.testing.assert_array_equal(first._state.bounds, second._state.bounds)
    assert second.spends == first.spends
    assert second.answers == first.answers
    second.ask("std", share=0.3)
    first.ask("mean", share=0.3)
    assert len(first.spends) == 3
    with pytest.raises(ValueError, match="left of the budget"):
        second.ask("mean", share=0.3)


def test_answers_of_one_draw_share_it():
    """Hardly any noise: two answers are the same; a new session draws anew."""
    session = Session(rows(), Rows(mu=1e5))
    again = session.ask("mean", share=0.5).values
    np.testing.assert_allclose(session.ask("mean", share=0.5).values, again, atol=1e-4)
    other = Session(rows(), Rows(mu=1e5)).ask("mean", share=0.5).values
    assert np.abs(other - again).max() > 1e-3


def test_a_session_of_another_declaration_or_open_to_others_is_refused(tmp_path):
    path = tmp_path / "kept.session"
    opened("rows", path)
    for changed in (Rows(success=0.8), Rows(success=0.7, rate=1 / 3)):
        with pytest.raises(ValueError, match="as it was opened"):
            opened(changed, path)
    with pytest.raises(ValueError, match="another promise"):
        Session(rows(), Table(success=0.7, bounds=BOUNDS), path=path)
    with pytest.raises(ValueError, match="another pool"):
        Session(rows(1), Rows(success=0.7), path=path)
    os.chmod(path, 0o644)
    with pytest.raises(ValueError, match="owner alone"):
        opened("rows", path)


def test_what_a_session_cannot_answer_is_said():
    session = opened("rows")
    with pytest.raises(ValueError, match="only sums add up"):
        session.price("kmeans", share=0.1)
    with pytest.raises(ValueError, match="exactly one of them"):
        session.price("mean")
    with pytest.raises(ValueError, match="exactly one of them"):
        session.price("mean", spend=0.1, share=0.1)
    assert opened("draw").ask("kmeans:2", share=0.1).values.shape == (4,)
    assert repr(session).startswith("Session(rows, 0 answers")


@pytest.mark.parametrize("protect", PROMISES)
def test_a_session_that_was_closed_forgets_its_draw_and_answers_nothing(protect, tmp_path):
    path = tmp_path / "kept.session"
    with opened(protect, path) as session:
        session.ask("mean", share=0.3)
    assert session._state.drawn.size == 0
    with pytest.raises(ValueError, match="session: expected one that is open"):
        session.ask("mean", share=0.3)
    # its file can be taken up again
    assert len(opened(protect, path).spends) == 1


DYING = {
    "before the noise": "tacit.covariance.base.Covariance.release",
    "after the noise": "tacit.statistics.sessions.state.SessionState.answer",
}


def dying(path, book, when):
    session = opened("rows", path, ledger=Ledger(book), secret="p")
    dying_at(DYING[when])()
    session.ask("mean", share=0.6)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("when", DYING)
def test_a_kill_in_the_middle_does_not_lose_what_was_charged(when, tmp_path):
    path, book = str(tmp_path / "kept.session"), str(tmp_path / "ledger.db")
    died = forked(lambda: dying(path, book, when))
    assert died.returncode == -signal.SIGKILL, died.stderr
    ledger = Ledger(book)
    (spent,) = ledger.spent("p").gaussian.values()
    session = opened("rows", path, ledger=ledger, secret="p")
    assert session.spends == (spent,)
    assert session.answers == (None,)
    with pytest.raises(ValueError, match="left of the budget"):
        session.ask("mean", share=0.6)
    session.ask("mean", share=0.3)


def test_a_seed_given_to_a_session_taken_up_again_voids_it(tmp_path):
    rows = np.random.default_rng(3).normal(size=(20, 1))
    path = tmp_path / "session.json"
    fresh = Session(rows, Rows(success=0.6), path=path)
    assert not fresh.ask("mean", share=0.1).reproducible
    seeded = Session(rows, Rows(success=0.6), path=path, rng=0)
    release = seeded.ask("mean", share=0.1)
    assert release.reproducible
    assert fresh.ask("mean", share=0.1).reproducible


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("drawn", {"shape": [3], "base64": "AAAA"}, "session.drawn"),
        ("drawn", {"shape": [1], "base64": "BwAAAAAAAAA="}, "session.drawn"),
        ("members", {"shape": [3], "base64": "****"}, "session.members"),
        ("answers", [{"query": "mean", "spend": -1.0, "release": None}], "session.spend"),
        ("answers", [{"query": "mean", "spend": "nan", "release": None}], "session.spend"),
        ("reproducible", "no", "session.reproducible"),
    ],
)
def test_a_damaged_session_file_is_refused_by_name(tmp_path, field, value, said):
    rows = np.random.default_rng(3).normal(size=(20, 1))
    path = tmp_path / "session.json"
    Session(rows, Rows(success=0.6), path=path)
    content = json.loads(path.read_text())
    content[field] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=said):
        Session(rows, Rows(success=0.6), path=path)


@pytest.mark.parametrize("protect", PROMISES)
@pytest.mark.parametrize(
    ("field", "values", "kind"),
    [
        ("drawn", [10**9], np.int64),
        ("drawn", [-1], np.int64),
        ("drawn", [0, 0], np.int64),
        ("members", [[0, 1], [2, 3]], np.int64),
        ("bounds", [[1.0], [0.0]], np.float64),
        ("bounds", [[np.nan] * 100] * 2, np.float64),
        ("bounds", [[1.0] * 100, [0.0] * 100], np.float64),
    ],
)
def test_what_a_session_keeps_is_what_its_promise_draws(protect, field, values, kind, tmp_path):
    path = tmp_path / "kept.session"
    opened(protect, path)
    content = json.loads(path.read_text())
    array = np.array(values, dtype=kind)
    packed = base64.b64encode(array.tobytes()).decode()
    content[field] = {"shape": list(array.shape), "base64": packed}
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"^session\.(drawn|members|bounds): expected"):
        opened(protect, path)


def test_a_price_that_double_precision_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"^mu: expected a μ of at least 1e-50"):
        opened(Rows(mu=1e-200))
    with pytest.raises(ValueError, match=r"^spend: expected a μ of at least 1e-50"):
        opened("rows").price("mean", spend=1e-200)


def test_sessions_that_open_and_ask_at_once_lose_no_answer(tmp_path):
    path = tmp_path / "session.json"

    def asked(_):
        session = opened("rows", path)
        return [session.ask("mean", share=0.05).values.tolist() for _ in range(2)]

    with ThreadPoolExecutor(4) as several:
        told = [values for answers in several.map(asked, range(4)) for values in answers]
    session = opened("rows", path)
    assert len(session.spends) == len(told) == 8
    kept = [answer["numbers"]["values"] for answer in session.answers]
    assert sorted(kept) == sorted(told)
    assert session.remaining == pytest.approx(session.budget * np.sqrt(1.0 - 8 * 0.05))


def test_a_row_of_nothing_stays_one_where_the_number_of_rows_is_public(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n\n2\nnan\n3\n")
    table, bounds = read_table(path, missing="drop"), {"x": (0, 4)}
    assert table.dropped > 0
    promise = Table(success=0.6, bounds=bounds, adjacency="replace")
    session = Session(table, promise)
    assert session.ask("count", share=0.5).values.tolist() == [len(table) + table.dropped]
    assert len(Session(table, Table(success=0.6, bounds=bounds)).ask("count", share=0.5).values)


def test_a_promise_that_no_session_keeps_is_refused(monkeypatch):
    from tacit.statistics.sessions import session

    kept = session.keeping_of
    monkeypatch.setattr(session, "keeping_of", lambda one: replace(kept(one), session=None))
    with pytest.raises(ValueError, match=r"^promise: expected one that a session keeps, got Rows"):
        Session(np.arange(20.0)[:, None], Rows(success=0.6))


def test_an_offer_that_was_priced_while_another_answer_was_drawn_is_refused(tmp_path):
    rows, path = np.random.default_rng(5).normal(size=(40, 1)), tmp_path / "session.json"
    first, second = (Session(rows, Rows(success=0.6), path=path) for _ in range(2))
    between, after = [], first._questions.after

    def priced(*given):
        between.append(second.price("mean", share=0.2))
        return after(*given)

    first._questions.after = priced
    first.ask("mean", share=0.2)
    with pytest.raises(ValueError, match=r"^offer: expected no other answer"):
        between[0].draw()
    assert second.ask("mean", share=0.2)


def test_an_answer_finds_the_keys_and_bounds_that_it_reads_and_no_others():
    source = np.random.default_rng(0)
    visits = pd.DataFrame(
        {
            "who": np.arange(6000) % 2000,
            "shop": source.choice(list("ab"), 6000),
            "town": source.choice(list("xyz"), 6000),
            "paid": source.uniform(4.0, 7.0, 6000),
        }
    )
    found = {"shop": "auto", "town": "auto"}
    promise = Table(
        epsilon=8.0, delta=1e-6, person="who", clip=5, bounds={"paid": "auto"}, levels=found
    )
    session = Session(visits, promise, FEW, rng=1)
    told = []
    for query in ("histogram:paid:4,5,7", "mean by shop", "mean", "mean by town", "mean by shop"):
        details = session.ask(query, share=0.2).details
        ranges = () if details.ranges is None else details.ranges.columns
        told.append((details.columns, details.key_column, ranges))
    assert told == [
        (("paid", "shop", "town"), None, ()),
        (("paid", "shop"), "shop", ("paid",)),
        (("paid", "shop"), None, ()),
        (("paid", "shop", "town"), "town", ()),
        (("paid", "shop", "town"), None, ()),
    ]
    both = replace(promise, bounds={"paid": "auto", "shop": (0.0, 1.0)})
    with pytest.raises(ValueError, match=r"bounds: .* none of shop, whose categories are found"):
        Session(visits, both, FEW)
