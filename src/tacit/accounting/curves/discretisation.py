"""From a privacy curve to point masses on a lattice of losses, never below the curve."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

Curve: TypeAlias = Callable[[Array], Array]

HIGHEST_EXPONENT = 40
LARGEST_LOSS = 2.0**HIGHEST_EXPONENT
FLOOR_SLACK = 1e-18
SEEN = 1e-40
COARSE_EXPONENTS = np.arange(-1000, HIGHEST_EXPONENT + 1, 20)
COARSE_GRID = np.concatenate([[0.0], 2.0**COARSE_EXPONENTS])
SEARCH_PARTS = 8
NEAR_GUESS = np.array([-1e-1, -1e-2, -1e-4, -1e-7, 0.0, 1e-7, 1e-4, 1e-2, 1e-1])
ROUNDS = 12
REACH_POINTS = 17
MEAN_POINTS, MEAN_DECADES = 73, 12


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

    @property
    def losses(self) -> Array:
        """The losses ℓ_j in nats, shape (n,)."""
        return np.asarray((self.first + np.arange(self.masses.size)) * self.step, dtype=np.float64)

    @property
    def total(self) -> float:
        """Σ p_j + p_∞."""
        return float(self.masses.sum()) + self.infinite

    @property
    def variance(self) -> float:
        """Variance of the finite losses, good for a choice only."""
        some = np.flatnonzero(self.masses > SEEN * self.masses.max())  # without slow subnormals
        if not some.size:
            return 0.0
        shares = self.masses[some] / self.masses[some].sum()
        centre = float((shares * some).sum())
        return self.step**2 * float((shares * (some - centre) ** 2).sum())

    @cached_property
    def _relative(self) -> Array:
        """R_j = Σ_{k >= j} p_k exp(ℓ_j − ℓ_k)."""
        # takes longer to import than all else that accounting needs
        from scipy.signal import lfilter

        decay = math.exp(-self.step)
        sums: Array = lfilter([1.0], [1.0, -decay], self.masses[::-1])[::-1]
        return sums

    @cached_property
    def _nodes(self) -> Array:
        """h(ℓ_j) = p_∞ + Σ_{k >= j} R_{k+1} (1 − exp(−step))."""
        rises = -math.expm1(-self.step) * self._relative[1:]
        sums = np.concatenate([np.cumsum(rises[::-1])[::-1], [0.0]])
        return np.asarray(self.infinite + sums)

    @property
    def rounding(self) -> float:
        """Relative error of the sums above, at most."""
        memory = min(self.masses.size, math.ceil(1 / self.step))
        return (4 * memory + self.masses.size + 16) * EPS

    def coarsened(self, factor: int) -> LossMasses:
        """Return masses on every ``factor``-th point of the lattice, whose curve is nowhere lower.

        Each mass goes to both neighbours, with Σ p and Σ p e^{−ℓ} kept: the curve between them is
        replaced by its chord in e^ε.
        """
        index = self.first + np.arange(self.masses.size)
        below = index // factor
        share = np.expm1(-self.step * (index - below * factor)) / math.expm1(-self.step * factor)
        first = int(below[0])
        size = int(below[-1]) - first + 2
        masses: Array = np.bincount(below - first, (1 - share) * self.masses, size).astype(
            np.float64
        )
        masses += np.bincount(below - first + 1, share * self.masses, size)
        return LossMasses(self.step * factor, first, masses * (1 + 16 * EPS), self.infinite)

    def curve(self, epsilon: Array) -> Array:
        """Return h at each ε, in closed form and rounded up; shape of ``epsilon``."""
        flat = np.asarray(epsilon, dtype=np.float64)
        last = self.masses.size - 1
        position = np.clip(np.ceil(flat / self.step) - self.first, 0, last).astype(np.int64)
        gap = np.minimum(flat - (self.first + position) * self.step, 0.0)
        value = self._nodes[position] - self._relative[position] * np.expm1(gap)
        return np.asarray(np.minimum(value * (1 + self.rounding), 1.0))


def guarded(name: str, curve: Curve) -> Curve:
    """Evaluate without warnings at the far ends, clip to [0, 1] and refuse NaN."""

    def evaluate(epsilon: Array) -> Array:
        points = np.asarray(epsilon, dtype=np.float64)
        with np.errstate(all="ignore"):
            values = np.broadcast_to(np.asarray(curve(points), dtype=np.float64), points.shape)
        lost = np.isnan(values)
        if lost.any():
            raise ValueError(f"{name}: expected numbers, got NaN at epsilon {points[lost].flat[0]}")
        return np.clip(values, 0.0, 1.0)

    return evaluate


def smallest_epsilon(curve: Curve, target: float) -> float:
    """Return the upper end of a bracket of the smallest ε >= 0 where a curve is <= ``target``."""
    low, high = _bracket(lambda points: curve(points) <= target, curve(COARSE_GRID) <= target)
    if not 0 < high < math.inf:
        return high
    values = curve(np.array([low, high]))
    while high - low > 4 * EPS * high:
        points = _probes(low, high, values, target)
        found = curve(points)
        # the last of the bracket is within
        index = int(np.argmax(np.append(found <= target, True)))
        ends = np.concatenate([[low], points, [high]])
        values = np.concatenate([values[:1], found, values[1:]])[index : index + 2]
        low, high = float(ends[index]), float(ends[index + 1])
    return high


def _bracket(
    within: Callable[[Array], npt.NDArray[np.bool_]], inside: npt.NDArray[np.bool_]
) -> tuple[float, float]:
    """Ends low < high, 0 or a power of two, with low outside and high within; (inf, inf) if none.

    What ``inside`` says of the coarse grid is refined; beyond a point within all are.
    """
    if not inside.any():
        return math.inf, math.inf
    index = int(np.argmax(inside))
    if index <= 1:
        return 0.0, float(COARSE_GRID[index])
    finer = 2.0 ** np.arange(COARSE_EXPONENTS[index - 2], COARSE_EXPONENTS[index - 1] + 1.0)
    index = int(np.argmax(np.concatenate([[False], within(finer[1:-1]), [True]])))
    return float(finer[index - 1]), float(finer[index])


def _probes(low: float, high: float, values: Array, target: float) -> Array:
    """Points inside a bracket: even parts of it, and many near where ln δ, a line, would cross."""
    points = np.linspace(low, high, SEARCH_PARTS + 1)
    if target > 0 and values[1] > 0:
        fall = math.log(values[0]) - math.log(values[1])
        share = (math.log(values[0]) - math.log(target)) / fall if fall > 0 else 0.5
        points = np.concatenate([points, low + (high - low) * (share + NEAR_GUESS)])
    points = np.unique(points)
    inside = points[(points > low) & (points < high)]
    return inside if inside.size else np.array([low + (high - low) / 2])


def discretise(
    forward: Curve, backward: Curve, step: float, tail: float, most: float = math.inf
) -> LossMasses:
    """Return masses on the lattice of ``step`` whose curve is at least ``forward`` everywhere.

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
    lowest, highest = loss_range(forward, backward, tail)
    lowest, highest = max(lowest, -most), min(highest, most)
    first, last = math.floor(lowest / step), math.ceil(highest / step)
    epsilons = np.arange(first, last + 1).astype(np.float64) * step
    below = epsilons < 0
    # over 1 − e^ε for ε < 0, where the curve itself is 1 up to rounding
    excess = np.empty_like(epsilons)
    excess[below] = np.exp(epsilons[below]) * backward(-epsilons[below])
    excess[~below] = forward(epsilons[~below])
    low, high = _domains(epsilons, excess, int(below.sum()))
    kept = _convex_minorant(epsilons, low, high)
    masses = np.zeros_like(epsilons)
    masses[kept] = np.maximum(_bends(epsilons[kept], low[kept], high[kept]), 0.0)
    bare = LossMasses(step, first, masses, float(high[kept][-1]))
    return _lifted(bare, high[kept], kept)


