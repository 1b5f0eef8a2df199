"""The form of a release: what report, gate, ledger and commands read, and nothing else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias

from tacit._ground.checks import as_float, choice, in_interval, integer, non_negative
from tacit._ground.reprs import shown
from tacit.conversions import success_from_information
from tacit.documents import decoded, encoded
from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound, guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.measured import Interval
from tacit.releases.provenance import check_provenance

FORM_VERSION = 1
# How the source of a success says that it follows from a bound on the information.
DERIVED = "Eq. 17"
# Of every interval beside a released number, and its quantile of the normal law.
INTERVAL_CONFIDENCE, NORMAL_95 = 0.95, 1.959963984540054
Better: TypeAlias = Literal["higher", "lower"]


@dataclass(frozen=True, kw_only=True)
class Number:
    """One released number and how far it may be off.

    Attributes:
        name: its label.
        value: what was released.
        error: standard deviation of the noise in it.
        sampling: its standard deviation over random draws of as many rows from what the rows came
            from; None where that may not be known.
        limits: the (lowest, highest) that it can be, at which intervals end.

    Example:
        >>> [round(end, 2) for end in Number(name="mean", value=4.0, error=0.1).interval()]
        [3.8, 4.2]
    """

    name: str
    value: float
    error: float
    sampling: float | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        _text("name", self.name)
        low, high = (as_float(f"limits of {self.name}", end) for end in self.limits)
        if not low <= high:
            raise ValueError(f"limits: expected lowest <= highest of {self.name}, got others")
        object.__setattr__(self, "limits", (low, high))
        object.__setattr__(self, "value", as_float(f"number {self.name}", self.value))
        object.__setattr__(self, "error", non_negative("error", self.error, allow_inf=True))
        if self.sampling is not None:
            object.__setattr__(self, "sampling", non_negative("sampling", self.sampling))

    def half_width(self, *, sampling: bool = False) -> float:
        """Return half of the 95% interval, of the noise alone or with the sampling error."""
        if not sampling:
            return NORMAL_95 * self.error
        if self.sampling is None:
            raise ValueError("sampling: expected a number whose sampling error is known")
        return NORMAL_95 * math.hypot(self.error, self.sampling)

    def interval(self, *, sampling: bool = False) -> tuple[float, float]:
        """Return the 95% interval by the normal law, ``value ± 1.96 sd``, within the limits.

        Args:
            sampling: whether it speaks of what the rows came from; else of those that were drawn.
        """
        half, (lowest, highest) = self.half_width(sampling=sampling), self.limits
        low, high = self.value - half, self.value + half
        return min(max(low, lowest), highest), max(min(high, highest), lowest)

    def intervals(self) -> dict[str, Any]:
        """Return both intervals, JSON-able; ``with_sampling`` is None where it is not known."""
        return {
            "name": self.name,
            "confidence": INTERVAL_CONFIDENCE,
            "noise": encoded_ends(self.interval()),
            "with_sampling": None
            if self.sampling is None
            else encoded_ends(self.interval(sampling=True)),
        }


def decoded_ends(ends: Any) -> tuple[float, float]:
    """Return two ends that ``encoded_ends`` wrote."""
    low, high = (float(decoded(end)) for end in ends)
    return low, high


def encoded_ends(ends: tuple[float, float]) -> list[Any]:
    """Return two ends as strict JSON has them."""
    return [encoded(end) for end in ends]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What one attacker reached on simulated releases.

    Attributes:
        name: the attacker.
        task: what it guesses, as in "guesses <task> right".
        success: share of right guesses, with its interval.
        prior: success of guessing blind; None where it is not known.
        trials: simulated releases.
        worst: the same for the record it succeeds on most; None where it was not measured.
    """

    name: str
    task: str
    success: Interval
    prior: float | None
    trials: int
    worst: Interval | None = None

    def __post_init__(self) -> None:
        _text("name", self.name)
        _text("task", self.task)
        integer("trials", self.trials, minimum=1)
        for interval in (self.success, self.worst):
            if interval is not None:
                in_interval("success", interval.low, 0.0, 1.0)
                in_interval("success", interval.high, 0.0, 1.0)
        if self.prior is not None:
            in_interval("prior", self.prior, 0.0, 1.0)

    @property
    def low(self) -> float:
        """What it surely reached: the highest lower end of its intervals."""
        return self.success.low if self.worst is None else max(self.success.low, self.worst.low)


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the release is still good for, such as agreement, accuracy or KL in nats."""

    name: str
    unit: str
    better: Better
    measured: Interval

    def __post_init__(self) -> None:
        _text("name", self.name)
        _text("unit", self.unit)
        choice("better", self.better, ("higher", "lower"))

    @property
    def bad_end(self) -> float:
        """The end of the interval that is worse."""
        return self.measured.low if self.better == "higher" else self.measured.high


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """Everything that may be asked of a release, whatever workflow made it.

    Attributes:
        kind: the workflow, such as ``"statistic"``.
        title: what was released.
        secret: what is protected.
        method: how the noise was chosen.
        numbers: what was released, where that is a list of numbers.
        guarantees: what is certified, the headline first; none where nothing is recommended.
        attacks: what was measured against it.
        use: what it is still good for.
        digests: (what, SHA-256 or other name) of the model, layer, texts or pool it is about.
        assumptions: what must hold beside those that the guarantees name.
        notes: what a reader should know.
        publishable: names of the fields that may be published.
        reproducible: whether a seed fixed the randomness, which voids every guarantee.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.
        provenance: command, versions and data, where they were recorded.
    """

    kind: str
    title: str
    secret: str
    method: str
    guarantees: tuple[Guarantee, ...]
    created: str
    reproducible: bool
    numbers: tuple[Number, ...] = ()
    attacks: tuple[Attack, ...] = ()
    use: tuple[Use, ...] = ()
    digests: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    publishable: tuple[str, ...] = ()
    seed: int | None = None
    provenance: Mapping[str, Any] | None = None

    @property
    def information(self) -> float | None:
        """The largest bound in nats among the guarantees, None where there is none."""
        return max(
            (held.nats for held in self.guarantees if isinstance(held, InformationBound)),
            default=None,
        )

    @property
    def leakage(self) -> MaximalLeakage | None:
        """The first bound for every prior, a factor; None where there is none."""
        return next((held for held in self.guarantees if isinstance(held, MaximalLeakage)), None)

    @property
    def headline(self) -> SuccessBound | None:
        """The first bound on an attacker's success, None where there is none."""
        return next((held for held in self.guarantees if isinstance(held, SuccessBound)), None)

    def success(self, bound: SuccessBound) -> float:
        """Return a stored success, or what the stored information gives where that is more.

        Only a success that was derived from the information is held against it, so that an edited
        one does not pass; counting may say less than any information does.
        """
        if self.information is None or DERIVED not in bound.source:
            return bound.success
        blind = [attack.prior or 0.0 for attack in self.attacks if attack.task == bound.task]
        prior = max(bound.prior, *blind) if blind else bound.prior
        return max(bound.success, float(success_from_information(self.information, prior)))

    @property
    def all_assumptions(self) -> tuple[str, ...]:
        """Those of every guarantee and its own, each once."""
        held = [line for guarantee in self.guarantees for line in guarantee.assumptions]
        return tuple(dict.fromkeys([*held, *self.assumptions]))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``from_dict`` reads back."""
        return {
            "version": FORM_VERSION,
            **{field.name: _plain(getattr(self, field.name)) for field in fields(self)},
        }

    @staticmethod
    def from_dict(content: Any) -> Form:
        """Return the form that ``to_dict`` described, checked field by field.

        Raises:
            ValueError: a field is missing, unknown or out of range; the message names it.
        """
        return _read(content)


class Release(ABC):
    """What a workflow returns: its own values, and the form that everything else reads."""

    FORMAT: ClassVar[str]

    @property
    @abstractmethod
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON, with the form under ``"form"``."""

    def published(self) -> dict[str, Any]:
        """Return the fields of ``to_dict`` that may be published."""
        content = self.to_dict()
        return {name: content[name] for name in self.form.publishable}


