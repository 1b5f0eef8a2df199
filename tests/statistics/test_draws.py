import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit import Draw, Effort
from tacit.compute import mapping
from tacit.conversions import success_from_information
from tacit.design import gaussian_information
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information import log_det_information
from tacit.releases import Attack, Release
from tacit.releases.outputs import output_covariance
from tacit.statistics import Query, prepare, privatize
from tacit.statistics.draws import workflow
from tacit.statistics.draws.candidates import draw_family, subset_rate
from tacit.statistics.simulation import simulate


@pytest.fixture
def pool():
    return np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 5.0, 0.2]


def family(pool_rows, rate, candidates, seed=0):
    share = subset_rate(pool_rows, rate, candidates)
    return draw_family(pool_rows, share, candidates, np.random.default_rng(seed))


TENTH, QUICK, QUIET = (
    Draw(nats=0.1),
    Effort(simulations=200, trials=100),
    Effort(simulations=200, trials=0),
)


def released(query, pool, promise=TENTH, effort=QUICK, **options):
    return privatize(query, pool, promise, effort, **{"rng": 1, "cost": "squared", **options})


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
    with pytest.raises(ValueError, match=r"^rate: expected a rate that leaves rows in"):
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
    release = released("mean", pool, Draw(success=0.55), columns=("a", "b", "c"))
    assert [type(held) for held in release.guarantees] == [SuccessBound, InformationBound]
    assert isinstance(release.attack, Attack)
    assert release.names == ("mean[a]", "mean[b]", "mean[c]")
    assert release.values.shape == (3,)
    assert np.isfinite(release.values).all()
    assert release.membership.success <= 0.55
    assert release.membership.success == pytest.approx(0.55, abs=1e-6)
    assert release.membership.prior == 0.5
    assert release.information <= release.details.budget
    assert release.guarantees[1].evidence == "numerical"
    assert release.method == "gaussian-information-exact"
    assert release.attack.success.low <= 0.55
    assert release.details.pool_rows == 40
    assert release.details.subset_rows == 20
    assert release.details.candidates == 200


@pytest.mark.parametrize("method", ["auto", "exact", "linear", "diagonal"])
@pytest.mark.parametrize("cost", [None, "squared", "relative", np.array([1.0, 2.0, 3.0])])
def test_the_certificate_is_of_the_noise_that_is_drawn(pool, method, cost):
    release = released("mean", pool, Draw(nats=0.3, method=method), QUIET, cost=cost)
    declared = family(40, 0.5, 200, seed=1)
    outputs = np.stack([pool[declared.members(k)].mean(axis=0) for k in range(200)])
    covariance = np.cov(outputs, rowvar=False, ddof=0)
    noise = release.details.design.covariance
    assert log_det_information(covariance, noise) <= release.information * (1 + 1e-9)
    assert release.information <= 0.3
    np.testing.assert_allclose(release.errors**2, noise.diagonal())
    np.testing.assert_allclose(release.details.output_variance, np.diagonal(covariance))
    relative = 1 / np.diagonal(covariance)
    named = {"relative": relative, "squared": None}
    weights = relative if cost is None else named[cost] if isinstance(cost, str) else cost
    expected = gaussian_information(
        covariance, 0.3, cost=weights, method="exact" if method == "auto" else method
    )
    assert release.details.design.cost == pytest.approx(expected.cost, rel=1e-6)


def test_principal_variances_are_in_the_eigenbasis_of_the_outputs(pool):
    seen = released("mean", pool, Draw(nats=0.4), QUIET)
    found = seen.details
    assert np.all(np.diff(found.principal_output_variance) <= 0)
    assert found.principal_output_variance.sum() == pytest.approx(found.output_variance.sum())
    assert found.principal_noise_variance.sum() == pytest.approx((seen.errors**2).sum())
    ratios = found.principal_output_variance / found.principal_noise_variance
    assert 0.5 * np.log1p(ratios).sum() == pytest.approx(seen.information, rel=1e-6)


