"""References of a worst-case design, reduced to what the solver needs: a factor of their Gram."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, check_psd, non_negative, symmetric, vector
from tacit._ground.numbers import EPS
from tacit.linalg import default_tolerance, eigh_psd

Indices: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# Squared Cholesky pivots of the unit-diagonal Gram below this are not resolved by a Gram matrix.
PIVOT_TOLERANCE = 1e-11
COLLINEAR_TOLERANCE = 1e-12
# What rounding may change of an entry that is a multiple.
SAME = 4 * EPS
# Entries that are compared before all of a row are.
PROBES = 8
LARGEST_COST = 1e150


class Cost:
    """A PSD cost F, as ``F = K Kᵀ``; K is only formed when it is needed."""

    def __init__(self, cost: Any, dim: int) -> None:
        self.dim = dim
        self.matrix: Array | None = None
        self._triangle: Array | None = None
        self._definite = True
        given = None if cost is None else array("cost", cost, ndim=(0, 1, 2))
        if given is None:
            self.diagonal = np.ones(dim)
        elif given.ndim == 0:
            self.diagonal = np.full(dim, non_negative("cost", cost))
        elif given.ndim == 1:
            self.diagonal = vector("cost", cost, size=dim)
            if (self.diagonal < 0).any():
                low = float(self.diagonal.min())
                raise ValueError(f"cost: expected entries >= 0, got {low!r}")
        else:
            self.matrix = symmetric("cost", cost, size=dim)
            self.diagonal = np.diagonal(self.matrix)
            self._triangle = self._resolved_triangle()
            if self._triangle is None:
                check_psd("cost", np.linalg.eigvalsh(self.matrix))
                self._definite = False
        self._definite = self._definite and bool((self.diagonal > 0).all())
        if float(self.diagonal.max()) > LARGEST_COST:
            raise ValueError(
                f"cost: expected entries of at most {LARGEST_COST:g}, got "
                f"{float(self.diagonal.max()):.3g}"
            )
        if not self.diagonal.any():
            raise ValueError("cost: expected a non-zero cost, got zeros")

    @property
    def definite(self) -> bool:
        """Whether every direction has a cost, so that K can be inverted."""
        return self._definite

    def _resolved_triangle(self) -> Array | None:
        """Return the Cholesky factor of F, None where a pivot is rounding of its diagonal."""
        try:
            triangle = scipy_linalg.cholesky(self.matrix, lower=True, check_finite=False)
        except scipy_linalg.LinAlgError:
            return None
        resolved = np.diagonal(triangle) ** 2 > default_tolerance(self.dim) * self.diagonal
        return triangle if resolved.all() else None

    def restricted(self, columns: Indices) -> Cost:
        """Return the cost of some of the columns; the others hold nothing."""
        if columns.size == self.dim:
            return self
        if self.matrix is not None:
            return Cost(self.matrix[np.ix_(columns, columns)], columns.size)
        return Cost(self.diagonal[columns], columns.size)

    def gram(self, rows: Array) -> Array:
        """Return rows F rowsᵀ, from rows K, so that a cheap direction keeps its digits."""
        weighed = self.weigh(rows)
        result: Array = weighed @ weighed.T
        return result

    def rounding(self, rows: Array) -> Array:
        """Return the squared cost norm below which each row costs nothing but rounding of F."""
        if self.matrix is None or self._definite:
            return np.zeros(len(rows))
        largest = float(self.diagonal.max()) * self.dim * EPS
        squared: Array = np.einsum("ij,ij->i", rows, rows)
        return squared * largest

    def weigh(self, rows: Array) -> Array:
        """Return rows K."""
        if self.matrix is None:
            if (self.diagonal == 1.0).all():
                return rows
            scaled: Array = rows * np.sqrt(self.diagonal)
            return scaled
        if self._triangle is not None:
            result: Array = rows @ self._triangle
            return result
        values, vectors = self._spectrum
        spread: Array = (rows @ vectors) * np.sqrt(values)
        return spread

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenpairs of F; rounding would grow to its square root and look like a cost."""
        values, vectors = eigh_psd("cost", self.matrix)
        values[values <= default_tolerance(self.dim) * values[-1]] = 0.0
        return values, vectors

    def unweigh(self, rows: Array) -> Array:
        """Return rows K⁺: what ``weigh`` undoes, in the directions that have a cost."""
        if self.matrix is None:
            inverse = np.zeros(self.dim)
            inverse[self.diagonal > 0] = 1 / np.sqrt(self.diagonal[self.diagonal > 0])
            scaled: Array = rows * inverse
            return scaled
        if self._definite:
            solved: Array = scipy_linalg.solve_triangular(
                self._triangle, rows.T, lower=True, trans="T", check_finite=False
            ).T
            return solved
        values, vectors = self._spectrum
        priced = values > 0
        spread: Array = (rows[:, priced] / np.sqrt(values[priced])) @ vectors[:, priced].T
        return spread

    def free_directions(self) -> Array:
        """Return orthonormal rows (k, d) that span the directions without a cost."""
        if self.matrix is None:
            bare: Array = np.eye(self.dim)[self.diagonal == 0]
            return bare
        if self._definite:
            return np.empty((0, self.dim))
        values, vectors = self._spectrum
        free: Array = vectors[:, values == 0].T
        return free


