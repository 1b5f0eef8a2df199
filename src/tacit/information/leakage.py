"""Maximal leakage of channels: finite ones, codes, randomised response, noise on a ball."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from tacit._ground.checks import Array, integer, matrix, non_negative, positive
from tacit._ground.numbers import EPS, exp_up, log_up, rounded_up
from tacit.guarantees import ApproximateDP, MaximalLeakage

# How far a row of probabilities may be from a sum of 1 before it is divided by it.
ROW_TOLERANCE = 1e-9
# exp of less is a float, also when many are added.
MODERATE = 600.0
# Units in the last place: of a row divided by its sum; of the formula of a response (six operations
# and an exponential); of a logarithm of volumes, for each of k terms of ln k; and of a sum of
# exponentials: each is twice or more what its steps lose.
FORMULA = "Issa, Wagner and Kamath (2020), Theorem 1: ln Σ_y max_x P(y|x)"
ROW_UNITS, RESPONSE_UNITS, VOLUME_UNITS, SUM_UNITS = 4.0, 16.0, 64.0, 16.0
FRESH_COINS = "the coins of the release are independent of all else"
ONE_RELEASE = "one release about the secret; further ones multiply"


def channel_leakage(channel: Any, *, secret: str = "the secret") -> MaximalLeakage:
    """Return the maximal leakage of a finite channel: ``Σ_y max_x P(y | x)``.

    Args:
        channel: P(y | x) in row x and column y, (secrets, outputs); each row adds up to 1 within
            1e-9 and is divided by what it adds up to. A secret left out is a secret not covered.
        secret: What x is.

    Returns:
        The guarantee, rounded up.

    Raises:
        ValueError: Not a matrix of numbers >= 0, or a row that does not add up to 1.

    Example:
        >>> bound = channel_leakage([[0.75, 0.25], [0.25, 0.75]])
        >>> bound.factor, round(bound.nats, 4)
        (1.5, 0.4055)

    Source: Issa, Wagner and Kamath (2020), Theorem 1.
    """
    table = matrix("channel", channel)
    if table.min() < 0:
        raise ValueError(f"channel: expected probabilities >= 0, got {table.min():.6g}")
    # fsum rounds once, so that 0 here means a row that adds up to 1 exactly
    excess = np.array([math.fsum([*row, -1.0]) for row in table.tolist()])
    worst = int(np.abs(excess).argmax())
    if abs(excess[worst]) > ROW_TOLERANCE:
        raise ValueError(
            f"channel: expected rows that add up to 1, got {1 + excess[worst]:.9g} in row {worst}"
        )
    # P(y | x) divided by its row's sum, upwards; a row that adds up to 1 is left as it is
    scale = np.where(excess == 0, 1.0, (1.0 + ROW_UNITS * EPS) / (1.0 + excess))
    # Σ_y max_x P(y | x) in fractions: the one rounding is the last, upwards
    largest: Array = (table * scale[:, None]).max(axis=0)
    factor = rounded_up(sum(map(Fraction, largest.tolist()), Fraction(0)))
    rows = "every value that the secret can have is a row of the channel"
    return _theorem(factor, secret, (FRESH_COINS, ONE_RELEASE, rows))


def code_leakage(outputs: int, *, secret: str = "the secret") -> MaximalLeakage:
    """Return the maximal leakage of a function of the secret: the number of values it can take.

    Args:
        outputs: Values that some secret would get, those never seen so far included: all C codes of
            a codebook, all tokens of a vocabulary for the likeliest one.
        secret: What is mapped.

    Returns:
        The guarantee, a theorem.

    Raises:
        ValueError: ``outputs`` is not an integer >= 1.

    Example:
        >>> code_leakage(1024, secret="the prompt").describe()[:79]
        "Seeing one release multiplies any attacker's chance of guessing anything about "

    Source: Issa, Wagner and Kamath (2020), Theorem 1.
    """
    count = integer("outputs", outputs, minimum=1, maximum=None)
    # every output is the likeliest one of some secret, with probability 1: the sum is their number
    return MaximalLeakage(
        factor=rounded_up(Fraction(count)),
        nats=log_up(count),
        secret=secret,
        evidence="theorem",
        assumptions=(
            f"the release is one of {count:,} values whatever the secret is, and a function of it",
            ONE_RELEASE,
        ),
        source=f"{FORMULA}, the number of outputs of a deterministic release",
    )


def response_leakage(
    size: int, epsilon: float, *, near: int = 1, secret: str = "the secret"
) -> MaximalLeakage:
    """Return the maximal leakage of randomised response: ``C e^ε/(k e^ε + C − k)``.

    Args:
        size: C >= 2, codes there are.
        epsilon: ε >= 0: each of the k codes nearest to the true one, itself among them, is reported
            with weight e^ε, any other with weight 1.
        near: k, 1 … C − 1.
        secret: What the code is of.

    Returns:
        The guarantee, rounded up.

    Raises:
        ValueError: A number out of range.

    Example:
        >>> round(response_leakage(4, 2.0).factor, 4)
        2.8449

    Source: Issa, Wagner and Kamath (2020), Theorem 1: every report y is near to the code y, so its
    largest probability is e^ε/Z.
    """
    count = integer("size", size, minimum=2)
    close = integer("near", near, minimum=1, maximum=count - 1)
    loss = non_negative("epsilon", epsilon)
    # C/(k + (C − k) e^−ε), which no ε overflows
    exact = count / (close + (count - close) * math.exp(-loss))
    # no code is likelier than e^ε times any other: e^ε where rounding would say more
    factor = min(exact * (1.0 + RESPONSE_UNITS * EPS), exp_up(loss))
    return _theorem(factor, secret, (FRESH_COINS, ONE_RELEASE))


def gaussian_leakage(
    dimension: int, *, radius: float, noise_std: float, secret: str = "the secret"
) -> MaximalLeakage:
    """Return the maximal leakage of noise N(0, σ²I) on a vector of a ball of radius R.

    The density of the release at distance t outside the ball is at most that of noise at t:
    ``factor = Σ_{j=0}^{k} V_j(ball)/(2πσ²)^{j/2}``, V_j its intrinsic volumes; k = 1 gives
    ``1 + 2R/√(2πσ²)``.

    Args:
        dimension: k >= 1.
        radius: R >= 0; longer vectors are clipped before the noise.
        noise_std: σ > 0.
        secret: What the vector is of.

    Returns:
        The guarantee, rounded up; its factor may be inf where its nats are not.

    Raises:
        ValueError: A number out of range.

    Example:
        >>> round(gaussian_leakage(1, radius=1.0, noise_std=1.0).factor, 4)
        1.7979

    Source: Issa, Wagner and Kamath (2020), continuous outputs: ∫ sup_x p(y|x) dy; Steiner's
    formula.
    """
    size = integer("dimension", dimension, minimum=1, maximum=10**6)
    reach = non_negative("radius", radius)
    ratio = reach / positive("noise_std", noise_std)
    terms = np.zeros(0)
    if reach > 0:
        # up, where the division underflows too
        ratio = math.nextafter(ratio, math.inf)
        # ln V_j + j ln(R/√(2πσ²)): as logarithms, for V_j alone spans hundreds of orders of
        # magnitude
        terms = _log_intrinsic_volumes(size) + np.arange(1.0, size + 1) * (
            math.log(ratio) - 0.5 * math.log(2.0 * math.pi)
        )
        # each logarithm is off by units of k (ln k + |ln R/σ|): upwards
        terms += VOLUME_UNITS * EPS * (1.0 + size) * (1.0 + math.log(size) + abs(math.log(ratio)))
    nats = _log_one_plus(terms)
    return MaximalLeakage(
        nats=nats,
        secret=secret,
        evidence="theorem",
        assumptions=(
            FRESH_COINS,
            ONE_RELEASE,
            f"the vector is clipped to length {radius:g} before the noise, whatever the secret is",
        ),
        source=FORMULA.replace("Σ_y max_x P(y|x)", "∫ sup_x p(y|x) dy, Steiner's formula"),
    )


def local_dp_leakage(guarantee: ApproximateDP, *, secret: str = "the secret") -> MaximalLeakage:
    """Return the maximal leakage that (ε, 0)-differential privacy for all pairs gives: ε nats.

    ``P(y | x) <= e^ε P(y | x')`` for all x and x', so ``Σ_y max_x P(y | x) <= e^ε``.

    Args:
        guarantee: (ε, 0)-DP whose neighbours are any two values of the secret; that they are is the
            caller's to know, and is entered among the assumptions.
        secret: What it is about.

    Returns:
        The guarantee.

    Raises:
        ValueError: δ > 0, with which no factor is proved.

    Source: Issa, Wagner and Kamath (2020), local differential privacy.
    """
    if not isinstance(guarantee, ApproximateDP):
        raise ValueError(f"guarantee: expected ApproximateDP, got {type(guarantee).__name__}")
    if guarantee.delta > 0:
        raise ValueError(f"guarantee: expected δ = 0, got {guarantee.delta!r}: it gives no factor")
    return MaximalLeakage(
        nats=guarantee.epsilon,
        secret=secret,
        evidence=guarantee.evidence,
        assumptions=(
            *guarantee.assumptions,
            f"any two values of the secret are neighbours ({guarantee.adjacency})",
        ),
        source=f"{guarantee.source}; {FORMULA} <= ε",
        confidence=guarantee.confidence,
    )


def _log_intrinsic_volumes(size: int) -> Array:
    """Return ln V_j of the unit ball, j = 1 … k, to rounding: V_j = C(k, j) κ_k/κ_{k−j}."""
    orders = np.arange(1.0, size + 1)
    rest = size - orders
    # ln C(k, j) by log-gamma: the binomial itself overflows
    chosen: Array = gammaln(size + 1.0) - gammaln(orders + 1.0) - gammaln(rest + 1.0)
    # κ_j = π^{j/2}/Γ(1 + j/2), the volume of the ball: κ_k/κ_{k−j}
    volumes: Array = (
        gammaln(1.0 + rest / 2) - gammaln(1.0 + size / 2) + orders / 2 * math.log(math.pi)
    )
    return chosen + volumes


def _theorem(factor: float, secret: str, assumptions: tuple[str, ...]) -> MaximalLeakage:
    return MaximalLeakage(
        factor=max(1.0, factor),
        secret=secret,
        evidence="theorem",
        assumptions=assumptions,
        source=FORMULA,
    )


def _log_one_plus(terms: Array) -> float:
    """Return ln(1 + Σ exp(terms)), rounded up."""
    up = 1.0 + SUM_UNITS * EPS
    if terms.size == 0:
        return 0.0
    if terms.max() < MODERATE:
        # the sum may be far below 1, where ln(1 + …) alone would lose it
        return math.nextafter(math.log1p(math.fsum(np.exp(terms).tolist()) * up) * up, math.inf)
    # beyond floats: a log-sum-exp with e⁰ for the 1
    return float(logsumexp([0.0, *terms.tolist()])) * up
