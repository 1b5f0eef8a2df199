"""``tacit hidden features``: what a layer's prediction needs of a transcoder's features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit._ground.checks import choice, integer, positive
from tacit.cli.console import command_line, line
from tacit.cli.hidden.inputs import Bank, Calibration, Layer, PromptFlags, llm_extra
from tacit.cli.options import Force, Json, Report, grouped
from tacit.cli.output import json_output, new_file

if TYPE_CHECKING:
    from tacit.hidden_states import Transcoder

ACTIVE = 32


@grouped
def features(
    layer: Layer,
    transcoder: Annotated[
        str | None,
        typer.Option(help="Safetensors file of features; trained here when left out."),
    ] = None,
    reads: Annotated[
        str | None,
        typer.Option(help="mlp: what the MLP is given and adds. stream: the state, to itself."),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Of the training: two-cores, when left out, or gpu.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Of training; as the size says when left out.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--features", help="F; a multiple of the width when left out.")
    ] = None,
    active: Annotated[
        int | None, typer.Option(help="k features that are active at most; 32 when left out.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="τ in nats: a higher score is backbone, a lower one scaffold.")
    ] = 1e-3,
    bank: Bank = 500,
    calibration: Calibration = 3000,
    scored: Annotated[int, typer.Option(help="Other prompts, to score features on.")] = 1000,
    out: Annotated[
        str | None, typer.Option(help="Safetensors file of the trained features to write.")
    ] = None,
    report: Report = None,
    json: Json = None,
    force: Force = False,
    *,
    source: PromptFlags,
) -> None:
    """Take out every feature of a layer, and measure what the prediction and an attacker lose."""
    others = {"--texts": source.texts, "--transcoder": transcoder, "--out": out, "--report": report}
    output = json_output(json, force, others)
    page, target = new_file("--report", report, force), new_file("--out", out, force)
    training = {"--out": out, "--size": size, "--steps": steps, "--features": count,
                "--active": active}  # fmt: skip
    beside = [flag for flag, value in training.items() if value is not None]
    if transcoder is not None and beside:
        raise ValueError(
            f"--transcoder: expected no flag of training beside it, got {', '.join(beside)}"
        )
    if reads is not None:
        choice("--reads", reads, ("mlp", "stream"))
    choice("--size", size := size or "two-cores", ("two-cores", "gpu"))
    positive("--threshold", threshold)
    most = integer("--active", ACTIVE if active is None else active, minimum=1)
    if count is not None and most > integer("--features", count, minimum=1):
        raise ValueError(f"--active: expected at most --features, {count}, got {most}")
    integer("--bank", bank, minimum=4)
    integer("--scored", scored, minimum=2)
    coder = _loaded(transcoder, reads)
    counts = {"bank": bank, "calibration": calibration, "held_out": scored}
    found, prefixes = source.prepare(layer, **counts)
    from tacit.hidden_states import measure_features, train_transcoder
    from tacit.hidden_states.features.training import SIZES
    from tacit.releases import Provenance
    from tacit.report import write_report

    if coder is None:
        integer("--active", most, maximum=count or SIZES[size][0] * found.width)
        coder = train_transcoder(
            found, layer, prefixes.calibration, features=count, top_k=most,
            reads=reads or "mlp", size=size, steps=steps, seed=source.seed,
        )  # fmt: skip
        if target is not None:
            coder.save(target)
    result = measure_features(
        found, layer, coder, prefixes.bank, prefixes.held_out, threshold=threshold,
        rng=source.seed,
    )  # fmt: skip
    provenance = Provenance.capture(
        command_line(), data_name=source.data_name, data_rows=result.bank
    )
    output.write({**result.to_dict(), "provenance": provenance.to_dict()})
    console, told = output.console, result.scores.summary()
    console.print(Text(result.describe(), "bold"))
    explained = coder.trained.get("explained")
    if isinstance(explained, float):
        line(console, "features", f"{explained:.1%} of the variance explained")
    line(console, "told", f"{told['backbone_told']} backbone and {told['scaffold_told']} scaffold "
         "hold beside all others at once")  # fmt: skip
    line(console, "codes", ", ".join(
        f"{name} {held['top1'][0]:.3f}" for name, held in result.named.items()
    ))  # fmt: skip
    line(console, "note", "removing features is no noise: it certifies nothing")
    if target is not None:
        line(console, "out", str(target))
    if page is not None:
        line(console, "report", str(write_report(result, page, provenance)))
    output.tell()


def _loaded(path: str | None, reads: str | None) -> Transcoder | None:
    """Return the features that a file holds."""
    if path is None:
        return None
    with llm_extra():
        from tacit.hidden_states import Transcoder

        try:
            return Transcoder.load(path, reads=reads)
        except ValueError as error:
            raise ValueError(f"--transcoder: {str(error).removeprefix('path: ')}") from None
