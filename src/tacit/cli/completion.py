"""What the shell offers behind an option: words, and the columns of the table that is read."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import typer

# A header longer than this is not read for a keystroke.
MOST_BYTES = 65_536
TABLES = (".csv", ".tsv")


def offered(*words: str) -> Callable[[str], list[str]]:
    """Return what completes one of some words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def column(context: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the table on the command line that an entry may go on with.

    What stands before the last comma is kept. Only a header line of text is read: whatever else
    the table is, nothing is offered.
    """
    before, comma, begun = incomplete.rpartition(",")
    # arguments in front of an option that is not whole yet are still to be read
    path = context.params.get("data") or next(iter(context.args), None)
    if not isinstance(path, str) or not path.endswith(TABLES):
        return []
    try:
        with Path(path).open(encoding="utf-8", newline="") as lines:
            head = lines.readline(MOST_BYTES)
    except (OSError, ValueError):
        return []
    delimiter = max((",", ";", "\t", "|"), key=head.count)
    names = next(csv.reader([head], delimiter=delimiter), [])
    kept = f"{before}{comma}"
    return [f"{kept}{name}" for name in names if name.startswith(begun)]
