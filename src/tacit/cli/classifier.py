"""``tacit classifier``: from a table of logits to released logits, their report and their cost."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.options import Attacked, Force, Json, LedgerFile, NoBudget, Report, Secret, Seed
from tacit.cli.publishing import Destination, Flags, tell_prepared


def classifier(
    data: Annotated[
        str, typer.Argument(help="CSV file with a header line: a row per input, a logit per class.")
    ],
    labels: Annotated[
        str | None, typer.Option(help="Column with the class numbers, for accuracy and attacks.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(help="Rows to release, counted from 0, separated by commas; all if left out."),
    ] = None,
    success: Annotated[
        float | None, typer.Option(help="Largest success of naming the input allowed.")
    ] = None,
    mi_budget: Annotated[
        float | None, typer.Option(help="Largest information of one row allowed, in nats.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="exact, linear, diagonal or true-information.")
    ] = "exact",
    confidence: Annotated[
        float, typer.Option(help="Of intervals, and of a guarantee that rests on simulation.")
    ] = 0.999,
    seed: Seed = None,
    attack: Attacked = True,
    report: Report = None,
    json: Json = None,
    force: Force = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the guarantee and the error of every logit; draw nothing."
        ),
    ] = False,
    ledger: LedgerFile = None,
    secret: Secret = None,
    no_budget: NoBudget = False,
) -> None:
    """Release a classifier's logits with designed noise, a guarantee and a measured attack."""
    from tacit.classifiers import prepare_logits
    from tacit.releases import Provenance
    from tacit.report.words import lines, verdict
    from tacit.statistics.table import read_table

    if seed is not None:
        integer("--seed", seed, minimum=0)
    table = read_table(data, None)
    flags = Flags(
        data=data,
        report=report,
        json=json,
        ledger=ledger,
        secret=secret,
        reproducible=seed is not None,
        no_budget=no_budget,
        force=force,
    )
    destination = Destination.checked(flags, table.fingerprint)
    if labels is not None and labels not in table.names:
        raise ValueError(f"--labels: expected one of the columns, got {labels!r}")
    kept = [place for place, name in enumerate(table.names) if name != labels]
    prepared = prepare_logits(
        table.rows[:, kept],
        range(len(table.rows)),
        mi_budget=mi_budget,
        success=success,
        inputs=None if inputs is None else _rows(inputs),
        labels=None if labels is None else table.rows[:, table.names.index(labels)],
        method=method,
        confidence=confidence,
        attack=attack and not dry_run,
        rng=seed,
    )
    if dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    provenance = Provenance.capture(
        command_line(),
        data_name=os.path.basename(data),
        data_fingerprint=table.fingerprint,
        data_rows=len(table.rows),
        data_columns=table.names,
        secret=destination.secret,
        ledger=None if destination.ledger is None else destination.ledger.location,
    )
    destination.store(release, provenance)
    console, conclusion = destination.json.console, verdict(release.form)
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for label, text in lines(release.form):
        line(console, label, text)
    destination.tell()


def _rows(inputs: str) -> list[int]:
    try:
        return [int(entry) for entry in inputs.split(",")]
    except ValueError:
        raise ValueError(f"--inputs: expected row numbers by commas, got {inputs!r}") from None
