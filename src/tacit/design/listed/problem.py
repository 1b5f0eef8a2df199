"""A worst-case problem as it is asked: differences, budgets and cost, checked and in one unit.

Differences come as an array, as a Gram matrix, or in blocks that are read several times: an array,
a file on disk, or a callable.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, check_psd, non_negative, symmetric, vector
from tacit._ground.numbers import EPS
from tacit.covariance import Isotropic
from tacit.covariance.span import row_norms
from tacit.design.base import Design
from tacit.linalg import default_tolerance, eigh_psd

Indices: TypeAlias = npt.NDArray[np.signedinteger[Any]]

# A cost whose square is a float.
LARGEST_COST = 1e150
# Entries of a block: 16 MiB.
BLOCK_ENTRIES = 2**21
# Variances of noise for lengths beyond these, in units of their budgets, are no doubles any more.
LONGEST, SHORTEST = 1e152, 1e-152


class Cost:
    """A PSD cost F, as ``F = K Kᵀ``; K is only formed when it is needed."""

    def __init__(self, cost: Any, dim: int) -> None:
        self.dim = dim
        self.matrix: Array | None = None
        self._triangle: Array | None = None
        self._definite = True
        given = None if cost is None else array("cost", cost, ndim=(0, 1, 2))
        # no cost given is squared error
        if given is None:
            self.diagonal = np.ones(dim)
        elif given.ndim == 0:
            self.diagonal = np.full(dim, non_negative("cost", cost))
        elif given.ndim == 1:
            self.diagonal = vector("cost", cost, size=dim)
            if (self.diagonal < 0).any():
                low = float(self.diagonal.min())
                raise ValueError(f"cost: expected entries >= 0, got {low!r}")
        # a matrix: Cholesky's triangle says at once whether it is definite to rounding
        else:
            self.matrix = symmetric("cost", cost, size=dim)
            self.diagonal = np.diagonal(self.matrix)
            self._triangle = self._resolved_triangle()
            # singular, which is allowed: some directions cost nothing
            if self._triangle is None:
                check_psd("cost", np.linalg.eigvalsh(self.matrix))
                self._definite = False
        self._definite = self._definite and bool((self.diagonal > 0).all())
        # costs are squared where leverages are computed
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
        """Return the Cholesky factor of F, to rounding, None where a pivot is rounding."""
        try:
            triangle = scipy_linalg.cholesky(self.matrix, lower=True, check_finite=False)
        except scipy_linalg.LinAlgError:
            return None
        # a pivot at the rounding level of its own diagonal entry is no direction that has a cost
        resolved = np.diagonal(triangle) ** 2 > default_tolerance(self.dim) * self.diagonal
        return triangle if resolved.all() else None

    def restrict(self, columns: Indices) -> Cost:
        """Return the cost of some of the columns; the others hold nothing."""
        if columns.size == self.dim:
            return self
        if self.matrix is not None:
            return Cost(self.matrix[np.ix_(columns, columns)], columns.size)
        return Cost(self.diagonal[columns], columns.size)

    def gram(self, rows: Array) -> Array:
        """Return rows F rowsᵀ, to rounding, from rows K: a cheap direction keeps its digits."""
        weighed = self.weigh(rows)
        result: Array = weighed @ weighed.T
        return result

    def rounding(self, rows: Array) -> Array:
        """Return the squared cost norm, rounded up, that is nothing but rounding of F."""
        if self.matrix is None or self._definite:
            return np.zeros(len(rows))
        # an entry of F is off by ε of the largest, a row's cost by d of them
        largest = float(self.diagonal.max()) * self.dim * EPS
        squared: Array = np.einsum("ij,ij->i", rows, rows)
        return squared * largest

    def weigh(self, rows: Array) -> Array:
        """Return rows K, to rounding: by the diagonal, Cholesky's triangle, or eigenpairs."""
        if self.matrix is None:
            # F = I: the rows themselves, not a copy
            if (self.diagonal == 1.0).all():
                return rows
            # F = D: K = D^½
            scaled: Array = rows * np.sqrt(self.diagonal)
            return scaled
        if self._triangle is not None:
            # F = T Tᵀ: K = T
            result: Array = rows @ self._triangle
            return result
        values, vectors = self._spectrum
        # F singular: K = V diag(l)^½
        spread: Array = (rows @ vectors) * np.sqrt(values)
        return spread

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenpairs of F, to rounding; small ones would have a root that looks like a cost."""
        values, vectors = eigh_psd("cost", self.matrix)
        values[values <= default_tolerance(self.dim) * values[-1]] = 0.0
        return values, vectors

    def unweigh(self, rows: Array) -> Array:
        """Return rows K⁺, to rounding: undoes ``weigh`` in the directions that have a cost."""
        if self.matrix is None:
            # a column without a cost is not scaled, it is left out
            inverse = np.zeros(self.dim)
            inverse[self.diagonal > 0] = 1 / np.sqrt(self.diagonal[self.diagonal > 0])
            scaled: Array = rows * inverse
            return scaled
        if self._definite:
            # K⁻¹ = T⁻¹ from the right, by back substitution with Cholesky's triangle: Tᵀ X = rowsᵀ
            solved: Array = scipy_linalg.solve_triangular(
                self._triangle, rows.T, lower=True, trans="T", check_finite=False
            ).T
            return solved
        values, vectors = self._spectrum
        priced = values > 0
        # K⁺ = diag(l)^-½ Vᵀ on the eigenvectors with a cost
        spread: Array = (rows[:, priced] / np.sqrt(values[priced])) @ vectors[:, priced].T
        return spread

    def free_directions(self) -> Array:
        """Return orthonormal rows (k, d), to rounding, that span the directions without a cost."""
        if self.matrix is None:
            # coordinates without a cost
            bare: Array = np.eye(self.dim)[self.diagonal == 0]
            return bare
        # none: Cholesky found a pivot for each
        if self._definite:
            return np.empty((0, self.dim))
        values, vectors = self._spectrum
        # eigenvectors of eigenvalue 0
        free: Array = vectors[:, values == 0].T
        return free


@dataclass(frozen=True, eq=False)
class ListedProblem:
    """Differences z_i with budgets g_i under a cost F.

    Attributes:
        rows: (m, d) differences as they came, or None when only their Gram matrix is known.
        given_gram: (m, m) z_iᵀ F z_j, or None.
        cost: F, None when ``rows`` is.
        limits: (m,) budgets g > 0.
    """

    rows: Array | None
    given_gram: Array | None
    cost: Cost | None
    limits: Array

    @property
    def count(self) -> int:
        """Number m of differences."""
        return int(self.limits.size)

    @cached_property
    def roots(self) -> Array:
        """Roots √g_i of the budgets, to rounding."""
        roots: Array = np.sqrt(self.limits)
        return roots

    @cached_property
    def unit(self) -> float:
        """Power of two near the longest entry of z_i/√g_i, exactly."""
        if self.rows is not None:
            return common_unit(np.abs(self.rows).max(axis=1), self.roots)
        assert self.given_gram is not None
        return common_unit(np.sqrt(np.diagonal(self.given_gram)), self.roots)

    @cached_property
    def scaled(self) -> Array | None:
        """Rows z_i/√g_i in the unit, to rounding, or None."""
        if self.rows is None:
            return None
        # a power of two: only the division by the root rounds
        unit = self.unit
        return self.rows / self.roots[:, None] / unit

    @cached_property
    def moving(self) -> Any:
        """Which differences are not zero, (m,) of bool."""
        if self.rows is not None:
            return self.rows.any(axis=1)
        assert self.given_gram is not None
        return np.diagonal(self.given_gram) > 0

    def gram_matrix(self) -> Array:
        """Return the Gram matrix of z_i/√g_i in the unit, (m, m), to rounding."""
        return self._gram

    @cached_property
    def _gram(self) -> Array:
        """The Gram matrix of the rows z_i/√g_i, to rounding."""
        if self.given_gram is not None:
            # the Gram matrix of the given rows, over the same root and unit on either side
            scales = self.roots * self.unit
            return self.given_gram / scales[:, None] / scales
        assert self.scaled is not None
        assert self.cost is not None
        return self.cost.gram(self.scaled)

    def cost_lengths(self) -> Array:
        """Return the cost norms of z_i/√g_i in the unit, (m,), to rounding."""
        if self.scaled is None or self.cost is None:
            lengths: Array = np.sqrt(np.diagonal(self._gram))
            return lengths
        return row_norms(self.cost.weigh(self.scaled))

    def cost_floor(self) -> Array:
        """Return the squared cost norm, rounded up, that is rounding of a row's own length."""
        if self.scaled is None or self.cost is None:
            return np.zeros(self.count)
        return self.cost.rounding(self.scaled)

    def nothing_to_hide(self) -> Design:
        """Return the design for differences that are all zero."""
        dim = self.count if self.rows is None else self.rows.shape[1]
        return Design(
            Isotropic(0.0, dim),
            0.0,
            0.0,
            "worst-case",
            np.zeros(self.count),
            0,
            constraint_factor=np.zeros((self.count, dim)),
        )


