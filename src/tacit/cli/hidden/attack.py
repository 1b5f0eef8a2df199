"""``tacit hidden attack``: find the prompts behind released states."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.hidden.recorded import PATHS, Recorded
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import json_output, refuse_inputs


@grouped
def attack(
    released: Annotated[str, typer.Argument(help="Safetensors file that release wrote.")],
    metric: Annotated[str, typer.Option(help="euclidean or mahalanobis.")] = "mahalanobis",
    json: Json = None,
    force: Force = False,
    *,
    recorded: Recorded,
) -> None:
    """Find the prompts behind released states, knowing the bank and the covariance.

    Model, layer, texts, sizes and seed are those that the file names; what differs is refused.
    """
    output = json_output(json, force)
    import numpy as np

    from tacit._ground.checks import choice

    choice("--metric", metric, ("euclidean", "mahalanobis"))
    from tacit.hidden_states.noise.release import HiddenRelease

    found_release = HiddenRelease.load(released)
    if found_release.origin is None:
        raise ValueError(
            f"released: {released} does not say which model and prompts it was made with, so that "
            "an attack on it would measure nothing; tacit hidden release writes files that do"
        )
    if output.path is not None:
        named = {**(found_release.origin.flags or {}), **asdict(recorded)}
        read = {f"--{name.replace('_', '-')}": named.get(name) for name in PATHS}
        refuse_inputs("--json", output.path, read)
    found, prefixes, origin = recorded.prepare(found_release.origin, released)
    from tacit.attacks.retrieval.attack import retrieve

    options: dict[str, Any] = (
        {} if metric == "euclidean" else {"covariance": found_release.design.covariance}
    )
    result = retrieve(
        found.states(prefixes.bank, origin.layer),
        found_release.states,
        np.arange(len(found_release.states)),
        metric=metric,
        last_tokens=prefixes.bank[:, -1].numpy(),
        rng=(origin.flags or {}).get("seed"),
        **options,
    )
    output.write({**result.to_dict(), "released": found_release.digest, "origin": origin.to_dict()})
    console = output.console
    low, high = result.top1_interval
    console.print(
        Text(
            f"The {metric} attacker names {result.top1:.1%} [{low:.1%}, {high:.1%}] of "
            f"{result.queries:,} prompts among {result.bank:,}.",
            "bold",
        )
    )
    line(console, "top 10", f"{result.top10:.1%}")
    line(console, "top 100", f"{result.top100:.1%}")
    line(console, "attacked", f"layer {origin.layer} of {origin.model}, as {released} says")
