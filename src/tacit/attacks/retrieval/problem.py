"""What a retrieval attack is given: candidates, releases, the truth behind each, a prior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource, generator, matrix, plain, vector
from tacit.attacks.retrieval.bank import Bank, Indices, indices
from tacit.attacks.retrieval.ranks import RankCounts, standing
from tacit.attacks.retrieval.space import AttackSpace
from tacit.covariance import Covariance

HELD_OUT = 256
TUNING_CANDIDATES = 16_384
CENTRE_ROWS = 2048


@dataclass(frozen=True)
class RetrievalProblem:
    """A retrieval attack before a distance is chosen, checked.

    Attributes:
        bank: the candidates.
        queries: (n, d) released states.
        truth: (n,) the candidate behind each.
        precision: relative rounding of the queries.
        centre: (d,) near the candidates.
        log_prior: (N,) up to a constant, or None where all are equally likely.
        last_tokens: (N,) the last token of every candidate, or None.
        clean: queries that equal their own candidate.
    """

    bank: Bank
    queries: Array
    truth: Indices
    precision: float
    centre: Array
    log_prior: Array | None
    last_tokens: Indices | None
    clean: int

    @classmethod
    def check(
        cls,
        bank: Any,
        queries: Any,
        truth: Any,
        noise: Covariance | None,
        weights: Any,
        last_tokens: Any,
    ) -> RetrievalProblem:
        """Check what is attacked by someone who knows the covariance of the noise, or does not."""
        candidates = Bank("bank", bank)
        raw = plain(queries)
        rows = matrix("queries", raw, columns=candidates.width)
        kind = np.asarray(raw).dtype
        precision = float(np.finfo(kind if kind.kind == "f" else np.float64).eps)
        own = indices("truth", truth, size=len(rows), below=candidates.count)
        if noise is not None and getattr(noise, "dim", None) != candidates.width:
            found = getattr(noise, "dim", type(noise).__name__)
            raise ValueError(
                f"covariance: expected a Covariance of dimension {candidates.width}, got {found}"
            )
        tokens = None
        if last_tokens is not None:
            tokens = indices("last_tokens", last_tokens, size=candidates.count, below=2**62)
        logs = None if weights is None else _log_prior(weights, candidates.count)
        clean = int((rows == candidates.gather(own)).all(axis=1).sum())
        if clean and noise is not None and noise.rank > 0:
            raise ValueError(
                f"queries: expected noisy states, got {clean} of {len(rows)} rows equal to their "
                "own candidate: a tautology, not an attack"
            )
        if noise is not None:
            _refuse_copies(candidates, rows, own, int(noise.diagonal().argmax()))
        head = candidates.rows(0, candidates.spans(CENTRE_ROWS)[0][1])
        return cls(candidates, rows, own, precision, head.mean(axis=0), logs, tokens, clean)

    def standing(self, space: AttackSpace) -> RankCounts:
        """Rank the truth by a distance."""
        return standing(
            self.bank,
            self.queries,
            self.truth,
            space,
            log_prior=self.log_prior,
            last_tokens=self.last_tokens,
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


def _log_prior(weights: Any, count: int) -> Array:
    values = vector("weights", weights, size=count)
    if values.min() <= 0:
        raise ValueError(f"weights: expected numbers > 0, got {values.min():.6g}")
    logs: Array = np.log(values)
    return logs - float(logs.max())


def held_out_problem(
    problem: RetrievalProblem,
    covariance: Covariance,
    held_out: tuple[Any, Any] | None,
    rng: RandomSource,
) -> RetrievalProblem:
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
        last_tokens=None,
    )


def _fewer_candidates(
    problem: RetrievalProblem, own: Indices, source: np.random.Generator
) -> tuple[Bank, Indices, Array | None]:
    """The bank itself, or the truths and a random part of it, and where the truths are there."""
    bank, logs = problem.bank, problem.log_prior
    if bank.count <= TUNING_CANDIDATES:
        return bank, own, logs
    drawn = source.choice(bank.count, TUNING_CANDIDATES, replace=False)
    chosen = np.union1d(own, drawn).astype(np.int64)
    place = np.searchsorted(chosen, own).astype(np.int64)
    return Bank("bank", bank.gather(chosen)), place, None if logs is None else logs[chosen]