def read_problem(differences: Any, budgets: Any, cost: Any, gram: Any) -> ListedProblem:
    """Return the problem that the arguments of ``worst_case`` state, checked."""
    if differences is None and gram is None:
        raise ValueError("differences: expected an (m, d) array, got None without a gram")
    # a Gram matrix stands for rows that only its owner knows
    rows = None if differences is None else checked_differences(differences)
    given = None if gram is None else _checked_gram(gram, None if rows is None else rows.shape[0])
    if rows is None and cost is not None:
        raise ValueError("cost: expected None when only gram is given, since gram contains it")
    # squared error where no cost is given
    metric = None if rows is None else Cost(cost, rows.shape[1])
    count = rows.shape[0] if rows is not None else given.shape[0] if given is not None else 0
    limits = checked_budgets(budgets, count)
    return ListedProblem(rows, given, metric, limits)


def common_unit(lengths: Array, roots: Array) -> float:
    """Return a power of two next above the longest z_i/√g_i, exactly; refuse what no double holds.

    Raises:
        ValueError: noise for some difference would overflow or vanish.
    """
    with np.errstate(over="ignore", under="ignore"):
        relative = lengths / roots
    # noise has variances up to the square of a length, and must have one for the shortest
    bad = (relative > LONGEST) | ((relative < SHORTEST) & (lengths > 0.0))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(
            f"differences: expected lengths between {SHORTEST:g} and {LONGEST:g} over the root of "
            f"their budgets, got {float(relative[where]):.3g} at row {where}"
        )
    return power_of_two(float(relative.max(initial=0.0)))


