"""Releases about people: whatever the rows of one person are, the noise covers them all."""

import copy
import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import tacit.statistics.bounded.plan
from tacit import Effort, Table
from tacit.design.choosing import choose, range_of
from tacit.design.grid import discrete_gaussian, discrete_laplace, random_bits
from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.releases.numbers import Number
from tacit.statistics import prepare
from tacit.statistics.engines.contributors import InEngine
from tacit.statistics.engines.duck import DuckDB
from tacit.statistics.engines.workflow import answer
from tacit.statistics.people.radius import radii
from tacit.statistics.people.vectors import clipped, person_sums
from tacit.statistics.queries import Quantiles

from .registry import certifies

QUERIES = (
    "count", "rows", "mean", "sum+count", "mean+std", "second-moments", "correlation",
    "count by x1", "mean by x1+rows by x1", "histogram:x0:-1,0,1", "two-way:x0,x1",
    "cumulative:x0:-1,0,1+mean", "variance by x1", "least-squares", "count by x0 by x1",
    Quantiles((0.5,), columns=("x0",), grid={"x0": (-1.0, 0.0, 1.0)}),
)  # fmt: skip
INSTANCES, CHUNKS = 1000, 20
NAMES = ["x0", "x1", "who"]


def instance(number):
    """A table whose persons have one row, many, or one person nearly all of them."""
    rng = np.random.default_rng([61, number])
    count = int(rng.integers(4, 30))
    structure = number // len(QUERIES) % 3
    who = [np.arange(count), rng.integers(0, 4, count), (rng.random(count) < 0.1) * 1][structure]
    numbers = rng.standard_t(1.2, count) * 10.0 ** rng.uniform(-2, 3)
    rows = np.stack([numbers, rng.integers(0, 3, count), who], axis=1).astype(float)
    rows[rng.integers(count), 0] = rng.choice([1e300, -1e300, 0.0, 5e-324])
    promise = Table(
        **[{"success": 0.7}, {"epsilon": 0.5, "delta": 1e-6}, {"epsilon": 0.7}][number % 3],
        person="who",
        clip=float(rng.choice([1.0, 2.5, 7.0, 300.0])),
        bounds={"x0": (-2.0, 1.5), "x1": (0.0, 2.0)},
        levels={"x0": [-1, 0, 1], "x1": [0, 1, 2]},
        adjacency=["add-remove", "replace"][int(rng.integers(2))],
    )
    prepared = prepare(
        QUERIES[number % len(QUERIES)], rows, promise, Effort(trials=0), columns=NAMES
    )
    return prepared, rows


def totals(plan, rows):
    """The published integers without their noise, as the draw computes them."""
    persons = np.unique(rows[:, 2], return_inverse=True)[1]
    sums = person_sums(plan.added, rows[:, :2], persons)
    vectors = clipped(plan.metric.coordinates(sums), plan.radius, plan.budget.norm)
    return [int(total) for total in vectors.sum(axis=0)]


@certifies(SuccessBound, GaussianDP, ApproximateDP)
@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(one, marks=pytest.mark.thorough) for one in range(1, CHUNKS))]
)
def test_no_person_moves_the_integers_by_more_than_the_noise_covers(chunk, monkeypatch):
    """Every person of 1,000 tables is taken out, or put in the place of every other."""
    monkeypatch.setattr(tacit.statistics.bounded.plan, "SIMULATED", 8)
    used = []
    for number in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        prepared, rows = instance(number)
        plan, details = prepared.plan, prepared.planned.details
        whole, people = totals(plan, rows), np.unique(rows[:, 2])
        without = [totals(plan, rows[rows[:, 2] != one]) for one in people]
        moves = [[a - b for a, b in zip(whole, rest, strict=True)] for rest in without]
        if plan.budget.adjacency == "replace":
            # the same others, beside one person or beside another
            moves += [[a - b for a, b in zip(p, q, strict=True)] for p in moves for q in moves]
        pure = details.promise.pure
        if pure:
            farthest = max(sum(map(abs, move)) for move in moves)
            told = Fraction(farthest) * details.scale[1] / details.scale[0]
            assert told <= Fraction(prepared.guarantees[1].epsilon)
            used.append(told / Fraction(details.level))
        else:
            farthest = max(sum(part * part for part in move) for move in moves)
            told = Fraction(farthest, details.variance - 16)
            assert told <= Fraction(prepared.guarantees[1].mu) ** 2
            used.append(math.sqrt(told) / details.level)
        stated = prepared.guarantees[1].success().success
        assert prepared.membership.success == pytest.approx(stated)
    assert max(used) > 0.97


