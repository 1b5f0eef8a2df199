"""``tacit statistic compare``: the promises side by side; nothing is released."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from rich.text import Text

from tacit.cli.console import command_line, line
from tacit.cli.options import Attacked, Only, grouped
from tacit.cli.output import json_output, new_file
from tacit.cli.publishing import Telling
from tacit.cli.statistic.asking import QueryFlags, find_beside
from tacit.cli.tables import Data, PoolFlags
from tacit.releases.promises import Effort, Table

KEPT_COMPARISON = "this comparison is the holder's: its errors are of the table itself"


@grouped
def compare(
    *,
    data: Data = None,
    asked: QueryFlags,
    reading: PoolFlags,
    promise: Annotated[Table, Only("success", "bounds", "levels", "person", "unit", "clip")],
    effort: Effort,
    attack: Attacked = True,
    telling: Telling,
) -> None:
    """Set the promises side by side at one success: what each hides, its noise, its attackers.

    Rows by matched pairs and by random ones, the whole draw, and the table where --bounds declare
    what a row may be. With --person all rows of a person are hidden together, and the table needs
    --clip too. Nothing is released and no budget is spent.
    """
    from tacit import codec
    from tacit._ground.files import write_text_atomic
    from tacit.releases import Provenance
    from tacit_lab.comparison import compare as compare_promises
    from tacit_lab.comparison.page import (
        comparison_lines,
        errors_beside,
        headline,
        render_comparison,
    )

    paths = {"DATA": None if data == "-" else data, "--report": telling.report}
    output = json_output(telling.json, telling.force, paths)
    page = new_file("--report", telling.report, telling.force)
    find_beside(asked.query)
    person = promise.person
    table = reading.read_pool(data, asked.query, asked.target, promise.levels, person=person)
    found = compare_promises(
        asked.query,
        table,
        promise,
        effort if attack else replace(effort, trials=0),
        target=asked.target,
        cost=asked.cost,
        rng=telling.seed,
    )
    console = output.console
    console.print(Text(headline(found), "bold"))
    console.print(Text(errors_beside(found)))
    for label, text in comparison_lines(found):
        line(console, label, text)
    provenance = Provenance(
        command=command_line(),
        data_name=table.label,
        data_fingerprint=table.fingerprint,
        data_rows=len(table),
        data_columns=table.columns,
        data_notes=table.notes,
    )
    written: dict[str, Any] = codec.write(Provenance, provenance)
    output.write({**found.to_dict(), "provenance": written})
    if page is not None:
        write_text_atomic("--report", page, render_comparison(found, provenance))
        line(console, "report", str(page))
    output.tell()
    line(console, "keep", KEPT_COMPARISON)
