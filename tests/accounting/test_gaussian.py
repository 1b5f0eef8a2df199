"""Gaussian profiles against the closed form at 460 digits, at every real ε."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from tacit.accounting import gaussian, gaussian_shift
from tests.accounting.oracles import gaussian_delta

SLACK = mpf("1e-300")  # absolute: values below the smallest float are rounded up to it


def assert_just_above(value, truth, relative=1e-9):
    assert mpf(value) >= truth
    assert mpf(value) <= truth * (1 + mpf(relative)) + SLACK


@pytest.mark.parametrize("epsilon", [-700.0, -30.0, -1.0, 0.0, 1e-9, 0.3, 1.0, 8.0, 50.0, 700.0])
@pytest.mark.parametrize("distance", [1e-8, 1e-3, 0.1, 1.0, 7.0, 40.0, 1e3])
def test_it_is_the_closed_form_rounded_up(epsilon, distance):
    assert_just_above(gaussian_shift(distance).delta(epsilon), gaussian_delta(epsilon, distance))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.floats(-20, 800), st.floats(-6, 3))
def test_it_is_never_below(epsilon, exponent):
    distance = 10.0**exponent
    assert_just_above(gaussian_shift(distance).delta(epsilon), gaussian_delta(epsilon, distance))


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-12])
@pytest.mark.parametrize("distance", [0.01, 1.0, 35.0])
def test_epsilon_is_the_upper_end_of_the_root(distance, delta):
    profile = gaussian_shift(distance)
    epsilon = profile.epsilon(delta)
    assert gaussian_delta(epsilon, distance) <= delta
    if epsilon > 0:
        assert gaussian_delta(epsilon * (1 - 1e-9) - 1e-12, distance) > delta


def test_the_release_of_a_draw_separates_as_its_advantage_says():
    rng, draws, std = np.random.default_rng(7), 400_000, 1.5
    noise = rng.standard_normal((2, draws)) * std
    # the best test: nearer to 1 than to 0
    measured = (noise[0] + 1 > 0.5).mean() - (noise[1] > 0.5).mean()
    error = math.sqrt(2 * 0.25 / draws)
    assert abs(measured - gaussian(1.0, std).advantage()) < 5 * error
    assert abs(measured - gaussian(1.0, 1.1 * std).advantage()) > 5 * error


def test_ends():
    assert gaussian(0.0, 1.0).delta(0.0) == 0.0
    assert gaussian(0.0, 1.0).epsilon(0.0) == 0.0
    unbounded = gaussian_shift(math.inf)
    assert unbounded.delta([0.0, 700.0, math.inf]).tolist() == [1.0, 1.0, 1.0]
    assert unbounded.infinite_mass == 1.0
    assert unbounded.epsilon(0.5) == math.inf
    assert gaussian(1.0, 1.0).delta(math.inf) == 0.0
    assert gaussian(1.0, 1.0).delta(-math.inf) == 1.0
    assert gaussian(1e300, 1e-300).delta(1.0) == 1.0


def test_renyi_is_half_the_order_times_the_squared_distance():
    orders = [1.5, 2.0, 64.0]
    found = gaussian(3.0, 2.0).renyi(orders)
    assert np.all(found >= np.array(orders) * 9 / 8)
    np.testing.assert_allclose(found, np.array(orders) * 9 / 8, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((-1.0, 1.0), "sensitivity"), ((math.inf, 1.0), "sensitivity"), ((1.0, 0.0), "noise_std"),
     ((1.0, math.nan), "noise_std"), (("1", 1.0), "sensitivity")],
)  # fmt: skip
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        gaussian(*arguments)
    with pytest.raises(ValueError, match=r"^mahalanobis: expected"):
        gaussian_shift(-1.0)
