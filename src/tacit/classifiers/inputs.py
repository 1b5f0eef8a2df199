"""Which inputs of the pool are released, and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from tacit._ground.checks import array, generator
from tacit._ground.numbers import EPS


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of every input: a function of the secret."""

    values: npt.NDArray[np.intp]
    largest_share: float
    occurring: int
    entropy: float


def released_rows(inputs: Any, count: int) -> npt.NDArray[np.intp]:
    """Return the indices of the inputs to release, none twice."""
    if inputs is None:
        return np.arange(count)
    # a mask read as 0 and 1 would release two inputs that nobody asked for
    if np.asarray(inputs).dtype == bool:
        raise ValueError(
            f"inputs: expected indices 0 to {count - 1} of the pool, got true or false"
        )
    indices = _integers("inputs", inputs)
    # which inputs are asked for is the secret: no message repeats one
    if indices.min() < 0 or indices.max() >= count:
        raise ValueError(f"inputs: expected indices 0 to {count - 1} of the pool, got another")
    if len(np.unique(indices)) != indices.size:
        raise ValueError(
            "inputs: expected no input twice, since every release of it is charged: call again "
            "for another release"
        )
    return indices


def private_order(count: int, source: np.random.Generator | None) -> npt.NDArray[np.intp]:
    """Return a random order of the released rows, all equally likely.

    Args:
        count: m.
        source: where it is drawn from; None for the operating system.
    """
    return generator(source).permutation(count)


def checked_labels(labels: Any, count: int, columns: int) -> Labels | None:
    """Return the labels of the pool, at least two of which occur."""
    if labels is None:
        return None
    values = _integers("labels", labels)
    if values.shape != (count,) or values.min() < 0 or values.max() >= columns:
        raise ValueError(
            f"labels: expected {count} class numbers from 0 to {columns - 1}, got {values.size} "
            f"from {values.min()} to {values.max()}"
        )
    sizes = np.bincount(values)
    occurring = int((sizes > 0).sum())
    if occurring < 2:
        raise ValueError(f"labels: expected at least two labels, got only {values[0]}")
    entropy = float(entr(sizes / count).sum()) * (1.0 - 4.0 * sizes.size * EPS)
    return Labels(values, share(int(sizes.max()), count), occurring, entropy)


def _integers(name: str, values: Any) -> npt.NDArray[np.intp]:
    checked = array(name, values, ndim=1)
    if (checked != np.round(checked)).any() or np.abs(checked).max() > 2.0**53:
        odd = int((checked != np.round(checked)).argmax())
        raise ValueError(f"{name}: expected whole numbers, got another at index {odd}")
    return checked.astype(np.intp)


def share(part: int, whole: int) -> float:
    """Return part/whole, rounded up."""
    return 1.0 if part == whole else math.nextafter(part / whole, 1.0)