@dataclass(frozen=True, eq=False)
class References:
    """Rows z_i/√g_i, sorted by decreasing cost norm, with coordinates Y of ``Y Yᵀ = G``.

    Attributes:
        order: original index of each kept row.
        norms: cost norm of each kept row.
        coordinates: Y, (n, k); k < n when the rows are dependent.
        gram: G, (n, n), or None where it does not resolve the rows and only Y does.
        multiples: the rows left out, each a multiple of a kept one.
    """

    order: Indices
    norms: Array
    coordinates: Array
    gram: Array | None
    multiples: tuple[Multiple, ...]

    @property
    def independent(self) -> bool:
        """Whether the kept rows are linearly independent under the cost."""
        return bool(self.coordinates.shape[0] == self.coordinates.shape[1])


@dataclass(frozen=True)
class Multiple:
    """Row ``index`` is ``ratio`` times the kept row at ``position``: exactly, or to rounding."""

    index: int
    position: int
    ratio: float
    exact: bool


def prepare(
    rows: Array | None, given: Array | None, gram: Array, order: Indices, cost: Cost | None
) -> References:
    """Merge rows that are multiples of each other and factor the Gram matrix of what is left.

    Args:
        rows: (m, d) differences divided by the roots of their budgets, or None.
        given: (m, d) the differences as they came, which say whether a multiple is exact.
        gram: (m, m) Gram matrix of ``rows`` under the cost.
        order: rows to prepare, by decreasing cost norm, none of which is zero.
        cost: the cost, or None when ``rows`` is.
    """
    norms = np.sqrt(np.diagonal(gram)[order])
    correlation = gram[np.ix_(order, order)] / norms[:, None] / norms
    multiples: tuple[Multiple, ...] = ()
    if rows is not None and given is not None:
        keep, multiples = _merge(rows, given, correlation, order)
        if keep.size < order.size:
            order, norms = order[keep], norms[keep]
            correlation = correlation[np.ix_(keep, keep)]
    coordinates, resolved = _factor(rows, order, norms, correlation, cost)
    kept_gram = correlation * norms[:, None] * norms if resolved else None
    return References(order, norms, coordinates, kept_gram, multiples)


