"""``tacit model`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.model import train

app = typer.Typer(
    help="Train a small language model of your own, to audit, attack and compare.",
    no_args_is_help=True,
)
app.command("train")(train.train)


@app.callback()
def _group() -> None:
    """Keep the command's name, though it is the only one."""
