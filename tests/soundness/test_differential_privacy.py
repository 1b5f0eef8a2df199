"""(ε, δ) and Rényi guarantees beside the best tests of real mechanisms."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from tacit.conversions import advantage_from_dp, epsilon_from_success
from tacit.divergences import shift_divergence
from tacit.guarantees import ApproximateDP, RenyiDP, SuccessBound

from . import oracles
from .registry import certifies


def dp(epsilon, delta):
    return ApproximateDP(
        epsilon=epsilon,
        delta=delta,
        adjacency="any two answers",
        evidence="theorem",
        assumptions=(),
        source="test",
    )


def randomised_response(epsilon, size):
    """Laws of k-ary response for two answers, exactly normalised, at odds e^ε rounded down."""
    odds = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**50))
    total = odds + size - 1
    laws = [[Fraction(1) / total] * size for _ in range(2)]
    for answer, law in enumerate(laws):
        law[answer] = odds / total
    return laws


@certifies(ApproximateDP, SuccessBound)
@pytest.mark.parametrize("prior", [0.5, 0.2, 0.93])
@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_every_test_of_randomised_response(epsilon, size, prior):
    truth, lie = randomised_response(epsilon, size)
    best = oracles.best_tests(truth, lie, prior)
    assert Fraction(dp(epsilon, 0.0).success(prior).success) >= best
    if size == 2:  # binary response attains the bound
        assert dp(epsilon, 0.0).success(prior).success <= float(best) * (1 + 1e-12)
    variation = sum(max(p - q, Fraction(0)) for p, q in zip(truth, lie, strict=True))
    assert Fraction(advantage_from_dp(epsilon, 0.0)) >= variation


@certifies(ApproximateDP, SuccessBound)
@pytest.mark.parametrize("delta", [0.0, 1e-9, 0.05, 0.6])
@pytest.mark.parametrize("prior", [0.5, 0.1, 0.75])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 3.0])
def test_the_extreme_mechanism_attains_the_bound(epsilon, delta, prior):
    """With probability δ it names the input; otherwise it answers by binary response."""
    odds = Fraction(math.exp(epsilon))
    share = 1 - Fraction(delta)
    first = [Fraction(delta), Fraction(0), share * odds / (1 + odds), share / (1 + odds)]
    second = [Fraction(0), Fraction(delta), share / (1 + odds), share * odds / (1 + odds)]
    best = oracles.best_tests(first, second, prior)
    certified = dp(math.nextafter(epsilon, 9.0), delta).success(prior)
    assert Fraction(certified.success) >= best
    assert certified.success <= float(best) * (1 + 1e-12)
    variation = sum(max(p - q, Fraction(0)) for p, q in zip(first, second, strict=True))
    advantage = advantage_from_dp(math.nextafter(epsilon, 9.0), delta)
    assert Fraction(advantage) >= variation
    assert advantage <= float(variation) * (1 + 1e-12)


@certifies(ApproximateDP, SuccessBound)
@pytest.mark.parametrize("prior", [0.5, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("distance", [0.1, 1.0, 3.0])
def test_the_best_test_of_the_gaussian_mechanism(distance, epsilon, prior):
    """The likelihood-ratio test at prior p errs by p Φ(−d/2 + c/d) + (1−p) Φ(−d/2 − c/d)."""
    guarantee = dp(epsilon, shift_divergence(("hockey-stick", epsilon), distance))
    with mp.workdps(40):
        d, p = mpf(distance), mpf(prior)
        c = mp.log((1 - p) / p)
        error = p * mp.ncdf(-d / 2 + c / d) + (1 - p) * mp.ncdf(-d / 2 - c / d)
        assert guarantee.success(prior).success >= 1 - error
        assert advantage_from_dp(guarantee.epsilon, guarantee.delta) >= mp.erf(d / mp.sqrt(8))


@given(success=st.floats(0.5, 1), delta=st.floats(0, 0.99))
def test_the_budget_from_a_success_keeps_it(success, delta):
    if success < (1 + delta) / 2 + 1e-12:
        return
    epsilon = epsilon_from_success(success, delta)
    if math.isinf(epsilon):
        assert success == 1.0
        return
    with mp.workdps(60):
        assert 1 - (1 - mpf(delta)) / (1 + mp.exp(epsilon)) <= success
    assert dp(epsilon, delta).success().success <= success


@certifies(RenyiDP, ApproximateDP)
@given(
    exponent=st.floats(-2, 1),
    delta_exponent=st.floats(-14, -1),
)
def test_renyi_to_epsilon_beside_the_exact_gaussian_profile(exponent, delta_exponent):
    distance, delta = 10.0**exponent, 10.0**delta_exponent
    orders = tuple(1 + 10 ** (k / 8) for k in range(-16, 25))
    curve = RenyiDP(
        orders=orders,
        epsilons=tuple(shift_divergence(("renyi", order), distance) for order in orders),
        adjacency="means one sensitivity apart",
        evidence="theorem",
        assumptions=(),
        source="test",
    )
    converted = curve.approximate(delta)
    assert oracles.hockey_stick(converted.epsilon, distance) <= delta


@certifies(RenyiDP)
@pytest.mark.parametrize("delta", [1e-8, 1e-3, 0.3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_renyi_to_epsilon_beside_binary_response(epsilon, delta):
    odds = mp.exp(mpf(epsilon))
    high, low = odds / (1 + odds), 1 / (1 + odds)
    orders = (1.5, 2.0, 8.0, 64.0, 512.0)
    epsilons = []
    for order in orders:
        moment = high**order * low ** (1 - order) + low**order * high ** (1 - order)
        epsilons.append(math.nextafter(float(mp.log(moment) / (order - 1)), 99.0))
    curve = RenyiDP(
        orders=orders,
        epsilons=tuple(epsilons),
        adjacency="the answer",
        evidence="theorem",
        assumptions=(),
        source="test",
    )
    converted = curve.approximate(delta)
    assert max(high - mp.exp(converted.epsilon) * low, 0) <= delta
