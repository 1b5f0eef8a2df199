import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.attacks import MembershipAttack
from tacit.compute import mapping
from tacit.conversions import success_from_information
from tacit.design import gaussian_information
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information import log_det_information
from tacit.releases.outputs import output_covariance
from tacit.statistics import Query, StatisticRelease, draws, prepare, privatize
from tacit.statistics.candidates import draw_family, subset_rate
from tacit.statistics.simulation import simulate


@pytest.fixture
def pool():
    return np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 5.0, 0.2]


def family(pool_rows, rate, candidates, seed=0):
    share = subset_rate(pool_rows, rate, candidates)
    return draw_family(pool_rows, share, candidates, np.random.default_rng(seed))


def released(query, pool, **options):
    options = {"simulations": 200, "attack_trials": 100, "rng": 1, "cost": "squared", **options}
    if "success" not in options:
        options.setdefault("mi_budget", 0.1)
    return privatize(query, pool, **options, protect="draw")


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.3, 2 / 3, 0.85])
@pytest.mark.parametrize("pool_rows", [7, 10, 40, 101])
def test_every_row_is_in_exactly_the_same_share_of_candidates(pool_rows, rate):
    declared = family(pool_rows, rate, 120)
    inside = declared.memberships(0, len(declared))
    assert len(declared) >= 120
    exact = Fraction(rate).limit_denominator(20)
    assert {Fraction(int(c), len(declared)) for c in inside.sum(axis=0)} == {exact}
    sizes = set(inside.sum(axis=1).tolist())
    assert sizes == set(declared.subset_sizes)
    assert max(sizes) - min(sizes) <= 1


def test_members_columns_and_memberships_agree():
    declared = family(21, 0.3, 50)
    inside = declared.memberships(0, len(declared))
    for candidate in (0, 17, len(declared) - 1):
        np.testing.assert_array_equal(
            declared.members(candidate), np.flatnonzero(inside[candidate])
        )
    np.testing.assert_array_equal(declared.columns([20, 3, 8]), inside[:, [20, 3, 8]])


def test_half_of_an_odd_pool_keeps_a_prior_of_a_half():
    declared = family(149, 0.5, 100)
    assert declared.rate == Fraction(1, 2)
    assert declared.subset_sizes == (74, 75)


@pytest.mark.parametrize("rate", [0.001, 0.123456, 0.987, math.pi / 4])
def test_odd_rates_are_met_to_a_thousandth(rate):
    exact = subset_rate(5000, rate, 2000)
    assert abs(float(exact) - rate) <= 1e-3 * min(rate, 1 - rate)
    assert exact.denominator <= 2000


def test_candidates_differ_from_each_other_and_between_draws():
    first, second = (family(40, 0.5, 200, seed).memberships(0, 200) for seed in (0, 1))
    assert len({row.tobytes() for row in first}) == 200
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("pool_rows", "rate"), [(4, 0.1), (4, 0.9), (1000, 1e-5)])
def test_rates_that_empty_a_candidate_are_refused(pool_rows, rate):
    with pytest.raises(ValueError, match="sampling_rate: expected a rate that leaves rows in"):
        subset_rate(pool_rows, rate, 200)


def test_the_output_covariance_is_that_of_the_declared_outputs(pool):
    declared = family(40, 0.5, 60)
    outputs = simulate(
        Query(lambda rows: rows.mean(axis=0), None, "mean"),
        pool,
        declared,
        workers=1,
        progress=False,
    )
    expected = np.stack([pool[declared.members(k)].mean(axis=0) for k in range(60)])
    np.testing.assert_array_equal(outputs, expected)
    mean, covariance, slack = output_covariance(outputs)
    np.testing.assert_allclose(covariance, np.cov(expected, rowvar=False, ddof=0), rtol=1e-9)
    np.testing.assert_allclose(mean, expected.mean(axis=0))
    assert 0 < slack < 1e-12


def test_the_covariance_slack_covers_its_rounding():
    """Against exact rational arithmetic, for outputs far from zero."""
    outputs = np.random.default_rng(2).normal(size=(60, 2)) * 1e-3 + 1e5
    _, covariance, slack = output_covariance(outputs)
    rational = [[Fraction(float(v)) for v in row] for row in outputs]
    means = [sum(column) / 60 for column in zip(*rational, strict=True)]
    exact = [
        [sum((row[i] - means[i]) * (row[j] - means[j]) for row in rational) / 60 for j in (0, 1)]
        for i in (0, 1)
    ]
    upper = [
        [Fraction(float(covariance[i, j])) * (1 + Fraction(slack) * (i == j)) for j in (0, 1)]
        for i in (0, 1)
    ]
    excess = [[upper[i][j] - exact[i][j] for j in (0, 1)] for i in (0, 1)]
    assert excess[0][0] >= 0
    assert excess[1][1] >= 0
    assert excess[0][0] * excess[1][1] - excess[0][1] * excess[1][0] >= 0


