"""One front for three promises: what each returns, says, stores, spends and refuses."""

import functools
import json
from dataclasses import replace
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_iris

from tacit import Draw, Effort, Ledger, Rows, Table, check_release, load
from tacit._ground.values import Positive, is_value, value
from tacit.cli.statistic.commands import read_pool
from tacit.cli.tables import PoolFlags
from tacit.gate import Policy
from tacit.guarantees import GaussianDP
from tacit.releases import Release
from tacit.releases.promises import Bounds
from tacit.releases.strength import gaussian_mu, success_of
from tacit.report import render_report
from tacit.statistics import Query, pairs, prepare, privatize, queries
from tacit.statistics.bounded import workflow as bounded
from tacit.statistics.cost import frame_of
from tacit.statistics.promises import PROMISES as KEPT
from tacit.statistics.promises import Keeping
from tacit.statistics.sessions.questions import Questions

BOUNDS = {"x0": (-4.0, 4.0), "x1": (-4.0, 4.0)}


def rows(count=301, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 2))


PROMISES = {"rows": Rows(success=0.6), "table": Table(success=0.6, bounds=BOUNDS)}
QUIET = Effort(trials=0)


QUICK = Effort(trials=50)


@value
class Couple:
    """That two records are in the table is hidden.

    Args:
        mu: μ of both.
        bounds: of every column.
    """

    word: ClassVar[str] = "couple"

    mu: Positive
    bounds: Bounds

    @property
    def of_one(self):
        return Table(mu=self.mu / 2.0, bounds=self.bounds)


# a room of its own: what is hidden of two is hidden of one at half of μ
KEEPING = Keeping(
    prepare=lambda request: bounded.prepare(replace(request, promise=request.promise.of_one)),
    counts=lambda request: GaussianDP,
    looks=False,
    fewest=0,
)


def test_a_promise_of_another_room_that_hides_the_table_reads_as_table_does(monkeypatch, tmp_path):
    monkeypatch.setitem(KEPT, Couple, __name__)
    promise = Couple(mu=1.0, bounds={"age": (0.0, 100.0)})
    path = tmp_path / "people.csv"
    # whether a row can be read is hidden with the row, and refuses nothing
    path.write_text("age\n30\n50\nforty\n\n-inf\n")
    pools = [
        read_pool(str(path), "mean", None, PoolFlags(), one) for one in (promise, promise.of_one)
    ]
    gaps = np.array([[30.0], [50.0], [np.nan]])
    found = [
        prepare("mean", pool, one, QUIET, columns=["age"]).expected
        for pool, one, _ in (*pools, (gaps, promise, None), (gaps, promise.of_one, None))
    ]
    assert pools[0][0].rows.tolist() == pools[1][0].rows.tolist()
    assert found[0] == found[1]
    assert found[2] == found[3]


@pytest.mark.parametrize("promise", KEPT)
def test_a_line_of_the_promises_says_all_that_is_kept(promise):
    assert is_value(promise)
    assert [one.word for one in KEPT].count(promise.word) == 1
    keeping = import_module(KEPT[promise]).KEEPING
    if keeping.session is not None:
        module, _, name = keeping.session.partition(":")
        assert issubclass(getattr(import_module(module), name), Questions)


def release(promise, query="mean+std", effort=QUICK, **options):
    return privatize(query, rows(), promise, effort, **options)


@pytest.mark.parametrize("protect", PROMISES)
def test_a_release_is_stored_read_gated_and_shown(protect):
    found = release(PROMISES[protect])
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert Release.from_dict(stored).to_dict() == found.to_dict()
    again = load(stored)
    assert again.kind == f"statistic-{protect}"
    assert again.names == found.names
    assert again.details.promise == found.details.promise
    assert check_release(stored, Policy(max_success=0.6)).passed
    assert not check_release(stored, Policy(max_success=0.59)).passed
    assert "mean[x0]" in render_report(found)
    assert found.published()["attacks"] == []
    # what may be published is worked out again too
    assert check_release(json.loads(json.dumps(found.published())), Policy(max_success=0.6)).passed


