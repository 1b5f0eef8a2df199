"""Which prompt is behind a released state: nearest candidate in a bank that holds the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    matrix,
    non_negative,
    plain,
    positive,
    vector,
)
from tacit.attacks.retrieval.bank import Bank, Indices, indices
from tacit.attacks.retrieval.index import indexed
from tacit.attacks.retrieval.ranks import Standing, standing
from tacit.attacks.retrieval.result import (
    CandidatePoint,
    RetrievalAttack,
    reciprocal_ranks,
    share_interval,
    top_shares,
)
from tacit.attacks.retrieval.space import Space, complement, euclidean, noise_space, weighted
from tacit.covariance import Covariance, Isotropic
from tacit.covariance.reading import as_covariance

METRICS = ("euclidean", "complement", "weighted", "mahalanobis")
FLOORS = (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
HELD_OUT = 256
TUNING_CANDIDATES = 16_384
CENTRE_ROWS = 2048

__all__ = ["CandidatePoint", "RetrievalAttack", "retrieve", "zipf"]


def retrieve(
    bank: Any,
    queries: Any,
    truth: Any,
    *,
    metric: str = "euclidean",
    covariance: Covariance | None = None,
    basis: Any = None,
    weights: Any = None,
    floor: str | float | None = "tuned",
    held_out: tuple[Any, Any] | None = None,
    prior: Any = None,
    last_tokens: Any = None,
    index: str = "exact",
    probes: int | None = None,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> RetrievalAttack:
    """Rank the candidates of a bank by their distance from each released state.

    ``d²(z, c) = (z − h_c)ᵀ M (z − h_c)`` with M = I (euclidean), the projector on what ``basis``
    does not span (complement), diag(weights) (weighted) or (Σ + τ I)⁻¹ (mahalanobis), which is
    Bayes-optimal at τ = 0. Where Σ is singular and τ = 0, a candidate that differs from the
    release in a direction without noise is ruled out, whatever its distance.

    Args:
        bank: (N, d) clean states of the candidates: an array, tensor or memory map, or a list of
            such blocks.
        queries: (n, d) released states.
        truth: (n,) the candidate behind each release.
        metric: one of the four above.
        covariance: Σ of the noise, with mahalanobis.
        basis: (k, d), with complement.
        weights: (d,), each >= 0, with weighted.
        floor: τ >= 0; ``"tuned"`` takes the best of a grid on held-out noisy states; None is 0.
        held_out: (queries, truth) of noisy states other than ``queries``; drawn afresh from the
            bank and Σ when None, which the attacker can do.
        prior: (N,) probabilities > 0 of the candidates, up to a factor, with mahalanobis: ranks by
            the posterior. Draw ``truth`` from the same law.
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
    covariance = as_covariance("covariance", covariance)
    problem = _Problem.check(bank, queries, truth, metric, covariance, prior, last_tokens)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    kind = choice("index", index, ("exact", "flat", "ivf"))
    if kind != "exact" and (prior is not None or last_tokens is not None):
        raise ValueError(f"index: expected 'exact' beside prior or last_tokens, got {kind!r}")
    if metric == "mahalanobis":
        assert covariance is not None
        space, tau = _mahalanobis(problem, covariance, floor, held_out, rng)
    else:
        space, tau = _plain_space(problem, metric, basis, weights), 0.0
    found, recall = (
        (problem.standing(space), 1.0)
        if kind == "exact"
        else indexed(problem.bank, problem.queries, problem.truth, space, kind, probes)
    )
    return _measured(problem, found, metric, tau, level, kind, recall)


@dataclass(frozen=True)
class _Problem:
    bank: Bank
    queries: Array
    truth: Indices
    precision: float
    centre: Array
    log_prior: Array | None
    labels: Indices | None
    clean: int

    @classmethod
    def check(
        cls,
        bank: Any,
        queries: Any,
        truth: Any,
        metric: str,
        covariance: Covariance | None,
        prior: Any,
        last_tokens: Any,
    ) -> _Problem:
        choice("metric", metric, METRICS)
        candidates = Bank("bank", bank)
        raw = plain(queries)
        rows = matrix("queries", raw, columns=candidates.width)
        kind = np.asarray(raw).dtype
        precision = float(np.finfo(kind if kind.kind == "f" else np.float64).eps)
        own = indices("truth", truth, size=len(rows), below=candidates.count)
        if (metric == "mahalanobis") != (covariance is not None):
            raise ValueError(
                f"covariance: expected {'one' if covariance is None else 'none'} with metric "
                f"{metric!r}"
            )
        if covariance is not None and getattr(covariance, "dim", None) != candidates.width:
            found = getattr(covariance, "dim", type(covariance).__name__)
            raise ValueError(
                f"covariance: expected a Covariance of dimension {candidates.width}, got {found}"
            )
        labels = None
        if last_tokens is not None:
            labels = indices("last_tokens", last_tokens, size=candidates.count, below=2**62)
        logs = None if prior is None else _log_prior(prior, candidates.count, metric)
        clean = int((rows == candidates.gather(own)).all(axis=1).sum())
        if clean and covariance is not None and covariance.rank > 0:
            raise ValueError(
                f"queries: expected noisy states, got {clean} of {len(rows)} rows equal to their "
                "own candidate: a tautology, not an attack"
            )
        if covariance is not None:
            _refuse_copies(candidates, rows, own, int(covariance.diagonal().argmax()))
        head = candidates.rows(0, candidates.spans(CENTRE_ROWS)[0][1])
        return cls(candidates, rows, own, precision, head.mean(axis=0), logs, labels, clean)

    def standing(self, space: Space) -> Standing:
        return standing(
            self.bank,
            self.queries,
            self.truth,
            space,
            log_prior=self.log_prior,
            labels=self.labels,
            precision=self.precision,
        )


