"""A release: what report, gate, ledger and commands read of it, and the workflow's own details."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from tacit import codec
from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.reprs import shown
from tacit.codec import HOLDER
from tacit.conversions import success_from_information
from tacit.documents import Envelope
from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
from tacit.guarantees.base import Guarantee, text
from tacit.guarantees.one_line import OneLine, one_line
from tacit.measured import Interval
from tacit.releases.kinds import kind_named
from tacit.releases.numbers import INTERVAL_CONFIDENCE, Numbers
from tacit.releases.proof import PROOF, proof_of
from tacit.releases.provenance import Provenance
from tacit.releases.showing import html, plot, printed, to_frame
from tacit.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENVELOPE = Envelope("tacit.release", 2)
# How the source of a success says that it follows from a bound on the information.
DERIVED = "Eq. 17"
NOTHING = "how often our best attack was right; no bound is proven"
Better: TypeAlias = Literal["higher", "lower"]
Details = TypeVar("Details")


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What one attacker reached on simulated releases: evidence, never a guarantee.

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
        text("name", self.name)
        text("task", self.task)
        integer("trials", self.trials, minimum=1)
        for name, interval in (("success", self.success), ("worst", self.worst)):
            if interval is not None:
                in_interval(f"{name}.low", interval.low, 0.0, 1.0)
                in_interval(f"{name}.high", interval.high, 0.0, 1.0)
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
        text("name", self.name)
        text("unit", self.unit)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Release(Generic[Details]):
    """Everything that may be asked of a release, whatever workflow made it.

    Fields that are marked as the holder's are a function of the secret beside the noise: ``public``
    leaves them out.

    Attributes:
        kind: the workflow, such as ``"statistic"``.
        title: what was released.
        secret: what is protected.
        method: how the noise was chosen.
        guarantees: what is certified, the headline first; none where nothing is.
        details: the workflow's own value.
        created: time of the draw, ISO 8601, UTC.
        reproducible: whether a seed fixed the randomness, which voids every guarantee.
        seed: the integer seed, when one was given.
        withheld: why nothing of it may be published; empty where the public part may.
        numbers: what was released, where that is a list of numbers.
        digests: (what, SHA-256 or other name) of the model, layer, texts or pool it is about.
        assumptions: what must hold beside those that the guarantees name.
        notes: what a reader should know.
        attacks: what was measured against it; the holder's.
        use: what it is still good for; the holder's.
        remarks: what the holder should know; the holder's.
        provenance: command, versions and data, where they were recorded; the holder's.
    """

    kind: str
    title: str
    secret: str
    method: str
    guarantees: tuple[Guarantee, ...]
    details: Details
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    reproducible: bool
    seed: int | None = None
    withheld: str = ""
    numbers: Numbers | None = None
    digests: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    attacks: Annotated[tuple[Attack, ...], HOLDER] = ()
    use: Annotated[tuple[Use, ...], HOLDER] = ()
    remarks: Annotated[tuple[str, ...], HOLDER] = ()
    provenance: Annotated[Provenance | None, HOLDER] = None

    def __post_init__(self) -> None:
        for name in ("title", "secret", "method", "created"):
            text(name, getattr(self, name))
        if self.seed is not None:
            integer("seed", self.seed, minimum=0, maximum=None)
            if not self.reproducible:
                raise ValueError("reproducible: expected true beside a seed, got false")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return printed(self.kind, self.title, self.numbers, self.one_line.text)

    def _repr_html_(self) -> str:
        return html(self.kind, self.title, self.numbers, self.one_line.text)

    @property
    def one_line(self) -> OneLine:
        """What is guaranteed in a line of at most fifteen words, its number first, rounded up.

        What holds for every prior goes before what holds for one; of two bounds on one game the
        smaller is told.

        Example:
            >>> from tacit import Rows, privatize
            >>> made = privatize("mean", [[float(n)] for n in range(40)], Rows(success=0.6))
            >>> made.one_line.text
            '60%: the most often anyone can be right about whether one row was drawn'
        """
        if self.reproducible:
            return OneLine("No guarantee", "whoever can repeat the draw can take the noise off")
        bound = self.headline
        if bound is None or self.leakage is not None:
            told = self.leakage or next(iter(self.guarantees), None)
            return self._measured_line if told is None else one_line(told)
        return one_line(replace(bound, success=self.success(bound)))

    @property
    def _measured_line(self) -> OneLine:
        """What the best attack reached, where nothing is guaranteed."""
        if self.attack is None:
            return OneLine("No guarantee", "nothing is proven of it and no attack was run")
        return OneLine(percent(self.attack.success.value), NOTHING)

    def to_frame(self, kind: Literal["pandas", "polars"] | None = None) -> Any:
        """Return the released numbers as a data frame, a row each.

        Its columns are name, value, half_width (95%, of the noise), low, high, and
        half_width_with_sampling where that may be known.

        Args:
            kind: ``"pandas"`` or ``"polars"``; whichever is installed when left out.

        Raises:
            ValueError: it is not installed, or this is no release of numbers.

        Example:
            >>> from tacit import Rows, privatize
            >>> made = privatize("mean", [[float(n)] for n in range(40)], Rows(success=0.6))
            >>> made.to_frame("pandas").columns.tolist()[:3]
            ['name', 'value', 'half_width']
        """
        return to_frame(self._numbers, kind)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the released numbers with their 95% intervals of the noise.

        Args:
            ax: matplotlib axes; of a figure of its own when left out.

        Raises:
            ValueError: this is no release of numbers.
            ImportError: matplotlib is not installed.

        Example:
            >>> from tacit import Rows, privatize
            >>> made = privatize("mean", [[float(n)] for n in range(40)], Rows(success=0.6))
            >>> len(made.plot().get_yticks())
            1
        """
        return plot(self._numbers, ax)

    @property
    def values(self) -> Array:
        """The released numbers, (d,)."""
        return self._numbers.values

    @property
    def names(self) -> tuple[str, ...]:
        """Their d labels."""
        return self._numbers.names

    @property
    def errors(self) -> Array:
        """Standard deviations (d,) of the noise in them."""
        return self._numbers.errors

    @property
    def sampling(self) -> Array | None:
        """Their standard deviations (d,) over random draws, where they may be known."""
        return self._numbers.sampling

    @property
    def standard_errors(self) -> Array:
        """Of what the rows were drawn from, (d,): see ``Numbers.standard_errors``."""
        return self._numbers.standard_errors

    def intervals(self, coverage: float = INTERVAL_CONFIDENCE, *, sampling: bool = False) -> Array:
        """Return an interval for each number, (d, 2): see ``Numbers.intervals``."""
        return self._numbers.intervals(coverage, sampling=sampling)

    @property
    def _numbers(self) -> Numbers:
        if self.numbers is None:
            raise ValueError(f"numbers: expected a release of numbers, got one of {self.kind!r}")
        return self.numbers

    @property
    def headline(self) -> SuccessBound | None:
        """The bound on an attacker's success at the first task that has one, None where none has.

        Of several bounds on that task the smallest.
        """
        told = [held for held in self.guarantees if isinstance(held, SuccessBound)]
        same = [held for held in told if held.task == told[0].task]
        return min(same, key=self.success, default=None)

    @property
    def membership(self) -> SuccessBound:
        """The first bound on an attacker's success.

        Raises:
            ValueError: none is certified.
        """
        if self.headline is None:
            raise ValueError("guarantees: expected a bound on success among them, got none")
        return self.headline

    @property
    def attack(self) -> Attack | None:
        """The attack that succeeded most often, None where none was run."""
        return max(self.attacks, key=lambda held: held.success.value, default=None)

    @property
    def information(self) -> float | None:
        """The largest bound in nats among the guarantees, None where there is none."""
        bounds = (held.nats for held in self.guarantees if isinstance(held, InformationBound))
        return max(bounds, default=None)

    @property
    def leakage(self) -> MaximalLeakage | None:
        """The first bound for every prior, a factor; None where there is none."""
        return next((held for held in self.guarantees if isinstance(held, MaximalLeakage)), None)

    def success(self, bound: SuccessBound) -> float:
        """Return a stored success, or what the stored information gives where that is more.

        Only a success that was derived from the information is held against it, so that an edited
        one does not pass; counting may say less than any information does.
        """
        if self.information is None or DERIVED not in bound.source:
            return bound.success
        blind = [attack.prior or 0.0 for attack in self.attacks if attack.task == bound.task]
        prior = max([bound.prior, *blind])
        # who is right without the release is right with it
        if prior >= 1.0:
            return 1.0
        return max(bound.success, float(success_from_information(self.information, prior)))

    @property
    def all_assumptions(self) -> tuple[str, ...]:
        """Those of every guarantee and its own, each once."""
        held = [line for guarantee in self.guarantees for line in guarantee.assumptions]
        return tuple(dict.fromkeys([*held, *self.assumptions]))

    def public(self) -> Release[Details]:
        """Return what may be published: the release without what is its holder's alone.

        Raises:
            ValueError: nothing of it may be.
        """
        if self.withheld:
            raise ValueError(f"release: expected one that may be published; {self.withheld}")
        left: Release[Details] = codec.public(self)
        return left

    def published(self) -> dict[str, Any]:
        """Return ``public().to_dict()``, or nothing but why where nothing may be published."""
        return {"withheld": self.withheld} if self.withheld else self.public().to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return what strict JSON holds of it; every number once."""
        content = codec.write(Release, replace(self, details=None))  # type: ignore[arg-type]
        content["details"] = codec.write(kind_named(self.kind).details, self.details)
        # what an independent checker works the guarantees out from, for its kinds of mechanism
        found = proof_of(self)
        if found is not None:
            content[PROOF] = found.to_dict()
        return ENVELOPE.closed(content)

    @staticmethod
    def from_dict(content: Any) -> Release[Any]:
        """Return the release that ``to_dict`` described, checked field by field.

        Raises:
            ValueError: a field is missing, unknown or out of range; the message starts with its
                path, as in ``release.attacks[0].success.low``.
        """
        given = {**ENVELOPE.fields("release", content)}
        # what follows from the rest: held against it by who reads a file
        given.pop(PROOF, None)
        if not isinstance(given.get("kind"), str):
            raise ValueError(f"release.kind: expected text, got {shown(given.get('kind'))}")
        kind = kind_named(given["kind"])
        if "details" not in given:
            raise ValueError("release.details: expected it, got none")
        details = codec.read(kind.details, given["details"], "release.details")
        bare = codec.read(Release, {**given, "details": None}, "release")
        return replace(bare, details=details)