def finite_cost(cost: float) -> float:
    """Return what noise costs, exactly as given, refusing what no double can hold."""
    if not math.isfinite(cost):
        raise ValueError("cost: expected noise whose cost is a double, got more than 1.8e308")
    return cost


def power_of_two(length: float) -> float:
    """Return the power of two next above a length, exactly, 1 for none."""
    return float(np.ldexp(1.0, int(np.frexp(length)[1]))) if length > 0.0 else 1.0


def checked_budgets(budgets: Any, count: int) -> Array:
    """Return one budget > 0 a difference, exactly as given."""
    limits = array("budgets", budgets, ndim=(0, 1))
    if limits.ndim == 0:
        limits = np.full(count, float(limits))
    limits = vector("budgets", limits, size=count)
    if (limits <= 0).any():
        where = int(np.argmin(limits))
        raise ValueError(f"budgets: expected numbers > 0, got {float(limits[where])!r} at {where}")
    return limits


def checked_differences(differences: Any) -> Array:
    """Return differences as a finite (m, d) matrix, exactly; a vector is one difference."""
    given = array("differences", differences, ndim=(1, 2))
    return given[None, :] if given.ndim == 1 else given


def _checked_gram(gram: Any, rows: int | None) -> Array:
    """Return a Gram matrix given by the caller, exactly, checked symmetric PSD."""
    result = symmetric("gram", gram, size=rows)
    if (np.diagonal(result) < 0).any():
        raise ValueError("gram: expected a non-negative diagonal, got a negative entry")
    check_psd("gram", np.linalg.eigvalsh(result))
    return result


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """Rows z_i over the roots of their budgets, read anew at every iteration.

    Attributes:
        source: (m, d) array, or what yields (n, d) arrays every time it is iterated or called.
        budgets: g, a scalar or (m,).
        checked: whether the rows are known to be finite.
    """

    source: Any
    budgets: Any
    checked: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether all rows lie in memory, so that something may be kept for each of them."""
        return isinstance(self.source, np.ndarray) and not isinstance(self.source, np.memmap)

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        """Yield the index of the first row of a block, and its rows z_i/√g_i to rounding."""
        first, width = 0, None
        for piece in self._pieces():
            rows = piece if self.checked else array("differences", piece, ndim=2)
            if width is not None and rows.shape[1] != width:
                raise ValueError(
                    f"differences: expected blocks of {width} columns, got {rows.shape[1]} "
                    f"from row {first} on"
                )
            width = rows.shape[1]
            yield first, self._scale(rows, self._limits(first, len(rows)))
            first += len(rows)
        # an empty stream, and budgets that outlast the rows, are seen at its end
        if first == 0:
            raise ValueError("differences: expected at least one row, got none")
        if np.ndim(self.budgets) == 1 and len(self.budgets) != first:
            raise ValueError(f"budgets: expected {first} entries, got {len(self.budgets)}")

    def _pieces(self) -> Iterator[Any]:
        """Yield the rows a block at a time, from their start, however they are given."""
        if isinstance(self.source, np.ndarray):
            # views of an array: nothing is copied
            step = max(1, BLOCK_ENTRIES // self.source.shape[1])
            for start in range(0, self.source.shape[0], step):
                yield self.source[start : start + step]
            return
        # a list of blocks, or another thing that starts anew each time it is iterated
        if not callable(self.source):
            yield from self.source
            return
        try:
            # asked before it is called: its own TypeError is no wrong signature
            inspect.signature(self.source).bind()
        except TypeError:
            raise ValueError(
                "differences: expected a callable without arguments that returns blocks"
            ) from None
        pieces = self.source()
        if not isinstance(pieces, Iterable):
            raise ValueError(
                "differences: expected a callable that returns an iterator of blocks, got "
                f"{type(pieces).__name__} from it"
            )
        yield from pieces

    def _limits(self, first: int, count: int) -> Any:
        """Return the budgets of so many rows from the first on, exactly."""
        # one budget for all
        if np.ndim(self.budgets) == 0:
            return checked_budgets(self.budgets, 1)[0]
        # budgets may lie in a file as the rows do
        given = self.budgets[first : first + count]
        if len(given) < count:
            raise ValueError(
                f"budgets: expected {first + count} entries or more, got {first + len(given)}"
            )
        return checked_budgets(given, count)

    @staticmethod
    def _scale(rows: Array, limits: Any) -> Array:
        """Return z/√g, to rounding."""
        if np.ndim(limits) == 0:
            limits = limits[None]
        # nothing is rounded, and nothing copied
        if (limits == 1.0).all():
            return rows
        # What overflows is refused where all rows are looked at.
        with np.errstate(over="ignore"):
            scaled: Array = rows / np.sqrt(limits)[:, None]
        return scaled

    def limits(self, indices: Any) -> Array:
        """Return the budgets of the rows at the indices, exactly."""
        limits: Array = np.asarray(self.budgets, dtype=np.float64)
        return np.full(len(indices), float(limits)) if limits.ndim == 0 else limits[indices]

    def rows(self, indices: Any) -> Array:
        """Return the rows z_i/√g_i at increasing indices, to rounding."""
        # an array is asked for its rows; √g divides them as everywhere
        if isinstance(self.source, np.ndarray):
            chosen = np.asarray(self.source[indices], dtype=np.float64)
            return self._scale(chosen, self.limits(indices))
        # a stream has no places: it is read from its start
        found = []
        for first, rows in self:
            # where the indices asked for fall into this block
            low, high = np.searchsorted(indices, [first, first + len(rows)])
            found.append(rows[indices[low:high] - first])
        return np.concatenate(found)


def blocks_of(differences: Any, budgets: Any) -> RowBlocks | None:
    """Return differences as blocks where they are a file or a stream, None where they are not.

    Raises:
        ValueError: an iterator, which can be read only once.
    """
    # a file's entries are checked block by block, as they are read
    if isinstance(differences, np.memmap):
        if differences.ndim != 2 or differences.dtype.kind not in "fiub" or not differences.size:
            raise ValueError(
                "differences: expected a 2-dimensional file of numbers, got shape "
                f"{differences.shape} of {differences.dtype}"
            )
        return RowBlocks(differences, _budgets(budgets))
    # it would be exhausted after one look
    if isinstance(differences, Iterator):
        raise ValueError(
            "differences: expected rows that can be read several times (an array, a file, a "
            f"callable that returns blocks), got a {type(differences).__name__}"
        )
    # what is an array already is not read twice
    array_like = hasattr(differences, "__array__") or hasattr(differences, "__len__")
    if array_like or not isinstance(differences, (Callable, Iterable)):  # type: ignore[arg-type]
        return None
    return RowBlocks(differences, _budgets(budgets))


def _budgets(budgets: Any) -> Any:
    """Return budgets as an array; a file is left where it is."""
    return budgets if isinstance(budgets, np.memmap) else array("budgets", budgets, ndim=(0, 1))
