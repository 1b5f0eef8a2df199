"""``tacit hidden attack``: find the prompts behind released states."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit.cli.completion import offered
from tacit.cli.console import line
from tacit.cli.hidden.quotients import attacked, read_rows, released_quotients
from tacit.cli.hidden.recorded import PATHS, RecordedFlags
from tacit.cli.options import grouped
from tacit.cli.output import JsonOutput, json_output, new_file, refuse_inputs
from tacit.cli.publishing import Paged

if TYPE_CHECKING:
    from tacit.attacks.retrieval.attack import RetrievalAttack
    from tacit.releases import Release

METRICS = ("euclidean", "mahalanobis")
# what is told of an attack beside how often it named the prompt
MEASURED = ("top10", "top100", "mrr", "last_token", "floor", "clean", "recall")


@grouped
def attack(
    released: Annotated[
        str, typer.Argument(help="Safetensors file that release or quotient wrote.")
    ],
    metric: Annotated[
        str,
        typer.Option(
            autocompletion=offered("euclidean", "mahalanobis"), help="euclidean or mahalanobis."
        ),
    ] = "mahalanobis",
    fitted: Annotated[
        str | None,
        typer.Option(help="File of `tacit hidden quotient --out`, where its release is attacked."),
    ] = None,
    *,
    recorded: RecordedFlags,
    outlet: Paged,
) -> None:
    """Find the prompts behind released states, from the bank (candidate set) and the covariance.

    Model, layer, texts, sizes and seed are those that the file names; what differs is refused.
    A release of quotients names no prompts: it is attacked with --fitted and --prompts.
    """
    output = json_output(outlet.json, outlet.force, {"--report": outlet.report})
    page = new_file("--report", outlet.report, outlet.force)
    import numpy as np

    from tacit._ground.checks import choice

    choice("--metric", metric, METRICS)
    if fitted is not None:
        quotients, held = released_quotients(released, fitted, "released")
        _tell(output, page, quotients, *attacked(quotients, held, recorded))
        return
    found_release = read_rows("released", released)
    made = getattr(found_release.details, "origin", None)
    if made is None:
        raise ValueError(
            f"released: {released} does not say which model and prompts it was made with, so that "
            "an attack on it would measure nothing; tacit hidden release writes files that do"
        )
    named = {**(made.flags or {}), **asdict(recorded)}
    read = {f"--{name.replace('_', '-')}": named.get(name) for name in PATHS}
    for flag, place in (("--json", output.path), ("--report", page)):
        if place is not None:
            refuse_inputs(flag, place, read)
    found, prefixes, origin = recorded.prepare(made, released)
    from tacit.attacks import Euclidean, Mahalanobis, retrieve

    details, seed = found_release.details, (origin.flags or {}).get("seed")
    assert seed is None or isinstance(seed, int)
    # a prompt that repeats is one candidate
    distinct, truth = np.unique(prefixes.bank.numpy(), axis=0, return_inverse=True)
    result = retrieve(
        found.states(prefixes.bank.new_tensor(distinct), origin.layer),
        details.states,
        truth.reshape(-1),
        metric=Euclidean() if metric == "euclidean" else Mahalanobis(details.covariance),
        last_tokens=distinct[:, -1],
        rng=seed,
    )
    told = f"layer {origin.layer} of {origin.model}, as {released} says"
    _tell(output, page, found_release, result, told)


def _tell(
    output: JsonOutput,
    page: Path | None,
    release: Release[Any],
    result: RetrievalAttack,
    told: str,
) -> None:
    """Print how often the prompt was named; write what the gate matches, and the page."""
    from tacit.hidden_states.codebooks.certificates import naming
    from tacit.hidden_states.origin import HOLDERS
    from tacit.measured import Interval
    from tacit.releases import Attack
    from tacit.releases.attack_file import AttackFile

    low, high = result.top1_interval
    (about, digest), *_ = release.digests
    found = AttackFile(
        about=about,
        digest=digest,
        attack=Attack(
            name=f"{result.metric} retrieval",
            task=naming(result.bank),
            success=Interval(result.top1, low, high, confidence=result.confidence),
            prior=1.0 / result.bank,
            trials=result.queries,
        ),
        measured={
            name: float(value) for name in MEASURED if (value := getattr(result, name)) is not None
        },
    )
    output.write(found.to_dict())
    if page is not None:
        from tacit.releases.attack_file import attacked as with_attacks
        from tacit.report import write_report

        # the release's own page, with this attack beside those it had
        write_report(with_attacks(release, [found]), page)
    console = output.console
    console.print(
        Text(
            f"The {result.metric} attacker names {result.top1:.1%} [{low:.1%}, {high:.1%}] of "
            f"{result.queries:,} prompts among {result.bank:,}.",
            "bold",
        )
    )
    line(console, "top 10", f"{result.top10:.1%}")
    line(console, "top 100", f"{result.top100:.1%}")
    line(console, "attacked", told)
    if page is not None:
        line(console, "report", str(page))
    line(console, "keep", HOLDERS)
    output.tell()
