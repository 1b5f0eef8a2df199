"""``tacit specification`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.specification import compare, make, show

app = typer.Typer(
    help="Describe a model or a task so that it can be found, and know what that tells.",
    no_args_is_help=True,
)
app.command("make")(make.make)
app.command("show")(show.show)
app.command("compare")(compare.compare)
