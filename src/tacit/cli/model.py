"""``tacit model``: a language model of your own, a GPT or one with a split state, from any text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit._ground.checks import non_negative
from tacit._ground.memory import keep_freed_memory
from tacit.cli.console import line
from tacit.cli.hidden.inputs import listed, llm_extra
from tacit.cli.options import Only, grouped
from tacit.cli.output import json_output
from tacit.cli.publishing import Outlet
from tacit.models.small.settings import ModelSettings
from tacit.runs import Run

if TYPE_CHECKING:
    from tacit.models import Penalty

INSTALLED = "the docstrings of this installation"
app = typer.Typer(
    help="Train a small language model of your own, to audit, attack and compare.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep the command's name, though it is the only one."""


@app.command("train")
@grouped
def train(
    out: Annotated[str, typer.Option(help="New folder to write, in the form of transformers.")],
    text: Annotated[
        str | None,
        typer.Argument(
            help=f".txt or .txt.gz file, or a folder of them; {INSTALLED} when left out.",
            show_default=False,
        ),
    ] = None,
    jacobian: Annotated[float, typer.Option(help="λ of ‖∂ logits/∂v‖², of a split state.")] = 0.0,
    depletion: Annotated[
        float, typer.Option(help="λ of the margin mass in the leading directions of F.")
    ] = 0.0,
    probe_layers: Annotated[
        str | None, typer.Option(help="Layers of the penalties; the middle one when left out.")
    ] = None,
    depletion_rank: Annotated[
        int | None, typer.Option(help="k of the depletion; r, or d/4 of a GPT, when left out.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where it trains: cpu, cuda.")] = "cpu",
    *,
    settings: ModelSettings,
    run: Annotated[Run, Only("minutes", "steps", "precision", "checkpoint")],
    outlet: Outlet,
) -> None:
    """Train a language model with its own tokenizer; the folder loads wherever a model is asked.

    Training promises nothing about the text: what it keeps of it is for tacit training
    memorisation to measure.
    """
    # a negative weight would be a reward
    for flag, weight in (("--jacobian", jacobian), ("--depletion", depletion)):
        non_negative(flag, weight)
    output = json_output(
        outlet.json, outlet.force, {"TEXT": text, "--checkpoint": run.checkpoint, "--out": out}
    )
    with llm_extra():
        from tacit.models import docstring_corpus
        from tacit.models import train as train_model
    # freed pages are used again by the next step
    keep_freed_memory()
    model = train_model(
        docstring_corpus() if text is None else Path(text),
        run,
        settings,
        penalties=_penalties(settings, jacobian, depletion, probe_layers, depletion_rank),
        device=device,
        out=out,
    )
    # what it took, as the folder says it
    recipe = model.recipe
    parameters = sum(one.numel() for one in model.network.parameters())
    took = f"{recipe['steps']:,} steps on {recipe['tokens_read']:,} tokens"
    sizes = f"{model.layers} layers of {model.width} numbers, {parameters:,} parameters"
    for label, value in (
        ("model", f"{out}: {sizes}"),
        ("trained", f"{took} in {recipe['seconds']:.0f} s, {recipe['precision']}"),
        ("perplexity", f"{recipe['held_out_perplexity']:.1f} a token of text it never saw"),
        ("next", f"tacit hidden sweep --model {out}"),
    ):
        line(output.console, label, value)
    output.write({"out": out, **recipe})
    output.tell()


def _penalties(
    settings: ModelSettings,
    jacobian: float,
    depletion: float,
    probe_layers: str | None,
    rank: int | None,
) -> list[Penalty]:
    from tacit.models import JacobianPenalty, MarginDepletion

    if jacobian and settings.architecture != "split-memory":
        raise ValueError("--jacobian: expected --architecture split-memory, whose memory it is of")
    # a flag of penalties without one would be obeyed by nothing
    if not (jacobian or depletion):
        for flag, value in (("--probe-layers", probe_layers), ("--depletion-rank", rank)):
            if value is not None:
                raise ValueError(f"{flag}: expected --jacobian or --depletion beside it")
        return []
    # the layer in the middle says most
    middle = [(settings.sizes()["layers"] + 1) // 2]
    probes = tuple(middle if probe_layers is None else listed("--probe-layers", probe_layers, int))
    trunk, _ = settings.split
    found: list[Penalty] = []
    if jacobian:
        found.append(JacobianPenalty(probes, jacobian, first=trunk))
    if depletion:
        found.append(MarginDepletion(probes, depletion, rank=trunk if rank is None else rank))
    return found
