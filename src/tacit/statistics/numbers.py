"""Released numbers with the promise they were released under: no secret inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
from scipy.special import ndtri

from tacit._ground.checks import Array, in_interval, integer, non_negative, vector
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr, shown
from tacit.attacks import MembershipAttack
from tacit.documents import Envelope, check_known
from tacit.guarantees import SuccessBound
from tacit.guarantees.base import Guarantee, text, texts
from tacit.guarantees.reading import guarantee_from_dict, guarantee_of
from tacit.releases.form import (
    Attack,
    Form,
    Number,
    Release,
    decoded_ends,
    encoded_ends,
)
from tacit.statistics.release import attack_of

ENVELOPE = Envelope("tacit.statistic.numbers", 1)
PROTECTED = ("rows", "table", "draw")
PUBLISHABLE = (
    "values",
    "names",
    "errors",
    "sampling",
    "intervals",
    "protect",
    "query",
    "method",
    "secret",
    "membership",
    "further",
    "notes",
    "reproducible",
    "created",
)


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class NumbersRelease(Release):
    """Noisy numbers, their errors, and what they hide.

    Attributes:
        values: (d,) the numbers to publish, projected on what is possible.
        names: d labels.
        errors: (d,) standard deviations of the noise in them; where they are not linear in what is
            noisy, 95% of errors are within ±1.96 of these.
        sampling: (d,) their standard deviations over pools and draws from them (of a query that
            does not add up: over draws), rounded up to two digits, NaN where a few rows make most
            of one; None where they may not be known.
        protect: the promise, ``"rows"`` or ``"table"``; ``"draw"`` in a session.
        guarantees: what is certified: the success, what it follows from, and what is said beside.
        secret: what is protected.
        query: what was computed.
        method: how the noise was chosen.
        notes: what a reader should know.
        attack: the strongest attack run on simulated releases; None when none was.
        limits: (d, 2), the (lowest, highest) that each number can be, infinite where it is open,
            at which its intervals end; None where nothing is known.
        diagnostics: what the design saw; for the holder of the table, not for publication.
        reproducible: whether a seed fixed the randomness, which voids the guarantee.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.
    """

    values: Array
    names: tuple[str, ...]
    errors: Array
    sampling: Array | None
    protect: str
    guarantees: tuple[Guarantee, ...]
    secret: str
    query: str
    method: str
    notes: tuple[str, ...]
    attack: MembershipAttack | None
    limits: Array | None
    diagnostics: Mapping[str, Any]
    reproducible: bool
    seed: int | None
    created: str

    FORMAT: ClassVar[str] = ENVELOPE.format

    @property
    def membership(self) -> SuccessBound:
        """The bound on guessing whether a row is in."""
        return next(held for held in self.guarantees if isinstance(held, SuccessBound))

    @property
    def standard_errors(self) -> Array:
        """Standard errors (d,) of what the rows were drawn from: sampling and noise; or NaN.

        For coefficients of least squares these are robust to unequal variances, as they rest on
        every row's influence.

        Raises:
            ValueError: the sampling error is not known.
        """
        if self.sampling is None:
            raise ValueError("sampling: expected a release whose sampling error is known")
        return np.hypot(self.errors, self.sampling)

    def intervals(self, coverage: float = 0.95, *, sampling: bool = False) -> Array:
        """Return an interval for each number, (d, 2), by the normal law of the errors.

        Args:
            coverage: how often the intervals hold the truth, in (0, 1); of numbers that are not
                linear in what is noisy, errors are set so that it is right at 95%, and beyond it
                they may be wider than the normal law says.
            sampling: whether it speaks of what the rows were drawn from, and so has the sampling
                error too; otherwise of the statistic of the rows that were drawn. NaN where the
                sampling error is.

        Raises:
            ValueError: the sampling error is asked for and is not known.
        """
        level = in_interval("coverage", coverage, 0.0, 1.0, open_low=True, open_high=True)
        errors = self.standard_errors if sampling else self.errors
        half = float(ndtri(0.5 + 0.5 * level)) * errors
        ends = np.stack([self.values - half, self.values + half], axis=1)
        if self.limits is None:
            return ends
        return np.asarray(np.clip(ends, self.limits[:, :1], self.limits[:, 1:]))

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        return Form(
            kind=f"statistic-{self.protect}",
            title=self.query,
            secret=self.secret,
            method=self.method,
            guarantees=self.guarantees,
            numbers=tuple(
                Number(name=name, value=value, error=error, sampling=spread, limits=limits)
                for name, value, error, spread, limits in zip(
                    self.names,
                    self.values.tolist(),
                    self.errors.tolist(),
                    self._known_sampling or [None] * len(self.names),
                    self._ends,
                    strict=True,
                )
            ),
            attacks=self._attacks(),
            notes=self.notes,
            publishable=PUBLISHABLE,
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    @property
    def _known_sampling(self) -> list[float | None] | None:
        """Sampling errors, None where there is none."""
        if self.sampling is None:
            return None
        return [None if math.isnan(one) else one for one in self.sampling.tolist()]

    @property
    def _ends(self) -> list[tuple[float, float]]:
        """What each number can be."""
        if self.limits is None:
            return [(-math.inf, math.inf)] * len(self.names)
        return [(low, high) for low, high in self.limits.tolist()]

    def _attacks(self) -> tuple[Attack, ...]:
        return () if self.attack is None else (attack_of(self.attack, self.membership.task),)

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        return ENVELOPE.closed(
            {
                "values": self.values.tolist(),
                "names": list(self.names),
                "errors": self.errors.tolist(),
                "sampling": self._known_sampling,
                "intervals": [number.intervals() for number in self.form.numbers],
                "protect": self.protect,
                "membership": self.guarantees[0].to_dict(),
                "further": [held.to_dict() for held in self.guarantees[1:]],
                "secret": self.secret,
                "query": self.query,
                "method": self.method,
                "notes": list(self.notes),
                "attack": None if self.attack is None else self.attack.to_dict(),
                "limits": None
                if self.limits is None
                else [encoded_ends(ends) for ends in self._ends],
                "diagnostics": dict(self.diagnostics),
                "reproducible": self.reproducible,
                "seed": self.seed,
                "created": self.created,
                "form": self.form.to_dict(),
            }
        )

    @staticmethod
    def from_dict(description: Any) -> NumbersRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of released numbers, or a field is missing.
        """
        return ENVELOPE.opened("description", description, _read)


