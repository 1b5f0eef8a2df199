"""A covariance from what was given: a value, an array, or a stored description."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import array
from tacit._ground.reprs import shown
from tacit.covariance.base import Covariance
from tacit.covariance.full import Dense, Diagonal, Isotropic
from tacit.covariance.low_rank import Factored, LowRank
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
    # the class's own sentence, about the argument of this name
    entries = array(name, value, ndim=(1, 2))
    try:
        return Diagonal(entries) if entries.ndim == 1 else Dense(entries)
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).partition(': ')[2]}") from None


def _kind(name: Any) -> type[Covariance]:
    kinds: dict[str, type[Covariance]] = {
        c.kind: c for c in (Isotropic, Diagonal, LowRank, Dense, Factored)
    }
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"description: expected a type among {sorted(kinds)}, got {shown(name)}")
    return kinds[name]


def described_fields(name: Any) -> frozenset[str]:
    """Return what ``Covariance.to_dict`` may hold of a type beside its name.

    Example:
        >>> sorted(described_fields("isotropic"))
        ['dim', 'variance']

    Raises:
        ValueError: there is no such type.
    """
    return frozenset(inspect.signature(_kind(name)).parameters)


def covariance_from_dict(description: Any) -> Covariance:
    """Return the covariance that ``Covariance.to_dict`` described.

    Raises:
        ValueError: the description is not a mapping with a known ``type`` and its fields.

    Example:
        >>> covariance_from_dict({"type": "isotropic", "variance": 2.0, "dim": 3}).trace()
        6.0
    """
    kind = _kind(description.get("type") if isinstance(description, dict) else description)
    fields = {key: value for key, value in description.items() if key != "type"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(
            f"description: fields do not fit {description['type']!r}: {error}"
        ) from None


def gaussian_covariance(name: str, value: Any) -> Covariance:
    """Return the covariance of Gaussian noise, given as one or as an array.

    Args:
        name: of the argument, for a ValueError.
        value: a ``Covariance``, variances (d,), or a PSD matrix (d, d).

    Raises:
        ValueError: it is none, or a mixture of several.
    """
    noise = as_covariance(name, value)
    if not isinstance(noise, Covariance):
        raise ValueError(f"{name}: expected a covariance, got {type(value).__name__}")
    return noise
