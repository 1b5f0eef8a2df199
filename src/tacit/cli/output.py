"""Where a command writes: new files, unless it is told to replace them, or standard output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tacit.cli.console import consoles, dump, line, print_json


@dataclass(frozen=True)
class JsonOutput:
    """Where ``--json`` goes: a file, standard output, or nowhere."""

    path: Path | None
    to_stdout: bool

    @property
    def console(self) -> Console:
        """The console for people: standard error when standard output carries JSON."""
        return consoles(self.to_stdout)

    def write(self, content: Any) -> None:
        """Write the content where it was asked for, whole or not at all."""
        from tacit._ground.files import write_text_atomic

        if self.path is not None:
            write_text_atomic("--json", self.path, dump(content))
        if self.to_stdout:
            print_json(content)

    def tell(self) -> None:
        """Say which file was written."""
        if self.path is not None:
            line(self.console, "json", str(self.path))


def json_output(json: str | None, force: bool) -> JsonOutput:
    """Return where ``--json`` goes, refused now where it could not be written later."""
    to_stdout = json == "-"
    return JsonOutput(None if to_stdout else new_file("--json", json, force), to_stdout)


def new_file(flag: str, path: str | None, force: bool) -> Path | None:
    """Return the path of a file to write: one that can be written, and is new unless forced."""
    from tacit._ground.files import check_writable

    if path is None:
        return None
    place = check_writable(flag, path)
    if place.exists() and not force:
        raise ValueError(f"{flag}: {place} exists already; --force replaces it")
    return place
