"""``tacit training`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.training import contribution, memorisation, poisoning

app = typer.Typer(
    help="Train so that the model hardly differs from one without any single source.",
    no_args_is_help=True,
)
app.command("contribution")(contribution.contribution)
app.command("poisoning")(poisoning.poisoning)
app.command("memorisation")(memorisation.memorisation)
