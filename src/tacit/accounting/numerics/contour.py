"""Exact privacy curves of centred Gaussians, by contour integrals through the saddle point.

This differs from the textbook's steepest descent in: 1. the path is a parabola and not the exact
path of descent, which costs nothing where both are analytic and needs no solver; 2. it is walked in
u, y = width sinh u, where the integrand falls doubly exponentially and the trapezoidal rule is as
good as any; 3. ln δ is what is computed, so that δ far below the smallest float keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit.accounting.curves.curve import Index
from tacit.divergences.gaussians import log_excess

# An integral is settled when twice as many nodes change it by less than this, and by its rounding.
CHANGE = 1e-11
# One that its own rounding keeps from settling is taken when it changes by less than this, and is
# raised by so many times the change: what is left of it is rounding, which both sums have.
ROUGH_CHANGE, ROUGH_FACTOR = 1e-6, 4
# Nodes of the trapezoidal rule before the first doubling, and doublings: 6,144 in the end.
FIRST_NODES, DOUBLINGS = 24, 8
# Steps to the saddle point: bisection to a thousandth of the range, then Newton's.
BISECTIONS, NEWTON_STEPS = 10, 5
# Range of ln(cx/(1 − cx)): from c = 0 but for e^−60 to where 1 − cx keeps some digits.
LOWEST_SHARE, HIGHEST_SHARE = -60.0, 28.0
# The integrand is cut where it is e^−42 of its peak: 6e-19, beside CHANGE nothing.
LOG_NEGLIGIBLE = -42.0
# Below the logarithm of the smallest float.
LOG_NOTHING = -760.0
# Values of u at which the path may end, sinh u in units of the width of the saddle.
REACH = np.linspace(0.5, 40.0, 80)
# The path bends to its side at least so much of how far the integrand falls along it.
STEEPNESS = 0.05
# Rows at once, for memory.
MOST_ROWS = 4096
# Units in the last place: of a sum of logarithms beside its size, and twice that of Chernoff's.
UNITS, BOUND_UNITS = 8, 16
# Added to the logarithm of Chernoff's bound: more than the rounding of numbers of no size.
BOUND_SLACK = 1e-9

# Newton's steps to where Chernoff's bound crosses a level, and a step in the number of eigenvalues
# so short that it ends there: rounding outwards to whole numbers is longer.
CROSSING_STEPS, SHORT_STEP = 20, 0.25
# Up to so many eigenvalues each number of them is looked at.
FEW = 40
# What is left out raises ln δ by no more than this, which is added.
LEFT_OUT = 1e-10
# An interval may be passed over where so many times what the interpolant changes cannot matter.
MARGIN = 10.0
# Chebyshev interpolants and the parts into which an interval is cut where one does not do.
DEGREE, PARTS = 16, 4


def _coefficients(degree: int) -> Array:
    """Return the matrix from values at cos(πj/n) to Chebyshev coefficients, to rounding."""
    angles = math.pi * np.arange(degree + 1) / degree
    return np.asarray(np.linalg.inv(np.cos(np.outer(angles, np.arange(degree + 1)))))


# Of a curve between its first and its last ε, and of one through every second point of it.
FIT, HALF_FIT = _coefficients(DEGREE), _coefficients(DEGREE // 2)


@dataclass(frozen=True)
class CentredLoss:
    """Loss L of N(0, diag l) against N(0, I), l_i = 1 + x_i, n_i coordinates each.

    ln E_P e^{zL} = K(z) = −Σ (n_i/2) [ln(1 − z x_i) + z ln(1 + x_i)] where z x_i < 1, and

    δ(ε) = E_P max(1 − e^{ε−L}, 0) = (1/2πi) ∫ exp(K(z) − εz) / (z(z + 1)) dz

    upwards through any point c > 0 of the domain of K. The path is the parabola
    z = c + iy + κy² through the saddle point, which bends to the side where e^{−εz} decays and
    along which the integrand decreases.

    Args:
        excess: x_i > −1, none 0, distinct, shape (k,).
        counts: n_i > 0, shape (k,).
    """

    excess: Array
    counts: Array

    @property
    def largest(self) -> float:
        """Supremum of the loss, rounded up: inf unless every l_i < 1."""
        if (self.excess > 0).any():
            return math.inf
        return -float(self.counts @ np.log1p(self.excess)) / 2 * (1 + UNITS * EPS)

    def log_positive(self, epsilon: Array) -> Array:
        """Return ln δ(ε) for finite ε >= 0, shape (n,), at most.

        It is Chernoff's bound where δ underflows, and where the integral does not settle.
        """
        value = np.full(epsilon.shape, -math.inf)
        if not self.excess.size:
            return value
        # beyond the supremum of the loss δ is 0
        possible = epsilon < self.largest
        if possible.any():
            some = epsilon[possible]
            counts = np.repeat(self.counts[:, None], some.size, axis=1)
            value[possible] = log_integrals(self.excess, counts, some)
        return value


def log_integrals(excess: Array, counts: Array, epsilon: Array) -> Array:
    """Return ln δ of each row, at most; ``counts`` has shape (k, n) and ``epsilon`` shape (n,)."""
    value = np.empty(epsilon.shape)
    for start in range(0, epsilon.size, MOST_ROWS):
        part = slice(start, start + MOST_ROWS)
        value[part] = Contours.through(excess, counts[:, part], epsilon[part]).log_integrals()
    return value


@dataclass(frozen=True)
class Contours:
    """Integrals of `CentredLoss` with one loss, one set of counts and one saddle point a row.

    Args:
        excess: x_i, shape (k,).
        counts: n_i >= 0, shape (k, n).
        epsilon: ε of each row, shape (n,).
        centre: Saddle point c of each row, shape (n,).
    """

    excess: Array
    counts: Array
    epsilon: Array
    centre: Array

    @classmethod
    def through(cls, excess: Array, counts: Array, epsilon: Array) -> Contours:
        """Find the saddle points."""
        paths = cls(excess, counts, epsilon, np.zeros(epsilon.shape))
        return replace(paths, centre=paths._saddle())

    def rows(self, index: npt.NDArray[np.intp]) -> Contours:
        """Return some of the rows."""
        return Contours(self.excess, self.counts[:, index], self.epsilon[index], self.centre[index])

    def log_bound(self) -> Array:
        """ln δ is at most this: 1 − e^{−t} <= c^c (1 + c)^{−1−c} e^{ct} for t > 0 and any c > 0."""
        # c ln c − (1 + c) ln(1 + c) = −ln(1 + c) − c ln(1 + 1/c): two terms of one sign
        c = self.centre
        bound = -self.epsilon * c - np.log1p(c) - c * np.log1p(1 / c)
        for cumulant, count in zip(self._cumulants(), self.counts, strict=True):
            bound = bound + count * cumulant
        # K(c) − εc cancels: raised by a few units of the sizes of its terms
        return np.asarray(bound + BOUND_UNITS * EPS * self._magnitude() + BOUND_SLACK)

    def slopes(self) -> Array:
        """Derivatives of `log_bound` in the counts, the saddle fixed, (k, n), to rounding."""
        return np.stack(list(self._cumulants()))

    def log_integrals(self) -> Array:
        """Return ln δ of every row, at most: Chernoff's bound where no integral settles."""
        value = np.minimum(self.log_bound(), 0.0)
        some = np.flatnonzero(value > LOG_NOTHING)
        if some.size:
            value[some] = np.minimum(self.rows(some)._settle(), value[some])
        return value

    def _settle(self) -> Array:
        """Return ln of the integral, at most; inf where it does not settle."""
        # integrand over its value at the saddle, which is left out until the end: no over- or
        # underflow
        width, bend = self._path()
        peak = self._exponent(self.centre.astype(np.complex128)).real
        reach = self._reach(width, bend, peak)

        def halves(rows: npt.NDArray[np.intp], nodes: Array) -> Array:
            """Sum over u = U·nodes of the integrand, without the step."""
            u = reach[rows, None] * nodes
            # z = c + iy + κy², y = width sinh u
            rise = width[rows, None] * np.sinh(u)
            path = self.centre[rows, None] + rise * (1j + bend[rows, None] * rise)
            logs = self.rows(rows)._exponent(path) - peak[rows, None]
            # dz = (i + 2κy) dy, dy = width cosh u du; both halves of the path are conjugate: twice
            # the imaginary part of one, over 2π
            tangent = (1j + 2 * bend[rows, None] * rise) * width[rows, None] * np.cosh(u)
            return np.asarray((np.exp(logs) * tangent).imag.sum(axis=1))

        rounding = UNITS * EPS * self._magnitude()
        rows = np.arange(self.epsilon.size)
        count = FIRST_NODES
        # at u = 0 the integrand is i · width, with half a node's weight
        total = halves(rows, np.arange(1, count + 1) / count) + width / 2
        value = total * reach / count
        result = np.full(self.epsilon.shape, math.inf)
        for _ in range(DOUBLINGS):
            if not rows.size:
                break
            # twice as many nodes: only the new ones, between the old
            total = total + halves(rows, (np.arange(count) + 0.5) / count)
            count *= 2
            finer = total * reach[rows] / count
            change = np.abs(finer - value)
            done = change <= (CHANGE + rounding[rows]) * finer
            # the next halving would change much less: what changed is above the error that is left
            result[rows[done]] = (finer + change)[done]
            # each halving squares the error of a smooth integrand: a small change tells of rounding
            rough = ~done & (change <= ROUGH_CHANGE * finer)
            raised = finer + ROUGH_FACTOR * change
            result[rows[rough]] = np.minimum(result[rows[rough]], raised[rough])
            rows, total, value = rows[~done], total[~done], finer[~done]
        # ∫ = value · e^peak/π; the peak's own rounding is added
        return np.asarray(np.log(result / math.pi) + peak + rounding)

    def _terms(self) -> Iterator[tuple[float, Array]]:
        """Each kind of coordinate exactly: x of its loss, and how many there are."""
        return zip(self.excess.tolist(), self.counts, strict=True)

    def _cumulants(self) -> Iterator[Array]:
        """K(c) of one coordinate of each kind, to rounding."""
        for x in self.excess.tolist():
            yield -(np.log1p(-x * self.centre) + math.log1p(x) * self.centre) / 2

    def _exponent(self, z: Any) -> Any:
        """K(z) − εz − ln z − ln(1 + z), z of shape (n,) or (n, points), to rounding."""
        # log1p: 1 − zx near a saddle close to 0 would lose x
        shape = (-1, 1) if z.ndim == 2 else (-1,)
        value = -self.epsilon.reshape(shape) * z - np.log(z) - np.log1p(z)
        for x, count in self._terms():
            value -= count.reshape(shape) / 2 * (np.log1p(-x * z) + math.log1p(x) * z)
        return value

    def _magnitude(self) -> Array:
        """Sum of the sizes of the exponent's terms at the saddle, of which EPS is lost at most."""
        c = self.centre
        total = np.abs(self.epsilon * c) + np.abs(np.log(c)) + np.log1p(c)
        for x, count in self._terms():
            total += count / 2 * (np.abs(np.log1p(-x * c)) + abs(math.log1p(x)) * c)
            # 1 − cx keeps fewer digits near the end of the domain
            total += count / 2 * np.abs(x * c) / (1 - x * c)
        return total

    def _saddle(self) -> Array:
        """Minimise the exponent over 0 < c < 1/max x, good for a choice only.

        Every c of the domain gives the same integral; at the minimum its path is the shortest.
        """
        top = float(self.excess.max())
        scale = top if top > 0 else -float(self.excess.min())
        # the derivative Σ n/2 [x/(1 − cx) − ln(1 + x)] − ε − 1/c − 1/(1 + c), in terms of one sign
        # each: x/(1 − cx) − ln(1 + x) = x · cx/(1 − cx) + (x − ln(1 + x))
        constant = self.epsilon - log_excess(self.excess) @ self.counts / 2
        weights = list(zip(self.excess.tolist(), self.counts / 2, strict=True))

        def point(t: Array) -> tuple[Array, Array]:
            """Return c and dc/dt over c, to rounding: t = ln(cx/(1 − cx)), ln(c|x|) if x < 0."""
            if top <= 0:
                return np.exp(t) / scale, np.ones(t.shape)
            fall = np.exp(-t)
            return 1 / (scale * (1 + fall)), fall / (1 + fall)

        def slope(c: Array) -> tuple[Array, Array]:
            """The derivative in c, and c times the second, to rounding."""
            value, rise = -constant - 1 / c - 1 / (1 + c), 1 / c + c / (1 + c) ** 2
            for x, weight in weights:
                share = x / (1 - c * x)
                value += weight * (x * c * share)
                rise += weight * (share * c * share)
            return value, rise

        low = np.full(self.epsilon.shape, LOWEST_SHARE)
        high = np.full(self.epsilon.shape, -LOWEST_SHARE if top <= 0 else HIGHEST_SHARE)
        t = (low + high) / 2
        for step in range(BISECTIONS + NEWTON_STEPS):
            c, stretch = point(t)
            value, rise = slope(c)
            # the derivative rises: the root is to the left of where it is positive
            low, high = np.where(value > 0, low, t), np.where(value > 0, t, high)
            t = (low + high) / 2
            if step >= BISECTIONS:
                t = np.clip(np.where(value > 0, high, low) - value / (rise * stretch), low, high)
        return point(t)[0]

    def _path(self) -> tuple[Array, Array]:
        """Width of the saddle, and κ of steepest descent to the side of decay: a choice only."""
        c = self.centre
        # the second and third derivatives of the exponent, times c² and c³, are sums of like size
        second = 1 + (c / (1 + c)) ** 2
        third = -2 - 2 * (c / (1 + c)) ** 3
        slope = self.epsilon.copy()
        for x, count in self._terms():
            share = c * x / (1 - c * x)
            second = second + count / 2 * share**2
            third = third + count * share**3
            slope += count / 2 * math.log1p(x)
        # e^{−slope·z} decays to the right where the slope is positive, and the path bends there.
        # |1 − zx| grows along it while κ < x/(2(1 − cx)), and |1 + z| while −κ < 1/(2(1 + c)): a
        # third in place of a half keeps the integrand falling from the saddle on
        top, bottom = float(self.excess.max()), float(self.excess.min())
        right = top / (3 * (1 - c * top)) if top > 0 else np.full(c.shape, np.inf)
        left = -bottom / (3 * (1 - c * bottom)) if bottom < 0 else 1 / (3 * (c + 1))
        limit = np.where(slope >= 0, right, left)
        # κ of steepest descent is φ‴/(6φ″)
        steepest = third / (6 * second * c) * np.where(slope >= 0, 1.0, -1.0)
        bend = np.clip(steepest, STEEPNESS * limit, limit) * np.where(slope >= 0, 1.0, -1.0)
        return c / np.sqrt(second), np.where(slope == 0, 0.0, bend)

    def _reach(self, width: Array, bend: Array, peak: Array) -> Array:
        """Value of u, rounded up, beyond which the integrand, falling on the path, is nothing."""
        low = np.full(width.shape, -1)
        high = np.full(width.shape, REACH.size - 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            rise = width * np.sinh(REACH[middle])
            path = self.centre + rise * (1j + bend * rise)
            logs = self._exponent(path).real - peak
            # |dz/du| grows like cosh u and 2|κ|y
            growth = np.log1p(2 * np.abs(bend) * rise) + REACH[middle]
            small = logs + growth < LOG_NEGLIGIBLE
            # rows that have met stay: their middle is low
            low = np.where(small | (high - low <= 1), low, middle)
            high = np.where(small & (high - low > 1), middle, high)
        return np.asarray(REACH[high])


def log_worst_split(high: float, low: float, total: int, dim: int, epsilon: Array) -> Array:
    """Return the largest ln δ(ε), at most, over m of d eigenvalues at 1 + high, others 1 + low.

    Chernoff's bound on ln δ is concave in m, being a minimum of functions linear in it, so the m at
    which it exceeds a value already reached are an interval, and Newton's steps from outside stay
    outside. On it ln δ, smooth in a real m, is interpolated at Chebyshev points.

    Args:
        high: x > 0.
        low: x in (−1, 0).
        total: Coordinates of each eigenvalue.
        dim: d >= 1.
        epsilon: Finite ε >= 0, shape (n,).

    Returns:
        The maximum over m = 0 … d, shape (n,), upwards by the change of the interpolant.
    """
    # all at one end need no second kind of eigenvalue
    ends = [CentredLoss(np.array([x]), np.array([float(total * dim)])) for x in (high, low)]
    worst = np.maximum(*(loss.log_positive(epsilon) for loss in ends))
    splits = _Splits(np.array([high, low]), total, dim)
    for start in range(0, epsilon.size if dim > 1 else 0, MOST_ROWS):
        part = slice(start, start + MOST_ROWS)
        worst[part] = splits.worst(epsilon[part], worst[part])
    return worst


class _Splits:
    """δ with m eigenvalues at 1 + high and d − m at 1 + low, m any real number in [0, d]."""

    def __init__(self, excess: Array, total: int, dim: int):
        self._excess = excess
        self._total = total
        self._dim = dim

    def worst(self, epsilon: Array, reached: Array) -> Array:
        """Return the largest ln δ over m, at most what is returned, at least ``reached``."""
        if self._dim <= FEW:
            worst = reached.copy()
            np.maximum.at(worst, *self._rivals(epsilon, reached))
            return worst
        # what is left out adds no more than this
        worst = np.maximum(reached, LOG_NOTHING) + LEFT_OUT
        first, last = self._interval(epsilon, worst)
        # the middle of the interval raises what was reached, which shortens the interval
        rows = np.flatnonzero(last > first)
        middle = np.round((first + last)[rows] / 2)
        worst[rows] = np.maximum(worst[rows], self._logs(middle, epsilon[rows]) + LEFT_OUT)
        first[rows], last[rows] = self._interval(epsilon[rows], worst[rows])
        rows = np.flatnonzero((last >= first) & (worst < 0))
        first, last = first[rows], last[rows]
        while rows.size:
            # short intervals m by m, long ones by an interpolant of ln δ, which is smooth in a real
            # m
            few = last - first < FEW
            np.maximum.at(worst, *self._each(rows[few], epsilon, first[few], last[few]))
            rows, first, last = rows[~few], first[~few], last[~few]
            largest, change = self._interpolate(epsilon[rows], first, last)
            done = change <= LEFT_OUT
            np.maximum.at(worst, rows[done], (largest + change)[done])
            # cut where the interpolant is rough and may still matter
            open_ = ~done & (largest + MARGIN * change > worst[rows])
            rows, first, last = _cut(rows[open_], first[open_], last[open_])
        return np.minimum(worst, 0.0)

    def _rivals(self, epsilon: Array, reached: Array) -> tuple[Index, Array]:
        """ln δ, at most, wherever Chernoff's bound exceeds ``reached``, with the row of each."""
        rows = np.repeat(np.arange(epsilon.size), self._dim - 1)
        uppers = np.tile(np.arange(1.0, self._dim), epsilon.size)
        paths = Contours.through(self._excess, self._counts(uppers), epsilon[rows])
        rivals = np.flatnonzero(paths.log_bound() > reached[rows])
        return rows[rivals], paths.rows(rivals).log_integrals()

    def _each(self, rows: Index, epsilon: Array, first: Array, last: Array) -> tuple[Index, Array]:
        """ln δ at every whole m of the intervals of ``rows``, at most, with the row of each."""
        # a ragged list of ranges
        counts = (last - first + 1).astype(np.intp)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        owner = np.repeat(rows, counts)
        return owner, self._logs(np.repeat(first, counts) + offsets, epsilon[owner])

    def _counts(self, uppers: Array) -> Array:
        """Coordinates of each kind, exactly."""
        return np.asarray(self._total * np.stack([uppers, self._dim - uppers]))

    def _logs(self, uppers: Array, epsilon: Array) -> Array:
        """ln δ at some m, at most."""
        return log_integrals(self._excess, self._counts(uppers), epsilon)

    def _interval(self, epsilon: Array, reached: Array) -> tuple[Array, Array]:
        """The whole m in [1, d − 1], rounded outwards, with Chernoff's bound above ``reached``."""
        first = self._crossing(epsilon, reached, 1.0, 1)
        last = self._crossing(epsilon, reached, self._dim - 1.0, -1)
        return np.ceil(first), np.floor(last)

    def _crossing(self, epsilon: Array, reached: Array, start: float, sign: int) -> Array:
        """Where the bound rises to ``reached`` from ``start``, at most; outside [0, d] if never."""
        upper = np.full(epsilon.shape, start)
        end = self._dim + 1.0 if sign > 0 else -1.0
        for _ in range(CROSSING_STEPS):
            at = np.clip(upper, 0.0, self._dim)
            paths = Contours.through(self._excess, self._counts(at), epsilon)
            # at one saddle the bound is a line in m, and stays above what it bounds: a step to
            # where the line reaches the level stops before the bound does
            gap = np.where(upper == at, reached - paths.log_bound(), 0.0)
            slopes = paths.slopes()
            slope = sign * self._total * (slopes[0] - slopes[1])
            # a line that falls never reaches it
            rising = (gap > 0) & (slope > 0)
            step = np.where(rising, gap / np.where(rising, slope, 1.0), 0.0)
            moved = np.clip(upper + sign * step, -1.0, self._dim + 1.0)
            upper = np.where((gap > 0) & ~rising, end, moved)
            if not (step >= SHORT_STEP).any():
                break
        return upper

    def _interpolate(self, epsilon: Array, first: Array, last: Array) -> tuple[Array, Array]:
        """The largest interpolant at a whole m in [first, last], and its change, at most."""
        # 17 Chebyshev points; every second of them gives the rougher interpolant
        angles = math.pi * np.arange(DEGREE + 1) / DEGREE
        middle, half = (first + last)[:, None] / 2, (last - first)[:, None] / 2
        uppers = middle + half * np.cos(angles)
        logs = self._logs(uppers.ravel(), np.repeat(epsilon, DEGREE + 1)).reshape(uppers.shape)
        largest, change = np.empty(epsilon.shape), np.empty(epsilon.shape)
        for row, values in enumerate(logs):
            points = (np.arange(first[row], last[row] + 1) - middle[row]) / half[row]
            fine = chebyshev.chebval(points, FIT @ values)
            rough = chebyshev.chebval(points, HALF_FIT @ values[::2])
            largest[row] = fine.max()
            # what the finer one changed, where it matters: at the point where value and change are
            # largest
            change[row] = (fine + np.abs(fine - rough)).max() - largest[row]
        return largest, change


def _cut(rows: Index, first: Array, last: Array) -> tuple[Index, Array, Array]:
    """Cut intervals of whole numbers into parts, exactly."""
    shares = np.arange(PARTS + 1) / PARTS
    edges = np.ceil(first[:, None] + (last - first + 1)[:, None] * shares)
    return np.repeat(rows, PARTS), edges[:, :-1].ravel(), edges[:, 1:].ravel() - 1