def _refuse_copies(bank: Bank, queries: Array, truth: Indices, noisiest: int) -> None:
    """A noisy state that stands in the bank would be found by looking it up."""
    known = np.sort(queries[:, noisiest])
    for start, stop in bank.spans(CENTRE_ROWS):
        entries = bank.column(noisiest, start, stop)
        place = np.minimum(np.searchsorted(known, entries), len(known) - 1)
        for candidate in start + np.flatnonzero(known[place] == entries):
            row = bank.gather(np.array([candidate]))[0]
            same = (queries == row).all(axis=1) & (truth != candidate)
            if same.any() and not (bank.gather(truth[same]) == row).all():
                raise ValueError(
                    f"bank: expected clean states only, got query {int(same.argmax())} as row "
                    f"{candidate}: a noisy state in the bank is found by looking it up"
                )


def _log_prior(prior: Any, count: int, metric: str) -> Array:
    if metric != "mahalanobis":
        raise ValueError(f"prior: expected metric 'mahalanobis' beside it, got {metric!r}")
    values = vector("prior", prior, size=count)
    if values.min() <= 0:
        raise ValueError(f"prior: expected numbers > 0, got {values.min():.6g}")
    logs: Array = np.log(values)
    return logs - float(logs.max())


def _plain_space(problem: _Problem, metric: str, basis: Any, weights: Any) -> Space:
    if (basis is not None) != (metric == "complement"):
        raise ValueError("basis: expected with metric 'complement' and with no other")
    if (weights is not None) != (metric == "weighted"):
        raise ValueError("weights: expected with metric 'weighted' and with no other")
    if metric == "complement":
        return complement(problem.centre, basis)
    if metric == "weighted":
        return weighted(problem.centre, weights)
    return euclidean(problem.centre)


def _mahalanobis(
    problem: _Problem,
    covariance: Covariance,
    floor: str | float | None,
    held_out: tuple[Any, Any] | None,
    rng: RandomSource,
) -> tuple[Space, float]:
    if floor is None or not isinstance(floor, str):
        tau = 0.0 if floor is None else non_negative("floor", floor)
        if held_out is not None:
            raise ValueError("held_out: expected only beside floor 'tuned'")
        return noise_space(problem.centre, covariance, tau), tau
    choice("floor", floor, ("tuned",))
    # A multiple of the identity ranks the same whatever is added to it, unless a prior weighs in.
    if isinstance(covariance, Isotropic) or covariance.rank == 0:
        return noise_space(problem.centre, covariance, 0.0), 0.0
    other = _held_out(problem, covariance, held_out, rng)
    unit = covariance.trace() / covariance.dim
    # The first of equals: at floor 0 the score is the likelihood itself.
    grid = [share * unit for share in FLOORS]
    gains = [
        reciprocal_ranks(other.standing(noise_space(problem.centre, covariance, tau))).mean()
        for tau in grid
    ]
    tau = grid[int(np.argmax(gains))]
    return noise_space(problem.centre, covariance, tau), tau


def _held_out(
    problem: _Problem,
    covariance: Covariance,
    held_out: tuple[Any, Any] | None,
    rng: RandomSource,
) -> _Problem:
    """Noisy states on which the floor is tuned: never the evaluated ones."""
    if held_out is None:
        source = generator(rng)
        others = np.setdiff1d(np.arange(problem.bank.count), problem.truth)
        pool = others if len(others) >= HELD_OUT else np.arange(problem.bank.count)
        own = source.choice(pool, min(HELD_OUT, len(pool)), replace=False).astype(np.int64)
        rows = problem.bank.gather(own) + covariance.sample(len(own), source)
        precision = float(np.finfo(np.float64).eps)
    else:
        if not isinstance(held_out, (tuple, list)) or len(held_out) != 2:
            raise ValueError("held_out: expected (queries, truth)")
        rows = matrix("held_out", held_out[0], columns=problem.bank.width)
        own = indices("held_out", held_out[1], size=len(rows), below=problem.bank.count)
        precision = max(problem.precision, float(np.finfo(np.float64).eps))
        if {row.tobytes() for row in rows} & {row.tobytes() for row in problem.queries}:
            raise ValueError(
                "held_out: expected other noisy states than those evaluated, got some of them"
            )
        if (rows == problem.bank.gather(own)).all(axis=1).any():
            raise ValueError("held_out: expected noisy states, got rows equal to their candidates")
    small, place, logs = _fewer_candidates(problem, own, generator(rng))
    return replace(
        problem,
        bank=small,
        queries=rows,
        truth=place,
        precision=precision,
        log_prior=logs,
        labels=None,
    )


def _fewer_candidates(
    problem: _Problem, own: Indices, source: np.random.Generator
) -> tuple[Bank, Indices, Array | None]:
    """The bank itself, or the truths and a random part of it, and where the truths are there."""
    bank, logs = problem.bank, problem.log_prior
    if bank.count <= TUNING_CANDIDATES:
        return bank, own, logs
    drawn = source.choice(bank.count, TUNING_CANDIDATES, replace=False)
    chosen = np.union1d(own, drawn).astype(np.int64)
    place = np.searchsorted(chosen, own).astype(np.int64)
    return Bank("bank", bank.gather(chosen)), place, None if logs is None else logs[chosen]


def _measured(
    problem: _Problem,
    found: Standing,
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
    prior: Array = generator(rng).permutation(masses / masses.sum())
    return prior
