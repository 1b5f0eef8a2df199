"""What is published of ``value + noise``: the exact sum, on a grid that hides low bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from tacit._ground import outlet
from tacit._ground.checks import Array, RandomSource, array, generator, plain
from tacit._ground.numbers import LARGEST as LARGEST_DOUBLE
from tacit._ground.random import released_normal

# The grid is 2⁻²⁰ of the deviation: far below what the noise hides, far above what a double rounds.
GRID_BITS = 20
# The rounding of the noise, 2⁻⁵³ of the terms it sums, stays below 2⁻²² of the grid.
TERM_BITS = 30
# Deviations that are released: their grids and the products beside them are floats.
SMALLEST, LARGEST = 2.0**-1000, 2.0**1000
# Every integer and every half below it is a double.
EXACT_INTEGERS = 2.0**52
# Coordinates that are rounded together: their intermediate sums stay in a processor's cache.
TOGETHER = 2**14
# The exponent of the largest power of two among doubles.
LARGEST_EXPONENT = 1023

Normals: TypeAlias = Callable[[tuple[int, ...]], Array]


class NoiseLaw(Protocol):
    """Noise that can be released."""

    @property
    def dim(self) -> int:
        """Dimension d of the noise."""

    def _draw(self, n: int, normals: Normals) -> Array:
        """Return n noise vectors, (n, d), to rounding, made of N(0, 1) values."""

    def _sizes(self) -> tuple[Array, Array]:
        """Return the deviation drawn of each coordinate and the norm of its terms, to rounding."""


def publish(law: NoiseLaw, value: Any, rng: RandomSource = None) -> Array:
    """Return the exact ``value + noise`` of a value (d,), or of each row of (n, d), on the grid.

    Raises:
        ValueError: a value of another dimension or not finite, or noise that is too small or too
            large for the grid; whether it is raised does not depend on the size of the value.
    """
    clean = doubles(value)
    if clean.shape[-1] != law.dim:
        raise ValueError(f"value: expected {law.dim} columns, got shape {clean.shape}")
    # before the value is looked at again: the grid is of the noise alone
    grid = grid_of(*law._sizes())
    source = None if rng is None else generator(rng)
    rows = np.atleast_2d(clean)
    noise = law._draw(len(rows), partial(released_normal, rng=source))
    return rounded_sum(rows, noise, grid).reshape(clean.shape)


def publish_sum(value: Array, noise: Array, deviations: Any, terms: Any = None) -> Array:
    """Return the exact ``value + noise`` on the grid that the noise's deviations set.

    Args:
        value: float64, of any shape.
        noise: of its shape, drawn.
        deviations: standard deviation of each entry of the noise, or what broadcasts to that; 0
            where none was drawn, and the value stands as it is.
        terms: as of ``grid_of``, or what broadcasts to it; the deviations where no terms cancel.

    Raises:
        ValueError: a deviation outside 2⁻¹⁰⁰⁰ … 2¹⁰⁰⁰.
    """
    if terms is None and isinstance(deviations, float):
        spacing = grid_of_one(deviations)
    else:
        spread = np.asarray(deviations, dtype=np.float64)
        own = spread if terms is None else np.asarray(terms, dtype=np.float64)
        spacing = grid_of(spread, own)
    grid = np.broadcast_to(spacing, value.shape).reshape(-1)
    flat = rounded_sum(value.reshape(1, -1), noise.reshape(1, -1), grid)
    return flat.reshape(value.shape)


def doubles(value: Any) -> Array:
    """Return a value (d,) or (n, d) as doubles, to rounding; what is too large saturates.

    Raises:
        ValueError: not numbers, or not finite; a large number is no reason.
    """
    plain_value = plain(value)
    try:
        raw = np.asarray(plain_value)
    except ValueError:
        return array("value", plain_value, ndim=(1, 2))
    if raw.dtype == object and all(type(entry) is int for entry in raw.flat):
        # Python's integers may be larger than any double
        largest = int(LARGEST_DOUBLE)
        entries = [float(min(max(entry, -largest), largest)) for entry in raw.flat]
        raw = np.array(entries).reshape(raw.shape)
    elif raw.dtype.kind == "f" and raw.dtype.itemsize > 8:
        # so may numbers of more than 64 bits
        finite = np.isfinite(raw)
        raw = np.where(finite, np.clip(raw, -LARGEST_DOUBLE, LARGEST_DOUBLE), raw)
    return array("value", raw, ndim=(1, 2))


def grid_of(deviations: Array, terms: Array) -> Array:
    """Return the exact spacing of what is published in each coordinate, 0 without noise.

    It is the power of two below ``2⁻²⁰ σ``, and never below 2⁻³⁰ of the terms that the noise is
    summed from: it depends on the law of the noise alone.

    Args:
        deviations: (d,) standard deviations σ of the noise.
        terms: (d,) root sum of squares of the terms; larger than σ where they cancel.

    Raises:
        ValueError: a deviation outside 2⁻¹⁰⁰⁰ … 2¹⁰⁰⁰.
    """
    noisy = deviations != 0.0
    within = (deviations >= SMALLEST) & (deviations <= LARGEST)
    if not np.all(within | ~noisy):
        wrong = float(deviations[noisy & ~within][0])
        raise ValueError(
            "covariance: expected noise of standard deviation 0 or between 2^-1000 and 2^1000 in "
            f"every coordinate, got {wrong:.3g}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.where(noisy, terms, 1.0) / np.where(noisy, deviations, 1.0)
    # terms over deviation: 1 where nothing cancels, more where the noise is a difference of large
    # terms
    relative = np.clip(np.nan_to_num(relative, nan=LARGEST, posinf=LARGEST), 1.0, LARGEST)
    # −20 bits of the deviation, or as many as keep the terms' own rounding below the grid
    bits = np.maximum(np.frexp(relative)[1] - TERM_BITS, -GRID_BITS)
    exponents = np.minimum(np.frexp(deviations)[1] - 1 + bits, LARGEST_EXPONENT)
    return np.where(noisy, np.ldexp(1.0, exponents), 0.0)


@lru_cache
def grid_of_one(deviation: float) -> Array:
    """Return the exact spacing of one deviation, as ``grid_of`` does."""
    # every step of a training has the same
    return grid_of(np.array(deviation), np.array(deviation))


def rounded_sum(value: Array, noise: Array, grid: Array) -> Array:
    """Return the exact sum, rounded to the nearest point of the grid and then to a double.

    It is a function of the real number ``value + noise`` alone, whatever the size of the value: the
    error of the floating-point sum decides the ties. Where the doubles are wider apart than the
    grid it is the nearest double, and it saturates at the largest one.

    Args:
        value: (n, d).
        noise: (n, d).
        grid: (d,) powers of two; 0 where there is no noise, and the value stands as it is.
    """
    value, noise, _ = np.broadcast_arrays(value, noise, grid)
    released = np.empty(value.shape)
    for start in range(0, grid.size, TOGETHER):
        part = slice(start, start + TOGETHER)
        released[:, part] = nearest(value[:, part], noise[:, part], grid[part])
    return outlet.let_out(released)


def nearest(value: Array, noise: Array, grid: Array) -> Array:
    """Return the exact sum as ``rounded_sum`` does, of few coordinates that stay inside.

    Args:
        value: (…, d).
        noise: of its shape.
        grid: (d,) as of ``rounded_sum``.
    """
    # a grid of one spacing is read once
    spacing = grid[:1] if grid.strides == (0,) else grid
    noisy = bool(np.all(spacing > 0.0))
    # a coordinate without noise is published as it is
    added = noise if noisy else np.where(grid > 0.0, noise, 0.0)
    if noisy:
        with np.errstate(over="ignore", invalid="ignore"):
            # the rounded sum in units of the grid, exactly: the grid is a power of two
            units = (value + added) * (1.0 / spacing)
            whole = np.rint(units)
            units -= whole
        # where no half is to be decided, and doubles are finer than the grid, it is the nearest
        halves = max(units.max(initial=0.0), -units.min(initial=0.0))
        largest = max(whole.max(initial=0.0), -whole.min(initial=0.0))
        # what is rounded beyond the largest double is cut below
        most = min(EXACT_INTEGERS, LARGEST_DOUBLE / float(spacing.max(initial=0.0) or 1.0))
        if halves < 0.5 and largest < most:
            whole *= spacing
            # Adding 0.0 leaves zero one sign.
            whole += 0.0
            return whole
    with np.errstate(over="ignore", invalid="ignore"):
        total = value + added
        # Knuth's two-sum: total + error is the exact sum.
        virtual = total - value
        error = (value - (total - virtual)) + (added - virtual)
        # where doubles are wider apart than the grid they are the grid
        fine = np.abs(total) < EXACT_INTEGERS * grid
        units = np.where(fine, total, 0.0) / np.where(grid > 0.0, grid, 1.0)
    whole = np.round(units)
    # units is the rounded sum: where it is a half, the error of the sum says on which side the
    # exact one lies
    rest = units - whole
    whole += (rest == 0.5) & (error > 0.0)
    whole -= (rest == -0.5) & (error < 0.0)
    # Adding 0.0 leaves zero one sign.
    rounded: Array = np.where(fine, whole * grid, total) + 0.0
    return np.clip(rounded, -LARGEST_DOUBLE, LARGEST_DOUBLE)