def test_the_released_value_is_a_candidate_plus_the_noise():
    """Mahalanobis residuals of many releases from the pool's mean: chi-squared of S + Σ."""
    rows = np.random.default_rng(3).normal(size=(12, 1))
    outputs = [rows[list(c)].mean() for c in itertools.combinations(range(12), 6)]
    releases = np.array(
        [
            privatize(
                "mean",
                rows,
                Draw(nats=0.2, method="exact"),
                Effort(simulations=60, trials=0),
                rng=seed,
            ).values[0]
            for seed in range(400)
        ]
    )
    one = privatize(
        "mean", rows, Draw(nats=0.2, method="exact"), Effort(simulations=20_000, trials=0), rng=0
    )
    variance = np.var(outputs) + one.details.design.covariance.trace()
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

    one, two = (
        released(slow_mean, pool, effort=Effort(workers=w, simulations=60, trials=100), rng=5)
        for w in (1, 2)
    )
    np.testing.assert_array_equal(one.values, two.values)
    assert one.attack == two.attack
    np.testing.assert_array_equal(one.details.output_variance, two.details.output_variance)
    other = released(slow_mean, pool, effort=Effort(workers=1, simulations=60, trials=100), rng=6)
    assert not np.array_equal(one.values, other.values)


def test_a_seed_voids_the_guarantee_and_says_so(pool):
    seeded = released("mean", pool, rng=7)
    assert seeded.reproducible
    assert seeded.seed == 7
    generator = released("mean", pool, rng=np.random.default_rng(7))
    assert generator.reproducible
    assert generator.seed is None


def test_without_a_seed_the_operating_system_is_asked(pool):
    first, second = (released("mean", pool, effort=QUIET, rng=None) for _ in "ab")
    assert not first.reproducible
    assert first.seed is None
    assert not np.array_equal(first.values, second.values)


def test_the_release_holds_no_secret(pool):
    """Neither the drawn candidate's output nor its number is anywhere in the description."""
    release = released("mean", pool, effort=QUIET, rng=11)
    declared = family(40, 0.5, 200, seed=11)
    outputs = {repr(float(v)) for k in range(200) for v in pool[declared.members(k)].mean(axis=0)}
    text = json.dumps(release.to_dict(), allow_nan=False)
    assert not any(value in text for value in outputs)


def test_json_round_trip(pool):
    asked = ((TENTH, QUICK), (TENTH, QUIET), (Draw(nats=0.1, method="diagonal"), QUICK))
    for promise, effort in asked:
        release = released("mean+std", pool, promise, effort)
        text = json.dumps(release.to_dict(), allow_nan=False)
        again = Release.from_dict(json.loads(text))
        assert again == release
        assert again.guarantees == release.guarantees
        assert again.details.promise == promise
        assert again.details.design.covariance == release.details.design.covariance


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.pop("guarantees"), "missing or unknown"),
        (lambda d: d.update(format="else"), "expected a document of format"),
        (lambda d: d.update(version=99), "expected version 2, got 99"),
        (lambda d: d["details"].pop("candidates"), "missing or unknown"),
        (lambda d: d["details"].update(share=[2, 1]), "release.details.share"),
        (lambda d: d["details"]["promise"].update(nats=-1.0), r"release\.details\.promise\.nats"),
    ],
)
def test_a_damaged_description_is_refused(pool, damage, message):
    description = released("mean", pool, effort=QUIET).to_dict()
    damage(description)
    with pytest.raises(ValueError, match=message):
        Release.from_dict(description)


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
    effort = Effort(simulations=40, workers=1, trials=0)
    return prepare("mean", pool, Draw(success=0.6), effort, **options)


def test_looking_at_a_prepared_statistic_draws_nothing(pool, monkeypatch):
    drawn = []
    monkeypatch.setattr(workflow, "uniform_index", drawn.append)
    prepared = prepared_mean(pool)
    assert [entry.error for entry in prepared.expected] == prepared.plan.errors.tolist()
    assert prepared.guarantees == (prepared.membership, *prepared.spends)
    assert drawn == []


def test_a_draw_reserves_first_and_commits_last(pool, monkeypatch):
    events, draw = [], workflow.uniform_index
    monkeypatch.setattr(
        workflow, "uniform_index", lambda *given: (events.append(("noise",)), draw(*given))[1]
    )
    prepared = prepared_mean(pool)
    release = prepared.draw(ledger=Book(events), secret="people")
    assert [event[0] for event in events] == ["reserved", "drawn", "noise", "committed"]
    assert events[0][1:] == ("people", (release.guarantees[1],), "mean")
    assert events[-1][1] == release.published()
    assert release.published()["details"]["design"] is None
    with pytest.raises(ValueError, match="drawn already"):
        prepared.draw()


