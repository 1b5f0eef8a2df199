"""How strong a promise is asked for: a success, μ, (ε, δ) or ρ, all of them as a μ."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit.conversions import success_from_profile
from tacit.divergences import shift_divergence

# The noise of a design keeps its budget up to this, and so does its reading in double precision.
SLACK = 1e-8
LARGEST_MU = 2.0**10
# Beyond this an ε says nothing.
LARGEST_EPSILON = 1e6
# Squares of what rows add, in units of the noise, stay within double precision.
SMALLEST_MU = 1e-50
BISECTIONS = 80
# Steps down, relative, from what double precision finds to what is certified.
FIRST_STEP = 2.0**-46
# Of the quadrature, relative, and of the tails that it leaves out.
QUADRATURE_SLACK, TAIL = 1e-11, 1e-15


def gaussian_mu(
    *,
    success: float | None = None,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    prior: float = 0.5,
) -> float:
    """Return the largest μ of Gaussian differential privacy that keeps what is asked for.

    Args:
        success: largest success of telling whether a row is in, of a prior ``prior``.
        mu: μ > 0 itself.
        epsilon: ε > 0 with ``delta``.
        delta: δ in (0, 1) with ``epsilon``.
        rho: ρ > 0 of zero-concentrated differential privacy: μ²/2.
        prior: probability that the row is in.

    Returns:
        μ, rounded down.

    Raises:
        ValueError: none or several of them, or one out of range.

    Example:
        >>> round(gaussian_mu(success=0.55), 4), round(gaussian_mu(epsilon=1.0, delta=1e-5), 4)
        (0.2513, 0.2681)

    Source: Dong, Roth and Su (2022), Corollary 2.13; Bun and Steinke (2016), Proposition 1.6.
    """
    if delta is not None and epsilon is None:
        raise ValueError(f"epsilon: expected a value beside delta, got delta={delta!r} alone")
    asked = {"success": success, "mu": mu, "epsilon": epsilon, "rho": rho}
    named = [name for name, value in asked.items() if value is not None]
    if len(named) != 1:
        found = ", ".join(f"{name}={asked[name]!r}" for name in named) or "none"
        raise ValueError(
            f"success, mu, epsilon, rho: expected exactly one of them (epsilon with delta), "
            f"got {found}"
        )
    if mu is not None:
        return checked_mu("mu", positive("mu", mu))
    if rho is not None:
        # the square root is rounded to nearest
        return checked_mu("rho", math.sqrt(2.0 * positive("rho", rho)) * (1.0 - 2.0**-51))
    if success is not None:
        blind = max(prior, 1.0 - prior)
        if isinstance(success, (int, float)) and 0.0 < success <= blind < 1.0:
            raise ValueError(
                f"success: expected more than {blind:.4g}, which guessing blind is right where a "
                f"row is in with probability {prior:.4g}, got {success!r}"
            )
        limit = in_interval("success", success, blind, 1.0, open_low=True, open_high=True)
        odds = math.log((1.0 - prior) / prior)
        excess = (limit - (1.0 - prior)) / prior
        near = _near(lambda value: _hockey_stick(odds, value) <= excess)
        return _largest(near, lambda value: success_of(value, prior) <= limit)
    loss = non_negative("epsilon", epsilon)
    least = in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    near = _near(lambda value: _hockey_stick(loss, value) <= least)
    return _largest(near, lambda value: delta_of(value, loss) <= least)


def checked_mu(name: str, mu: float) -> float:
    """Return a μ that noise can be computed for.

    Raises:
        ValueError: it is so small that noise leaves double precision; the message has the name.
    """
    if mu < SMALLEST_MU:
        raise ValueError(f"{name}: expected a μ of at least {SMALLEST_MU:g}, got {mu:.3g}")
    return mu


def check_epsilon(epsilon: float | None) -> None:
    """Refuse an ε without δ that is so small that noise leaves double precision.

    Raises:
        ValueError: it is.
    """
    if epsilon is not None and epsilon < SMALLEST_MU:
        raise ValueError(f"epsilon: expected at least {SMALLEST_MU:g}, got {epsilon:.3g}")


def _hockey_stick(epsilon: float, mu: float) -> float:
    """Return ``Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)`` as double precision has it."""
    return float(ndtr(0.5 * mu - epsilon / mu)) - math.exp(
        min(epsilon + float(log_ndtr(-0.5 * mu - epsilon / mu)), 0.0)
    )


def success_of(mu: float, prior: float = 0.5) -> float:
    """Return the largest success of telling two inputs apart under μ, rounded up."""
    return success_from_profile(lambda epsilon: delta_of(mu, epsilon), prior)


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least δ that μ gives at ε, ``Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)``, rounded up."""
    return min(float(shift_divergence(("hockey-stick", epsilon), mu)), 1.0)


def epsilon_of(mu: float, delta: float) -> float:
    """Return an ε at which μ gives no more than δ, the least to a thousandth; inf beyond 10⁶."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # as double precision has it: δ falls with ε
    low, high = 0.0, 1.0
    while math.isinf(mu) or _hockey_stick(high, mu) > delta:
        low, high = high, 2.0 * high
        if high > LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _hockey_stick(middle, mu) <= delta else (middle, high)
    # and then as it is rounded up
    while delta_of(mu, high) > delta:
        high *= 1.0 + 1e-4
    return high


def _near(fits: Callable[[float], bool]) -> float:
    """Return about the largest μ that fits, by bisection."""
    low, high = 0.0, LARGEST_MU
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest(near: float, fits: Callable[[float], bool]) -> float:
    """Return about the largest μ that fits: ``near``, or the first below it in longer steps."""
    step = FIRST_STEP
    while step < 1.0:
        value = near * (1.0 - step)
        if value > 0.0 and fits(value):
            return value
        step *= 4.0
    raise ValueError("success: expected a promise that some noise can keep, got none")


def naming_success(mu: float, choices: int) -> float:
    """Return the largest success of naming one of k inputs, k equally likely, rounded up.

    Under noise N(0, I) the success of the best guess rises with every distance between the k
    means (Slepian's comparison for ``E max_j exp(X_j − ½ Var X_j)``, docs/explanation), so that
    it is largest where all are μ apart: a regular simplex, ``∫ φ(t) Φ(t + μ/√2)^(k−1) dt``.

    Args:
        mu: μ >= 0, the largest distance between two of the means.
        choices: k >= 2.

    Example:
        >>> round(naming_success(0.0, 4), 6), naming_success(1.0, 2) >= success_of(1.0) - 1e-12
        (0.25, True)
    """
    count = integer("choices", choices, minimum=2)
    shift = non_negative("mu", mu, allow_inf=True) / math.sqrt(2.0)
    if math.isinf(shift):
        return 1.0
    nodes, weights = _nodes()
    powers = np.exp((count - 1) * log_ndtr(nodes + shift) - 0.5 * nodes**2)
    value = float(weights @ powers) / math.sqrt(2.0 * math.pi)
    return min(max(value * (1.0 + QUADRATURE_SLACK) + TAIL, 1.0 / count), 1.0)


@cache
def _nodes() -> tuple[Array, Array]:
    """Return nodes and weights of panels on [−9, 9]; the rest of N(0, 1) has less than 1e-18."""
    points, weights = np.polynomial.legendre.leggauss(24)
    edges = np.linspace(-9.0, 9.0, 37)
    half = 0.5 * (edges[1] - edges[0])
    nodes = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * points).ravel()
    return nodes, np.tile(half * weights, len(edges) - 1)