# What a workflow may say of its diagnostics: of rows, of a table, of an answer of a session.
DIAGNOSTICS = dict.fromkeys(
    (
        "pool_rows", "simulations", "sums", "mu", "gap", "noise_power", "table_rows",
        "clamped_rows", "turn", "spend", "budget",
    )
) | {"pairing": dict.fromkeys(("method", "groups", "group_size", "left_out"))}  # fmt: skip


def _read(description: Mapping[str, Any]) -> NumbersRelease:
    check_known("description.diagnostics", description["diagnostics"], DIAGNOSTICS)
    attack, names = description["attack"], texts("description.names", description["names"])
    for name in ("secret", "query", "method", "created"):
        text(f"description.{name}", description[name])
    if description["protect"] not in PROTECTED:
        found = shown(description["protect"])
        raise ValueError(f"description.protect: expected one of {PROTECTED}, got {found}")
    if not isinstance(description["reproducible"], bool):
        found = shown(description["reproducible"])
        raise ValueError(f"description.reproducible: expected true or false, got {found}")
    if description["seed"] is not None:
        integer("description.seed", description["seed"], minimum=0, maximum=None)
    success = guarantee_of(SuccessBound, "description.membership", description["membership"])
    further = tuple(guarantee_from_dict(held) for held in description["further"])
    return NumbersRelease(
        values=vector("description.values", description["values"], size=len(names)),
        names=names,
        errors=_deviations("errors", description["errors"], len(names)),
        sampling=_deviations("sampling", description["sampling"], len(names)),
        protect=description["protect"],
        guarantees=(success, *further),
        secret=description["secret"],
        query=description["query"],
        method=description["method"],
        notes=texts("description.notes", description["notes"]),
        attack=None if attack is None else MembershipAttack.from_dict(attack),
        limits=_limits(description.get("limits"), len(names)),
        diagnostics=dict(description["diagnostics"]),
        reproducible=description["reproducible"],
        seed=description["seed"],
        created=description["created"],
    )


def _limits(ends: Any, size: int) -> Array | None:
    """Return what numbers can be, (d, 2); older releases do not say."""
    if ends is None:
        return None
    limits = np.array([decoded_ends(pair) for pair in ends]).reshape(-1, 2)
    if len(limits) != size or np.isnan(limits).any() or not (limits[:, 0] <= limits[:, 1]).all():
        raise ValueError("description.limits: expected (lowest, highest) of every number")
    return limits


@overload
def _deviations(name: Literal["errors"], values: Any, size: int) -> Array: ...
@overload
def _deviations(name: Literal["sampling"], values: Any, size: int) -> Array | None: ...
def _deviations(name: str, values: Any, size: int) -> Array | None:
    if name == "sampling":
        if values is None:
            return None
        known = [one is not None for one in values] if isinstance(values, list) else []
        if not all(known):
            filled = [0.0 if one is None else one for one in values]
            return np.where(known, _deviations("errors", filled, size), np.nan)
    deviations = vector(f"description.{name}", values, size=size)
    non_negative(f"description.{name}", deviations.min(initial=0.0))
    return deviations


def remarks(names: tuple[str, ...], values: Array, errors: Array, spread: Array) -> list[str]:
    """Return a line for numbers whose noise exceeds their spread, and for those beyond themselves.

    Args:
        names: d labels.
        values: (d,) the numbers.
        errors: (d,) standard deviations of their noise.
        spread: (d,) their standard deviations over random draws; NaN where not known.
    """
    lines = []
    wide = [name for name, e, s in zip(names, errors, spread, strict=True) if e > s > 0.0]
    if wide:
        lines.append(
            f"noise exceeds the sampling spread of {_some(wide)}: draw more rows, ask for fewer "
            "numbers, or allow a higher success"
        )
    drowned = [name for name, e, v in zip(names, errors, values, strict=True) if e > abs(v) > 0.0]
    if drowned:
        lines.append(
            f"noise exceeds the value of {_some(drowned)}: take it as near zero, or allow a higher "
            "success"
        )
    return lines


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