def test_a_refused_reservation_draws_nothing_and_can_be_tried_again(pool):
    prepared = prepared_mean(pool)
    with pytest.raises(ValueError, match="no budget is left"):
        prepared.draw(ledger=Book([], refuse=True), secret="people")
    assert prepared.draw().guarantees == prepared.guarantees


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
            "mean", pool, Draw(success=0.6), Effort(simulations=40, workers=1, trials=0), rng=5
        ),
    ]
    assert both[0].values.tolist() == both[1].values.tolist()


def test_the_release_lies_on_a_grid_far_below_the_noise(pool):
    release = released("mean", pool)
    grid = 2.0 ** np.floor(np.log2(release.errors)) / 2**20
    np.testing.assert_array_equal(release.values / grid, np.round(release.values / grid))


@pytest.mark.thorough
def test_a_large_pool_is_attacked_on_some_of_its_rows():
    rows = np.random.default_rng(4).normal(size=(2500, 1))
    rows[2345] = 1e4
    promise, effort = Draw(nats=2.0), Effort(simulations=100, trials=200)
    found = [released("mean", rows, promise, effort, rng=rng) for rng in (1, 2)]
    assert 2345 in [one.details.most_exposed for one in found]


def test_a_constant_query_is_released_as_it_is(pool):
    release = released(lambda rows: [3.0, 4.0], pool)
    assert release.values.tolist() == [3.0, 4.0]
    assert release.information == 0.0
    assert release.membership.success == 0.5
    assert release.attack is None
    assert any("the same for every candidate" in note for note in release.remarks)
    assert Release.from_dict(release.to_dict()) == release


def test_a_constant_output_beside_a_moving_one(pool):
    release = released(lambda rows: [rows[:, 0].mean(), 7.0], pool)
    assert release.details.design.rank == 2
    assert release.values[1] == pytest.approx(7.0, abs=1e-3)
    assert any("rounding level" in note for note in release.remarks)
    assert (
        released(lambda rows: [rows[:, 0].mean(), 7.0], pool, cost="relative").details.design.rank
        == 2
    )


def test_dependent_outputs_are_covered(pool):
    """The third output is the sum of the first two: a singular S, yet noise everywhere."""

    def dependent(rows):
        first, second = rows[:, 0].mean(), rows[:, 1].mean()
        return [first, second, first + second]

    release = released(dependent, pool)
    assert release.details.design.rank == 3
    assert release.information <= 0.1


def test_unequal_rates_and_their_prior(pool):
    release = released("mean", pool, Draw(success=0.75, rate=0.3))
    assert release.membership.prior == pytest.approx(0.7)
    assert release.membership.success <= 0.75
    assert release.attack.prior == pytest.approx(0.7)
    assert success_from_information(release.information, 0.7) == release.membership.success


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
    assert len(release.names) == release.values.size
    assert release.information <= 0.1
    assert release.title == query


def test_logistic_is_released(pool):
    table = pool.copy()
    table[:, 2] = pool[:, 2] + 0.02 * pool[:, 1] > 0
    assert released("logistic", table).values.shape == (3,)


def test_labels_of_a_callable(pool):
    assert released(lambda rows: rows.max(axis=0), pool).names == ("y0", "y1", "y2")
    named = released(Query(lambda rows: rows.max(axis=0), ("p", "q", "r")), pool)
    assert named.names == ("p", "q", "r")
    scalar = released(lambda rows: rows.max(), pool)
    assert scalar.values.shape == (1,)


def test_one_column_may_come_as_a_vector():
    assert released("mean", np.arange(12.0)).names == ("mean[x0]",)