@pytest.mark.parametrize("protect", PROMISES)
def test_a_ledger_adds_the_squares_of_mu(protect, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    mu = gaussian_mu(success=0.6)
    ledger.set_budget("table", mu=1.5 * mu)
    for _ in range(2):
        release(PROMISES[protect], "mean", QUIET, ledger=ledger, secret="table")
    (spent,) = ledger.spent("table").gaussian.values()
    assert spent == pytest.approx(2**0.5 * mu, rel=1e-9)
    with pytest.raises(ValueError, match="nothing was drawn"):
        release(PROMISES[protect], "mean", ledger=ledger, secret="table")


def test_errors_are_the_standard_deviations_of_what_is_released():
    """2,000 releases of each of three fixed draws: means to 5 standard errors, others held."""
    prepared = prepare("mean+std+median", rows(), Rows(success=0.7), QUIET)
    plan, errors = prepared.plan, prepared.plan.errors
    for seed in (1, 2, 3):
        drawn = plan.pairing.draw(seed)
        total, count = plan.values.total(drawn), float(len(drawn))
        clean = plan.query.finish(total, plan.centres, count)
        noise = plan.noise.sample(2000, np.random.default_rng(seed))
        seen = np.array([plan.query.finish(total + e, plan.centres, count) for e in noise])
        ratio = seen[:, :2].std(axis=0) / errors[:2]
        assert np.abs(ratio - 1).max() < 5 / np.sqrt(2 * 2000)
        covered = (np.abs(seen - clean) <= 1.96 * errors).mean(axis=0)
        assert covered.min() > 0.93
    # what is really released is the same law
    told = [plan.at(drawn, None) for _ in range(500)]
    held = [np.abs(numbers - clean) <= 1.96 * own for numbers, own in told]
    assert np.mean(held, axis=0).min() > 0.9


@pytest.mark.thorough
def test_intervals_hold_the_statistic_of_the_rows_drawn_and_of_their_source():
    inside = {False: 0, True: 0}
    trials = 120
    for number in range(trials):
        pool = np.random.default_rng(number).normal(size=(200, 1))
        found = privatize("mean", pool, Rows(success=0.9), QUIET)
        low, high = found.intervals(sampling=True)[0]
        inside[True] += low <= 0.0 <= high
        low, high = found.intervals()[0]
        inside[False] += low <= 0.0 <= high
    assert inside[True] / trials > 0.9
    assert inside[False] < inside[True]
    with pytest.raises(ValueError, match="sampling"):
        release(PROMISES["table"]).intervals(sampling=True)


def test_matched_pairs_need_less_noise_than_random_ones_and_than_a_table():
    errors = {
        name: np.square(release(Rows(success=0.6, pairs=choice), "mean", QUIET).errors).sum()
        for name, choice in {"matched": None, "random": "random", "column": "column:x0"}.items()
    }
    assert 10 * errors["matched"] < errors["random"]
    assert errors["matched"] < errors["column"]
    # at least five times less noise than differential privacy of the same rows
    promise = Table(success=0.6, bounds=BOUNDS, adjacency="replace")
    table = np.square(release(promise, "mean", QUIET).errors).sum()
    assert 25 * errors["matched"] < table


def test_a_household_shares_its_coin():
    pool = np.repeat(np.arange(50.0), 2)[:, None] + [[0.0]]
    found = privatize("mean", pool, Rows(success=0.6), QUIET)
    assert found.errors[0] == 0.0
    assert "the same whatever is drawn" in " ".join(found.notes)
    assert found.values[0] == 24.5


def test_groups_of_k_are_drawn_at_rate_one_in_k():
    found = privatize("mean", rows(), Rows(success=0.8, rate=0.25), QUIET)
    assert found.membership.prior == 0.75
    assert found.membership.success <= 0.8
    assert "groups of 4" in found.notes[0]
    assert len(found.guarantees) == 3
    with pytest.raises(ValueError, match=r"^rate: expected 1/k"):
        release(Rows(success=0.8, rate=0.3))


def test_numbers_that_noise_drowns_are_named_with_a_remedy():
    pool = np.random.default_rng(1).standard_t(2, (12, 1))
    found = privatize("mean", pool, Rows(success=0.501), QUIET)
    assert any("noise exceeds the sampling spread of mean[x0]" in note for note in found.notes)


def test_least_squares_that_sums_drown_names_the_other_method():
    close = np.asarray(load_iris().data)
    promise, by_swaps = Rows(success=0.55), Rows(success=0.55, method="swaps")
    prepared = prepare("least-squares", close, promise, QUIET)
    assert any('method="swaps"' in note for note in prepared.planned.notes)
    swaps = prepare("least-squares", close, by_swaps, Effort(trials=0, simulations=300), rng=1)
    assert np.linalg.norm(swaps.plan.errors) < np.linalg.norm(prepared.plan.errors)
    means = prepare("mean", close, promise, QUIET)
    assert not any("swaps" in note for note in means.planned.notes)


def test_clamping_is_told_and_its_extent_is_not():
    wild = rows() * 100
    found = privatize("mean", wild, Table(success=0.6, bounds=BOUNDS), QUIET)
    assert "counts as the nearer bound: x0, x1" in found.notes[0]
    assert found.details.clamped_rows > 250
    assert found.public().details.clamped_rows is None
    assert np.abs(found.values).max() <= 4.0


def test_sums_may_be_values_and_any_promise_takes_them():
    for promise in PROMISES.values():
        found = release(promise, [queries.Mean(("x0",)), queries.Count()], QUIET)
        assert found.names == ("mean[x0]", "count")
        assert found.title == "mean+count"
    whole = privatize("count+sum", rows(), Draw(nats=0.5), Effort(simulations=50, trials=0))
    assert whole.names == ("count", "sum[x0]", "sum[x1]")


def test_pairs_may_be_given():
    own = pairs.at_random(301, rng=5)
    assert release(Rows(success=0.6, pairs=own), effort=QUIET).details.groups == 150
    found = release(Rows(success=0.6, pairs=own.members[:20]), effort=QUIET).details
    assert (found.pairing, found.groups, found.group_size, found.left_out) == (
        "as given", 20, 2, 261,
    )  # fmt: skip
    assert (found.promise.pairs, found.pool_rows) == ("given", 301)


def test_costs_move_noise_where_it_is_cheap():
    pool = rows() * [1.0, 1000.0]
    relative, squared = (
        privatize("mean", pool, Rows(success=0.6), QUIET, cost=cost).errors
        for cost in (None, "squared")
    )
    assert relative[0] < squared[0]
    assert relative[1] > squared[1]


def test_the_cost_of_noise_on_sums_is_that_of_the_numbers():
    pool = rows()
    query = queries.bind_query("mean", queries.Columns(("x0", "x1"), pool))
    values = query.row_values(pool, np.zeros(2))
    frame = frame_of(query, values, np.zeros(2), 150, "squared")
    np.testing.assert_allclose(frame.jacobian[:, 1:], np.eye(2) / 150, rtol=1e-9)
    np.testing.assert_allclose(frame.spread, pool.std(axis=0) / np.sqrt(150), rtol=1e-9)


def test_strengths_agree():
    for success in (0.51, 0.55, 0.75, 0.999):
        mu = gaussian_mu(success=success)
        assert success_of(mu) <= success < success_of(mu * (1 + 1e-9))
    assert gaussian_mu(rho=0.5) == pytest.approx(1.0)
    mu = gaussian_mu(epsilon=1.0, delta=1e-5)
    promise = Table(epsilon=1.0, delta=1e-5, bounds=BOUNDS)
    assert release(promise).guarantees[1].mu == mu


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Rows, {"nats": 0.1}, "nats"),
        (Rows, {}, "exactly one of success, mu"),
        (Rows, {"success": 0.6, "mu": 1.0}, "exactly one of success, mu"),
        (Rows, {"success": 0.5}, "success: expected more than 0.5"),
        (Rows, {"epsilon": 1.0}, "delta: expected a value beside epsilon"),
        (Rows, {"delta": 0.1}, "epsilon: expected a value beside delta"),
        (Table, {"epsilon": 1e-200, "person": "who"}, "epsilon: expected at least 1e-50"),
        (Rows, {"success": 0.6, "bounds": BOUNDS}, "bounds"),
        (Rows, {"success": 0.6, "method": "exact"}, "method"),
        (Rows, {"success": 0.6, "rate": 0.6}, "rate"),
        (Table, {"success": 0.6, "adjacency": "swap"}, "adjacency"),
        (Table, {"success": 0.6, "pairs": "random"}, "pairs"),
        (Draw, {"mu": 1.0}, "mu"),
        (Draw, {"nats": 0.1, "success": 0.6}, "exactly one of nats and success"),
        (Draw, {"nats": 0.1, "bounds": BOUNDS}, "bounds"),
    ],
)
def test_a_promise_refuses_what_makes_no_sense_in_it(kind, fields, words):
    with pytest.raises((ValueError, TypeError), match=words):
        kind(**fields)