def _merge(
    rows: Array, given: Array, correlation: Array, order: Indices
) -> tuple[Indices, tuple[Multiple, ...]]:
    """Return the positions kept and, for each row dropped, the longer row it is a multiple of.

    A Gram matrix cannot tell a multiple from a neighbour, so each candidate is compared entry by
    entry; only the rounding of that entry may separate it from its multiple.
    """
    close = np.tril(np.abs(correlation) >= 1 - COLLINEAR_TOLERANCE, -1)
    keep = np.ones(order.size, dtype=bool)
    found: list[tuple[int, int, float]] = []
    for i in np.flatnonzero(close.any(axis=1)).tolist():
        row = rows[order[i]]
        candidates = np.flatnonzero(close[i] & keep)
        if candidates.size > 1:
            candidates = candidates[_alike(row, rows, order[candidates])]
        pivot = int(np.argmax(np.abs(row)))
        for j in candidates.tolist():
            longer = rows[order[j]]
            if longer[pivot] == 0.0:
                continue
            ratio = float(row[pivot] / longer[pivot])
            if (np.abs(row - ratio * longer) <= SAME * np.abs(row)).all():
                keep[i] = False
                found.append((i, j, ratio))
                break
    rank_of = (np.cumsum(keep) - 1).tolist()
    return np.flatnonzero(keep), tuple(
        Multiple(
            int(order[i]), rank_of[j], ratio, _is_exact_multiple(given[order[i]], given[order[j]])
        )
        for i, j, ratio in found
    )


def _alike(row: Array, rows: Array, candidates: Indices) -> npt.NDArray[np.bool_]:
    """Return which candidates are multiples of a row in the row's largest entries."""
    probes = np.argsort(-np.abs(row), kind="stable")[:PROBES]
    longer = rows[np.ix_(candidates, probes)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = row[probes[0]] / longer[:, 0]
        alike = np.abs(row[probes] - ratios[:, None] * longer) <= SAME * np.abs(row[probes])
    every: npt.NDArray[np.bool_] = alike.all(axis=1)
    return every


def _is_exact_multiple(row: Array, longer: Array) -> bool:
    """Whether a row is another times a power of two, which no rounding enters."""
    pivot = int(np.argmax(longer != 0.0))
    ratio = float(row[pivot] / longer[pivot])
    return abs(math.frexp(ratio)[0]) == 0.5 and bool((row == ratio * longer).all())


def more_distinct_than(rows: Array, limit: int) -> bool:
    """Whether more rows are left when those equal up to a power of two and a sign are one."""
    seen: set[bytes] = set()
    step = 2 * limit + 16
    for start in range(0, len(rows), step):
        moved = rows[start : start + step]
        moved = moved[moved.any(axis=1)]
        first = moved[np.arange(len(moved)), np.argmax(moved != 0.0, axis=1)]
        exponents = -np.frexp(np.abs(moved).max(axis=1, initial=0.0))[1]
        scaled = np.ldexp(moved, exponents[:, None]) * np.sign(first)[:, None] + 0.0
        seen.update(row.tobytes() for row in scaled)
        if len(seen) > limit:
            return True
    return False


def _factor(
    rows: Array | None, order: Indices, norms: Array, correlation: Array, cost: Cost | None
) -> tuple[Array, bool]:
    """Return Y, and whether the Gram matrix resolves the rows."""
    try:
        triangle = scipy_linalg.cholesky(correlation, lower=True, check_finite=False)
    except scipy_linalg.LinAlgError:
        triangle = None
    if triangle is not None and float(np.diagonal(triangle).min()) ** 2 > PIVOT_TOLERANCE:
        return norms[:, None] * triangle, True
    if rows is None or cost is None:
        eigenvalues, vectors = scipy_linalg.eigh(correlation)
        kept = eigenvalues > order.size * EPS * eigenvalues[-1]
        return norms[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]), False
    unit = cost.weigh(rows[order] / norms[:, None])
    triangle, pivots = scipy_linalg.qr(unit.T, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diagonal(triangle))
    rank = int((diagonal > max(unit.shape) * EPS * diagonal[0]).sum())
    coordinates = np.empty((order.size, rank))
    coordinates[pivots] = triangle[:rank].T
    return norms[:, None] * coordinates, False
