"""The checker that runs in a process of its own is the installed one, wherever it is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.cli.doctor.oracles import checker
from tests.cli_runner import Tacit


def test_a_folder_from_elsewhere_holds_no_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tacit: Tacit
) -> None:
    ran, other = tmp_path / "ran", tmp_path / "tacit_check"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "__main__.py").write_text(f"open({str(ran)!r}, 'w').close()")
    (tmp_path / "release.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    # what the gate and the doctor run, and what `tacit verify` runs
    assert checker().well
    assert tacit("verify", "release.json").code == 2
    assert not ran.exists()
