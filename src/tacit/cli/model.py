"""``tacit model``: a language model of your own, a GPT or one with a split state, from any text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

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


@dataclass(frozen=True, kw_only=True)
class PenaltyFlags:
    """What is added to the loss, so that states tell less."""

    panel: ClassVar[str] = "Penalties"

    jacobian: Annotated[
        float, typer.Option(help="Weight of the penalty ‖∂ logits/∂v‖² of a split state.")
    ] = 0.0
    depletion: Annotated[
        float, typer.Option(help="Weight of the penalty on margins in the leading directions of F.")
    ] = 0.0
    probe_layers: Annotated[
        str | None,
        typer.Option(help="Layers that the penalties act on. The middle one when left out."),
    ] = None
    depletion_rank: Annotated[
        int | None,
        typer.Option(
            help="Number of leading directions that --depletion acts on. "
            "When left out r, or a quarter of a GPT's width."
        ),
    ] = None

    def __post_init__(self) -> None:
        # a negative weight would be a reward
        for flag, weight in (("--jacobian", self.jacobian), ("--depletion", self.depletion)):
            non_negative(flag, weight)

    def of(self, settings: ModelSettings) -> list[Penalty]:
        """Return the penalties of a model, or say which flag makes no sense beside the others."""
        from tacit.models import JacobianPenalty, MarginDepletion

        if self.jacobian and settings.architecture != "split-memory":
            raise ValueError(
                "--jacobian: expected --architecture split-memory, whose memory it penalises"
            )
        given = {"--probe-layers": self.probe_layers, "--depletion-rank": self.depletion_rank}
        # a flag of penalties without one would be obeyed by nothing
        if not (self.jacobian or self.depletion):
            for flag, value in given.items():
                if value is not None:
                    raise ValueError(f"{flag}: expected --jacobian or --depletion beside it")
            return []
        # the layer in the middle says most
        probes = [(settings.sizes()["layers"] + 1) // 2]
        if self.probe_layers is not None:
            probes = listed("--probe-layers", self.probe_layers, int)
        trunk, _ = settings.split
        rank = trunk if self.depletion_rank is None else self.depletion_rank
        found: list[Penalty] = []
        if self.jacobian:
            found.append(JacobianPenalty(tuple(probes), self.jacobian, first=trunk))
        if self.depletion:
            found.append(MarginDepletion(tuple(probes), self.depletion, rank=rank))
        return found


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
    device: Annotated[str, typer.Option(help="Where it trains: cpu, cuda.")] = "cpu",
    *,
    penalties: PenaltyFlags,
    settings: ModelSettings,
    run: Annotated[Run, Only("minutes", "steps", "precision", "checkpoint")],
    outlet: Outlet,
) -> None:
    """Train a language model with its own tokenizer; the folder loads wherever a model is asked.

    Training promises nothing about the text; tacit training memorisation measures what a model
    keeps of it.
    """
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
        penalties=penalties.of(settings),
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
