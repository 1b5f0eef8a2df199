"""Curves over the budget: closed forms of Gaussian noise."""

import math

import numpy as np
import pytest

from tacit.covariance import Isotropic
from tacit.design import gaussian_information
from tacit_lab.stackelberg import (
    FullGaussianNoise,
    anisotropy,
    budget_curves,
    label_subspace,
    task_share,
)


def test_sensitivities_of_gaussian_noise():
    """One output of variance s: β = ½ ln(1 + s/v), so V = s/(e^{2β} − 1)."""
    budgets = np.linspace(0.5, 1.5, 201)
    designs = [gaussian_information([3.0], beta) for beta in budgets]
    curves = budget_curves(designs, budgets, [design.information for design in designs])
    exact = 6.0 * np.exp(2 * budgets) / np.expm1(2 * budgets) ** 2
    assert curves.priv == pytest.approx(np.ones(201), abs=1e-9)
    # Central differences err by h²/6 times the third derivative.
    assert curves.util[1:-1] == pytest.approx(exact[1:-1], rel=1e-3)
    assert (curves.util > 0).all()
    assert curves.task_share is None


def test_shapes_of_noise():
    covariance = np.diag([1.0, 2.0, 5.0])
    assert anisotropy(covariance) == pytest.approx(5.0)
    assert anisotropy(Isotropic(2.0, 3)) == pytest.approx(1.0)
    assert anisotropy(np.diag([1.0, 0.0])) == math.inf
    noise = FullGaussianNoise(lift=np.eye(3), factor=np.sqrt(covariance))
    # Any basis of the subspace will do, dependent columns included.
    task = np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    assert task_share(noise, task) == pytest.approx(6.0 / 8.0)
    assert task_share(np.eye(4), label_subspace(4)) == pytest.approx(3.0 / 4.0)
    assert task_share(np.ones((4, 4)), label_subspace(4)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([np.eye(2)], [0.5], [0.4]), "mi_budgets"),
        (([np.eye(2)] * 2, [0.5, 0.4], [0.4, 0.4]), "mi_budgets"),
        (([np.eye(2)], [0.5, 0.6], [0.4, 0.4]), "noises"),
        (([np.eye(2)] * 2, [0.5, 0.6], [0.4]), "information"),
        ((["x"] * 2, [0.5, 0.6], [0.4, 0.4]), "noise"),
    ],
)
def test_bad_curves_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        budget_curves(*arguments)


@pytest.mark.parametrize("noise", [-np.eye(2), np.zeros((2, 2)), None, "x", np.ones(3)])
def test_bad_noise_is_named(noise):
    with pytest.raises(ValueError, match="noise"):
        anisotropy(noise)
    with pytest.raises(ValueError, match="noise"):
        task_share(noise, np.ones((2, 1)))
