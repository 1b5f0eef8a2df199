"""Laplace noise against quadrature, k-ary response against the sum over its answers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit.accounting import laplace, randomized_response
from tests.accounting.oracles import hockey_stick, laplace_delta


def assert_just_above(value, truth):
    assert mpf(value) >= truth
    assert mpf(value) <= truth * (1 + mpf("1e-9")) + mpf("1e-15")


@pytest.mark.parametrize("epsilon", [-3.0, -0.5, 0.0, 0.2, 0.99, 4.0, 40.0])
@pytest.mark.parametrize("distance", [1e-3, 0.5, 1.0, 5.0, 50.0])
def test_laplace_is_the_integral_rounded_up(epsilon, distance):
    assert_just_above(laplace(distance, 1.0).delta(epsilon), laplace_delta(epsilon, distance))


def test_laplace_near_its_largest_loss():
    profile = laplace(1.0, 0.3)
    with mp.workdps(40):
        for gap in (1e-3, 1e-8, 1e-12):
            epsilon = 1 / 0.3 - gap
            truth = -mp.expm1((mpf(epsilon) - mpf(1.0) / mpf(0.3)) / 2)
            assert mpf(profile.delta(epsilon)) >= truth
    assert 1 / 0.3 <= profile.epsilon(0.0) <= (1 / 0.3) * (1 + 1e-12)
    assert laplace(2.0, 1e-3).delta(700.0) == 1.0
    assert laplace(0.0, 1.0).epsilon(0.0) == 0.0


@pytest.mark.parametrize(("sensitivity", "scale"), [(1.0, 1.0), (1.0, 4.0), (3.0, 0.5), (1.0, 3.0)])
def test_laplace_without_delta_is_the_quotient(sensitivity, scale):
    # exactly where the quotient is a float, and never below it
    epsilon = laplace(sensitivity, scale).epsilon(0.0)
    exact = Fraction(sensitivity) / Fraction(scale)
    assert exact <= Fraction(epsilon) <= exact * (1 + Fraction(1, 2**51))
    assert scale == 3.0 or Fraction(epsilon) == exact


def test_laplace_renyi_is_the_integral():
    with mp.workdps(30):
        for order, distance in [(1.5, 1.0), (2.0, 0.1), (20.0, 3.0)]:
            a, d = mpf(order), mpf(distance)
            moment = mp.quad(
                lambda x, a=a, d=d: mp.exp(-a * abs(x) - (1 - a) * abs(x - d)) / 2, [-90, 0, d, 90]
            )
            truth = mp.log(moment) / (a - 1)
            found = mpf(float(laplace(distance, 1.0).renyi([order])[0]))
            assert truth <= found <= truth * (1 + mpf("1e-9"))


def laws(truth, categories):
    rest = (1 - mpf(truth)) / (categories - 1)
    first = [mpf(truth), rest] + [rest] * (categories - 2)
    return first, [rest, mpf(truth)] + [rest] * (categories - 2)


@pytest.mark.parametrize("categories", [2, 3, 10, 4096])
@pytest.mark.parametrize("truth", [0.0, 1e-9, 0.1, 0.5, 0.51, 0.999, 1.0])
def test_response_is_the_sum_over_answers(truth, categories):
    profile = randomized_response(truth_probability=truth, categories=categories)
    with mp.workdps(50):
        first, second = laws(truth, categories)
        for epsilon in (-5.0, -0.3, 0.0, 1e-3, 0.7, 3.0, 30.0):
            assert_just_above(profile.delta(epsilon), hockey_stick(first, second, epsilon))


@pytest.mark.parametrize("loss", [0.0, 1e-6, 1.0, 30.0, 800.0])
def test_response_by_epsilon_is_pure(loss):
    profile = randomized_response(loss, categories=5)
    assert loss <= profile.epsilon(0.0) <= loss * (1 + 1e-12) + 1e-14
    assert np.all(profile.renyi([2.0, 100.0]) <= loss)


def test_response_renyi_is_the_sum_over_answers():
    with mp.workdps(40):
        truth = mp.exp(1) / (mp.exp(1) + 3)
        first, second = laws(truth, 4)
        for order in (1.5, 3.0, 40.0):
            terms = zip(first, second, strict=True)
            moment = mp.fsum(p ** mpf(order) * q ** (1 - mpf(order)) for p, q in terms)
            exact = mp.log(moment) / (mpf(order) - 1)
            found = mpf(float(randomized_response(1.0, categories=4).renyi([order])[0]))
            assert exact <= found <= exact * (1 + mpf("1e-9"))


def test_drawn_responses_separate_as_the_advantage_says():
    rng, draws, categories, loss = np.random.default_rng(3), 200_000, 4, 0.8
    truth = math.exp(loss) / (math.exp(loss) + categories - 1)

    def respond(answer):
        lies = (answer + rng.integers(1, categories, draws)) % categories
        return np.where(rng.random(draws) < truth, answer, lies)

    measured = (respond(0) == 0).mean() - (respond(1) == 0).mean()
    error = math.sqrt(2 * 0.25 / draws)
    assert abs(measured - randomized_response(loss, categories).advantage()) < 5 * error
    assert abs(measured - randomized_response(1.1 * loss, categories).advantage()) > 5 * error


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: laplace(-1.0, 1.0), "sensitivity"),
        (lambda: laplace(1.0, 0.0), "scale"),
        (lambda: randomized_response(1.0, 1), "categories"),
        (lambda: randomized_response(), "epsilon, truth_probability"),
        (lambda: randomized_response(1.0, truth_probability=0.5), "epsilon, truth_probability"),
        (lambda: randomized_response(-1.0), "epsilon"),
        (lambda: randomized_response(truth_probability=1.5), "truth_probability"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        call()
