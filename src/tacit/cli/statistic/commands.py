"""From a table to a released statistic, its page, its certificate and its ledger entry."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import line, tell_title
from tacit.cli.hooks import Commands
from tacit.cli.options import Chosen, grouped
from tacit.cli.publishing import (
    NO_ROW,
    Attacking,
    Destination,
    Source,
    content_fingerprint,
    publish,
    tell_table,
)
from tacit.cli.statistic.asking import QueryFlags, find_beside
from tacit.cli.tables import Data, PoolFlags, split_names
from tacit.releases.promises import Effort, Promise, Rows, Table
from tacit.statistics.promises import PROMISES, declared_levels, hides_table, keeping_of

if TYPE_CHECKING:
    from tacit.releases import Release
    from tacit.statistics import DataTable
    from tacit.statistics.pools import Pool

# No file that is a table is called so, nor is any command.
UNNAMED = "/"
COLUMN = "column:"
# Of rows with nothing that can be read in a column, where the table is hidden.
LENIENT, BOUNDED = "drop-unreadable", "bounded"


class WithDefault(Commands):
    """Commands by name, and ``UNNAMED`` for arguments that do not begin with one of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front that is not named."""
        named = bool(args) and args[0] in self.list_commands(ctx)
        return super().parse_args(ctx, args if named else [UNNAMED, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, which has no name in its usage where it was not named."""
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == UNNAMED else name), command, rest

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names that may be given."""
        return [name for name in super().list_commands(ctx) if name != UNNAMED]


app = typer.Typer(
    cls=WithDefault,
    help="Release a statistic of a table, or compare the promises.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(UNNAMED)
@grouped
def statistic(
    *,
    data: Data = None,
    asked: QueryFlags,
    reading: PoolFlags,
    promise: Annotated[Promise, Chosen("--protect", "rows", "What is hidden.", (*PROMISES,))],
    effort: Effort,
    drawing: Attacking,
) -> None:
    """Release a statistic of a table with designed noise, a guarantee and a measured attack.

    `tacit statistic compare TABLE` sets the three promises side by side and releases nothing; a
    file of that name is ./compare.
    """
    from tacit.ledger.notions import notion_of
    from tacit.statistics.workflow import prepare_request, request_statistic

    pool: Any = _pool_in_file(data, asked, reading, promise, drawing)
    told = None
    if pool is None:
        pool, promise, told = read_pool(data, asked.query, asked.target, reading, promise)
    source = _source_of_file(str(data), pool, drawing) if told is None else Source.of(told, data)
    label = source.name if told is None else pool.label
    quiet = not drawing.attack or drawing.dry_run
    request = request_statistic(
        asked.query,
        pool,
        promise,
        replace(effort, trials=0) if quiet else effort,
        target=asked.target,
        cost=asked.cost,
        rng=drawing.seed,
    )

    def prepare() -> Any:
        prepared = prepare_request(request)
        return replace(prepared, description=f"{prepared.description} of {label}")

    publish(
        prepare,
        drawing,
        source,
        spends=notion_of(keeping_of(promise).counts(request)),
        tell=lambda destination, release: _tell(
            destination, release, told, _shared(promise, reading, data)
        ),
    )


def _pool_in_file(
    data: str | None, asked: QueryFlags, reading: PoolFlags, promise: Promise, drawing: Attacking
) -> Pool | None:
    """Return a Parquet file of persons whose rows stay in it; None where they must be read."""
    plain = replace(reading, columns=None, missing=None, show_values=False) == PoolFlags()
    if data is None or not isinstance(promise, Table) or promise.person is None:
        return None
    if not plain or reading.missing not in (None, LENIENT) or asked.target is not None:
        return None
    from tacit.statistics.engines.files import pool_in_file

    columns = None if reading.columns is None else split_names("--columns", reading.columns)
    find_beside(asked.query)
    return pool_in_file(data, columns, asked.query, promise, drawing.seed)


def _source_of_file(data: str, pool: Pool, drawing: Attacking) -> Source:
    """Return what names a file whose rows stay in it: its rows, where a ledger knows it by them."""
    known = drawing.ledger is not None and drawing.secret is None
    return Source(
        path=data,
        name=os.path.basename(data),
        fingerprint=PoolFlags().fingerprints(data).rows if known else None,
        file_digest=f"sha256:{content_fingerprint(data)}" if known else None,
        columns=pool.columns,
    )


def read_pool(
    data: str | None,
    query: str,
    target: str | None,
    reading: PoolFlags,
    promise: Promise,
    *,
    session: bool = False,
) -> tuple[DataTable, Promise, DataTable]:
    """Return the table that a query reads, the promise with its pairs, and what is told of it.

    Of a ``session``, which asks what it likes, the promise says whose keys may be sought.
    """
    from tacit.statistics.tables.reading import MissingColumnError
    from tacit.statistics.tables.table import without_column

    person = getattr(promise, "person", None)
    # whether one row can be read is hidden with the table, and decides nothing
    lenient = hides_table(promise)
    missing = reading.missing or (LENIENT if lenient else "refuse")
    # numbers are held by declared bounds, infinite ones too
    reading = replace(reading, missing=BOUNDED if lenient and missing == LENIENT else missing)
    paired_by = _paired_by(promise)
    find_beside(query)
    if session:
        sought = promise.sought if isinstance(promise, Table) else ()
    else:
        key = _sought(data, query, promise, target, reading)
        sought = () if key is None else (key,)
    try:
        table = reading.read_pool(
            data,
            query,
            target,
            declared_levels(promise),
            paired_by,
            person,
            sought,
        )
    except MissingColumnError as error:
        named = split_names("--columns", reading.columns) if reading.columns else ()
        others = {paired_by: "--pairs", person: "--person", target: "--target"}
        flag = "--columns" if error.column in named else others.get(error.column, "--query")
        raise ValueError(f"{flag}:{str(error).partition(':')[2]}") from None
    except ValueError as error:
        if paired_by in reading.coded or f"column {paired_by!r}" not in str(error):
            raise
        # a column of texts was to pair the rows
        raise ValueError(f"{error}: --category {paired_by}") from None
    if not lenient and not table.dropped and not len(table):
        raise ValueError(f"data: expected rows below the header line of {table.label}, got none")
    if not lenient and table.dropped and not len(table):
        # whoever may know the table is told that none of it was read
        from tacit.statistics.queries.language import keys_read

        # a query's keys are words as a rule: the flag that reads them is the one to take
        keys = [name for name in keys_read(query, target) if name not in reading.coded]
        hint = f": --category {keys[0]}" if keys else ""
        raise ValueError(f"data: {NO_ROW}{hint}")
    pool, promise = _pair_by_column(table, reading.columns, promise, paired_by)
    told = pool
    for name in (person, *sought):
        # whose a row is, and keys that few have, are not told of
        told = told if name is None else without_column(told, name)
    return pool, promise, told


def _shared(promise: Promise, reading: PoolFlags, data: str | None) -> str | None:
    """Say how many records one person may have, where records are hidden one by one."""
    from tacit.statistics.tables.identifiers import most_shared

    if getattr(promise, "person", None) is not None or data in (None, "-"):
        return None
    try:
        found = most_shared(
            str(data),
            encoding=reading.encoding,
            delimiter=reading.delimiter,
            decimal=reading.decimal,
        )
    except ValueError:
        # the table was read before: what is not read here is no identifier
        return None
    if found is None:
        return None
    return (
        f"up to {found.rows:,} rows share one value of {found.column!r}. Each row is hidden by "
        f"itself, all of them together less well; --person {found.column} hides all rows of a "
        "value together"
    )


def _sought(
    data: str | None, query: str, promise: Promise, target: str | None, reading: PoolFlags
) -> str | None:
    """Return the column whose keys are found from the table; None for none."""
    from tacit.statistics.opening import sought_key
    from tacit.statistics.queries.language import keys_read
    from tacit.statistics.tables.table import Category as Levels

    # categories with their levels are declared
    given = [one.partition("=") for one in reading.category or ()]
    declared = {name.strip(): Levels((), declared=True) for name, equals, _ in given if equals}
    try:
        return sought_key(query, promise, target, declared)
    except ValueError:
        # a column that is not there has no categories to declare
        reading.refuse_absent(data, keys_read(query, target))
        raise


def _paired_by(promise: Promise) -> str | None:
    """Return the column that the pool is paired along, None for none."""
    pairs = getattr(promise, "pairs", None)
    if pairs is None or not pairs.startswith(COLUMN):
        return None
    name: str = pairs.removeprefix(COLUMN)
    if not name.strip():
        raise ValueError(f"--pairs: expected column:NAME, got {pairs!r}")
    return name


def _pair_by_column(
    table: DataTable, columns: str | None, promise: Promise, name: str | None
) -> tuple[DataTable, Promise]:
    """Return the table without a column that only pairs its rows, and the promise with them."""
    if name is None or columns is None or name in split_names("--columns", columns):
        return table, promise
    from tacit.statistics.pairs import by_column
    from tacit.statistics.rows.workflow import group_size
    from tacit.statistics.tables.table import without_column

    assert isinstance(promise, Rows)
    place = table.columns.index(name)
    rest = without_column(table, name)
    size = group_size(promise.rate)
    pairing = by_column(table.rows[:, place], group_size=size, name=name)
    return rest, replace(promise, pairs=pairing)


def _tell(
    destination: Destination, release: Release[Any], table: DataTable | None, shared: str | None
) -> None:
    """Print the verdict, every number with its interval, and the rest in a line each."""
    from tacit.pages.numbers import number_lines, strength_words
    from tacit.pages.words import verdict

    console = destination.json.console
    tell_title(console, verdict(release))
    for number, outputs in enumerate(number_lines(tuple(release.numbers or ()))):
        line(console, "" if number else "released", outputs)
    void = "void: " if release.reproducible else ""
    line(console, "hides", release.secret)
    line(console, "guarantee", void + strength_words(release.guarantees))
    line(console, "attack", _attack(release))
    line(console, "noise", release.method)
    for note in (*release.notes, *release.remarks):
        line(console, "note", note)
    seed = "a generator given by the caller" if release.seed is None else f"the seed {release.seed}"
    line(console, "randomness", seed if release.reproducible else "operating system entropy")
    if table is None:
        line(console, "engine", release.details.engine)
    else:
        tell_table(console, table)
    if shared is not None:
        # for the holder alone: it is the table's
        line(console, "warning", shared)
    destination.tell()


def _attack(release: Release[Any]) -> str:
    from tacit.pages.words import plus_minus
    from tacit.text import percent, share_up

    attack = release.attack
    if attack is None:
        return "none was run"
    words = f"{attack.name}: {plus_minus(attack.success)}"
    if attack.worst is not None:
        low, high = percent(attack.worst.low), percent(attack.worst.high)
        words += f"; at its best on one record {percent(attack.worst.value)} [{low}, {high}]"
        bound = release.headline
        if bound is not None and attack.worst.value > bound.success >= attack.worst.low:
            # the largest of many measured shares stands above what each of them measures
            words += f", the largest of many by chance: at most {share_up(bound.success)} is proven"
    return f"{words}; {attack.trials:,} simulated releases"
