"""Independent outputs of a secret that is sampled: given, or drawn as needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tacit._ground.checks import Array, matrix
from tacit.covariance import Covariance, as_covariance

Sampler: TypeAlias = Callable[[int, np.random.Generator], Any]

PILOT_SHARE = 0.1
SMALLEST_PILOT = 2
FEWEST_VALUES = 20
MOST_VALUES = 100_000_000


def drawn(outputs: Any, count: int | None, columns: int, source: np.random.Generator) -> Array:
    """Return outputs (M, d): the ones given, or ``count`` drawn by ``outputs(count, generator)``.

    Raises:
        ValueError: not a matrix of d columns, or not as many rows as were asked for.
    """
    if not callable(outputs):
        return matrix("outputs", outputs, columns=columns)
    if count is None:
        raise ValueError("count: expected the number of outputs to draw, got None")
    found = matrix("outputs", outputs(count, source), columns=columns)
    if len(found) != count:
        raise ValueError(f"outputs: expected {count} rows from the sampler, got {len(found)}")
    return found


def checked_noise(covariance: Any) -> Covariance:
    """Return the covariance, given as one or as an array, or raise a ValueError."""
    noise = as_covariance("covariance", covariance)
    if not isinstance(noise, Covariance):
        raise ValueError(f"covariance: expected a covariance, got {type(covariance).__name__}")
    return noise


def pilot_size(count: int) -> int:
    """Return how many of ``count`` values choose the bet and are not used again."""
    return max(SMALLEST_PILOT, int(PILOT_SHARE * count))
