"""Exact distances under the noise of a release, as fractions; pools that are hard."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np


def exact_success(covariance, swaps):
    """Φ(‖z‖/2) of every swap z, by rational arithmetic from the stored rows and triangle.

    With Σ = A Aᵀ exact and ``Σ x = z``, ‖z‖² = zᵀ x; 1 where no x solves it.
    """
    factor = _factor(covariance)
    noise = [[_dot(row, other) for other in factor] for row in factor]
    return np.array([_success(noise, [Fraction(entry) for entry in swap]) for swap in swaps])


def _factor(covariance):
    """A = rowsᵀ L⁻ᵀ, (d, p)."""
    mixed = [[Fraction(entry) for entry in row] for row in covariance.rows.tolist()]
    if covariance.lower is not None:
        lower = [[Fraction(entry) for entry in row] for row in covariance.lower.tolist()]
        # L⁻¹ rows by forward substitution
        for i in range(len(mixed)):
            for j in range(i):
                mixed[i] = [a - lower[i][j] * b for a, b in zip(mixed[i], mixed[j], strict=True)]
            mixed[i] = [a / lower[i][i] for a in mixed[i]]
    return [list(column) for column in zip(*mixed, strict=True)]


def _dot(left, right):
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _success(noise, swap):
    squared = _squared_distance([row[:] for row in noise], swap)
    if squared is None:
        return 1.0
    with mpmath.workdps(40):
        root = mpmath.sqrt(mpmath.mpf(squared.numerator) / squared.denominator)
        return float(mpmath.ncdf(root / 2))


def _squared_distance(matrix, swap):
    """zᵀ x with M x = z, None where there is none; a symmetric M that may be singular."""
    size = len(swap)
    rows = [[*row, entry] for row, entry in zip(matrix, swap, strict=True)]
    pivots = []
    for column in range(size):
        chosen = next((r for r in range(len(pivots), size) if rows[r][column] != 0), None)
        if chosen is None:
            continue
        top = len(pivots)
        rows[top], rows[chosen] = rows[chosen], rows[top]
        head = rows[top][column]
        rows[top] = [entry / head for entry in rows[top]]
        for r in range(size):
            if r != top and rows[r][column] != 0:
                times = rows[r][column]
                rows[r] = [a - times * b for a, b in zip(rows[r], rows[top], strict=True)]
        pivots.append(column)
    if any(row[-1] != 0 for row in rows[len(pivots) :]):
        return None
    return sum((rows[i][-1] * swap[column] for i, column in enumerate(pivots)), Fraction(0))


def pool(rng, rows, columns):
    """Rows of a law that changes from pool to pool: heavy tails, scales, copies, categories."""
    kind = rng.integers(6)
    if kind == 0:
        values = rng.standard_t(1.2, (rows, columns))
    elif kind == 1:
        values = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-6, 6, columns)
    elif kind == 2:
        values = np.repeat(rng.normal(size=(-(-rows // 2), columns)), 2, axis=0)[:rows]
        values = values + 1e-9 * rng.normal(size=values.shape)
    elif kind == 3:
        values = rng.integers(0, 3, (rows, columns)).astype(float)
    elif kind == 4:
        values = rng.lognormal(0.0, 3.0, (rows, columns))
    else:
        values = rng.normal(size=(rows, columns))
        values[0] *= 1e6
    return values


def every_draw(pairing):
    """Every way the coins can fall, as places in the groups and as rows."""
    places = range(pairing.group_size)
    for fallen in itertools.product(places, repeat=len(pairing)):
        yield fallen, pairing.members[np.arange(len(pairing)), list(fallen)]
