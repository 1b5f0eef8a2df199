"""Checks of arguments: a ``ValueError`` names the argument, what came and what was expected."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tacit._ground.reprs import shown

Array: TypeAlias = npt.NDArray[np.float64]
Item = TypeVar("Item")
RandomSource: TypeAlias = int | np.random.Generator | None

LARGEST_INTEGER = 2**63 - 1
SYMMETRY_TOLERANCE = 1e-9
PSD_TOLERANCE = 1e-10


def as_float(name: str, value: Any) -> float:
    """Return ``value`` as a float that is not NaN."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    # float() would drop an imaginary part, read text, and take the one entry of a list of one
    if isinstance(value, (bool, str, bytes)) or kind not in "fiu" or _is_array(value):
        raise ValueError(f"{name}: expected a number, got {shown(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected a number, got {shown(value)}") from None
    if math.isnan(number):
        raise ValueError(f"{name}: expected a number, got NaN")
    return number


def masked(value: Any) -> bool:
    """Return whether an array hides entries; ``numpy.ma`` is loaded for masked arrays alone."""
    return hasattr(value, "_mask") and np.ma.is_masked(value)


def _is_array(value: Any) -> bool:
    return len(getattr(value, "shape", ())) > 0 or masked(value)


def positive(name: str, value: Any, *, allow_inf: bool = False) -> float:
    """Return ``value`` as a float > 0, finite unless ``allow_inf``."""
    number = as_float(name, value)
    if number <= 0 or (math.isinf(number) and not allow_inf):
        raise ValueError(f"{name}: expected a finite number > 0, got {number!r}")
    return number


def non_negative(name: str, value: Any, *, allow_inf: bool = False) -> float:
    """Return ``value`` as a float >= 0, finite unless ``allow_inf``."""
    number = as_float(name, value)
    if number < 0 or (math.isinf(number) and not allow_inf):
        raise ValueError(f"{name}: expected a finite number >= 0, got {number!r}")
    return number


def in_interval(
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float between ``low`` and ``high``."""
    number = as_float(name, value)
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if below or above:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ValueError(f"{name}: expected a number in {left}{low}, {high}{right}, got {number!r}")
    return number


def integer(
    name: str,
    value: Any,
    *,
    minimum: int | None = None,
    maximum: int | None = LARGEST_INTEGER,
) -> int:
    """Return ``value`` as an int within the limits given."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name}: expected an integer, got {shown(value)}")
    number = int(value)
    if minimum is not None and number < minimum:
        raise ValueError(f"{name}: expected an integer >= {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name}: expected an integer <= {maximum}, got {shown(number)}")
    return number


def boolean(name: str, value: Any) -> bool:
    """Return ``value`` when it is true or false: a text such as ``"no"`` would count as true."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: expected True or False, got {shown(value)}")
    return bool(value)


def array(name: str, value: Any, *, ndim: int | tuple[int, ...]) -> Array:
    """Return ``value`` as a finite float64 array with ``ndim`` dimensions, none of them empty."""
    if masked(value):
        hidden = int(np.asarray(value.mask).sum())
        raise ValueError(f"{name}: expected numbers in every entry, got {hidden} masked entries")
    try:
        raw = np.asarray(plain(value))
    except ValueError:
        raise ValueError(f"{name}: expected an array of numbers, got ragged rows") from None
    except TypeError as error:
        raise ValueError(f"{name}: expected an array of numbers, got {error}") from None
    if raw.dtype.kind not in "fiub":
        found = type(value).__name__ if raw.ndim == 0 else f"entries of type {raw.dtype}"
        raise ValueError(f"{name}: expected an array of numbers, got {found}")
    result: Array = raw.astype(np.float64, copy=False)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if result.ndim not in allowed:
        wanted = " or ".join(f"{n}-dimensional" for n in allowed)
        raise ValueError(f"{name}: expected a {wanted} array, got shape {result.shape}")
    if result.size == 0:
        raise ValueError(f"{name}: expected at least one entry, got shape {result.shape}")
    finite = np.isfinite(result)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name}: expected finite numbers, got {result[where]} at index {where} "
            f"({int((~finite).sum())} such entries in shape {result.shape})"
        )
    return result


def plain(value: Any) -> Any:
    """Return a tensor as a NumPy array without copying it on its own device; else ``value``."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        return (value.float() if str(value.dtype).endswith("bfloat16") else value).numpy()
    return value