@certifies(ApproximateDP)
def test_a_person_of_any_length_is_clipped_to_the_last_bit():
    rng = np.random.default_rng(5)
    for norm in (1, 2):
        for radius in (1, 3, 65_536, 2**30):
            sizes = 10.0 ** rng.uniform(-1, 12.2, (400, 1))
            vectors = np.rint(rng.normal(size=(400, 9)) * sizes)
            vectors[0, :], vectors[1, :] = 0.0, [radius] + [0.0] * 8
            vectors[2, :] = radius // 3
            for vector, short in zip(vectors, clipped(vectors, radius, norm), strict=True):
                long = sum(abs(int(one)) ** norm for one in vector)
                assert sum(abs(int(one)) ** norm for one in short) <= radius**norm
                if long <= radius**norm:
                    assert short.tolist() == vector.tolist()
                assert all(abs(a) <= abs(b) for a, b in zip(short, vector, strict=True))


def test_the_noise_and_the_metric_do_not_depend_on_the_table():
    first, rows = instance(8)
    promise = first.planned.details.promise
    again = prepare(QUERIES[8], 7.0 * rows[:3], promise, Effort(trials=0), columns=NAMES)
    np.testing.assert_array_equal(first.plan.metric.factors, again.plan.metric.factors)
    assert first.planned.details == again.planned.details
    assert [one.error for one in first.expected] == [one.error for one in again.expected]


@certifies(GaussianDP)
@pytest.mark.parametrize(("reach", "mu"), [(1, 0.2), (1, 3.0), (5, 1.0), (40, 8.0)])
def test_a_shift_of_the_discrete_gaussian_keeps_its_profile(reach, mu):
    """δ(ε) of the exact law, summed in extended precision, is at most the Gaussian's."""
    from tacit.statistics.people.noise import gaussian_noise
    from tacit.statistics.people.vectors import PersonMetric

    metric = PersonMetric(np.ones(1), np.zeros(1, dtype=np.int64), whole=True)
    variance = gaussian_noise(metric, reach, mu).variance
    with mpmath.workdps(40):
        span = range(-60 * math.isqrt(variance), 60 * math.isqrt(variance))
        chances = {k: mpmath.exp(-mpmath.mpf(k * k) / (2 * variance)) for k in span}
        total = mpmath.fsum(chances.values())
        for epsilon in (0.0, 0.3, 1.0, 4.0):
            exact = (
                mpmath.fsum(
                    max(chance - mpmath.exp(epsilon) * chances.get(k - reach, 0), 0)
                    for k, chance in chances.items()
                )
                / total
            )
            # δ of N(0, 1) and N(μ, 1): Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)
            above, below = mpmath.mpf(mu) / 2 - epsilon / mu, -mpmath.mpf(mu) / 2 - epsilon / mu
            told = mpmath.ncdf(above) - mpmath.exp(epsilon) * mpmath.ncdf(below)
            assert exact <= told * (1 + mpmath.mpf("1e-20"))


def test_the_systems_bits_have_no_copy():
    bits = random_bits(None)
    assert bits.getrandbits(200) >> 200 == 0
    assert {bits.randrange(3) for _ in range(200)} == {0, 1, 2}
    for again in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="they have no copy"):
            again(bits)


@certifies(ApproximateDP)
@pytest.mark.parametrize(("scale", "divisor"), [(1, 1), (7, 2), (5, 7), (1000, 3)])
def test_discrete_laplace_noise_has_its_law(scale, divisor):
    bits = random_bits(17)
    drawn = np.array([discrete_laplace(scale, bits, divisor) for _ in range(40_000)])
    rate = divisor / scale
    cells = np.unique(np.quantile(drawn, np.linspace(0, 1, 12)).astype(int))
    law = stats.dlaplace(rate)
    edges = np.concatenate([[-np.inf], cells, [np.inf]])
    expected = np.diff(law.cdf(edges)) * len(drawn)
    found = np.diff([np.count_nonzero(drawn <= edge) for edge in edges])
    kept = expected > 5
    assert (
        stats.chisquare(found[kept], expected[kept] * found[kept].sum() / expected[kept].sum())[1]
        > 1e-6
    )
    # a control: half of the scale is found out
    wrong = np.diff(stats.dlaplace(2 * rate).cdf(edges)) * len(drawn) + 1e-9
    assert ((found - wrong) ** 2 / wrong).sum() > 1000


