"""A covariance argument, given as a value or as an array."""

from __future__ import annotations

from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import array
from tacit.covariance.base import Covariance
from tacit.covariance.full import Dense, Diagonal
from tacit.covariance.scale_mixture import ScaleMixture

Noise = TypeVar("Noise", Covariance, ScaleMixture, None)


@overload
def as_covariance(name: str, value: Noise) -> Noise: ...
@overload
def as_covariance(name: str, value: npt.ArrayLike) -> Covariance: ...
def as_covariance(name: str, value: object) -> object:
    """Return a covariance as it is, and an array as the covariance that it says.

    Args:
        name: of the argument, for a ValueError.
        value: a ``Covariance``, a ``ScaleMixture``, None, variances (d,), or a PSD matrix (d, d).

    Returns:
        The covariance; None stays None.

    Raises:
        ValueError: neither, or not PSD.

    Example:
        >>> as_covariance("covariance", [1.0, 4.0]).trace()
        5.0
    """
    if value is None or isinstance(value, (Covariance, ScaleMixture)):
        return value
    if not isinstance(value, (list, tuple, np.ndarray)) and not hasattr(value, "__array__"):
        raise ValueError(
            f"{name}: expected a covariance or an array of shape (d,) or (d, d), got "
            f"{type(value).__name__}"
        )
    entries = array(name, value, ndim=(1, 2))
    try:
        return Diagonal(entries) if entries.ndim == 1 else Dense(entries)
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).partition(': ')[2]}") from None
