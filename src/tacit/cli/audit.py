"""``tacit audit model``: measure a layer, sweep releases of it, write one report."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import command_line, consoles, dump, line, print_json
from tacit.cli.hidden_inputs import (
    Bank,
    Calibration,
    Layer,
    Length,
    Model,
    Seed,
    Texts,
    listed,
    points_bar,
    prepare,
)

app = typer.Typer(
    help="Audit what a model would store: measure it, attack it, recommend what to keep.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    pass


@app.command("model")
def model_layer(
    layer: Layer,
    model: Model = "tacit/small",
    texts: Texts = None,
    length: Length = 32,
    bank: Bank = 5000,
    calibration: Calibration = 20_000,
    max_attack: Annotated[
        float, typer.Option(help="Largest success at naming the prompt, in (0, 1].")
    ] = 0.1,
    min_agreement: Annotated[
        float, typer.Option(help="Least share of prompts whose next token stays, in [0, 1].")
    ] = 0.5,
    max_kl: Annotated[
        float | None, typer.Option(help="Largest mean KL from the clean prediction, in nats.")
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(help="A: the consumer also holds clean earlier positions; B: it does not."),
    ] = "A",
    prompts: Annotated[
        int, typer.Option(help="Prompts on which use and attacks are measured.")
    ] = 1000,
    kl_budgets: Annotated[
        str, typer.Option(help="K that noise may cost in nats, separated by commas.")
    ] = "1,4,16",
    codewords: Annotated[str, typer.Option(help="C, separated by commas.")] = "64,256,1024",
    seed: Seed = 0,
    report: Annotated[str | None, typer.Option(help="HTML report to write.")] = None,
    points: Annotated[
        str | None, typer.Option(help="JSON lines of the points, to resume from.")
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="JSON to write; - for standard output.")
    ] = None,
) -> None:
    """Audit one layer of a language model: which release of its last state to store, and why."""
    from tacit._files import check_writable, write_text_atomic
    from tacit.hidden_states.recommend import Wish
    from tacit.report import Provenance
    from tacit.report.hidden_page import write_audit
    from tacit.report.hidden_words import hidden_verdict

    for flag, path in (("--report", report), ("--points", points)):
        if path is not None:
            check_writable(flag, path)
    if json is not None and json != "-":
        check_writable("--json", json)
    budgets = listed("--kl-budgets", kl_budgets, float)
    cells = listed("--codewords", codewords, int)
    wish = Wish(
        max_attack=max_attack, min_agreement=min_agreement, max_kl=max_kl, protocol=protocol
    )
    found, prefixes = prepare(
        model, texts, layers=[layer], length=length, bank=bank, calibration=calibration, seed=seed
    )
    from tacit.hidden_states import Sizes, audit

    sizes = Sizes(prompts=prompts, queries=prompts, generated=min(prompts, 300))
    with points_bar(None) as progress:
        result = audit(
            found,
            layer,
            prefixes=prefixes,
            wish=wish,
            budgets=budgets,
            codewords=cells,
            sizes=sizes,
            out=points,
            rng=seed,
            progress=progress,
        )
    provenance = Provenance.capture(
        command_line(), data_name=texts or "docstrings of this installation", data_rows=bank
    )
    content = {**result.to_dict(), "provenance": provenance.to_dict()}
    if json is not None and json != "-":
        write_text_atomic("--json", json, dump(content))
    if json == "-":
        print_json(content)
    console = consoles(json == "-")
    conclusion = hidden_verdict(result)
    style = "bold" if conclusion.kind != "none" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for reason in result.recommendation.reasons:
        line(console, "because", reason)
    for guarantee in result.guarantees:
        line(console, "guarantee", guarantee.describe())
    if report is not None:
        line(console, "report", str(write_audit(result, report, provenance)))
