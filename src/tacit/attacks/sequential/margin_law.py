"""When a Gaussian release lets a decoder tell one token from all others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    matrix,
)
from tacit._ground.numbers import EPS

# Of a quantile and of the share it is taken at, several units in the last place each.
ROUNDING = 16.0 * EPS


@dataclass(frozen=True)
class StepLaw:
    """How likely maximum likelihood picks the true one of V tokens.

    Attributes:
        margin: m, distance to the nearest other token in units of the noise.
        success: the probability, by drawing the noise, ties broken by lot.
        low: 1 − Σ_v Φ(−m_v/2), at least 0: it is no less.
        high: 1 − Φ(−m/2): it is no more.
        published: 1 − (V − 1) exp(−m²/8), at least 0, the bound of Thm 20.
    """

    margin: float
    success: float
    low: float
    high: float
    published: float


def step_law(differences: Array, draws: int = 500, rng: RandomSource = None) -> StepLaw:
    """Return what the whitened differences to all other tokens say about one step.

    The true token is kept when ``⟨w, a_v⟩ <= ‖a_v‖²/2`` for all v, with ``a_v = Σ^-½ (h_v − h_y)``
    and w ~ N(0, I). Only V − 1 products with w matter, so a draw costs one matrix product.

    Args:
        differences: a_v, (V − 1, d).
        draws: draws of w.
        rng: source of the draws.

    Returns:
        The margin, the probability and its bounds.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> law = step_law(np.array([[2.0, 0.0], [0.0, 4.0]]), rng=0)
        >>> law.margin, round(law.high, 6), round(law.low, 6)
        (2.0, 0.841345, 0.818595)

    Source: hidden-state, Thm 20 and its proof.
    """
    rows = matrix("differences", differences)
    count = integer("draws", draws, minimum=1)
    lengths = np.linalg.norm(rows, axis=1)
    margin = float(lengths.min())
    # P(⟨w, a_v⟩ > ‖a_v‖²/2) = Φ(−m_v/2): another token alone is nearer
    errors = special.ndtr(-lengths / 2.0)
    noise = generator(rng).standard_normal((rows.shape[1], count))
    kept = (rows @ noise <= (lengths**2 / 2.0)[:, None]).all(axis=0)
    # tokens of the same state tie: one of them is picked by lot
    alike = 1 + int((lengths == 0.0).sum())
    # (V − 1) e^{−m²/8} by its logarithm: V − 1 times a number that may be no float
    published = math.exp(math.log(len(rows)) - margin**2 / 8.0)
    return StepLaw(
        margin=margin,
        success=float(kept.mean()) / alike,
        low=max(0.0, 1.0 - float(errors.sum())),
        high=1.0 - float(errors.max()),
        published=max(0.0, 1.0 - published),
    )


def margin_threshold(vocabulary: int, error_rate: float, *, tail: str = "exponential") -> float:
    """Margin from which a step errs with probability ``error_rate`` at most.

    ``m = √(8 ln((V − 1)/δ))``, or with ``tail="gaussian"`` the smaller
    ``m = −2 Φ⁻¹(δ/(V − 1))``: the same union bound without the exponential's slack.

    Args:
        vocabulary: V >= 2.
        error_rate: δ in (0, 1).
        tail: ``"exponential"``, as published, or ``"gaussian"``.

    Returns:
        The margin in units of the noise, rounded up: below it the bound says nothing, which is
        not privacy.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> [round(margin_threshold(50_257, rate), 2) for rate in (0.1, 0.01, 0.001)]
        [10.25, 11.11, 11.91]
        >>> round(margin_threshold(50_257, 0.1, tail="gaussian"), 2)
        9.22

    Source: hidden-state, Cor. 22.
    """
    others = integer("vocabulary", vocabulary, minimum=2) - 1
    chance = in_interval("error_rate", error_rate, 0.0, 1.0, open_low=True, open_high=True)
    if choice("tail", tail, ("exponential", "gaussian")) == "exponential":
        margin = math.sqrt(8.0 * (math.log(others) - math.log(chance)))
        return margin * (1.0 + 4.0 * EPS)
    # from Φ(−m/2) = ½ on a margin of 0 will do
    share = chance / others
    if share >= 0.5:
        return 0.0
    return -2.0 * float(special.ndtri(share * (1.0 - ROUNDING))) * (1.0 + ROUNDING)