def test_a_release_carries_what_it_promises(pool):
    release = released("mean", pool, success=0.55, columns=("a", "b", "c"))
    assert isinstance(release.guarantee, InformationBound)
    assert isinstance(release.membership, SuccessBound)
    assert isinstance(release.attack, MembershipAttack)
    assert release.names == ("mean[a]", "mean[b]", "mean[c]")
    assert release.release.shape == (3,)
    assert np.isfinite(release.release).all()
    assert release.membership.success <= 0.55
    assert release.membership.success == pytest.approx(0.55, abs=1e-6)
    assert release.membership.prior == 0.5
    assert release.guarantee.nats <= release.diagnostics.mi_budget
    assert release.guarantee.evidence == "numerical"
    assert release.method == "gaussian-information-exact"
    assert release.attack.interval[0] <= 0.55
    assert release.diagnostics.pool_rows == 40
    assert release.diagnostics.subset_rows == 20
    assert release.diagnostics.candidates == 200


@pytest.mark.parametrize("method", ["auto", "exact", "linear", "diagonal"])
@pytest.mark.parametrize("cost", [None, "squared", "relative", np.array([1.0, 2.0, 3.0])])
def test_the_certificate_is_of_the_noise_that_is_drawn(pool, method, cost):
    release = released("mean", pool, mi_budget=0.3, method=method, cost=cost, attack=False)
    declared = family(40, 0.5, 200, seed=1)
    outputs = np.stack([pool[declared.members(k)].mean(axis=0) for k in range(200)])
    covariance = np.cov(outputs, rowvar=False, ddof=0)
    noise = release.design.covariance
    assert log_det_information(covariance, noise) <= release.guarantee.nats * (1 + 1e-9)
    assert release.guarantee.nats <= 0.3
    np.testing.assert_allclose(release.diagnostics.noise_variance, noise.diagonal())
    np.testing.assert_allclose(release.diagnostics.output_variance, np.diagonal(covariance))
    relative = 1 / np.diagonal(covariance)
    named = {"relative": relative, "squared": None}
    weights = relative if cost is None else named[cost] if isinstance(cost, str) else cost
    expected = gaussian_information(
        covariance, 0.3, cost=weights, method="exact" if method == "auto" else method
    )
    assert release.design.cost == pytest.approx(expected.cost, rel=1e-6)


def test_principal_variances_are_in_the_eigenbasis_of_the_outputs(pool):
    seen = released("mean", pool, mi_budget=0.4, attack=False)
    found = seen.diagnostics
    assert np.all(np.diff(found.principal_output_variance) <= 0)
    assert found.principal_output_variance.sum() == pytest.approx(found.output_variance.sum())
    assert found.principal_noise_variance.sum() == pytest.approx(found.noise_variance.sum())
    ratios = found.principal_output_variance / found.principal_noise_variance
    assert 0.5 * np.log1p(ratios).sum() == pytest.approx(seen.guarantee.nats, rel=1e-6)


def test_the_released_value_is_a_candidate_plus_the_noise():
    """Mahalanobis residuals of many releases from the pool's mean: chi-squared of S + Σ."""
    rows = np.random.default_rng(3).normal(size=(12, 1))
    outputs = [rows[list(c)].mean() for c in itertools.combinations(range(12), 6)]
    releases = np.array(
        [
            privatize(
                "mean",
                rows,
                mi_budget=0.2,
                method="exact",
                simulations=60,
                rng=seed,
                attack=False,
                protect="draw",
            ).release[0]
            for seed in range(400)
        ]
    )
    one = privatize(
        "mean",
        rows,
        mi_budget=0.2,
        method="exact",
        simulations=20_000,
        rng=0,
        attack=False,
        protect="draw",
    )
    variance = np.var(outputs) + one.design.covariance.trace()
    error = variance * math.sqrt(2 / 400)
    assert abs(np.var(releases) - variance) < 5 * error
    assert abs(releases.mean() - rows.mean()) < 5 * math.sqrt(variance / 400)
    assert abs(np.var(releases) - 1.5 * variance) > 5 * error


