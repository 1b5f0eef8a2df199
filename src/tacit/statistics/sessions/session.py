"""A session: one declared draw, or one table, through many queries under one budget."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import Any, NoReturn

import numpy as np

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    boolean,
    choice,
    generator,
    in_interval,
    is_reproducible,
    positive,
)
from tacit._ground.files import check_writable, held, remove_left_overs
from tacit._ground.numbers import rounded_down
from tacit.guarantees import SuccessBound
from tacit.releases.prepared import Book
from tacit.statistics.numbers import NumbersRelease
from tacit.statistics.pools import check_dropped, checked_pool
from tacit.statistics.promises import PROMISES, Declared, refuse
from tacit.statistics.sessions.kept import Kept, read_kept
from tacit.statistics.sessions.offers import Offer
from tacit.statistics.sessions.opening import Opening
from tacit.statistics.strength import Strength, checked_mu


class Session:
    """One secret draw, or one table, through many queries under one budget.

    What is drawn is drawn once, when the session opens; every query is answered with fresh noise,
    and may be chosen by all answers before it. Under ``"rows"`` and ``"table"`` an answer is μ_i
    of Gaussian differential privacy and ``Σ μ_i² <= μ²``; under ``"draw"`` it tells β_i nats at
    most under the exact posterior of the declared subsets after all earlier answers, and
    ``I(X; Y_1 … Y_k) = Σ E I(X; Y_i | y_<i) <= Σ β_i <= β`` by the chain rule.

    A session with a ``path`` survives a restart. The file holds what was drawn, is written whole
    before and after every draw, and must be readable by its owner alone: who has it needs no
    attack. A charge is written before noise is drawn, there and in the ledger, which knows nothing
    of the draw; a process that dies in between has spent it.

    Args:
        pool: (N, p) finite numbers, as many as ``prepare`` takes.
        protect: ``"rows"``, ``"table"`` or ``"draw"``, as for ``prepare``.
        path: file that keeps the session; one that is there is taken up again, and all that is
            declared here must be as it was. None keeps it in this process alone.
        mi_budget: β > 0 in nats (``"draw"``); or
        success: largest success of telling whether a row was drawn, or is in the table, from all
            answers together; or
        mu: μ > 0 (``"rows"``, ``"table"``); or
        epsilon: ε > 0, with
        delta: δ in (0, 1); or
        rho: ρ > 0 of zero-concentrated differential privacy.
        pairs: for ``"rows"``, as for ``prepare``; chosen once for all queries.
        bounds: for ``"table"``, as for ``prepare``.
        levels: for ``"table"``, as for ``prepare``.
        adjacency: for ``"table"``, as for ``prepare``.
        sampling_rate: q, as for ``prepare``.
        simulations: for ``"draw"``, K at least.
        rng: None draws from the operating system; a seed or generator voids the guarantees.
        columns: names of the columns, as for ``prepare``.
        cost: of noise, as for ``prepare``; relative when None.
        ledger: what every answer spends from beside the budget, a ``tacit.Ledger``.
        secret: name of the secret in the ledger.
        no_budget: answer though the secret has no budget in the ledger and others have one.
        workers: processes for simulations.
        progress: whether to show bars.

    Raises:
        ValueError: a bad argument, or a file of another session, pool or declaration, or one that
            others may read.

    Example:
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> session = Session(heights, success=0.6, progress=False)
        >>> offer = session.price("mean", share=0.25)
        >>> [entry.name for entry in offer.expected], session.remaining == session.budget
        (['mean[x0]'], True)
        >>> release = offer.draw()
        >>> release = session.ask("std", error=5.0)
        >>> release.membership.success <= 0.6, session.remaining < session.budget
        (True, True)

    Source: Dong, Roth and Su (2022), Theorem 3.2, adaptively by Smith and Thakurta (2210.17520);
    chain rule of information, adaptively (2601.14033).
    """

    def __init__(
        self,
        pool: Any,
        *,
        protect: str = "rows",
        path: str | os.PathLike[str] | None = None,
        mi_budget: float | None = None,
        success: float | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        pairs: Any = None,
        bounds: Any = None,
        levels: Any = None,
        adjacency: str = "add-remove",
        sampling_rate: float = 0.5,
        simulations: int = 2000,
        rng: RandomSource = None,
        columns: Any = None,
        cost: Any = None,
        ledger: Book | None = None,
        secret: str | None = None,
        no_budget: bool = False,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> None:
        choice("protect", protect, PROMISES)
        boolean("no_budget", no_budget)
        if (ledger is None) != (secret is None):
            raise ValueError("ledger: expected it with the name of a secret, got one of them alone")
        known = checked_pool(pool, columns, protect, levels=levels)
        rows, labels = known.rows, known.columns
        check_dropped(pool, protect, adjacency)
        declared = Declared.of(labels, bounds, known.levels, adjacency, known.categories)
        strength = Strength(success, mu, epsilon, delta, rho)
        others = {} if protect == "table" else {"bounds": bounds, "levels": levels}
        others |= {"pairs": pairs} if protect != "rows" else {"mi_budget": mi_budget}
        for name, value in others.items():
            refuse(name, value, protect)
        self.protect = protect
        self._lock, self._process = threading.RLock(), os.getpid()
        self._path = None if path is None else check_writable("path", path)
        self._ledger, self._secret, self._no_budget = ledger, secret, no_budget
        self._rng, self._source = rng, None if rng is None else generator(rng)
        opening = Opening(
            rows, labels, declared, strength, mi_budget, pairs, sampling_rate, simulations, cost,
            generator(rng) if self._source is None else self._source, workers, progress,
        )  # fmt: skip
        with self._held():
            self._open(opening, {"protect": protect, "pool": _digest(rows, labels)})

    def _open(self, opening: Opening, said: dict[str, Any]) -> None:
        """Take up the session in the file, or make its secret and the file."""
        if self._path is not None:
            # they hold what was drawn
            remove_left_overs(self._path)
        stored = None if self._path is None else read_kept(self._path)
        makers = {"rows": opening.by_pairs, "table": opening.of_table, "draw": opening.of_draw}
        found = makers[self.protect](stored)
        self._promise, self.budget = found.promise, found.budget
        said = {**said, **found.declared}
        if stored is None:
            self._kept = Kept(
                said, found.drawn(self._source), found.members, (), found.bounds,
                is_reproducible(self._rng),
            )  # fmt: skip
            self._write()
        else:
            _check_same(stored.declared, said)
            found.check(stored)
            self._kept = self._taken_up(stored)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session cannot be copied or pickled: two of them would spend one budget twice; give "
            "it a path, and open it where it is asked"
        )

    def __repr__(self) -> str:
        """Return what it hides, and what is left of the budget."""
        unit = "μ" if self._promise.squares else "nats"
        return (
            f"Session(protect={self.protect!r}, {len(self.spends)} answers, "
            f"{self.remaining:.4g} of {self.budget:.4g} {unit} left)"
        )

    @property
    def answers(self) -> tuple[Mapping[str, Any] | None, ...]:
        """What was released so far; None for what was charged and never came out."""
        return tuple(one.release for one in self._kept.answers)

    @property
    def spends(self) -> tuple[float, ...]:
        """μ, or nats, that every query was charged."""
        return tuple(one.spend for one in self._kept.answers)

    @property
    def remaining(self) -> float:
        """μ, or nats, that one more query could be charged, rounded down."""
        if not self.spends:
            return self.budget
        power = 2 if self._promise.squares else 1
        rest = Fraction(self.budget) ** power - sum(
            (Fraction(one) ** power for one in self.spends), Fraction(0)
        )
        if rest <= 0:
            return 0.0
        return sqrt(rounded_down(rest)) * (1.0 - 2.0**-50) if power == 2 else rounded_down(rest)

    @property
    def membership(self) -> SuccessBound:
        """What all answers together hide, whatever is asked up to the budget."""
        return self._promise.membership(self.budget, reproducible=self._kept.reproducible)

    def price(
        self,
        query: Any,
        *,
        spend: float | None = None,
        share: float | None = None,
        error: Any = None,
        target: str | None = None,
    ) -> Offer:
        """Say what a query costs and how large its errors will be; nothing is drawn or charged.

        Args:
            query: as for ``prepare``; one that adds up, but under ``"draw"``.
            spend: μ, or nats, to charge; or
            share: share of the whole budget (of μ², or of the nats) in (0, 1]; or
            error: largest standard deviation of the noise in each number, one or (d,): the least
                price for it is found.
            target: column that a regression explains; the last when None.

        Returns:
            The ``Offer``; its ``draw`` answers.

        Raises:
            ValueError: not exactly one of spend, share and error, a query that the session cannot
                answer, or a price beyond what is left.
        """
        given = {"spend": spend, "share": share, "error": error}
        if sum(value is not None for value in given.values()) != 1:
            raise ValueError(
                "spend, share, error: expected exactly one of them, got "
                f"{', '.join(name for name, value in given.items() if value is not None) or 'none'}"
            )
        with self._lock:
            self._refresh()
            kept = self._kept
        if error is not None:
            largest = np.atleast_1d(array("error", error, ndim=(0, 1)))
            positive("error", float(largest.min(initial=np.inf)))
            left = self.remaining
            if left <= 0.0:
                raise ValueError("error: expected something left of the budget, got none")
            return Offer(self, self._promise.priced(query, target, largest, left, kept), kept)
        if spend is None:
            part = in_interval("share", share, 0.0, 1.0, open_low=True)
            spend = self.budget * (sqrt(part) if self._promise.squares else part)
            spend *= 1.0 - 2.0**-50
        charge = positive("spend", spend)
        if self._promise.squares:
            checked_mu("spend", charge)
        self._check(charge)
        return Offer(self, self._promise.ask(query, target, charge, kept), kept)

    def ask(
        self,
        query: Any,
        *,
        spend: float | None = None,
        share: float | None = None,
        error: Any = None,
        target: str | None = None,
    ) -> NumbersRelease:
        """Answer a query: ``price(...).draw()``.

        Args:
            query: as for ``price``.
            spend: as for ``price``.
            share: as for ``price``.
            error: as for ``price``.
            target: as for ``price``.

        Returns:
            The release. Its membership bound is that of the whole session, up to the budget.

        Raises:
            ValueError: as ``price``, or a refusal of the ledger; nothing is drawn then.
        """
        with self._held():
            # others wait, so that no answer comes between the price and the draw
            offer = self.price(query, spend=spend, share=share, error=error, target=target)
            return offer._now()

    def _check(self, spend: float) -> None:
        """Refuse a charge that, with all before it, is beyond the budget: exactly."""
        power = 2 if self._promise.squares else 1
        charged = sum((Fraction(one) ** power for one in (*self.spends, spend)), Fraction(0))
        if charged > Fraction(self.budget) ** power:
            unit = "μ" if self._promise.squares else "nats"
            raise ValueError(
                f"spend: expected at most {self.remaining:.6g} {unit}, what is left of the budget, "
                f"got {spend:.6g}; nothing was drawn"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the session, with its state as the file has it."""
        with self._held():
            self._refresh()
            yield

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the session against other threads, and its file against other processes.

        What is left is looked at and spent while it is held, in one step.
        """
        if self._path is None and self._process != os.getpid():
            raise ValueError(
                "path: expected a file for a session that several processes ask, got None"
            )
        with self._lock, nullcontext() if self._path is None else held(self._path):
            yield

    def _refresh(self) -> None:
        """Take up what other processes answered."""
        if self._path is not None:
            stored = read_kept(self._path)
            if stored is None:
                raise ValueError(f"path: expected the session's file, got none: {self._path.name}")
            _check_same(stored.declared, self._kept.declared)
            self._kept = self._taken_up(stored)

    def _taken_up(self, stored: Kept) -> Kept:
        """Return what a file says; noise of a seed voids what was drawn without one."""
        return replace(stored, reproducible=stored.reproducible or is_reproducible(self._rng))

    def _write(self) -> None:
        if self._path is not None:
            self._kept.write(self._path)


def _digest(rows: Array, columns: tuple[str, ...]) -> str:
    content = "\x00".join(columns).encode() + str(rows.shape).encode() + rows.tobytes()
    return hashlib.sha256(content).hexdigest()


def _check_same(stored: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Refuse a session that was opened with another declaration."""
    for name in dict.fromkeys(("protect", "pool", *said, *stored)):
        if stored.get(name) != said.get(name):
            raise ValueError(
                f"path: expected the session as it was opened, got another {name}; nothing was "
                "drawn"
            )
