"""Averages of independent likelihood ratios, every rounding a mean-preserving spread.

A spread moves mass apart and keeps its mean, so E f grows for every convex f: both hockey-stick
curves E max(A − γ, 0) and E max(1 − γA, 0) of the ratio A do, and sums of spread ratios are spreads
of the sums. Products and sums are of non-negative numbers, so that tails keep relative precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import LARGEST_LOG
from tacit.divergences.shift import gaussian_curve

# Of the lattice: its step is about a 200th of a standard deviation.
POINTS = 4096
# Lattice points to one where a sum is far out anyway.
COARSER = 8
# Mass of the sum below and above the lattice, which ends where a tail is heavier after so many
# times two standard deviations, the quantiles of a normal law.
BELOW, ABOVE, WIDTHS = 1e-30, 1e-13, 8.0
QUANTILES = (0.023, 0.5, 0.977)
# Growth of the gaps beyond the lattice, and how many there are at most; of a quarter of so many
# points in two sums every fourth is kept.
GROWTH, MOST_FREE, THINNER = 1.01, 2048, 4
# Added to every mass, so that no product is subnormal, which is slow.
FLOOR = 1e-200
# Width of the cells of z, in standard deviations of the noise, and where z is cut: what is lower
# has a mass of 1.8e-33; of what is higher, all beyond the last value is infinite.
BIN, LOW, HIGH = 1 / 512, 12.0, 9.5
# More than the mass below, which goes to both of the lowest values.
LOWEST_MASS = 2e-33
# Total mass beyond 1 from which roundings may be more than a longer sum is worth.
RAISED = 1e-9
# Of a cell: a polynomial of degree 11 in z is exact.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)
# Units in the last place: of a value and a mass beside its exponent; of a level; of a spread mass;
# of the top of a grid. Steps that hold no two floats apart are refused.
RATIO_UNITS, LEVEL_UNITS, SPREAD_UNITS, TOP_UNITS, LEAST_STEP = 64, 4, 4, 8, 64
# Added to the number of terms of a sum, for the products beside it.
SUM_UNITS = 16
# Of each term of a convolution: one product, one sum, both half a unit.
TERM_UNITS = 2


@dataclass(frozen=True, eq=False)
class Points:
    """Masses at increasing points: a lattice, and free points below and above it.

    Args:
        grid: All points, shape (n,), increasing.
        masses: Their masses, shape (n,).
        first: Index of the first lattice point.
        last: Index of the last.
    """

    grid: Array
    masses: Array
    first: int
    last: int

    @property
    def step(self) -> float:
        """Distance of neighbouring lattice points, to rounding."""
        return float(self.grid[self.last] - self.grid[self.first]) / (self.last - self.first)

    @property
    def lattice(self) -> Array:
        """Masses of the lattice, rounded up."""
        return self.masses[self.first : self.last + 1]

    def free(self) -> tuple[Array, Array]:
        """Points outside the lattice and their masses, rounded up."""
        outside = np.r_[0 : self.first, self.last + 1 : self.grid.size]
        return self.grid[outside], self.masses[outside]

    @cached_property
    def coarse(self) -> tuple[Array, Array]:
        """The lattice spread on every eighth of its points, and the masses, rounded up."""
        points = self.grid[self.first : self.last + 1]
        kept = np.append(points[:-1:COARSER], points[-1])
        return kept, spread(kept, points, self.lattice)


@dataclass(frozen=True, eq=False)
class Average:
    """The distribution of an average A of likelihood ratios, E A = 1, and its two curves.

    Args:
        points: Values of A, shape (n,), increasing.
        masses: Their masses, shape (n,), rounded up.
        infinite: Bound of E A beyond the last value.
        drift: Relative rounding error of the values.
    """

    points: Array
    masses: Array
    infinite: float
    drift: float

    @cached_property
    def _above(self) -> tuple[Array, Array]:
        """Σ_{k >= j} p_k, and E max(A − a_j, 0), rounded up but for the sums' own rounding."""
        tails = np.cumsum(self.masses[::-1])[::-1]
        # E max(A − a, 0) = ∫_a P(A > x) dx: a step function, from the top down
        rises = np.append(tails[1:] * np.diff(self.points), 0.0)
        return tails, np.cumsum(rises[::-1])[::-1]

    @cached_property
    def _below(self) -> tuple[Array, Array]:
        """Σ_{k <= j} p_k, and E max(a_j − A, 0), rounded up but for the sums' own rounding."""
        heads = np.cumsum(self.masses)
        return heads, np.cumsum(np.append(0.0, heads[:-1] * np.diff(self.points)))

    @property
    def _rounding(self) -> float:
        """Relative error of the sums, at most: a product and an addition for each point, twice."""
        return 4 * (self.points.size + 4) * EPS

    def excess(self, epsilon: Array) -> Array:
        """E max(A − e^ε, 0) for ε >= 0, rounded up."""
        # γ down, by the drift of the values too
        level = np.exp(np.minimum(epsilon, LARGEST_LOG)) * (1 - LEVEL_UNITS * EPS)
        level /= 1 + self.drift
        tails, values = self._above
        # the first value at or above γ: E max(A − γ, 0) = E max(A − a, 0) + P(A >= a)(a − γ)
        right = np.searchsorted(self.points, level)
        inside = np.minimum(right, self.points.size - 1)
        gap = np.maximum(self.points[inside] - level, 0.0)
        value = np.where(right < self.points.size, values[inside] + tails[inside] * gap, 0.0)
        return np.asarray(value * (1 + self.drift) * (1 + self._rounding) + self.infinite)

    def shortfall(self, epsilon: Array) -> Array:
        """E max(1 − e^ε A, 0) for ε >= 0, rounded up."""
        # γ E max(1/γ − A, 0), with 1/γ up; what e^700 does not hold is 1 there anyway
        factor = np.exp(np.minimum(epsilon, LARGEST_LOG))
        level = (1 + LEVEL_UNITS * EPS) / factor / (1 - self.drift)
        heads, values = self._below
        # the last value at or below 1/γ
        left = np.searchsorted(self.points, level, side="right") - 1
        inside = np.maximum(left, 0)
        value = values[inside] + heads[inside] * np.maximum(level - self.points[inside], 0.0)
        value = np.where(left >= 0, value, 0.0)
        return np.asarray(np.minimum(value * factor * (1 + self._rounding), 1.0))