def test_same_seed_same_release_whatever_the_workers(pool, monkeypatch):
    monkeypatch.setattr(mapping, "WORTH_STARTING_WORKERS_SECONDS", 0.0)

    def slow_mean(rows):
        total = rows.mean(axis=0)
        for _ in range(300):
            total = total + 0.0 * np.linalg.eigvalsh(np.cov(rows, rowvar=False)).sum()
        return total

    one, two = (released(slow_mean, pool, workers=w, simulations=60, rng=5) for w in (1, 2))
    np.testing.assert_array_equal(one.release, two.release)
    assert one.attack == two.attack
    np.testing.assert_array_equal(one.diagnostics.output_variance, two.diagnostics.output_variance)
    other = released(slow_mean, pool, simulations=60, rng=6, workers=1)
    assert not np.array_equal(one.release, other.release)


def test_a_seed_voids_the_guarantee_and_says_so(pool):
    seeded = released("mean", pool, rng=7)
    assert seeded.reproducible
    assert seeded.seed == 7
    for bound in (seeded.guarantee, seeded.membership):
        assert any(text.startswith("VOID") for text in bound.assumptions)
    generator = released("mean", pool, rng=np.random.default_rng(7))
    assert generator.reproducible
    assert generator.seed is None


def test_without_a_seed_the_operating_system_is_asked(pool):
    first, second = (released("mean", pool, rng=None, attack=False) for _ in "ab")
    assert not first.reproducible
    assert first.seed is None
    assert not any("VOID" in text for text in first.guarantee.assumptions)
    assert not np.array_equal(first.release, second.release)


def test_the_release_holds_no_secret(pool):
    """Neither the drawn candidate's output nor its number is anywhere in the description."""
    release = released("mean", pool, rng=11, attack=False)
    declared = family(40, 0.5, 200, seed=11)
    outputs = {repr(float(v)) for k in range(200) for v in pool[declared.members(k)].mean(axis=0)}
    text = json.dumps(release.to_dict(), allow_nan=False)
    assert not any(value in text for value in outputs)


def test_json_round_trip(pool):
    for options in ({}, {"attack": False}, {"method": "diagonal"}):
        release = released("mean+std", pool, **options)
        text = json.dumps(release.to_dict(), allow_nan=False)
        again = StatisticRelease.from_dict(json.loads(text))
        assert again.to_dict() == release.to_dict()
        assert again.guarantee == release.guarantee
        assert again.design.covariance == release.design.covariance


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("guarantee"), "missing or malformed"),
        (lambda d: d.update(format="else"), "expected a release of format"),
        (lambda d: d.update(version=99), "expected version 1, got 99"),
        (lambda d: d["diagnostics"].pop("candidates"), "missing or malformed"),
        (
            lambda d: d.update(guarantee=d["membership"]),
            "guarantee: expected InformationBound, got SuccessBound",
        ),
    ],
)
def test_a_damaged_description_is_refused(pool, damage, message):
    description = released("mean", pool, attack=False).to_dict()
    damage(description)
    with pytest.raises(ValueError, match=message):
        StatisticRelease.from_dict(description)


class Book:
    """A ledger that writes down what it is asked, and refuses once told to."""

    def __init__(self, events, *, refuse=False):
        self.events, self.refuse = events, refuse

    def reserve(self, secret, guarantee, description, *, reproducible=False, no_budget=False):
        if self.refuse:
            raise ValueError("no budget is left")
        self.events.append(("reserved", secret, tuple(guarantee), description))
        return self

    def mark_drawn(self):
        self.events.append(("drawn",))

    def commit(self, record):
        self.events.append(("committed", record))


def prepared_mean(pool, **options):
    return prepare(
        "mean",
        pool,
        success=0.6,
        simulations=40,
        workers=1,
        attack=False,
        **options,
        protect="draw",
    )


def test_looking_at_a_prepared_statistic_draws_nothing(pool, monkeypatch):
    drawn = []
    monkeypatch.setattr(draws, "uniform_index", drawn.append)
    prepared = prepared_mean(pool)
    errors = np.sqrt(prepared.plan.diagnostics.noise_variance)
    assert [entry.error for entry in prepared.expected] == errors.tolist()
    assert prepared.guarantees == (prepared.membership, prepared.guarantee)
    assert drawn == []


