"""``tacit gate``: an exit code for continuous integration."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.options import Force, Json
from tacit.cli.output import json_output


def gate(
    release: Annotated[
        str, typer.Argument(help="JSON of a release or an audit, written by --json.")
    ],
    max_success: Annotated[
        float | None, typer.Option(help="Largest success bound allowed, in (0, 1].")
    ] = None,
    max_information: Annotated[
        float | None, typer.Option(help="Largest information bound allowed, in nats.")
    ] = None,
    max_attack: Annotated[
        float | None,
        typer.Option(
            help="Largest measured attack allowed (upper end of its interval), in (0, 1]."
        ),
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option(
            help="Least agreement an audit's release keeps (lower end of its interval), in (0, 1]."
        ),
    ] = None,
    max_kl: Annotated[
        float | None,
        typer.Option(help="Largest KL of an audit's release (upper end of its interval), in nats."),
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Exit 0 when a release or audit holds every threshold, 1 when not, 2 on bad input."""
    output = json_output(json, force, {"RELEASE": release})
    from tacit.gate import check_release

    result = check_release(
        release,
        max_success=max_success,
        max_information=max_information,
        max_attack=max_attack,
        min_agreement=min_agreement,
        max_kl=max_kl,
    )
    output.write(result.to_dict())
    console = output.console
    if result.reproducible:
        console.print(
            Text(
                "crossed: the release is reproducible (seeded), so it has no guarantee", "bold red"
            )
        )
    for check in result.checks:
        style = "green" if check.holds else "bold red"
        sentence = f"{'holds' if check.holds else 'crossed'}: {check.sentence}"
        console.print(Text(sentence, style))
    raise typer.Exit(0 if result.passed else 1)