def gaussian_average(distance: float, count: int) -> Average:
    """Return A = (1/n) Σ exp(d z_i − d²/2), z_i ~ N(0, 1), as a law that spreads it: rounded up.

    Where n is too large for floats, that of fewer terms: A is their average given which are kept,
    so that fewer are a spread of more.

    Args:
        distance: d > 0.
        count: n >= 1.
    """
    values, masses = _ratio(distance)
    lone = _lone(values, masses)
    # the sum of 1, of 2 (+ 1), of 4 (+ 2, + 1) … terms: as the bits of n say
    total, levels, terms = lone, 1, 1
    for bit in f"{count:b}"[1:]:
        longer = add(total, total)
        if longer is not None and bit == "1":
            longer = add(longer, on_step(values, masses, longer.step))
        many = 2 * terms + int(bit)
        # A is the average of fewer terms given which are kept, so that fewer are a spread of more
        if longer is None or _worn(longer, many, total, terms):
            break
        total, levels, terms = longer, levels + 2, many
    # E[e^{dz − d²/2}; z > HIGH + d] = H_{e^top}: what a term has beyond the last value
    top = math.log(float(values[-1])) * (1 - TOP_UNITS * EPS) - TOP_UNITS * EPS
    return Average(
        points=total.grid / terms,
        masses=total.masses,
        infinite=float(gaussian_curve(np.array([top]), distance)[0]),
        drift=RATIO_UNITS * EPS * (levels + 1),
    )


def _worn(longer: Points, many: int, total: Points, terms: int) -> bool:
    """Whether rounding upwards has cost more than the longer sum gains in E max(A − 1, 0)."""

    def rise(law: Points, number: int) -> float:
        return float((law.masses * np.maximum(law.grid / number - 1, 0.0)).sum())

    return float(longer.masses.sum()) > 1 + RAISED and rise(longer, many) >= rise(total, terms)


def _ratio(distance: float) -> tuple[Array, Array]:
    """Points of exp(dz − d²/2) at equal steps of z, and masses that keep the mean, rounded up."""
    low, high = -LOW, HIGH + distance
    bins = math.ceil((high - low) / BIN)
    # Gauss's rule in each cell of z
    edges = np.linspace(low, high, bins + 1)
    half = np.diff(edges)[:, None] / 2
    z = edges[:-1, None] + half * (NODES + 1)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * half * WEIGHTS
    widths = distance * 2 * half
    # ∫ φ (y − y_low)/(y_high − y_low) and its complement, each as it is small
    rise = np.expm1(distance * (z - edges[:-1, None])) / np.expm1(widths)
    fall = np.expm1(-distance * (edges[1:, None] - z)) / np.expm1(-widths)
    masses = np.zeros(bins + 2)
    masses[1:-1] += (density * fall).sum(axis=1)
    masses[2:] += (density * rise).sum(axis=1)
    # what lies lower is between 0 and the first point, and may be at both; what lies higher is at
    # the last, and `gaussian_average` adds what it has beyond
    masses[:2] += LOWEST_MASS
    masses[-1] += float(ndtr(-high))
    values = np.append(0.0, np.exp(distance * edges - distance * distance / 2))
    return values, masses * (1 + RATIO_UNITS * EPS * (1 + distance * HIGH))


