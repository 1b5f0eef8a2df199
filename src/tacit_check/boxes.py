"""How far one record moves declared sums: the largest distance in boxes and lists, in Σ⁻¹."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from flint import arb, arb_mat, fmpq, fmpq_mat

from tacit_check.balls import RefusedFileError
from tacit_check.reading import items, numbers, only

# Numbers of a sum, parts, and corners that are looked at.
MOST_SIZE, MOST_PARTS, MOST_CORNERS = 1024, 4096, 1 << 14
# A set of differences: the lowest and the highest value of every number.
Box = tuple[Sequence[fmpq], Sequence[fmpq]]


def distance(node: Mapping[str, Any], adjacency: str) -> tuple[fmpq, str]:
    """Return the largest zᵀ Σ⁻¹ z of what one record changes; exact where Σ is diagonal."""
    rows = items(node, "covariance", _row, MOST_SIZE)
    size = len(rows[0])
    if any(len(row) != size for row in rows) or len(rows) not in (1, size):
        raise RefusedFileError("covariance: expected a square or one row")
    sets = moves(items(node, "parts", lambda part: _part(part, size), MOST_PARTS), adjacency)
    if len(rows) == 1:
        return max(_diagonal(box, rows[0]) for box in sets), "the triangle inequality, exactly"
    return _dense(sets, rows), "a convex function is largest in the corners of a box"


def _row(row: Any) -> list[fmpq]:
    return numbers(row, "covariance", MOST_SIZE)


def _part(part: Any, size: int) -> list[Box]:
    if not isinstance(part, dict):
        raise RefusedFileError("parts: expected objects")
    if "listed" in part:
        only(part, "parts", ("listed",))
        found = [(point, point) for point in items(part, "listed", _row, MOST_PARTS)]
    else:
        only(part, "parts", ("low", "high"))
        found = [(_row(part["low"]), _row(part["high"]))]
    for low, high in found:
        if not len(low) == len(high) == size:
            raise RefusedFileError("parts: expected as many numbers as the covariance has")
        if any(a > b for a, b in zip(low, high, strict=True)):
            raise RefusedFileError("parts: expected low <= high")
    return found


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
        free = [(a, b) if a < b else (a,) for a, b in zip(low, high, strict=True)]
        if len(corners) + prod(map(len, free)) > MOST_CORNERS:
            raise RefusedFileError("parts: more corners than a checker visits")
        corners += [list(corner) for corner in product(*free)]
    return farthest(rows, corners)


def farthest(rows: Sequence[Sequence[fmpq]], points: Sequence[Sequence[fmpq]]) -> fmpq:
    """Return max zᵀ Σ⁻¹ z over points, rounded up; Σ is proved to be positive definite."""
    size = len(rows)
    if any(rows[i][j] != rows[j][i] for i in range(size) for j in range(i)):
        raise RefusedFileError("covariance: expected a symmetric matrix")
    matrix = arb_mat(size, size, [arb(one) for row in rows for one in row])
    if not positive(matrix):
        raise RefusedFileError("covariance: not shown to be positive definite")
    unit = [arb(int(i == j)) for i in range(size) for j in range(size)]
    inverse = matrix.solve(arb_mat(size, size, unit))
    best = fmpq(0)
    # many records change the sums alike
    apart = list(set(map(tuple, points)))
    for start in range(0, len(apart), size):
        block = apart[start : start + size]
        rows_of = arb_mat(fmpq_mat(len(block), size, [one for point in block for one in point]))
        squares = rows_of * inverse * rows_of.transpose()
        best = max(best, *(rational_up(squares[k, k]) for k in range(len(block))))
    return best


def positive(matrix: arb_mat) -> bool:
    """Return whether a symmetric matrix is surely positive definite, by Schur complements."""
    size = matrix.nrows()
    if size == 1:
        return bool(matrix[0, 0] > 0)
    half = size // 2
    first = _block(matrix, 0, half, 0, half)
    if not positive(first):
        return False
    # A₂₂ − A₂₁ A₁₁⁻¹ A₁₂, in balls
    side = _block(matrix, 0, half, half, size)
    rest = _block(matrix, half, size, half, size) - side.transpose() * first.solve(side)
    return positive(rest)


def _block(matrix: arb_mat, top: int, bottom: int, left: int, right: int) -> arb_mat:
    entries = [matrix[i, j] for i in range(top, bottom) for j in range(left, right)]
    return arb_mat(bottom - top, right - left, entries)


def rational_up(ball: arb) -> fmpq:
    """Return the upper end of a ball as an exact fraction."""
    if not ball.is_finite():
        raise RefusedFileError("a distance that no ball holds")
    mantissa, exponent = ball.upper().man_exp()
    power = fmpq(2) ** int(exponent)
    return power * mantissa
