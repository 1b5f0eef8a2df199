"""What an attacker who guesses something of a prompt reached, beside guessing blind."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tacit._ground.checks import Array, in_interval
from tacit._ground.frozen import read_only
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.attacks.retrieval.bank import Indices
from tacit.attacks.retrieval.result import Interval, share_interval
from tacit.text import percent

RANKS = ("hits", "blind", "better", "tied")


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GuessAttack:
    """How often an attacker guessed right: a measurement, never a guarantee.

    Ties count by expectation: a truth tied with t others for the first place is guessed once in
    t + 1 times. A truth that is not among the candidates counts as a failure.

    Attributes:
        task: what is guessed.
        attacker: how.
        knows: what it knows besides the release; empty for nothing.
        success: share of right guesses.
        interval: interval for its expectation.
        prior: share of right guesses without the release, by the same prior knowledge.
        prior_interval: its interval.
        gain: success − prior.
        gain_interval: its interval, the two guesses about one prompt being paired.
        candidates: the most values that a guess chose among.
        covered: share of prompts whose truth was among the candidates.
        queries: n, prompts attacked.
        confidence: coverage of each interval.
        leakage_factor: by which no success can exceed the best blind one, where it was given.
        hits: (n,) chance that the guess is right.
        blind: (n,) chance that the blind guess is.
        better: (n,) candidates likelier than the truth; all of them where it is not among them.
        tied: (n,) other candidates as likely as the truth.
    """

    task: str
    attacker: str
    knows: str
    success: float
    interval: Interval
    prior: float
    prior_interval: Interval
    gain: float
    gain_interval: Interval
    candidates: int
    covered: float
    queries: int
    confidence: float
    leakage_factor: float | None = None
    hits: Array = field(repr=False)
    blind: Array = field(repr=False)
    better: Indices = field(repr=False)
    tied: Indices = field(repr=False)

    @classmethod
    def of(
        cls,
        *,
        hits: Array,
        blind: Array,
        better: Indices,
        tied: Indices,
        confidence: float,
        exact: bool = False,
        chosen_of: int = 1,
        **about: Any,
    ) -> GuessAttack:
        """Return the attack of some guesses; ``exact`` where they are all there are.

        Of the best of k on these prompts, ``chosen_of``, intervals hold for all k at once.
        """
        factor = about.get("leakage_factor")
        if factor is not None:
            in_interval("leakage_factor", factor, 1.0, math.inf)
        success, prior = float(hits.mean()), float(blind.mean())
        gain = success - prior
        if exact:
            intervals: tuple[Interval, ...] = tuple((x, x) for x in (success, prior, gain))
        else:
            # γ/k for the best of k, γ/k² for the difference of two such (union bound)
            each, both = (_shared(confidence, count) for count in (chosen_of, chosen_of**2))
            intervals = (
                share_interval(hits, each),
                share_interval(blind, each),
                _difference(hits - blind, both),
            )
        return cls(
            success=success, interval=intervals[0], prior=prior, prior_interval=intervals[1],
            gain=gain, gain_interval=intervals[2], queries=len(hits), confidence=confidence,
            hits=hits, blind=blind, better=better, tied=tied, **about,
        )  # fmt: skip

    @property
    def ranks(self) -> Array:
        """Expected place of each truth, from 1, ties broken by lot, (n,)."""
        places: Array = 1.0 + self.better + 0.5 * self.tied
        return places

    @property
    def factor(self) -> float:
        """Success over the prior's; infinite where guessing blind was never right."""
        if self.prior > 0.0:
            return self.success / self.prior
        return np.inf if self.success > 0.0 else 1.0

    def __repr__(self) -> str:
        return (
            f"GuessAttack({self.task!r} by {self.attacker!r}: {self.success:.3f}, "
            f"blind {self.prior:.3f}, n={self.queries})"
        )

    def describe(self) -> str:
        """Say in a sentence what was measured, with its law."""
        low, high = self.interval
        told = f" told {self.knows}" if self.knows else ""
        lost = ""
        if self.covered < 1.0:
            lost = (
                f" The truth was among the candidates for {percent(self.covered)} of them; the "
                "others count as failures."
            )
        return (
            f"Attack: {self.attacker}{told}, guesses {self.task} of {self.queries:,} prompts right "
            f"in {percent(self.success)} [{percent(low)}, {percent(high)}] with the release and in "
            f"{percent(self.prior)} without, choosing among at most {self.candidates:,}.{lost}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description, without the ranks."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in RANKS}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in kept.items()}


def _shared(confidence: float, count: int) -> float:
    """Return the confidence of each of several intervals that hold together."""
    return confidence if count == 1 else 1.0 - (1.0 - confidence) / count


def _difference(differences: Array, confidence: float) -> Interval:
    """Interval for the mean of differences in [−1, 1].

    Of −1, 0 and 1 alone: the rates of 1 and of −1, each by Clopper and Pearson at γ/2.
    """
    if np.isin(differences, (-1.0, 0.0, 1.0)).all():
        level, count = 0.5 * (1.0 + confidence), len(differences)
        up = proportion_interval(int((differences > 0).sum()), count, level)
        down = proportion_interval(int((differences < 0).sum()), count, level)
        return up[0] - down[1], up[1] - down[0]
    if len(differences) < 2:
        return -1.0, 1.0
    low, high = mean_interval(np.clip(0.5 * (1.0 + differences), 0.0, 1.0), confidence)
    return 2.0 * low - 1.0, 2.0 * high - 1.0
