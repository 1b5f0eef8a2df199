"""What is published says no more than its real-valued law, down to the last bit."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from tacit._ground.random import normals_from_words
from tacit.covariance import Dense, Diagonal, Factored, Isotropic, LowRank, ScaleMixture
from tacit.covariance.publication import TOGETHER, grid_of, publish, publish_sum, rounded_sum
from tacit.design import Design, worst_case

from .reachable import reachable, success_rate

TRIALS = 1500


def design_of(covariance, noise=None):
    return Design(covariance, covariance.trace(), 0.0, "given", np.empty(0), 0, noise=noise)


def scalar(deviation):
    return Factored([[deviation]])


def on_grid_of(covariance):
    grid = grid_of(*covariance._sizes())
    return lambda value, noise: rounded_sum(np.full((noise.size, 1), value), noise[:, None], grid)[
        :, 0
    ]


def draws(design, candidates, seed, *, naive=False, trials=TRIALS):
    """Releases of candidates drawn by a fair coin, from words of a seed."""
    source = np.random.default_rng(seed)
    truth = source.integers(2, size=trials)
    clean = np.array(candidates)[truth][:, None]
    if not naive:
        return design.release(clean, rng=source)[:, 0], truth
    words = source.integers(0, 2**64, (2, trials), dtype=np.uint64)
    return (clean + design.law._draw(trials, lambda _: normals_from_words(*words)[:, None]))[
        :, 0
    ], truth


PAIRS = [(0.0, 1 / 3), (0.0, 1e-3), (0.1, 0.1 + 2.0**-50)]
DEVIATIONS = [1.0, 0.7, 3.3, 1e-3, 1e-300, 1e300]


@pytest.mark.parametrize(("pair", "least"), [(PAIRS[0], 0.65), (PAIRS[1], 0.6)])
def test_the_naive_sum_is_recognised(pair, least):
    """The control: the same attacker beats the certificate of ``value + sample``."""
    design = design_of(Isotropic(1.0, 1))
    released, truth = draws(design, pair, 0, naive=True)
    rate, error = success_rate(released, truth, pair, 1.0, lambda f, n: f + n)
    certified = float(ndtr(abs(pair[1] - pair[0]) / 2))
    assert rate > certified + 5 * error
    assert rate > least


@pytest.mark.parametrize(("pair", "expected"), [(PAIRS[0], 0.924), (PAIRS[1], 0.91)])
def test_the_naive_sum_of_a_sampler_of_53_bits_is_recognised(pair, expected):
    """The attack at its best, on one word a normal: nine in ten."""
    source = np.random.default_rng(1)
    truth = source.integers(2, size=TRIALS)
    words = source.integers(0, 2**53, TRIALS)
    released = np.array(pair)[truth] + ndtri((words + 0.5) * 2.0**-53)

    def possible(published, candidate):
        around = round(float(ndtr(published - candidate)) * 2**53) + np.arange(-400, 401)
        inside = around[(around >= 0) & (around < 2**53)]
        return bool((candidate + ndtri((inside + 0.5) * 2.0**-53) == published).any())

    hits = []
    for one, actual in zip(released, truth, strict=True):
        fits = [possible(one, each) for each in pair]
        near = int(abs(one - pair[1]) < abs(one - pair[0]))
        hits.append((int(fits[1]) if fits[0] != fits[1] else near) == actual)
    assert abs(np.mean(hits) - expected) < 0.03


@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_released_is_recognised_no_better_than_certified(deviation, pair):
    covariance = scalar(deviation)
    candidates = tuple(deviation * each for each in pair)
    released, truth = draws(design_of(covariance), candidates, 2)
    certified = float(ndtr((pair[1] - pair[0]) / 2))
    for rule in (on_grid_of(covariance), lambda f, n: f + n):
        rate, error = success_rate(released, truth, candidates, deviation, rule)
        assert rate <= certified + 5 * error


@pytest.mark.parametrize("size", [1e10, 1e15, 1e16, 1e17])
def test_values_far_above_the_noise_are_safe(size):
    """Where the doubles around the value are wider apart than the grid, or than the noise."""
    covariance = scalar(1.0)
    candidates = (size, float(np.nextafter(size, math.inf)))
    released, truth = draws(design_of(covariance), candidates, 3)
    certified = float(ndtr((candidates[1] - candidates[0]) / 2))
    rate, error = success_rate(released, truth, candidates, 1.0, on_grid_of(covariance))
    assert rate <= certified + 5 * error
    for value in candidates:
        assert reachable(released[0], value, 1.0, on_grid_of(covariance)) or certified > 0.9


COLUMNS = {
    "two": ([1.0, 0.3], 0.6),
    "six": ([0.1, 0.7, 1e-3, 12.0, 3.0, 1 / 3], 0.9),
    "graded": ([1.0, 1e-9, 1e9], 0.65),
}


def on_a_line(column):
    """Two candidates whose difference is one normal's column, up to the rounding of its entries."""
    first = np.linspace(0.1, 1.7, column.size) * column
    return np.stack([first, first + column * 0.011])


