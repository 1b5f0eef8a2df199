"""How a measurement is told: on the terminal, and on a page where one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from tacit.cli.console import command_line, line
from tacit.cli.output import JsonOutput, json_output, new_file
from tacit.cli.publishing import Paged

if TYPE_CHECKING:
    from tacit.report import Measurement


def measured_outlets(flags: Paged, others: dict[str, str | None]) -> tuple[JsonOutput, Path | None]:
    """Return where JSON and page go; what could not be written is refused before the work.

    Args:
        flags: what was asked for.
        others: files that the command reads or writes beside, by flag.
    """
    output = json_output(flags.json, flags.force, {**others, "--report": flags.report})
    return output, new_file("--report", flags.report, flags.force)


def tell_measured(output: JsonOutput, page: Path | None, found: Measurement) -> None:
    """Print what was measured, write its page, and say whose it is."""
    output.console.print(Text(found.title, "bold"))
    for label, text in found.lines:
        line(output.console, label, text)
    if page is not None:
        from tacit._ground.files import write_text_atomic
        from tacit.report import render_measurement

        write_text_atomic("--report", page, render_measurement(found, command_line()))
        line(output.console, "report", str(page))
    output.tell()
    line(output.console, "keep", found.keep)
