"""Conversions: known values, extremes and bad input; the bounds are in soundness/."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit.conversions import (
    advantage_from_dp,
    epsilon_from_renyi,
    epsilon_from_success,
    fano_information,
    fano_success,
    information_from_success,
    success_from_dp,
    success_from_information,
    success_from_profile,
)
from tacit.divergences import shift_divergence
from tests.soundness.oracles import bernoulli_kl


@pytest.mark.parametrize(("nats", "success"), [(0.01, 0.570592570), (0.1, 0.719794626)])
def test_success_from_information_beside_published_values(nats, success):
    assert success_from_information(nats, 0.5) == pytest.approx(success, abs=5e-10)


@pytest.mark.parametrize("prior", [1e-300, 1e-9, 0.25, 0.5, 0.9, 1 - 2**-53])
def test_success_from_information_at_the_ends(prior):
    assert success_from_information(0.0, prior) == prior
    assert success_from_information(-math.log(prior), prior) == 1.0
    assert success_from_information(math.inf, prior) == 1.0
    least = success_from_information(5e-324, prior)
    assert prior < least or prior < 1e-15  # never rounded back to no information at all
    assert least <= prior * (1 + 1e-12) + 1e-150


def test_success_grows_with_information_and_prior():
    nats = np.geomspace(1e-12, 1, 60)
    successes = [success_from_information(float(n), 0.3) for n in nats]
    assert successes == sorted(successes)
    priors = np.linspace(0.01, 0.99, 60)
    by_prior = [success_from_information(0.02, float(p)) for p in priors]
    assert by_prior == sorted(by_prior)


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_information_from_success_at_the_ends(prior):
    assert information_from_success(prior, prior) == 0.0
    full = information_from_success(1.0, prior)
    assert full <= -math.log(prior)
    assert full == pytest.approx(-math.log(prior), rel=1e-14)
    above = math.nextafter(prior, 1.0)
    assert 0 <= information_from_success(above, prior) < 1e-29
    below_one = information_from_success(1 - 2**-53, prior)
    assert below_one == pytest.approx(-math.log(prior), rel=1e-10)


def test_information_and_success_invert():
    for success in (0.500001, 0.55, 0.7, 0.999):
        nats = information_from_success(success, 0.5)
        assert success_from_information(nats, 0.5) == pytest.approx(success, rel=1e-12)


def test_success_from_dp_at_even_odds():
    # 1 − (1−δ)/(1+e^ε)
    assert success_from_dp(0.0, 0.0) == 0.5
    assert success_from_dp(math.log(3), 0.0) == pytest.approx(0.75, rel=1e-14)
    assert success_from_dp(math.log(3), 0.2) == pytest.approx(0.8, rel=1e-14)
    assert success_from_dp(1000.0, 0.0) == 1.0
    assert success_from_dp(math.inf, 0.0) == 1.0
    assert success_from_dp(0.0, 1.0) == 1.0


def test_success_from_dp_at_other_odds():
    # at prior 0.9 always saying yes wins until e^ε passes 9
    assert success_from_dp(math.log(8), 0.0, 0.9) == 0.9
    assert success_from_dp(math.log(19), 0.0, 0.9) == pytest.approx(0.95, rel=1e-14)
    assert success_from_dp(math.log(19), 0.0, 0.1) == pytest.approx(0.95, rel=1e-14)
    assert success_from_dp(0.0, 0.5, 0.9) == pytest.approx(0.95, rel=1e-14)


def test_epsilon_from_success_inverts():
    assert epsilon_from_success(0.5, 0.0) == 0.0
    assert epsilon_from_success(0.75, 0.5) == 0.0
    assert epsilon_from_success(1.0, 0.1) == math.inf
    assert epsilon_from_success(0.75, 0.0) == pytest.approx(math.log(3), rel=1e-14)
    assert epsilon_from_success(0.8, 0.2) == pytest.approx(math.log(3), rel=1e-14)
    assert epsilon_from_success(1 - 2**-53, 0.0) == pytest.approx(53 * math.log(2), rel=1e-12)


def test_advantage_from_dp():
    assert advantage_from_dp(0.0, 0.0) == 0.0
    assert advantage_from_dp(math.inf, 0.3) == 1.0
    assert advantage_from_dp(1000.0, 0.0) == 1.0
    assert advantage_from_dp(0.0, 0.25) == pytest.approx(0.25, rel=1e-14)
    # at even odds success = (1 + advantage)/2
    for epsilon, delta in [(0.1, 0.0), (1.0, 0.01), (5.0, 0.5)]:
        advantage = advantage_from_dp(epsilon, delta)
        assert (1 + advantage) / 2 == pytest.approx(success_from_dp(epsilon, delta), rel=1e-14)


def test_epsilon_from_renyi_by_hand():
    # order 2, D = 1: 1 + ln ½ − ln δ − ln 2
    expected = 1 - 2 * math.log(2) - math.log(1e-5)
    assert epsilon_from_renyi([2.0], [1.0], 1e-5) == pytest.approx(expected, rel=1e-13)
    both = epsilon_from_renyi([2.0, 8.0], [1.0, math.inf], 1e-5)
    assert both == epsilon_from_renyi([2.0], [1.0], 1e-5)
    assert epsilon_from_renyi([2.0, 8.0], [math.inf, math.inf], 1e-5) == math.inf
    assert epsilon_from_renyi([2.0], [0.0], 0.9) == 0.0
    assert epsilon_from_renyi(np.array([1 + 1e-12]), np.array([1e-3]), 0.5) >= 0.0


def test_fano():
    assert fano_information(1.0, 2) == pytest.approx(math.log(2), rel=1e-14)
    assert fano_information(1.0, 2) <= math.log(2)
    assert fano_information(0.5, 2) == 0.0
    assert fano_information(0.0, 3) == 0.0
    assert fano_success(0.0, 4) == 0.25
    assert fano_success(math.log(4), 4) == 1.0
    assert fano_success(1e-300, 2) == math.nextafter(0.5, 1.0)


def test_the_published_rows_that_fano_refutes():
    # four classes told apart at 87% under a claimed budget of 0.02 nats
    assert fano_information(0.87, 4) > 0.8
    assert fano_success(0.02, 4) < 0.35


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: success_from_information(-0.1, 0.5), "nats: expected a finite number >= 0"),
        (lambda: success_from_information(math.nan, 0.5), "nats: expected a number, got NaN"),
        (lambda: success_from_information(0.1, 0.0), r"prior: expected a number in \(0.0, 1.0\)"),
        (lambda: success_from_information(0.1, 1.0), "prior: expected"),
        (lambda: success_from_information("0.1", 0.5), "nats: expected a number"),
        (lambda: information_from_success(0.4, 0.5), "success: expected a number in"),
        (lambda: information_from_success(1.1, 0.5), "success: expected a number in"),
        (lambda: success_from_dp(-1.0, 0.0), "epsilon: expected"),
        (lambda: success_from_dp(1.0, 1.5), "delta: expected"),
        (lambda: success_from_dp(1.0, 0.0, 0.0), "prior: expected"),
        (lambda: epsilon_from_success(0.5, 0.1), r"success: expected at least \(1 \+ delta\)/2"),
        (lambda: epsilon_from_success(0.9, 1.0), "delta: expected"),
        (lambda: advantage_from_dp(math.nan, 0.0), "epsilon: expected a number, got NaN"),
        (lambda: epsilon_from_renyi([1.0], [1.0], 0.1), "orders: expected numbers > 1"),
        (lambda: epsilon_from_renyi([2.0], [1.0, 2.0], 0.1), "values: expected one for each"),
        (lambda: epsilon_from_renyi([2.0], [-1.0], 0.1), r"values\[0\]: expected"),
        (lambda: epsilon_from_renyi([2.0], [math.nan], 0.1), r"values\[0\]: expected"),
        (lambda: epsilon_from_renyi([], [], 0.1), "orders: expected at least one"),
        (lambda: epsilon_from_renyi([math.inf], [1.0], 0.1), "orders: expected finite"),
        (lambda: epsilon_from_renyi([2.0], [1.0], 0.0), "delta: expected"),
        (lambda: fano_information(1.2, 3), "accuracy: expected"),
        (lambda: fano_information(0.5, 1), "classes: expected an integer >= 2"),
        (lambda: fano_information(0.5, 2.0), "classes: expected an integer"),
        (lambda: fano_success(0.1, 1), "candidates: expected an integer >= 2"),
        (lambda: fano_success(-1.0, 2), "nats: expected"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def hockey_stick(first, second):
    return lambda epsilon: float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


@pytest.mark.parametrize("prior", [1e-6, 0.2, 0.5, 0.5 + 1e-12, 0.77, 0.999])
@pytest.mark.parametrize("seed", range(4))
def test_success_from_profile_is_the_best_of_every_test(seed, prior):
    """All 2^5 tests of a channel with five outputs, one of them impossible under Q."""
    first, second = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), size=2)
    second[0] = 0.0
    second /= second.sum()
    every = (np.arange(32)[:, None] >> np.arange(5)) & 1
    best = 0.0
    for p in (prior, 1 - prior):  # either input may be the one with this prior
        best = max(best, float((every @ (p * first) + (1 - every) @ ((1 - p) * second)).max()))
    ahead, back = hockey_stick(first, second), hockey_stick(second, first)
    both = success_from_profile(ahead, prior, reverse=back)
    assert best * (1 - 1e-12) <= both <= best * (1 + 1e-12)
    worse = success_from_profile(lambda epsilon: max(ahead(epsilon), back(epsilon)), prior)
    assert worse == both
    assert success_from_profile(ahead, prior) <= both


@pytest.mark.parametrize("prior", [1e-9, 0.05, 0.5, 0.7, 1 - 1e-9])
@pytest.mark.parametrize("distance", [1e-6, 0.3, 1.0, 4.0])
def test_success_from_profile_of_a_gaussian_shift(distance, prior):
    """p Φ(d/2 + c/d) + (1−p) Φ(d/2 − c/d) at c = ln(p/(1−p))."""
    mp.dps = 40
    odds = mp.log(mpf(prior) / (1 - mpf(prior)))
    d = mpf(distance)
    exact = prior * mp.ncdf(d / 2 + odds / d) + (1 - mpf(prior)) * mp.ncdf(d / 2 - odds / d)
    bound = success_from_profile(lambda e: shift_divergence(("hockey-stick", e), distance), prior)
    assert mpf(bound) >= exact
    assert mpf(bound) <= exact * (1 + mpf(10) ** -12)


def test_success_from_profile_at_the_ends():
    assert success_from_profile(lambda epsilon: 0.0, 0.25) == 0.75
    assert success_from_profile(lambda epsilon: 1.0, 0.3) == 1.0
    assert success_from_profile(lambda epsilon: math.exp(-epsilon), 1e-300) == 1.0
    asked = []
    success_from_profile(lambda epsilon: asked.append(epsilon) or 0.0, 0.9)
    assert all(0 <= epsilon <= math.log(9) for epsilon in asked)  # a smaller ε, a larger δ


def test_success_from_profile_is_at_most_what_a_point_of_it_gives():
    for prior in (0.1, 0.5, 0.9):
        bound = success_from_profile(lambda e: shift_divergence(("hockey-stick", e), 1.0), prior)
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            delta = shift_divergence(("hockey-stick", epsilon), 1.0)
            assert bound <= success_from_dp(epsilon, delta, prior) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, 0.5), "delta: expected a function of epsilon, got 0.1"),
        ((lambda epsilon: 1.5, 0.5), r"delta\(0.0\): expected a number in \[0.0, 1.0\], got 1.5"),
        ((lambda epsilon: math.nan, 0.5), r"delta\(0.0\): expected a number, got NaN"),
        ((lambda epsilon: 0.0, 1.0), "prior: expected a number in"),
    ],
)
def test_success_from_profile_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        success_from_profile(*arguments)


def test_success_from_profile_refuses_a_reverse_that_is_no_function():
    with pytest.raises(ValueError, match="reverse: expected a function"):
        success_from_profile(lambda epsilon: 0.0, 0.5, reverse=0.2)


@pytest.mark.parametrize("prior", [1e-310, 1e-306, 5e-324])
def test_success_from_information_at_priors_whose_inverse_is_no_float(prior):
    for share in (0.2, 0.9):
        success = success_from_information(-math.log(prior) * share, prior)
        with mp.workdps(700):
            assert bernoulli_kl(success, prior) >= mpf(-math.log(prior) * share) * (
                1 - mpf(10) ** -12
            )
        assert success == pytest.approx(share, abs=0.01)
    assert 0 < information_from_success(0.5, prior) < math.inf
