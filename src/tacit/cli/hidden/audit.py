"""``tacit audit model``: measure a layer, sweep releases of it, write one report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.hidden.attributes import AttributeFlags
from tacit.cli.hidden.inputs import CountFlags, Layer, PromptFlags
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.options import Only, grouped
from tacit.cli.output import refuse_inputs
from tacit.cli.publishing import Destination, Paged, Source
from tacit.cli.store import store
from tacit.compute import progress_reports
from tacit.hidden_states.audit.request import SweepRequest, SweepRun, Wish

if TYPE_CHECKING:
    from tacit.releases import Release

app = typer.Typer(
    help="Audit what a model would store: measure it, attack it, recommend what to keep.",
    no_args_is_help=True,
)


app.command("store")(store)


@app.callback()
def _group() -> None:
    pass


@app.command("model")
@grouped
def model_layer(
    layer: Layer,
    points: Annotated[
        str | None, typer.Option(help="JSON lines of the points, to resume from.")
    ] = None,
    *,
    counts: CountFlags,
    wish: Wish,
    request: Annotated[SweepRequest, Only("kl_budgets", "codewords")],
    attributes: AttributeFlags,
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Audit one layer of a language model: which release of its last state to store, and why."""
    from tacit._ground.files import check_writable

    others = {"--texts": source.texts, "--points": points, **attributes.paths}
    read = Source(path=None, name=source.data_name)
    destination = Destination.checked(outlet, read, others=others)
    if points is not None:
        refuse_inputs("--points", check_writable("--points", points))
    attributes.check(source)
    model, prefixes = source.prepare(layer, **counts.asked)
    from tacit.hidden_states import audit_layer
    from tacit.hidden_states.audit.guessers import USUAL_GUESSERS

    guessers = (*USUAL_GUESSERS, *attributes.read(source, model, prefixes))
    with progress_reports("preparing") as progress:
        audit = audit_layer(
            model,
            layer,
            wish,
            replace(request, guessers=guessers),
            prefixes=prefixes,
            sizes=counts.sizes,
            run=SweepRun(out=points, progress=progress),
            rng=source.seed,
        )
    # a digest of prompts tells which they are to whoever can guess them
    origin = origin_of(source, model, layer, prefixes, **counts.asked).public
    destination = replace(destination, source=replace(read, rows=len(prefixes.bank)))
    audit = destination.stated(replace(audit, digests=origin.digests))
    destination.store(audit)
    _tell(destination, audit)


def _tell(destination: Destination, audit: Release[Any]) -> None:
    """Print the verdict, why, and what is guaranteed of the release recommended."""
    from tacit.hidden_states.audit.page.words import audit_verdict, use_of

    console, found = destination.json.console, audit.details.recommendation
    conclusion = audit_verdict(audit)
    style = "bold" if conclusion.kind != "none" else "bold red"
    console.print(Text(conclusion.sentence, style))
    # where nothing is recommended, the verdict has the first reason
    said = 1 if found.point is None else 0
    for reason in found.reasons[said:]:
        line(console, "because", reason)
    if found.point is not None:
        line(console, "use", use_of(found.point))
    for guarantee in audit.guarantees:
        line(console, "guarantee", guarantee.describe())
    if destination.report is not None:
        line(console, "report", str(destination.report))
    line(console, "keep", audit.withheld)
    destination.json.tell()
