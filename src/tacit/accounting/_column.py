"""The loss of one secretly projected column with noise added, by quadrature in three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, gammaln, logsumexp

from tacit._validation import Array
from tacit.accounting._quadrature import rounded_up
from tacit.accounting.discretisation import _convex_minorant

SCAN = 17
ZOOMS = 5
HALVINGS = 14
DEPTH = 55.0  # of a logarithm below its peak: what is left out has mass e^-50 at most
UNSEEN = 1e-20  # more than the mass left out, for good
LENGTH_NODES, LENGTH_DEPTH = 96, 45.0
RADII = 128
ANGLES = 64
TABLE = 160
CELLS = 96
NODES = 1200
SHARE_SLACK = 1e-3
LOSS_SLACK = 1e-12
OVERSHOOT, BENT_OVERSHOOT = 0.025, 0.15  # of a parabola beyond its values at -1, 0 and 1
WINDOW = 8
BOW = 1e-6
LONGEST = 600.0
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
SEEN_MISSING, MOST_MISSING = 1e-7, 0.1  # beyond the first it is a failure of the quadrature
GAUSS, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)


def peaks(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the arguments of the largest values, shape (n,), of n rows of a function."""
    shares = np.linspace(0.0, 1.0, SCAN)
    at = np.arange(low.size)
    for _ in range(ZOOMS):
        points = low[:, None] + (high - low)[:, None] * shares
        best = np.argmax(function(points), axis=1)
        low, high = points[at, np.maximum(best - 1, 0)], points[at, np.minimum(best + 1, SCAN - 1)]
    return np.asarray((low + high) / 2)


def drops(
    function: Callable[[Array], Array], peak: Array, end: Array, depth: float | Array
) -> Array:
    """Return where the function has fallen by ``depth`` on the way from its peak to the end."""
    level = function(peak[:, None])[:, 0] - depth
    inner, outer = peak, end
    for _ in range(HALVINGS):
        middle = (inner + outer) / 2
        above = function(middle[:, None])[:, 0] > level
        inner, outer = np.where(above, middle, inner), np.where(above, outer, middle)
    return outer


