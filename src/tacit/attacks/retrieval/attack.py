"""Which prompt is behind a released state: nearest candidate in a bank that holds the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    positive,
)
from tacit._ground.reprs import shown
from tacit.attacks.retrieval.index import FaissIndex, indexed
from tacit.attacks.retrieval.metrics import Euclidean, Metric
from tacit.attacks.retrieval.problem import RetrievalProblem
from tacit.attacks.retrieval.ranks import RankCounts
from tacit.attacks.retrieval.result import (
    CandidatePoint,
    RetrievalAttack,
    reciprocal_ranks,
    share_interval,
    top_shares,
)

__all__ = ["CandidatePoint", "RetrievalAttack", "retrieve", "zipf"]

# the distance where nothing is known of the noise
EUCLIDEAN = Euclidean()


def retrieve(
    bank: ArrayLike,
    queries: ArrayLike,
    truth: ArrayLike,
    *,
    metric: Metric = EUCLIDEAN,
    last_tokens: ArrayLike | None = None,
    index: FaissIndex | None = None,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> RetrievalAttack:
    """Rank the candidates of a bank by their distance from each released state.

    ``d²(z, c) = (z − h_c)ᵀ M (z − h_c)`` with M = I (``Euclidean``), the projector on what a basis
    does not span (``Complement``), diag(w) (``Weighted``) or (Σ + τ I)⁻¹ (``Mahalanobis``), Bayes-
    optimal at τ = 0. Where Σ is singular and τ = 0, a candidate that differs from the
    release in a direction without noise is ruled out, whatever its distance.

    Args:
        bank: (N, d) clean states of the candidates: an array, tensor or memory map, or a list of
            such blocks.
        queries: (n, d) released states.
        truth: (n,) the candidate behind each release.
        metric: such as ``Mahalanobis(Σ, floor=None)``; with ``weights`` it ranks by the posterior.
        last_tokens: (N,) the last token of every candidate.
        index: looks up the first 100 through FAISS; every candidate is ranked when None.
        confidence: coverage of each interval, in (0, 1).
        rng: source of held-out states where they are drawn.

    Returns:
        The attack. Intervals are Clopper–Pearson's for shares, empirical Bernstein otherwise.

    Raises:
        ValueError: a bad argument; NaN anywhere; a query that equals its own candidate, or another,
            to the bit although noise was added: the noisy state must never be in the bank.

    Example:
        >>> import numpy as np
        >>> from tacit.attacks import Mahalanobis
        >>> from tacit.covariance import Diagonal
        >>> bank = np.random.default_rng(0).normal(size=(1000, 8))
        >>> truth, noise = np.arange(200), Diagonal([0.01] * 4 + [25.0] * 4)
        >>> released = noise.release(bank[truth], rng=1)
        >>> blind = retrieve(bank, released, truth)
        >>> told = retrieve(bank, released, truth, metric=Mahalanobis(noise), rng=2)
        >>> blind.top1 < 0.1 < 0.8 < told.top1
        True

    Source: hidden-state, App. R.3 and T; Prop. 9 for a singular Σ.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"metric: expected one such as Mahalanobis(Σ), got {shown(metric)}")
    if not isinstance(index, FaissIndex | None):
        raise ValueError(f"index: expected a FaissIndex or None, got {shown(index)}")
    problem = RetrievalProblem.check(bank, queries, truth, metric.noise, metric.prior, last_tokens)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    if index is not None and (metric.prior is not None or last_tokens is not None):
        raise ValueError(f"index: expected none beside weights or last_tokens, got {index}")
    space, tau = metric.space(problem, rng)
    found, recall = (
        (problem.standing(space), 1.0)
        if index is None
        else indexed(problem.bank, problem.queries, problem.truth, space, index)
    )
    name = "exact" if index is None else index.kind
    return _measured(problem, found, metric.name, tau, level, name, recall)


def _measured(
    problem: RetrievalProblem,
    found: RankCounts,
    metric: str,
    floor: float,
    confidence: float,
    index: str,
    recall: float,
) -> RetrievalAttack:
    values: dict[str, Any] = {}
    for name, share in {
        **{f"top{k}": top_shares(found, k) for k in (1, 10, 100)},
        "mrr": reciprocal_ranks(found),
        "last_token": found.matched,
    }.items():
        values[name] = None if share is None else float(share.mean())
        values[f"{name}_interval"] = None if share is None else share_interval(share, confidence)
    return RetrievalAttack(
        **values,
        metric=metric,
        floor=floor,
        bank=problem.bank.count,
        queries=len(problem.queries),
        clean=problem.clean,
        confidence=confidence,
        index=index,
        recall=recall,
        better=found.better,
        tied=found.tied,
    )


def zipf(size: int, *, exponent: float = 1.0, rng: RandomSource = None) -> Array:
    """Return a Zipf prior over ``size`` candidates, ``p ∝ rank^(−exponent)`` in random order.

    Args:
        size: N >= 1.
        exponent: > 0.
        rng: source of the order.

    Returns:
        (N,) probabilities.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> round(float(zipf(50_000, rng=0).max()), 3)
        0.088
    """
    count = integer("size", size, minimum=1)
    power = positive("exponent", exponent)
    masses = np.arange(1.0, count + 1.0) ** -power
    weights: Array = generator(rng).permutation(masses / masses.sum())
    return weights
