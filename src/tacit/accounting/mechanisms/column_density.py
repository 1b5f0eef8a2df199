"""The density of one secretly projected column with noise added, and nodes over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.ndimage import maximum_filter1d
from scipy.special import chdtri, gammaincinv, gammaln

from tacit._ground.checks import Array
from tacit.accounting.curves.curve import Index

# A scan of 17 points, narrowed 8 times by each of 5 zooms, finds a peak to 2^-15 of its range, and
# halvings a fall to 2^-14: both place nodes only.
SCAN, ZOOMS, HALVINGS = 17, 5, 14
# Of a logarithm below its peak: what is left out has mass e^-50 at most.
DEPTH = 55.0
# 96 nodes over a fall of e^-45 give G to 1e-10 where y is likely, to 2e-6 where e^-20 is left, on
# either side (tests hold it against 4·10^5 nodes).
LENGTH_NODES, LENGTH_DEPTH = 96, 45.0
# Nodes of R and θ: half of them are compared with all, and the difference is added to δ. A plane
# has no third coordinate to smooth the loss.
RADII, ANGLES, ANGLES_IN_A_PLANE = 128, 64, 1024
# One search of a span for so many columns; what is between takes the wider ends.
STRIDE = 8
# Rows at once, for the cache.
BLOCK = 256
# Of a peak, so that a step is no zero.
LEAST_WIDTH = 1e-12
# Ranges of a search; outside each of them is less than e^-50 of the mass: ln t from −30 − 120/r to
# that of ten times every length there is, and 100/r; noise in 11 standard deviations; ξ to
# 20 + 60/(d − 1).
LOW_LOG, LOW_LOG_BY_RANK, LENGTHS, LENGTH_BY_RANK = -30.0, -120.0, 10, 100.0
NOISE_REACH, PLACE_REACH, PLACE_REACH_BY_DIM = 11, 20.0, 60.0
# Width of the nodes of R, as a share of the way to the nearer end.
RADIUS_WIDTH = 1 / 8
# An eigenvalue is a real root where its imaginary part is rounding.
REAL = 1e-9


def peaks(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the arguments of the largest values, shape (n,), of n rows: good for a choice only."""
    shares = np.linspace(0.0, 1.0, SCAN)
    at = np.arange(low.size)
    for _ in range(ZOOMS):
        points = low[:, None] + (high - low)[:, None] * shares
        # between the neighbours of the largest of 17 points
        best = np.argmax(function(points), axis=1)
        low, high = points[at, np.maximum(best - 1, 0)], points[at, np.minimum(best + 1, SCAN - 1)]
    return np.asarray((low + high) / 2)


def drops(
    function: Callable[[Array], Array], peak: Array, end: Array, depth: float | Array
) -> Array:
    """Return where the function has fallen by ``depth`` from its peak to the end, outwards."""
    level = function(peak[:, None])[:, 0] - depth
    inner, outer = peak, end
    for _ in range(HALVINGS):
        middle = (inner + outer) / 2
        above = function(middle[:, None])[:, 0] > level
        inner, outer = np.where(above, middle, inner), np.where(above, outer, middle)
    return outer


