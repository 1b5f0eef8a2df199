"""E max(Σ W_i, 0) for W = e^{dz} − γ e^{−dz}: one record exchanged for another in a random step."""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.composition import Sum, tilted
from tacit.accounting.curves.discretisation import Curve, LossMasses
from tacit.accounting.mechanisms.averages import NODES, WEIGHTS, spread
from tacit.accounting.mechanisms.pairwise import expected_gain

NODES_OF_CURVE = 160
SMALLEST = 1e-14  # of the curve: beyond, another bound is used
FINE = 16  # lattice points in a standard deviation of a term: its square grows by 1/(6 · 16²)
MOST_POINTS = 2**16
BIN = 1 / 64
BEYOND = 7.7  # standard deviations of the noise; 7e-15 is lost
WINDOW = 10.0  # standard deviations of the tilted sum
NEGLIGIBLE = 1e-4
# Distances d, in the noise's standard deviation, whose tail an even lattice holds for any number of
# steps from 4, for more than a dozen, for none: other sums are added pair by pair, from values at
# steps of z as wide as this.
VERY_FEW, LIGHT, FEW, HEAVY, WIDE_BIN = 3, 0.75, 12, 1.1, 1 / 32
HEAVIEST = 8.0  # beyond, e^{dz} leaves the floats at the ε that matter
HALVINGS, TRIALS = 40, 400


def exchange_curve(distance: float, count: int, loose: Curve) -> Curve:
    """Return chords, convex in e^ε, between exact values of the curve, and ``loose`` elsewhere.

    Args:
        distance: d > 0.
        count: Number of steps n >= 2.
        loose: Another upper bound of the curve at ε >= 0.
    """
    if distance > HEAVIEST:
        return loose
    trials = np.geomspace(1e-9, 700.0, TRIALS)
    within = loose(trials) <= SMALLEST
    reach = float(trials[int(np.argmax(within))]) if within.any() else 700.0
    points = np.linspace(0.0, reach, NODES_OF_CURVE)
    ceilings = loose(points)
    values = np.array([_expected(distance, count, float(point)) for point in points])
    values = np.minimum(values, ceilings)

    def curve(epsilon: Array) -> Array:
        right = np.clip(np.searchsorted(points, epsilon), 1, points.size - 1)
        low, high = points[right - 1], points[right]
        ratio = np.expm1(np.minimum(epsilon, high) - low) / np.expm1(high - low)
        chord = values[right - 1] + np.clip(ratio, 0.0, 1.0) * (values[right] - values[right - 1])
        return np.asarray(np.minimum(chord * (1 + 16 * EPS), loose(epsilon)))

    return curve


def _expected(distance: float, count: int, epsilon: float) -> float:
    """E max((1/n) Σ (e^{dz − d²/2} − γ e^{−dz − d²/2}), 0), rounded up."""
    lost = float(ndtr(-BEYOND))
    if _pair_by_pair(distance, count):
        gain = expected_gain(*_values(distance, epsilon, WIDE_BIN), count)
        return min(gain / count * (1 + 4 * EPS) + lost, 1.0)
    values, weights = _values(distance, epsilon, BIN)
    tilt = _saddle(values, weights)
    terms = _terms(values, weights, count)
    total = Sum([(terms, count)])
    cumulants = total.cumulants(tilt)
    some = terms.masses > 0
    losses, masses = terms.losses[some], terms.masses[some]
    weights = np.exp(tilt * losses - cumulants[0]) * masses
    mean = float((weights * losses).sum() / weights.sum())
    deviation = math.sqrt(float((weights * (losses - mean) ** 2).sum()) * count)
    widest = count * max(-terms.first, terms.first + terms.masses.size)
    half = math.ceil((WINDOW * deviation + abs(mean) * count) / terms.step)
    while True:
        half = min(half, widest)
        value = _inside(total, tilt, cumulants, half)
        beyond = _beyond(total, tilt, half * terms.step) if half < widest else 0.0
        if beyond <= NEGLIGIBLE * value or half == widest or half > MOST_POINTS:
            return min((value + beyond) / count + lost, 1.0)
        half *= 4