def test_a_draw_reserves_first_and_commits_last(pool, monkeypatch):
    events, draw = [], draws.uniform_index
    monkeypatch.setattr(
        draws, "uniform_index", lambda *given: (events.append(("noise",)), draw(*given))[1]
    )
    prepared = prepared_mean(pool)
    release = prepared.draw(ledger=Book(events), secret="people")
    assert [event[0] for event in events] == ["reserved", "drawn", "noise", "committed"]
    assert events[0][1:] == ("people", (release.guarantee,), "mean")
    assert events[-1][1] == release.published()
    assert set(release.published()) == set(release.form.publishable)
    with pytest.raises(ValueError, match="drawn already"):
        prepared.draw()


def test_a_refused_reservation_draws_nothing_and_can_be_tried_again(pool):
    prepared = prepared_mean(pool)
    with pytest.raises(ValueError, match="no budget is left"):
        prepared.draw(ledger=Book([], refuse=True), secret="people")
    assert prepared.draw().guarantee == prepared.guarantee


def test_a_ledger_needs_a_secret_and_a_secret_a_ledger(pool):
    prepared = prepared_mean(pool)
    with pytest.raises(ValueError, match="secret: expected the name"):
        prepared.draw(ledger=Book([]))
    with pytest.raises(ValueError, match="ledger: expected one"):
        prepared.draw(secret="people")
    with pytest.raises(ValueError, match=r"ledger: expected a tacit\.Ledger, got str"):
        prepared.draw(ledger="ledger.db", secret="people")


def test_privatize_is_prepare_and_draw(pool):
    both = [
        prepared_mean(pool, rng=5).draw(),
        privatize(
            "mean",
            pool,
            success=0.6,
            simulations=40,
            workers=1,
            attack=False,
            rng=5,
            protect="draw",
        ),
    ]
    assert both[0].release.tolist() == both[1].release.tolist()


def test_the_release_lies_on_a_grid_far_below_the_noise(pool):
    release = released("mean", pool)
    deviations = np.sqrt(release.diagnostics.noise_variance)
    grid = 2.0 ** np.floor(np.log2(deviations)) / 2**20
    np.testing.assert_array_equal(release.release / grid, np.round(release.release / grid))


@pytest.mark.thorough
def test_a_large_pool_is_attacked_on_some_of_its_rows():
    rows = np.random.default_rng(4).normal(size=(2500, 1))
    rows[2345] = 1e4
    release = released("mean", rows, mi_budget=2.0, simulations=100, attack_trials=200)
    again = released("mean", rows, mi_budget=2.0, simulations=100, attack_trials=200, rng=2)
    assert 2345 in (release.attack.worst_record, again.attack.worst_record)


def test_a_constant_query_is_released_as_it_is(pool):
    release = released(lambda rows: [3.0, 4.0], pool)
    assert release.release.tolist() == [3.0, 4.0]
    assert release.guarantee.nats == 0.0
    assert release.membership.success == 0.5
    assert release.attack is None
    assert any("the same for every candidate" in note for note in release.diagnostics.notes)
    assert StatisticRelease.from_dict(release.to_dict()).to_dict() == release.to_dict()


def test_a_constant_output_beside_a_moving_one(pool):
    release = released(lambda rows: [rows[:, 0].mean(), 7.0], pool)
    assert release.design.rank == 2
    assert release.release[1] == pytest.approx(7.0, abs=1e-3)
    assert any("rounding level" in note for note in release.diagnostics.notes)
    assert released(lambda rows: [rows[:, 0].mean(), 7.0], pool, cost="relative").design.rank == 2


def test_dependent_outputs_are_covered(pool):
    """The third output is the sum of the first two: a singular S, yet noise everywhere."""

    def dependent(rows):
        first, second = rows[:, 0].mean(), rows[:, 1].mean()
        return [first, second, first + second]

    release = released(dependent, pool)
    assert release.design.rank == 3
    assert release.guarantee.nats <= 0.1


def test_unequal_rates_and_their_prior(pool):
    release = released("mean", pool, sampling_rate=0.3, success=0.75)
    assert release.membership.prior == pytest.approx(0.7)
    assert release.membership.success <= 0.75
    assert release.attack.prior == pytest.approx(0.7)
    assert success_from_information(release.guarantee.nats, 0.7) == release.membership.success


@pytest.mark.parametrize(
    "query",
    [
        "mean",
        "std",
        "median",
        "quantiles:0.1,0.9",
        "covariance",
        "least-squares",
        "kmeans:2",
        "mean+covariance",
    ],
)
def test_every_built_in_is_released(pool, query):
    release = released(query, pool)
    assert len(release.names) == release.release.size
    assert release.guarantee.nats <= 0.1
    assert release.query == query


