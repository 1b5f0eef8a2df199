"""Balls in bins."""

from __future__ import annotations

from flint import fmpq

from tacit_check.balls import RefusedFileError
from tacit_check.curves import Both


def random_allocation(square: fmpq, steps: int) -> Both:
    """Not yet."""
    raise RefusedFileError(f"random-allocation: not checkable yet ({square}, {steps})")
