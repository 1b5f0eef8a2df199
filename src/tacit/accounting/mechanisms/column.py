"""The loss of one secretly projected column with noise added, by quadrature in three dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc

from tacit._ground.checks import Array
from tacit.accounting.curves.curve import TINY, chords
from tacit.accounting.curves.discretisation import convex_minorant
from tacit.accounting.mechanisms.column_density import DEPTH, LEAST_WIDTH, RADII, ColumnDensity
from tacit.accounting.numerics.quadrature import quadrature_up

# All that follows rounds δ up. The law of y is cut where e^-50 is left: 1e-20 is more than that.
LEFT_OUT = 1e-20
# Points of a line of G; odd, as every second point measures the cubics.
TABLE = 161
# Lighter nodes are counted at an infinite loss: 128 · 1,024 of them add 1.3e-20 at most.
LEAST_MASS = 1e-25
# Cells of u, and losses at which δ is computed.
CELLS, NODES = 160, 1200
# A parabola in a cell of u misses the mean of 1 − e^-loss by its fourth difference, which falls as
# the square of a cell's width in loss; both slacks are added to the share of the higher loss. The
# largest miss over 360 laws is 47% of them (a test measures it again on laws of its own).
SHARE_SLACK, WIDE_SLACK = 3e-4, 0.08
# Rounding of G, relative: a sum of 96 exponentials beside the largest, and exponents below 100.
LOSS_SLACK = 1e-12
# Share of a cell's losses by which both ends are moved outwards, as a parabola may miss the extreme
# between its three points; the largest miss was .0095.
OVERSHOOT = 0.025
# The quadrature's relative error at a loss is the largest of so many beside it: where the curves of
# two halves of the nodes cross, their difference says nothing.
WINDOW = 8
# Relative, a thousand times what G misses where y is likely.
BOW = 1e-6
# Nats; a larger loss is counted as infinite.
LONGEST = 600.0
# Outside of these δ is one.
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
# A mass below one by more than the first is added to δ, by more than the second makes δ one.
SEEN_MISSING, MOST_MISSING = 1e-7, 0.1
# Width of the losses' grid, relative to the highest loss, and where all losses are 0.
LEAST_SPREAD, NO_SPREAD = 1e-6, 1e-290
# Gauss's rule in a cell of ψ: a polynomial of degree 15 is exact.
GAUSS, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Lines:
    """G = ln p(y) against θ on n circles of fixed R, by cubics on even grids.

    Args:
        start: First θ of each grid, shape (n,).
        step: Distance of the grid's points, shape (n,).
        values: G, shape (n, TABLE).
        slopes: ∂G/∂θ times ``step``, the same shape.
    """

    start: Array
    step: Array
    values: Array
    slopes: Array

    @cached_property
    def errors(self) -> Array:
        """What the cubics miss at most between two points, shape (n, TABLE − 1).

        Cubics twice as long, which miss 16 times as much, are measured in their middles.
        """
        # a cubic through two values and two slopes misses h⁴G⁗/384: 16 times less at half the
        # length; a quarter of what the long ones miss, for slopes that are quadratures too
        ends, slopes = self.values[:, ::2], 2 * self.slopes[:, ::2]
        middles = (ends[:, 1:] + ends[:, :-1]) / 2 + (slopes[:, :-1] - slopes[:, 1:]) / 8
        missed = np.abs(self.values[:, 1::2] - middles) / 4
        # and no less than beside it: a fourth derivative may change its sign
        wide = np.maximum(missed, np.maximum(_beside(missed, 1), _beside(missed, -1)))
        return np.repeat(wide, 2, axis=1)

    def at(self, row: int, points: Array) -> tuple[Array, Array]:
        """Return G, to rounding, and its error, at most, on one circle, the shape of ``points``."""
        # Hermite's cubic: values and slopes at both ends
        place = (points - self.start[row]) / self.step[row]
        left = np.clip(place.astype(np.intp), 0, TABLE - 2)
        part = place - left
        value, slope = self.values[row], self.slopes[row]
        jump = np.diff(value)[left]
        bend = (3 - 2 * part) * part * part
        inner = part * (1 - part) * ((1 - part) * slope[:-1][left] - part * slope[1:][left])
        rounding = LOSS_SLACK * (1 + np.abs(value[:-1]))
        return value[:-1][left] + bend * jump + inner, (self.errors[row] + rounding)[left]


def _beside(values: Array, by: int) -> Array:
    """Return the values of the columns beside, exactly, 0 at the end."""
    moved = np.roll(values, by, axis=1)
    moved[:, 0 if by > 0 else -1] = 0.0
    return moved


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
    """Return cells that cover all but a mass of e^-50, to rounding."""
    # u is −1 or 1
    if dim == 2:
        ends = np.array([[-1.0] * 3, [1.0] * 3])
        return Directions(ends, np.full(2, 0.5), np.zeros(2), np.zeros(2))
    # ψ has the density cos^{d−3} ψ
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
    # differences of the tail on the side where both are small
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
        """|1 − Σ masses|, exactly as computed; 1 where there is no noise to speak of."""
        if not LEAST_NOISE < self._density.noise < MOST_NOISE:
            return 1.0
        with np.errstate(all="ignore"):
            missing = abs(1 - float(self.masses.sum()))
        return missing if missing < 1 else 1.0

    @cached_property
    def _cells(self) -> Directions:
        return directions(self._density.dim)

    @cached_property
    def _lines(self) -> Lines:
        """G over every θ and θ' of the nodes."""
        radii, _ = self._density.radii
        angle = self._angles
        # the least and the largest u turn θ to the ends of what is needed
        reach = self._cells.points[[0, -1], [0, -1]]
        turned = np.arcsin(_turn(angle, self._angle, reach))
        every = np.concatenate([angle[..., None], turned], axis=2)
        low, high = every.min(axis=(1, 2)), every.max(axis=(1, 2))
        step = np.maximum((high - low) / (TABLE - 1), LEAST_WIDTH)
        grid = np.clip(low[:, None] + step[:, None] * np.arange(TABLE), -math.pi / 2, math.pi / 2)
        value, slope = self._density.log_lines(np.exp(radii), grid)
        return Lines(low, step, value, slope * step[:, None])

    @cached_property
    def _angles(self) -> Array:
        """θ of the nodes, to rounding."""
        return np.asarray(np.arctan(np.sinh(self._density.angles[0])))

    @cached_property
    def masses(self) -> Array:
        """The mass of each node, shape (RADII, angles), to rounding: p(y) by volume and weight."""
        radii, weights = self._density.radii
        places, inner = self._density.angles
        value = np.stack([self._lines.at(i, row)[0] for i, row in enumerate(self._angles)])
        joint = np.exp(value + self._density.log_volume(radii[:, None], places))
        return np.asarray(joint * inner * weights[:, None])

    def __call__(self, epsilon: Array) -> Array:
        """Return δ at each ε >= 0, shape (n,), rounded up."""
        if self._missing > MOST_MISSING:
            return np.ones(epsilon.shape)
        losses, values = self._table
        joined, share, right = chords(losses, values, epsilon)
        # a bow makes the chord convex beyond rounding, for a minorant without many bends to drop
        bow = BOW * values[right] * np.square(2 * share - 1)
        return quadrature_up(joined + bow + LEFT_OUT)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Losses and δ there, rounded up; between them the curve is convex in e^ε."""
        masses, cells = self.masses, self._cells.masses
        seen = masses > LEAST_MASS
        rows = [self._losses(row, self._angles[row, seen[row]]) for row in range(RADII)]
        highest = min(max(float(row[1].max(initial=0.0)) for row in rows), LONGEST)
        # the deviation of the losses, about: the grid is even below it and geometric above
        spread = sum(
            float(np.sum(mass[kept, None] * cells * np.clip(row[1], 0, highest) ** 2))
            for row, mass, kept in zip(rows, masses, seen, strict=True)
        )
        width = max(math.sqrt(spread), highest * LEAST_SPREAD, NO_SPREAD)
        losses = width * np.sinh(np.linspace(0, math.asinh(highest / width), NODES))
        counts = np.zeros((2, 2, NODES))
        beyond = np.full((2, 2), float(masses[~seen].sum()) / 4)
        for index, row in enumerate(rows):
            # nodes by whether R and θ are odd, four curves whose sums are the rules with longer
            # steps
            odds = np.flatnonzero(seen[index]) % 2
            for odd in (0, 1):
                part = odds == odd
                weight = masses[index, seen[index]][part, None] * cells
                found, far = place_masses(losses, row[0][part], row[1][part], row[2][part], weight)
                counts[index % 2, odd] += found
                beyond[index % 2, odd] += far
        values = self._bound(losses, counts, beyond)
        # the curve is convex in e^ε, so it is below the convex minorant of its upper bounds
        kept = convex_minorant(losses, values, values)
        kept[[0, -1]] = True
        return losses[kept], values[kept]

    def _bound(self, losses: Array, counts: Array, beyond: Array) -> Array:
        """Return δ at the losses, rounded up by what half of the nodes differ from all."""
        curves = np.array(
            [[hockey_stick(losses, counts[i, j], beyond[i, j]) for j in (0, 1)] for i in (0, 1)]
        )
        value = curves.sum(axis=(0, 1))
        # each half of the nodes is the rule with a step twice as long
        error = np.abs(curves[0].sum(axis=0) - curves[1].sum(axis=0))
        error += np.abs(curves[:, 0].sum(axis=0) - curves[:, 1].sum(axis=0))
        ratio = error / np.maximum(value, TINY)
        wide = np.lib.stride_tricks.sliding_window_view(
            np.pad(ratio, WINDOW, mode="edge"), 2 * WINDOW + 1
        ).max(axis=1)
        # masses that add up to less than one leave a loss untold: its share is infinite
        whole = 0.0 if self.reliable else self._missing
        return np.asarray(np.minimum(value * (1 + wide) * (1 + self._missing) + whole, 1.0))

    def _losses(self, row: int, angle: Array) -> tuple[Array, Array, Array]:
        """Lowest and highest loss, rounded outwards, and the share of the latter, at least."""
        cells = self._cells
        turned = np.arcsin(_turn(angle, self._angle, cells.points))
        # loss = G(θ) − G(θ'), each with what its cubic misses
        here, slack = self._lines.at(row, angle)
        there, far_slack = self._lines.at(row, turned)
        loss = here[:, None, None] - there
        floor, ceiling = extremes(loss, slack[:, None] + far_slack.max(axis=2))
        return floor, ceiling, ceiling_share(loss, floor, ceiling, cells)


def ceiling_share(loss: Array, floor: Array, ceiling: Array, cells: Directions) -> Array:
    """Share of a cell's mass to put at the highest loss, the rest at the lowest, at least.

    P and Q are kept where the mean of 1 − e^{−(ℓ − lowest)} is: here of a parabola through three
    points, with a slack for what it misses.
    """
    # Q = E e^{−loss} of the cell is kept where E(1 − e^{−(ℓ − lowest)}) is
    rise = -np.expm1(-(loss - floor[..., None]))
    # the mean of a parabola from the mean of the place in the cell and of its square
    even = (rise[..., 0] + rise[..., 2]) / 2 - rise[..., 1]
    mean = rise[..., 1] + (rise[..., 2] - rise[..., 0]) / 2 * cells.first + even * cells.second
    width = ceiling - floor
    share = mean / -np.expm1(-width) + SHARE_SLACK + WIDE_SLACK * width
    return np.asarray(np.clip(share, 0.0, 1.0))


def extremes(loss: Array, slack: Array) -> tuple[Array, Array]:
    """Least and largest value of parabolas through three points, (..., 3), rounded outwards."""
    least, most = loss.min(axis=-1), loss.max(axis=-1)
    # b + tilt·x + bend·x² at x = −1, 0, 1; its vertex is at −tilt/(2 bend)
    tilt = (loss[..., 2] - loss[..., 0]) / 2
    bend = (loss[..., 2] + loss[..., 0]) / 2 - loss[..., 1]
    inside = np.abs(tilt) < 2 * np.abs(bend)
    vertex = loss[..., 1] - np.where(inside, tilt**2 / np.where(inside, 4 * bend, 1.0), 0.0)
    least, most = np.minimum(least, vertex), np.maximum(most, vertex)
    spread = OVERSHOOT * (most - least) + slack
    return least - spread, most + spread


def _turn(angle: Array, by: float, points: Array) -> Array:
    """sin θ' for each θ and each u, to rounding: shape of ``angle``, then of ``points``."""
    angle = angle.reshape(angle.shape + (1,) * points.ndim)
    sine = np.sin(angle) * math.cos(by) + np.cos(angle) * math.sin(by) * points
    return np.asarray(np.clip(sine, -1.0, 1.0))


