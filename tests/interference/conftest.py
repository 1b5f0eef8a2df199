"""The fixture that runs something twice."""

from pathlib import Path

import pytest

from .replay import Interference


@pytest.fixture
def interference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Interference:
    """Return what runs a command or a function on two secrets with one outcome."""
    return Interference(tmp_path, capsys, caplog)
