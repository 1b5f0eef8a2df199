"""What every training command says at its end."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from tacit.cli.console import line
from tacit.cli.publishing import Destination
from tacit.releases import Release


def tell(destination: Destination, release: Release, saved: Path | None) -> None:
    """Print the verdict, ten lines, and which files were written."""
    from tacit.report.words import lines, verdict

    console, conclusion = destination.json.console, verdict(release.form)
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for label, text in lines(release.form):
        line(console, label, text)
    if saved is not None:
        line(console, "model", str(saved))
    destination.tell()
