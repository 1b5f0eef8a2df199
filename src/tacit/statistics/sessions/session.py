"""A session: one declared draw, or one table, through many queries under one budget."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from math import inf, sqrt
from typing import Any, NoReturn

import numpy as np

from tacit._ground.checks import (
    RandomSource,
    array,
    boolean,
    generator,
    in_interval,
    is_reproducible,
    positive,
)
from tacit._ground.files import check_writable, held, remove_left_overs
from tacit._ground.numbers import rounded_down
from tacit.guarantees import SuccessBound
from tacit.releases.prepared import Book, Entered, Expected, Reserved
from tacit.releases.promises import Effort, Promise, check_effort
from tacit.releases.release import Release
from tacit.releases.strength import checked_mu
from tacit.releases.verification import refuse_false
from tacit.statistics.details import NumbersDetails
from tacit.statistics.opening import open_pool
from tacit.statistics.pools import Pool
from tacit.statistics.prepared import PreparedNumbers
from tacit.statistics.promises import keeping_of
from tacit.statistics.sessions.questions import Question, Questions
from tacit.statistics.sessions.state import SessionState, read_state

EFFORT = Effort()
# What a budget is rounded down by, so that shares of it do not overrun it.
HAIR = 2.0**-50


class Session:
    """One secret draw, or one table, through many queries under one budget.

    What is drawn is drawn once, when the session opens; every query is answered with fresh noise,
    and may be chosen by all answers before it. Under ``Rows`` and ``Table`` an answer is μ_i of
    Gaussian differential privacy and ``Σ μ_i² <= μ²``; under ``Draw`` it tells β_i nats at most
    under the exact posterior of the declared subsets after all earlier answers, and
    ``I(X; Y_1 … Y_k) = Σ E I(X; Y_i | y_<i) <= Σ β_i <= β`` by the chain rule.

    A session with a ``path`` survives a restart. The file holds what was drawn, is written whole
    before and after every draw, and must be readable by its owner alone: who has it needs no
    attack. A charge is written before noise is drawn, there and in the ledger, which knows nothing
    of the draw; a process that dies in between has spent it. A session that is closed, as ``with``
    does at its end, forgets what was drawn and answers nothing more; one with a path can be taken
    up again.

    Args:
        pool: as for ``prepare``.
        promise: what all answers together hide, and how well; pairs are chosen once for all
            queries.
        effort: as for ``prepare``; answers are not attacked.
        path: file that keeps the session; one that is there is taken up again, and all that is
            declared here must be as it was. None keeps it in this process alone.
        columns: names of the columns, as for ``prepare``; when None, of a data frame whose rows are
            hidden, those of which the promise declares bounds or levels.
        cost: of noise, as for ``prepare``; relative when None.
        rng: None draws from the operating system; a seed or generator voids the guarantees.
        ledger: what every answer spends from beside the budget, a ``tacit.Ledger``.
        secret: name of the secret in the ledger.
        no_budget: answer though the secret has no budget in the ledger and others have one.

    Raises:
        ValueError: a bad argument, or a file of another session, pool or declaration, or one that
            others may read.

    Example:
        >>> from tacit import Rows
        >>> heights = np.random.default_rng(1).normal(170.0, 8.0, size=(60, 1))
        >>> with Session(heights, Rows(success=0.6)) as session:
        ...     offer = session.price("mean", share=0.25)
        ...     [entry.name for entry in offer.expected], session.remaining == session.budget
        ...     release = offer.draw()
        ...     release = session.ask("std", error=5.0)
        ...     release.membership.success <= 0.6, session.remaining < session.budget
        (['mean[x0]'], True)
        (True, True)

    Source: Dong, Roth and Su (2022), Theorem 3.2, adaptively by Smith and Thakurta (2210.17520);
    chain rule of information, adaptively (2601.14033).
    """

    def __init__(
        self,
        pool: Any,
        promise: Promise,
        effort: Effort = EFFORT,
        *,
        path: str | os.PathLike[str] | None = None,
        columns: Sequence[str] | None = None,
        cost: Any = None,
        rng: RandomSource = None,
        ledger: Book | None = None,
        secret: str | None = None,
        no_budget: bool = False,
    ) -> None:
        boolean("no_budget", no_budget)
        if (ledger is None) != (secret is None):
            raise ValueError(
                "ledger: expected a ledger together with the name of a secret, got "
                "one of them alone"
            )
        keeping = keeping_of(promise)
        if keeping.session is None:
            name = type(promise).__name__
            raise ValueError(f"promise: expected one that a session keeps, got {name}")
        check_effort(effort)
        known = open_pool(pool, columns, promise, fewest=keeping.fewest)
        self.promise = promise
        self._lock, self._process, self._closed = threading.RLock(), os.getpid(), False
        self._path = None if path is None else check_writable("path", path)
        self._ledger, self._secret, self._no_budget = ledger, secret, no_budget
        self._rng, self._source = rng, None if rng is None else generator(rng)
        module, _, name = keeping.session.partition(":")
        questions = getattr(import_module(module), name)
        source = generator(rng) if self._source is None else self._source
        with self._hold():
            if self._path is not None:
                # they hold what was drawn
                remove_left_overs(self._path)
            stored = None if self._path is None else read_state(self._path)
            self._questions: Questions = questions(known, promise, effort, cost, source, stored)
            self._open(known, stored)

    def _open(self, pool: Pool, stored: SessionState | None) -> None:
        """Take up the session in the file, or make its secret and the file."""
        questions = self._questions
        content = "\x00".join(pool.columns).encode() + str(pool.rows.shape).encode()
        digest = hashlib.sha256(content + pool.rows.tobytes()).hexdigest()
        said = {"promise": self.promise.word, "pool": digest, **questions.said}
        if stored is not None:
            _check_same(stored.declared, said)
            questions.check(stored)
            self._state = self._take_up(stored)
            return
        self._state = SessionState(
            said,
            questions.draw_secret(self._source),
            questions.members,
            (),
            questions.bounds,
            is_reproducible(self._rng),
        )
        self._write()

    def __enter__(self) -> Session:
        """Return the session, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def close(self) -> None:
        """Forget what was drawn; nothing more is answered. A file of the session stays."""
        with self._lock:
            self._closed = True
            self._state = replace(self._state, drawn=np.empty(0, dtype=np.int64))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session cannot be copied or pickled: two of them would spend one budget twice; give "
            "it a path, and open it where it is asked"
        )

    def __repr__(self) -> str:
        """Return what it hides, and what is left of the budget."""
        return (
            f"Session({self.promise.word}, {self._answered()}, "
            f"{self.remaining:.4g} of {self.budget:.4g} {self.unit} left)"
        )

    def _answered(self) -> str:
        return f"{len(self.spends)} answer" + ("" if len(self.spends) == 1 else "s")

    def _repr_html_(self) -> str:
        done = round(100.0 * (1.0 - self.remaining / self.budget))
        return (
            f"<div><p><b>Session</b> under <code>{self.promise.word}</code>: "
            f"{self._answered()}, {self.remaining:.4g} of {self.budget:.4g} {self.unit} left</p>"
            f'<progress max="100" value="{done}" aria-label="spent">{done}%</progress></div>'
        )

    @property
    def budget(self) -> float:
        """μ, or nats, of all answers together."""
        return self._questions.budget

    @property
    def answers(self) -> tuple[Mapping[str, Any] | None, ...]:
        """What was released so far; None for what was charged and never came out."""
        return tuple(one.release for one in self._state.answers)

    @property
    def spends(self) -> tuple[float, ...]:
        """μ, or nats, that every query was charged."""
        return tuple(one.spend for one in self._state.answers)

    @property
    def remaining(self) -> float:
        """μ, or nats, that one more query could be charged, rounded down."""
        if not self.spends:
            return self.budget
        # exactly: β − Σ β_i, or the root of μ² − Σ μ_i²
        rest = Fraction(self.budget) ** self._power - self._sum_of(self.spends)
        if rest <= 0:
            return 0.0
        return sqrt(rounded_down(rest)) * (1.0 - HAIR) if self._power == 2 else rounded_down(rest)

    @property
    def share_left(self) -> float:
        """The share of the budget that one more query could be asked for, rounded down."""
        if not self.spends:
            return 1.0
        return float((self.remaining / self.budget) ** self._power * (1.0 - HAIR))

    @property
    def membership(self) -> SuccessBound:
        """What all answers together hide, whatever is asked up to the budget."""
        return self._questions.membership()

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
            query: as for ``prepare``; one that adds up, but under ``Draw``.
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
            state = self._state
        if error is not None:
            largest = np.atleast_1d(array("error", error, ndim=(0, 1)))
            positive("error", float(largest.min(initial=np.inf)))
            left = self.remaining
            if left <= 0.0:
                raise ValueError("error: expected a budget with something left, got none left")
            return Offer(self, self._questions.price(query, target, largest, left, state), state)
        if spend is None:
            part = in_interval("share", share, 0.0, 1.0, open_low=True)
            spend = self.budget * (sqrt(part) if self._power == 2 else part) * (1.0 - HAIR)
        charge = positive("spend", spend)
        if self._power == 2:
            checked_mu("spend", charge)
        self._check(charge)
        return Offer(self, self._questions.ask(query, target, charge, state), state)

    def ask(
        self,
        query: Any,
        *,
        spend: float | None = None,
        share: float | None = None,
        error: Any = None,
        target: str | None = None,
    ) -> Release[NumbersDetails]:
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
        with self._hold():
            # others wait, so that no answer comes between the price and the draw
            offer = self.price(query, spend=spend, share=share, error=error, target=target)
            return self._answer(offer)

    @property
    def _power(self) -> int:
        """2 where squares of what is spent add up."""
        return 2 if self._questions.squares else 1

    @property
    def unit(self) -> str:
        """What the budget is counted in: "μ", or "nats"."""
        return "μ" if self._questions.squares else "nats"

    def _sum_of(self, spends: Sequence[float]) -> Fraction:
        return sum((Fraction(one) ** self._power for one in spends), Fraction(0))

    def _check(self, spend: float) -> None:
        """Refuse a charge that, with all before it, is beyond the budget: exactly."""
        if self._sum_of((*self.spends, spend)) > Fraction(self.budget) ** self._power:
            raise ValueError(
                f"spend: expected at most {self.remaining:.6g} {self.unit}, what is left of the "
                f"budget, got {spend:.6g}; nothing was drawn"
            )

    def _draw(self, offer: Offer) -> Release[NumbersDetails]:
        """Answer what was offered, the session being as it was then."""
        with self._hold():
            self._refresh()
            # what was charged when it was priced may have come out since, in another process
            since = self._state.steps - offer.seen.steps
            if since:
                raise ValueError(
                    "offer: expected no other answer since it was priced, got "
                    f"{(since + 1) // 2}; ask for the price again"
                )
            return self._answer(offer)

    def _answer(self, offer: Offer) -> Release[NumbersDetails]:
        """Charge, draw and keep an answer, the session being held and as it was when offered."""
        self._check(offer.spend)
        question, planned = offer.question, self._told(offer.question.planned)
        prepared = PreparedAnswer(
            guarantees=planned.guarantees,
            spends=(planned.guarantees[1],),
            expected=offer.expected,
            description=planned.title,
            reproducible=planned.reproducible,
            plan=question.plan,
            planned=planned,
            source=self._source,
            session=self,
            offer=offer,
        )
        book = self._ledger
        if book is not None and self._questions.whole:
            book = WholeSession(self, book, offer.spend)
        return prepared.draw(ledger=book, secret=self._secret, no_budget=self._no_budget)

    def _told(self, planned: Release[Any]) -> Release[Any]:
        """Return what will be released as the session's next answer."""
        state, rng = self._state, self._rng
        turn = planned.details.session.turn
        whole = "guarantees are" if self._questions.whole else "bound on guessing is"
        note = f"answer {turn} of a session, whose {whole} of all its answers"
        return replace(
            planned,
            reproducible=state.reproducible,
            seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
            notes=(note, *planned.notes),
        )

    @contextmanager
    def _hold(self) -> Iterator[None]:
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
        if self._closed:
            raise ValueError("session: expected one that is open, got one that was closed")
        if self._path is not None:
            stored = read_state(self._path)
            if stored is None:
                raise ValueError(f"path: expected the session's file, got none: {self._path.name}")
            _check_same(stored.declared, self._state.declared)
            self._state = self._take_up(stored)

    def _take_up(self, stored: SessionState) -> SessionState:
        """Return what a file says; noise of a seed voids what was drawn without one."""
        return replace(stored, reproducible=stored.reproducible or is_reproducible(self._rng))

    def _keep(self, state: SessionState) -> None:
        """Take a new state, and write it before anything else happens."""
        self._state = state
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            self._state.write(self._path)


