"""Which divergence is meant: a name, a name with its parameter, or a convex function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tacit._ground.checks import non_negative, positive

NamedKind: TypeAlias = str | tuple[str, float]
Kind: TypeAlias = NamedKind | Callable[[float], float]

PLAIN = ("kl", "tv", "hellinger", "chi2")
EXPECTED = (
    "'kl', 'tv', 'hellinger', 'chi2', ('renyi', order), ('hockey-stick', epsilon) "
    "or a convex function f with f(1) = 0"
)


def check_named_kind(name: str, value: Any) -> NamedKind:
    """Return ``value`` as a divergence that has a name, its parameter as a float.

    Args:
        name: The argument's name, for the error.
        value: ``"kl"``, ``"tv"``, ``"hellinger"``, ``"chi2"``, ``("renyi", order)`` with
            order > 0 other than 1, or ``("hockey-stick", epsilon)`` with epsilon >= 0 (nats).

    Raises:
        ValueError: ``value`` is none of these.

    Example:
        >>> check_named_kind("kind", ["renyi", 2])
        ('renyi', 2.0)
    """
    if isinstance(value, str) and value in PLAIN:
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        if value[0] == "renyi":
            order = positive(f"{name}: order", value[1])
            if order == 1.0:
                raise ValueError(f"{name}: expected an order other than 1, which is 'kl', got 1.0")
            return "renyi", order
        if value[0] == "hockey-stick":
            return "hockey-stick", non_negative(f"{name}: epsilon", value[1])
    raise ValueError(f"{name}: expected {EXPECTED}, got {value!r}")


def check_kind(name: str, value: Any) -> Kind:
    """Return ``value`` as a divergence: a named one, checked, or a callable as it is.

    Args:
        name: The argument's name, for the error.
        value: A kind that `check_named_kind` accepts, or a convex function of t > 0.

    Raises:
        ValueError: ``value`` is neither.

    Example:
        >>> check_kind("kind", "kl")
        'kl'
    """
    if callable(value):
        function: Callable[[float], float] = value
        return function
    return check_named_kind(name, value)
