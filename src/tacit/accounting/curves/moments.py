"""Chernoff's bound on a composition, from the moments of its losses: no lattice is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tacit._ground.checks import Array
from tacit.accounting.curves.composition import UPPER_TAIL, Part
from tacit.accounting.curves.discretisation import Curve, loss_range

ORDERS = np.geomspace(1e-2, 1e12, 160)
CUTS = (UPPER_TAIL, 1e-13, 1e-10, 1e-7, 1e-5)  # of all releases together, put at infinite loss
DECADES, NEAR_POINTS, FAR_POINTS = 12, 1024, 4096
ROUNDING = 1e-9
LARGEST_LOG = 700.0


def capped(curve: Curve, parts: Sequence[Part]) -> Curve:
    """Return the smaller of a curve of the composition and Chernoff's bound, for ε >= 0.

    δ(ε) <= p_∞ + min_λ exp(Σ n K(λ) − λε) λ^λ/(1 + λ)^{1 + λ}, the least over what part of the
    upper tail of one loss is counted in p_∞: a sum of rare large losses is the largest of them.
    """
    releases = sum(part.count for part in parts)
    bounds = [_lines(parts, cut / releases) for cut in CUTS]

    def least(epsilon: Array) -> Array:
        values = np.array(curve(epsilon))
        some = (epsilon >= 0) & (epsilon < math.inf)
        points = epsilon[some]
        bound = np.ones(points.shape)
        for orders, logs, infinite in bounds:
            best = np.zeros(points.shape)
            for order, log in zip(orders, logs, strict=True):
                best = np.minimum(best, log - order * points * (1 - 1e-15))
            with np.errstate(under="ignore"):
                bound = np.minimum(bound, (np.exp(best) + infinite) * (1 + ROUNDING))
        values[some] = np.minimum(values[some], bound)
        return values

    return least


def _lines(parts: Sequence[Part], tail: float) -> tuple[Array, Array, float]:
    """The orders λ that say something, their logarithms at ε = 0, and p_∞, for one cut."""
    logs = np.log(ORDERS) * ORDERS - (1 + ORDERS) * np.log1p(ORDERS)
    logs += ROUNDING + 1e-14 * ORDERS * np.log1p(ORDERS)
    infinite = 0.0
    for part in parts:
        cumulants, lost = log_moments(part.forward, part.backward, tail)
        logs = logs + part.count * cumulants
        infinite += part.count * lost
    useful = np.isfinite(logs)
    return ORDERS[useful], logs[useful], infinite


@lru_cache(maxsize=32)
def log_moments(forward: Curve, backward: Curve, tail: float) -> tuple[Array, float]:
    """Return upper bounds of ln E_P e^{λL} over finite losses at `ORDERS`, and the rest.

    E_P e^{λL} = 1 + λ(λ + 1) ∫ (e^{λε} δ(ε) + e^{−(λ+1)ε} δ'(ε)) dε over ε >= 0, for decreasing δ
    at most its value at the start of each cell. What the curve has left at the end E of the range
    is taken to be at infinite loss: δ(ε) − δ(E) remains.
    """
    high = loss_range(forward, backward, tail)[1]
    low = loss_range(forward, backward, UPPER_TAIL)[0]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        above, lost = _cells(forward, high)
        below, rest = _cells(backward, -low)
        upper = _log_integral(above, np.maximum(above[1] - lost, 0.0), ORDERS)
        lower = _log_integral(below, below[1], -ORDERS - 1)
        ending = math.log(max(rest, 1e-300)) + (ORDERS + 1) * low - np.log1p(ORDERS)
        total = np.logaddexp(np.logaddexp(upper, lower), ending)
        logs = np.log(ORDERS) + np.log1p(ORDERS) + total + ROUNDING
        moments = np.where(
            logs < LARGEST_LOG, np.log1p(np.exp(np.minimum(logs, LARGEST_LOG))), logs + ROUNDING
        )
    return np.asarray(moments * (1 + ROUNDING)), lost


def _cells(curve: Curve, end: float) -> tuple[tuple[Array, Array], float]:
    """Edges, the curve at the start of each cell, and at the end."""
    if end <= 0:
        return (np.zeros(2), np.zeros(1)), float(curve(np.zeros(1))[0])
    near = np.geomspace(10.0**-DECADES, 1 / 64, NEAR_POINTS)[:-1]
    edges = end * np.concatenate([[0.0], near, np.linspace(1 / 64, 1.0, FAR_POINTS)])
    values = np.minimum.accumulate(curve(edges))
    return (edges, values[:-1]), float(values[-1])


def _log_integral(cells: tuple[Array, Array], values: Array, rates: Array) -> Array:
    """ln Σ v_j ∫ e^{rε} dε over the cells, for each r."""
    edges = cells[0]
    widths = np.diff(edges)
    found = np.empty(rates.shape)
    for index, rate in enumerate(rates):
        # ∫ e^{rε} = e^{r max} (1 − e^{−|r|w})/|r|
        ends = edges[1:] if rate > 0 else edges[:-1]
        logs = np.log(values * (-np.expm1(-abs(rate) * widths) / abs(rate))) + rate * ends
        shift = float(logs.max())
        found[index] = (
            shift + math.log(float(np.exp(logs - shift).sum())) if shift > -math.inf else shift
        )
    return found
