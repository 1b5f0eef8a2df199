"""Running the command in this process or in its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import run

QUICK = ["--simulations", "60", "--workers", "1"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Tacit = Callable[..., Outcome]


def in_process(capsys: pytest.CaptureFixture[str]) -> Tacit:
    """Return a runner that calls what ``main`` calls."""

    def call(*arguments: object) -> Outcome:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


def subprocess_tacit(*arguments: object, cwd: Path | None = None) -> Outcome:
    command = [
        sys.executable,
        "-c",
        "from tacit.__main__ import main; main()",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return Outcome(done.returncode, done.stdout, done.stderr)


def refused(outcome: Outcome, *parts: str) -> None:
    """Exit code 2, nothing on standard output, one sentence that says what is wrong."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("tacit: ")
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err, outcome.err


def write_table(folder: Path, count: int = 40) -> Path:
    """Write rows of three columns of numbers and one of words."""
    rows = np.random.default_rng(0).normal(size=(count, 3)) * [1.0, 5.0, 0.2]
    path = folder / "table.csv"
    lines = ["a,b,c,label"] + [f"{x!r},{y!r},{z!r},red" for x, y, z in rows.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path
