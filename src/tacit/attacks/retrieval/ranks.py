"""Where the truth stands among all candidates: one pass of products, no sorting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.attacks.retrieval.bank import Bank, Indices
from tacit.attacks.retrieval.space import AttackSpace, range_tolerance
from tacit.compute import available_workers

BANK_ROWS, QUERY_ROWS, PAIRS = 2048, 512, 8192
# Rounding of float32, and a size whose products with others it holds.
SINGLE = float(np.finfo(np.float32).eps)
LARGEST_SINGLE = 1e30


@dataclass(frozen=True)
class RankCounts:
    """Per query: candidates strictly better than the truth, tied with it, and who is first.

    Attributes:
        better: (n,) candidates scored above the truth.
        tied: (n,) other candidates scored as the truth.
        matched: (n,) share of the first-ranked candidates with the truth's label, or None.
    """

    better: Indices
    tied: Indices
    matched: Array | None


@dataclass(frozen=True)
class QueryBlock:
    """What every block is compared with."""

    rows: Array
    working: npt.NDArray[Any]
    norms: Array
    truth: Indices
    score: Array
    slack: Array
    outside: Array | None
    tolerance: Array | None


def standing(
    bank: Bank,
    queries: Array,
    truth: Indices,
    space: AttackSpace,
    *,
    log_prior: Array | None = None,
    last_tokens: Indices | None = None,
    precision: float = EPS,
) -> RankCounts:
    """Rank the truth of every query under ``−½‖(z − c) M‖² + ln p_c``.

    Products are in float32; whatever its rounding could decide is decided again in float64, and
    scores that float64 cannot tell apart are ties.
    """
    asked = _asked(bank, queries, truth, space, log_prior, precision)
    spans = bank.spans(BANK_ROWS)

    def task(span: tuple[int, int]) -> tuple[Indices, Indices, Any]:
        return _BankBlock(bank, span, space, asked, log_prior).standing(last_tokens)

    with one_thread(), ThreadPoolExecutor(available_workers()) as pool:
        better = np.zeros(len(queries), dtype=np.int64)
        tied = np.zeros(len(queries), dtype=np.int64)
        first = None if last_tokens is None else _First(asked)
        for more, equal, best in pool.map(task, spans):
            better += more
            tied += equal
            if first is not None:
                first.join(*best)
    return RankCounts(better, tied, None if first is None else first.shares())


def _asked(
    bank: Bank,
    queries: Array,
    truth: Indices,
    space: AttackSpace,
    log_prior: Array | None,
    precision: float,
) -> QueryBlock:
    own = bank.gather(truth)
    rows, target = space.apply(queries), space.apply(own)
    score = -0.5 * ((rows - target) ** 2).sum(axis=1)
    if log_prior is not None:
        score += log_prior[truth]
    norms = np.linalg.norm(rows, axis=1)
    # what a score of float64 may be off by: k + 8 roundings of the size of its terms, 16 times
    size = (norms + np.linalg.norm(target, axis=1)) ** 2
    slack = 16.0 * (queries.shape[1] + 8) * EPS * (size + np.abs(score))
    outside = tolerance = None
    if space.bare is not None:
        outside = space.outside(queries)
        tolerance = range_tolerance(queries, precision, space.centre)
        away = np.linalg.norm(outside - space.outside(own), axis=1)
        if (away > tolerance).any():
            row = int((away - tolerance).argmax())
            raise ValueError(
                f"queries: expected rows that differ from their bank rows by noise of the given "
                f"covariance, got row {row} at distance {away[row]:.3g} in directions without "
                f"noise; a floor > 0 measures there as well"
            )
    fits = float(size.max() + np.abs(score).max()) < LARGEST_SINGLE
    working = rows.astype(np.float32 if fits else np.float64)
    return QueryBlock(rows, working, norms, truth, score, slack, outside, tolerance)


class _BankBlock:
    """One stretch of the bank, mapped once and compared with all queries."""

    def __init__(
        self,
        bank: Bank,
        span: tuple[int, int],
        space: AttackSpace,
        query: QueryBlock,
        log_prior: Array | None,
    ) -> None:
        self.start, stop = span
        rows = bank.rows(*span)
        self.query = query
        self.outside = None if space.bare is None else space.outside(rows)
        self.rows = space.apply(rows)
        self.prior = None if log_prior is None else log_prior[self.start : stop]
        squares = np.einsum("ij,ij->i", self.rows, self.rows)
        self.largest = float(np.sqrt(squares.max()))
        self.offset = -0.5 * squares
        if self.prior is not None:
            self.offset += self.prior
        fits = self.largest**2 + float(np.abs(self.offset).max()) < LARGEST_SINGLE
        self.working = self.rows.astype(query.working.dtype if fits else np.float64)

    def standing(self, last_tokens: Indices | None) -> tuple[Indices, Indices, Any]:
        count = len(self.query.rows)
        better, tied = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        best: list[Any] = []
        for low in range(0, count, QUERY_ROWS):
            part = slice(low, min(low + QUERY_ROWS, count))
            compare = self._compare if self.outside is None else self._compare_matches
            compare(part, better, tied, best if last_tokens is not None else None)
        if last_tokens is None:
            return better, tied, None
        owner, candidate, score = (np.concatenate(column) for column in zip(*best, strict=True))
        candidate = candidate + self.start
        same = last_tokens[candidate] == last_tokens[self.query.truth[owner]]
        return better, tied, (owner, score, same)

    def _compare(self, part: slice, better: Indices, tied: Indices, best: list[Any] | None) -> None:
        """Count by float32 scores; what lies within their rounding error goes to float64."""
        scores = self.query.working[part] @ self.working.T
        scores += self.offset.astype(scores.dtype)
        half = 0.5 * self.query.norms[part] ** 2
        # Any order of summation: |error| <= (k + 8) 2⁻²³ (‖z‖ ‖c‖ + |offset|).
        size = self.query.norms[part] * self.largest + np.abs(self.offset).max()
        error = (self.rows.shape[1] + 8) * SINGLE * size
        error += self.query.slack[part] + 2.0 * SINGLE * (half + np.abs(self.query.score[part]))
        # A score here lacks −½‖z‖², the same for all candidates of a query.
        target = self.query.score[part] + half
        above = scores > (target + error).astype(scores.dtype)[:, None]
        near = scores >= (target - error).astype(scores.dtype)[:, None]
        better[part] += np.count_nonzero(above, axis=1)
        near ^= above
        self._refine(part, _places(near), better, tied)
        if best is not None:
            reach = scores.max(axis=1) - (2.0 * error).astype(scores.dtype)
            best.append(self._scored(part, _places(scores >= reach[:, None])))

    def _compare_matches(
        self, part: slice, better: Indices, tied: Indices, best: list[Any] | None
    ) -> None:
        """Only candidates that agree where the release has no noise are possible at all."""
        assert self.outside is not None
        assert self.query.outside is not None
        assert self.query.tolerance is not None
        left, right = self.query.outside[part], self.outside
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)
        distance = squares - 2.0 * (left @ right.T)
        limit = self.query.tolerance[part, None] ** 2
        limit = limit + 4.0 * (left.shape[1] + 8) * EPS * squares
        owner, candidate = _places(distance <= limit)
        away = np.linalg.norm(left[owner] - right[candidate], axis=1)
        kept = away <= self.query.tolerance[part][owner]
        pairs = (owner[kept], candidate[kept])
        self._refine(part, pairs, better, tied)
        if best is not None:
            best.append(self._scored(part, pairs))

    def _refine(self, part: slice, pairs: Any, better: Indices, tied: Indices) -> None:
        owner, candidate, score = self._scored(part, pairs)
        other = candidate + self.start != self.query.truth[owner]
        # ahead by more than both scores round, or else a tie: never better by rounding alone
        lead = score - self.query.score[owner]
        slack = self.query.slack[owner]
        np.add.at(better, owner[other & (lead > slack)], 1)
        np.add.at(tied, owner[other & (np.abs(lead) <= slack)], 1)

    def _scored(self, part: slice, pairs: Any) -> tuple[Indices, Indices, Array]:
        """Score pairs of queries and candidates in float64."""
        owner, candidate = pairs[0] + (part.start or 0), pairs[1]
        score = np.empty(len(owner))
        for low in range(0, len(owner), PAIRS):
            some = slice(low, low + PAIRS)
            gap = self.query.rows[owner[some]]
            gap -= self.rows[candidate[some]]
            score[some] = -0.5 * np.einsum("ij,ij->i", gap, gap)
        if self.prior is not None:
            score += self.prior[candidate]
        return owner, candidate, score


def _places(chosen: npt.NDArray[np.bool_]) -> Any:
    """``np.nonzero`` of a matrix with few entries, by its fast path for vectors."""
    return np.divmod(np.flatnonzero(chosen), chosen.shape[1])


class _First:
    """The best candidates so far of every query, and how many of them bear the right label."""

    def __init__(self, query: QueryBlock) -> None:
        self.slack = query.slack
        count = len(query.rows)
        self.score = np.full(count, -np.inf)
        self.seen, self.right = np.zeros(count), np.zeros(count)

    def join(self, owner: Indices, score: Array, same: npt.NDArray[np.bool_]) -> None:
        # a new best beyond rounding starts the count anew; what ties with it is added
        best = self.score.copy()
        np.maximum.at(best, owner, score)
        self.seen[best > self.score + self.slack] = 0.0
        self.right[best > self.score + self.slack] = 0.0
        self.score = best
        tied = score >= best[owner] - self.slack[owner]
        np.add.at(self.seen, owner[tied], 1.0)
        np.add.at(self.right, owner[tied & same], 1.0)

    def shares(self) -> Array:
        shares: Array = self.right / self.seen
        return shares