def nodes(
    function: Callable[[Array], Array], low: Array, high: Array, count: int, depth: float
) -> tuple[Array, Array]:
    """Return nodes and weights, shape (n, count), for exp(function) with one peak in each row.

    The trapezoidal rule in z, x = peak + width · sinh z, between the points ``depth`` below.
    """
    peak = peaks(function, low, high)
    left, right = drops(function, peak, low, depth), drops(function, peak, high, depth)
    near = [np.abs(drops(function, peak, end, 1.0) - peak) for end in (left, right)]
    width = np.maximum(np.minimum(*near), 1e-9)[:, None]
    start, stop = (np.arcsinh((end - peak)[:, None] / width) for end in (left, right))
    step = (stop - start) / (count - 1)
    points = start + step * np.arange(count)
    places = np.clip(peak[:, None] + width * np.sinh(points), low[:, None], high[:, None])
    return places, np.asarray(width * np.cosh(points) * step)


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
        """Return G = ln p(y) and ∂G/∂θ at fixed R; the shapes broadcast."""
        radius, angle = np.broadcast_arrays(radius, angle)
        shape = radius.shape
        along, across = (radius * np.sin(angle)).ravel(), (radius * np.cos(angle)).ravel()
        logs, exponents = self._lengths(along, across)
        value = logsumexp(exponents, axis=1)
        weights = np.exp(exponents - value[:, None])
        lengths, square = np.exp(logs), self.noise**2
        slope = (
            lengths
            * (self.rank * square + lengths - along[:, None])
            / (square * (self.rank * square + lengths))
        )
        steep = np.sum(weights * slope, axis=1) * across
        return np.asarray(value.reshape(shape)), np.asarray(steep.reshape(shape))

    def _lengths(self, along: Array, across: Array) -> tuple[Array, Array]:
        """Nodes ln t and log weights of the integral over t, shape (n, nodes)."""
        rank, square, half = self.rank, self.noise**2, (self.dim - 1) / 2
        norm = (
            rank / 2 * math.log(rank / 2)
            - float(gammaln(rank / 2))
            - self.dim / 2 * math.log(2 * math.pi)
            - math.log(self.noise)
        )

        def log_joint(logs: Array) -> Array:
            lengths = np.exp(logs)
            variance = square + lengths / rank
            return np.asarray(
                norm
                + rank / 2 * (logs - lengths)
                - np.square((along[:, None] - lengths) / self.noise) / 2
                - half * np.log(variance)
                - np.square(across)[:, None] / (2 * variance)
            )

        low = np.full(along.shape, -120.0 / rank - 30.0)
        high = np.log(10 * (1 + np.abs(along) + across + 100.0 / rank))
        logs, weights = nodes(log_joint, low, high, LENGTH_NODES, LENGTH_DEPTH)
        return logs, log_joint(logs) + np.log(weights)

    def log_joint(self, log_radius: Array, place: Array) -> Array:
        """Return the log density of (ln R, ξ), sin θ = tanh ξ."""
        sphere = (self.dim - 1) / 2 * math.log(math.pi) - float(gammaln((self.dim - 1) / 2))
        value, _ = self.log_density(np.exp(log_radius), np.arctan(np.sinh(place)))
        log_cosine = math.log(2) - np.logaddexp(place, -place)
        volume = math.log(2) + sphere + self.dim * log_radius
        return np.asarray(value + volume + (self.dim - 1) * log_cosine)

    @property
    def farthest(self) -> float:
        """An end for |ξ|."""
        return 60.0 / (self.dim - 1) + 20.0

    @cached_property
    def radii(self) -> tuple[Array, Array]:
        """Nodes ln R and their weights, shape (RADII,)."""

        def profile(log_radius: Array) -> Array:
            flat = log_radius.ravel()
            ends = np.full(flat.shape, self.farthest)
            place = peaks(lambda place: self.log_joint(flat[:, None], place), -ends, ends)
            return self.log_joint(flat, place).reshape(log_radius.shape)

        centre = 0.5 * math.log(1 + (self.dim - 1) * (self.noise**2 + 1 / self.rank))
        low, high = np.array([centre - 60.0 / self.dim - 8]), np.array([centre + 6.0])
        points, weights = nodes(profile, low, high, RADII, DEPTH)
        return points[0], weights[0]

    @cached_property
    def places(self) -> tuple[Array, Array, Array]:
        """ln R, θ and the mass of each node, shapes (RADII,), (RADII, ANGLES) and the same."""
        radii, weights = self.radii
        ends = np.full(radii.shape, self.farthest)
        places, inner = nodes(
            lambda place: self.log_joint(radii[:, None], place), -ends, ends, ANGLES, DEPTH
        )
        masses = np.exp(self.log_joint(radii[:, None], places)) * inner * weights[:, None]
        angles = np.arctan(np.sinh(places))
        return radii, angles, np.asarray(masses)


@dataclass(frozen=True)
class Directions:
    """Cells of u = sin ψ, the first coordinate of a random unit vector in d − 1 dimensions.

    Args:
        points: Ends and middle of each cell, shape (cells, 3).
        masses: Probability of each cell, shape (cells,).
        first: Mean of the place in the cell, from −1 to 1, shape (cells,).
        second: Mean of its square.
    """

    points: Array
    masses: Array
    first: Array
    second: Array


def directions(dim: int) -> Directions:
    """Return cells that cover all but a mass of e^-50."""
    if dim == 2:
        ends = np.array([[-1.0] * 3, [1.0] * 3])
        return Directions(ends, np.full(2, 0.5), np.zeros(2), np.zeros(2))
    power = dim - 3
    reach = math.pi / 2 if power == 0 else math.acos(math.exp(-DEPTH / power))
    edges = np.linspace(-reach, reach, CELLS + 1)
    half = reach / CELLS
    centres = (edges[1:] + edges[:-1]) / 2
    inside = centres[:, None] + half * GAUSS
    weights = np.cos(inside) ** power * GAUSS_WEIGHTS
    weights /= weights.sum(axis=1, keepdims=True)
    squares = np.minimum(np.square(np.sin(edges)), 1.0)
    tails = betainc((dim - 2) / 2, 0.5, 1 - squares) / 2  # P(u > sin |ψ|)
    low, high = tails[:-1], tails[1:]
    masses = np.where(centres < 0, high - low, low - high)
    points = np.sin(np.stack([edges[:-1], centres, edges[1:]], axis=1))
    return Directions(points, masses, weights @ GAUSS, weights @ GAUSS**2)


