"""``tacit model train``: a GPT, or a model with a split state, from any text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._ground.checks import choice, non_negative
from tacit._ground.memory import keep_freed_memory
from tacit.cli.console import line
from tacit.cli.hidden.inputs import listed, llm_extra
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output

if TYPE_CHECKING:
    from tacit.models import Penalty

INSTALLED = "the docstrings of this installation"


def train(
    out: Annotated[str, typer.Option(help="New folder to write, in the form of transformers.")],
    text: Annotated[
        str | None,
        typer.Argument(
            help=f".txt or .txt.gz file, or a folder of them; {INSTALLED} when left out.",
            show_default=False,
        ),
    ] = None,
    architecture: Annotated[
        str, typer.Option(help="gpt; or split-memory: states (u, v), logits read from u alone.")
    ] = "gpt",
    preset: Annotated[
        str | None,
        typer.Option(help="two-cores, about 10 million parameters; or gpu, about 90 million."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time of the optimisation.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps, for a result that can be repeated.")
    ] = None,
    width: Annotated[int | None, typer.Option(help="d, numbers in a state.")] = None,
    trunk_width: Annotated[int | None, typer.Option(help="r, numbers of u.")] = None,
    layers: Annotated[int | None, typer.Option(help="L, decoder layers.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads of a layer.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens it reads at most.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Tokens of its BPE at most.")] = None,
    batch: Annotated[int | None, typer.Option(help="Windows a step.")] = None,
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
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 0,
    precision: Annotated[
        str,
        typer.Option(
            help="Of products: float32, the same on every machine; bfloat16; or auto, bfloat16 "
            "where the processor has it."
        ),
    ] = "auto",
    device: Annotated[str, typer.Option(help="Where it trains: cpu, cuda.")] = "cpu",
    checkpoint: Annotated[
        str | None, typer.Option(help="File from which the same command goes on when interrupted.")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Train a language model with its own tokenizer; the folder loads wherever a model is asked.

    Training promises nothing about the text: what it keeps of it is for tacit training
    memorisation to measure.
    """
    for flag, weight in (("--jacobian", jacobian), ("--depletion", depletion)):
        non_negative(flag, weight)
    output = json_output(json, force, {"TEXT": text, "--checkpoint": checkpoint})
    with llm_extra():
        from tacit.models import docstring_corpus, training_preset
        from tacit.models import train as train_model
    keep_freed_memory()
    choice("--architecture", architecture, ("gpt", "split-memory"))
    settings: dict[str, Any] = {"architecture": architecture}
    if preset is not None:
        settings |= training_preset(choice("--preset", preset, ("two-cores", "gpu")), architecture)
    if steps is not None or minutes is not None:
        settings |= {"steps": steps, "minutes": minutes}
    sizes = {"width": width, "trunk_width": trunk_width, "layers": layers, "heads": heads,
             "context": context, "vocabulary": vocabulary, "batch": batch}  # fmt: skip
    settings |= {name: value for name, value in sizes.items() if value is not None}
    penalties = _penalties(settings, jacobian, depletion, probe_layers, depletion_rank)
    model = train_model(
        docstring_corpus() if text is None else Path(text),
        **settings,
        penalties=penalties,
        seed=seed,
        precision=choice("--precision", precision, ("auto", "float32", "bfloat16")),
        device=device,
        checkpoint=checkpoint,
        out=out,
    )
    recipe = model.recipe
    for label, value in (
        ("model", f"{out}: {model.layers} layers of {model.width} numbers, "
                  f"{sum(p.numel() for p in model.network.parameters()):,} parameters"),
        ("trained", f"{recipe['steps']:,} steps on {recipe['tokens_read']:,} tokens in "
                    f"{recipe['seconds']:.0f} s, {recipe['precision']}"),
        ("perplexity", f"{recipe['held_out_perplexity']:.1f} a token of text it never saw"),
        ("next", f"tacit hidden sweep --model {out}"),
    ):  # fmt: skip
        line(output.console, label, value)
    output.write({"out": out, **recipe})
    output.tell()


def _penalties(
    settings: dict[str, Any],
    jacobian: float,
    depletion: float,
    probe_layers: str | None,
    rank: int | None,
) -> list[Penalty]:
    from tacit.models import JacobianPenalty, MarginDepletion
    from tacit.models.small.settings import Settings

    named = {name: value for name, value in settings.items() if name in ("width", "layers")}
    known = Settings(**named, trunk_width=settings.get("trunk_width"))
    split = settings["architecture"] == "split-memory"
    if jacobian and not split:
        raise ValueError("--jacobian: expected --architecture split-memory, whose memory it is of")
    if not (jacobian or depletion):
        for flag, value in (("--probe-layers", probe_layers), ("--depletion-rank", rank)):
            if value is not None:
                raise ValueError(f"{flag}: expected --jacobian or --depletion beside it")
        return []
    middle = [(known.layers + 1) // 2]
    probes = tuple(middle if probe_layers is None else listed("--probe-layers", probe_layers, int))
    trunk, _ = known.split
    found: list[Penalty] = []
    if jacobian:
        found.append(JacobianPenalty(probes, jacobian, first=trunk))
    if depletion:
        found.append(MarginDepletion(probes, depletion, rank=trunk if rank is None else rank))
    return found
