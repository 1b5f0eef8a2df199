"""Every command refuses what it cannot read in one sentence: flag, what was expected, what came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from tacit.cli import app
from tests.cli_runner import Tacit, refused
from tests.interference.registry import commands

GROUP = typer.main.get_group(app)
COMMANDS = commands(GROUP)
NUMBERS = {
    "integer": "expected a whole number, got 'many'",
    "float": "expected a number, got 'many'",
}


def parameters(name: str) -> list[Any]:
    """Return the flags and arguments of a command."""
    found: Any = GROUP
    context = typer.Context(GROUP, info_name="tacit")
    for word in name.split():
        found = found.get_command(context, word)
        context = typer.Context(found, info_name=word, parent=context)
    own = found.get_command(context, "/") if hasattr(found, "get_command") else None
    return [one for one in (own or found).params if one.name != "help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_flag_a_wrong_number_and_a_flag_without_value(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words, known = name.split(), parameters(name)
    needed = [
        word
        for one in known
        if one.required
        for word in ((one.opts[0], "1") if one.param_type_name == "option" else ("x",))
    ]
    refused(tacit(*words, *needed, "--colour", "red"), "--colour", "has no such flag")
    numbers = {
        one.opts[0]: NUMBERS[one.type.name]
        for one in known
        if one.type.name in NUMBERS and one.param_type_name == "option"
    }
    for flag, sentence in list(numbers.items())[:1]:
        refused(tacit(*words, *needed, f"{flag}=many"), f"tacit: {flag}: {sentence}")
    valued = next((one.opts[0] for one in known if one.opts[0][:2] == "--" and not one.is_flag), "")
    if valued:
        refused(tacit(*words, *needed, valued), f"{valued}: expected a value after it, got none")
    assert list(tmp_path.iterdir()) == []