def test_logistic_is_released(pool):
    table = pool.copy()
    table[:, 2] = pool[:, 2] + 0.02 * pool[:, 1] > 0
    assert released("logistic", table).release.shape == (3,)


def test_labels_of_a_callable(pool):
    assert released(lambda rows: rows.max(axis=0), pool).names == ("y0", "y1", "y2")
    named = released(lambda rows: rows.max(axis=0), pool, names=("p", "q", "r"))
    assert named.names == ("p", "q", "r")
    scalar = released(lambda rows: rows.max(), pool)
    assert scalar.release.shape == (1,)


def test_one_column_may_come_as_a_vector():
    assert released("mean", np.arange(12.0)).names == ("mean[x0]",)


def random_mean(rows):
    return rows.mean(axis=0) + np.random.default_rng().normal(size=rows.shape[1])


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("mean", {"mi_budget": None}, "expected exactly one of the two"),
        ("mean", {"mi_budget": 0.1, "success": 0.6}, "expected exactly one of the two"),
        ("mean", {"mi_budget": 0.0}, "mi_budget: expected a finite number > 0"),
        ("mean", {"mi_budget": -1.0}, "mi_budget"),
        ("mean", {"mi_budget": math.nan}, "mi_budget"),
        (
            "mean",
            {"mi_budget": None, "success": 0.5},
            r"success: expected a number in \(0.5, 1.0\)",
        ),
        ("mean", {"mi_budget": None, "success": 0.4}, "success"),
        ("mean", {"mi_budget": None, "success": 1.0}, "success"),
        ("mean", {"sampling_rate": 0.0}, "sampling_rate"),
        ("mean", {"sampling_rate": 1.0}, "sampling_rate"),
        ("mean", {"method": "best"}, "method: expected one of"),
        ("mean", {"cost": "cheap"}, "cost: expected one of"),
        ("mean", {"cost": [1.0]}, "cost: expected 3 entries"),
        ("mean", {"simulations": 1}, "simulations"),
        ("mean", {"attack_trials": 1}, "attack_trials"),
        ("mean", {"workers": 0}, "workers"),
        ("mean", {"columns": ("a", "b")}, "columns: expected 3 different names"),
        ("mean", {"columns": ("a", "a", "b")}, "columns: expected 3 different names"),
        ("mean", {"names": ("a",)}, "names: expected 3 labels"),
        ("mean", {"target": "z"}, "target: expected one of x0, x1, x2"),
        ("mean", {"rng": -1}, "rng"),
        ("average", {}, "query: expected one of"),
        (lambda rows: np.nan, {}, "got nan at position 0 on a candidate of 20 rows"),
        (lambda rows: [1.0, np.inf], {}, "got inf at position 1 on a candidate of 20 rows"),
        (lambda rows: "text", {}, "got str on a candidate of 20 rows"),
        (lambda rows: None, {}, "on a candidate of 20 rows"),
        (lambda rows: [[1.0], [2.0, 3.0]], {}, "got list on a candidate of 20 rows"),
        (lambda rows: [], {}, "at least one number, got none"),
        (lambda rows: rows[rows[:, 0] > 0, 0], {}, "numbers every time"),
        (random_mean, {}, "fix the seed"),
        (lambda rows: rows[:, 0].mean() * 1e200, {}, "choose other units"),
        (lambda rows: rows[:, 0].mean() * 1e-200, {}, "choose other units"),
    ],
)
def test_bad_input(pool, query, options, message):
    with pytest.raises(ValueError, match=message):
        privatize(
            query,
            pool,
            **{"mi_budget": 0.1, "simulations": 60, "rng": 0, **options},
            protect="draw",
        )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 2)), "pool: expected at least 4 rows, got 3"),
        (
            np.array([[1.0], [np.nan], [2.0], [3.0]]),
            r"pool: expected finite numbers, got nan at index \(1, 0\)",
        ),
        (np.array([[1.0], [np.inf], [2.0], [3.0]]), "pool: expected finite"),
        (np.zeros((0, 2)), "pool: expected at least one entry"),
        ([["a"], ["b"], ["c"], ["d"]], "pool: expected an array of numbers"),
        (np.zeros((4, 2, 2)), "pool: expected a 1-dimensional or 2-dimensional"),
    ],
)
def test_bad_pools(rows, message):
    with pytest.raises(ValueError, match=message):
        privatize("mean", rows, mi_budget=0.1, protect="draw")