def random_mean(rows):
    return rows.mean(axis=0) + np.random.default_rng().normal(size=rows.shape[1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of nats and success"),
        ({"nats": 0.1, "success": 0.6}, "exactly one of nats and success"),
        ({"nats": 0.0}, "nats: expected a number in"),
        ({"nats": -1.0}, "nats"),
        ({"nats": math.nan}, "nats"),
        ({"success": 1.0}, "success"),
        ({"nats": 0.1, "rate": 0.0}, "rate"),
        ({"nats": 0.1, "rate": 1.0}, "rate"),
        ({"nats": 0.1, "method": "best"}, "method: expected one of"),
    ],
)
def test_bad_promises(fields, message):
    with pytest.raises(ValueError, match=message):
        Draw(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"simulations": 1}, "simulations"), ({"trials": 1}, "trials"), ({"workers": 0}, "workers")],
)
def test_bad_efforts(fields, message):
    with pytest.raises(ValueError, match=message):
        Effort(**fields)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("mean", {"promise": Draw(success=0.5)}, r"success: expected a number in \(0.5, 1.0\)"),
        ("mean", {"promise": Draw(success=0.4)}, "success"),
        ("mean", {"cost": "cheap"}, "cost: expected one of"),
        ("mean", {"cost": [1.0]}, "cost: expected 3 entries"),
        ("mean", {"columns": ("a", "b")}, "columns: expected 3 different names"),
        ("mean", {"columns": ("a", "a", "b")}, "columns: expected 3 different names"),
        (Query("mean", ("a",)), {}, "names: expected 3 labels"),
        (Query(np.mean, ("a", "b")), {}, "names: expected 1 labels"),
        ("mean", {"target": "z"}, r"target: expected a column of the table \(x0, x1, x2\)"),
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
    promise, options = options.get("promise", TENTH), {"rng": 0, **options}
    options.pop("promise", None)
    with pytest.raises(ValueError, match=message):
        privatize(query, pool, promise, Effort(simulations=60), **options)


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
        privatize("mean", rows, Draw(nats=0.1))


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
    promise, effort = Draw(nats=0.6, **options), Effort(simulations=simulations, trials=0)
    return privatize("mean", rows, promise, effort, cost="squared", rng=2)


@pytest.mark.thorough
def test_less_noise_under_the_exact_information_and_the_guarantee_says_how_sure():
    """One row decides the mean: two clusters, where the Gaussian bound asks for too much."""
    release, gaussian = outlying_mean(), outlying_mean(method="exact")
    assert release.details.design.cost < 0.9 * gaussian.details.design.cost
    assert release.information <= 0.6
    for guarantee in release.guarantees:
        assert guarantee.evidence == "statistical"
        assert guarantee.confidence == 0.999
    assert release.details.gaussian_information > 0.6
    saved = 1.0 - release.details.design.cost / gaussian.details.design.cost
    assert release.details.noise_saved == pytest.approx(saved, rel=1e-6)
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
    assert outlying_mean(confidence=0.9).guarantees[1].confidence == 0.9


def test_where_nothing_is_saved_the_guarantee_needs_no_confidence(pool):
    release = released("mean", pool, Draw(success=0.55), QUIET)
    assert release.guarantees[1].evidence == "numerical"
    assert release.details.gaussian_information is None
    assert release.details.noise_saved is None


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan, "high"])
def test_bad_confidences_are_refused(pool, confidence):
    with pytest.raises(ValueError, match="confidence"):
        released("mean", pool, Draw(nats=0.1, confidence=confidence))


def test_numbers_beyond_double_precision_are_said_to_be_so(pool):
    with pytest.raises(ValueError, match=r"query: .* within double precision"):
        privatize(lambda rows: 10**400, pool, Draw(nats=0.1), Effort(simulations=60, workers=1))


def test_relative_cost_of_outputs_of_any_size(pool):
    effort, middle = Effort(simulations=60, workers=1, trials=0), np.median(pool[:, 0])
    small = privatize(
        lambda rows: 1e-155 * float(rows[0, 0] > middle), pool, Draw(nats=1.0), effort
    )
    assert small.information <= np.log(2.0) * (1 + 1e-9)
    apart = privatize(lambda rows: [1e-110 * rows.mean(), 1e110 * rows.mean()], pool, TENTH, effort)
    assert apart.information <= 0.1


class Frame:
    """What pandas and polars have in common: names and an array."""

    columns = ("age", "income")

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype=dtype)


def test_a_data_frame_keeps_its_column_names(pool):
    release = privatize(
        "mean", Frame(pool[:, :2]), Draw(success=0.6), Effort(simulations=40, workers=1, trials=0)
    )
    assert release.names == ("mean[age]", "mean[income]")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", "names: expected labels"),
        ((1, 2), "names: expected labels"),
        (("a", " "), "names: expected labels"),
        (("a",), "names: expected 2 labels, one per output, got 1"),
        (("a", "a"), "names: expected different labels"),
    ],
)
def test_names_are_different_texts(pool, names, message):
    with pytest.raises(ValueError, match=message):
        prepare(Query("mean", names), pool[:, :2], Draw(success=0.6), Effort(simulations=40))


def test_names_of_an_array_are_texts(pool):
    effort = Effort(simulations=40, workers=1, trials=0)
    query = Query("mean", np.array(["a", "b"]))
    prepared = prepare(query, pool[:, :2], Draw(success=0.6), effort)
    assert [type(entry.name) for entry in prepared.expected] == [str, str]
