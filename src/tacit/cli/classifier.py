"""``tacit classifier``: noisy logits for inputs that are secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from tacit.cli.completion import column
from tacit.cli.options import Only, grouped
from tacit.cli.publishing import Attacking, Source, publish
from tacit.cli.tables import Data, TableFlags
from tacit.releases import Draw, Effort


@grouped
def classifier(
    data: Data = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            "--rows",
            help="Rows of the inputs to release, separated by commas; all when left out.",
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--label", autocompletion=column, help="Column of class numbers.")
    ] = None,
    *,
    promise: Annotated[Draw, Only("nats", "success", "method", "confidence")],
    effort: Annotated[Effort, Only("trials", "progress")],
    reading: TableFlags,
    drawing: Attacking,
) -> None:
    """Release a classifier's logits with designed noise, a guarantee and a measured attack.

    The table has a row per input and a logit per class. The released rows stand in a random order.
    """
    from tacit.classifiers import prepare_logits
    from tacit.ledger.notions import INFORMATION

    table = reading.read(data)
    if labels is not None and labels not in table.columns:
        raise ValueError(f"--label: expected one of the columns, got {labels!r}")
    quiet = not drawing.attack or drawing.dry_run
    kept = [place for place, name in enumerate(table.columns) if name != labels]

    def prepare() -> Any:
        return prepare_logits(
            table.rows[:, kept],
            range(len(table.rows)),
            promise,
            replace(effort, trials=0) if quiet else effort,
            inputs=None if inputs is None else _rows(inputs),
            labels=None if labels is None else table.rows[:, table.columns.index(labels)],
            rng=drawing.seed,
        )

    source = Source.of(table, data)
    publish(prepare, drawing, source, spends=INFORMATION, untold=("--rows",))


def _rows(inputs: str) -> list[int]:
    try:
        return [int(entry) for entry in inputs.split(",")]
    except ValueError:
        raise ValueError(f"--rows: expected row numbers by commas, got {inputs!r}") from None
