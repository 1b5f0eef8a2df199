"""Texts of commands that are read without their modules, and modules that wait for their use."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec
from pathlib import Path

import pytest
import rich

from tacit.__main__ import Seldom
from tacit._ground.entry_points import EntryPoint
from tacit.cli.hooks import _described

SOURCE = '''
group = Typer(
    help="""One
two.""",
)

def command(
    count: int,
) -> None:
    """First.

at the margin
"""

def plain(): "Plain."
other = 1; third = 2
'''


def test_a_text_that_goes_on_at_the_margin_is_the_text_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought_commands.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    found = [
        _described(EntryPoint(name, f"brought_commands:{name}"))
        for name in ("group", "command", "plain", "other", "none")
    ]
    assert found == ["One\ntwo.", "First.\n\nat the margin", "Plain.", "", ""]


def test_a_module_of_which_one_name_waits_has_all_of_its_names() -> None:
    spec = Seldom.find_spec("rich.traceback", rich.__path__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    waiting = module.Traceback
    assert not hasattr(module, "__path__")
    assert "install" not in vars(module)
    # such as a logger takes of the class, and a package of the module
    assert waiting.from_exception.__self__ is module.Traceback
    assert module.install.__module__ == "rich.traceback"
    assert type(waiting(waiting.extract(ValueError, ValueError("x"), None))) is module.Traceback
    assert not hasattr(module, "nothing_of_the_kind")
    assert "rich.traceback" not in sys.modules or sys.modules["rich.traceback"] is not module
