"""Divergence between N(0, Σ) and N(z, Σ) as a function of ‖z‖ in the Σ⁻¹ norm; its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from scipy.special import erf, erfcx, ndtr

from tacit._ground.checks import Array, non_negative, positive
from tacit._ground.numbers import EPS
from tacit.divergences.convex import ConvexFunction

SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
LARGEST = float(np.finfo(np.float64).max)
NORMAL_TAIL = 39.0  # the density of N(0, 1) is below the smallest float beyond this
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)

Closed: TypeAlias = Callable[[Array], Array]


@overload
def shift_divergence(kind: Kind, distance: float) -> float: ...
@overload
def shift_divergence(kind: Kind, distance: Array | Sequence[float]) -> Array: ...
def shift_divergence(kind: Kind, distance: float | Array | Sequence[float]) -> float | Array:
    """Divergence between N(0, Σ) and N(z, Σ), where ``distance`` d = ‖z‖ in the Σ⁻¹ norm.

    Both directions are equal, and the value depends on z through d alone:

    - ``"kl"``: d²/2
    - ``"tv"``: 2Φ(d/2) − 1
    - ``"hellinger"``: 1 − exp(−d²/8), the squared Hellinger distance 1 − ∫√(pq), f(t) = 1 − √t
    - ``"chi2"``: exp(d²) − 1, f(t) = t² − 1
    - ``("renyi", α)``: α d²/2, normalised as ln E_Q[(dP/dQ)^α] / (α − 1)
    - ``("hockey-stick", ε)``: Φ(d/2 − ε/d) − e^ε Φ(−d/2 − ε/d), f(t) = max(t − e^ε, 0)
    - a convex f with f(1) = 0, called with floats t > 0: E f(exp(dX − d²/2)), X ~ N(0, 1)

    Closed forms are rounded up by a few units in the last place; a quadrature v is reported as
    v(1 + 1e-9) + 1e-15, with its error estimate added. A callable that grows too fast to be
    evaluated in float64 at this distance has divergence inf.

    Args:
        kind: Which divergence; epsilon in nats.
        distance: d >= 0, a number or an array; inf gives the supremum.

    Returns:
        The divergence (nats for KL and Rényi), a float or an array of the shape of ``distance``.

    Raises:
        ValueError: ``kind`` is unknown, ``distance`` is negative or NaN, f is not convex with
            f(1) = 0, or its quadrature does not converge.

    Example:
        >>> round(shift_divergence("tv", 1.0), 6)
        0.382925
        >>> round(shift_divergence(lambda t: t * math.log(t), 1.0), 6)
        0.5

    Source: dsi, Lemma 3.1 and Eq. 20; hockey stick: Balle and Wang (2018), Theorem 8.
    """
    checked = check_kind("kind", kind)
    distances = _non_negative("distance", distance)
    values = _evaluator(checked)(distances.ravel()).reshape(distances.shape)
    return float(values) if distances.ndim == 0 else values


@overload
def shift_distance(kind: Kind, value: float) -> float: ...
@overload
def shift_distance(kind: Kind, value: Array | Sequence[float]) -> Array: ...
def shift_distance(kind: Kind, value: float | Array | Sequence[float]) -> float | Array:
    """Largest distance whose divergence is at most ``value``: sup {d : H(d) <= value}.

    The result is rounded down: ``shift_divergence(kind, shift_distance(kind, v)) <= v`` holds
    in floating point.

    Args:
        kind: As in `shift_divergence`.
        value: A divergence >= 0, a number or an array.

    Returns:
        The distance, a float or an array of the shape of ``value``; inf where ``value`` reaches
        the supremum of the divergence.

    Raises:
        ValueError: ``kind`` is unknown or ``value`` is negative or NaN.

    Example:
        >>> round(shift_distance("kl", 0.5), 12)
        1.0
        >>> shift_distance("tv", 1.0)
        inf

    Source: dsi, Lemma 3.1 (H⁻¹ in Eq. 8).
    """
    checked = check_kind("kind", kind)
    values = _non_negative("value", value)
    flat = np.atleast_1d(values).ravel()
    divergence = _evaluator(checked)
    supremum = float(divergence(np.array([math.inf]))[0])
    result = np.full(flat.shape, math.inf)
    below = flat < supremum
    if below.any():
        width = 1 << 20 if callable(checked) else 1
        result[below] = _largest_within(divergence, flat[below], width)
    return float(result[0]) if values.ndim == 0 else result.reshape(values.shape)


def _largest_within(divergence: Closed, values: Array, width: int) -> Array:
    """Bisect over the floats themselves, which are ordered like their bit patterns."""
    low = np.zeros(values.shape, dtype=np.int64)
    high = np.full(values.shape, np.float64(LARGEST).view(np.int64) + 1)
    while int((high - low).max()) > width:
        middle = low + (high - low) // 2
        within = divergence(middle.view(np.float64)) <= values
        low = np.where(within, middle, low)
        high = np.where(within, high, middle)
    return low.view(np.float64)


def _non_negative(name: str, value: Any) -> Array:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected numbers >= 0, got {type(value).__name__}") from None
    bad = ~(numbers >= 0)
    if bad.any():
        raise ValueError(f"{name}: expected numbers >= 0, got {numbers[bad].flat[0]!r}")
    return numbers


def _evaluator(kind: Kind) -> Closed:
    if isinstance(kind, str):
        return _guarded({"kl": _kl, "tv": _tv, "hellinger": _hellinger, "chi2": _chi2}[kind])
    if isinstance(kind, tuple):
        name, parameter = kind
        if name == "renyi":
            return _guarded(lambda d: _up(parameter * d * d / 2, 4))
        return _guarded(lambda d: hockey_stick(np.array(parameter), d))
    function = ConvexFunction.prepare(kind)
    return lambda d: np.array([function.divergence(float(x)) for x in d])


def _guarded(closed: Closed) -> Closed:
    def evaluate(distances: Array) -> Array:
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            return np.where(distances == 0, 0.0, closed(distances))

    return evaluate


def _up(value: Array, units: float | Array) -> Array:
    return value * (1 + units * EPS) + 4 * SMALLEST


def _kl(distance: Array) -> Array:
    return _up(distance * distance / 2, 2)


def _tv(distance: Array) -> Array:
    return np.minimum(_up(erf(distance / math.sqrt(8.0)), 8), 1.0)


def _hellinger(distance: Array) -> Array:
    return np.minimum(_up(-np.expm1(-distance * distance / 8), 6), 1.0)


def _chi2(distance: Array) -> Array:
    return _up(np.expm1(_up(distance * distance, 2)), 4)


def _mills(x: Array) -> Array:
    """Φ(−x)/φ(x)."""
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0))
    return ratio


def _density(x: Array) -> Array:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def hockey_stick(epsilon: Array, distance: Array) -> Array:
    """Return Φ(d/2 − ε/d) − e^ε Φ(−d/2 − ε/d) for arrays of ε and of d, rounded up.

    Args:
        epsilon: ε >= 0 in nats, may be inf.
        distance: d >= 0, may be inf, of a shape that broadcasts with ``epsilon``.

    Returns:
        Divergences in [0, 1], of the common shape; relative error a few units in the last place.

    Example:
        >>> hockey_stick(np.array([0.0, 1.0]), np.array(1.0)).round(6).tolist()
        [0.382925, 0.126937]

    Source: Balle and Wang (2018), Theorem 8.
    """
    epsilon, distance = np.broadcast_arrays(epsilon, distance)
    with np.errstate(all="ignore"):
        ratio = epsilon / distance
        low = ratio - distance / 2
        low = low - 2 * EPS * (ratio + np.abs(low))  # the divergence falls as this argument grows
        high = (ratio + distance / 2) * (1 + 2 * EPS)
        bulk = _up(_bulk(epsilon, low, high), 32)
        tail = _up(_tail(low, high, distance), 64 + 16 * np.minimum(low * low, 1e6))
    cases = [distance == 0, np.isinf(distance), epsilon == np.inf, low <= 0, low < NORMAL_TAIL]
    value = np.select(cases, [0.0, 1.0, 0.0, bulk, tail], 4 * SMALLEST)
    return np.minimum(np.asarray(value, dtype=np.float64), 1.0)


def _bulk(epsilon: Array, low: Array, high: Array) -> Array:
    """Φ(−low) − e^ε Φ(−high) for low <= 0, without cancellation at small ε."""
    within = (erf(-low / math.sqrt(2.0)) + erf(high / math.sqrt(2.0))) / 2
    near = within - np.expm1(np.minimum(epsilon, 1.0)) * ndtr(-high)
    far = ndtr(-low) - _density(low) * _mills(high)  # e^ε φ(high) = φ(low)
    return np.asarray(np.where(epsilon < 1, near, far))


def _tail(low: Array, high: Array, distance: Array) -> Array:
    """φ(low) (m(low) − m(high)) for low > 0, with m Mills' ratio."""
    low = np.clip(low, 0.0, NORMAL_TAIL)
    value = np.asarray(_mills(low) - _mills(high))
    close = 4 * distance < 1 + low
    if close.any():
        # −m'(x) = 1 − x m(x) > 0, integrated over [low, low + d] where the difference cancels
        start, width = low[close][:, None], distance[close][:, None]
        points = start + width * (NODES + 1) / 2
        slopes = 1 - points * _mills(points)
        value[close] = distance[close] / 2 * np.sum(slopes * WEIGHTS, axis=-1)
    return np.asarray(_density(low) * value)


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
