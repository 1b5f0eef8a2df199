"""``tacit adapter fit``: fine-tune a low-rank adapter privately, and save it as peft reads it."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.adapter.flags import DATA, MODEL, FitFlags, digest_of
from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.publishing import Destination, tell_prepared, tell_release


@grouped
def fit(
    *,
    model: Annotated[str, MODEL],
    data: Annotated[str, DATA],
    save: Annotated[
        str | None, typer.Option(help="Folder that the adapter is written to, as peft reads it.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Folder that survives a crash: the same command goes on from it."),
    ] = None,
    unprotected: Annotated[
        bool,
        typer.Option("--unprotected", help="Write an adapter without noise, not to be published."),
    ] = False,
    flags: FitFlags,
) -> None:
    """Fine-tune an adapter so that whether any one record was learned from cannot be told beyond ε.

    A record is one row of a table, or --length tokens of a text. Each step draws every record by a
    coin of its own, clips what it adds and adds noise. The adapter is written in peft's format and
    loaded again before this returns.
    """
    from tacit.adapters import load_pretrained, prepare_adapter
    from tacit.ledger.notions import APPROXIMATE_DP

    method = flags.chosen()
    destination = Destination.checked(
        flags, data, None, spends=APPROXIMATE_DP,
        others={"--save": save, "--checkpoint": checkpoint},
    )  # fmt: skip
    loaded = load_pretrained(model, device=flags.device)
    rows, apart = flags.read(loaded, data)
    count = len(rows["input_ids"])
    prepared = prepare_adapter(
        loaded.network, rows, method,
        held_out=apart, task=loaded.task, base=model, save=save, checkpoint=checkpoint,
        unprotected=unprotected, **flags.settings(count),
    )  # fmt: skip
    if flags.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    told = destination.provenance_of(data, fingerprint=digest_of(rows), rows=count)
    destination.store(release, told)
    line(destination.json.console, "data", f"{count:,} records to learn from")
    tell_release(destination, release, prepared.session.save)