def named_on_a_line(point, candidates, fits):
    """Name the candidate that alone fits, else the nearer one."""
    possible = [fits(point, each) for each in candidates]
    if possible[0] != possible[1]:
        return int(possible[1])
    return int(np.argmin(np.abs((point - candidates)[:, 0])))


@pytest.mark.parametrize("name", COLUMNS)
def test_naive_noise_of_one_normal_in_many_coordinates_is_recognised(name):
    """The control: the roundings of the coordinates must all fit one normal."""
    column, least = np.array(COLUMNS[name][0]), COLUMNS[name][1]
    candidates, source = on_a_line(column), np.random.default_rng(4)
    truth = source.integers(2, size=TRIALS)
    released = candidates[truth] + Factored(column[None, :]).sample(TRIALS, source)
    widest = int(np.argmax(np.abs(column)))

    def fits(point, value):
        around = (point[widest] - value[widest]) / column[widest]
        normals = around + np.arange(-200, 201) * np.spacing(abs(around))
        return bool(((value + normals[:, None] * column) == point).all(axis=1).any())

    named = [named_on_a_line(point, candidates, fits) for point in released]
    assert np.mean(np.array(named) == truth) > least > float(ndtr(0.011 / 2))


@pytest.mark.parametrize("name", COLUMNS)
def test_noise_of_one_normal_in_many_coordinates(name):
    """Noise on a line: the attacker asks which cells the line through each candidate meets."""
    column = np.array(COLUMNS[name][0])
    covariance = Factored(column[None, :])
    candidates, source = on_a_line(column), np.random.default_rng(4)
    truth = source.integers(2, size=TRIALS)
    released = covariance.release(candidates[truth], rng=source)
    halves = [Fraction(float(g)) / 2 for g in grid_of(*covariance._sizes())]

    def fits(point, value):
        ends = []
        for y, f, a, half in zip(point, value, column, halves, strict=True):
            offset, slope = Fraction(float(y)) - Fraction(float(f)), Fraction(float(a))
            ends.append(((offset - half) / slope, (offset + half) / slope))
        return max(low for low, _ in ends) <= min(high for _, high in ends)

    named = [named_on_a_line(point, candidates, fits) for point in released]
    error = math.sqrt(0.25 / TRIALS)
    assert np.mean(np.array(named) == truth) <= float(ndtr(0.011 / 2)) + 5 * error


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(finite, st.floats(-14, 14), st.integers(-1000, 980), st.integers(0, 20))
def test_the_rounded_sum_is_that_of_the_real_numbers(value, normal, exponent, bits):
    noise = math.ldexp(normal, exponent)
    grid = math.ldexp(1.0, exponent - bits)
    released = float(rounded_sum(np.array([[value]]), np.array([[noise]]), np.array([grid]))[0, 0])
    exact = Fraction(value) + Fraction(noise)
    units = exact / Fraction(grid)
    if abs(exact) < Fraction(grid) * 2**52:
        assert Fraction(released) / Fraction(grid) == round(units)
    else:
        largest = Fraction(np.finfo(float).max)
        assert released == float(max(min(exact, largest), -largest))
    assert math.copysign(1.0, released) == 1.0 or released < 0.0


@given(st.integers(-(2**60), 2**60), st.integers(-40, 40), st.integers(0, 40))
def test_equal_sums_are_published_alike(total, split, power):
    """Two values and noises with one real sum: the split into the two leaves no trace."""
    grid = np.array([2.0**-18])
    step = Fraction(1, 2**40)
    noises = [float(n * step) for n in (split * 2**power, 0)]
    values = [float(Fraction(total % 2**52) * step - Fraction(n)) for n in noises]
    if any(
        Fraction(v) != total % 2**52 * step - Fraction(n)
        for v, n in zip(values, noises, strict=True)
    ):
        return
    seen = {
        float(rounded_sum(np.array([[v]]), np.array([[n]]), grid)[0, 0])
        for v, n in zip(values, noises, strict=True)
    }
    assert len(seen) == 1