@lru_cache(maxsize=32)
def loss_range(forward: Curve, backward: Curve, tail: float) -> tuple[float, float]:
    """Return losses beyond which the curves are within ``tail`` of their limits."""
    return -_reach(backward, tail, dual=True), _reach(forward, tail, dual=False)


def _reach(curve: Curve, tail: float, *, dual: bool) -> float:
    """Where the curve, or e^{−ε} times it, is within ``tail`` of its limit; little beyond."""

    def value(points: Array) -> Array:
        return curve(points) * np.exp(-points) if dual else curve(points)

    coarse = _on_grid(curve) * np.exp(-COARSE_GRID) if dual else _on_grid(curve)
    limit = float(coarse.min())
    bound = limit + max(tail, min(1e-3 * limit, FLOOR_SLACK))
    low, high = _bracket(lambda points: value(points) <= bound, coarse <= bound)
    if not 0 < high < math.inf:
        return min(high, LARGEST_LOSS)
    points = np.linspace(low, high, REACH_POINTS)[1:]
    within = value(points) <= bound
    within[-1] = True
    return float(points[int(np.argmax(within))])


@lru_cache(maxsize=32)
def _on_grid(curve: Curve) -> Array:
    return curve(COARSE_GRID)


@lru_cache(maxsize=32)
def mean_loss(forward: Curve, backward: Curve, tail: float) -> float:
    """E_P L = ∫ (δ(ε) + e^{−ε} δ'(ε)) dε over ε >= 0, to a few per cent: good for a choice only.

    δ' is the curve of the other direction. For small losses it is half their variance.
    """
    low, high = loss_range(forward, backward, tail)
    if high == low:
        return 0.0
    points = max(high, -low) * np.geomspace(10.0**-MEAN_DECADES, 1.0, MEAN_POINTS)
    points = np.concatenate([[0.0], points])
    values = forward(points) + np.exp(-points) * backward(points)
    return float(np.sum(np.diff(points) * (values[1:] + values[:-1])) / 2)