@pytest.mark.parametrize(
    ("promise", "query", "words"),
    [
        ("rows", "mean", "promise: expected one of Rows, Table, Draw"),
        (Rows(success=0.6, pairs="column:z"), "mean", "pairs"),
        (Rows(success=0.6, pairs=pairs.at_random(10)), "mean", "expected those of 301 rows"),
        (Rows(success=0.6, method="sums"), "kmeans", "does not add up"),
        (Rows(mu=1.0), np.median, "expected success"),
        (Rows(success=0.6), Query("mean", ("a",)), "names: expected 2 labels"),
        (Table(success=0.6, bounds={"x0": (0, 1)}), "mean", "of x1, .*declared without looking"),
        (Table(success=0.6, bounds={"x0": (1, 0), "x1": (0, 1)}), "mean", "lowest < highest"),
        (Table(success=0.6, bounds={"z": (0, 1)}), "mean", "columns of the table"),
        (Table(success=0.6, bounds=BOUNDS), "kmeans", "whose sums are bounded"),
    ],
)
def test_what_a_promise_does_not_have_is_refused(promise, query, words):
    with pytest.raises(ValueError, match=words):
        release(promise, query)


def test_a_cost_is_one_that_is_known():
    with pytest.raises(ValueError, match="cost"):
        release(PROMISES["rows"], cost="cheap")


