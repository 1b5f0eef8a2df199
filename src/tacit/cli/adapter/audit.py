"""``tacit adapter audit``: train once with canaries, and guess which were in."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.adapter.flags import DATA, MODEL, AdapterFlags, digest_of
from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.publishing import Destination, tell_release


@grouped
def audit(
    *,
    model: Annotated[str, MODEL],
    data: Annotated[str, DATA],
    canaries: Annotated[int, typer.Option(help="Canaries; fair coins leave half out.")] = 64,
    flags: AdapterFlags,
) -> None:
    """Train as `fit` would, with canaries among the records, and bound ε from below by one run.

    Nothing is saved or spent: the adapter has learned canaries. The bound from below stands beside
    the certified ε, and a certificate that it passes is wrong.
    """
    from tacit.adapters import audit_adapter, load_pretrained
    from tacit.ledger.notions import APPROXIMATE_DP

    method = flags.chosen()
    destination = Destination.checked(flags, data, None, spends=APPROXIMATE_DP)
    loaded = load_pretrained(model, device=flags.device)
    rows, apart = flags.read(loaded, data)
    count = len(rows["input_ids"])
    release = audit_adapter(
        loaded.network, rows, method,
        canaries=canaries, held_out=apart, task=loaded.task, **flags.settings(count),
    )  # fmt: skip
    told = destination.provenance_of(data, fingerprint=digest_of(rows), rows=count)
    destination.store(release, told)
    line(destination.json.console, "data", f"{count:,} records and {canaries} canaries")
    for note in release.notes[-2:]:
        line(destination.json.console, "audit", note)
    tell_release(destination, release)
