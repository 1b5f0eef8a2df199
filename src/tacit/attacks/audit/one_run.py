"""One training run audited: guess which canaries the coins put in, and bound ε and μ from below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import special

from tacit._ground.checks import RandomSource, generator, in_interval, integer, vector
from tacit._ground.random import fair_choices
from tacit._ground.reprs import shown
from tacit.attacks.audit.bounds import (
    gaussian_epsilon,
    lower_epsilon,
    lower_mu,
    refutes_profile,
)
from tacit.attacks.membership.roc import truth_values
from tacit.guarantees import ApproximateDP, GaussianDP, Guarantee, RenyiDP
from tacit.text import number_down, number_up, share_down

# Fair coins land this unevenly less than once in a billion.
UNFAIR = 1e-9


@dataclass(frozen=True, kw_only=True)
class CoinGuesses:
    """How many coins were guessed right at one choice of k₊ and k₋, and what that proves.

    Attributes:
        top: k₊, the canaries of the highest scores, guessed in.
        bottom: k₋, the canaries of the lowest scores, guessed out.
        right: v, the right guesses among k₊ + k₋.
        epsilon_low: lower bound on ε at the audit's δ.
        mu_low: lower bound on μ.
    """

    top: int
    bottom: int
    right: int
    epsilon_low: float
    mu_low: float

    @property
    def guesses(self) -> int:
        """The number r = k₊ + k₋ of guesses; the other canaries are abstained on."""
        return self.top + self.bottom


@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """What the guesses about one training run prove about it: evidence, never a guarantee.

    Each lower bound alone is wrong with probability 1 − ``confidence`` at most, over the coins and
    the run.

    Attributes:
        canaries: m, each in or out by a fair coin of its own.
        choices: the guesses at each k₊, k₋ tried; with several, α = 1 − ``confidence`` is divided
            by their number.
        epsilon_low: the run is (ε, δ)-private at no ε below this.
        mu_low: the run is μ-Gaussian private at no μ below this.
        gaussian_epsilon_low: the ε at δ of Gaussian privacy with μ = ``mu_low``; it bounds the ε
            of a run whose curve is known to be a Gaussian's, and of no other.
        delta: δ of both ε.
        confidence: 1 − α.
    """

    canaries: int
    choices: tuple[CoinGuesses, ...]
    epsilon_low: float
    mu_low: float
    gaussian_epsilon_low: float
    delta: float
    confidence: float

    @property
    def best(self) -> CoinGuesses:
        """The choice with the highest bound on μ."""
        return max(self.choices, key=lambda choice: (choice.mu_low, choice.epsilon_low))

    @property
    def guesses(self) -> int:
        """The number r of guesses at the best choice."""
        return self.best.guesses

    @property
    def right(self) -> int:
        """The number v of right guesses at the best choice."""
        return self.best.right

    @property
    def fixed(self) -> bool:
        """Whether k₊ and k₋ were fixed beforehand, so that α was not divided."""
        return len(self.choices) == 1

    def refuted(self, guarantee: Guarantee) -> bool:
        """Whether the run does not keep a guarantee, at ``confidence``.

        The guarantee must be about what the coins decide: one canary in or out, everything else,
        the other canaries included, being the same.

        Args:
            guarantee: an `ApproximateDP` (tested at its own δ), a `GaussianDP`, or a `RenyiDP`
                (through the ε that it gives at the audit's δ > 0).

        Raises:
            ValueError: it is of another kind, or a `RenyiDP` and δ is 0.

        Source: Steinke, Nasr and Jagielski (2023); Mahloujifar, Melis and Chaudhuri (2024).
        """
        if isinstance(guarantee, GaussianDP):
            return self.mu_low > guarantee.mu
        if isinstance(guarantee, RenyiDP):
            guarantee = guarantee.approximate(self.delta)
        if isinstance(guarantee, ApproximateDP):
            return self.epsilon_low_at(guarantee.delta) > guarantee.epsilon
        raise ValueError(
            "guarantee: expected ApproximateDP, GaussianDP or RenyiDP, got "
            f"{type(guarantee).__name__}"
        )

    def epsilon_low_at(self, delta: float) -> float:
        """Return the lower bound on ε at another δ in [0, 1], from the same guesses."""
        # each of several choices is held to its share of α (union bound)
        failure = (1.0 - self.confidence) / len(self.choices)
        chance = in_interval("delta", delta, 0.0, 1.0)
        return max(
            lower_epsilon(self.canaries, choice.guesses, choice.right, chance, failure)
            for choice in self.choices
        )

    def refutes(self, epsilons: ArrayLike, deltas: ArrayLike) -> bool:
        """Whether the run does not keep a privacy profile, at ``confidence``.

        It is tested as a whole, which refutes more than any one of its points does.

        Args:
            epsilons: (k,) points ε >= 0 of the profile.
            deltas: (k,) δ(ε) there, rounded up.

        Raises:
            ValueError: arrays of other shapes, or a δ outside [0, 1].

        Source: Mahloujifar, Melis and Chaudhuri (2024), Theorem 9 and Algorithm 3.
        """
        points = vector("epsilons", epsilons)
        chances = vector("deltas", deltas, size=points.size)
        if (points < 0.0).any() or (chances < 0.0).any() or (chances > 1.0).any():
            raise ValueError("deltas: expected ε >= 0 and δ in [0, 1], got other values")
        failure = (1.0 - self.confidence) / len(self.choices)
        return any(
            refutes_profile(self.canaries, choice.guesses, choice.right, failure, points, chances)
            for choice in self.choices
        )

    @property
    def most_epsilon(self) -> float:
        """The ε that so many guesses would prove if all were right: more cannot be told."""
        failure = (1.0 - self.confidence) / len(self.choices)
        return max(
            lower_epsilon(self.canaries, choice.guesses, choice.guesses, self.delta, failure)
            for choice in self.choices
        )

    def describe(self) -> str:
        """Return the audit as one line of plain English, every bound rounded down."""
        tried = "" if self.fixed else f" (the best of {len(self.choices)} choices, paid for)"
        return (
            f"Fair coins put in or left out {self.canaries} canaries; of {self.guesses} guesses "
            f"{self.right} were right{tried}. Each with confidence {share_down(self.confidence)}: "
            f"ε is at least {number_down(self.epsilon_low)} at δ = {number_up(self.delta)}, and "
            f"μ at least {number_down(self.mu_low)}."
        )


def coins(canaries: int, rng: RandomSource = None) -> npt.NDArray[np.bool_]:
    """Draw the fair coins that decide which canaries are in the run.

    Args:
        canaries: m >= 1.
        rng: seed or generator; the operating system's when None, as an audit that others are to
            believe needs.

    Returns:
        (m,) independent truth values.

    Raises:
        ValueError: ``canaries`` is no integer >= 1.

    Example:
        >>> coins(1000).shape
        (1000,)
    """
    return fair_choices(integer("canaries", canaries, minimum=1), 2, rng).astype(bool)


def audit_one_run(
    scores: ArrayLike,
    members: ArrayLike,
    *,
    top: int | Sequence[int],
    bottom: int | Sequence[int],
    delta: float,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> OneRunAudit:
    """Bound the privacy loss of one training run from below by guessing its canaries' coins.

    The k₊ canaries of the highest scores are guessed in, the k₋ of the lowest out, and the rest
    is abstained on; scores that tie are ordered by lot. Of r = k₊ + k₋ guesses v are right. The
    bounds, at α = 1 − ``confidence``, are the largest ε and μ with

    * ``P[W >= v] + δ (1 − q) (m − r + Σ_{j < r} b_j) <= α``, where W ~ Bin(r, q),
      q = e^ε/(1 + e^ε) and b_j is the largest probability of Bin(j, q); or, where it proves more,
      the recursion below with (ε, δ) in the place of μ;
    * μ impossible by the recursion ``h = max(H, Φ(Φ⁻¹(R) − μ))``, ``R += i/(r − i) (h − H)``,
      ``H = h`` for i = v − 1 … 0 from R = αv/m, H = α(r − v)/m: then ``R + H > r/m``.

    Args:
        scores: (m,), higher for canaries that look trained on. They come from the run and its
            data and from no coin; a score that saw a coin proves nothing.
        members: (m,), the coins: each independent and fair, as ``coins`` draws them. Half of the
            canaries exactly, or any other draw, is not that.
        top: k₊ >= 0, fixed before the scores are seen; or several, each with its k₋.
        bottom: k₋ >= 0, as ``top``; k₊ + k₋ from 1 to m.
        delta: δ in [0, 1].
        confidence: 1 − α, in (0, 1).
        rng: seed or generator of the lots; the operating system's when None.

    Returns:
        The audit. With n choices each is held to α/n, so that the best may be reported.

    Raises:
        ValueError: a bad argument, NaN included, or coins that are surely not fair.

    Example:
        >>> source = np.random.default_rng(0)
        >>> inside = coins(1000, source)
        >>> noisy = source.standard_normal(1000) + 2.0 * inside  # μ = 2, ε = 10 at δ = 1e-5
        >>> found = audit_one_run(noisy, inside, top=100, bottom=100, delta=1e-5)
        >>> 2.0 < found.epsilon_low < 10.0, 1.0 < found.mu_low < 2.0
        (True, True)

    Source: Steinke, Nasr and Jagielski (2023), Theorem 5.2, its term in δ replaced, which a
        mechanism of two coins exceeds; Mahloujifar, Melis and Chaudhuri (2024), Algorithm 3.
    """
    values = vector("scores", scores)
    inside = truth_values("members", members, values.shape)
    pairs = _pairs(top, bottom, values.size)
    _check_coins(inside)
    # by score, and among equal scores by lot: no order of the rows that could know a coin
    order = np.lexsort((generator(rng).permutation(values.size), values))
    ranked = inside[order]
    # right: the lowest that are out and the highest that are in
    found = [
        (high, low, int((~ranked[:low]).sum() + ranked[values.size - high :].sum()))
        for high, low in pairs
    ]
    return _audit(values.size, found, delta, confidence)


def _audit(
    canaries: int, counted: Sequence[tuple[int, int, int]], delta: float, confidence: float
) -> OneRunAudit:
    chance = in_interval("delta", delta, 0.0, 1.0)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    total = integer("canaries", canaries, minimum=1)
    if not counted:
        raise ValueError("choices: expected at least one, got none")
    failure = (1.0 - level) / len(counted)
    choices = []
    for top, bottom, right in counted:
        (high, low), *_ = _pairs(top, bottom, total)
        hits = integer("right", right, minimum=0, maximum=high + low)
        choices.append(
            CoinGuesses(
                top=high,
                bottom=low,
                right=hits,
                epsilon_low=lower_epsilon(total, high + low, hits, chance, failure),
                mu_low=lower_mu(total, high + low, hits, failure),
            )
        )
    mu = max(choice.mu_low for choice in choices)
    return OneRunAudit(
        canaries=total,
        choices=tuple(choices),
        epsilon_low=max(choice.epsilon_low for choice in choices),
        mu_low=mu,
        gaussian_epsilon_low=gaussian_epsilon(mu, chance),
        delta=chance,
        confidence=level,
    )


def _pairs(top: Any, bottom: Any, canaries: int) -> list[tuple[int, int]]:
    """Return k₊ and k₋ of every choice."""
    highs, lows = _several("top", top), _several("bottom", bottom)
    if len(highs) != len(lows):
        raise ValueError(f"bottom: expected {len(highs)} numbers as in top, got {len(lows)}")
    for high, low in zip(highs, lows, strict=True):
        if not 1 <= high + low <= canaries:
            raise ValueError(
                f"top: expected top + bottom from 1 to the {canaries} canaries, got {high} + {low}"
            )
    return list(zip(highs, lows, strict=True))


def _several(name: str, given: Any) -> list[int]:
    if isinstance(given, (str, bytes, Mapping)):
        raise ValueError(f"{name}: expected an integer or several, got {shown(given)}")
    several = list(given) if isinstance(given, (Sequence, np.ndarray)) else [given]
    if not several:
        raise ValueError(f"{name}: expected at least one number, got none")
    return [integer(name, one, minimum=0) for one in several]


def _check_coins(inside: npt.NDArray[np.bool_]) -> None:
    """Refuse coins that are in or out far more often than fair coins are."""
    count = int(inside.sum())
    fewer = min(count, inside.size - count)
    if 2.0 * special.bdtr(fewer, inside.size, 0.5) < UNFAIR:
        raise ValueError(
            f"members: expected independent fair coins, got {count} of {inside.size} in"
        )
