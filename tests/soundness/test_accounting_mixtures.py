"""Mixtures of Gaussians in 40 digits, and discrete Laplace noise summed term by term."""

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import discrete_laplace, gaussian_mixture
from tacit.guarantees import ApproximateDP
from tests.soundness.registry import certifies

POINTS = (-20.0, -1.0, -1e-3, 0.0, 1e-3, 0.2, 1.0, 3.0, 40.0)


def mixture(shifts, weights, epsilon, *, removed):
    """The hockey stick of Σ w_j N(c_j, 1) and N(0, 1) in 40 digits, its edge by bisection."""
    with mp.workdps(40):
        parts = [(mp.mpf(w), mp.mpf(c)) for w, c in zip(weights, shifts, strict=True) if w]
        level = mp.exp(-epsilon if removed else epsilon)
        low, high = mp.mpf(-(10**7)), mp.mpf(10**7)
        for _ in range(170):
            x = (low + high) / 2
            ratio = mp.fsum(w * mp.exp(c * x - c * c / 2) for w, c in parts)
            low, high = (low, x) if ratio > level else (x, high)
        if removed:
            return mp.ncdf(x) - mp.exp(epsilon) * mp.fsum(w * mp.ncdf(x - c) for w, c in parts)
        return mp.fsum(w * mp.ncdf(c - x) for w, c in parts) - mp.exp(epsilon) * mp.ncdf(-x)


@pytest.mark.parametrize(
    ("shifts", "weights"),
    [
        ([0.0, 1.0], [0.9, 0.1]),
        ([2.0, 0.0, 0.5], [0.2, 0.5, 0.3]),
        ([1e-4, 30.0], [0.999, 0.001]),
        ([0.3, 0.3, 5.0], [0.2, 0.8, 0.0]),
        ([1e-9, 1.0, 1000.0], [0.5, 0.25, 0.25]),
    ],
)
@certifies(ApproximateDP)
def test_a_mixture_is_at_least_the_hockey_stick(shifts, weights):
    profile = gaussian_mixture(np.array(shifts) * 3.0, weights, 3.0)
    for epsilon in POINTS:
        for removed, curve in ((False, profile.forward), (True, profile.backward)):
            exact = max(mixture(shifts, weights, epsilon, removed=removed), 0)
            found = float(curve(np.array([epsilon]))[0])
            assert exact <= found <= float(exact) * (1 + 1e-6) + 1e-11, (epsilon, removed)


@pytest.mark.parametrize(
    ("sensitivity", "scale"), [(1, 1.0), (3, 2.5), (7, 0.3), (40, 11.0), (2, 1e4), (5, 1 / 3)]
)
@certifies(ApproximateDP)
def test_discrete_noise_is_at_least_its_sum(sensitivity, scale):
    profile = discrete_laplace(sensitivity, scale)
    edge = sensitivity / scale
    for epsilon in (-2 * edge, -0.3 * edge, 0.0, 0.01 * edge, 0.5 * edge, 0.99 * edge, edge):
        with mp.workdps(40):
            rate = 1 / mp.mpf(scale)
            half, growth = mp.tanh(rate / 2), mp.exp(mp.mpf(epsilon))
            # outputs between both values are told apart by degrees; on either side all alike
            inner = mp.fsum(
                max(mp.exp(-rate * x) - growth * mp.exp(-rate * (sensitivity - x)), 0)
                for x in range(1, sensitivity)
            )
            side = 1 / (1 - mp.exp(-rate))
            left = max(side - growth * side * mp.exp(-rate * sensitivity), 0)
            right = max(side * mp.exp(-rate * sensitivity) - growth * side, 0)
            exact = half * (inner + left + right)
        found = profile.delta(epsilon)
        assert exact <= found <= float(exact) * (1 + 1e-9) + 1e-14, epsilon


@certifies(ApproximateDP)
def test_of_whole_vectors_one_coordinate_is_the_worst():
    # (3, 2, 1) against 0 in three coordinates, enumerated; one number moved by 6 tells more
    rate, reach = 0.6, np.arange(-60, 61)
    law = np.tanh(rate / 2) * np.exp(-rate * np.abs(reach))
    one = np.einsum("i,j,k", law, law, law).ravel()
    moved = [np.tanh(rate / 2) * np.exp(-rate * np.abs(reach - shift)) for shift in (3, 2, 1)]
    other = np.einsum("i,j,k", *moved).ravel()
    profile = discrete_laplace(6, 1 / rate)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        assert np.maximum(one - np.exp(epsilon) * other, 0).sum() <= profile.delta(epsilon)