@certifies(GaussianDP)
def test_discrete_gaussian_draws_have_their_law():
    bits = random_bits(19)
    for variance in (2, 17, 10**9):
        drawn = np.array([discrete_gaussian(variance, bits) for _ in range(30_000)])
        if variance < 100:
            span = np.arange(-60, 61)
            weights = np.exp(-(span**2) / (2.0 * variance))
            weights /= weights.sum()
            expected = weights * len(drawn)
            found = np.array([np.count_nonzero(drawn == k) for k in span])
            kept = expected > 5
            assert ((found - expected)[kept] ** 2 / expected[kept]).sum() < stats.chi2.isf(
                1e-6, kept.sum()
            )
        else:
            assert stats.kstest(drawn / variance**0.5, "norm")[1] > 1e-6
            assert stats.kstest(drawn / variance**0.5, stats.norm(scale=1.1).cdf)[1] < 1e-6


def test_a_choice_has_its_chances():
    gaps, sizes, rate = [0, 3, 1, 10**9], [1, 4, 2, 5], Fraction(1, 3)
    bits = random_bits(23)
    found = np.bincount([choose(gaps, sizes, rate, bits) for _ in range(10_000)], minlength=4)
    weights = np.array([s * math.exp(-min(g, 600) / 3) for g, s in zip(gaps, sizes, strict=True)])
    expected = weights / weights.sum() * found.sum()
    assert found[3] == 0
    assert ((found - expected)[:3] ** 2 / expected[:3]).sum() < stats.chi2.isf(1e-6, 2)


class Told:
    """Bits that say of how many outcomes one is drawn."""

    def randrange(self, stop):
        assert stop > 0
        self.stop = stop
        return 0


@pytest.mark.parametrize("rate", [Fraction(1, 7), Fraction(139), Fraction(10**9)])
def test_a_choice_of_any_rate_ends_and_rules_nothing_out(rate):
    bits = Told()
    for gap in (0, 1, 2, 10**9):
        # one place alone, and the best beside it: their weights
        assert choose([gap], [1], rate, bits) == 0
        own = bits.stop
        choose([0, gap], [1, 1], rate, bits)
        odds = Fraction(own, bits.stop - own)
        # as likely as the promise says, or likelier, and never beyond the last of 100 bits
        assert odds >= Fraction(math.exp(-200.0 if gap else 0.0)) * (1 - Fraction(1, 2**40))


@certifies(GaussianDP)
@pytest.mark.parametrize("mu", [0.01, 0.05, 0.3, 1.0, 4.0])
def test_a_bounded_range_is_no_better_than_its_gaussian(mu):
    """Every pair of coins whose log-ratios are ε apart, against N(0, 1) and N(μ, 1)."""
    with mpmath.workdps(30):
        epsilon = mpmath.mpf(range_of(mu))
        for share in np.linspace(0.002, 0.998, 250):
            top = epsilon * mpmath.mpf(float(share))
            q = (1 - mpmath.exp(top - epsilon)) / (mpmath.exp(top) - mpmath.exp(top - epsilon))
            p = mpmath.exp(top) * q
            # the error of the one test there is, under the other law at the same level
            level = mpmath.sqrt(2) * mpmath.erfinv(2 * q - 1)
            assert mpmath.ncdf(level + mu) >= p
        assert mpmath.ncdf(mpmath.mpf(mu) / 2) <= 1 / (1 + mpmath.exp(-epsilon / 2)) * (1 + 1e-9)


