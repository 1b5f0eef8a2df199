"""Write ``reference/command-line.md`` from the commands: the page says what ``--help`` says."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from tacit.cli import app

PAGE = Path(__file__).parent / "reference" / "command-line.md"
HEAD = """# The command line

Every command with its options, as `tacit COMMAND --help` prints them. [Running the
commands](running.md) says what all commands print and write, and what their exit codes mean.

<!-- docs/commands.py writes this page from the commands. -->
"""
SHARED = "Options that mean the same everywhere"
SHARED_TEXT = "A command lists by name those of these that it takes; any other option is refused."
# A flag that so many commands of a group, or of all groups, say alike is explained once.
IN_GROUP, EVERYWHERE = 3, 6
LIST_HEAD = "| option | meaning |\n|---|---|\n"


@dataclass(frozen=True)
class Flag:
    """One option of a command, as a row of a table."""

    name: str
    text: str

    @property
    def row(self) -> str:
        """The row: how the flag is spelled, what it means and its default."""
        return f"| {self.name} | {self.text} |\n"


@dataclass(frozen=True)
class Command:
    """One command with what its help says."""

    path: str
    usage: str
    text: str
    arguments: tuple[Flag, ...]
    flags: tuple[Flag, ...]

    @property
    def group(self) -> str:
        """The first word behind ``tacit``."""
        return (self.path.split() or [""])[0]


@cache
def commands() -> tuple[Command, ...]:
    """Return every command, groups in their order in the help."""
    return tuple(_walk(typer.main.get_command(app), "", None))


def help_of_groups() -> dict[str, str]:
    """Return what the help of every group says, by its path."""
    root = typer.main.get_command(app)
    found: dict[str, str] = {}
    pending: list[tuple[str, Any, Any]] = [("", root, None)]
    while pending:
        path, command, above = pending.pop()
        if hasattr(command, "commands"):
            found[path] = _paragraphs(command.help)
            context = typer.Context(command, info_name=command.name, parent=above)
            for name in command.list_commands(context):
                pending.append(
                    (f"{path} {name}".strip(), command.get_command(context, name), context)
                )
    return found


def _walk(command: Any, path: str, above: Any) -> Iterator[Command]:
    context = typer.Context(command, info_name=command.name, parent=above)
    if not hasattr(command, "commands"):
        yield _command(command, path)
        return
    # a group's command without a name comes first
    names = command.list_commands(context)
    unnamed = [name for name in command.commands if name not in names]
    for name in [*unnamed, *names]:
        below = path if name in unnamed else f"{path} {name}".strip()
        yield from _walk(command.get_command(context, name), below, context)


def _command(command: Any, path: str) -> Command:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(["tacit", path, *(_placed(one) for one in arguments)])
    return Command(
        path=path,
        usage=usage,
        text=_paragraphs(command.help),
        arguments=tuple(Flag(f"`{_placed(one)}`", _told(one)) for one in arguments if one.help),
        flags=tuple(Flag(_spelled(one), _told(one)) for one in options if not one.hidden),
    )


def _placed(argument: Any) -> str:
    """Return an argument as the usage has it: in brackets where it may be left out."""
    name = (argument.metavar or argument.name).strip("[]").upper().removesuffix("...")
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _spelled(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    metavar = "" if option.metavar is None or option.is_flag else f" {option.metavar}"
    return ", ".join(f"`{name}{metavar}`".replace("|", r"\|") for name in names)


def _told(option: Any) -> str:
    """Return the help of an option or argument with what the help adds in brackets."""
    text = _escaped(" ".join((option.help or "").split()))
    default = option.default
    shown = option.show_default and default not in (None, "", False, (), [])
    if getattr(option, "is_flag", False):
        # of a pair the one that holds when neither is given
        default = option.opts[0] if default else None
        shown = bool(shown and option.secondary_opts)
    if option.required and option.param_type_name == "option":
        return f"{text} Required."
    return f"{text} Default: `{default}`." if shown else text


def _escaped(text: str) -> str:
    """Return text for a cell of a table: bars and stars that stand in no code are not markup."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text.replace("|", r"\|"))
    return "".join(part if part[:1] == "`" else part.replace("*", r"\*") for part in parts)


def _paragraphs(text: str | None) -> str:
    parts = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(_escaped(" ".join(part.split())) for part in parts)


def page() -> str:
    """Return the page."""
    every = commands()
    helped = help_of_groups()
    # a flag whose one meaning most commands share is explained once, at the end
    counted = Counter(flag for command in every for flag in command.flags)
    meanings = Counter(flag.name for flag in counted)
    shared = {
        flag: number
        for flag, number in counted.items()
        if number >= EVERYWHERE
        and meanings[flag.name] <= 1 + number // EVERYWHERE
        and len({command.group for command in every if flag in command.flags}) > 1
    }
    parts = [HEAD]
    for group in dict.fromkeys(command.group for command in every):
        own = [command for command in every if command.group == group]
        parts.append(_section(group, own, helped, set(shared)))
    rows = "".join(flag.row for flag in sorted(shared, key=lambda flag: flag.name))
    parts.append(f"## {SHARED}\n\n{SHARED_TEXT}\n\n{LIST_HEAD}{rows}")
    return "\n".join(parts)


def _section(group: str, own: list[Command], helped: dict[str, str], shared: set[Flag]) -> str:
    counted = Counter(flag for command in own for flag in command.flags)
    often = {flag for flag, number in counted.items() if number >= IN_GROUP} - shared
    alone = len(own) == 1 and own[0].path == group
    parts = [f"## `tacit {group}`\n"]
    if group in helped:
        parts.append(f"{helped[group]}\n")
    if often:
        rows = "".join(flag.row for flag in counted if flag in often)
        parts.append(f"Options of several commands of this group:\n\n{LIST_HEAD}{rows}")
    for command in own:
        if not alone:
            parts.append(f"### `{command.usage}`\n")
        else:
            parts.append(f"```text\n{command.usage}\n```\n")
        parts.append(f"{command.text}\n")
        rows = "".join(
            flag.row for flag in [*command.arguments, *command.flags] if flag not in often | shared
        )
        if rows:
            parts.append(f"{LIST_HEAD}{rows}")
        also = [flag.name for flag in command.flags if flag in often | shared]
        if also:
            parts.append(f"Also {', '.join(also)}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