@dataclass(frozen=True, eq=False)
class Offer:
    """A query of a session at a price; for the holder of the pool.

    Attributes:
        session: that answers it.
        question: the query, certified and not drawn.
        seen: the state of the session when it was priced.
    """

    session: Session = field(repr=False)
    question: Question
    seen: SessionState = field(repr=False)

    @property
    def spend(self) -> float:
        """μ, or nats, that the answer is charged."""
        return self.question.spend

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The error that every number will have."""
        return self.question.expected

    def draw(self) -> Release[NumbersDetails]:
        """Charge the price, draw the noise, keep the answer and return it.

        Raises:
            ValueError: another query was answered since, or a refusal of the ledger; nothing is
                drawn then.
        """
        return self.session._draw(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedAnswer(PreparedNumbers):
    """An answer that keeps itself in its session."""

    session: Session = field(repr=False)
    offer: Offer = field(repr=False)

    def _drawn(self) -> Release[NumbersDetails]:
        session, question = self.session, self.offer.question
        if session._state.turn == self.offer.seen.turn:
            # a ledger that counts the session as a whole had it charged before
            session._keep(session._state.charge(self.description, self.offer.spend))
        if question.found is not None:
            release: Release[NumbersDetails] = question.found.answer(self.source, session._told)
        else:
            plan, planned = session._questions.ready(self.plan, self.planned, self.source)
            release = super(PreparedAnswer, replace(self, plan=plan, planned=planned))._drawn()
        # before the session keeps it
        refuse_false(release)
        bounds = session._questions.after(question, session._state, release.values)
        session._keep(session._state.answer(release.published(), bounds))
        return release


@dataclass(frozen=True, eq=False)
class WholeSession:
    """A ledger that counts all answers of a session together, with the first of them.

    Their (ε, δ) is that of one mechanism that is asked several times, and adds to others however
    these are chosen and whenever they are asked in between. Later answers add nothing, in that
    ledger: in another the session is not counted, and they are refused. So is the answer of a copy
    of the session's file, whose turn the ledger holds already: it would be one answer too many. A
    file never asks a turn twice, for it is charged there before the ledger enters it.

    Attributes:
        session: whose answers they are.
        ledger: that counts.
        spend: what the answer is charged, μ or nats.

    Source: Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang (2023), concurrent composition.
    """

    session: Session
    ledger: Book
    spend: float

    def reserve(
        self,
        secret: str,
        guarantee: Any,
        description: str,
        *,
        reproducible: bool = False,
        no_budget: bool = False,
    ) -> Reserved:
        """Count the session, or nothing where it was."""
        state = self.session._state
        if state.counted is None:
            held = self.ledger.reserve(
                secret, guarantee, description, reproducible=reproducible, no_budget=no_budget
            )
            # written with the charge, before anything is drawn
            self.session._state = replace(state, counted=(held.number, held.seal))
            return held
        number, seal = state.counted
        if self.ledger.reserved(number, secret, seal=seal).status == "cancelled":
            raise ValueError(
                "ledger: expected a ledger that still counts the session, got a cancelled one"
            )
        nothing = [replace(one, epsilon=0.0, delta=0.0) for one in guarantee]
        turn = f", answer {state.turn + 1} of the session of release {number}"
        self._check_new(secret, turn)
        self.session._keep(state.charge(description, self.spend))
        try:
            held = self.ledger.reserve(
                secret, nothing, description + turn, reproducible=reproducible, no_budget=no_budget
            )
        except ValueError:
            # what may have been entered, for an answer that was lost, stays charged
            with suppress(ValueError):
                self._check_new(secret, turn)
                self.session._keep(state)
            raise
        try:
            # of two copies that ask at once the one that was entered first is answered
            self._check_new(secret, turn, before=held.number)
        except ValueError:
            held.cancel()
            self.session._keep(state)
            raise
        return held

    def _check_new(self, secret: str, turn: str, *, before: float = inf) -> None:
        """Refuse a turn that is in the ledger already, of a file of which this one is a copy.

        Raises:
            ValueError: it is, under a number below ``before``.
        """
        entries = (one for one in self.ledger.entries(secret) if one.status != "cancelled")
        if any(one.description.endswith(turn) and one.number < before for one in entries):
            raise ValueError(
                f"path: expected the file from which all answers were asked, got a copy of it: the "
                f"ledger has{turn.removeprefix(',')} already; nothing was drawn"
            )

    def reserved(self, number: int, secret: str, *, seal: str | None = None) -> Reserved:
        """Return what an earlier process reserved."""
        return self.ledger.reserved(number, secret, seal=seal)

    def entries(self, secret: str | None = None) -> Sequence[Entered]:
        """Return every release of a secret that was entered."""
        return self.ledger.entries(secret)


def _check_same(stored: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Refuse a session that was opened with another declaration."""
    for name in dict.fromkeys(("promise", "pool", *said, *stored)):
        if stored.get(name) != said.get(name):
            raise ValueError(
                f"path: expected the session as it was opened, got another {name}; nothing was "
                "drawn"
            )