def vector(name: str, value: Any, *, size: int | None = None) -> Array:
    """Return ``value`` as a finite vector, of length ``size`` where given."""
    result = array(name, value, ndim=1)
    if size is not None and result.shape != (size,):
        raise ValueError(f"{name}: expected {size} entries, got shape {result.shape}")
    return result


def matrix(name: str, value: Any, *, columns: int | None = None) -> Array:
    """Return ``value`` as a finite matrix, with ``columns`` columns where given."""
    result = array(name, value, ndim=2)
    if columns is not None and result.shape[1] != columns:
        raise ValueError(f"{name}: expected {columns} columns, got shape {result.shape}")
    return result


def symmetric(name: str, value: Any, *, size: int | None = None) -> Array:
    """Return ``value`` as a finite, exactly symmetric square matrix."""
    result = array(name, value, ndim=2)
    if result.shape[0] != result.shape[1]:
        raise ValueError(f"{name}: expected a square matrix, got shape {result.shape}")
    if size is not None and result.shape[0] != size:
        raise ValueError(f"{name}: expected shape ({size}, {size}), got {result.shape}")
    scale = float(np.abs(result).max())
    asymmetry = float(np.abs(result - result.T).max())
    if asymmetry > SYMMETRY_TOLERANCE * scale:
        raise ValueError(
            f"{name}: expected a symmetric matrix, got max|A - A.T| = {asymmetry:.3g} "
            f"beside max|A| = {scale:.3g}"
        )
    return result if asymmetry == 0.0 else (result + result.T) / 2


def check_psd(name: str, eigenvalues: npt.NDArray[np.floating[Any]]) -> None:
    """Raise unless the eigenvalues are non-negative up to rounding of the largest."""
    low, high = float(eigenvalues.min()), float(np.abs(eigenvalues).max())
    if low < -PSD_TOLERANCE * high:
        raise ValueError(
            f"{name}: expected a positive semidefinite matrix, got smallest eigenvalue "
            f"{low:.3g} beside largest {high:.3g}"
        )


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """Return ``value`` when it is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(
            f"{name}: expected one of {listed}, got {shown(value)}{did_you_mean(value, options)}"
        )
    return value


def did_you_mean(value: Any, options: Iterable[str]) -> str:
    """Return the end of a sentence that names the option nearest to a mistyped word, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(value, list(options), n=1) if isinstance(value, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def generator(rng: RandomSource) -> np.random.Generator:
    """Return a generator: the one given, one from an integer seed, or a fresh one from the OS."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng(int.from_bytes(os.urandom(32), "little"))
    return np.random.default_rng(integer("rng", rng, minimum=0, maximum=None))


def is_reproducible(rng: RandomSource) -> bool:
    """Whether draws from ``rng`` can be repeated by someone who knows how it was made."""
    return rng is not None


def text(name: str, value: Any) -> str:
    """Return ``value`` when it is a string that says something."""
    # a blank assumption or source would be none
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}: expected a non-empty string, got {shown(value)}")
    return value


def items(name: str, value: Iterable[Item]) -> tuple[Item, ...]:
    """Return ``value`` as a tuple, refusing a bare string."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(f"{name}: expected a sequence, got {shown(value)}")
    return tuple(value)


def texts(name: str, value: Iterable[str]) -> tuple[str, ...]:
    """Return ``value`` as a tuple of strings that each say something."""
    return tuple(text(f"{name}[{i}]", entry) for i, entry in enumerate(items(name, value)))
