"""What a retrieval attack found, and what its ranks say about smaller sets of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from tacit._ground.checks import Array, integer
from tacit._ground.frozen import read_only
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.attacks.retrieval.bank import Indices
from tacit.attacks.retrieval.ranks import RankCounts

Interval = tuple[float, float]


@dataclass(frozen=True)
class CandidatePoint:
    """Success among ``size`` candidates, with its interval."""

    size: int
    success: float
    interval: Interval


@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalAttack:
    """How often retrieval found the prompt: a measurement, never a guarantee.

    Ties count by expectation: a truth tied with t others is first among them once in t + 1 times.

    Attributes:
        top1: share of queries whose truth is first.
        top1_interval: interval for its expectation.
        top10: share whose truth is among the first 10.
        top10_interval: its interval.
        top100: share whose truth is among the first 100.
        top100_interval: its interval.
        mrr: mean of 1/rank.
        mrr_interval: its interval.
        last_token: share whose first candidate ends with the right token, or None.
        last_token_interval: its interval, or None.
        metric: how distance was measured.
        floor: τ of ``Σ + τ I``, chosen on other noisy states than these when it was tuned.
        bank: N, candidates.
        queries: n, releases attacked.
        clean: queries that are their own candidate to the bit: releases without noise.
        confidence: coverage of each interval.
        index: ``"exact"``, ``"flat"`` or ``"ivf"``.
        recall: share of queries whose nearest candidate the index found; 1 for an exact search.
        better: (n,) candidates nearer than the truth.
        tied: (n,) other candidates as near as the truth.
    """

    top1: float
    top1_interval: Interval
    top10: float
    top10_interval: Interval
    top100: float
    top100_interval: Interval
    mrr: float
    mrr_interval: Interval
    last_token: float | None
    last_token_interval: Interval | None
    metric: str
    floor: float
    bank: int
    queries: int
    clean: int
    confidence: float
    index: str
    recall: float
    better: Indices = field(repr=False)
    tied: Indices = field(repr=False)

    def among(self, sizes: Iterable[int]) -> tuple[CandidatePoint, ...]:
        """Success when the candidates are the truth and m − 1 others drawn from the bank.

        With b candidates better and t tied, ``Σ_{j=0…t} C(N−1−b−j, m−1) / ((t+1) C(N−1, m−1))``:
        the expectation over the draw and over how ties are broken.

        Args:
            sizes: m, each in 1 … N.

        Returns:
            One point per size.

        Raises:
            ValueError: a size outside 1 … N, or an index that ranks only the first 100.
        """
        if self.index != "exact":
            raise ValueError(
                f"index: expected an exact search, got {self.index!r}, which ranks only the head"
            )
        if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)):
            raise ValueError(f"sizes: expected a sequence of integers, got {sizes!r}")
        points = []
        for value in sizes:
            size = integer("sizes", value, minimum=1, maximum=self.bank)
            wins = first_among(self.better, self.tied, self.bank, size)
            points.append(
                CandidatePoint(size, float(wins.mean()), share_interval(wins, self.confidence))
            )
        return tuple(points)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description, without the ranks."""
        kept = {name: value for name, value in vars(self).items() if name not in ("better", "tied")}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in kept.items()}


def share_interval(values: Array, confidence: float) -> Interval:
    """Clopper–Pearson where every value is 0 or 1, empirical Bernstein otherwise."""
    if np.isin(values, (0.0, 1.0)).all():
        return proportion_interval(int(values.sum()), len(values), confidence)
    if len(values) < 2:
        return 0.0, 1.0
    return mean_interval(np.clip(values, 0.0, 1.0), confidence)


def top_shares(found: RankCounts, count: int) -> Array:
    """Probability that the truth is among the first ``count`` when ties are broken by lot."""
    shares: Array = np.clip((count - found.better) / (found.tied + 1.0), 0.0, 1.0)
    return shares


def reciprocal_ranks(found: RankCounts) -> Array:
    """``(H_{b+t+1} − H_b)/(t+1)``: the mean of 1/rank over the places a tie may take."""
    last = found.better + found.tied + 1.0
    tied = (digamma(last + 1.0) - digamma(found.better + 1.0)) / (found.tied + 1.0)
    shares: Array = np.where(found.tied == 0, 1.0 / last, tied)
    return shares


def first_among(better: Indices, tied: Indices, bank: int, size: int) -> Array:
    """``[C(N−b, m) − C(N−1−b−t, m)] / ((t+1) C(N−1, m−1))``, in logarithms."""
    if size == 1:
        return np.ones(len(better))
    if size == bank:
        return top_shares(RankCounts(better, tied, None), 1)

    def log_choose(total: Array) -> Array:
        possible = total >= size
        safe = np.where(possible, total, size)
        logs = gammaln(safe + 1.0) - gammaln(safe - size + 1.0) - gammaln(size + 1.0)
        return np.where(possible, logs, -np.inf)

    all_of = math.lgamma(bank) - math.lgamma(size) - math.lgamma(bank - size + 1.0)
    whole = log_choose(np.asarray(bank - better, dtype=np.float64))
    rest = log_choose(np.asarray(bank - 1.0 - better - tied))
    with np.errstate(invalid="ignore"):
        share = np.where(np.isneginf(whole), 0.0, np.exp(whole - all_of) * -np.expm1(rest - whole))
    result: Array = np.clip(share / (tied + 1.0), 0.0, 1.0)
    return result
