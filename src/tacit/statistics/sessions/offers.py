"""A query of a session at a price, and the answer that keeps itself there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tacit.releases.prepared import Expected
from tacit.statistics.numbers import NumbersRelease
from tacit.statistics.prepared_numbers import PreparedNumbers
from tacit.statistics.sessions.asked import Asked
from tacit.statistics.sessions.kept import Kept

if TYPE_CHECKING:
    from tacit.statistics.sessions.session import Session


@dataclass(frozen=True, eq=False)
class Offer:
    """A query of a session at a price; for the holder of the pool.

    Attributes:
        asked: the query, certified and not drawn.
    """

    _session: Session = field(repr=False)
    asked: Asked
    _seen: Kept = field(repr=False)

    @property
    def spend(self) -> float:
        """μ, or nats, that the answer is charged."""
        return self.asked.spend

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The error that every number will have."""
        return tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(self.asked.names, self.asked.plan.errors, strict=True)
        )

    def draw(self) -> NumbersRelease:
        """Charge the price, draw the noise, keep the answer and return it.

        Raises:
            ValueError: another query was answered since, or a refusal of the ledger; nothing is
                drawn then.
        """
        session = self._session
        with session._alone():
            if session._kept.turn != self._seen.turn:
                raise ValueError(
                    "offer: expected no other answer since it was priced, got "
                    f"{session._kept.turn - self._seen.turn}; ask for the price again"
                )
            return self._now()

    def _now(self) -> NumbersRelease:
        """Draw, the session being held and as it was when this was priced."""
        session = self._session
        session._check(self.spend)
        return _answer(session, self).draw(
            ledger=session._ledger, secret=session._secret, no_budget=session._no_budget
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answer(PreparedNumbers):
    """An answer that keeps itself in its session."""

    session: Session = field(repr=False)
    offer: Offer = field(repr=False)

    def _drawn(self) -> NumbersRelease:
        session, asked = self.session, self.offer.asked
        session._kept = session._kept.charged(asked.description, asked.spend)
        session._write()
        release = super()._drawn()
        bounds = session._promise.after(asked, session._kept, release.values)
        session._kept = session._kept.answered(release.published(), bounds)
        session._write()
        return release


def _answer(session: Session, offer: Offer) -> _Answer:
    asked, kept = offer.asked, session._kept
    turn = kept.turn + 1
    return _Answer(
        guarantees=(session.membership, asked.guarantee),
        spends=(asked.guarantee,),
        expected=offer.expected,
        description=asked.description,
        reproducible=kept.reproducible,
        plan=asked.plan,
        protect=session.protect,
        secret=session._promise.secret,
        method=asked.method,
        notes=(
            f"answer {turn} of a session, whose bound on guessing is of all its answers",
            *asked.notes,
        ),
        diagnostics={"turn": turn, "spend": asked.spend, "budget": session.budget},
        limits=asked.limits,
        seed=None if not isinstance(session._rng, (int, np.integer)) else int(session._rng),
        source=session._source,
        session=session,
        offer=offer,
    )
