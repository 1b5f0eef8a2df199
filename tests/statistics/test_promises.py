"""One front for three promises: what each returns, says, stores, spends and refuses."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tacit.statistics.strength import gaussian_mu, success_of

from tacit import Ledger, check_release, load
from tacit.releases import Provenance
from tacit.report import render_report
from tacit.statistics import pairs, prepare, privatize, sums
from tacit.statistics.numbers import NumbersRelease
from tacit.statistics.rows.cost import frame_of

BOUNDS = {"x0": (-4.0, 4.0), "x1": (-4.0, 4.0)}


def rows(count=301, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 2))


def release(protect, query="mean+std", **options):
    options = {"success": 0.6, "attack_trials": 50, "progress": False, **options}
    if protect == "table":
        options = {"bounds": BOUNDS, **options}
    return privatize(query, rows(), protect=protect, **options)


@pytest.mark.parametrize("protect", ["rows", "table"])
def test_a_release_is_stored_read_gated_and_shown(protect):
    found = release(protect)
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert NumbersRelease.from_dict(stored).to_dict() == found.to_dict()
    form = load(stored)
    assert form.kind == f"statistic-{protect}"
    assert [number.name for number in form.numbers] == list(found.names)
    assert check_release(stored, max_success=0.6).passed
    assert not check_release(stored, max_success=0.59).passed
    page = render_report(found, Provenance.capture("test"))
    assert "mean[x0]" in page
    assert "diagnostics" not in found.published()
    assert "attack" not in found.published()


@pytest.mark.parametrize("protect", ["rows", "table"])
def test_a_ledger_adds_the_squares_of_mu(protect, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    mu = gaussian_mu(success=0.6)
    ledger.set_budget("table", mu=1.5 * mu)
    for _ in range(2):
        options = {"bounds": BOUNDS} if protect == "table" else {}
        privatize(
            "mean", rows(), protect=protect, success=0.6, attack=False, ledger=ledger,
            secret="table", **options,
        )  # fmt: skip
    (spent,) = ledger.spent("table").gaussian.values()
    assert spent == pytest.approx(2**0.5 * mu, rel=1e-9)
    with pytest.raises(ValueError, match="nothing was drawn"):
        release(protect, "mean", ledger=ledger, secret="table")


def test_errors_are_the_standard_deviations_of_what_is_released():
    """2,000 releases of each of three fixed draws: means to 5 standard errors, others held."""
    prepared = prepare(
        "mean+std+median", rows(), protect="rows", success=0.7, attack=False, progress=False
    )
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
        found = privatize("mean", pool, protect="rows", success=0.9, attack=False, progress=False)
        low, high = found.intervals(sampling=True)[0]
        inside[True] += low <= 0.0 <= high
        low, high = found.intervals()[0]
        inside[False] += low <= 0.0 <= high
    assert inside[True] / trials > 0.9
    assert inside[False] < inside[True]
    with pytest.raises(ValueError, match="sampling"):
        release("table").intervals(sampling=True)


def test_matched_pairs_need_less_noise_than_random_ones_and_than_a_table():
    errors = {
        name: np.square(release("rows", "mean", pairs=choice, attack=False).errors).sum()
        for name, choice in {"matched": None, "random": "random", "column": "column:x0"}.items()
    }
    assert 10 * errors["matched"] < errors["random"]
    assert errors["matched"] < errors["column"]
    # at least five times less noise than differential privacy of the same rows
    table = np.square(release("table", "mean", adjacency="replace", attack=False).errors).sum()
    assert 25 * errors["matched"] < table


def test_a_household_shares_its_coin():
    pool = np.repeat(np.arange(50.0), 2)[:, None] + [[0.0]]
    found = privatize("mean", pool, protect="rows", success=0.6, attack=False, progress=False)
    assert found.errors[0] == 0.0
    assert "the same whatever is drawn" in " ".join(found.notes)
    assert found.values[0] == 24.5


def test_groups_of_k_are_drawn_at_rate_one_in_k():
    found = privatize(
        "mean", rows(), protect="rows", success=0.8, sampling_rate=0.25, attack=False,
        progress=False,
    )  # fmt: skip
    assert found.membership.prior == 0.75
    assert found.membership.success <= 0.8
    assert "groups of 4" in found.notes[0]
    assert len(found.guarantees) == 3
    with pytest.raises(ValueError, match="sampling_rate"):
        release("rows", sampling_rate=0.3)


def test_numbers_that_noise_drowns_are_named_with_a_remedy():
    pool = np.random.default_rng(1).standard_t(2, (12, 1))
    found = privatize("mean", pool, protect="rows", success=0.501, attack=False, progress=False)
    assert any("noise exceeds the sampling spread of mean[x0]" in note for note in found.notes)


def test_least_squares_that_sums_drown_names_the_other_method():
    close = np.asarray(load_iris().data)
    options = {"protect": "rows", "success": 0.55, "attack": False, "progress": False}
    prepared = prepare("least-squares", close, **options)
    assert any('method="swaps"' in note for note in prepared.notes)
    swaps = prepare("least-squares", close, **options, method="swaps", simulations=300, rng=1)
    assert np.linalg.norm(swaps.plan.errors) < np.linalg.norm(prepared.plan.errors)
    assert not any("swaps" in note for note in prepare("mean", close, **options).notes)


def test_clamping_is_told_and_its_extent_is_not():
    wild = rows() * 100
    found = privatize("mean", wild, protect="table", success=0.6, bounds=BOUNDS, attack=False)
    assert "taken as the bounds: x0, x1" in found.notes[0]
    assert found.diagnostics["clamped_rows"] > 250
    assert "clamped_rows" not in json.dumps(found.published())
    assert np.abs(found.values).max() <= 4.0


def test_sums_may_be_values_and_any_promise_takes_them():
    for options in ({"protect": "rows"}, {"protect": "table"}):
        found = release(**options, query=[sums.Mean(("x0",)), sums.Count()], attack=False)
        assert found.names == ("mean[x0]", "count")
    whole = privatize(
        "count+sum", rows(), mi_budget=0.5, simulations=50, attack=False, protect="draw"
    )
    assert whole.names == ("count", "sum[x0]", "sum[x1]")


def test_pairs_may_be_given():
    own = pairs.at_random(301, rng=5)
    assert release("rows", pairs=own, attack=False).diagnostics["pairing"]["groups"] == 150
    assert release("rows", pairs=own.members[:20], attack=False).diagnostics["pairing"] == {
        "method": "as given",
        "groups": 20,
        "group_size": 2,
        "left_out": 261,
    }


def test_costs_move_noise_where_it_is_cheap():
    pool = rows() * [1.0, 1000.0]
    relative, squared = (
        privatize(
            "mean", pool, protect="rows", success=0.6, cost=cost, attack=False, progress=False
        ).errors
        for cost in (None, "squared")
    )
    assert relative[0] < squared[0]
    assert relative[1] > squared[1]


def test_the_cost_of_noise_on_sums_is_that_of_the_numbers():
    pool = rows()
    query = sums.sum_query("mean", sums_columns(pool))
    values = query.row_values(pool, np.zeros(2))
    frame = frame_of(query, values, np.zeros(2), 150, "squared")
    np.testing.assert_allclose(frame.jacobian[:, 1:], np.eye(2) / 150, rtol=1e-9)
    np.testing.assert_allclose(frame.spread, pool.std(axis=0) / np.sqrt(150), rtol=1e-9)


def sums_columns(pool):
    from tacit.statistics.sums.statistic import Columns

    return Columns(("x0", "x1"), pool)


def test_strengths_agree():
    for success in (0.51, 0.55, 0.75, 0.999):
        mu = gaussian_mu(success=success)
        assert success_of(mu) <= success < success_of(mu * (1 + 1e-9))
    assert gaussian_mu(rho=0.5) == pytest.approx(1.0)
    mu = gaussian_mu(epsilon=1.0, delta=1e-5)
    assert release("table", success=None, epsilon=1.0, delta=1e-5).guarantees[1].mu == mu


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protect": "row"}, "protect"),
        ({"protect": "rows", "mi_budget": 0.1}, "mi_budget: expected None"),
        ({"protect": "rows", "success": None}, "exactly one"),
        ({"protect": "rows", "mu": 1.0}, "exactly one"),
        ({"protect": "rows", "success": 0.5}, "success"),
        ({"protect": "rows", "success": None, "epsilon": 1.0}, "delta"),
        ({"protect": "rows", "success": None, "delta": 0.1}, "epsilon"),
        ({"protect": "rows", "pairs": "column:z"}, "pairs"),
        ({"protect": "rows", "pairs": pairs.at_random(10)}, "expected those of 301 rows"),
        ({"protect": "rows", "bounds": BOUNDS}, "bounds"),
        ({"protect": "rows", "method": "exact"}, "method"),
        ({"protect": "rows", "method": "sums", "query": "kmeans"}, "does not add up"),
        ({"protect": "rows", "query": np.median, "success": None, "mu": 1.0}, "expected success"),
        ({"protect": "rows", "cost": "cheap"}, "cost"),
        ({"protect": "rows", "names": ["a"]}, "names: expected 4 labels"),
        ({"protect": "table", "bounds": {"x0": (0, 1)}}, "of x1, declared without looking"),
        ({"protect": "table", "bounds": {"x0": (1, 0), "x1": (0, 1)}}, "lowest < highest"),
        ({"protect": "table", "bounds": {"z": (0, 1)}}, "columns of the table"),
        ({"protect": "table", "adjacency": "swap"}, "adjacency"),
        ({"protect": "table", "query": "kmeans"}, "whose sums are bounded"),
        ({"protect": "table", "pairs": "random"}, "pairs"),
        ({"protect": "draw", "mu": 1.0}, "mu: expected None"),
        ({"protect": "draw", "bounds": BOUNDS}, "bounds"),
    ],
)
def test_what_a_promise_does_not_have_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        release(**options)


def test_a_seed_repeats_the_release_and_voids_it():
    first, second = (release("rows", rng=7) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    assert first.reproducible
    assert any("VOID" in line for line in first.form.all_assumptions)
    assert not check_release(first, max_success=0.9).passed


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
        prepare(query, rows, success=0.7, method=method, simulations=50, progress=False)


@pytest.mark.parametrize("strength", [{"mu": 1e-200}, {"rho": 1e-300}])
@pytest.mark.parametrize("promise", [{}, {"protect": "table", "bounds": [(-4.0, 4.0)] * 2}])
def test_a_strength_that_noise_cannot_be_computed_for_is_refused(strength, promise):
    rows = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=f"^{next(iter(strength))}: expected a μ of at least"):
        prepare("mean", rows, **strength, **promise, progress=False)