@dataclass(frozen=True)
class Spans:
    """Where n functions exp(f) with one peak have their mass; every field has shape (n,).

    Args:
        peak: Argument of the largest value.
        left: Where f is ``depth`` below it, to the left.
        right: The same to the right.
        width: Distance at which f is one below it, the shorter side.
    """

    peak: Array
    left: Array
    right: Array
    width: Array

    def between(self, rows: int, chosen: Index, count: int) -> Spans:
        """Return the spans of all columns from those of chosen ones, good for a choice only."""
        # peaks are interpolated; of two ends the outer one is taken
        at = np.clip(np.searchsorted(chosen, np.arange(count), side="right"), 1, chosen.size - 1)
        share = (np.arange(count) - chosen[at - 1]) / np.diff(chosen)[at - 1]

        def mix(values: Array, extreme: np.ufunc | None = None) -> Array:
            table = values.reshape(rows, chosen.size)
            first, last = table[:, at - 1], table[:, at]
            return np.asarray(
                first + share * (last - first) if extreme is None else extreme(first, last)
            ).ravel()

        return Spans(
            mix(self.peak),
            mix(self.left, np.minimum),
            mix(self.right, np.maximum),
            mix(self.width),
        )

    def part(self, rows: slice) -> Spans:
        """Return some of the rows."""
        return Spans(self.peak[rows], self.left[rows], self.right[rows], self.width[rows])

    def nodes(self, count: int, cut: bool = False) -> tuple[Array, Array]:
        """Return nodes and weights, (n, count), to rounding: a rule in z, x = peak + width sinh z.

        The trapezoidal rule, best where all falls to zero at both ends; Gauss's where it is cut.
        """
        # even in z: dense within the width of the peak, geometric in its tails
        start = np.arcsinh((self.left - self.peak) / self.width)[:, None]
        stop = np.arcsinh((self.right - self.peak) / self.width)[:, None]
        shares, weights = np.arange(count) / (count - 1), np.full(count, 1 / (count - 1))
        if cut:
            points, halves = np.polynomial.legendre.leggauss(count)
            shares, weights = (1 + points) / 2, halves / 2
        # sinh and cosh from one exponential
        rise = np.exp(start + (stop - start) * shares)
        half = self.width[:, None] / 2
        weights = half * (rise + 1 / rise) * (stop - start) * weights
        return self.peak[:, None] + half * (rise - 1 / rise), weights


def spans(function: Callable[[Array], Array], low: Array, high: Array, depth: float) -> Spans:
    """Return the spans of n rows of a function, good for a choice only."""
    peak = peaks(function, low, high)
    left, right = drops(function, peak, low, depth), drops(function, peak, high, depth)
    # the width is the shorter distance at which f is one below its peak
    near = [np.abs(drops(function, peak, end, 1.0) - peak) for end in (left, right)]
    return Spans(peak, left, right, np.maximum(np.minimum(*near), LEAST_WIDTH))


