"""Chernoff's bound on a composition, from the moments of its losses: no lattice is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tacit._ground.checks import Array
from tacit.accounting.curves.composition import UPPER_TAIL, ComposedPart
from tacit.accounting.curves.curve import LARGEST_LOG, Curve
from tacit.accounting.curves.discretisation import loss_range

# Orders λ that are tried: from those of losses of 100 nats to those of losses of 1e-12.
ORDERS = np.geomspace(1e-2, 1e12, 160)
# Parts of the upper tail that are put at infinite loss, of all releases together; each is tried.
CUTS = (UPPER_TAIL, 1e-13, 1e-10, 1e-7, 1e-5)
# Cells of the integral: evenly in ln ε over so many decades up to a 64th of the range, even beyond.
DECADES, NEAR_POINTS, FAR_POINTS, NEAR_SHARE = 12, 1024, 4096, 1 / 64
# Of a logarithm, absolute and relative: more than the roundings of a sum of 5,000 terms and of
# exponents that are products of two numbers.
ROUNDING = 1e-9
# Of λ ε and of λ ln λ, relative: five and fifty units in the last place.
EXPONENT_ROUNDING, LOG_ROUNDING = 1e-15, 1e-14
# Below any mass that counts, above what has no digits.
TINY = 1e-300
# Curves whose moments are kept: those of one composition, for every cut.
KEPT = 32


def cap_by_moments(curve: Curve, parts: Sequence[ComposedPart]) -> Curve:
    """Return the smaller of a curve and Chernoff's bound of a composition, for ε >= 0, rounded up.

    δ(ε) <= p_∞ + min_λ exp(Σ n K(λ) − λε) λ^λ/(1 + λ)^{1 + λ}, the least over what part of the
    upper tail of one loss is counted in p_∞: a sum of rare large losses is the largest of them.
    """
    # each release may lose its share of a cut
    releases = sum(part.count for part in parts)
    bounds = [_lines(parts, cut / releases) for cut in CUTS]

    def least(epsilon: Array) -> Array:
        values = np.array(curve(epsilon))
        some = (epsilon >= 0) & (epsilon < math.inf)
        points = epsilon[some]
        bound = np.ones(points.shape)
        for orders, logs, infinite in bounds:
            # the least exponent ln c_λ + Σ n K(λ) − λε; λε is rounded down by what it rounds
            best = np.zeros(points.shape)
            for order, log in zip(orders, logs, strict=True):
                best = np.minimum(best, log - order * points * (1 - EXPONENT_ROUNDING))
            with np.errstate(under="ignore"):
                bound = np.minimum(bound, (np.exp(best) + infinite) * (1 + ROUNDING))
        values[some] = np.minimum(values[some], bound)
        return values

    return least


def _lines(parts: Sequence[ComposedPart], tail: float) -> tuple[Array, Array, float]:
    """The useful orders λ, their exponents at ε = 0, rounded up, and p_∞, for one cut."""
    # 1 − e^{−t} <= λ^λ (1 + λ)^{−1−λ} e^{λt} for every t > 0 and λ > 0: its logarithm
    logs = np.log(ORDERS) * ORDERS - (1 + ORDERS) * np.log1p(ORDERS)
    logs += ROUNDING + LOG_ROUNDING * ORDERS * np.log1p(ORDERS)
    infinite = 0.0
    for part in parts:
        # the moments of finite losses multiply; what was put at infinity adds up
        cumulants, lost = log_moments(part.forward, part.backward, tail)
        logs = logs + part.count * cumulants
        infinite += part.count * lost
    useful = np.isfinite(logs)
    return ORDERS[useful], logs[useful], infinite


@lru_cache(maxsize=KEPT)
def log_moments(forward: Curve, backward: Curve, tail: float) -> tuple[Array, float]:
    """Return ln E_P e^{λL} over finite losses at `ORDERS`, rounded up, and the mass of the others.

    E_P e^{λL} = 1 + λ(λ + 1) ∫ (e^{λε} δ(ε) + e^{−(λ+1)ε} δ'(ε)) dε over ε >= 0, for decreasing δ
    at most its value at the start of each cell. What the curve has left at the end E of the range
    is taken to be at infinite loss: δ(ε) − δ(E) remains.
    """
    # the upper end is where the tail is cut; below the lower one e^{−(λ+1)ε} is all that counts
    high = loss_range(forward, backward, tail)[1]
    low = loss_range(forward, backward, UPPER_TAIL)[0]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        above, lost = _cells(forward, high)
        below, rest = _cells(backward, -low)
        # δ falls, so that its value at the start of a cell is above it in the cell
        upper = _log_integral(above, np.maximum(above[1] - lost, 0.0), ORDERS)
        lower = _log_integral(below, below[1], -ORDERS - 1)
        # below the range δ' is at most its last value r: ∫ e^{−(λ+1)ε} r dε = r e^{(λ+1)low}/(λ+1)
        ending = math.log(max(rest, TINY)) + (ORDERS + 1) * low - np.log1p(ORDERS)
        total = np.logaddexp(np.logaddexp(upper, lower), ending)
        # 1 + λ(λ + 1) ∫: by its logarithm where it does not fit into a float
        logs = np.log(ORDERS) + np.log1p(ORDERS) + total + ROUNDING
        moments = np.where(
            logs < LARGEST_LOG, np.log1p(np.exp(np.minimum(logs, LARGEST_LOG))), logs + ROUNDING
        )
    return np.asarray(moments * (1 + ROUNDING)), lost


def _cells(curve: Curve, end: float) -> tuple[tuple[Array, Array], float]:
    """Edges of cells, an upper bound of the curve in each, and at the end."""
    if end <= 0:
        return (np.zeros(2), np.zeros(1)), float(curve(np.zeros(1))[0])
    near = np.geomspace(10.0**-DECADES, NEAR_SHARE, NEAR_POINTS)[:-1]
    edges = end * np.concatenate([[0.0], near, np.linspace(NEAR_SHARE, 1.0, FAR_POINTS)])
    # a bound that rises is replaced by the one before it, which holds further out too
    values = np.minimum.accumulate(curve(edges))
    return (edges, values[:-1]), float(values[-1])


def _log_integral(cells: tuple[Array, Array], values: Array, rates: Array) -> Array:
    """ln Σ v_j ∫ e^{rε} dε over the cells, for each r, to rounding."""
    edges = cells[0]
    widths = np.diff(edges)
    found = np.empty(rates.shape)
    for index, rate in enumerate(rates):
        # ∫ e^{rε} = e^{r max} (1 − e^{−|r|w})/|r|
        ends = edges[1:] if rate > 0 else edges[:-1]
        logs = np.log(values * (-np.expm1(-abs(rate) * widths) / abs(rate))) + rate * ends
        # about the largest term: e^{rε} of large r overflows
        shift = float(logs.max())
        found[index] = (
            shift + math.log(float(np.exp(logs - shift).sum())) if shift > -math.inf else shift
        )
    return found
