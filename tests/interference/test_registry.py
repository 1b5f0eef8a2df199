"""No command that tells something, and no kind of release, without a test of what it tells."""

import importlib
from pathlib import Path

import pytest
import typer

from tacit.cli import app
from tacit.releases.kinds import known_kinds

from .registry import CASES, SILENT, commands, is_silent, tells_nothing_beside

for path in Path(__file__).parent.glob("test_*.py"):
    if path.stem != Path(__file__).stem:
        importlib.import_module(f"{__package__}.{path.stem}")


COMMANDS = commands(typer.main.get_command(app))
KINDS = sorted(known_kinds())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_test_of_what_it_tells(command):
    assert CASES[command] or is_silent(command), (
        f'mark a test in tests/interference with @tells_nothing_beside("{command}")'
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_release_has_a_test_of_what_it_tells(kind):
    assert CASES[kind], f'mark a test in tests/interference with @tells_nothing_beside("{kind}")'


def test_what_is_entered_exists():
    assert set(CASES) - {name for name, tests in CASES.items() if not tests} <= {*COMMANDS, *KINDS}
    for name in SILENT:
        assert any(command.startswith(name) for command in COMMANDS), name


def test_only_tests_are_entered():
    with pytest.raises(ValueError, match="expected a test"):
        tells_nothing_beside("statistic")(known_kinds)
    with pytest.raises(ValueError, match="expected commands"):
        tells_nothing_beside()
