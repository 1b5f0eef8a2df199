"""``tacit audit model``: measure a layer, sweep releases of it, write one report."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import command_line, line
from tacit.cli.hidden.attributes import check_attributes, read_attributes
from tacit.cli.hidden.inputs import (
    Bank,
    Calibration,
    Codewords,
    KlBudgets,
    Layer,
    Measured,
    PromptFlags,
    listed,
    sizes_of,
)
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.options import Force, Json, Report, grouped
from tacit.cli.output import json_output, new_file, refuse_inputs
from tacit.compute import progress_reports

app = typer.Typer(
    help="Audit what a model would store: measure it, attack it, recommend what to keep.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    pass


@app.command("model")
@grouped
def model_layer(
    layer: Layer,
    bank: Bank = 5000,
    calibration: Calibration = 20_000,
    max_attack: Annotated[
        float,
        typer.Option(
            help="Largest success at naming one of the bank's equally likely prompts, in (0, 1]."
        ),
    ] = 0.1,
    min_agreement: Annotated[
        float, typer.Option(help="Least share of prompts whose next token stays, in [0, 1].")
    ] = 0.5,
    max_kl: Annotated[
        float | None, typer.Option(help="Largest mean KL from the clean prediction, in nats.")
    ] = None,
    max_gain: Annotated[
        float,
        typer.Option(
            help="Largest gain in success, over guessing without the release, of an attacker who "
            "knows the earlier tokens or learnt an attribute, in (0, 1]."
        ),
    ] = 0.5,
    attributes: Annotated[
        str | None,
        typer.Option(help="CSV beside --prompts, a row a prompt: its columns are guessed."),
    ] = None,
    public_attributes: Annotated[
        str | None,
        typer.Option(help="The same of --public-texts, for attackers to learn from."),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(help="A: the consumer also holds clean earlier positions; B: it does not."),
    ] = "A",
    releases: Annotated[
        int, typer.Option(help="T: codes released about one prompt, of its last T positions.")
    ] = 1,
    measured: Measured = 1000,
    kl_budgets: KlBudgets = "1,4,16",
    codewords: Codewords = "64,256,1024",
    report: Report = None,
    points: Annotated[
        str | None, typer.Option(help="JSON lines of the points, to resume from.")
    ] = None,
    json: Json = None,
    force: Force = False,
    *,
    source: PromptFlags,
) -> None:
    """Audit one layer of a language model: which release of its last state to store, and why."""
    from tacit._ground.files import check_writable
    from tacit.hidden_states.audit.recommendation import Wish
    from tacit.releases import Provenance
    from tacit.report import write_report
    from tacit.report.hidden.words import hidden_verdict, use_of

    others = {"--texts": source.texts, "--report": report, "--points": points}
    others |= {"--attributes": attributes, "--public-attributes": public_attributes}
    output, page = json_output(json, force, others), new_file("--report", report, force)
    if points is not None:
        refuse_inputs("--points", check_writable("--points", points))
    budgets = listed("--kl-budgets", kl_budgets, float)
    cells = listed("--codewords", codewords, int)
    wish = Wish(
        max_attack=max_attack,
        min_agreement=min_agreement,
        max_kl=max_kl,
        max_gain=max_gain,
        protocol=protocol,
        releases=releases,
    )
    check_attributes(source, attributes, public_attributes)
    sizes = {"bank": bank, "calibration": calibration, "held_out": measured}
    found, prefixes = source.prepare(layer, **sizes)
    from tacit.hidden_states import audit_layer
    from tacit.hidden_states.audit.guessers import USUAL_GUESSERS
    from tacit.hidden_states.origin import HOLDERS

    columns = read_attributes(source, found, prefixes, attributes, public_attributes)
    with progress_reports("preparing") as progress:
        result = audit_layer(
            found,
            layer,
            prefixes=prefixes,
            wish=wish,
            kl_budgets=budgets,
            codewords=cells,
            guessers=(*USUAL_GUESSERS, *columns),
            sizes=sizes_of(measured),
            out=points,
            rng=source.seed,
            progress=progress,
        )
    # a digest of prompts tells which they are to whoever can guess them
    origin = origin_of(source, found, layer, prefixes, **sizes)
    result = replace(result, origin=origin.public)
    provenance = Provenance.capture(
        command_line(), data_name=source.data_name, data_rows=len(prefixes.bank)
    )
    content = {**result.to_dict(), "provenance": provenance.to_dict()}
    output.write(content)
    console = output.console
    conclusion = hidden_verdict(result)
    style = "bold" if conclusion.kind != "none" else "bold red"
    console.print(Text(conclusion.sentence, style))
    # where nothing is recommended, the verdict has the first reason
    said = 1 if result.recommendation.point is None else 0
    for reason in result.recommendation.reasons[said:]:
        line(console, "because", reason)
    if result.recommendation.point is not None:
        line(console, "use", use_of(result.recommendation.point))
    for guarantee in result.guarantees:
        line(console, "guarantee", guarantee.describe())
    if page is not None:
        line(console, "report", str(write_report(result, page, provenance)))
    line(console, "keep", HOLDERS)
    output.tell()