@dataclass(frozen=True)
class ColumnDensity:
    """Density of y = Mv + N(0, s² I), ‖v‖ = 1, as a function of R = ‖y‖ and vᵀy = R sin θ.

    Given t = vᵀMv ~ χ²_r/r the coordinate along v is N(t, s²), the d − 1 others N(0, s² + t/r).

    Args:
        dim: d >= 2.
        rank: r >= 1.
        noise: s > 0.
    """

    dim: int
    rank: int
    noise: float

    def log_density(self, radius: Array, angle: Array) -> tuple[Array, Array]:
        """Return G = ln p(y) and ∂G/∂θ at fixed R, to rounding; the shapes broadcast."""
        radius, angle = np.broadcast_arrays(radius, angle)
        along, across = (radius * np.sin(angle)).ravel(), (radius * np.cos(angle)).ravel()
        # all as if there were one peak, then those with two again
        low, high = self._reach(along, across)
        value, slope = self._integral(along, across, self._spans(along, across, low, high))
        self._cut(along, across, value, slope)
        return value.reshape(radius.shape), slope.reshape(radius.shape)

    def log_lines(self, radius: Array, angle: Array) -> tuple[Array, Array]:
        """Return the same, to rounding, for shapes (n,) and (n, k), one search for a few angles."""
        along, across = radius[:, None] * np.sin(angle), radius[:, None] * np.cos(angle)
        rows, count = angle.shape
        chosen = _every(count, STRIDE)
        some = along[:, chosen].ravel(), across[:, chosen].ravel()
        found = self._spans(*some, *self._reach(*some)).between(rows, chosen, count)
        value, slope = np.empty(angle.size), np.empty(angle.size)
        for start in range(0, angle.size, BLOCK):
            part = slice(start, start + BLOCK)
            here = found.part(part)
            value[part], slope[part] = self._integral(
                along.ravel()[part], across.ravel()[part], here
            )
        # spans are not mixed across angles between which a second peak comes or goes
        two = np.isfinite(self._valley(along.ravel(), across.ravel())).reshape(angle.shape)
        near = np.flatnonzero(maximum_filter1d(two, 2 * STRIDE + 1, axis=1))
        for start in range(0, near.size, BLOCK):
            these = near[start : start + BLOCK]
            row = these // count
            value[these], slope[these] = self.log_density(radius[row], angle.ravel()[these])
        return value.reshape(angle.shape), slope.reshape(angle.shape)

    def _valley(self, along: Array, across: Array) -> Array:
        """Return ln t between two peaks of p(y | t) p(ln t), (n,), to rounding; NaN where one is.

        With a = vᵀy, c² = R² − a² and q = rs² the derivative in ln t is zero where
        (t² + (q/2 − a)t − q/2)(t + q)² + (d − 1)(s²/2)t(t + q) − c²(q/2)t = 0: once or thrice.
        """
        square = self.noise**2
        pole = self.rank * square
        # −s²(t + q)² times the derivative of `_log_given`: (t² + linear t + constant)(t + pole)² +
        # more t (t + pole) − less t, as powers of t
        linear, constant = pole / 2 - along, np.full(along.shape, -pole / 2)
        more, less = (self.dim - 1) * square / 2, across**2 * pole / 2
        quartic = np.stack(
            [
                np.ones(along.shape),
                2 * pole + linear,
                pole**2 + 2 * pole * linear + constant + more,
                linear * pole**2 + 2 * pole * constant + more * pole - less,
                constant * pole**2,
            ],
            axis=1,
        )
        valley = np.full(along.shape, np.nan)
        # three positive roots need three changes of sign (Descartes)
        may = np.flatnonzero(np.sum(quartic[:, 1:] * quartic[:, :-1] < 0, axis=1) >= 3)
        # the roots of a quartic are the eigenvalues of its companion matrix
        companion = np.zeros((may.size, 4, 4))
        companion[:, 0] = -quartic[may, 1:]
        companion[:, [1, 2, 3], [0, 1, 2]] = 1.0
        roots = np.linalg.eigvals(companion)
        real = (np.abs(roots.imag) <= REAL * np.abs(roots)) & (roots.real > 0)
        three = real.sum(axis=1) == 3
        # the positive roots are the three largest of four real ones
        valley[may[three]] = np.log(np.sort(roots.real[three], axis=1)[:, 2])
        return valley

    def _cut(self, along: Array, across: Array, value: Array, slope: Array) -> None:
        """Write the integrals with two peaks, cut between them, over those of one."""
        valley = self._valley(along, across)
        two = np.flatnonzero(np.isfinite(valley))
        if not two.size:
            return
        along, across, valley = along[two], across[two], valley[two]
        low, high = self._reach(along, across)
        # Gauss's rule on either side of the valley, where the trapezoidal one would end at no zero
        parts = [
            self._integral(along, across, self._spans(along, across, *ends), cut=True)
            for ends in ((low, valley), (valley, high))
        ]
        # p is the sum of both, and ∂G/∂θ their mean by weight
        logs = np.stack([part[0] for part in parts])
        value[two] = np.logaddexp(*logs)
        slope[two] = np.sum(np.exp(logs - value[two]) * [part[1] for part in parts], axis=0)

    def _log_given(self, logs: Array, along: Array, across: Array) -> Array:
        """ln p(y | t) and the density of ln t, to rounding, shape of ``logs``: (n, nodes)."""
        rank, square = self.rank, self.noise**2
        # t ~ χ²_r/r: ln t has the density (r/2)^{r/2} t^{r/2} e^{−rt/2}/Γ(r/2)
        norm = (
            rank / 2 * math.log(rank / 2)
            - float(gammaln(rank / 2))
            - self.dim / 2 * math.log(2 * math.pi)
            - math.log(self.noise)
        )
        lengths = np.exp(logs)
        # N(t, s²) along v, N(0, s² + t/r) in the d − 1 other directions
        variance = square + lengths / rank
        return np.asarray(
            norm
            + rank / 2 * (logs - lengths)
            - np.square(along[:, None] - lengths) / (2 * square)
            - (self.dim - 1) / 2 * np.log(variance)
            - np.square(across)[:, None] / (2 * variance)
        )

    def _reach(self, along: Array, across: Array) -> tuple[Array, Array]:
        """Return ln t between which all but e^-50 of the mass is, rounded outwards, each (n,)."""
        low = np.full(along.shape, LOW_LOG_BY_RANK / self.rank + LOW_LOG)
        return low, np.log(LENGTHS * (1 + np.abs(along) + across + LENGTH_BY_RANK / self.rank))

    def _spans(self, along: Array, across: Array, low: Array, high: Array) -> Spans:
        """Return where the integrand over ln t has its mass, good for a choice only."""
        return spans(lambda logs: self._log_given(logs, along, across), low, high, LENGTH_DEPTH)

    def _integral(
        self, along: Array, across: Array, found: Spans, cut: bool = False
    ) -> tuple[Array, Array]:
        """Return ln ∫ p(y | t) p(ln t) d ln t and its ∂/∂θ, to rounding, by the nodes of spans."""
        rank, square = self.rank, self.noise**2
        logs, weights = found.nodes(LENGTH_NODES, cut)
        exponents = self._log_given(logs, along, across)
        # over the largest node: p(y) far out is no float
        highest = exponents.max(axis=1, keepdims=True)
        weights *= np.exp(exponents - highest)
        total = weights.sum(axis=1)
        lengths = np.exp(logs)
        # ∂/∂θ of ln p(y | t) over R cos θ: t (q + t − a)/(s² (q + t)), q = rs², averaged over t
        # given y
        slope = (
            lengths
            * (rank * square + lengths - along[:, None])
            / (square * (rank * square + lengths))
        )
        steep = np.sum(weights * slope, axis=1) / total * across
        return highest[:, 0] + np.log(total), np.asarray(steep)

    def log_volume(self, log_radius: Array, place: Array) -> Array:
        """Return the log of the area of (ln R, ξ), sin θ = tanh ξ, to rounding."""
        # the d − 2 sphere of the other directions: 2π^{(d−1)/2}/Γ((d − 1)/2)
        sphere = (self.dim - 1) / 2 * math.log(math.pi) - float(gammaln((self.dim - 1) / 2))
        log_cosine = math.log(2) - np.logaddexp(place, -place)
        return np.asarray(
            math.log(2) + sphere + self.dim * log_radius + (self.dim - 1) * log_cosine
        )

    @cached_property
    def radii(self) -> tuple[Array, Array]:
        """Nodes ln R and their weights, shape (RADII,), to rounding.

        R² = (t + s N)² + (s² + t/r) χ²_{d−1}, each part between quantiles.
        """
        # quantiles at e^-55: of t the median and the largest, of χ² both ends
        tail, dim, rank, square = math.exp(-DEPTH), self.dim, self.rank, self.noise**2
        lengths = np.array([chdtri(rank, 1 - 0.5), chdtri(rank, tail)]) / rank
        least = 2 * float(gammaincinv(rank / 2, tail)) / rank
        rest = [2 * float(gammaincinv((dim - 1) / 2, tail)), float(chdtri(dim - 1, tail))]
        low = math.log((square + least / rank) * rest[0]) / 2
        high = (
            math.log(
                (lengths[1] + NOISE_REACH * self.noise) ** 2
                + (square + lengths[1] / rank) * rest[1]
            )
            / 2
        )
        centre = math.log(lengths[0] ** 2 + (square + lengths[0] / rank) * (dim - 1)) / 2
        width = min(centre - low, high - centre) * RADIUS_WIDTH
        ends = Spans(*(np.array([value]) for value in (centre, low, high, width)))
        points, weights = ends.nodes(RADII)
        return points[0], weights[0]

    @property
    def fineness(self) -> int:
        """How many angles there are for each R, exactly."""
        return ANGLES if self.dim > 2 else ANGLES_IN_A_PLANE

    @cached_property
    def angles(self) -> tuple[Array, Array]:
        """Nodes ξ, sin θ = tanh ξ, and their weights for each R, (RADII, fineness), to rounding."""
        radii, _ = self.radii
        chosen = _every(RADII, STRIDE)
        few = radii[chosen, None]

        def log_joint(place: Array) -> Array:
            """ln of the joint density of (ln R, ξ), to rounding."""
            value, _ = self.log_density(np.exp(few), np.arctan(np.sinh(place)))
            return value + self.log_volume(few, place)

        ends = np.full(chosen.shape, PLACE_REACH_BY_DIM / (self.dim - 1) + PLACE_REACH)
        found = spans(log_joint, -ends, ends, DEPTH)
        return found.between(1, chosen, RADII).nodes(self.fineness)


def _every(count: int, stride: int) -> Index:
    """Every ``stride``-th of ``count`` numbers, exactly, the first and the last among them."""
    return np.unique(np.append(np.arange(0, count, stride), count - 1))