def test_halves_are_decided_by_the_error_of_the_sum():
    grid = np.array([1.0])
    tiny = 2.0**-60
    values = np.array([[0.5], [1.5], [2.5], [0.5], [1.5], [-0.5], [-0.5], [-1.5]])
    noise = np.array([[tiny], [-tiny], [tiny], [-tiny], [tiny], [-tiny], [tiny], [tiny]])
    expected = [[1.0], [1.0], [3.0], [0.0], [2.0], [-1.0], [0.0], [-1.0]]
    assert rounded_sum(values, noise, grid).tolist() == expected


def nearly_dependent(separation):
    source = np.random.default_rng(8)
    base = source.normal(size=(6, 9))
    rows = np.vstack([base, base + separation * source.normal(size=base.shape)])
    return worst_case(rows, 1.0).covariance


LAWS = {
    "isotropic": Isotropic(2.0, 5),
    "diagonal": Diagonal([1.0, 0.0, 1e-20, 1e20, 3.0]),
    "dense": Dense(np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])),
    "low rank": LowRank(np.linalg.qr(np.arange(12.0).reshape(4, 3) ** 2)[0].T, np.diag([1, 2, 3])),
    "floor": LowRank([[0.6, 0.8, 0.0]], [[4.0]], 1e-6),
    "factored": Factored(np.random.default_rng(1).normal(size=(30, 7))),
    "worst case": worst_case(np.random.default_rng(2).normal(size=(12, 20)), 0.1).covariance,
    "near duplicates": nearly_dependent(1e-9),
    "cancelling": Factored([[1.0, 1.0], [1.0, 1.0 + 1e-12]], [[1.0, 0.0], [1.0, 1e-12]]),
    "mixture": ScaleMixture(Isotropic(1.0, 3), [1e-3, 16.0], [0.9, 0.1]),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_noise_is_right_to_far_below_the_grid(name):
    """The noise drawn, against the same normals in 80 digits: what the grid has to hide."""
    law = LAWS[name]
    count, kept = 20, []

    def normals(shape):
        kept.append(np.random.default_rng(len(kept)).standard_normal(shape))
        return kept[-1]

    drawn = law._draw(count, normals)
    grid = grid_of(*law._sizes())
    with mpmath.workdps(80):
        exact = exact_noise(law, kept)
        error = np.array(
            [
                [abs(float(mpmath.mpf(float(a)) - b)) for a, b in zip(*rows, strict=True)]
                for rows in zip(drawn, exact, strict=True)
            ]
        )
    noisy = grid > 0.0
    assert not drawn[:, ~noisy].any()
    assert (error[:, noisy] <= 2.0**-20 * grid[noisy]).all()


def exact_noise(law, kept):
    """The linear image of the normals in mpmath, from the parameters of the law."""

    def rows_of(a):
        return mpmath.matrix(np.atleast_2d(np.asarray(a, dtype=float)).tolist())

    def listed(product):
        return [[product[i, j] for j in range(product.cols)] for i in range(product.rows)]

    if isinstance(law, ScaleMixture):
        chosen = law.components(ndtr(kept[0]))
        inner = exact_noise(law.base, kept[1:])
        return [
            [mpmath.sqrt(float(s)) * x for x in row] for s, row in zip(chosen, inner, strict=True)
        ]
    normals = rows_of(kept[0])
    if isinstance(law, Isotropic):
        return listed(normals * mpmath.sqrt(law.variance))
    if isinstance(law, Diagonal):
        roots = [mpmath.sqrt(float(v)) for v in law.variances]
        return [[normals[i, j] * roots[j] for j in range(law.dim)] for i in range(normals.rows)]
    if isinstance(law, Factored):
        mixing = normals
        if law.lower is not None:
            mixing = solved(law.lower, normals)
        return listed(mixing * rows_of(law.rows))
    values, vectors = law._spectrum
    root = mpmath.diag([mpmath.sqrt(float(v)) for v in values]) * rows_of(vectors.T)
    if isinstance(law, Dense):
        return listed(normals * root * mpmath.diag([float(scale) for scale in law._scales]))
    product = normals * root * rows_of(law.basis)
    if law.floor > 0:
        product += mpmath.sqrt(law.floor) * rows_of(kept[1])
    return listed(product)


def solved(lower, normals):
    """Rows x with Lᵀ x = η, by back substitution."""
    size = lower.shape[0]
    result = mpmath.matrix(normals.rows, size)
    for i in range(normals.rows):
        for k in reversed(range(size)):
            rest = sum(
                (mpmath.mpf(float(lower[j, k])) * result[i, j] for j in range(k + 1, size)),
                mpmath.mpf(0),
            )
            result[i, k] = (normals[i, k] - rest) / mpmath.mpf(float(lower[k, k]))
    return result