@certifies(SuccessBound)
def test_a_radius_that_is_found_tells_no_more_than_its_share():
    """The exact chances of every radius, with a person and without, in extended precision."""
    rng = np.random.default_rng(29)
    rows = np.stack([rng.random(400), rng.integers(0, 90, 400), rng.integers(0, 60, 400)], axis=1)
    promise = Table(
        epsilon=1.0, delta=1e-6, person="who", clip="auto",
        bounds={"x0": (0.0, 1.0)}, levels={"x1": list(range(90))},
    )  # fmt: skip
    prepared = prepare("sum by x1", rows, promise, Effort(trials=0), columns=NAMES)
    plan = prepared.plan
    search, tried = plan.search, radii(plan.metric)
    lengths = np.sqrt(np.square(plan.metric.coordinates(plan.persons.sums)).sum(axis=1))
    rate = mpmath.mpf(search.epsilon) / 2

    def chances(some):
        beyond = (some[:, None] > tried).sum(axis=0)
        weights = [mpmath.exp(-rate * abs(int(one) - search.rank)) for one in beyond]
        return [weight / mpmath.fsum(weights) for weight in weights]

    whole = chances(lengths)
    for gone in range(0, len(lengths), 7):
        ratios = [
            mpmath.log(p / q) for p, q in zip(whole, chances(np.delete(lengths, gone)), strict=True)
        ]
        assert max(ratios) - min(ratios) <= search.epsilon * (1 + 1e-12)
    # the range is that of a Gaussian of its share, and both together are what was asked for
    kept, share = plan.budget.level, search.share
    assert search.epsilon <= range_of(prepared.guarantees[1].mu * share**0.5) * (1 + 1e-12)
    assert kept**2 + share * prepared.guarantees[1].mu ** 2 <= prepared.guarantees[1].mu ** 2


SELECTS = (
    "SELECT COUNT(*), SUM(a) FROM t",
    "SELECT g, AVG(a), COUNT(DISTINCT who) FROM t GROUP BY g",
    "SELECT g, VARIANCE(a * b - a) FROM t WHERE b < 2 OR b IS NULL GROUP BY g",
    "SELECT COUNT(*), CORR(t.a, u.a2) FROM t JOIN u USING (who)",
    "SELECT g, SUM(CASE WHEN a > 0 THEN b END), COUNT(*) FILTER (WHERE a < 0) FROM t GROUP BY g",
    "SELECT SUM(a2) FROM t LEFT JOIN u ON t.who = u.who",
)


@certifies(GaussianDP, ApproximateDP)
@pytest.mark.parametrize("number", range(18))
def test_no_person_moves_what_an_engine_sums_by_more_than_the_noise_covers(number):
    """Every person of tables of a query, joined too, is taken out of all of them."""
    rng = np.random.default_rng([67, number])
    count = int(rng.integers(8, 30))
    structure = number // len(SELECTS) % 3
    who = [np.arange(count), rng.integers(0, 4, count), (rng.random(count) < 0.1) * 1][structure]
    odd = [1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324, -0.0, None]
    numbers = rng.normal(0.0, 2.0, (count, 2)).astype(object)
    numbers[rng.random((count, 2)) < 0.2] = rng.choice(np.array(odd, dtype=object))
    names = [f"p{one}" for one in who]
    first = pd.DataFrame({"who": names, "g": rng.integers(0, 3, count)})
    first["a"], first["b"] = numbers[:, 0].astype(float), numbers[:, 1].astype(float)
    second = pd.DataFrame({"who": rng.choice(names, 12), "a2": rng.normal(0.0, 5.0, 12)})
    sql, pure = SELECTS[number % len(SELECTS)], number % 4 == 1
    bounds = {"a": (-2.0, 1.5), "b": (0.0, 3.0), "a2": (-3.0, 1.0)}
    promise = Table(
        epsilon=0.7, delta=None if pure else 1e-6, person="who",
        clip=float(rng.choice([1.0, 2.5, 7.0])),
        bounds={k: v for k, v in bounds.items() if k != "a2" or "a2" in sql}
        if "a2) FROM t L" not in sql else {"a2": bounds["a2"]},
        levels={"g": [0, 1, 2]} if "GROUP" in sql else None,
    )  # fmt: skip

    engine = DuckDB()
    found = answer(sql, {"t": first, "u": second}, promise, engine=engine)
    plan = found.prepared.plan

    def integers(gone):
        for name, frame in (("t", first), ("u", second)):
            engine.connection.register(f"frame_{name}", frame[frame.who != gone])
        persons = InEngine(engine, found.selection.rows(), plan.added)
        return persons.total(plan.metric, plan.radius, plan.budget.norm).tolist()

    whole = integers("")
    noise = plan.budget.noise(plan.metric, plan.radius)
    for one in sorted(set(first.who) | set(second.who)):
        move = [a - b for a, b in zip(whole, integers(one), strict=True)]
        if pure:
            told = Fraction(sum(map(abs, move))) * noise.scale[1] / noise.scale[0]
            assert told <= Fraction(0.7)
        else:
            told = Fraction(sum(part * part for part in move), noise.variance - 16)
            assert told <= Fraction(promise.largest_mu()) ** 2