class ColumnCurve:
    """Upper bound of δ(ε), ε >= 0, for Mv + N(0, s² I) against Mv', vᵀv' = cos φ.

    The loss is G(R, θ) − G(R, θ'), sin θ' = sin θ cos φ + cos θ sin φ u, with u independent of
    (R, θ). (R, θ) runs over trapezoidal nodes; the law of the loss in each cell of u is replaced
    by two masses at its ends, with P and Q of the cell kept, which is larger in convex order.
    """

    def __init__(self, dim: int, rank: int, angle: float, noise: float):
        self._density = ColumnDensity(dim, rank, noise)
        self._angle = angle

    @property
    def reliable(self) -> bool:
        """Whether the mass of all nodes is one."""
        return self._missing <= SEEN_MISSING

    @cached_property
    def _missing(self) -> float:
        if not LEAST_NOISE < self._density.noise < MOST_NOISE:
            return 1.0
        with np.errstate(all="ignore"):
            missing = abs(1 - float(self._density.places[2].sum()))
        return missing if missing < 1 else 1.0

    def __call__(self, epsilon: Array) -> Array:
        """Return δ at each ε >= 0, shape (n,)."""
        if self._missing > MOST_MISSING:
            return np.ones(epsilon.shape)
        losses, values = self._table
        right = np.clip(np.searchsorted(losses, epsilon), 1, losses.size - 1)
        low, high = losses[right - 1], losses[right]
        share = np.expm1(np.minimum(epsilon, high) - low) / np.expm1(high - low)
        chord = values[right - 1] + share * (values[right] - values[right - 1])
        # a bow makes the chord convex beyond rounding, for a minorant without many bends to drop
        bow = BOW * values[right] * np.square(2 * np.clip(share, 0.0, 1.0) - 1)
        return rounded_up(chord + bow + UNSEEN)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Losses and upper bounds of δ there; the curve is convex in e^ε between them."""
        radii, angles, masses = self._density.places
        cells = directions(self._density.dim)
        rows = [
            self._losses(float(radius), angle, cells)
            for radius, angle in zip(radii, angles, strict=True)
        ]
        highest = min(max(float(row[1].max()) for row in rows), LONGEST)
        spread = sum(
            float(np.sum(mass[:, None] * cells.masses * np.clip(row[1], 0, highest) ** 2))
            for row, mass in zip(rows, masses, strict=True)
        )
        width = max(math.sqrt(spread), highest * 1e-6, 1e-290)
        losses = width * np.sinh(np.linspace(0, math.asinh(highest / width), NODES))
        counts = np.zeros((2, 2, NODES))
        beyond = np.zeros((2, 2))
        for index, row in enumerate(rows):
            for odd in (0, 1):
                part = slice(odd, None, 2)
                weight = masses[index, part, None] * cells.masses
                found, far = placed(losses, row[0][part], row[1][part], row[2][part], weight)
                counts[index % 2, odd] += found
                beyond[index % 2, odd] += far
        values = self._bound(losses, counts, beyond)
        # the curve is convex in e^ε, so it is below the convex minorant of its upper bounds
        kept = _convex_minorant(losses, values, values)
        kept[[0, -1]] = True
        return losses[kept], values[kept]

    def _bound(self, losses: Array, counts: Array, beyond: Array) -> Array:
        curves = np.array(
            [[hockey_stick(losses, counts[i, j], beyond[i, j]) for j in (0, 1)] for i in (0, 1)]
        )
        value = curves.sum(axis=(0, 1))
        # each half of the nodes is the rule with a step twice as long
        error = np.abs(curves[0].sum(axis=0) - curves[1].sum(axis=0))
        error += np.abs(curves[:, 0].sum(axis=0) - curves[:, 1].sum(axis=0))
        ratio = error / np.maximum(value, 1e-300)
        wide = np.lib.stride_tricks.sliding_window_view(
            np.pad(ratio, WINDOW, mode="edge"), 2 * WINDOW + 1
        ).max(axis=1)
        whole = 0.0 if self.reliable else self._missing
        return np.asarray(np.minimum(value * (1 + wide) * (1 + self._missing) + whole, 1.0))

    def _losses(
        self, log_radius: float, angle: Array, cells: Directions
    ) -> tuple[Array, Array, Array]:
        """Lowest and highest loss, and the share of the latter, shapes (angles, cells)."""
        turned = np.arcsin(
            np.clip(
                (np.sin(angle) * math.cos(self._angle))[:, None, None]
                + (np.cos(angle) * math.sin(self._angle))[:, None, None] * cells.points,
                -1.0,
                1.0,
            )
        )
        low = min(float(angle.min()), float(turned.min()))
        high = max(float(angle.max()), float(turned.max()))
        grid = np.linspace(low, high, TABLE)
        value, slope = self._density.log_density(np.asarray(math.exp(log_radius)), grid)
        here = hermite(grid, value, slope, angle)[:, None, None]
        loss = here - hermite(grid, value, slope, turned)
        least, most = loss.min(axis=2), loss.max(axis=2)
        bent = (loss[..., 1] == least) | (loss[..., 1] == most)
        spread = (most - least) * np.where(bent, BENT_OVERSHOOT, OVERSHOOT)
        spread += LOSS_SLACK * (1 + np.abs(here[..., 0]))
        floor, ceiling = least - spread, most + spread
        # 1 − e^{−(ℓ − lowest)}: its mean, of a parabola through three points, keeps P and Q
        rise = -np.expm1(-(loss - floor[..., None]))
        even = (rise[..., 0] + rise[..., 2]) / 2 - rise[..., 1]
        mean = rise[..., 1] + (rise[..., 2] - rise[..., 0]) / 2 * cells.first + even * cells.second
        share = np.clip(mean / -np.expm1(-(ceiling - floor)) + SHARE_SLACK, 0.0, 1.0)
        return floor, ceiling, share


def hermite(grid: Array, value: Array, slope: Array, points: Array) -> Array:
    """Cubic Hermite interpolation on an even grid."""
    step = (grid[-1] - grid[0]) / (grid.size - 1)
    if step == 0:
        return np.full(points.shape, value[0])
    place = (points - grid[0]) / step
    left = np.clip(place.astype(np.intp), 0, grid.size - 2)
    part = place - left
    rise = np.diff(value)
    first, last = (step * slope[:-1])[left], (step * slope[1:])[left]
    jump = rise[left]
    bend = (3 - 2 * part) * part * part
    return np.asarray(
        value[:-1][left] + bend * jump + part * (1 - part) * ((1 - part) * first - part * last)
    )


def placed(
    losses: Array, floor: Array, ceiling: Array, share: Array, weight: Array
) -> tuple[Array, float]:
    """Masses on the losses, P and Q of each kept, and the mass beyond the last."""
    places = np.stack([floor, ceiling]).ravel()
    weights = np.stack([weight * (1 - share), weight * share]).ravel()
    kept = (places > 0) & (weights > 0)
    places, weights = places[kept], weights[kept]
    over = places > losses[-1]
    beyond = float(weights[over].sum())
    places, weights = places[~over], weights[~over]
    right = np.clip(np.searchsorted(losses, places), 1, losses.size - 1)
    low, high = losses[right - 1], losses[right]
    upper = np.clip(np.expm1(-(places - low)) / np.expm1(-(high - low)), 0.0, 1.0)
    masses = np.bincount(right, weights * upper, losses.size)
    masses += np.bincount(right - 1, weights * (1 - upper), losses.size)
    return np.asarray(masses), beyond


def hockey_stick(losses: Array, masses: Array, beyond: float) -> Array:
    """δ at each of the losses, shape (n,)."""
    value, relative = beyond, float(masses[-1])
    values = [value]
    for gap, mass in zip(np.diff(losses)[::-1].tolist(), masses[-2::-1].tolist(), strict=True):
        value -= math.expm1(-gap) * relative
        relative = mass + relative * math.exp(-gap)
        values.append(value)
    return np.array(values[::-1])