def _pair_by_pair(distance: float, count: int) -> bool:
    return count <= VERY_FEW or distance > HEAVY or (count <= FEW and distance > LIGHT)


def _inside(total: Sum, tilt: float, cumulants: tuple[float, ...], half: int) -> float:
    """E[S; 0 < S <= ``half`` steps], with what wraps round the window, which only adds."""
    size = next_fast_len(2 * half + 1, real=True)
    entries, error = tilted(total.terms, tilt, cumulants, 1, size, half)
    sums = np.arange(1, half + 1) * total.terms[0][0].step
    cumulant = total.added(cumulants)
    with np.errstate(under="ignore"):
        gains = np.exp(cumulant - tilt * sums) * sums
    value = float(((np.maximum(entries, 0.0) + error) * gains).sum())
    return value * (1 + 8 * EPS * (8 + abs(cumulant) + tilt * float(sums[-1])))


def _values(distance: float, epsilon: float, width: float) -> tuple[Array, Array]:
    """Values of W at equal steps of z, and mean-preserving masses on them."""
    bins = math.ceil(2 * (BEYOND + distance) / width)
    edges = np.linspace(-BEYOND - distance, BEYOND + distance, bins + 1)
    with_record = np.exp(distance * edges - distance * distance / 2)
    with_other = np.exp(epsilon - distance * edges - distance * distance / 2)
    half = np.diff(edges)[:, None] / 2
    z = edges[:-1, None] + half * (NODES + 1)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * half * WEIGHTS
    # W(z) − W(z_low) and W(z_high) − W(z) as sums of positive parts
    left, right = distance * (z - edges[:-1, None]), distance * (edges[1:, None] - z)
    rise = _climb(with_record[:-1, None], with_other[:-1, None], left)
    fall = _climb(with_other[1:, None], with_record[1:, None], right)
    gaps = _climb(with_record[:-1, None], with_other[:-1, None], 2 * distance * half)
    masses = np.zeros(edges.size)
    masses[:-1] += (density * fall / gaps).sum(axis=1)
    masses[1:] += (density * rise / gaps).sum(axis=1)
    # a little higher than the difference, to cover its rounding
    slack = 8 * EPS * (1 + distance * (BEYOND + distance) + epsilon)
    values = with_record - with_other + slack * (with_record + with_other)
    # below the lowest point W is raised to it
    masses[0] += float(ndtr(edges[0]))
    return values, masses * (1 + 64 * EPS * (1 + distance * BEYOND))


def _climb(up: Array, down: Array, gap: Array) -> Array:
    """up (e^gap − 1) + down (1 − e^{−gap})."""
    return np.asarray(up * np.expm1(gap) - down * np.expm1(-gap))


def _terms(values: Array, masses: Array, count: int) -> LossMasses:
    """The masses spread on a lattice."""
    mean = float((values * masses).sum())
    deviation = math.sqrt(float((masses * (values - mean) ** 2).sum()))
    longest = max(WINDOW * deviation * math.sqrt(count), float(values[-1] - values[0]))
    step = max(deviation / FINE, 2 * longest / MOST_POINTS)
    first, last = math.floor(values[0] / step), math.ceil(values[-1] / step)
    lattice = np.arange(first, last + 1) * step
    shift = max(-float(lattice[0]), 0.0)
    return LossMasses(step, first, spread(lattice + shift, values + shift, masses), 0.0)


def _saddle(values: Array, masses: Array) -> float:
    """The tilt at which the mean is zero, at least 0."""
    low, high = 0.0, 600.0 / float(np.abs(values).max())

    def slope(tilt: float) -> float:
        return float((np.exp(tilt * values) * masses * values).sum())

    if slope(0.0) >= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


def _beyond(total: Sum, tilt: float, edge: float) -> float:
    """E[S; S > x] <= M(θ) e^{−θx} (x + 1/θ), by several tilts."""
    best = math.inf
    top = 600.0 / float(np.abs(total.terms[0][0].losses).max())
    for other in np.geomspace(max(tilt, 1e-6 * top), top, 8).tolist():
        exponent = total.cumulant(other) - other * edge
        best = min(best, math.exp(min(exponent, 700.0)) * (edge + 1 / other))
    return best * (1 + 1e-9)