def test_an_error_inside_the_query_comes_through(pool):
    def broken(rows):
        raise ZeroDivisionError("inside the query")

    with pytest.raises(ZeroDivisionError, match="inside the query"):
        released(broken, pool)


def test_a_query_that_changes_its_rows_does_not_change_the_pool(pool):
    before = pool.copy()

    def greedy(rows):
        result = rows.mean(axis=0)
        rows[:] = 0.0
        return result

    released(greedy, pool)
    np.testing.assert_array_equal(pool, before)


def outlying_mean(simulations=200, **options):
    rows = np.concatenate([np.random.default_rng(8).normal(size=(60, 2)), [[90.0, 0.0]]])
    return privatize(
        "mean",
        rows,
        cost="squared",
        mi_budget=0.6,
        simulations=simulations,
        attack=False,
        rng=2,
        **options,
        protect="draw",
    )


@pytest.mark.thorough
def test_less_noise_under_the_exact_information_and_the_guarantee_says_how_sure():
    """One row decides the mean: two clusters, where the Gaussian bound asks for too much."""
    release, gaussian = outlying_mean(), outlying_mean(method="exact")
    assert release.design.cost < 0.9 * gaussian.design.cost
    assert release.guarantee.nats <= 0.6
    for guarantee in (release.guarantee, release.membership):
        assert guarantee.evidence == "statistical"
        assert guarantee.confidence == 0.999
    assert release.diagnostics.gaussian_information > 0.6
    saved = 1.0 - release.design.cost / gaussian.design.cost
    assert release.diagnostics.noise_saved == pytest.approx(saved, rel=1e-6)
    again = StatisticRelease.from_dict(json.loads(json.dumps(release.to_dict())))
    assert again.to_dict() == release.to_dict()
    assert outlying_mean(confidence=0.9).guarantee.confidence == 0.9


def test_where_nothing_is_saved_the_guarantee_needs_no_confidence(pool):
    release = released("mean", pool, success=0.55, attack=False)
    assert release.guarantee.evidence == "numerical"
    assert release.diagnostics.gaussian_information is None
    assert release.diagnostics.noise_saved is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan, "high"])
def test_bad_confidences_are_refused(pool, confidence):
    with pytest.raises(ValueError, match="confidence"):
        released("mean", pool, confidence=confidence)


def test_numbers_beyond_double_precision_are_said_to_be_so(pool):
    with pytest.raises(ValueError, match=r"query: .* within double precision"):
        privatize(
            lambda rows: 10**400, pool, mi_budget=0.1, simulations=60, workers=1, protect="draw"
        )


def test_relative_cost_of_outputs_of_any_size(pool):
    options = {"simulations": 60, "workers": 1, "cost": "relative", "attack": False}
    middle = np.median(pool[:, 0])
    small = privatize(
        lambda rows: 1e-155 * float(rows[0, 0] > middle),
        pool,
        mi_budget=1.0,
        **options,
        protect="draw",
    )
    assert small.guarantee.nats <= np.log(2.0) * (1 + 1e-9)
    apart = privatize(
        lambda rows: [1e-110 * rows.mean(), 1e110 * rows.mean()],
        pool,
        mi_budget=0.1,
        **options,
        protect="draw",
    )
    assert apart.guarantee.nats <= 0.1


class Frame:
    """What pandas and polars have in common: names and an array."""

    columns = ("age", "income")

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype=dtype)


def test_a_data_frame_keeps_its_column_names(pool):
    release = privatize(
        "mean",
        Frame(pool[:, :2]),
        success=0.6,
        simulations=40,
        workers=1,
        attack=False,
        protect="draw",
    )
    assert release.names == ("mean[age]", "mean[income]")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", "names: expected 2 labels"),
        ((1, 2), "names: expected 2 labels"),
        (("a", " "), "names: expected 2 labels"),
        (("a",), "names: expected 2 labels, one per output, got 1"),
        (("a", "a"), "names: expected different labels"),
    ],
)
def test_names_are_different_texts(pool, names, message):
    with pytest.raises(ValueError, match=message):
        prepare(
            "mean", pool[:, :2], success=0.6, simulations=40, workers=1, names=names, protect="draw"
        )


def test_names_of_an_array_are_texts(pool):
    options = {"success": 0.6, "simulations": 40, "workers": 1, "attack": False}
    prepared = prepare("mean", pool[:, :2], names=np.array(["a", "b"]), **options, protect="draw")
    assert [type(entry.name) for entry in prepared.expected] == [str, str]
