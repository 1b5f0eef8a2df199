"""Efficient-PAC: noise per direction from a stream of outputs, in constant memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    generator,
    integer,
    matrix,
    positive,
)
from tacit.covariance import Covariance, Diagonal, Factored
from tacit.design.base import Design
from tacit.design.information.gaussian import linear_spectrum, rounding_level

# Outputs before the noise is looked at first; afterwards when they have doubled.
FIRST_CHECK = 16
# How far AᵀA may be from the identity: what writing a basis to ten digits leaves.
ORTHOGONALITY_TOLERANCE = 1e-10


def efficient_information(
    sampler: Callable[..., Any] | Iterable[Any],
    mi_budget: float,
    *,
    basis: ArrayLike | None = None,
    tolerance: float = 0.05,
    maximum_samples: int = 100_000,
    rng: RandomSource = None,
) -> Design:
    """Choose noise per direction of a fixed basis from a stream of outputs, until it settles.

    ``e_i = √σ_i Σ_j √σ_j / (2β)`` with σ_i the variance of the output along column i of the
    basis A, and ``Σ = A diag(e) Aᵀ``. Noise counts as settled when no e_i differs by more than
    ``tolerance`` (relative) from what half as many samples gave.

    Args:
        sampler: an iterator of outputs, or a callable that returns one, (d,), or a block, (n, d);
            a callable with a parameter is given the generator made from ``rng``.
        mi_budget: β > 0 in nats.
        basis: A, (d, d) orthogonal, directions in columns; None for the coordinates.
        tolerance: relative change that counts as settled, > 0.
        maximum_samples: stop here even when the noise has not settled; the notes say so.
        rng: source of the generator handed to ``sampler``.

    Returns:
        A ``Design`` with the number of samples as ``iterations``. ``information`` is None: the
        variances are estimates without a confidence, so nothing is certified. Use
        ``gaussian_information`` on a declared family or ``confident_information`` for that.

    Raises:
        ValueError: a bad argument, a basis that is not orthogonal, outputs that are not finite or
            change their length, a stream that ends before two outputs, or outputs that never
            move.

    Example:
        >>> draws = np.random.default_rng(0)
        >>> design = efficient_information(lambda: draws.normal(size=(64, 2)), 0.5, tolerance=0.1)
        >>> abs(design.cost / 4.0 - 1.0) < 0.2
        True

    Source: residual-pac, Alg. 3, Thm 6.
    """
    budget = positive("mi_budget", mi_budget)
    settled_at = positive("tolerance", tolerance)
    limit = integer("maximum_samples", maximum_samples, minimum=2)
    axes = None if basis is None else _orthogonal(basis)
    moments, settled = _watch(_blocks(sampler, rng), axes, settled_at, limit)
    # directions at rounding level of the largest are raised, so that none is left bare
    noise = linear_spectrum(
        np.maximum(moments.variances, rounding_level(moments.variances)), budget
    )
    # Σ = A diag(e) Aᵀ
    covariance: Covariance = (
        Diagonal(noise) if axes is None else Factored((axes * np.sqrt(noise)).T)
    )
    notes = ["the variances are estimates without a confidence: nothing is certified"]
    if not settled:
        notes.append(f"the noise had not settled to {settled_at:g} when the samples ended")
    return Design(
        covariance=covariance,
        cost=covariance.trace(),
        gap=math.nan,
        method="efficient-information",
        multipliers=np.empty(0),
        iterations=moments.count,
        notes=tuple(notes),
    )


class _RunningMoments:
    """Mean and squared deviations per direction, merged block by block (Chan, Golub, LeVeque)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self._mean = np.zeros(size)
        self._squares = np.zeros(size)

    @property
    def variances(self) -> Array:
        """Empirical variances, to rounding, divided by the count as in Algorithm 3."""
        variances: Array = self._squares / self.count
        return variances

    def add(self, block: Array) -> None:
        """Take in a block of outputs, (n, d)."""
        size = len(block)
        # Σ(y − m)² of both parts and what their means are apart: nothing cancels, as it does in Σ
        # y² − n m²
        mean = block.mean(axis=0)
        shift = mean - self._mean
        total = self.count + size
        self._squares += ((block - mean) ** 2).sum(axis=0) + shift**2 * (self.count * size / total)
        self._mean += shift * (size / total)
        self.count = total