def place_masses(
    losses: Array, floor: Array, ceiling: Array, share: Array, weight: Array
) -> tuple[Array, float]:
    """Masses on the losses, P and Q of each kept, and the mass beyond the last, rounded up."""
    places = np.stack([floor, ceiling]).ravel()
    weights = np.stack([weight * (1 - share), weight * share]).ravel()
    # a loss <= 0 counts in no ε >= 0
    kept = (places > 0) & (weights > 0)
    places, weights = places[kept], weights[kept]
    over = places > losses[-1]
    beyond = float(weights[over].sum())
    places, weights = places[~over], weights[~over]
    right = np.clip(np.searchsorted(losses, places), 1, losses.size - 1)
    low, high = losses[right - 1], losses[right]
    # e^{−ℓ} = s e^{−high} + (1 − s) e^{−low}: larger in convex order
    upper = np.clip(np.expm1(-(places - low)) / np.expm1(-(high - low)), 0.0, 1.0)
    masses = np.bincount(right, weights * upper, losses.size)
    masses += np.bincount(right - 1, weights * (1 - upper), losses.size)
    return np.asarray(masses), beyond


def hockey_stick(losses: Array, masses: Array, beyond: float) -> Array:
    """δ at each of the losses, shape (n,), to rounding."""
    value, relative = beyond, float(masses[-1])
    values = [value]
    for gap, mass in zip(np.diff(losses)[::-1].tolist(), masses[-2::-1].tolist(), strict=True):
        # below a loss δ grows by (1 − e^{−gap}) of R = Σ p_j e^{ℓ − ℓ_j}
        value -= math.expm1(-gap) * relative
        relative = mass + relative * math.exp(-gap)
        values.append(value)
    return np.array(values[::-1])
