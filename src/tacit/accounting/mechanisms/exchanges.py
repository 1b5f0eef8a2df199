"""E max(Σ W_i, 0) for W = e^{dz} − γ e^{−dz}: one record exchanged for another in a random step.

Of n steps with noise N(0, 1) one has the record at d, or the other record at −d. Relative to noise
alone the two releases have the densities (1/n) Σ e^{±d z_i − d²/2}, so that under noise alone
δ(ε) = E max((1/n) Σ W_i, 0) with W(z) = e^{dz − d²/2} − γ e^{−dz − d²/2}, which increases in z.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.composition import LossSum, convolve_tilted
from tacit.accounting.curves.curve import CHORD_UNITS, LARGEST_LOG, Curve, chords
from tacit.accounting.curves.discretisation import LossMasses
from tacit.accounting.mechanisms.averages import NODES, WEIGHTS, spread

# Points at which a curve is computed, evenly up to where it is below a δ that nobody asks for;
# beyond another bound is used, which is looked at on so many trial points, from these ε.
NODES_OF_CURVE, SMALLEST, TRIALS, TRIALS_FROM = 160, 1e-14, 400, 1e-9
# Lattice points in a standard deviation of a term: its square grows by 1/(6 · 16²).
FINE, MOST_POINTS = 16, 2**16
# Width of the cells of z, in standard deviations of the noise, and where z is cut: 7e-15 is lost.
BIN, WIDE_BIN, BEYOND = 1 / 64, 1 / 32, 7.7
# Half of the window, in standard deviations of the tilted sum, made wider by 4 until what Chernoff
# leaves outside is below this share of what is inside.
WINDOW, WIDER, NEGLIGIBLE = 10.0, 4, 1e-4
# Distances d, in the noise's standard deviation, whose tail an even lattice holds for any number of
# steps from 4, for more than a dozen, for none: other sums are added pair by pair.
VERY_FEW, LIGHT, FEW, HEAVY = 3, 0.75, 12, 1.1
# Beyond it e^{dz} leaves the floats at the ε that matter.
HEAVIEST = 8.0
# Of the tilt at which the mean is zero: halvings, and the exponent of the largest that is tried.
HALVINGS, LARGEST_EXPONENT = 40, 600.0
# Tilts by which a tail is bounded: any is sound, the least counts.
TILTS, LEAST_TILT = 8, 1e-6
# Units in the last place of a value of W beside its exponent; of a mass; of a sum of such; of a
# quotient.
VALUE_UNITS, MASS_UNITS, UNITS, MEAN_UNITS = 8, 64, 8, 4
# More than the roundings of a Chernoff bound.
SLACK = 1e-9
# Of values as small as this the grid is even, of larger ones geometric: gains are weighed against
# densities, and e^{-7} of a density is little.
SMALL = 1e-3
# Points of a sum of a few terms, of more, and of many: of a pair of sums all pairs are looked at.
POINTS = ((4, 1024), (64, 512), (2**62, 256))


def exchange_curve(distance: float, count: int, loose: Curve) -> Curve:
    """Return chords between values of the curve, and ``loose`` elsewhere, rounded up.

    Args:
        distance: d > 0.
        count: Number of steps n >= 2.
        loose: Another upper bound of the curve at ε >= 0.
    """
    if distance > HEAVIEST:
        return loose
    # exact values are needed where the other bound is not below all that matters
    trials = np.geomspace(TRIALS_FROM, LARGEST_LOG, TRIALS)
    within = loose(trials) <= SMALLEST
    reach = float(trials[int(np.argmax(within))]) if within.any() else LARGEST_LOG
    points = np.linspace(0.0, reach, NODES_OF_CURVE)
    ceilings = loose(points)
    values = np.array([_expected(distance, count, float(point)) for point in points])
    values = np.minimum(values, ceilings)

    return partial(_joined, points, values, loose)


def _joined(points: Array, values: Array, loose: Curve, epsilon: Array) -> Array:
    """The curve of `exchange_curve` at ε >= 0, rounded up."""
    # without a bow: twice the units of a chord
    joined = chords(points, values, epsilon)[0] * (1 + 2 * CHORD_UNITS * EPS)
    return np.minimum(joined, loose(epsilon))


def _expected(distance: float, count: int, epsilon: float) -> float:
    """E max((1/n) Σ (e^{dz − d²/2} − γ e^{−dz − d²/2}), 0), rounded up."""
    # each of the two sums is within BEYOND but for this
    lost = float(ndtr(-BEYOND))
    if _pair_by_pair(distance, count):
        gain = expected_gain(*_values(distance, epsilon, WIDE_BIN), count)
        return min(gain / count * (1 + MEAN_UNITS * EPS) + lost, 1.0)
    # else by Fourier transforms under a tilt at which the mean is 0: what matters is near 0
    values, weights = _values(distance, epsilon, BIN)
    tilt = _saddle(values, weights)
    terms = _terms(values, weights, count)
    total = LossSum([(terms, count)])
    cumulants = total.cumulants(tilt)
    # the tilted term's mean and deviation place the window, which may be any
    some = terms.masses > 0
    losses, masses = terms.losses[some], terms.masses[some]
    weights = np.exp(tilt * losses - cumulants[0][0]) * masses
    mean = float((weights * losses).sum() / weights.sum())
    deviation = math.sqrt(float((weights * (losses - mean) ** 2).sum()) * count)
    widest = count * max(-terms.first, terms.first + terms.masses.size)
    half = math.ceil((WINDOW * deviation + abs(mean) * count) / terms.step)
    # half of the window is what is summed, the rest takes what wraps round
    while True:
        half = min(half, widest)
        value = _inside(total, tilt, cumulants, half)
        beyond = _beyond(total, tilt, half * terms.step) if half < widest else 0.0
        if beyond <= NEGLIGIBLE * value or half == widest or half > MOST_POINTS:
            return min((value + beyond) / count + lost, 1.0)
        half *= WIDER


def _pair_by_pair(distance: float, count: int) -> bool:
    """Whether sums are added pair by pair: good for a choice only, both ways bound the mean."""
    return count <= VERY_FEW or distance > HEAVY or (count <= FEW and distance > LIGHT)


def _inside(
    total: LossSum, tilt: float, cumulants: tuple[tuple[float, ...], float], half: int
) -> float:
    """E[S; 0 < S <= ``half`` steps], at most: what wraps round the window only adds."""
    size = next_fast_len(2 * half + 1, real=True)
    each, cumulant = cumulants
    entries, error = convolve_tilted(total.terms, tilt, each, 1, size, half)
    sums = np.arange(1, half + 1) * total.terms[0][0].step
    with np.errstate(under="ignore"):
        # a tilted mass times e^{K − θs} s; its error is untilted with it
        gains = np.exp(cumulant - tilt * sums) * sums
    value = float(((np.maximum(entries, 0.0) + error) * gains).sum())
    return value * (1 + UNITS * EPS * (UNITS + abs(cumulant) + tilt * float(sums[-1])))


def _values(distance: float, epsilon: float, width: float) -> tuple[Array, Array]:
    """Values of W at equal steps of z, and mean-preserving masses on them, rounded up.

    A mean-preserving spread grows in convex order, and max(·, 0) is convex.
    """
    bins = math.ceil(2 * (BEYOND + distance) / width)
    edges = np.linspace(-BEYOND - distance, BEYOND + distance, bins + 1)
    # W at the edges, its two terms apart
    with_record = np.exp(distance * edges - distance * distance / 2)
    with_other = np.exp(epsilon - distance * edges - distance * distance / 2)
    half = np.diff(edges)[:, None] / 2
    # Gauss's rule in each cell
    z = edges[:-1, None] + half * (NODES + 1)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * half * WEIGHTS
    # a point of a cell goes to its ends by W(z) − W(z_low) and W(z_high) − W(z), sums of positive
    # parts
    left, right = distance * (z - edges[:-1, None]), distance * (edges[1:, None] - z)
    rise = _climb(with_record[:-1, None], with_other[:-1, None], left)
    fall = _climb(with_other[1:, None], with_record[1:, None], right)
    gaps = _climb(with_record[:-1, None], with_other[:-1, None], 2 * distance * half)
    masses = np.zeros(edges.size)
    masses[:-1] += (density * fall / gaps).sum(axis=1)
    masses[1:] += (density * rise / gaps).sum(axis=1)
    # a little higher than the difference, to cover its rounding
    slack = VALUE_UNITS * EPS * (1 + distance * (BEYOND + distance) + epsilon)
    values = with_record - with_other + slack * (with_record + with_other)
    # below the lowest point W is raised to it
    masses[0] += float(ndtr(edges[0]))
    return values, masses * (1 + MASS_UNITS * EPS * (1 + distance * BEYOND))


def _climb(up: Array, down: Array, gap: Array) -> Array:
    """up (e^gap − 1) + down (1 − e^{−gap}), to rounding: both parts are positive."""
    return np.asarray(up * np.expm1(gap) - down * np.expm1(-gap))


def _terms(values: Array, masses: Array, count: int) -> LossMasses:
    """The masses spread on a lattice, rounded up in convex order."""
    # a step of a 16th of the deviation of a term, or as fine as the window's points allow
    mean = float((values * masses).sum())
    deviation = math.sqrt(float((masses * (values - mean) ** 2).sum()))
    longest = max(WINDOW * deviation * math.sqrt(count), float(values[-1] - values[0]))
    step = max(deviation / FINE, 2 * longest / MOST_POINTS)
    first, last = math.floor(values[0] / step), math.ceil(values[-1] / step)
    # `spread` takes points >= 0
    lattice = np.arange(first, last + 1) * step
    shift = max(-float(lattice[0]), 0.0)
    return LossMasses(step, first, spread(lattice + shift, values + shift, masses), 0.0)


def _saddle(values: Array, masses: Array) -> float:
    """The tilt at which the mean is zero, at least 0: good for a choice only."""
    low, high = 0.0, LARGEST_EXPONENT / float(np.abs(values).max())

    def slope(tilt: float) -> float:
        return float((np.exp(tilt * values) * masses * values).sum())

    if slope(0.0) >= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


def _beyond(total: LossSum, tilt: float, edge: float) -> float:
    """E[S; S > x] <= M(θ) e^{−θx} (x + 1/θ), at most, by several tilts θ."""
    # s <= (x + 1/θ) e^u with u = θ(s − x) >= 0: (x + 1/θ)(1 + u) is at least x + u/θ = s
    best = math.inf
    top = LARGEST_EXPONENT / float(np.abs(total.terms[0][0].losses).max())
    for other in np.geomspace(max(tilt, LEAST_TILT * top), top, TILTS).tolist():
        exponent = total.cumulants(other)[1] - other * edge
        best = min(best, math.exp(min(exponent, LARGEST_LOG)) * (edge + 1 / other))
    return best * (1 + SLACK)


def expected_gain(values: Array, masses: Array, count: int) -> float:
    """Return E max(W_1 + … + W_n, 0), rounded up.

    The law of a half of the terms is added to that of the other half, pair of values by pair of
    values. Each sum is put on the two points of a grid beside it with its mean kept, which is
    larger in convex order, and max(·, 0) is convex. The last addition needs no grid.

    Args:
        values: (K,) of a term, ascending.
        masses: (K,) of the values, rounded up.
        count: n >= 2.
    """
    if values[-1] <= 0.0:
        return 0.0
    # a value so low that all other terms cannot make up for it counts as the lowest that matters
    lowest = -count * float(values[-1])
    below = int(np.searchsorted(values, lowest))
    if below:
        values = np.append(lowest, values[below:])
        masses = np.append(masses[:below].sum() * (1 + below * EPS), masses[below:])
    points = next(size for most, size in POINTS if count <= most)
    # of 1, 2, 4 … terms and what halving n needs
    laws = {1: (values, masses)}

    def law(terms: int) -> tuple[Array, Array]:
        if terms not in laws:
            half = terms // 2
            laws[terms] = _add(law(terms - half), law(half), lowest, points)
        return laws[terms]

    # no grid after the last addition: all pairs are looked at
    half = count // 2
    return _positive(law(count - half), law(half))


def _add(
    one: tuple[Array, Array], other: tuple[Array, Array], lowest: float, points: int
) -> tuple[Array, Array]:
    """Return the law of a sum of two, rounded up: on a grid, and larger in convex order."""
    (left, chances), (right, others) = one, other
    sums = np.add.outer(left, right)
    # raised by more than what adding, and the shares below, round
    sums += VALUE_UNITS * EPS * (np.add.outer(np.abs(left), np.abs(right)) + SMALL)
    np.maximum(sums, lowest, out=sums)
    sums, masses = sums.ravel(), np.multiply.outer(chances, others).ravel()
    # even below SMALL, geometric above: arcsinh is a logarithm of both signs
    first, last = np.arcsinh(np.array([sums.min(), sums.max()]) / SMALL)
    grid = SMALL * np.sinh(np.linspace(first, last, points))
    # rounding of sinh must not leave a sum outside
    grid[0], grid[-1] = min(grid[0], sums.min()), max(grid[-1], sums.max())
    place = (np.arcsinh(sums / SMALL) - first) * ((points - 1) / (last - first))
    place = np.clip(place.astype(np.int64), 0, points - 2)
    # arcsinh may round over a point
    place -= (sums < grid[place]) & (place > 0)
    place += (sums >= grid[place + 1]) & (place < points - 2)
    # the share of the upper point keeps the mean
    share = np.clip((sums - grid[place]) / (grid[place + 1] - grid[place]), 0.0, 1.0)
    upper = masses * share
    spread = np.bincount(place, masses - upper, points)
    spread += np.bincount(place + 1, upper, points)
    return grid, np.asarray(spread * (1 + (sums.size + 16) * EPS), dtype=np.float64)


def _positive(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """E max(V + W, 0) of two independent laws, rounded up, by sums from the top down."""
    (left, chances), (right, others) = one, other

    def above(weights: Array) -> Array:
        return np.append(np.cumsum(weights[::-1])[::-1], 0.0)

    # Σ q, Σ q w and Σ q |w| over the w > −v
    at = np.searchsorted(right, -left, side="right")
    mass, gain, size = (
        above(weights)[at] for weights in (others, others * right, others * abs(right))
    )
    # Σ_v p (v Σ q + Σ q w) over the pairs with v + w > 0
    gains = np.maximum(left * mass + gain, 0.0)
    # where v and w are of two signs they cancel: the rounding of either is added
    rounding = (right.size + 16) * EPS * (np.abs(left) * mass + size)
    return float((chances * (gains + rounding)).sum()) * (1 + (left.size + 16) * EPS)
