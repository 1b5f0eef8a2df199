"""Divergence between N(0, Σ) and N(z, Σ) as a function of ‖z‖ in the Σ⁻¹ norm; its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from scipy.special import erf, erfcx, ndtr

from tacit._ground.checks import Array, non_negative, positive
from tacit._ground.numbers import EPS, LARGEST, SMALLEST
from tacit.divergences.convex import ConvexFunction

# The density of N(0, 1) is below the smallest float beyond this.
NORMAL_TAIL = 39.0
# 12 nodes are exact for polynomials of degree 23: 1 − x m(x) over a width of at most (1 + x)/4.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
# Units in the last place by which a closed form is raised: a product or two; an expm1 or an erf and
# its argument, whose rounding they pass on no larger; and the least float, four times, for all that
# underflows.
PRODUCT_UNITS, QUOTIENT_UNITS, EXPM1_UNITS, ERF_UNITS, LEAST_UNITS = 2, 4, 6, 8, 4
# Of a hockey stick about its middle: two error functions, an expm1 and their products; and far out,
# where φ(low) passes on the rounding of low² and m(low) − m(high) that of two erfcx.
BULK_UNITS, TAIL_UNITS, SQUARE_UNITS = 32, 64, 16
# What low² counts as at most: φ(low) is 0 long before.
LARGEST_SQUARE = 1e6
# Where d is below a quarter of 1 + low, m(low) − m(high) cancels and is integrated instead.
CLOSE = 4
# A value of a quadrature is inverted to 2²⁰ floats, below 1e-9 of it; one of a closed form exactly.
COARSE_FLOATS = 1 << 20

NamedKind: TypeAlias = str | tuple[str, float]
Kind: TypeAlias = NamedKind | Callable[[float], float]
Closed: TypeAlias = Callable[[Array], Array]
PLAIN = ("kl", "tv", "hellinger", "chi2")
EXPECTED = (
    "'kl', 'tv', 'hellinger', 'chi2', ('renyi', order), ('hockey-stick', epsilon) "
    "or a convex function f with f(1) = 0"
)


@overload
def shift_divergence(kind: Kind, distance: float) -> float: ...
@overload
def shift_divergence(kind: Kind, distance: Array | Sequence[float]) -> Array: ...
def shift_divergence(kind: Kind, distance: float | Array | Sequence[float]) -> float | Array:
    """Divergence between N(0, Σ) and N(z, Σ) at ``distance`` d = ‖z‖ in the Σ⁻¹ norm, rounded up.

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
    """Largest distance of a divergence of at most ``value``: sup {d : H(d) <= value}, rounded down.

    ``shift_divergence(kind, shift_distance(kind, v)) <= v`` holds in floating point.

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
    # where the value reaches the supremum every distance is within it
    supremum = float(divergence(np.array([math.inf]))[0])
    result = np.full(flat.shape, math.inf)
    below = flat < supremum
    if below.any():
        width = COARSE_FLOATS if callable(checked) else 1
        result[below] = _largest_within(divergence, flat[below], width)
    return float(result[0]) if values.ndim == 0 else result.reshape(values.shape)


def _largest_within(divergence: Closed, values: Array, width: int) -> Array:
    """The largest distance within each value, rounded down to ``width`` floats.

    Floats >= 0 are ordered like their bit patterns, so bisection halves the floats themselves.
    """
    low = np.zeros(values.shape, dtype=np.int64)
    # the pattern after the largest float is inf
    high = np.full(values.shape, np.float64(LARGEST).view(np.int64) + 1)
    while int((high - low).max()) > width:
        middle = low + (high - low) // 2
        # the divergence is rounded up: a distance counts as within only if its bound is
        within = divergence(middle.view(np.float64)) <= values
        low = np.where(within, middle, low)
        high = np.where(within, high, middle)
    return low.view(np.float64)


def _non_negative(name: str, value: Any) -> Array:
    """Return numbers >= 0 exactly as given, or refuse them."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected numbers >= 0, got {type(value).__name__}") from None
    bad = ~(numbers >= 0)
    if bad.any():
        raise ValueError(f"{name}: expected numbers >= 0, got {numbers[bad].flat[0]!r}")
    return numbers


def _evaluator(kind: Kind) -> Closed:
    """Return the function of distances that bounds this divergence from above."""
    if isinstance(kind, str):
        return _guard({"kl": _kl, "tv": _tv, "hellinger": _hellinger, "chi2": _chi2}[kind])
    if isinstance(kind, tuple):
        name, parameter = kind
        if name == "renyi":
            return _guard(lambda d: _up(parameter * d * d / 2, QUOTIENT_UNITS))
        return _guard(lambda d: hockey_stick(np.array(parameter), d))
    function = ConvexFunction.prepare(kind)
    return lambda d: np.array([function.divergence(float(x)) for x in d])


