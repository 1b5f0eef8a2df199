"""The discrete Gaussian release, against exact sums over the integers."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tacit.covariance import Dense, Diagonal, Factored, Isotropic, LowRank, ScaleMixture
from tacit.covariance.whitening import principal_axes
from tacit.design import Design, discrete, worst_case

EPSILONS = [0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0]


def design_of(covariance, noise=None):
    return Design(covariance, covariance.trace(), 0.0, "given", np.empty(0), 0, noise=noise)


def law(deviation):
    """The probabilities of the discrete Gaussian of parameter s, to 45 s on both sides."""
    reach = range(-45 * deviation, 45 * deviation + 1)
    weights = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * deviation**2)) for k in reach}
    total = mpmath.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def exact_delta(chances, shift, epsilon):
    """``Σ max(0, p(k) − e^ε p(k − shift))``, in one coordinate, over all k with both known."""
    factor = mpmath.exp(epsilon)
    return mpmath.fsum(
        max(chance - factor * chances[k - shift], 0)
        for k, chance in chances.items()
        if k - shift in chances
    )


@pytest.mark.parametrize("bits", [4, 6])
@pytest.mark.parametrize("whole", [0, 1, 3, 16, 40])
def test_the_profile_is_above_the_exact_sum_in_one_dimension(bits, whole):
    """Every offset of the value against the grid: the shift is the part below or above."""
    noise = discrete(design_of(Isotropic(1.0, 1)), step=2.0**-bits)
    with mpmath.workdps(30):
        chances = law(2**bits)
        # A difference of (whole + ¼) steps moves the integer by whole or whole + 1.
        profile = noise.profile([[(whole + 0.25) * noise.step]])
        for epsilon in EPSILONS:
            worst = max(exact_delta(chances, shift, epsilon) for shift in (whole, whole + 1))
            assert float(worst) <= profile.delta(epsilon)
            if bits == 6 and whole == 40:
                assert profile.delta(epsilon) <= 1.2 * float(worst) + 1e-9


@pytest.mark.parametrize("shift", [(1, 0), (1, 1), (7, 3), (16, 16)])
def test_the_profile_is_above_the_exact_sum_in_two_dimensions(shift):
    deviation = 16
    reach = np.arange(-10 * deviation, 10 * deviation + 1)
    one = np.exp(-0.5 * (reach / deviation) ** 2)
    one /= one.sum()
    moved = [np.exp(-0.5 * ((reach - s) / deviation) ** 2) for s in shift]
    before = np.outer(one, one)
    after = np.outer(moved[0], moved[1]) / np.exp(-0.5 * (reach / deviation) ** 2).sum() ** 2
    noise = discrete(design_of(Isotropic(1.0, 2)), step=1 / deviation)
    # The least real difference that can move the integers so far.
    real = (np.array(shift) - (np.array(shift) > 0) * (1 - 2.0**-30)) * noise.step
    profile = noise.profile(real)
    for epsilon in EPSILONS:
        exact = np.maximum(before - math.exp(epsilon) * after, 0.0).sum()
        assert exact <= profile.delta(epsilon) + 1e-13
    divergence = (before * np.log(before / after)).sum()
    assert divergence <= noise.mahalanobis(real) / 2 * (1 + 1e-12)


def test_domination_by_a_gaussian_of_less_variance():
    """N_Z(m, s²) is N(m, s² − 16) rounded at random by N_Z(y, 16), up to e^(±7 exp(−32π²))."""
    with mpmath.workdps(160):
        narrow, wide = mpmath.mpf(16), mpmath.mpf(64)

        def theta(centre, variance):
            return mpmath.nsum(
                lambda k: mpmath.exp(-((k - centre) ** 2) / (2 * variance)), [-400, 400]
            )

        middle = theta(mpmath.mpf(0), narrow)
        ripple = max(abs(theta(mpmath.mpf(y) / 8, narrow) / middle - 1) for y in range(9))
        assert 0 < ripple < 7 * mpmath.exp(-2 * mpmath.pi**2 * narrow)
        flat = mpmath.sqrt(2 * mpmath.pi * wide)
        assert abs(theta(mpmath.mpf(0), wide) / flat - 1) < mpmath.exp(-32 * mpmath.pi**2)


def rational_shift(noise, first, second):
    """Distance of the integers that two values are rounded to, in steps; from Fractions."""
    forward = noise.forward if noise.forward.ndim == 2 else np.diag(noise.forward)
    rounded = []
    for value in (first, second):
        moved = [
            Fraction(float(v)) - Fraction(float(c))
            for v, c in zip(value, noise.centre, strict=True)
        ]
        images = [
            sum(Fraction(float(w)) * m for w, m in zip(row, moved, strict=True)) for row in forward
        ]
        rounded.append([math.floor(i * 2**noise.step_bits + Fraction(1, 2)) for i in images])
    return rounded[0], math.sqrt(sum((a - b) ** 2 for a, b in zip(*rounded, strict=True)))


COVARIANCES = {
    "isotropic": Isotropic(2.0, 4),
    "diagonal": Diagonal([1.0, 1e-20, 1e20, 3.0]),
    "bare": Diagonal([1.0, 0.0, 4.0, 0.0]),
    "dense": Dense([[2.0, 1.0, 0, 0], [1.0, 2.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1e-9]]),
    "low rank": LowRank([[0.6, 0.8, 0, 0], [0, 0, 1.0, 0]], [[4.0, 1.0], [1.0, 2.0]]),
    "floor": LowRank([[0.6, 0.8, 0, 0]], [[4.0]], 1e-3),
    "factored": Factored(np.random.default_rng(0).normal(size=(6, 4))),
    "line": Factored([[1.0, 1 / 3, 1e-3, 7.0]]),
}


@pytest.mark.parametrize("name", COVARIANCES)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e16])
def test_the_shift_of_the_integers_is_within_the_certified_distance(name, size):
    """Any value, however large beside the noise: the distance holds for the integers themselves."""
    noise = discrete(design_of(COVARIANCES[name]), step=2.0**-10, centre=np.full(4, 0.3))
    source = np.random.default_rng(3)
    for _ in range(40):
        first = size * source.normal(size=4)
        second = first + np.abs(first + 1e-3) * source.choice([0.0, 2.0**-50, 2.0**-30, 1.0], 4)
        second[0] = first[0] + source.choice([0.0, 2.0**-12, 1.0])
        difference = second - first
        if any(
            Fraction(float(d)) != Fraction(float(b)) - Fraction(float(a))
            for a, b, d in zip(first, second, difference, strict=True)
        ):
            continue
        _, steps = rational_shift(noise, first, second)
        assert steps * noise.step <= math.sqrt(noise.mahalanobis(difference))


def test_the_integers_are_those_of_exact_arithmetic():
    noise = discrete(design_of(COVARIANCES["factored"]), step=2.0**-30, centre=np.full(4, 1e-9))
    value = np.array([1e16, 1 / 3, -1e-30, 5.0])
    expected, _ = rational_shift(noise, value, value)
    integers = np.array(noise.release(value, rng=0).integers, dtype=object) - np.array(expected)
    assert max(abs(int(k)) for k in integers) < 12 * 2**30
    again = np.array(noise.release(np.full(4, 1e-9), rng=0).integers, dtype=object)
    assert list(integers) == list(again)


@pytest.mark.parametrize("name", COVARIANCES)
def test_what_is_published_has_the_designs_spread(name):
    covariance = COVARIANCES[name]
    noise = discrete(design_of(covariance), centre=np.zeros(4))
    source = np.random.default_rng(1)
    value = covariance.sample(1, 9)[0]
    drawn = np.array([noise.release(value, rng=source).value for _ in range(1500)])
    spread = np.sqrt(covariance.diagonal())
    covered = spread > 0
    assert (
        np.abs(drawn.mean(axis=0) - value)[covered] < 6 * spread[covered] / math.sqrt(1500)
    ).all()
    assert (np.abs(drawn.std(axis=0) / np.where(covered, spread, 1) - 1)[covered] < 0.12).all()
    assert not drawn[:, ~covered].any()
    forward, backward = principal_axes(covariance)
    if forward.ndim == 2:
        assert np.abs(forward @ backward - np.eye(len(forward))).max() < 1e-6


@pytest.mark.parametrize("bits", [10, 20, 40])
def test_budgets_hold_with_the_rounding_and_the_widening_is_least(bits):
    source = np.random.default_rng(5)
    differences = source.normal(size=(20, 50))
    budgets = 10.0 ** source.uniform(-1, 1, 20)
    design = worst_case(differences, budgets)
    noise = discrete(design, step=2.0**-bits, centre=np.zeros(50), budgets=budgets)
    kept = noise.mahalanobis(differences) / budgets
    assert (kept <= 1.0).all()
    assert kept.max() > 1 - 1e-6
    assert noise.covariance.trace() == pytest.approx(noise.widening * design.covariance.trace())
    plain = discrete(design, step=2.0**-bits, centre=np.zeros(50))
    assert (plain.mahalanobis(differences) > design.covariance.mahalanobis(differences)).all()


def test_directions_without_noise_are_not_published():
    """Two values that differ where nothing is drawn give the same integers."""
    noise = discrete(design_of(COVARIANCES["bare"]), centre=[0.0, 5.0, 0.0, 6.0])
    first, second = (noise.release([1.0, bare, 2.0, 9.0], rng=3) for bare in (0.0, 1e9))
    assert first.integers == second.integers
    assert first.value[[1, 3]].tolist() == [5.0, 6.0]
    assert noise.mahalanobis([0.0, 1.0, 0.0, 0.0]) == 0.0


def test_extreme_values_stay_finite():
    noise = discrete(design_of(Factored(1e-300 * np.eye(2))))
    release = noise.release([1.7e308, -1.7e308])
    assert np.isfinite(release.value).all()
    assert release.value[0] == pytest.approx(1.7e308)
    assert noise.mahalanobis([1e300, 0.0]) == math.inf
    assert noise.profile([1e300, 0.0]).delta(1.0) == 1.0
    assert noise.profile([0.0, 0.0]).delta(0.0) == 0.0


def test_seeds_are_recorded():
    noise = discrete(design_of(Isotropic(1.0, 3)))
    seeded, free = noise.release(np.zeros(3), rng=4), noise.release(np.zeros(3))
    assert (seeded.reproducible, seeded.seed) == (True, 4)
    assert (free.reproducible, free.seed) == (False, None)
    assert seeded.integers == noise.release(np.zeros(3), rng=4).integers
    assert noise.release(np.zeros(3), rng=np.random.default_rng(4)).integers == seeded.integers
    assert len({noise.release(np.zeros(3)).integers for _ in range(5)}) == 5


PLAIN = design_of(Isotropic(1.0, 2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: discrete(None), "design: expected a Design"),
        (lambda: discrete(PLAIN, step=0.3), "step: expected a power of two"),
        (lambda: discrete(PLAIN, step=0.5), "step: expected a power of two"),
        (lambda: discrete(PLAIN, step=-(2.0**-10)), "step: expected a power of two"),
        (lambda: discrete(PLAIN, step=2.0**-61), "step: expected a power of two"),
        (lambda: discrete(PLAIN, step=math.inf), "step: expected a power of two"),
        (lambda: discrete(PLAIN, centre=[1.0]), "centre: expected 2 entries"),
        (lambda: discrete(PLAIN, budgets=0.0), "budgets: expected numbers > 0"),
        (lambda: discrete(PLAIN, budgets=1e-20), "step: expected one below"),
        (lambda: discrete(design_of(Isotropic(0.0, 2))), "covariance: expected noise in at least"),
        (lambda: discrete(design_of(Diagonal([1.0, 0.0]))), "centre: expected a public point"),
        (lambda: discrete(design_of(Factored([[5e-324]]))), "covariance: expected noise that"),
        (
            lambda: discrete(
                design_of(Isotropic(1.0, 2), ScaleMixture(Isotropic(1.0, 2), [1], [1]))
            ),
            "design: expected Gaussian noise",
        ),
        (lambda: discrete(PLAIN).release([1.0]), "value: expected 2 entries"),
        (lambda: discrete(PLAIN).release([1.0, math.nan]), "value: expected finite numbers"),
        (lambda: discrete(PLAIN).release([1.0, 2.0], rng=-1), "rng: expected an integer"),
        (lambda: discrete(PLAIN).mahalanobis([1.0]), "z: expected 2 columns"),
        (lambda: discrete(PLAIN).profile([1.0]), "z: expected 2 columns"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
