"""How far one record moves declared sums: the largest distance in boxes and lists, in Σ⁻¹."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from flint import arb, arb_mat, fmpq, fmpq_mat

from tacit_check.balls import RefusedFileError, rational_up
from tacit_check.reading import decimal, fields, listed

# Numbers of a sum, parts, and corners that are looked at.
MOST_SIZE, MOST_PARTS, MOST_CORNERS = 1024, 4096, 1 << 14
# A set of differences: the lowest and the highest value of every number.
Box = tuple[Sequence[fmpq], Sequence[fmpq]]


def distance(
    adjacency: str, covariance: Sequence[Sequence[fmpq]], parts: Sequence[Sequence[Box]]
) -> fmpq:
    """Return the largest zᵀ Σ⁻¹ z of what one record changes; exact where Σ is diagonal."""
    size = len(covariance[0])
    if len(covariance) not in (1, size):
        raise RefusedFileError("covariance: expected a square or one row")
    if any(len(end) != size for one in parts for box in one for end in box):
        raise RefusedFileError("parts: expected as many numbers as the covariance has")
    sets = moves(parts, adjacency)
    if len(covariance) > 1:
        return _dense(sets, covariance)
    return max(_diagonal(box, covariance[0]) for box in sets)


def part(value: Any, name: str) -> list[Box]:
    """Return the sets of a part: a box of what one record adds, or points."""
    row = listed(decimal, MOST_SIZE)
    if isinstance(value, dict) and "listed" in value:
        found = fields(value, name, {"listed": listed(row, MOST_PARTS)})
        return [(point, point) for point in found["listed"]]
    found = fields(value, name, {"low": row, "high": row})
    if any(a > b for a, b in zip(found["low"], found["high"], strict=False)):
        raise RefusedFileError(f"{name}: expected low <= high")
    return [(found["low"], found["high"])]


def moves(parts: Sequence[Sequence[Box]], adjacency: str) -> list[Box]:
    """Return what one record changes: what it adds, or the differences of two."""
    every = [box for part in parts for box in part]
    if adjacency == "add-remove":
        return every
    if len(every) ** 2 > MOST_CORNERS:
        raise RefusedFileError("parts: more pairs than a checker compares")
    return [
        (
            [a - b for a, b in zip(one[0], other[1], strict=True)],
            [a - b for a, b in zip(one[1], other[0], strict=True)],
        )
        # the other way round is the same distance
        for place, one in enumerate(every)
        for other in every[place:]
    ]


def _diagonal(box: Box, variances: Sequence[fmpq]) -> fmpq:
    # Σ max(low², high²)/σ², exactly; without noise nothing may move
    total = fmpq(0)
    for low, high, variance in zip(*box, variances, strict=True):
        farthest = max(low * low, high * high)
        if farthest and variance <= 0:
            raise RefusedFileError("covariance: a sum that a record changes has no noise")
        total += farthest / variance if farthest else 0
    return total


def _dense(sets: Sequence[Box], rows: Sequence[Sequence[fmpq]]) -> fmpq:
    corners: list[list[fmpq]] = []
    for low, high in sets:
        # both ends of what may vary: zᵀ Σ⁻¹ z is convex, and largest in a corner
        free = [(a, b) if a < b else (a,) for a, b in zip(low, high, strict=True)]
        if len(corners) + prod(map(len, free)) > MOST_CORNERS:
            raise RefusedFileError("parts: more corners than a checker visits")
        corners += [list(corner) for corner in product(*free)]
    return farthest(rows, corners)


def farthest(covariance: Sequence[Sequence[fmpq]], differences: Sequence[Sequence[fmpq]]) -> fmpq:
    """Return max zᵀ Σ⁻¹ z over differences, rounded up; Σ is proved to be positive definite."""
    size = len(differences[0])
    matrix = positive(covariance, size)
    unit = [arb(int(i == j)) for i in range(size) for j in range(size)]
    # Σ⁻¹ in balls: each holds the true entry
    inverse = matrix.solve(arb_mat(size, size, unit))
    best = fmpq(0)
    # many records change the sums alike
    apart = list(set(map(tuple, differences)))
    for start in range(0, len(apart), size):
        block = apart[start : start + size]
        rows_of = arb_mat(fmpq_mat(len(block), size, [one for point in block for one in point]))
        # Z Σ⁻¹ Zᵀ, of which the diagonal counts: products of matrices are what balls do fast
        squares = rows_of * inverse * rows_of.transpose()
        best = max(best, *(rational_up(squares[k, k]) for k in range(len(block))))
    return best


def positive(covariance: Sequence[Sequence[fmpq]], size: int) -> arb_mat:
    """Return a covariance of so many numbers, proved to be symmetric and positive definite."""
    if len(covariance) != size or len(covariance[0]) != size:
        raise RefusedFileError("covariance: expected a square of the size of the data")
    if any(covariance[i][j] != covariance[j][i] for i in range(size) for j in range(i)):
        raise RefusedFileError("covariance: expected a symmetric matrix")
    matrix = arb_mat(size, size, [arb(one) for row in covariance for one in row])
    if not _positive(matrix):
        raise RefusedFileError("covariance: not shown to be positive definite")
    return matrix


def _positive(matrix: arb_mat) -> bool:
    # by Schur complements: A₁₁ and A₂₂ − A₂₁ A₁₁⁻¹ A₁₂, in balls
    size = matrix.nrows()
    if size == 1:
        return bool(matrix[0, 0] > 0)
    half = size // 2
    # A is positive definite if A₁₁ and its Schur complement are
    first = _block(matrix, 0, half, 0, half)
    if not _positive(first):
        return False
    side = _block(matrix, 0, half, half, size)
    rest = _block(matrix, half, size, half, size) - side.transpose() * first.solve(side)
    return _positive(rest)


def _block(matrix: arb_mat, top: int, bottom: int, left: int, right: int) -> arb_mat:
    entries = [matrix[i, j] for i in range(top, bottom) for j in range(left, right)]
    return arb_mat(bottom - top, right - left, entries)