def test_a_seed_repeats_the_release_and_voids_it():
    first, second = (release(PROMISES["rows"], rng=7) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    assert first.reproducible
    assert first.seed == 7
    assert not check_release(first, Policy(max_success=0.9)).passed


@pytest.mark.parametrize("method", ["swaps", "family"])
@pytest.mark.parametrize(
    ("query", "said"),
    [
        (lambda rows: rows.sum() * 1e300, "expected outputs that spread over"),
        (lambda rows: rows.sum() * 1e-300, "expected outputs that spread over"),
        (lambda rows: 3.0, "expected numbers that change with the rows drawn"),
    ],
)
def test_a_query_that_never_changes_or_leaves_double_precision_is_refused(method, query, said):
    rows = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=f"^query: {said}"):
        prepare(query, rows, Rows(success=0.7, method=method), Effort(simulations=50))


@pytest.mark.parametrize("strength", [{"mu": 1e-200}, {"rho": 1e-300}])
@pytest.mark.parametrize(
    "promise", [Rows, functools.partial(Table, bounds=[(-4.0, 4.0)] * 2)], ids=["rows", "table"]
)
def test_a_strength_that_noise_cannot_be_computed_for_is_refused(strength, promise):
    rows = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=f"^{next(iter(strength))}: expected a μ of at least"):
        prepare("mean", rows, promise(**strength))
