"""Exit codes: 3 for the caller's own query, 2 for a full disk, 141 for a closed pipe."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import main
from tacit.cli.publishing import Destination
from tacit.ledger import Ledger
from tacit.releases import Release
from tests.cli_runner import QUICK, in_process, refused, write_table
from tests.forks import command as command_of
from tests.forks import forked, forked_tacit

FULL = Path("/dev/full")
MIDDLE = """import json


def middle(rows):
    return inner(rows)


def inner(rows):
    return json.loads("{" + str(rows[0, 0]))


def leaves(rows):
    raise SystemExit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path)
    (tmp_path / "mine.py").write_text(MIDDLE)
    return tmp_path


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", None])
def test_what_was_drawn_is_told_in_every_encoding_and_to_nobody(
    monkeypatch: pytest.MonkeyPatch, encoding: str | None
) -> None:
    for flags in ((), ("--json", "-")):
        held = io.BytesIO()
        out = None if encoding is None else io.TextIOWrapper(held, encoding)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), "ascii"))
        with pytest.raises(SystemExit) as left:
            main(["account", "gaussian", "--noise-std", "1", *flags])
        assert left.value.code == 0
        if encoding is not None:
            told = held.getvalue().decode(encoding)
            assert json.loads(told)["mechanism"] if flags else "differential privacy" in told


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_query_that_raises_is_one_sentence_and_its_own_line(folder: Path, workers: str) -> None:
    command = ("statistic", "table.csv", "--columns", "a", "--success", "0.6", "--query")
    command += ("mine:middle", "--simulations", "60", "--workers", workers)
    done = forked_tacit(*command, "--json", "o.json", "--ledger", "l.db", cwd=folder)
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert "mine:middle raised JSONDecodeError in inner (mine.py:9)" in done.err
    assert "Traceback" not in done.err
    assert "Expecting" not in done.err
    assert not (folder / "o.json").exists()
    assert not (folder / "l.db").exists()
    told = forked_tacit(*command, "--show-values", cwd=folder)
    assert (told.code, "Expecting property name" in told.err) == (3, True)


def test_a_query_that_leaves_is_a_query_that_failed(folder: Path) -> None:
    command = ("statistic", "table.csv", "--columns", "a", "--success", "0.6", *QUICK)
    done = forked_tacit(*command, "--query", "mine:leaves", cwd=folder)
    assert done.code == 3
    assert "SystemExit in leaves (mine.py:13)" in done.err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("import math\n\n1 / 0\n", "ZeroDivisionError (mine.py:3) while its module was imported"),
        ("def middle(:\n", "SyntaxError (mine.py:1)"),
        ("import no_such_thing\n", "ModuleNotFoundError (mine.py:1)"),
    ],
)
def test_a_module_that_raises_is_the_callers_own_code(folder: Path, text: str, part: str) -> None:
    (folder / "mine.py").write_text(text)
    command = ("statistic", "table.csv", "--columns", "a", "--success", "0.6", *QUICK)
    done = forked_tacit(*command, "--query", "mine:middle", cwd=folder)
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert part in done.err


COMMANDS = [
    ("statistic", "table.csv", "--query", "mean", "--columns", "a", "--success", "0.6", *QUICK),
    ("account", "gaussian", "--noise-std", "1", "--delta", "1e-5"),
    ("--help",),
]
# A process of its own says what it checked.
CLOSED = [*COMMANDS, ("verify", "table.csv", "table.csv")]


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_full_disk_is_one_sentence(folder: Path, command: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        done = forked(lambda: command_of(*command), cwd=folder, stdout=full.fileno())
    assert done.returncode == 2, done.stderr
    assert done.stderr == "tacit: cannot read or write the output (No space left on device)\n"


@pytest.mark.parametrize("kib", [4, 16])
def test_a_disk_that_fills_up_leaves_nothing_half_written(folder: Path, kib: int) -> None:
    resource = pytest.importorskip("resource")

    def fills_up() -> None:
        # compiled modules would be cut short, and stay so for every process after this one
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))

    done = forked_tacit(*COMMANDS[0], "--report", "page.html", cwd=folder, before=fills_up)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "Traceback" not in done.err
    assert sorted(entry.name for entry in folder.iterdir() if entry.name != "__pycache__") == [
        "mine.py",
        "table.csv",
    ]


def test_what_was_paid_for_and_not_written_is_said_to_stand_in_the_ledger(folder: Path) -> None:
    resource = pytest.importorskip("resource")
    stored = Destination.store

    def full(destination: Destination, release: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        stored(destination, release)

    def fills_up() -> None:
        sys.dont_write_bytecode = True
        Destination.store = full  # type: ignore[method-assign]

    paying = ("--ledger", "l.db", "--secret", "s", "--json", "o.json")
    done = forked_tacit(*COMMANDS[0], *paying, cwd=folder, before=fills_up)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "drawn and paid for" in done.err
    assert "tacit ledger show --ledger" in done.err
    (entry,) = Ledger(folder / "l.db").entries("s")
    assert entry.record is not None
    assert Release.from_dict(entry.record).values.shape == (1,)


def test_who_interrupts_what_was_paid_for_is_told_where_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(output: Any, content: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    monkeypatch.setattr("tacit.cli.output.JsonOutput.write", interrupted)
    done = in_process(capsys)(*COMMANDS[0], "--ledger", "l.db", "--secret", "s", "--json", "o.json")
    assert done.code == 130
    assert done.err.startswith("tacit: the release was drawn and paid for, and its record stands")
    assert Ledger(folder / "l.db").spent("s").releases == 1


@pytest.mark.parametrize("command", CLOSED, ids=lambda command: command[0])
def test_a_closed_pipe_is_no_threshold(folder: Path, command: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = forked(lambda: command_of(*command), cwd=folder, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_every_value_is_printed_and_no_file_is_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    tacit = in_process(capsys)
    command = ("statistic", "table.csv", "--query", "mean+std+covariance", "--columns", "a,b,c")
    command += ("--success", "0.6", "--no-attack", *QUICK)
    done = tacit(*command, "--json", "o.json", "--report", "r.html")
    assert done.code == 0, done.err
    for name in ("mean[c]", "std[a]", "cov[a,a]", "cov[c,c]"):
        assert f"{name} = " in done.out
    assert "more" not in done.out.partition("guarantee")[0]
    shown = tacit("show", "o.json")
    assert "cov[c,c] = " in shown.out
    before = (folder / "o.json").read_bytes(), (folder / "r.html").read_bytes()
    refused(tacit(*command, "--json", "o.json"), "--json", "--force")
    refused(tacit(*command, "--report", "r.html"), "--report", "--force")
    assert before == ((folder / "o.json").read_bytes(), (folder / "r.html").read_bytes())