def _guard(closed: Closed) -> Closed:
    """Return the function with 0 at distance 0, where quotients by it are none."""

    def evaluate(distances: Array) -> Array:
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            return np.where(distances == 0, 0.0, closed(distances))

    return evaluate


def _up(value: Array, units: float | Array) -> Array:
    """Raise values by units in the last place, and by more than underflow takes."""
    return value * (1 + units * EPS) + LEAST_UNITS * SMALLEST


def _kl(distance: Array) -> Array:
    """d²/2, rounded up."""
    return _up(distance * distance / 2, PRODUCT_UNITS)


def _tv(distance: Array) -> Array:
    """2Φ(d/2) − 1 = erf(d/√8), rounded up: no difference from 1 at small d."""
    return np.minimum(_up(erf(distance / math.sqrt(8.0)), ERF_UNITS), 1.0)


def _hellinger(distance: Array) -> Array:
    """1 − exp(−d²/8), rounded up, by expm1: no difference from 1 at small d."""
    return np.minimum(_up(-np.expm1(-distance * distance / 8), EXPM1_UNITS), 1.0)


def _chi2(distance: Array) -> Array:
    """exp(d²) − 1, rounded up; the square first, whose rounding the exponential multiplies."""
    return _up(np.expm1(_up(distance * distance, PRODUCT_UNITS)), QUOTIENT_UNITS)


def _mills(x: Array) -> Array:
    """m(x) = Φ(−x)/φ(x), to rounding: erfcx does not underflow where both parts do."""
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0))
    return ratio


def _density(x: Array) -> Array:
    """φ(x), to rounding."""
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
        # the divergence falls as low grows and rises with high: each is moved against us by its
        # rounding
        low = low - PRODUCT_UNITS * EPS * (ratio + np.abs(low))
        high = (ratio + distance / 2) * (1 + PRODUCT_UNITS * EPS)
        bulk = _up(_bulk(epsilon, low, high), BULK_UNITS)
        # φ(low) = exp(−low²/2): a rounding of low² costs low² units
        tail_units = TAIL_UNITS + SQUARE_UNITS * np.minimum(low * low, LARGEST_SQUARE)
        tail = _up(_tail(low, high, distance), tail_units)
    # d = 0; d = inf; ε = inf; the middle; far out; and beyond it all a few least floats
    cases = [distance == 0, np.isinf(distance), epsilon == np.inf, low <= 0, low < NORMAL_TAIL]
    value = np.select(cases, [0.0, 1.0, 0.0, bulk, tail], LEAST_UNITS * SMALLEST)
    return np.minimum(np.asarray(value, dtype=np.float64), 1.0)


def gaussian_curve(epsilon: Array, distance: float | Array) -> Array:
    """Return the hockey-stick divergence of N(0, 1) and N(d, 1) at any real ε, rounded up.

    Args:
        epsilon: ε in nats, any shape that broadcasts with ``distance``; infinities allowed.
        distance: d >= 0, may be inf.

    Returns:
        δ in [0, 1], of the common shape; relative error a few units in the last place.
    """
    points, distances = np.broadcast_arrays(np.asarray(epsilon, dtype=np.float64), distance)
    with np.errstate(all="ignore"):
        above = hockey_stick(np.abs(points), distances)
        # δ(−ε) = 1 − e^{−ε}(1 − δ(ε)) as a sum of two positive terms
        low = np.minimum(points, 0.0)
        below = (-np.expm1(low) + np.exp(low) * above) * (1 + QUOTIENT_UNITS * EPS)
    return np.minimum(np.where(points < 0, below, above), 1.0)


def _bulk(epsilon: Array, low: Array, high: Array) -> Array:
    """Φ(−low) − e^ε Φ(−high) for low <= 0, to rounding, without cancellation at small ε."""
    # Φ(−low) − Φ(−high) is the mass between, and (e^ε − 1) Φ(−high) is small with ε
    within = (erf(-low / math.sqrt(2.0)) + erf(high / math.sqrt(2.0))) / 2
    near = within - np.expm1(np.minimum(epsilon, 1.0)) * ndtr(-high)
    # e^ε φ(high) = φ(low): Mills' ratio spares the overflow of e^ε
    far = ndtr(-low) - _density(low) * _mills(high)
    return np.asarray(np.where(epsilon < 1, near, far))


def _tail(low: Array, high: Array, distance: Array) -> Array:
    """φ(low) (m(low) − m(high)) for low > 0, to rounding, with m Mills' ratio."""
    low = np.clip(low, 0.0, NORMAL_TAIL)
    value = np.asarray(_mills(low) - _mills(high))
    close = CLOSE * distance < 1 + low
    if close.any():
        # −m'(x) = 1 − x m(x) > 0, integrated over [low, low + d] where the difference cancels
        start, width = low[close][:, None], distance[close][:, None]
        points = start + width * (NODES + 1) / 2
        slopes = 1 - points * _mills(points)
        value[close] = distance[close] / 2 * np.sum(slopes * WEIGHTS, axis=-1)
    return np.asarray(_density(low) * value)


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
