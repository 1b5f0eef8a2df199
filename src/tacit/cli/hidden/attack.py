"""``tacit hidden attack``: find the prompts behind released states."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.hidden.quotients import attacked, released_quotients
from tacit.cli.hidden.recorded import PATHS, Recorded
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import JsonOutput, json_output, refuse_inputs

if TYPE_CHECKING:
    from tacit.attacks.retrieval.attack import RetrievalAttack
    from tacit.hidden_states.origin import Origin


@grouped
def attack(
    released: Annotated[
        str, typer.Argument(help="Safetensors file that release or quotient wrote.")
    ],
    metric: Annotated[str, typer.Option(help="euclidean or mahalanobis.")] = "mahalanobis",
    fitted: Annotated[
        str | None,
        typer.Option(help="Quotient that quotient wrote, where its release is attacked."),
    ] = None,
    json: Json = None,
    force: Force = False,
    *,
    recorded: Recorded,
) -> None:
    """Find the prompts behind released states, knowing the bank and the covariance.

    Model, layer, texts, sizes and seed are those that the file names; what differs is refused.
    A release of quotients names no prompts: it is attacked with --fitted and --prompts.
    """
    output = json_output(json, force)
    import numpy as np

    from tacit._ground.checks import choice

    choice("--metric", metric, ("euclidean", "mahalanobis"))
    if fitted is not None:
        quotients, held = released_quotients(released, fitted, "released")
        result, told = attacked(quotients, held, recorded)
        _tell(output, result, "euclidean", quotients.digest, held.origin, told)
        return
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
    # a prompt that repeats is one candidate
    distinct, truth = np.unique(prefixes.bank.numpy(), axis=0, return_inverse=True)
    result = retrieve(
        found.states(prefixes.bank.new_tensor(distinct), origin.layer),
        found_release.states,
        truth.reshape(-1),
        metric=metric,
        last_tokens=distinct[:, -1],
        rng=(origin.flags or {}).get("seed"),
        **options,
    )
    told = f"layer {origin.layer} of {origin.model}, as {released} says"
    _tell(output, result, metric, found_release.digest, origin, told)


def _tell(
    output: JsonOutput, result: RetrievalAttack, metric: str, digest: str, origin: Origin | None,
    told: str,
) -> None:  # fmt: skip
    from tacit.hidden_states.origin import HOLDERS

    about = None if origin is None else origin.to_dict()
    output.write({**result.to_dict(), "released": digest, "origin": about})
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
    line(console, "attacked", told)
    line(console, "keep", HOLDERS)
    output.tell()
