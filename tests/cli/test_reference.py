"""The reference of the command line names every flag that a command takes."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tacit.cli import app

PAGE = Path(__file__).parents[2] / "docs/reference/command-line.md"
EVERYWHERE = "Flags that mean the same everywhere"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Give each command with the long names of its flags; one of a --yes/--no pair is enough."""
    pending = [((), typer.main.get_command(app), None)]
    while pending:
        path, command, above = pending.pop()
        context = typer.Context(command, info_name=command.name, parent=above)
        if hasattr(command, "commands"):
            # those that are imported when they are asked for, and the one that is not named
            for name in sorted({*command.list_commands(context), *command.commands}):
                pending.append(((*path, name), command.get_command(context, name), context))
        if not hasattr(command, "commands"):
            options = [p for p in command.params if p.param_type_name == "option"]
            yield (
                " ".join(path),
                [
                    "|".join(o for o in [*p.opts, *p.secondary_opts] if o.startswith("--"))
                    for p in options
                ],
            )


def sections() -> dict[str, str]:
    """Give the page's sections by heading."""
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0]: part for part in parts}


def missing(command: str, flags: list[str], found: dict[str, str]) -> list[str]:
    """Give the flags that neither the sections of a command's family nor the shared one name."""
    family = f"`tacit {command.split()[0]}"
    text = "".join(part for name, part in found.items() if family in name or name == EVERYWHERE)
    return [
        flag
        for flag in flags
        if not any(re.search(re.escape(one) + r"(?![\w-])", text) for one in flag.split("|"))
    ]


@pytest.mark.parametrize(("command", "flags"), list(commands()), ids=lambda value: str(value)[:40])
def test_every_flag_stands_in_the_reference(command, flags):
    assert not missing(command, flags, sections())


def test_a_flag_of_another_family_does_not_count():
    found = {"`tacit gate`": "`tacit gate` --max-success", "`tacit dock`": "--max-success-rate"}
    assert missing("dock serve", ["--max-success"], found) == ["--max-success"]


def test_every_extra_that_a_page_names_exists():
    root = PAGE.parents[2]

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:the\s+)?extras?\s+`(\w+)`", text)
        named += [
            n for group in re.findall(r"(?:tacit|\.)\[([\w,]+)\]'", text) for n in group.split(",")
        ]
        assert set(named) <= extras, page
