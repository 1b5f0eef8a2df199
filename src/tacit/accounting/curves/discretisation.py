"""From a privacy curve to its losses: point masses on a lattice, never below it, and moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import (
    COARSE_GRID,
    LARGEST_LOG,
    LARGEST_LOSS,
    TINY,
    Curve,
    brackets,
)

# A range of losses ends where a curve is within the tail allowed of its limit, or within this: a
# thousandth of the limit, and no more than a δ that nobody asks for. A lattice twice as long for
# the last digits of a mass at infinity would be coarser everywhere else.
LIMIT_SHARE, FLOOR_SLACK = 1e-3, 1e-18
# Masses this much smaller than the largest move no variance, and are slow to multiply.
SEEN = 1e-40
# A few units in the last place for each mass that is split in two: a subtraction, two expm1.
SPLIT_UNITS = 16
# Rounds over all lattice points before the pass that finishes, which goes point by point.
ROUNDS = 12
# Where a range ends: a power of two found first, then one of so many parts of the last doubling.
REACH_POINTS = 17
# Nodes of an integral that a few per cent suffice for, evenly in ln ε over so many decades.
MEAN_POINTS, MEAN_DECADES = 73, 12
# Curves whose values and ranges are kept: the few of one composition, asked for again and again.
KEPT = 32
# Below it a ratio of curves is one of subnormals, which have no digits.
LEAST_WITH_DIGITS = 1e-290
# Orders λ of moments: from those of losses of 100 nats to those of losses of 1e-12.
ORDERS = np.geomspace(1e-2, 1e12, 160)
# Cells of their integral: even in ln ε over so many decades up to a 64th of the range, even in ε
# beyond.
CELL_DECADES, NEAR_POINTS, FAR_POINTS, NEAR_SHARE = 12, 1024, 4096, 1 / 64
# Of the logarithm of a moment, absolute and relative: more than the roundings of a sum of 5,000
# terms and of exponents that are products of two numbers.
MOMENT_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LossMasses:
    """Point masses p_j at the losses ℓ_j = (first + j)·step, and a mass at infinite loss.

    The hockey-stick curve h(ε) = p_∞ + Σ p_j max(1 − exp(ε − ℓ_j), 0) is at least the one of the
    pair it stands for. The masses may add up to slightly more than one: dominance of h is all
    that composition needs.

    Args:
        step: Distance of neighbouring losses, in nats.
        first: Index of the lowest loss.
        masses: p_j >= 0, shape (n,).
        infinite: p_∞ >= 0.
    """

    step: float
    first: int
    masses: Array
    infinite: float

    @cached_property
    def losses(self) -> Array:
        """The losses ℓ_j in nats, shape (n,), to rounding."""
        return np.asarray((self.first + np.arange(self.masses.size)) * self.step, dtype=np.float64)

    @property
    def total(self) -> float:
        """Σ p_j + p_∞, to rounding."""
        return float(self.masses.sum()) + self.infinite

    @cached_property
    def variance(self) -> float:
        """Variance of the finite losses, good for a choice only."""
        some = np.flatnonzero(self.masses > SEEN * self.masses.max())
        if not some.size:
            return 0.0
        # in units of the step, about the centre: Σ p ℓ² − (Σ p ℓ)² would cancel
        shares = self.masses[some] / self.masses[some].sum()
        centre = float((shares * some).sum())
        return self.step**2 * float((shares * (some - centre) ** 2).sum())

    @cached_property
    def _relative(self) -> Array:
        """R_j = Σ_{k >= j} p_k exp(ℓ_j − ℓ_k), to rounding by ``self.rounding`` at most."""
        # takes longer to import than all else that accounting needs
        from scipy.signal import lfilter

        # R_j = p_j + e^{−step} R_{j+1}: from the top down, so that no exponential overflows
        decay = math.exp(-self.step)
        sums: Array = lfilter([1.0], [1.0, -decay], self.masses[::-1])[::-1]
        return sums

    @cached_property
    def _nodes(self) -> Array:
        """h(ℓ_j) = p_∞ + Σ_{k >= j} R_{k+1} (1 − exp(−step)), to rounding as R."""
        # h rises by R_{j+1}(1 − e^{−step}) from one dot to the one before: a sum of positive terms
        rises = -math.expm1(-self.step) * self._relative[1:]
        sums = np.concatenate([np.cumsum(rises[::-1])[::-1], [0.0]])
        return np.asarray(self.infinite + sums)

    @cached_property
    def rounding(self) -> float:
        """Relative error of ``_relative`` and ``_nodes``, at most."""
        # a term of R lives for 1/step points, at four roundings each; then a sum of all
        memory = min(self.masses.size, math.ceil(1 / self.step))
        return (4 * memory + self.masses.size + 16) * EPS

    def coarsen(self, factor: int) -> LossMasses:
        """Return masses on every ``factor``-th point of the lattice, whose curve is nowhere lower.

        Each mass goes to both neighbours, with Σ p and Σ p e^{−ℓ} kept: the curve between them is
        replaced by its chord in e^ε.
        """
        # ℓ lies between a and b = a + factor·step: the share s of b is that for which
        # e^{−ℓ} = (1 − s) e^{−a} + s e^{−b}
        index = self.first + np.arange(self.masses.size)
        below = index // factor
        share = np.expm1(-self.step * (index - below * factor)) / math.expm1(-self.step * factor)
        first = int(below[0])
        size = int(below[-1]) - first + 2
        # both shares are in [0, 1] and nothing cancels; raised by their rounding
        masses: Array = np.bincount(below - first, (1 - share) * self.masses, size).astype(
            np.float64
        )
        masses += np.bincount(below - first + 1, share * self.masses, size)
        masses *= 1 + SPLIT_UNITS * EPS
        return LossMasses(self.step * factor, first, masses, self.infinite)

    def curve(self, epsilon: Array) -> Array:
        """Return h at each ε, in closed form and rounded up; shape of ``epsilon``."""
        # the first dot at or above ε; beyond the last h is p_∞, which the last node holds
        flat = np.asarray(epsilon, dtype=np.float64)
        last = self.masses.size - 1
        position = np.clip(np.ceil(flat / self.step) - self.first, 0, last).astype(np.int64)
        # between two dots h is linear in e^ε, h(ε) = h(ℓ) + R (1 − e^{ε − ℓ}); below the first one
        # it is the line through (x, h) = (0, 1)
        gap = np.minimum(flat - (self.first + position) * self.step, 0.0)
        value = self._nodes[position] - self._relative[position] * np.expm1(gap)
        return np.asarray(np.minimum(value * (1 + self.rounding), 1.0))


def discretise(
    forward: Curve, backward: Curve, step: float, tail: float, most: float = math.inf
) -> LossMasses:
    """Return masses, rounded up: their curve on the lattice of ``step`` is at least ``forward``.

    The values of the curve at the lattice points, their convex minorant in e^ε, and the masses
    of the piecewise linear curve through it ("connecting the dots").

    Args:
        forward: Upper bound of H_{e^ε}(P‖Q).
        backward: Upper bound of H_{e^ε}(Q‖P).
        step: Lattice step in nats.
        tail: Mass that may be moved to infinite loss, or up to the lowest loss.
        most: Losses above it are moved to infinite loss, those below −most up to it.

    Returns:
        The masses of the loss under P.

    Source: Doroshenko et al. (2022), Algorithm 1; duality δ(ε) = 1 − e^ε (1 − δ'(−ε)).
    """
    # outside this range the curve is near its limits, which the first and the last mass take over
    ((lowest, highest),) = loss_ranges(forward, backward, (tail,))
    lowest, highest = max(lowest, -most), min(highest, most)
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    epsilons = np.arange(first, last + 1).astype(np.float64) * step
    below = epsilons < 0
    # for ε < 0 δ is 1 up to rounding: δ(ε) − (1 − e^ε) = e^ε δ'(−ε) keeps its digits, and is kept
    excess = np.empty_like(epsilons)
    excess[below] = np.exp(epsilons[below]) * backward(-epsilons[below])
    excess[~below] = forward(epsilons[~below])
    # the values over 1 − e^ε, and over 0; from ε = 0 on the first lack e^ε − 1, which `_after` adds
    low, high = excess, excess.copy()
    high[below] -= np.expm1(epsilons[below])
    # connect the dots: δ is convex in e^ε, so it lies below its own chords, and below the convex
    # minorant of upper bounds; dots above the minorant are dropped, a bound that is tighter for it
    kept = convex_minorant(epsilons, low, high)
    # a piecewise linear h has the masses of its bends; a bend < 0 is rounding of a straight line
    masses = np.zeros_like(epsilons)
    masses[kept] = np.maximum(_bends(epsilons[kept], low[kept], high[kept]), 0.0)
    # beyond the last dot h stays what it is there: that is the mass at infinite loss
    bare = LossMasses(step, first, masses, float(high[kept][-1]))
    return _lift(bare, high[kept], kept)


@dataclass(frozen=True, eq=False)
class ComposedPart:
    """One direction of a profile, and how often it enters a composition.

    Args:
        forward: Its curve.
        backward: The curve of the other direction.
        count: How many releases it stands for.
    """

    forward: Curve
    backward: Curve
    count: int

    @property
    def symmetric(self) -> bool:
        """Whether the two directions have the same curve."""
        return self.forward is self.backward

    def worse(self, points: Array) -> Array:
        """The larger of both directions at each ε, rounded up as the curves are."""
        values = self.forward(points)
        return values if self.symmetric else np.maximum(values, self.backward(points))

    @property
    def reversed(self) -> ComposedPart:
        """The other direction."""
        return ComposedPart(self.backward, self.forward, self.count)

    def on(self, step: float, tail: float, most: float = math.inf) -> LossMasses:
        """Return its losses on the lattice of ``step``, rounded up; above ``most`` infinite."""
        return discretise(self.forward, self.backward, step, tail, most)


@lru_cache(maxsize=KEPT)
def loss_ranges(
    forward: Curve, backward: Curve, tails: tuple[float, ...]
) -> tuple[tuple[float, float], ...]:
    """Return the range of losses, rounded outwards, for each of some tails."""
    # a low loss of (P, Q) is a high one of (Q, P), and counts e^{−ε} as much under P
    low, high = _reaches(backward, tails, dual=True), _reaches(forward, tails, dual=False)
    return tuple(zip((-low).tolist(), high.tolist(), strict=True))


def _reaches(curve: Curve, tails: Sequence[float], *, dual: bool) -> Array:
    """Where the curve, or e^{−ε} times it, is within each tail of its limit, rounded up."""

    def value(points: Array) -> Array:
        return curve(points) * np.exp(-points) if dual else curve(points)

    coarse = _on_grid(curve) * np.exp(-COARSE_GRID) if dual else _on_grid(curve)
    # the limit is what is left at 2^40
    limit = float(coarse.min())
    bounds = limit + np.maximum(tails, min(LIMIT_SHARE * limit, FLOOR_SLACK))
    # a power of two, and the first of 16 points below it that is within: at most 6% beyond
    low, high = brackets(value, coarse, bounds)
    reached = np.minimum(high, LARGEST_LOSS)
    some = np.flatnonzero((high > 0) & (high < math.inf))
    if some.size:
        points = np.linspace(low[some], high[some], REACH_POINTS, axis=1)[:, 1:]
        within = value(points.ravel()).reshape(points.shape) <= bounds[some, None]
        within[:, -1] = True
        reached[some] = points[np.arange(some.size), within.argmax(axis=1)]
    return reached


@lru_cache(maxsize=KEPT)
def _on_grid(curve: Curve) -> Array:
    """The curve on the coarse grid, exactly, kept for the next lattice of the same curve."""
    return curve(COARSE_GRID)


@lru_cache(maxsize=KEPT)
def mean_loss(forward: Curve, backward: Curve, tail: float) -> float:
    """E_P L = ∫ (δ(ε) + e^{−ε} δ'(ε)) dε over ε >= 0, to a few per cent: good for a choice only.

    δ' is the curve of the other direction. For small losses it is half their variance.
    """
    ((low, high),) = loss_ranges(forward, backward, (tail,))
    if high == low:
        return 0.0
    # a loss far below the range counts as much as one near its end: nodes even in ln ε
    points = max(high, -low) * np.geomspace(10.0**-MEAN_DECADES, 1.0, MEAN_POINTS)
    points = np.concatenate([[0.0], points])
    values = forward(points) + np.exp(-points) * backward(points)
    # the trapezoidal rule
    return float(np.sum(np.diff(points) * (values[1:] + values[:-1])) / 2)


@lru_cache(maxsize=KEPT)
def log_moments(
    forward: Curve, backward: Curve, tails: tuple[float, ...]
) -> tuple[tuple[Array, float], ...]:
    """Return ln E_P e^{λL} over finite losses at `ORDERS`, rounded up, and the mass of the others.

    For each of some tails, the last of which is the one of the lower end:
    E_P e^{λL} = 1 + λ(λ + 1) ∫ (e^{λε} δ(ε) + e^{−(λ+1)ε} δ'(ε)) dε over ε >= 0, for decreasing δ
    at most its value at the start of each cell. What the curve has left at the end E of the range
    is taken to be at infinite loss: δ(ε) − δ(E) remains.
    """
    # the upper end is where a tail is cut; below the lower one e^{−(λ+1)ε} is all that counts
    ranges = loss_ranges(forward, backward, tails)
    low = ranges[-1][0]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        aboves, ends = _cells(forward, np.array([high for _, high in ranges[:-1]]))
        ((edges, values),), (rest,) = _cells(backward, np.array([-low]))
        lower = _log_integral(edges, values, -ORDERS - 1)
        # below the range δ' is at most its last value r: ∫ e^{−(λ+1)ε} r dε = r e^{(λ+1)low}/(λ+1)
        ending = math.log(max(rest, TINY)) + (ORDERS + 1) * low - np.log1p(ORDERS)
        found = []
        for (edges, values), lost in zip(aboves, ends, strict=True):
            # δ falls, so that its value at the start of a cell is above it in the cell
            upper = _log_integral(edges, np.maximum(values - lost, 0.0), ORDERS)
            total = np.logaddexp(np.logaddexp(upper, lower), ending)
            # 1 + λ(λ + 1) ∫: by its logarithm where it does not fit into a float
            logs = np.log(ORDERS) + np.log1p(ORDERS) + total + MOMENT_ROUNDING
            small = np.log1p(np.exp(np.minimum(logs, LARGEST_LOG)))
            moments = np.where(logs < LARGEST_LOG, small, logs + MOMENT_ROUNDING)
            found.append((np.asarray(moments * (1 + MOMENT_ROUNDING)), lost))
    return tuple(found)


def _cells(curve: Curve, ends: Array) -> tuple[list[tuple[Array, Array]], list[float]]:
    """Edges of cells up to each end, upper bounds of the curve in each, and at the end."""
    near = np.geomspace(10.0**-CELL_DECADES, NEAR_SHARE, NEAR_POINTS)[:-1]
    places = np.concatenate([[0.0], near, np.linspace(NEAR_SHARE, 1.0, FAR_POINTS)])
    edges = ends[:, None] * places
    # a bound that rises is replaced by the one before it, which holds further out too
    values = np.minimum.accumulate(curve(edges.ravel()).reshape(edges.shape), axis=1)
    return list(zip(edges, values[:, :-1], strict=True)), values[:, -1].tolist()


def _log_integral(edges: Array, values: Array, rates: Array) -> Array:
    """ln Σ v_j ∫ e^{rε} dε over the cells, for each r, to rounding."""
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


def _after(rise: float, gap: float, here: float, *, crosses: bool) -> float:
    """x_j · slope of the piece after ε_j, to rounding; it may run from ε_j < 0 to ε_k >= 0.

    Over 1 − e^ε the value at ε_k has e^{ε_k} − 1 added, which over 0 it has not.
    """
    # x_j · slope = rise · x_j/(x_k − x_j) = rise/(e^gap − 1)
    growth = math.expm1(min(gap, LARGEST_LOG))
    if not crosses:
        return rise / growth
    there = here + gap
    # (e^{ε_k} − 1)/(e^gap − 1) is added
    if there < 1:
        return (rise + math.expm1(there)) / growth
    # far out in two parts: −1/(e^gap − 1), and e^{ε_k}/(e^gap − 1) = e^{ε_j}/(1 − e^{−gap})
    return (rise - 1) / growth + math.exp(here) / -math.expm1(-gap)


def _bends(epsilons: Array, low: Array, high: Array) -> Array:
    """Masses p_j = x_j (slope after − slope before) of a curve linear in x = e^ε, to rounding.

    Over 1 − x for ε < 0 and over 0 for ε >= 0, which is where each is accurate.
    """
    gaps = np.diff(epsilons)
    # over x_j the pieces after and before it have the lengths e^gap − 1 and 1 − e^{−gap}
    growth, decay = np.expm1(np.minimum(gaps, LARGEST_LOG)), -np.expm1(-gaps)

    def change(values: Array, limit: float, last: float) -> Array:
        rises = np.diff(values)
        # below the first dot h is the chord from (x, h) = (0, 1), beyond the last one it is flat
        after, before = rises / growth, rises / decay
        return np.asarray(np.append(after, last) - np.append(values[0] - limit, before))

    # over 1 − x, a flat piece has slope 1 and x_j · 1 = e^{ε_j}; the chord from (0, 1) starts at 0
    below = change(low, 0.0, math.exp(min(float(epsilons[-1]), 0.0)))
    above = change(high, 1.0, 0.0)
    # the one piece from ε < 0 to ε >= 0 ends in a value over 0
    last = int((epsilons < 0).sum()) - 1
    if 0 <= last < gaps.size:
        rise, gap, here = (float(v[last]) for v in (np.diff(low), gaps, epsilons))
        below[last] += _after(rise, gap, here, crosses=True) - rise / float(growth[last])
    return np.asarray(np.where(epsilons < 0, below, above))


def convex_minorant(epsilons: Array, low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Mark the lattice points on the convex minorant in e^ε, good for a choice only: see `_lift`.

    A point above the chord of two others is not on it, whichever others are dropped with it: a few
    rounds over the whole array leave little for the pass that finishes.
    """
    points = np.arange(epsilons.size)
    for _ in range(ROUNDS):
        # all concave dots at once: each is above a chord of two others, which both are upper bounds
        concave = _bends(epsilons[points], low[points], high[points]) < 0
        if not concave.any() or concave.all():
            break
        points = points[~concave]
    kept = np.zeros(epsilons.size, dtype=np.bool_)
    kept[points[_monotone_chain(epsilons[points], low[points], high[points])]] = True
    return kept


def _monotone_chain(epsilons: Array, low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Mark the points on the convex minorant in e^ε, one pass from the left (Andrew's chain)."""
    kept = np.ones(epsilons.size, dtype=np.bool_)
    bent = np.flatnonzero(_bends(epsilons, low, high) < 0)
    if not bent.size:
        return kept
    # floats of Python: this loop is over the few hundred dots near a bend
    points, below, above = epsilons.tolist(), low.tolist(), high.tolist()

    def concave(before: int | None, here: int, after: int | None) -> bool:
        # as in `_bends`: each side of ε = 0 over what keeps its digits there
        values, limit = (below, 0.0) if points[here] < 0 else (above, 1.0)
        # x_j · slope before, from the chord of (0, 1) where nothing is before
        slope = float(values[here] - limit)
        if before is not None:
            gap = points[here] - points[before]
            slope = (values[here] - values[before]) / -math.expm1(-gap)
        # x_j · slope after the last dot: flat
        if after is None:
            return slope > (math.exp(points[here]) if points[here] < 0 else 0.0)
        rise, gap = values[after] - values[here], points[after] - points[here]
        crosses = points[here] < 0 <= points[after]
        return _after(rise, gap, points[here], crosses=crosses) < slope

    # before the first bend nothing is dropped; after the last, once nothing was, nothing will be
    start, done = int(bent[0]), int(bent[-1])
    hull = list(range(start + 1))
    for index in [*range(start + 1, epsilons.size), None]:
        size = len(hull)
        least = 1 if index is None else 0
        while len(hull) > least and concave(hull[-2] if len(hull) > 1 else None, hull[-1], index):
            hull.pop()
        if index is None:
            break
        if len(hull) == size and index > done + 1:
            hull.extend(range(index, epsilons.size))
            break
        hull.append(index)
    kept[:] = False
    kept[hull] = True
    return kept


def _lift(bare: LossMasses, values: Array, kept: npt.NDArray[np.bool_]) -> LossMasses:
    """Scale the masses, rounded up, until their curve is above ``values`` and its total is 1."""
    # rounding may leave the curve of the masses below a dot: all masses grow by the worst ratio
    nodes = bare._nodes[kept]
    seen = values > LEAST_WITH_DIGITS
    ratio = float(np.max(values[seen] / nodes[seen], initial=1.0))
    # and by the rounding of the sums just compared, once for each side of the ratio
    scale = max(ratio, 1 / bare.total) * (1 + 2 * bare.rounding)
    return LossMasses(bare.step, bare.first, bare.masses * scale, bare.infinite * scale)
