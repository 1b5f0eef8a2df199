"""A release that is certified and not yet drawn: prepare, reserve, draw."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from tacit._ground.checks import boolean
from tacit._ground.frozen import owned_fields
from tacit.guarantees.base import Guarantee
from tacit.guarantees.one_line import one_line
from tacit.releases.numbers import Number
from tacit.releases.release import Release
from tacit.releases.showing import prepared_html, prepared_printed
from tacit.text import significant_up

Details = TypeVar("Details")


class Reserved(Protocol):
    """A cost that is counted already, for one release."""

    @property
    def number(self) -> int:
        """Its place in the ledger."""
        ...

    @property
    def seal(self) -> str | None:
        """Return what tells the ledger it is in from any other."""
        ...

    @property
    def status(self) -> str:
        """Return "reserved", "drawn", "committed" or "cancelled"."""
        ...

    @property
    def record(self) -> dict[str, Any] | None:
        """Return what was committed beside the cost; None before."""
        ...

    def mark_drawn(self) -> None:
        """Say that the noise is drawn from here on."""
        ...

    def commit(self, record: dict[str, Any]) -> None:
        """Store what was released beside the cost."""
        ...

    def cancel(self) -> None:
        """Give the cost back: nothing was drawn."""
        ...


class Entered(Protocol):
    """A release as a ledger holds it."""

    @property
    def number(self) -> int:
        """Its place in the ledger."""
        ...

    @property
    def status(self) -> str:
        """Return "reserved", "drawn", "committed" or "cancelled"."""
        ...

    @property
    def description(self) -> str:
        """Return what was released."""
        ...


def check_digest(what: str, now: str, prepared: str) -> None:
    """Refuse what is no longer as it was prepared.

    Args:
        what: the argument that named it.
        now: its digest.
        prepared: the digest when the release was prepared.

    Raises:
        ValueError: they differ.
    """
    if now != prepared:
        raise ValueError(
            f"{what}: expected it as it was prepared, got it changed (SHA-256); nothing was drawn"
        )


def check_same_release(
    reserved: Reserved, published: Mapping[str, Any], names: Sequence[str]
) -> None:
    """Refuse a second release on one reservation; the same one may be told again.

    Args:
        reserved: a reservation that was committed.
        published: what would be released on it.
        names: fields that name the release by a digest.

    Raises:
        ValueError: the reservation was committed for another.
    """
    record = reserved.record or {}
    if any(record.get(name) != published.get(name) for name in names):
        raise ValueError(
            f"checkpoint: expected a run that was not released yet, got one whose reservation "
            f"{reserved.number} the ledger has closed with another release; a reservation is worth "
            "one release"
        )


class Book(Protocol):
    """What a release spends from, such as ``tacit.Ledger``."""

    def reserve(
        self,
        secret: str,
        guarantee: Guarantee | Sequence[Guarantee],
        description: str,
        *,
        reproducible: bool = False,
        no_budget: bool = False,
    ) -> Reserved:
        """Count the cost of a release that is about to be drawn, or refuse."""
        ...

    def reserved(self, number: int, secret: str, *, seal: str | None = None) -> Reserved:
        """Return what an earlier process reserved, or refuse a ledger in which it did not."""
        ...

    def entries(self, secret: str | None = None) -> Sequence[Entered]:
        """Return every release of a secret that was entered, oldest first."""
        ...


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The error that a number will have: the standard deviation of the noise in it."""

    name: str
    error: float

    @property
    def half_width(self) -> float:
        """Half of the 95% interval that the number will have."""
        return Number(name=self.name, value=0.0, error=self.error).half_width()


