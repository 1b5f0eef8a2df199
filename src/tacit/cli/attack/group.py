"""``tacit attack`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.attack import invert

app = typer.Typer(
    help="Train an attacker against what a model would store, and measure what it reads.",
    no_args_is_help=True,
)
app.command("invert")(invert.invert)


@app.callback()
def _group() -> None:
    pass
