"""``tacit hidden features``: what a layer's prediction needs of a transcoder's features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import line
from tacit.cli.hidden.inputs import Bank, Calibration, LayerFlags, PromptFlags, llm_extra
from tacit.cli.options import Only, grouped
from tacit.cli.output import new_file, was_given
from tacit.cli.publishing import Destination, Paged, Source
from tacit.hidden_states.features.methods import Scoring, TranscoderFit

if TYPE_CHECKING:
    from tacit.hidden_states import Transcoder
    from tacit.hidden_states.features.study import FeatureStudy
    from tacit.releases import Release

# What trains features, and so stands beside none that are read.
OF_TRAINING = ("--out", "--preset", "--steps", "--features", "--active")


@dataclass(frozen=True, kw_only=True)
class ScoredLayer(LayerFlags):
    """The layer whose features are scored, and the prompts."""

    bank: Bank = 500
    calibration: Calibration = 3000
    scored: Annotated[
        int, typer.Option("--measured", help="Other prompts, to score features on.")
    ] = 1000


@grouped
def features(
    transcoder: Annotated[
        str | None,
        typer.Option(help="Safetensors file of features; trained here when left out."),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Safetensors file of the trained features to write.")
    ] = None,
    *,
    taken: ScoredLayer,
    how: Annotated[TranscoderFit, Only("reads", "size", "steps", "features", "top_k")],
    scoring: Annotated[Scoring, Only("threshold")],
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Take out every feature of a layer, and measure what the prediction and an attacker lose."""
    others = {"--texts": source.texts, "--transcoder": transcoder, "--out": out}
    read = Source(path=None, name=source.data_name)
    destination = Destination.checked(outlet, read, others=others)
    target = new_file("--out", out, outlet.force)
    beside = [flag for flag in OF_TRAINING if was_given(flag)]
    if transcoder is not None and beside:
        raise ValueError(
            f"--transcoder: expected no flag of training beside it, got {', '.join(beside)}"
        )
    integer("--bank", taken.bank, minimum=4)
    integer("--measured", taken.scored, minimum=2)
    reads = how.reads if was_given("--reads") else None
    coder = None if transcoder is None else _loaded(transcoder, reads)
    layer = taken.layer
    model, prefixes = source.prepare(layer, **taken.asked, held_out=taken.scored)
    from tacit.hidden_states import measure_features, train_transcoder

    if coder is None:
        how = _at_width(how, model.width)
        coder = train_transcoder(model, layer, prefixes.calibration, how, seed=source.seed)
        if target is not None:
            coder.save(target)
    study = measure_features(
        model, layer, coder, prefixes.bank, prefixes.held_out, scoring, rng=source.seed
    )
    destination = replace(destination, source=replace(read, rows=study.details.bank))
    study = destination.stated(study)
    destination.store(study)
    _tell(destination, study)
    if target is not None:
        line(destination.json.console, "out", str(target))


def _tell(destination: Destination, study: Release[FeatureStudy]) -> None:
    console, details = destination.json.console, study.details
    told = details.scores.summary()
    console.print(Text(details.describe(), "bold"))
    if "explained" in details.trained:
        line(console, "features", f"{details.trained['explained']:.1%} of the variance explained")
    line(console, "told", f"{told['backbone_told']} backbone and {told['scaffold_told']} scaffold "
         "hold beside all others at once")  # fmt: skip
    codes = (f"{name} {code.top1[0]:.3f}" for name, code in details.named.items())
    line(console, "codes", ", ".join(codes))
    line(console, "note", "removing features is no noise: it certifies nothing")
    destination.tell(study.withheld)


def _at_width(how: TranscoderFit, width: int) -> TranscoderFit:
    """Return how features of a model are trained, or say which flag asks for more than there are.

    Raises:
        ValueError: more are active than the size has.
    """
    try:
        return how.at_width(width)
    except ValueError as error:
        raise ValueError(str(error).replace("top_k", "--active", 1)) from None


def _loaded(path: str, reads: str | None) -> Transcoder:
    """Return the features that a file holds."""
    with llm_extra():
        from tacit.hidden_states import Transcoder

        try:
            return Transcoder.load(path, reads=reads)
        except ValueError as error:
            raise ValueError(f"--transcoder: {str(error).removeprefix('path: ')}") from None
