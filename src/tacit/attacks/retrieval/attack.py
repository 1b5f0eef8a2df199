"""Which prompt is behind a released state: nearest candidate in a bank that holds the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    positive,
)
from tacit.attacks.retrieval.index import indexed
from tacit.attacks.retrieval.metrics import Metric, read_metric
from tacit.attacks.retrieval.problem import RetrievalProblem
from tacit.attacks.retrieval.ranks import RankCounts
from tacit.attacks.retrieval.result import (
    CandidatePoint,
    RetrievalAttack,
    reciprocal_ranks,
    share_interval,
    top_shares,
)
from tacit.covariance import Covariance

__all__ = ["CandidatePoint", "RetrievalAttack", "retrieve", "zipf"]


def retrieve(
    bank: ArrayLike,
    queries: ArrayLike,
    truth: ArrayLike,
    *,
    metric: Metric | str = "euclidean",
    covariance: Covariance | ArrayLike | None = None,
    basis: ArrayLike | None = None,
    coordinate_weights: ArrayLike | None = None,
    floor: str | float | None = "tuned",
    held_out: tuple[Any, Any] | None = None,
    weights: ArrayLike | None = None,
    last_tokens: ArrayLike | None = None,
    index: str = "exact",
    probes: int | None = None,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> RetrievalAttack:
    """Rank the candidates of a bank by their distance from each released state.

    ``d²(z, c) = (z − h_c)ᵀ M (z − h_c)`` with M = I (euclidean), the projector on what ``basis``
    does not span (complement), diag(w) (weighted) or (Σ + τ I)⁻¹ (mahalanobis), which is
    Bayes-optimal at τ = 0. Where Σ is singular and τ = 0, a candidate that differs from the
    release in a direction without noise is ruled out, whatever its distance.

    Args:
        bank: (N, d) clean states of the candidates: an array, tensor or memory map, or a list of
            such blocks.
        queries: (n, d) released states.
        truth: (n,) the candidate behind each release.
        metric: a value such as ``Mahalanobis(Σ, floor)``, which holds the five arguments after it,
            or one of the four words above with those of them that it needs.
        covariance: Σ of the noise, with mahalanobis.
        basis: (k, d), with complement.
        coordinate_weights: (d,), each >= 0, with weighted.
        floor: τ >= 0; ``"tuned"`` takes the best of a grid on held-out noisy states; None is 0.
        held_out: (queries, truth) of noisy states other than ``queries``; drawn afresh from the
            bank and Σ when None, which the attacker can do.
        weights: (N,) probabilities > 0 of the candidates, up to a factor, with mahalanobis: ranks
            by the posterior. Draw ``truth`` from the same law.
        last_tokens: (N,) the last token of every candidate.
        index: ``"exact"``; ``"flat"`` or ``"ivf"`` for the first 100 through FAISS.
        probes: lists an ``"ivf"`` index searches.
        confidence: coverage of each interval, in (0, 1).
        rng: source of held-out states where they are drawn.

    Returns:
        The attack. Intervals are Clopper–Pearson's for shares, empirical Bernstein otherwise.

    Raises:
        ValueError: a bad argument; NaN anywhere; a query that equals its own candidate, or another,
            to the bit although noise was added: the noisy state must never be in the bank.

    Example:
        >>> import numpy as np
        >>> from tacit.covariance import Diagonal
        >>> bank = np.random.default_rng(0).normal(size=(1000, 8))
        >>> truth, noise = np.arange(200), Diagonal([0.01] * 4 + [25.0] * 4)
        >>> released = noise.release(bank[truth], rng=1)
        >>> blind = retrieve(bank, released, truth)
        >>> told = retrieve(bank, released, truth, metric="mahalanobis", covariance=noise, rng=2)
        >>> blind.top1 < 0.1 < 0.8 < told.top1
        True

    Source: hidden-state, App. R.3 and T; Prop. 9 for a singular Σ.
    """
    measure = read_metric(
        metric,
        covariance=covariance,
        basis=basis,
        coordinate_weights=coordinate_weights,
        floor=floor,
        held_out=held_out,
    )
    if weights is not None and measure.noise is None:
        raise ValueError(f"weights: expected metric 'mahalanobis' beside it, got {measure.name!r}")
    problem = RetrievalProblem.check(bank, queries, truth, measure.noise, weights, last_tokens)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    kind = choice("index", index, ("exact", "flat", "ivf"))
    if kind != "exact" and (weights is not None or last_tokens is not None):
        raise ValueError(f"index: expected 'exact' beside weights or last_tokens, got {kind!r}")
    space, tau = measure.space(problem, rng)
    found, recall = (
        (problem.standing(space), 1.0)
        if kind == "exact"
        else indexed(problem.bank, problem.queries, problem.truth, space, kind, probes)
    )
    return _measured(problem, found, measure.name, tau, level, kind, recall)


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
