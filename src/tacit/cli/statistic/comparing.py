"""``tacit statistic compare``: the promises side by side; nothing is released."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.options import Attacked, Force, Json, Report, grouped
from tacit.cli.output import json_output, new_file
from tacit.cli.statistic.asked import (
    Bounds,
    LevelsOf,
    Query,
    bounds_of,
    coded_by_levels,
    columns_of,
    found_beside,
    levels_of,
)
from tacit.cli.tables import Category, Columns, Data, Missing, TableFlags

KEPT_COMPARISON = "this comparison is the holder's: its errors are of the table itself"


@grouped
def compare(
    *,
    data: Data = None,
    query: Query,
    success: Annotated[
        float, typer.Option(help="Largest success of guessing membership, of every promise.")
    ],
    columns: Columns = None,
    missing: Missing = "refuse",
    category: Category = None,
    bounds: Bounds = None,
    levels: LevelsOf = None,
    reading: TableFlags,
    cost: Annotated[str | None, typer.Option(help="What noise costs: relative or squared.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Column a regression explains; the last when left out.")
    ] = None,
    simulations: Annotated[int, typer.Option(help="Draws to simulate.")] = 2000,
    workers: Annotated[
        int | None, typer.Option(help="Processes that simulate; one per core when left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Make the simulations repeatable.")] = None,
    attack: Attacked = True,
    report: Report = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Set the promises side by side at one success: what each hides, its noise, its attackers.

    Rows by matched pairs and by random ones, the whole draw, and the table where --bounds declare
    what a row may be. Nothing is released and no budget is spent.
    """
    from tacit._ground.files import write_text_atomic
    from tacit.releases import Provenance
    from tacit.report import render_comparison
    from tacit.report.comparison.page import comparison_lines, headline
    from tacit.statistics import compare as compared

    if seed is not None:
        integer("--seed", seed, minimum=0)
    output = json_output(json, force, {"DATA": None if data == "-" else data, "--report": report})
    page = new_file("--report", report, force)
    declared: dict[str, Any] = {"bounds": bounds_of(bounds), "levels": levels_of(levels)}
    found_beside(query)
    coded = coded_by_levels(declared["levels"], category)
    names = columns_of(columns, query, target)
    table = reading.read(data, names, missing=missing, categories=coded)
    found = compared(
        query,
        table,
        success=success,
        **declared,
        target=target,
        cost=cost,
        simulations=simulations,
        attack=attack,
        rng=seed,
        workers=workers,
    )
    console = output.console
    console.print(Text(headline(found), "bold"))
    for label, text in comparison_lines(found):
        line(console, label, text)
    provenance = Provenance.capture(
        command_line(),
        data_name=table.label,
        data_fingerprint=table.fingerprint,
        data_rows=len(table),
        data_columns=table.columns,
        data_notes=table.notes,
    )
    output.write({**found.to_dict(), "provenance": provenance.to_dict()})
    if page is not None:
        write_text_atomic("--report", page, render_comparison(found, provenance))
        line(console, "report", str(page))
    output.tell()
    line(console, "keep", KEPT_COMPARISON)
