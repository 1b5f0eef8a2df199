"""Which promise is asked for, how strong, and what it needs: flags checked one by one."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._ground.checks import integer
from tacit.cli.tables import listed

if TYPE_CHECKING:
    from tacit.statistics import Table

ROWS, DRAW, TABLE = "rows", "draw", "table"
STRENGTHS = ("--success", "--mu", "--epsilon", "--delta", "--rho")
# What each promise takes of the flags that not all of them have.
TAKEN = {
    ROWS: {*STRENGTHS, "--pairs", "--rate", "--method", "--simulations", "--levels"},
    DRAW: {"--success", "--mi-budget", "--rate", "--method", "--simulations"},
    TABLE: {*STRENGTHS, "--bounds", "--levels", "--adjacency"},
}
INSTEAD = {
    ROWS: "it hides whether a row was drawn: --success, --mu, --epsilon with --delta, or --rho "
    "bound it",
    DRAW: "it hides the whole draw: --success or --mi-budget bound it",
    TABLE: "it hides that a row is in the table: --success, --mu, --epsilon with --delta, or --rho "
    "bound it, and --bounds, --levels and --adjacency say what a row may be",
}
COLUMN = "column:"

Protect = Annotated[
    str,
    typer.Option(
        help="What is hidden: rows (whether any one row was drawn, even from who knows all "
        "others), table (that a row is in the table at all), or draw (everything about the draw, "
        "in nats)."
    ),
]
Success = Annotated[
    float | None, typer.Option(help="Largest success of guessing membership allowed.")
]
Query = Annotated[
    str,
    typer.Option(
        help="count, sum, mean, std, variance, covariance, correlation, second-moments, median, "
        "quantiles[:0.25,0.5], least-squares, principal-components[:2], histogram:COLUMN[:EDGES], "
        "two-way:A,B, cumulative:COLUMN:THRESHOLDS, each with ' by COLUMN' behind it; logistic, "
        "kmeans:K; several joined by +; or module:function."
    ),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=LOW:HIGH,…",
        help="Declared without looking at the table: numbers outside are taken as the bounds.",
    ),
]
LevelsOf = Annotated[
    list[str] | None,
    typer.Option(
        "--levels",
        metavar="NAME=LEVEL,…",
        help="Categories of a column, declared: numbers, or words of a column of texts. May be "
        "repeated.",
    ),
]
Adjacency = Annotated[
    str | None,
    typer.Option(help="With table: add-remove one row (when left out), or replace one."),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The promise and its strength, as the command line has them."""

    protect: Protect = ROWS
    success: Success = None
    mu: Annotated[float | None, typer.Option(help="μ of Gaussian differential privacy.")] = None
    epsilon: Annotated[float | None, typer.Option(help="ε, with --delta.")] = None
    delta: Annotated[float | None, typer.Option(help="δ, with --epsilon.")] = None
    rho: Annotated[
        float | None, typer.Option(help="ρ of zero-concentrated differential privacy.")
    ] = None
    mi_budget: Annotated[
        float | None, typer.Option(help="With draw: largest information allowed, in nats.")
    ] = None
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="nearest|random|column:NAME", help="With rows: how the pool is paired."
        ),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="1/K", help="Share of the rows that is drawn, 1/2 when left out; of draw any."
        ),
    ] = None
    bounds: Bounds = None
    levels: LevelsOf = None
    adjacency: Adjacency = None
    method: Annotated[
        str | None,
        typer.Option(
            help="How the noise is found: with rows auto, sums, swaps or family; with draw auto, "
            "exact, linear or diagonal."
        ),
    ] = None
    simulations: Annotated[
        int | None, typer.Option(help="Draws to simulate, 2,000 when left out.")
    ] = None

    def __post_init__(self) -> None:
        if self.protect not in TAKEN:
            raise ValueError(f"--protect: expected rows, table or draw, got {self.protect!r}")
        for flag, value in self._given().items():
            if value is not None and flag not in TAKEN[self.protect]:
                raise ValueError(
                    f"{flag}: --protect {self.protect} has none; {INSTEAD[self.protect]}"
                )

        if self.pairs is not None and self.paired_by is not None and not self.paired_by.strip():
            raise ValueError(f"--pairs: expected column:NAME, got {self.pairs!r}")
        if (self.epsilon is None) != (self.delta is None):
            given, other = (
                ("--epsilon", "--delta") if self.delta is None else ("--delta", "--epsilon")
            )
            raise ValueError(f"{given}: expected {other} beside it, got none")
        if self.simulations is not None:
            integer("--simulations", self.simulations, minimum=2)

    def _given(self) -> dict[str, Any]:
        return {
            f"--{name.replace('_', '-')}": value or (None if value == [] else value)
            for name, value in vars(self).items()
            if name != "protect"
        }

    @property
    def paired_by(self) -> str | None:
        """The column that the pool is paired along, None for none."""
        if self.pairs is None or not self.pairs.startswith(COLUMN):
            return None
        return self.pairs.removeprefix(COLUMN)

    def options(self) -> dict[str, Any]:
        """Return what ``prepare`` takes for it, but for the pairs."""
        found: dict[str, Any] = {
            "protect": self.protect,
            "bounds": bounds_of(self.bounds),
            "levels": levels_of(self.levels),
        }
        given = {
            "success": self.success,
            "mu": self.mu,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "mi_budget": self.mi_budget,
            "adjacency": self.adjacency,
            "method": self.method,
            "simulations": self.simulations,
            "sampling_rate": rate_of(self.rate),
        }
        return found | {name: value for name, value in given.items() if value is not None}


