"""Promises: what is hidden, and how well, as frozen values that stand beside each other."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from tacit._ground.values import Count, Flag, Positive, Share, Spelled, Within, value
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.strength import check_epsilon, gaussian_mu

Ends: TypeAlias = tuple[float, float]
# Found privately, from the table.
AUTO = "auto"
PERSON, ROW = "person", "row"


def rate_of(text: str) -> float:
    """Return a share of the rows, such as 1/3 or 0.3."""
    try:
        return float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(f"expected a share between 0 and 1, such as 1/3, got {text!r}") from None


def bounds_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the bounds of columns, as in ``age=0:120,income=0:250000``, or ``income=auto``."""
    found: dict[str, Any] = {}
    for piece in (piece for text in texts for piece in next(csv.reader([text]), [])):
        name, _, ends = piece.rpartition("=")
        if name.strip() and ends.strip() == AUTO:
            _once(name.strip(), found)
            found[name.strip()] = AUTO
            continue
        low, colon, high = ends.partition(":")
        try:
            pair = float(low), float(high)
        except ValueError:
            pair = None
        if not name.strip() or not colon or pair is None:
            raise ValueError(f"expected NAME=LOW:HIGH,NAME=LOW:HIGH, got {piece!r}")
        _once(name.strip(), found)
        found[name.strip()] = pair
    return found