class _Once:
    """Whether a prepared release was drawn, shared by all of its copies."""

    def __init__(self) -> None:
        self.lock, self.drawn, self.process = threading.Lock(), False, os.getpid()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Once:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a prepared release cannot be pickled: it is drawn once, and its pickle could be drawn "
            "again; prepare it where it is drawn"
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prepared(ABC, Generic[Details]):
    """Everything that can fail is done; looking at it costs nothing and draws nothing.

    It is drawn once: copies know what became of each other, none of them can be pickled, and a
    process forked from the one that prepared it does not draw. Its arrays are its own, so that
    what the caller does to theirs afterwards does not change what is drawn; models and files that
    it reads are compared with their digest at the draw, and others are refused.

    Attributes:
        guarantees: what the release will be certified for, the headline first.
        spends: what the ledger counts.
        expected: the error of every number that will be released.
        description: what is released, for the ledger.
        reproducible: whether a seed fixes the randomness, which voids the guarantees.
    """

    guarantees: tuple[Guarantee, ...]
    spends: tuple[Guarantee, ...]
    expected: tuple[Expected, ...]
    description: str
    reproducible: bool
    _once: _Once = field(default_factory=_Once, repr=False)

    def __post_init__(self) -> None:
        owned_fields(self)

    def __repr__(self) -> str:
        return prepared_printed(self.description, self._awaited(), self._standing())

    def _repr_html_(self) -> str:
        return prepared_html(self.description, self._awaited(), self._standing())

    def _awaited(self) -> list[tuple[str, str]]:
        return [(one.name, f"± {significant_up(one.half_width, 2)}") for one in self.expected]

    def _standing(self) -> str:
        return one_line(self.guarantees[0]).text if self.guarantees else "nothing is guaranteed"

    def draw(
        self, *, ledger: Book | None = None, secret: str | None = None, no_budget: bool = False
    ) -> Release[Details]:
        """Reserve the cost, draw the release, store it beside the cost and return it.

        Args:
            ledger: what the release spends from, a ``tacit.Ledger``; None for none.
            secret: name of the secret in the ledger.
            no_budget: release though the secret has no budget and others have one.

        Returns:
            The release.

        Raises:
            ValueError: drawn before, a ledger without a secret, or a refusal of the ledger, before
                anything is drawn.
        """
        boolean("no_budget", no_budget)
        if ledger is None:
            if secret is not None or no_budget:
                raise ValueError("ledger: expected one beside secret and no_budget, got none")
            with self._once.lock:
                self._refuse_again()
                self._check_unchanged()
                self._once.drawn = True
            return _checked(self._drawn())
        if not hasattr(ledger, "reserve"):
            raise ValueError(f"ledger: expected a tacit.Ledger, got {type(ledger).__name__}")
        if secret is None:
            raise ValueError("secret: expected the name of the secret in the ledger, got None")
        if not self.spends:
            raise ValueError("ledger: expected a release with a guarantee to count, got none")
        with self._once.lock:
            self._refuse_again()
            self._check_unchanged()
            reservation = ledger.reserve(
                secret,
                self.spends,
                self.description,
                reproducible=self.reproducible,
                no_budget=no_budget,
            )
            self._once.drawn = True
        reservation.mark_drawn()
        release = _checked(self._drawn())
        reservation.commit(release.published())
        return release

    def _refuse_again(self) -> None:
        if self._once.drawn:
            raise ValueError("draw: this release was drawn already; prepare another")
        if self._once.process != os.getpid():
            raise ValueError(
                "draw: expected the process that prepared the release, as each of several could "
                "draw it, got one forked from it; prepare it where it is drawn"
            )

    def _check_unchanged(self) -> None:
        """Refuse to draw from what was prepared and is another by now, where it is not owned.

        Models and files are not copied: a digest of them is taken when the release is prepared.

        Raises:
            ValueError: the digest is another; nothing is reserved then.
        """

    @abstractmethod
    def _drawn(self) -> Release[Details]:
        """Draw the randomness and return the release."""


def _checked(release: Release[Details]) -> Release[Details]:
    """Return a release of which no claim is proved to be false; only such leave."""
    from tacit.releases.verification import refuse_false

    refuse_false(release)
    return release
