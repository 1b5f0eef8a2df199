"""How far one record moves declared sums: the largest distance in boxes and lists, in Σ⁻¹."""

from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from math import prod
from operator import sub
from typing import Any

from flint import arb, arb_mat, fmpq

from tacit_check.balls import ZERO, Number, RefusedFileError, largest, require
from tacit_check.reading import decimal, fields, listed

# Numbers of a sum, parts, and corners that are looked at.
MOST_SIZE, MOST_PARTS, MOST_CORNERS = 1024, 4096, 1 << 14
SINGULAR = "covariance: not shown to be positive definite"
Rows = Sequence[Sequence[fmpq]]
# A set of differences: the lowest and the highest value of every number.
Box = tuple[Sequence[fmpq], Sequence[fmpq]]


def distance(adjacency: str, covariance: Rows, parts: Sequence[Sequence[Box]]) -> Number:
    """Return the largest zᵀ Σ⁻¹ z of what one record changes; exact where Σ is diagonal."""
    size = len(covariance[0])
    require(len(covariance) in (1, size), "covariance: expected a square or one row")
    fine = all(len(end) == size for one in parts for box in one for end in box)
    require(fine, "parts: expected as many numbers as the covariance has")
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
    fine = all(a <= b for a, b in zip(found["low"], found["high"], strict=False))
    require(fine, f"{name}: expected low <= high")
    return [(found["low"], found["high"])]


def moves(parts: Sequence[Sequence[Box]], adjacency: str) -> list[Box]:
    """Return what one record changes: what it adds, or the differences of two."""
    every = [box for part in parts for box in part]
    if adjacency == "add-remove":
        return every
    require(len(every) ** 2 <= MOST_CORNERS, "parts: more pairs than a checker compares")
    # the other way round is the same distance
    pairs = combinations_with_replacement(every, 2)
    return [([*map(sub, a, up)], [*map(sub, b, down)]) for (a, b), (down, up) in pairs]


def _diagonal(box: Box, variances: Sequence[fmpq]) -> fmpq:
    # Σ max(low², high²)/σ², exactly; without noise nothing may move
    numbers = list(zip(*box, variances, strict=True))
    noisy = all(variance > 0 or low == high == 0 for low, high, variance in numbers)
    require(noisy, "covariance: a sum that a record changes has no noise")
    moved = (max(a * a, b * b) / variance for a, b, variance in numbers if variance > 0)
    return sum(moved, fmpq(0))


def _dense(sets: Sequence[Box], rows: Rows) -> arb:
    corners: list[list[fmpq]] = []
    for low, high in sets:
        # both ends of what may vary: zᵀ Σ⁻¹ z is convex, and largest in a corner
        free = [(a, b) if a < b else (a,) for a, b in zip(low, high, strict=True)]
        few = len(corners) + prod(map(len, free)) <= MOST_CORNERS
        require(few, "parts: more corners than a checker visits")
        corners += map(list, product(*free))
    return farthest(rows, corners)


def farthest(covariance: Rows, differences: Rows) -> arb:
    """Return a ball of max zᵀ Σ⁻¹ z over differences; Σ is proved to be positive definite."""
    size = len(differences[0])
    # Σ⁻¹ in balls: each holds the true entry
    try:
        inverse = positive(covariance, size).inv()
    except ZeroDivisionError:
        raise RefusedFileError(SINGULAR) from None
    best = ZERO
    # many records change the sums alike
    apart = list(set(map(tuple, differences)))
    for start in range(0, len(apart), size):
        block = arb_mat(apart[start : start + size])
        # Z Σ⁻¹ Zᵀ, of which the diagonal counts: products of matrices are what balls do fast
        squares = block * inverse * block.transpose()
        best = largest([best, *(squares[k, k] for k in range(squares.nrows()))])
    require(best.is_finite(), "a distance that no ball holds")
    return best


def positive(covariance: Rows, size: int) -> arb_mat:
    """Return a covariance of so many numbers, proved to be symmetric and positive definite."""
    fine = len(covariance) == len(covariance[0]) == size
    require(fine, "covariance: expected a square of the size of the data")
    fine = [*map(list, zip(*covariance, strict=True))] == [*map(list, covariance)]
    require(fine, "covariance: expected a symmetric matrix")
    matrix = arb_mat(list(map(list, covariance)))
    require(_positive(matrix), SINGULAR)
    return matrix


def _positive(matrix: arb_mat) -> bool:
    # positive definite if A₁₁ and its Schur complement A₂₂ − A₂₁ A₁₁⁻¹ A₁₂ are, in balls
    half, rows = matrix.nrows() // 2, matrix.tolist()
    if half == 0:
        return bool(rows[0][0] > 0)
    first = arb_mat([row[:half] for row in rows[:half]])
    if not _positive(first):
        return False
    side = arb_mat([row[half:] for row in rows[:half]])
    rest = arb_mat([row[half:] for row in rows[half:]])
    return _positive(rest - side.transpose() * first.solve(side))