def _watch(
    blocks: Iterator[Array], axes: Array | None, tolerance: float, limit: int
) -> tuple[_RunningMoments, bool]:
    """Take in outputs until the noise settles, the stream ends or the limit is reached."""
    moments: _RunningMoments | None = None
    before: Array | None = None
    # looks at 16, 32, 64 … outputs: as many looks as doublings
    check = FIRST_CHECK
    for block in blocks:
        if moments is None:
            moments = _RunningMoments(block.shape[1])
            if axes is not None and axes.shape[0] != block.shape[1]:
                raise ValueError(
                    f"basis: expected shape ({block.shape[1]}, {block.shape[1]}), got {axes.shape}"
                )
        # the last block is cut at the limit; variances along the columns of A
        taken = block[: limit - moments.count]
        moments.add(taken if axes is None else taken @ axes)
        # against what half as many outputs gave, at a budget of 1: the budget only scales all of it
        if moments.count >= check:
            noise = linear_spectrum(moments.variances, 1.0)
            if before is not None and _change(before, noise) <= tolerance:
                return _moving(moments), True
            before, check = noise, 2 * moments.count
        if moments.count >= limit:
            break
    if moments is None or moments.count < 2:
        raise ValueError("sampler: expected at least two outputs, got fewer")
    return _moving(moments), False


def _change(before: Array, after: Array) -> float:
    """Return the largest relative change, to rounding; 0 where nothing moves."""
    # 0/0 is a direction that moved neither before nor after
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(after == before, 0.0, np.abs(after - before) / after)
    return float(relative.max())


def _moving(moments: _RunningMoments) -> _RunningMoments:
    """Return the moments of outputs that move, or refuse those that never do."""
    if not moments.variances.any():
        raise ValueError(
            f"sampler: expected outputs that move, got {moments.count} equal ones: an output "
            "that never moves says nothing and needs no noise"
        )
    return moments


def _orthogonal(basis: Any) -> Array:
    """Return a basis whose columns are orthonormal to rounding, or refuse it."""
    axes = matrix("basis", basis)
    if axes.shape[0] != axes.shape[1]:
        raise ValueError(f"basis: expected a square matrix, got shape {axes.shape}")
    defect = float(np.abs(axes.T @ axes - np.eye(axes.shape[0])).max())
    if defect > ORTHOGONALITY_TOLERANCE:
        raise ValueError(f"basis: expected an orthogonal matrix, got max|AᵀA − I| = {defect:.3g}")
    return axes


def _blocks(sampler: Callable[..., Any] | Iterable[Any], rng: RandomSource) -> Iterator[Array]:
    """Yield the outputs as checked blocks (n, d)."""
    size: int | None = None
    # one output or a block of them: both are rows
    for output in _outputs(sampler, rng):
        block = np.atleast_2d(array("sampler output", output, ndim=(1, 2)))
        if size is not None and block.shape[1] != size:
            raise ValueError(
                f"sampler: expected outputs of length {size}, got one of length {block.shape[1]}"
            )
        size = block.shape[1]
        yield block


def _outputs(sampler: Callable[..., Any] | Iterable[Any], rng: RandomSource) -> Iterator[Any]:
    """Yield what a sampler gives: an iterator's items, or the results of a callable, for ever."""
    # what is iterated may end, and then the noise is that of what came
    if not callable(sampler):
        if not isinstance(sampler, Iterable):
            raise ValueError(
                f"sampler: expected a callable or an iterator, got {type(sampler).__name__}"
            )
        yield from sampler
        return
    source = generator(rng)
    # a callable with a parameter is given the generator, so that a seed repeats the design
    takes_generator = bool(inspect.signature(sampler).parameters)
    while True:
        yield sampler(source) if takes_generator else sampler()