def stated(form: Form, provenance: Mapping[str, Any]) -> Form:
    """Return the form with where the release comes from."""
    return replace(form, provenance=dict(provenance))


def _plain(value: Any) -> Any:
    if isinstance(value, Guarantee):
        return value.to_dict()
    if isinstance(value, (Number, Attack, Use)):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Interval):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return dict(value) if isinstance(value, Mapping) else encoded(value)


def _read(content: Any) -> Form:
    if not isinstance(content, Mapping):
        raise ValueError(f"release.form: expected a mapping, got {type(content).__name__}")
    if isinstance(content.get("version"), bool) or content.get("version") != FORM_VERSION:
        found = shown(content.get("version"))
        raise ValueError(f"release.form: expected version {FORM_VERSION}, got {found}")
    values = {name: value for name, value in content.items() if name != "version"}
    known = {field.name for field in fields(Form)}
    if set(values) != known:
        odd = shown(sorted(map(str, set(values) ^ known)))
        raise ValueError(f"release.form: expected {len(known)} fields, missing or unknown: {odd}")
    for name in ("kind", "title", "secret", "method", "created"):
        _text(f"release.form.{name}", values[name])
    if not isinstance(values["reproducible"], bool):
        found = shown(values["reproducible"])
        raise ValueError(f"release.form.reproducible: expected true or false, got {found}")
    for name in LISTS:
        if not isinstance(values[name], (list, tuple)):
            raise ValueError(f"release.form.{name}: expected a list, got {shown(values[name])}")
    for name in ("assumptions", "notes", "publishable"):
        values[name] = tuple(_text(f"release.form.{name}", line) for line in values[name])
    values["numbers"] = _entries(Number, "numbers", values["numbers"])
    values["guarantees"] = tuple(guarantee_from_dict(held) for held in values["guarantees"])
    values["attacks"] = _entries(Attack, "attacks", values["attacks"])
    values["use"] = _entries(Use, "use", values["use"])
    values["digests"] = tuple(_digest(entry) for entry in values["digests"])
    seed, provenance = values["seed"], values["provenance"]
    if seed is not None:
        values["seed"] = integer("release.form.seed", seed, minimum=0, maximum=None)
        if not values["reproducible"]:
            raise ValueError("release.form.reproducible: expected true beside a seed, got false")
    if provenance is not None:
        check_provenance("release.form.provenance", provenance)
    return Form(**values)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {shown(value)}")
    return value


def _digest(entry: Any) -> tuple[str, str]:
    name = "release.form.digests"
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:
        raise ValueError(f"{name}: expected pairs of what and its digest, got {shown(entry)}")
    return _text(name, entry[0]), _text(name, entry[1])


LISTS = (
    "numbers", "guarantees", "attacks", "use", "digests", "assumptions", "notes", "publishable",
)  # fmt: skip
INTERVALS = ("success", "worst", "measured")


def _entries(kind: type[Any], name: str, entries: Sequence[Any]) -> tuple[Any, ...]:
    found = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise ValueError(f"release.form.{name}: expected mappings, got {type(entry).__name__}")
        values = {
            key: Interval.from_dict(f"release.form.{name}.{key}", value)
            if key in INTERVALS and (value is not None or key != "worst")
            else decoded(value)
            for key, value in entry.items()
        }
        try:
            found.append(kind(**values))
        except TypeError:
            given = shown(sorted(map(str, entry)))
            raise ValueError(
                f"release.form.{name}: expected the fields of {kind.__name__}, got {given}"
            ) from None
        except ValueError as error:
            raise ValueError(f"release.form.{name}: {error}") from None
    return tuple(found)
