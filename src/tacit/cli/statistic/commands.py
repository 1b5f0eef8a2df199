"""From a table to a released statistic, its page, its certificate and its ledger entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._ground.checks import integer
from tacit.cli.options import grouped
from tacit.cli.publishing import Attacking, Destination, tell_prepared
from tacit.cli.statistic.asked import (
    Asked,
    Query,
    check_dropping,
    check_numbers,
    coded_by_levels,
    columns_of,
    found_beside,
    unpaired,
)
from tacit.cli.statistic.comparing import compare
from tacit.cli.statistic.group import UNNAMED, WithDefault
from tacit.cli.statistic.telling import tell
from tacit.cli.tables import Category, Columns, Data, Missing, TableFlags, listed

if TYPE_CHECKING:
    from tacit.statistics import Table

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
    query: Query,
    asked: Asked,
    columns: Columns = None,
    missing: Missing = "refuse",
    category: Category = None,
    reading: TableFlags,
    cost: Annotated[
        str | None,
        typer.Option(
            help="What noise costs: relative (each number in units of its own spread, when left "
            "out) or squared (error)."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column a regression explains; the last when left out.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Of the guarantee, where it rests on simulated releases.")
    ] = 0.999,
    workers: Annotated[
        int | None, typer.Option(help="Processes that simulate; one per core when left out.")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(help="HTML to publish beside the numbers: no diagnostics, fit for print."),
    ] = None,
    drawing: Attacking,
) -> None:
    """Release a statistic of a table with designed noise, a guarantee and a measured attack.

    `tacit statistic compare TABLE` sets the three promises side by side and releases nothing; a
    file of that name is ./compare.
    """
    from tacit.statistics import prepare

    if workers is not None:
        integer("--workers", workers, minimum=1)
    options = asked.options()
    check_dropping(asked.protect, missing, asked.adjacency)
    found_beside(query)
    wanted = columns_of(columns, query, target, asked.paired_by)
    coded = coded_by_levels(options["levels"], category)
    try:
        table = reading.read(data, wanted, missing=missing, categories=coded)
    except ValueError as error:
        check_numbers(asked.paired_by, category, error)
        raise
    table, options["pairs"] = _paired(table, columns, asked)
    destination = Destination.checked(
        drawing,
        data,
        table,
        spends=_spends(query, table, target, options),
        certificate=certificate,
    )
    prepared = prepare(
        query,
        table,
        **options,
        confidence=confidence,
        rng=drawing.seed,
        cost=cost,
        target=target,
        workers=workers,
        attack=drawing.attack and not drawing.dry_run,
    )
    prepared = replace(prepared, description=f"{prepared.description} of {table.label}")
    if drawing.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    destination.store(release, destination.provenance(table))
    tell(release, destination, table)


app.command("compare")(compare)


def _paired(table: Table, columns: str | None, asked: Asked) -> tuple[Table, Any]:
    """Return the table and its pairs: along a column that the query does not use, where named."""
    name = asked.paired_by
    if name is None or columns is None or name in listed("--columns", columns):
        return table, asked.pairs
    from tacit.statistics import pairs
    from tacit.statistics.rows.workflow import group_size

    rest, values = unpaired(table, name)
    size = group_size(asked.options().get("sampling_rate", 0.5))
    return rest, pairs.by_column(values, group_size=size, name=name)


def _spends(query: str, table: Table, target: str | None, options: dict[str, Any]) -> str:
    """Return what a ledger will count the release as, so that it can refuse before the work."""
    from tacit.ledger.notions import GAUSSIAN_DP, INFORMATION, UNADDED
    from tacit.statistics.sums.query import sum_query
    from tacit.statistics.sums.statistic import Columns as Names

    if options["protect"] == "draw":
        return INFORMATION
    if options["protect"] == "table":
        return GAUSSIAN_DP
    adds = options.get("method", "auto") in ("auto", "sums")
    adds = adds and sum_query(query, Names(table.columns, table.rows), target) is not None
    return GAUSSIAN_DP if adds else UNADDED
