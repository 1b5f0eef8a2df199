"""Least-noise spectra under the Gaussian information ½ Σ ln(1 + r/l)."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance
from tacit.information.log_det import information_of_ratios, signal_to_noise

LOWEST_LOG_MULTIPLIER = -690.0


def exact_spectrum(ratios: Array, mi_budget: float) -> tuple[Array, float]:
    """Return the least-sum noise spectrum with ``½ Σ ln(1 + r/l) <= mi_budget``, and μ.

    Stationarity ``l² + r l = μ r/2`` gives ``l = μ r / (r + √(r² + 2 μ r))``.
    """
    scale = float(ratios.max())
    relative = ratios / scale

    def excess(log_multiplier: float) -> float:
        """Information above the budget, decreasing in ln μ."""
        multiplier = math.exp(log_multiplier)
        root = np.sqrt(relative * (relative + 2.0 * multiplier))
        return float(0.5 * np.log1p((relative + root) / multiplier).sum()) - mi_budget

    high = 2.0 * math.log(float(np.sqrt(relative).sum()) / mi_budget)
    while excess(high) > 0.0:
        high += 2.0
    low = high
    while excess(low) < 0.0 and low > LOWEST_LOG_MULTIPLIER:
        low = max(low - 4.0, LOWEST_LOG_MULTIPLIER)
    if excess(low) <= 0.0:
        solution = low
    else:
        solution = float(brentq(excess, low, high, xtol=4e-16, rtol=4 * EPS))
        step = EPS * max(1.0, abs(solution))
        while excess(solution) > 0.0:
            solution += step
            step *= 2.0
    multiplier = math.exp(solution)
    root = np.sqrt(relative * (relative + 2.0 * multiplier))
    return scale * relative * (multiplier / (relative + root)), scale * multiplier


def linear_spectrum(ratios: Array, mi_budget: float) -> Array:
    """Return ``√r Σ√r/(2 β)``, the least sum with ``½ Σ r/l = β`` (residual-pac, Thm 1)."""
    roots = np.sqrt(ratios)
    spectrum: Array = roots * (roots.sum() / (2.0 * mi_budget))
    return spectrum


def least_cost(ratios: Array, multiplier: float, mi_budget: float) -> float:
    """Return a lower bound on ``Σ l`` under the budget: the dual function at μ.

    ``min_l Σ l + μ (½ Σ ln(1 + r/l) − β)``, attained at the l of ``exact_spectrum``.
    """
    moving = ratios[ratios > 0.0]
    root = np.sqrt(moving) * np.sqrt(moving + 2.0 * multiplier)
    spectrum = moving * (multiplier / (moving + root))
    information = 0.5 * float(np.log1p((moving + root) / multiplier).sum())
    return float(spectrum.sum()) + multiplier * (information - mi_budget)


def scaled_to_budget(
    output_covariance: Array, covariance: Covariance, mi_budget: float
) -> tuple[Covariance, float]:
    """Return Σ, enlarged until its certified information fits the budget, and that information."""
    candidate, growth = covariance, 1.0
    for attempt in range(64):
        ratios = signal_to_noise(output_covariance, candidate)
        information = information_of_ratios(ratios)
        if information <= mi_budget:
            return candidate, information
        if math.isinf(information):
            break
        growth *= _growth(ratios, mi_budget) * (1.0 + 2.0**attempt * EPS)
        candidate = covariance.scaled(growth)
    raise ValueError(
        "cost: expected a cost under which the noise can be certified in double precision, got "
        f"one with which the noise covers only {covariance.rank} of {covariance.dim} directions "
        "or is too ill-conditioned"
    )


def _growth(ratios: Array, mi_budget: float) -> float:
    """Return the factor c >= 1 with ``½ Σ ln(1 + w/c) = mi_budget``."""

    def excess(log_growth: float) -> float:
        return float(0.5 * np.log1p(ratios * math.exp(-log_growth)).sum()) - mi_budget

    if excess(0.0) <= 0.0:
        return 1.0
    high = 1e-12
    while excess(high) > 0.0:
        high *= 4.0
    return math.exp(float(brentq(excess, 0.0, high, xtol=1e-18)))
