"""Calibration lands on the safe side, close to the smallest parameter, in few evaluations."""

import math

import numpy as np
import pytest

from tacit.accounting import (
    calibrate,
    gaussian,
    laplace,
    least_noise,
    randomized_response,
    subsampled_gaussian,
)
from tests.accounting.oracles import gaussian_delta


class Counted:
    """A family of profiles that counts how often it is built."""

    def __init__(self, build):
        self.build, self.built = build, []

    def __call__(self, parameter):
        self.built.append(parameter)
        return self.build(parameter)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-12])
def test_gaussian_noise(epsilon, delta):
    family = Counted(lambda std: gaussian(1.0, std))
    std = calibrate(family, epsilon=epsilon, delta=delta, bracket=(1e-3, 1e5))
    assert gaussian_delta(epsilon, 1 / std) <= delta
    assert gaussian_delta(epsilon, 1 / (std * (1 - 1e-5))) > delta
    assert len(family.built) <= 25


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_sampled_gaussian_noise(epsilon):
    family = Counted(lambda noise: subsampled_gaussian(0.02, noise, 500))
    noise = calibrate(family, epsilon=epsilon, delta=1e-5, bracket=(0.3, 100.0))
    assert subsampled_gaussian(0.02, noise, 500).epsilon(1e-5) <= epsilon
    assert subsampled_gaussian(0.02, noise * 0.9999, 500).epsilon(1e-5) > epsilon
    assert len(family.built) <= 15
    assert noise in family.built


@pytest.mark.parametrize("low", [1e-3, 0.3, 3.0])
@pytest.mark.parametrize("high", [5.0, 1e3, 1e6])
def test_wide_brackets_cost_few_evaluations(low, high):
    family = Counted(lambda std: gaussian(1.0, std))
    std = calibrate(family, epsilon=1.0, delta=1e-5, bracket=(low, high))
    assert gaussian_delta(1.0, 1 / std) <= 1e-5
    assert gaussian_delta(1.0, 1 / (std * (1 - 2e-5))) > 1e-5
    assert len(family.built) <= 10


def test_a_plateau_before_the_answer_is_crossed():
    """ε stands still over two decades of s, so that its slope says nothing there."""

    def build(parameter):
        return gaussian(1.0, max(0.5, parameter / 100))

    found = calibrate(build, epsilon=1.0, delta=1e-5, bracket=(1e-2, 1e5))
    assert build(found).epsilon(1e-5) <= 1.0
    assert build(found * (1 - 2e-5)).epsilon(1e-5) > 1.0


def test_pure_mechanisms():
    scale = calibrate(lambda b: laplace(1.0, b), epsilon=0.5, delta=0.0, bracket=(0.01, 100))
    assert 2.0 <= scale <= 2.0 * (1 + 1.1e-5)
    # more private as the odds fall: 1/s is the loss
    inverse = calibrate(
        lambda s: randomized_response(1 / s, 3), epsilon=0.25, delta=0.0, bracket=(0.5, 64)
    )
    assert 4.0 <= inverse <= 4.0 * (1 + 1.1e-5)
    # largest losses add up, exactly, where a lattice of all together is coarser
    assert (laplace(1.0, 2.0) * 3).epsilon(0.0) == 1.5
    together = (laplace(1.0, 2.0) * 3).compose(randomized_response(1.0, 3) * 2)
    assert 3.5 <= together.epsilon(0.0) <= 3.5 * (1 + 1e-12)
    assert together.compose(gaussian(1.0, 9.0)).epsilon(0.0) == math.inf


def test_what_is_asked_for_may_need_noise_as_far_as_is_looked():
    # δ = 2 Φ(μ/2) − 1 at ε = 0, and μ/√2π where it is small: 4e11 at most
    found = least_noise(lambda s: gaussian(1.0, s), epsilon=1e-12, delta=1e-12)
    assert 2.5e11 < found < 4e11
    assert gaussian(1.0, found).epsilon(1e-12) <= 1e-12
    with pytest.raises(ValueError, match="is not enough"):
        least_noise(lambda s: gaussian(1.0, s), epsilon=1e-14, delta=1e-14)


def test_an_infinite_epsilon_on_the_way_is_no_obstacle():
    """Losing all with probability e^{−s} makes ε infinite until that is below δ."""

    def build(parameter):
        leak = math.exp(-parameter)
        return randomized_response(truth_probability=leak, categories=2) if leak > 0.6 else (
            gaussian(1.0, parameter) if leak < 1e-3 else randomized_response(math.inf)
        )  # fmt: skip

    found = calibrate(build, epsilon=1.0, delta=1e-5, bracket=(1.0, 1000.0))
    assert build(found).epsilon(1e-5) <= 1.0
    assert build(found * (1 - 1e-5)).epsilon(1e-5) > 1.0


def test_a_step_in_the_parameter_is_bisected():
    found = calibrate(
        lambda s: gaussian(1.0, math.floor(s * 4) / 4), epsilon=1.0, delta=1e-5, bracket=(1, 64)
    )
    assert 3.75 <= found <= 3.75 * (1 + 2e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bracket": (10.0, 100.0)}, "^bracket: expected a lower end that is not yet"),
        ({"bracket": (0.1, 1.0)}, "^bracket: expected an upper end that is private enough"),
        ({"bracket": (2.0, 1.0)}, "^bracket: expected low < high"),
        ({"bracket": (0.0, 1.0)}, r"^bracket\[0\]: expected"),
        ({"bracket": 3.0}, "^bracket: expected two numbers"),
        ({"bracket": "ab"}, "^bracket: expected two numbers"),
        ({"bracket": np.ones(3)}, "^bracket: expected two numbers"),
        ({"epsilon": 0.0}, "^epsilon: expected"),
        ({"delta": 1.0}, "^delta: expected"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    settings = {"epsilon": 1.0, "delta": 1e-5, "bracket": (0.1, 100.0)} | changes
    with pytest.raises(ValueError, match=r"^build: expected a function"):
        calibrate(gaussian(1.0, 1.0), **settings)
    with pytest.raises(ValueError, match=message):
        calibrate(lambda std: gaussian(1.0, std), **settings)


def test_a_bracket_is_any_two_numbers():
    found = {
        calibrate(lambda std: gaussian(1.0, std), epsilon=1.0, delta=1e-5, bracket=ends)
        for ends in ((0.1, 100.0), [0.1, 100.0], np.array([0.1, 100.0]))
    }
    assert len(found) == 1


def test_what_build_returns_is_a_profile():
    with pytest.raises(ValueError, match=r"^build: expected a PrivacyProfile"):
        calibrate(lambda std: None, epsilon=1.0, delta=1e-5, bracket=(0.1, 100.0))