@pytest.mark.parametrize("name", LAWS)
def test_every_law_publishes_on_its_grid_with_its_spread(name):
    law = LAWS[name]
    grid = grid_of(*law._sizes())
    value = np.linspace(-1.0, 2.0, law.dim)
    value[0] = -0.0
    released = publish(law, np.tile(value, (4000, 1)), 5)
    noisy = grid > 0.0
    units = released[:, noisy] / grid[noisy]
    assert np.array_equal(units, np.round(units))
    assert np.array_equal(released[:, ~noisy], np.tile(value[~noisy], (4000, 1)))
    assert not np.signbit(released[released == 0.0]).any()
    covariance = law.covariance if isinstance(law, ScaleMixture) else law
    spread = np.sqrt(covariance.diagonal()[noisy])
    wide = spread > grid[noisy]
    observed = released[:, noisy].std(axis=0)
    assert (np.abs(observed / spread - 1)[wide] < 0.25).all()
    assert (
        np.abs(released[:, noisy].mean(axis=0) - value[noisy])[wide] < 0.2 * spread[wide] + 1e-9
    ).all()


def test_the_grid_depends_on_the_noise_alone():
    law = LAWS["worst case"]
    grid = grid_of(*law._sizes())
    for scale in (0.0, 1.0, 1e8):
        released = law.release(scale * np.ones(law.dim), rng=1)
        assert np.array_equal(np.round(released / grid) * grid, released)
    sigma = np.sqrt(law.diagonal())
    assert (grid <= sigma * 2.0**-18).all()
    assert (grid >= sigma * 2.0**-21).all()


def test_a_grid_is_coarser_where_the_noise_cancels():
    fine = grid_of(np.array([1.0]), np.array([1.0]))
    coarse = grid_of(np.array([1.0]), np.array([2.0**20]))
    assert fine[0] == 2.0**-20
    assert coarse[0] == 2.0**-9
    assert grid_of(np.array([0.0]), np.array([0.0]))[0] == 0.0


@pytest.mark.parametrize("deviation", [1e-302, 1e302, math.inf, math.nan])
def test_noise_that_no_grid_can_carry_is_refused(deviation):
    with pytest.raises(ValueError, match="standard deviation 0 or between"):
        grid_of(np.array([1.0, deviation]), np.array([1.0, deviation]))


@pytest.mark.parametrize("value", [-1.7976931348623157e308, 1.7976931348623157e308, 5e-324, 0.0])
def test_no_size_of_the_value_is_refused_or_infinite(value):
    """An error that depends on the value would tell of it; the sum saturates instead."""
    for deviation in (1e-300, 1.0, 1e300):
        assert np.isfinite(scalar(deviation).release(np.full((50, 1), value), rng=0)).all()


def test_bad_values_get_one_sentence():
    law = Isotropic(1.0, 2)
    with pytest.raises(ValueError, match="value: expected 2 columns"):
        law.release([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="value: expected finite numbers"):
        law.release([1.0, math.nan])
    with pytest.raises(ValueError, match="rng: expected an integer"):
        law.release([1.0, 2.0], rng=-1)
    assert law.release([1.0, 2.0]).shape == (2,)
    assert design_of(law, ScaleMixture(law, [1.0, 2.0], [0.5, 0.5])).release([[1, 2]]).shape == (
        1,
        2,
    )


def test_sums_of_many_coordinates_are_those_of_each():
    source = np.random.default_rng(3)
    count = 2 * TOGETHER + 7
    value, noise = source.standard_normal((2, count)) * [[1e3], [1.0]]
    deviations = 2.0 ** source.integers(-3, 4, size=count)
    whole = publish_sum(value, noise, deviations)
    for place in (0, TOGETHER - 1, TOGETHER, count - 1):
        here = slice(place, place + 1)
        assert whole[place] == publish_sum(value[here], noise[here], deviations[here])[0]
    assert publish_sum(value[:0], noise[:0], 1.0).shape == (0,)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("others", [0, 1])
def test_a_sum_near_the_largest_double_stays_one(others):
    # the nearest point of the grid is no double; what stands beside it changes nothing
    largest, deviation = np.finfo(float).max, 2.0**1000
    half = float(grid_of(np.array(deviation), np.array(deviation))) / 2
    value = np.array([largest, -largest, *[half] * others])
    found = publish_sum(value, np.zeros(len(value)), deviation)
    assert found[:2].tolist() == [largest, -largest]