def rate_of(text: str | None) -> float | None:
    """Return a share of the rows, such as 1/3 or 0.3."""
    if text is None:
        return None
    try:
        rate = float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError, OverflowError):
        rate = 0.0
    if not 0.0 < rate < 1.0:
        raise ValueError(f"--rate: expected a share between 0 and 1, such as 1/3, got {text!r}")
    return rate


def bounds_of(text: str | None) -> dict[str, tuple[float, float]] | None:
    """Return the bounds of columns, as in ``age=0:120,income=0:250000``."""
    if text is None:
        return None
    found: dict[str, tuple[float, float]] = {}
    for piece in next(csv.reader([text]), []):
        name, _, ends = piece.rpartition("=")
        low, colon, high = ends.partition(":")
        try:
            pair = float(low), float(high)
        except ValueError:
            pair = None
        if not name.strip() or not colon or pair is None:
            raise ValueError(f"--bounds: expected NAME=LOW:HIGH,NAME=LOW:HIGH, got {text!r}")
        _once("--bounds", name.strip(), found)
        found[name.strip()] = pair
    return found


def levels_of(texts: Sequence[str] | None) -> dict[str, list[float] | list[str]] | None:
    """Return the categories of columns: numbers, as in ``region=1,2,3``, or words."""
    if not texts:
        return None
    found: dict[str, list[float] | list[str]] = {}
    for text in texts:
        name, given, levels = text.partition("=")
        if not name.strip() or not given or not levels.strip():
            raise ValueError(f"--levels: expected NAME=LEVEL,LEVEL, got {text!r}")
        words = listed("--levels", levels)
        _once("--levels", name.strip(), found)
        try:
            found[name.strip()] = [float(word) for word in words]
        except ValueError:
            found[name.strip()] = words
    return found


def coded_by_levels(levels: Any, categories: Sequence[str] | None) -> list[str] | None:
    """Return the columns to read as codes: of --category, and those whose levels are words."""
    found = list(categories or ())
    named = {one.partition("=")[0].strip() for one in found}
    for name, held in (levels or {}).items():
        if isinstance(held[0], str):
            if name in named:
                raise ValueError(f"--levels: the column {name!r} is named by --category too")
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(held)
            found.append(f"{name}={line.getvalue()}")
    return found or None


def columns_of(
    columns: str | None, query: str, target: str | None, paired_by: str | None = None
) -> list[str] | None:
    """Return the columns to read: those named, else those that the query names; None for all."""
    from tacit.statistics.sums.query import columns_read
    from tacit.statistics.tables.header import NO_COLUMN

    if columns is not None:
        names = listed("--columns", columns)
        wanted: Sequence[str | None] = (target, paired_by)
    else:
        read = columns_read(query, target)
        if read is None:
            return None
        names, wanted = list(read), (paired_by,)
        if not names and paired_by is None:
            return [*NO_COLUMN]
    return [*names, *dict.fromkeys(name for name in wanted if name and name not in names)]


def _once(flag: str, name: str, found: dict[str, Any]) -> None:
    if name in found:
        raise ValueError(f"{flag}: the column {name!r} is named twice")


def found_beside(query: str) -> None:
    """Let ``module:function`` be found beside the caller."""
    if ":" in query:
        sys.path.insert(0, os.getcwd())


def check_dropping(protect: str, missing: str, adjacency: str | None) -> None:
    """Refuse to drop rows where the number of rows has to be the same for every neighbour."""
    if protect == TABLE and missing in ("drop", "drop-unreadable") and adjacency == "replace":
        raise ValueError(
            f"--missing: {missing} needs --adjacency add-remove, as a row that is replaced by one "
            "with nothing in a column would be dropped and change the number of rows, which "
            "replace takes as public"
        )


def check_numbers(name: str | None, categories: Sequence[str] | None, error: ValueError) -> None:
    """Say what to do where a column of texts was to pair the rows."""
    named = {one.partition("=")[0].strip() for one in categories or ()}
    if name is not None and name not in named and f"column {name!r}" in str(error):
        raise ValueError(f"{error}: --category {name}") from None


def unpaired(table: Table, name: str) -> tuple[Table, Any]:
    """Return the table without the column that pairs are formed along, and its values."""
    from tacit.statistics.tables.words import observed_words

    place = table.columns.index(name)
    kept = [column for column in range(len(table.columns)) if column != place]
    rest = replace(
        table,
        columns=tuple(table.columns[column] for column in kept),
        rows=table.rows[:, kept].copy(),
        categories={key: kind for key, kind in table.categories.items() if key != name},
        notes=tuple(note for note in table.notes if note != observed_words(name)),
    )
    return rest, table.rows[:, place]