@pytest.mark.parametrize("asked", [{"epsilon": e} for e in (0.1, 0.3, 1.0, 3.0, 7.0)])
def test_an_interval_of_laplace_noise_keeps_its_share(asked):
    """± of a count of persons holds 95% of draws, and one less would not."""
    rows = np.array([[0.0], [1.0], [2.0]])
    prepared = prepare(
        "count", rows, Table(person="who", **asked), Effort(trials=0), columns=["who"]
    )
    half = prepared.expected[0].half_width
    assert half == int(half)
    # one person is one: the noise is drawn in counts
    rate = math.exp(-asked["epsilon"])
    assert 1.0 - 2.0 * rate ** (half + 1) / (1.0 + rate) >= 0.95
    assert half <= 1 or 1.0 - 2.0 * rate ** (half - 1) / (1.0 + rate) < 0.95
    release = prepared.draw()
    low, high = release.intervals()[0]
    assert min(high - low, 2 * half) == high - low


@pytest.mark.parametrize("asked", [{"epsilon": 0.3}, {"epsilon": 2.0}, {"mu": 0.5}, {"mu": 3.0}])
def test_an_interval_keeps_its_share_at_every_coverage(asked):
    """The exact laws of the discrete noise on a count of persons, summed term by term."""
    rows = np.array([[0.0], [1.0], [2.0]])
    prepared = prepare(
        "count", rows, Table(person="who", **asked), Effort(trials=0), columns=["who"]
    )
    numbers, details = prepared.planned.numbers, prepared.planned.details
    deviation = math.sqrt(details.variance) * 2.0**-details.grid_bits
    rate = math.exp(-details.scale[1] / details.scale[0])

    def kept(half):
        if details.variance:
            # rounded to the nearest: what is nearer than another half
            return 1.0 - 2.0 * stats.norm.sf((half + 0.5) / deviation)
        return 1.0 - 2.0 * rate ** (half + 1) / (1.0 + rate)

    for coverage in (0.5, 0.9, 0.95, 0.99, 0.999):
        half = next(iter(numbers)).half_width(coverage)
        assert half == int(half) == numbers.intervals(coverage)[0, 1]
        assert kept(half) >= coverage
        # and is no wider than rounding up, twice, makes it
        assert coverage < 0.95 or kept(0.7 * half - 2.0) < coverage


def test_sums_of_laplace_noise_are_kept_as_often():
    """A difference of means has lighter tails than one Laplace number of its deviation."""
    rng = np.random.default_rng(5)
    for weights in ([1.0], [1.0, 1.0], [1.0, -0.3], [1.0, 1.0, 1.0, 1.0, 1.0]):
        drawn = rng.laplace(size=(200_000, len(weights))) @ np.array(weights)
        half = math.sqrt(2.0 * np.square(weights).sum()) * math.log(20.0) / math.sqrt(2.0)
        kept = (np.abs(drawn) <= half).mean()
        assert kept >= 0.95 - 4.0 * math.sqrt(0.95 * 0.05 / 200_000)
        error = half / 1.959963984540054
        for coverage in (0.5, 0.9, 0.99, 0.999):
            one = Number(name="sum", value=0.0, error=error, tails="laplace")
            kept = (np.abs(drawn) <= one.half_width(coverage)).mean()
            assert kept >= coverage - 4.0 * math.sqrt(coverage * (1.0 - coverage) / 200_000)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.3, 39.9, 40.1, 80.0])
def test_the_range_of_a_choice_is_rounded_down(mu):
    with mpmath.workdps(700):
        half = mpmath.mpf(mu) / 2
        exact = 2 * mpmath.log(mpmath.ncdf(half) / mpmath.ncdf(-half))
        assert exact * (1 - mpmath.mpf(2) ** -38) <= range_of(mu) <= exact
