"""What the commands share: consoles, strict JSON, the command line as it was given."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tacit.documents import dumps

if TYPE_CHECKING:
    from tacit.guarantees.base import Guarantee
    from tacit.pages.words import Verdict

LABEL_WIDTH = 13
# A name in a table or file may hold codes that a terminal obeys, or that turn the order of what is
# read; ends of lines stay.
TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
CONTROLS = dict.fromkeys(
    {*range(32), *range(127, 160), *TURNING} - {10}, "\N{REPLACEMENT CHARACTER}"
)
# Of a URL the password, and what its query calls so or holds one in: a whole text of ODBC.
PASSWORD = re.compile(
    r"(://[^:/@]*:)[^@]*(?=@)"
    r"|([?&][^=&\s']*(?:passw|pwd|secret|token|credential|odbc_connect)[^=&\s']*=)[^&']*",
    re.IGNORECASE,
)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would exit with 1, which says that a threshold is crossed
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        """Print with every control character but a line's end replaced."""
        super().print(*(_harmless(thing) for thing in objects), **options)


def consoles(json_to_stdout: bool) -> Console:
    """Return the console for people: standard error when standard output carries JSON."""
    return _Console(stderr=json_to_stdout, highlight=False, soft_wrap=True)


def harmless(text: str) -> str:
    """Return text without what a terminal would obey; every character stands for one."""
    return text.translate(CONTROLS)


def in_one_line(text: str) -> str:
    """Return text without ends of lines: a name is no line of what is told."""
    return " ".join(text.splitlines())


def _harmless(thing: Any) -> Any:
    if isinstance(thing, str):
        return harmless(thing)
    if isinstance(thing, Text):
        found = thing.copy()
        found.plain = harmless(thing.plain)
        return found
    return thing


def line(console: Console, label: str, text: str) -> None:
    """Print one labelled line."""
    console.print(Text(label.ljust(LABEL_WIDTH), style="dim") + Text(in_one_line(text)))


def tell_title(console: Console, found: Verdict) -> None:
    """Print a title, in red where nothing is guaranteed, and its conditions below it."""
    console.print(Text(found.title, "bold" if found.kind == "bounded" else "bold red"))
    if found.conditions:
        console.print(Text(found.conditions))


def tell_guarantee(console: Console, guarantee: Guarantee, title: str | None = None) -> None:
    """Print a guarantee as a title, or below another title, and the whole of it below."""
    from tacit.guarantees.one_line import one_line

    console.print(Text(f"{title or one_line(guarantee).text}.", "bold"))
    console.print(Text(guarantee.describe()))


def dump(content: Any, *, ascii_only: bool = False) -> str:
    """Return strict, indented JSON."""
    return dumps(content, name="--json", indent=2, ascii_only=ascii_only) + "\n"


def print_json(content: Any) -> None:
    """Print JSON, and nothing else, on standard output."""
    # of another encoding what all of them have, with the rest by number
    utf_8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(dump(content, ascii_only=not utf_8))
    sys.stdout.flush()


def command_line(untold: Collection[str] = ()) -> str:
    """Return the command as it was given, quoted for a shell, without the password of a URL.

    Args:
        untold: flags whose values are the secret: three dots stand for each.
    """
    given, hidden = list[str](), False
    for part in sys.argv[1:]:
        flag, sign, _ = part.partition("=")
        if hidden:
            given.append("...")
        else:
            given.append(f"{flag}=..." if sign and flag in untold else part)
        hidden = not hidden and part in untold
    quoted = (shlex.quote(part) for part in ("tacit", *given))
    return " ".join(PASSWORD.sub(r"\1\2***", part) for part in quoted)
