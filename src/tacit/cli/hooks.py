"""Commands of every installed distribution, which hook in by entry points."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tacit._ground.entry_points import EntryPoint, entry_points

# The group of entry points under which a distribution names its commands: NAME for a command of
# tacit, GROUP.NAME for one of a group.
GROUP = "tacit.commands"
CONTEXT = {"help_option_names": ["-h", "--help"]}


class Commands(TyperGroup):
    """A group's own commands, and those that hook in, each imported when it is asked for."""

    listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names."""
        return [*super().list_commands(ctx), *sorted(self._hooked(ctx))]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: a line for every command, of which none is imported for it."""
        self.listing = True
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command; None where there is none of the name."""
        place = self._hooked(ctx).get(name)
        if place is None:
            return super().get_command(ctx, name)
        if self.listing:
            return TyperCommand(name, help=_described(place))
        found = place.load()
        if isinstance(found, typer.Typer):
            return _named(typer.main.get_group(found), name)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name, context_settings=CONTEXT)(found)
        return _named(typer.main.get_command(alone), name)

    def _hooked(self, ctx: Any) -> dict[str, EntryPoint]:
        """Return what hooks in here, by name."""
        return _places().get("" if ctx.parent is None else str(self.name), {})


def _named(command: Any, name: str) -> Any:
    command.name = name
    return command


def _described(place: EntryPoint) -> str:
    """Return the text of a command from its source: a function's docstring, or a group's help."""
    spec = find_spec(place.module)
    if spec is None or spec.origin is None:
        return ""
    text = Path(spec.origin).read_text("utf-8")
    # the function or the assignment alone: up to the next line that starts at the margin
    definition = rf"^(?:def {place.attr}\(|{place.attr} = ).*?(?=^[^\s)]|\Z)"
    source = re.search(definition, text, re.DOTALL | re.MULTILINE)
    if source is None:
        return ""
    try:
        statement = ast.parse(source[0]).body[0]
    except SyntaxError:
        # a text within it goes on at the margin: the whole is read
        line = text.count("\n", 0, source.start()) + 1
        statement = next(one for one in ast.parse(text).body if (one.end_lineno or 0) >= line)
    if isinstance(statement, ast.FunctionDef):
        return ast.get_docstring(statement) or ""
    words = getattr(getattr(statement, "value", None), "keywords", ())
    said = {word.arg: word.value for word in words}.get("help")
    return str(said.value) if isinstance(said, ast.Constant) else ""


@cache
def _places() -> dict[str, dict[str, EntryPoint]]:
    """Return every entry point by its group, "" for tacit itself, and its name."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for place in entry_points(GROUP):
        group, _, name = place.name.rpartition(".")
        found.setdefault(group, {})[name] = place
    return found
