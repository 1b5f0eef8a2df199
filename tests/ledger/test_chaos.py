"""Processes that race for one budget while they are killed: 0 overspent, 0 lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# as large as the ledger is meant for; minutes, so only when asked: TACIT_NIGHTLY=1
NIGHTLY = bool(os.environ.get("TACIT_NIGHTLY"))
SIZES = [(6, 12, 6), (64, 200, 64)] if NIGHTLY else [(6, 12, 6)]


def check(location: str, size: tuple[int, int, int], seed: int) -> None:
    command = [sys.executable, "-m", "tests.ledger.chaos", location, *map(str, size), str(seed)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    print(outcome)
    assert outcome["failures"] == []
    assert outcome["kills"] > 0
    assert (outcome["overspent"], outcome["lost"], outcome["unspent"]) == (0.0, 0, 0.0), outcome
    assert outcome["whole"], outcome
    # whoever was killed left at most one release that it was not told of
    assert outcome["unacknowledged"] <= outcome["kills"]
    assert outcome["committed"] <= outcome["reserved"]


@pytest.mark.parametrize("size", SIZES)
def test_killed_processes_lose_and_overspend_nothing(
    tmp_path: Path, size: tuple[int, int, int]
) -> None:
    check(str(tmp_path / "ledger.db"), size, seed=3)


@pytest.mark.postgres
@pytest.mark.parametrize("size", SIZES)
def test_killed_processes_lose_and_overspend_nothing_on_postgresql(
    postgres: str, size: tuple[int, int, int]
) -> None:
    check(postgres, size, seed=4)
