"""``tacit classifier``: from a table of logits to released logits, their report and their cost."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.options import grouped
from tacit.cli.publishing import Attacking, Destination, tell_prepared, tell_release
from tacit.cli.tables import Data, TableFlags


@grouped
def classifier(
    *,
    data: Data = None,
    reading: TableFlags,
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
    certificate: Annotated[
        str | None,
        typer.Option(help="HTML to publish beside the logits: nothing of the inputs."),
    ] = None,
    drawing: Attacking,
) -> None:
    """Release a classifier's logits with designed noise, a guarantee and a measured attack.

    The table has a row per input and a logit per class. The released rows stand in a random order.
    """
    from tacit.classifiers import prepare_logits

    table = reading.read(data)
    from tacit.ledger.notions import INFORMATION

    destination = Destination.checked(
        drawing, data, table, spends=INFORMATION, certificate=certificate
    )
    if labels is not None and labels not in table.columns:
        raise ValueError(f"--labels: expected one of the columns, got {labels!r}")
    kept = [place for place, name in enumerate(table.columns) if name != labels]
    prepared = prepare_logits(
        table.rows[:, kept],
        range(len(table.rows)),
        mi_budget=mi_budget,
        success=success,
        inputs=None if inputs is None else _rows(inputs),
        labels=None if labels is None else table.rows[:, table.columns.index(labels)],
        method=method,
        confidence=confidence,
        attack=drawing.attack and not drawing.dry_run,
        rng=drawing.seed,
    )
    if drawing.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    destination.store(release, destination.provenance(table, untold=("--inputs",)))
    tell_release(destination, release)


def _rows(inputs: str) -> list[int]:
    try:
        return [int(entry) for entry in inputs.split(",")]
    except ValueError:
        raise ValueError(f"--inputs: expected row numbers by commas, got {inputs!r}") from None