def levels_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the categories of columns: numbers, as in ``region=1,2,3``, words, or ``auto``."""
    found: dict[str, Any] = {}
    for text in texts:
        name, given, levels = text.partition("=")
        words = next(csv.reader(io.StringIO(levels), skipinitialspace=True), [])
        if not name.strip() or not given or not any(word.strip() for word in words):
            raise ValueError(f"expected NAME=LEVEL,LEVEL, got {text!r}")
        _once(name.strip(), found)
        if levels.strip() == AUTO:
            found[name.strip()] = AUTO
            continue
        try:
            found[name.strip()] = [float(word) for word in words]
        except ValueError:
            found[name.strip()] = [word.strip() for word in words]
    return found


def _once(name: str, found: Mapping[str, Any]) -> None:
    if name in found:
        raise ValueError(f"the column {name!r} is named twice")


Rate: TypeAlias = Annotated[float, Within(0, 1), Spelled("1/K", rate_of)]
Bounds: TypeAlias = Annotated[
    Mapping[str, Ends] | tuple[Ends, ...], Spelled("NAME=LOW:HIGH,…", bounds_of, repeated=True)
]
LevelsOf: TypeAlias = Annotated[
    Mapping[str, tuple[str | float, ...]], Spelled("NAME=LEVEL,…", levels_of, repeated=True)
]
RowMethod: TypeAlias = Literal["auto", "sums", "swaps", "family", "cheaper"]
DrawMethod: TypeAlias = Literal["auto", "true-information", "exact", "linear", "diagonal"]


def clip_of(text: str) -> float | str:
    """Return how far one person may move the numbers: as so many rows, or ``auto``."""
    if text.strip() == AUTO:
        return AUTO
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number of rows or {AUTO}, got {text!r}") from None


Clip: TypeAlias = Annotated[Any, Spelled("C|auto", clip_of)]


def _sought(levels: Any) -> tuple[str, ...]:
    """Return the columns whose categories are found from the table."""
    given = levels if isinstance(levels, Mapping) else {}
    # by its type first: an array has no one answer to whether it is a word
    return tuple(name for name, held in given.items() if isinstance(held, str) and held == AUTO)


class Promise(Protocol):
    """What is hidden, and how well: a frozen value made by ``value``.

    Attributes:
        word: by which a flag chooses it, and a session names it.
    """

    word: ClassVar[str]


def check_strength(promise: Any, prior: float) -> None:
    """Refuse none and several ways of saying how strong a promise is, and a success of a guess.

    Args:
        promise: with the fields success, mu, epsilon, delta and rho.
        prior: probability that what is hidden is so.

    Raises:
        ValueError: the message names the field.
    """
    # ε alone is kept by whole noise on what clipped persons add
    pure = isinstance(promise, Table) and promise.person is not None and promise.delta is None
    if (promise.epsilon is None) != (promise.delta is None) and not pure:
        missing, given = ("delta", "epsilon") if promise.delta is None else ("epsilon", "delta")
        size = ", well below one over the number of records" if missing == "delta" else ""
        raise ValueError(f"{missing}: expected a value beside {given}{size}, got none")
    ways = ("success", "mu", "epsilon", "rho")
    asked = [way for way in ways if getattr(promise, way) is not None]
    if len(asked) != 1:
        raise ValueError(
            f"success: expected exactly one of success, mu, epsilon with delta, and rho, got "
            f"{' and '.join(asked) or 'none'}"
        )
    blind = max(prior, 1.0 - prior)
    if promise.success is not None and promise.success <= blind:
        raise ValueError(
            f"success: expected more than {blind:.4g}, which guessing blind is right, got "
            f"{promise.success!r}"
        )


def mu_of(promise: Any, prior: float) -> float:
    """Return the largest μ that keeps a promise whose strength was checked, rounded down."""
    return gaussian_mu(
        success=promise.success,
        mu=promise.mu,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=promise.rho,
        prior=prior,
    )


def check_unit(promise: Any) -> None:
    """Refuse what is said of persons where none are named, and a clip that is none.

    Raises:
        ValueError: the message names the field.
    """
    for name in ("unit", "clip", "max_rows", "max_groups"):
        if promise.person is None and getattr(promise, name, None) is not None:
            raise ValueError(f"{name}: expected person, a column, beside it, got none")
    if promise.person is not None and not promise.person.strip():
        raise ValueError("person: expected the name of a column, got an empty text")
    check_word(promise.unit)
    clip = getattr(promise, "clip", None)
    if clip is not None and clip != AUTO:
        object.__setattr__(promise, "clip", CLIPS.check("clip", promise.clip, float))


def check_word(unit: str | None) -> None:
    """Refuse as the word for what is hidden what is none.

    Raises:
        ValueError: the message names the field.
    """
    if unit is not None and not UNIT.fullmatch(unit):
        raise ValueError("unit: expected a word of at most 40 letters, such as person, got another")


# A word, or several.
UNIT = re.compile(r"(?=.{1,40}$)[^\W\d_]+([ -][^\W\d_]+)*")
LONGEST = 2.0**14
CLIPS = Within(1, LONGEST, "[]")


@value
class Rows:
    """Whether any one row was drawn is hidden, even from someone who knows every other row.

    Args:
        success: Largest chance of guessing right whether a row was drawn.
        mu: μ of Gaussian differential privacy instead.
        epsilon: ε, with delta.
        delta: δ, with epsilon.
        rho: ρ of zero-concentrated differential privacy instead.
        rate: Share of the rows that is drawn: one row of every group of k = 1/rate.
        pairs: How the pool (data set) is paired: nearest, random, column:NAME, or in Python a
            Pairing or (P, k) rows of the pool.
        levels: Categories of columns, declared: numbers, or words of a column of texts.
        person: Column that says whose a row is: all rows of one person are drawn together, and a
            pair is two persons.
        unit: Word for a person in what is certified, such as household.
        method: How the noise is found. auto takes sums where the query adds up, and expected swaps
            elsewhere. swaps bounds expected swaps under fresh coins, family the exact posterior
            over a declared family. cheaper takes whichever of the two expects less noise.
        confidence: Confidence of the guarantee where it rests on simulated releases.

    Example:
        >>> Rows(success=0.6)
        Rows(success=0.6)
        >>> Rows(success=0.4)
        Traceback (most recent call last):
        ValueError: success: expected more than 0.5, which guessing blind is right, got 0.4
    """

    word: ClassVar[str] = "rows"

    success: Share | None = None
    mu: Positive | None = None
    epsilon: Positive | None = None
    delta: Share | None = None
    rho: Positive | None = None
    rate: Annotated[
        float, Within(0, 0.5, "(]"), Spelled("1/K", rate_of), Flag("--sampling-rate")
    ] = 0.5
    pairs: Annotated[Any, Spelled("nearest|random|column:NAME", str)] = None
    levels: LevelsOf | None = None
    person: str | None = None
    unit: str | None = None
    method: RowMethod = "auto"
    confidence: Share = 0.999

    def _together(self) -> None:
        check_strength(self, self.rate)
        check_unit(self)
        if found := _sought(self.levels):
            raise ValueError(
                f"levels: expected categories of {found[0]!r}, as they are found for a promise "
                f"about the table alone (Table, --protect table), got {AUTO}"
            )

    @property
    def secret_unit(self) -> str:
        """The word for what is drawn, or is not."""
        return ROW if self.person is None else (self.unit or PERSON)

    def largest_mu(self) -> float:
        """Return the largest μ that keeps it, rounded down."""
        return mu_of(self, self.rate)


@value
class Table:
    """That a record is in the table at all is hidden: differential privacy.

    Args:
        success: Largest chance of guessing right whether a record is in the table.
        mu: μ of Gaussian differential privacy instead.
        epsilon: ε, with delta.
        delta: δ, with epsilon.
        rho: ρ of zero-concentrated differential privacy instead.
        bounds: Lowest and highest of every column that is read, by its name, or in Python (p, 2),
            declared without looking at the table. A number outside counts as the nearer bound. With
            a person, auto finds the bounds of a column from the table, for a tenth of the budget.
        levels: Categories of columns, declared: numbers, or words of a column of texts. With a
            person, auto finds the categories that enough persons have, for a share of ε and of δ.
        adjacency: Which tables are neighbours: one record more, or one replaced.
        person: Column that says whose a row is: all rows of one person are hidden together, and
            with ε alone the noise is discrete Laplace.
        unit: Word for a person in what is certified, such as household.
        clip: Largest amount that one person may move the numbers, counted in rows at the bounds.
            auto finds it from the table for a twentieth of the budget.
        max_rows: Largest number of one person's rows that are read. The choice of these rows
            depends on that person's rows alone.
        max_groups: Largest number of groups in which one person's rows are read. The choice of
            groups depends on that person's rows alone.
        consistent: With a person: whether counts of several tables are made whole numbers,
            non-negative and in agreement, and sums in agreement, from the released numbers alone.

    Example:
        >>> Table(epsilon=1.0, delta=1e-6).adjacency.sentence()
        'add or remove one record'
        >>> Table(epsilon=1.0, person="customer", unit="household").secret_unit
        'household'
    """

    word: ClassVar[str] = "table"

    success: Share | None = None
    mu: Positive | None = None
    epsilon: Positive | None = None
    delta: Share | None = None
    rho: Positive | None = None
    bounds: Bounds | None = None
    levels: LevelsOf | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    person: str | None = None
    unit: str | None = None
    clip: Clip | None = None
    max_rows: Count | None = None
    max_groups: Count | None = None
    consistent: bool = False

    def _together(self) -> None:
        check_strength(self, 0.5)
        check_unit(self)
        if self.pure:
            check_epsilon(self.epsilon)
        if self.consistent and self.person is None:
            raise ValueError("consistent: expected a person whose rows are hidden, got none")
        if self.sought and (self.person is None or self.epsilon is None or self.delta is None):
            raise ValueError(
                f"levels: expected categories of {self.sought[0]!r}, as they are found for persons "
                f"(person, --person) under epsilon with delta alone, got {AUTO}"
            )

    @property
    def sought(self) -> tuple[str, ...]:
        """Columns whose categories are found from the table."""
        return _sought(self.levels)

    @property
    def declared_clip(self) -> Any:
        """``clip``, no longer than as many rows as are read, which move nothing farther."""
        if self.max_rows is None or self.clip == AUTO:
            return self.clip
        return min(float(self.max_rows), LONGEST if self.clip is None else self.clip)

    @property
    def declared_levels(self) -> Any:
        """The categories that were declared."""
        if not self.sought:
            return self.levels
        assert self.levels is not None, "some are found"
        return {k: held for k, held in self.levels.items() if k not in self.sought} or None

    @property
    def secret_unit(self) -> str:
        """The word for what is added, removed or replaced."""
        return "record" if self.person is None else (self.unit or PERSON)

    @property
    def pure(self) -> bool:
        """Whether ε is asked for without a δ."""
        return self.epsilon is not None and self.delta is None

    def largest_mu(self) -> float:
        """Return the largest μ that keeps it, rounded down."""
        return mu_of(self, 0.5)


@value
class Draw:
    """Everything about what was drawn is hidden, up to so many nats.

    Args:
        nats: Largest information about the draw.
        success: Instead of a budget in nats: the largest chance of guessing right whether a row was
            drawn, or which input it was.
        rate: Share of the rows that is drawn.
        person: Column that says whose a row is: all rows of one person are drawn together.
        unit: Word for a person in what is certified, such as household.
        method: How the noise is found: under the exact information, or under that of a Gaussian
            with a full, linearised or diagonal covariance.
        confidence: Confidence of the guarantee where it rests on simulated releases.

    Example:
        >>> Draw(nats=0.1)
        Draw(nats=0.1)
    """

    word: ClassVar[str] = "draw"

    nats: Annotated[Positive | None, Flag("--mi-budget")] = None
    success: Share | None = None
    rate: Rate = 0.5
    person: str | None = None
    unit: str | None = None
    method: DrawMethod = "auto"
    confidence: Share = 0.999

    def _together(self) -> None:
        if (self.nats is None) == (self.success is None):
            found = "none" if self.nats is None else "both"
            raise ValueError(f"nats: expected exactly one of nats and success, got {found}")
        check_unit(self)

    @property
    def secret_unit(self) -> str:
        """The word for what is drawn, or is not."""
        return ROW if self.person is None else (self.unit or PERSON)


@value
class Effort:
    """How much work goes in: a guarantee is true whatever is chosen here.

    Args:
        simulations: Draws on which a query that does not add up is certified.
        trials: Simulated releases that are attacked; 0 for no attack.
        workers: Processes that simulate; one per core when left out.
        progress: Whether to show a bar on a terminal.

    Example:
        >>> Effort(trials=0)
        Effort(trials=0)
    """

    simulations: Annotated[int, Within(2, ends="[)")] = 2000
    trials: Annotated[int, Within(0, ends="[)")] = 2000
    workers: Count | None = None
    progress: bool = True

    def _together(self) -> None:
        if 0 < self.trials < 4:
            raise ValueError(f"trials: expected 0, or 4 and more, got {self.trials}")


def check_promise(promise: Any, *allowed: type[Any]) -> None:
    """Refuse what is no promise, or none of those that a workflow keeps.

    Raises:
        ValueError: the message names them.
    """
    if not isinstance(promise, allowed):
        names = ", ".join(kind.__name__ for kind in allowed)
        raise ValueError(f"promise: expected one of {names}, got {type(promise).__name__}")


def check_effort(effort: Any) -> None:
    """Refuse what is no effort.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(effort, Effort):
        raise ValueError(f"effort: expected an Effort, got {type(effort).__name__}")
