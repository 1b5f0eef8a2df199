"""``tacit adapter`` and its commands."""

from __future__ import annotations

import typer

from tacit.cli.adapter import audit, fit, show

app = typer.Typer(
    help="Fine-tune a low-rank adapter so that no record can be told from it, and audit it.",
    no_args_is_help=True,
)
app.command("fit")(fit.fit)
app.command("audit")(audit.audit)
app.command("show")(show.show)
