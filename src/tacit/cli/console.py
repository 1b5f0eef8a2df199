"""What the commands share: consoles, strict JSON, the command line as it was given."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from tacit.documents import dumps

LABEL_WIDTH = 13
PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]*@")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would exit with 1, which says that a threshold is crossed
        raise BrokenPipeError


def consoles(json_to_stdout: bool) -> Console:
    """Return the console for people: standard error when standard output carries JSON."""
    return _Console(stderr=json_to_stdout, highlight=False, soft_wrap=True)


def line(console: Console, label: str, text: str) -> None:
    """Print one labelled line."""
    console.print(Text(label.ljust(LABEL_WIDTH), style="dim") + Text(text))


def dump(content: Any) -> str:
    """Return strict, indented JSON."""
    return dumps(content, name="--json", indent=2) + "\n"


def print_json(content: Any) -> None:
    """Print JSON, and nothing else, on standard output."""
    sys.stdout.write(dump(content))
    sys.stdout.flush()


def command_line() -> str:
    """Return the command as it was given, quoted for a shell, without the password of a URL."""
    return PASSWORD.sub(r"\1***@", shlex.join(["tacit", *sys.argv[1:]]))
