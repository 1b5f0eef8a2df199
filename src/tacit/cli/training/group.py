"""``tacit training`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.hooks import Commands
from tacit.cli.training import check, contribution

app = typer.Typer(
    cls=Commands,
    help="Train so that the model hardly differs from one without any single source.",
    no_args_is_help=True,
)
app.command("check")(check.check)
app.command("contribution")(contribution.contribution)
