"""The fixture that runs something twice."""

import pytest

from .replay import Interference


@pytest.fixture
def interference(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Interference:
    """Return what runs a command or a function on two secrets with one outcome."""
    # one folder for all tests of a process: each run finds it empty
    return Interference(tmp_path_factory.getbasetemp() / "interference", capsys, caplog)
