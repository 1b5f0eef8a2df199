"""Where a command writes: new files, unless it is told to replace them, or standard output."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tacit.cli.console import consoles, dump, line, print_json

# what the command was called with
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())
# how every database of SQLite begins: a ledger is one, and its copy may be what is left of it
SQLITE = b"SQLite format 3\0"
# flags under which a folder is read, not a file alone
FOLDERS = ("--prompts", "--texts", "--public-texts", "--model", "--encoder")


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


def json_output(
    json: str | None, force: bool, others: Mapping[str, str | None] | None = None
) -> JsonOutput:
    """Return where ``--json`` goes, refused now where it could not be written later.

    Args:
        json: what the flag says.
        force: whether a file that exists is replaced.
        others: files that the command reads or writes beside it, by flag: no two are the same.
    """
    to_stdout = json == "-"
    given = {**(others or {}), "--json": None if to_stdout else json}
    check_distinct({flag: absolute_path(path) for flag, path in given.items()})
    return JsonOutput(None if to_stdout else new_file("--json", json, force), to_stdout)


def new_file(flag: str, path: str | None, force: bool) -> Path | None:
    """Return the path of a file to write: one that can be written, and is new unless forced."""
    from tacit._ground.files import check_writable

    if path is None:
        return None
    if path == "-":
        raise ValueError(f"{flag}: expected a file, got -, which is for --json alone")
    place = check_writable(flag, path)
    if place.exists() and not force:
        raise ValueError(f"{flag}: {place} exists already; --force replaces it")
    refuse_inputs(flag, place)
    if is_database(place):
        raise ValueError(
            f"{flag}: expected a file to write, got {place}, a database of SQLite as a ledger is: "
            "--force replaces none"
        )
    return place


def is_database(place: Path) -> bool:
    """Whether a file begins as a database of SQLite does."""
    try:
        # a pipe would wait for whoever writes to it
        if not place.is_file():
            return False
        with place.open("rb") as stream:
            return stream.read(len(SQLITE)) == SQLITE
    except OSError:
        # what cannot be read is none that is known
        return False


def refuse_inputs(flag: str, place: Path, others: Mapping[str, Any] | None = None) -> None:
    """Refuse to write over a file that the command was given under another flag.

    Two names of one file are one file, and what stands in a folder of texts or of a model is read
    with it.

    Args:
        flag: of what is written.
        place: where.
        others: paths by flag that are read; what stands on the command line when left out.
    """
    if not place.exists():
        return
    read = _given(ARGUMENTS.get()) if others is None else list(others.items())
    for other, path in read:
        if other == flag or not isinstance(path, str) or not path:
            continue
        try:
            held = Path(path).expanduser()
            inside = other in FOLDERS and held.is_dir() and held.resolve() in place.parents
            same = held.exists() and place.samefile(held)
        except (OSError, ValueError, RuntimeError):
            # what can be no path is no input
            continue
        if same or inside:
            raise ValueError(f"{flag}: expected another file than {other}, got {place} twice")


def was_given(flag: str) -> bool:
    """Whether a flag stands on the command line, with its default even."""
    return any(word.partition("=")[0] == flag for word in ARGUMENTS.get())


def _given(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return what stands on a command line as (flag, value), arguments without one by ARGUMENT.

    Of NAME=PATH the path stands there too.
    """
    found, before = list[tuple[str, str]](), ""
    for word in arguments:
        flag, equals, value = word.partition("=")
        alone = word.startswith("-") and not equals
        if not word.startswith("-"):
            flag, value = before or "ARGUMENT", word
        if not alone:
            found += [(flag, value), (flag, value.partition("=")[2])]
        before = word if alone else ""
    return found


def check_distinct(paths: dict[str, Path | None]) -> None:
    """Refuse one file under two flags."""
    seen: dict[Path, str] = {}
    for flag, path in paths.items():
        if path is None:
            continue
        if path in seen:
            raise ValueError(f"{flag}: expected another file than {seen[path]}, got {path} twice")
        seen[path] = flag


def absolute_path(path: str | None) -> Path | None:
    """Return a path as it would be written, links followed; None for none."""
    if path is None:
        return None
    try:
        return Path(os.path.realpath(os.path.expanduser(path)))
    except ValueError:
        # no path at all, for a zero byte: whoever opens it refuses it by its flag
        return Path(path)


def ledger_file(location: str) -> Path | None:
    """Return the file of a ledger, None where it is in a database elsewhere."""
    from tacit.databases import parse_location

    url = parse_location("--ledger", location)
    return absolute_path(str(url.database)) if url.get_backend_name() == "sqlite" else None
