"""``tacit hidden trajectory``: a code read at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tacit._ground.checks import choice, integer
from tacit.cli.hidden.inputs import Calibration, LayerFlags, PromptFlags
from tacit.cli.hidden.measured import measured_outlets, tell_measured
from tacit.cli.options import grouped
from tacit.cli.publishing import Paged

KEPT = ("states", "cache")


@dataclass(frozen=True, kw_only=True)
class ContinuedLayer(LayerFlags):
    """The layer, or the last of the layers, whose codes are kept, and the prompts."""

    bank: Annotated[int, typer.Option(help="Prompts that are continued, and told apart.")] = 200
    calibration: Calibration = 3000


@grouped
def trajectory(
    keep: Annotated[
        str,
        typer.Option(
            help="states codes the states of the layer, cache the keys and values of all heads."
        ),
    ] = "states",
    codewords: Annotated[
        int, typer.Option(help="Number of codes of a state, a key or a value (C).")
    ] = 1024,
    steps: Annotated[
        int, typer.Option("--generated", help="Tokens generated after every prompt.")
    ] = 32,
    *,
    taken: ContinuedLayer,
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Generate from codes of all positions beside the model itself, and count what they tell.

    With --keep cache the layers up to --layer keep codes of keys and values. The answer names
    what is not coded, as bounds are about the codes alone.
    """
    output, page = measured_outlets(outlet, {"--texts": source.texts})
    choice("--keep", keep, KEPT)
    integer("--codewords", codewords, minimum=2)
    integer("--generated", steps, minimum=1)
    integer("--bank", taken.bank, minimum=2)
    layer = taken.layer
    found, prefixes = source.prepare(layer, **taken.asked)
    from tacit.hidden_states import (
        CacheCoder,
        Codebook,
        CodebookFit,
        StateCoder,
        measure_generation,
    )
    from tacit.hidden_states.origin import HOLDERS
    from tacit.hidden_states.trajectories.coders import Coder
    from tacit.models.padding import PADDING
    from tacit.report import Measurement

    coder: Coder
    if keep == "cache":
        coder = CacheCoder.fit(
            found, prefixes.calibration, size=codewords, layers=range(1, layer + 1),
            rng=source.seed,
        )  # fmt: skip
    else:
        states = found.states(prefixes.calibration, layer, positions="all")
        real = prefixes.calibration != PADDING
        how = CodebookFit(size=codewords, least_cell=1)
        book = Codebook.fit(states[real], how, rng=source.seed)
        coder = StateCoder(book, layer)
    result = measure_generation(found, coder, prefixes.bank, steps=steps)
    output.write({**result.to_dict(), "model": found.name, "layer": layer, "codewords": codewords})
    held, never = result.certificate, result.departure > result.steps
    lines = [("success", held.success.describe()), ("any prompt", held.leakage.describe())]
    if result.beside:
        lines.append(("of the codes", f"alone: {result.beside} are not coded, and tell the prompt"))
    departure = (
        f"more than half of the prompts do not differ within {result.steps} tokens"
        if never
        else f"half of the prompts differ by token {result.departure:g}"
    )
    told = Measurement(
        about=f"codes of layer {layer} of {found.name}",
        title=result.describe(),
        lines=[*lines, ("departure", departure)],
        keep=HOLDERS,
    )
    tell_measured(output, page, told)