def add(first: Points, second: Points) -> Points | None:
    """Return the law of a sum of independent values, rounded up; None where no grid holds it."""
    # lattice to lattice: a convolution of masses > 0, each term of it rounded once
    step = first.step
    body = np.convolve(first.lattice, second.lattice)
    body *= 1 + TERM_UNITS * EPS * (min(first.lattice.size, second.lattice.size) + LEVEL_UNITS)
    start = first.grid[first.first] + second.grid[second.first]
    pieces = [(start + step * np.arange(body.size), body)]
    # what is off the lattice is added to a coarser lattice, and to what is off the other
    far, far_masses = first.free()
    if first is second:
        pieces.append(_outer((far, 2 * far_masses), first.coarse))
        other, other_masses = far, far_masses
    else:
        other, other_masses = second.free()
        pieces.append(_outer((far, far_masses), second.coarse))
        pieces.append(_outer((other, other_masses), first.coarse))
    pieces.append(_outer(_thin(far, far_masses), _thin(other, other_masses)))
    return place_on_lattice(pieces)


def _outer(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return all sums of two points and their masses, to rounding."""
    sums = first[0][:, None] + second[0]
    return sums.ravel(), (first[1][:, None] * second[1]).ravel()


def _thin(points: Array, masses: Array) -> tuple[Array, Array]:
    """Every fourth of many points beyond the first two, the masses spread on them, rounded up."""
    if points.size < MOST_FREE // THINNER:
        return points, masses
    kept = np.concatenate([points[:1], points[1:-1:THINNER], points[-1:]])
    return kept, spread(kept, points, masses)


def place_on_lattice(pieces: list[tuple[Array, Array]]) -> Points | None:
    """Spread masses, rounded up, on a lattice where most of the first piece is, free points beyond.

    None where the bulk of the first piece is no longer most of the mass, or narrower than floats.
    """
    points, masses = pieces[0]
    # the lattice covers what is within 8 widths, and no more than has mass
    sums = np.cumsum(masses)
    low, middle, high = np.interp(QUANTILES, sums / sums[-1], points)
    width = max(high - middle, middle - low)
    tails = np.cumsum(masses[::-1])[::-1]
    start = points[max(int(np.searchsorted(sums, BELOW)) - 1, 0)]
    end = points[min(int((tails > ABOVE).sum()), points.size - 1)]
    start, end = max(start, middle - WIDTHS * width, 0.0), min(end, middle + WIDTHS * width)
    if not end - start > LEAST_STEP * POINTS * EPS * end or not end > middle:
        return None
    top = max(float(piece[0].max(initial=0.0)) for piece in pieces) * (1 + TOP_UNITS * EPS)
    lattice = start + (end - start) / POINTS * np.arange(POINTS + 1)
    return _on(lattice, middle, top, pieces)


def _lone(values: Array, masses: Array) -> Points:
    """Return one ratio's law on a grid, rounded up; it raises where no float holds its spread."""
    law = place_on_lattice([(values, masses)])
    if law is None:
        raise ValueError(
            "noise_multiplier: expected noise at which one ratio has a spread in floats"
        )
    return law


def on_step(values: Array, masses: Array, step: float) -> Points:
    """Spread masses, rounded up, on a lattice of a given step, and on free points beyond."""
    rough = _lone(values, masses)
    start, end = rough.grid[rough.first], rough.grid[rough.last]
    count = max(math.ceil((end - start) / step), 1)
    lattice = start + step * np.arange(count + 1)
    top = float(max(values[-1], lattice[-1])) * (1 + TOP_UNITS * EPS)
    return _on(lattice, start, top, [(values, masses)])


def _on(lattice: Array, middle: float, top: float, pieces: list[tuple[Array, Array]]) -> Points:
    """Spread the pieces, rounded up, on a lattice, 0, and points beyond at growing gaps."""
    below = np.zeros(1 if lattice[0] > 0 else 0)
    reach, span = float(lattice[-1]) - middle, top - middle
    above = np.zeros(0)
    if top > lattice[-1]:
        count = min(math.ceil(math.log(span / reach) / math.log(GROWTH)), MOST_FREE)
        above = middle + np.geomspace(reach, span, max(count, 1) + 1)[1:]
        above[-1] = top
        above = above[above > lattice[-1]]
    grid = np.concatenate([below, lattice, above])
    total = np.full(grid.size, FLOOR)
    for points, masses in pieces:
        total += spread(grid, points, masses)
    first = below.size
    return Points(grid, total * (1 + TOP_UNITS * EPS), first, first + lattice.size - 1)


def spread(grid: Array, points: Array, masses: Array) -> Array:
    """Share each mass between the two grid points around it, with its mean, rounded up."""
    left = np.clip(np.searchsorted(grid, points, side="right") - 1, 0, grid.size - 2)
    low, high = grid[left], grid[left + 1]
    # shares (high − p)/gap and (p − low)/gap, each raised by what its difference rounds
    slack, gap = SPREAD_UNITS * EPS * points, (high - low) * (1 - SPREAD_UNITS * EPS)
    size = grid.size
    total = np.bincount(left, masses * np.maximum(high - points + slack, 0.0) / gap, size)
    total += np.bincount(left + 1, masses * np.maximum(points - low + slack, 0.0) / gap, size)
    return np.asarray(total * (1 + EPS * (points.size + SUM_UNITS)))