def _domains(epsilons: Array, excess: Array, split: int) -> tuple[Array, Array]:
    """The values over max(1 − e^ε, 0) as values over 1 − e^ε and as values over 0."""
    # from ε = 0 on the first is without its e^ε − 1, which `_after` adds
    low, high = excess.copy(), excess.copy()
    high[:split] -= np.expm1(epsilons[:split])
    return low, high


def _after(rise: float, gap: float, here: float, *, crosses: bool) -> float:
    """x_j · slope of the piece after ε_j; (e^{ε_k} − 1)/(e^gap − 1) is added where it crosses 0."""
    growth = math.expm1(min(gap, 700.0))
    if not crosses:
        return rise / growth
    there = here + gap
    if there < 1:
        return (rise + math.expm1(there)) / growth
    # e^{ε_k}/(e^gap − 1) without overflow
    return (rise - 1) / growth + math.exp(here) / -math.expm1(-gap)


def _bends(epsilons: Array, low: Array, high: Array) -> Array:
    """p_j = x_j (slope after − slope before) of the piecewise linear curve in x = e^ε.

    Over 1 − x for ε < 0 and over 0 for ε >= 0, which is where each is accurate.
    """
    gaps = np.diff(epsilons)
    growth, decay = np.expm1(np.minimum(gaps, 700.0)), -np.expm1(-gaps)

    def change(values: Array, limit: float, last: float) -> Array:
        rises = np.diff(values)
        after, before = rises / growth, rises / decay
        return np.asarray(np.append(after, last) - np.append(values[0] - limit, before))

    below = change(low, 0.0, math.exp(min(float(epsilons[-1]), 0.0)))
    above = change(high, 1.0, 0.0)
    last = int((epsilons < 0).sum()) - 1
    if 0 <= last < gaps.size:
        rise, gap, here = (float(v[last]) for v in (np.diff(low), gaps, epsilons))
        below[last] += _after(rise, gap, here, crosses=True) - rise / float(growth[last])
    return np.asarray(np.where(epsilons < 0, below, above))


def _convex_minorant(epsilons: Array, low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Mark the lattice points on the convex minorant in e^ε.

    A point above the chord of two others is not on it, whichever others are dropped with it: a few
    rounds over the whole array leave little for the pass that finishes.
    """
    points = np.arange(epsilons.size)
    for _ in range(ROUNDS):
        concave = _bends(epsilons[points], low[points], high[points]) < 0
        if not concave.any() or concave.all():
            break
        points = points[~concave]
    kept = np.zeros(epsilons.size, dtype=np.bool_)
    kept[points[_monotone_chain(epsilons[points], low[points], high[points])]] = True
    return kept


def _monotone_chain(epsilons: Array, low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Mark the points on the convex minorant in e^ε, one pass from the left."""
    kept = np.ones(epsilons.size, dtype=np.bool_)
    bent = np.flatnonzero(_bends(epsilons, low, high) < 0)
    if not bent.size:
        return kept
    points, below, above = epsilons.tolist(), low.tolist(), high.tolist()

    def concave(before: int | None, here: int, after: int | None) -> bool:
        values, limit = (below, 0.0) if points[here] < 0 else (above, 1.0)
        slope = float(values[here] - limit)
        if before is not None:
            gap = points[here] - points[before]
            slope = (values[here] - values[before]) / -math.expm1(-gap)
        if after is None:
            return slope > (math.exp(points[here]) if points[here] < 0 else 0.0)
        rise, gap = values[after] - values[here], points[after] - points[here]
        crosses = points[here] < 0 <= points[after]
        return _after(rise, gap, points[here], crosses=crosses) < slope

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


def _lifted(bare: LossMasses, values: Array, kept: npt.NDArray[np.bool_]) -> LossMasses:
    """Scale the masses until the curve through them is above ``values``, and starts at 1."""
    nodes = bare._nodes[kept]
    seen = values > 1e-290
    ratio = float(np.max(values[seen] / nodes[seen], initial=1.0))
    scale = max(ratio, 1 / bare.total) * (1 + 2 * bare.rounding)
    return LossMasses(bare.step, bare.first, bare.masses * scale, bare.infinite * scale)
