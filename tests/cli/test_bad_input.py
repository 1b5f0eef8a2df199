"""The command line: one plain sentence for every bad input, and nothing half-written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_runner import QUICK, Tacit, refused, subprocess_tacit, write_table
from tests.forks import forked_tacit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_table(tmp_path)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--query", "mean"], ["success", "exactly one"]),
        (["--query", "mean", "--protect", "draw"], ["success", "--mi-budget"]),
        (["--query", "mean", "--success", "0.6", "--mu", "0.1"], ["exactly one"]),
        (["--query", "mean", "--success", "0.6", "--mi-budget", "0.1"], ["--mi-budget", "rows"]),
        (["--query", "mean", "--epsilon", "1"], ["--delta"]),
        (["--query", "mean", "--delta", "1e-6"], ["--epsilon"]),
        (["--query", "mean", "--success", "0.6", "--protect", "pool"], ["--protect", "pool"]),
        (["--query", "mean", "--protect", "draw", "--mu", "1"], ["--mu", "draw", "--mi-budget"]),
        (["--query", "mean", "--protect", "draw", "--pairs", "random"], ["--pairs", "draw"]),
        (["--query", "mean", "--success", "0.6", "--bounds", "a=0:1"], ["--bounds", "rows"]),
        (["--query", "mean", "--success", "0.6", "--adjacency", "replace"], ["--adjacency"]),
        (["--query", "mean", "--success", "0.6", "--pairs", "farthest"], ["pairs", "farthest"]),
        (["--query", "mean", "--success", "0.6", "--pairs", "column:z"], ["column"]),
        (["--query", "mean", "--success", "0.8", "--sampling-rate", "0.3"], ["rate", "1/k"]),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6"],
            ["tacit: --bounds: ", "got none"],
        ),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6", "--sampling-rate", "1/2"],
            ["--sampling-rate", "table"],
        ),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6", "--bounds", "a=1:0"],
            ["bounds", "lowest < highest"],
        ),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6", "--bounds", "a:1"],
            ["--bounds", "NAME=LOW:HIGH"],
        ),
        (
            [
                "--query",
                "sum",
                "--success",
                "1",
                "--protect",
                "table",
                "--bounds",
                "a=0:1",
                "--bounds",
                "a=0:2",
            ],
            ["--bounds", "'a' is named twice"],
        ),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6", "--levels", "a="],
            ["--levels", "NAME=LEVEL", "'a='"],
        ),
        (
            ["--query", "mean", "--protect", "table", "--success", "0.6", "--levels", "red"],
            ["--levels", "NAME=LEVEL", "'red'"],
        ),
        (["--query", "mean", "--success", "0.6", "--certificate", "."], ["--certificate"]),
        (
            [
                "--query",
                "mean",
                "--success",
                "0.6",
                "--insecure-seed",
                "1",
                "--certificate",
                "c.html",
            ],
            ["--certificate", "--insecure-seed"],
        ),
        (["--query", "mean", "--success", "0.5"], ["success"]),
        (["--query", "mean", "--success", "1.0"], ["success"]),
        (["--query", "mean", "--success", "nan"], ["success"]),
        (["--query", "mean", "--success", "high"], ["success", "high"]),
        (["--query", "mean", "--mi-budget", "0", "--protect", "draw"], ["--mi-budget"]),
        (["--query", "mean", "--mi-budget", "-1", "--protect", "draw"], ["--mi-budget"]),
        (["--query", "mean", "--mi-budget", "inf", "--protect", "draw"], ["--mi-budget"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "0"], ["--sampling-rate"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "1"], ["--sampling-rate"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "nan"], ["--sampling-rate"]),
        (["--query", "mode", "--success", "0.6"], ["tacit: --query: ", "'mode'"]),
        (
            ["--query", "mean by a", "--columns", "a", "--success", "0.6"],
            ["query", "a column beside those"],
        ),
        (["--query", "no_such_module:f", "--success", "0.6"], ["query", "no_such_module"]),
        (["--query", "quantiles:2", "--success", "0.6"], ["quantile"]),
        (["--query", "kmeans:0", "--success", "0.6"], ["centroids", "'0'"]),
        (["--query", "mean", "--success", "0.6", "--method", "magic"], ["method", "magic"]),
        (["--query", "mean", "--success", "0.6", "--cost", "gold"], ["cost", "gold"]),
        (["--query", "mean", "--success", "0.6", "--simulations", "1"], ["simulations"]),
        (["--query", "mean", "--success", "0.6", "--workers", "0"], ["workers"]),
        (
            ["--query", "mean", "--success", "0.6", "--insecure-seed", "-1"],
            ["--insecure-seed", "-1"],
        ),
        (["--query", "least-squares", "--success", "0.6", "--target", "z"], ["'z'"]),
        (["--query", "mean", "--success", "0.6", "--columns", "a,,b"], ["--columns"]),
        (["--query", "mean", "--success", "0.6", "--columns", "a,a"], ["'a'", "twice"]),
        (["--query", "mean", "--success", "0.6", "--secret", "s"], ["--secret", "--ledger"]),
        (["--success", "0.6"], ["--query"]),
        (["--query", "mean", "--success", "0.6", "--colour", "red"], ["--colour"]),
        (["--query", "mean", "--success", "0.6", "--report", "none/r.html"], ["no such folder"]),
        (["--query", "mean", "--success", "0.6", "--json", "none/r.json"], ["no such folder"]),
        (["--query", "mean", "--success", "0.6", "--ledger", "none/l.db"], ["no such folder"]),
        (["--query", "mean", "--success", "0.6", "--report", "."], ["--report", "folder"]),
        (
            ["--query", "mean", "--success", "0.6", "--report", "same", "--json", "same"],
            ["another file"],
        ),
        (["--query", "mean", "--success", "0.6", "--json", "table.csv"], ["another file", "DATA"]),
        (
            ["--query", "mean", "--success", "0.6", "--ledger", "x.db", "--report", "x.db"],
            ["another file"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_flags(
    data: Path,
    tmp_path: Path,
    tacit: Tacit,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = [] if "--columns" in flags else ["--columns", "a,b"]
    outputs = [
        item
        for flag, name in (("--report", "r.html"), ("--json", "r.json"), ("--ledger", "l.db"))
        if flag not in flags and not ("--secret" in flags and flag == "--ledger")
        for item in (flag, name)
    ]
    refused(tacit("statistic", data, *chosen, *flags, *outputs), *parts)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["table.csv"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("\n \n", ["empty"]),
        ("a,b\n", ["data", "rows below the header line", "got none"]),
        ("a,b\n1,2\n3\n", ["line 3", "expected 2 fields", "got 1"]),
        ("a,b\n1,2\n3,4,5\n", ["line 3", "got 3"]),
        ("a,b\n1,2\n\n3,4\n", ["line 3", "column 1", "empty field"]),
        ("a,a\n1,2\n", ["columns 1 and 2 have one name"]),
        ("a,\n1,2\n", ["column 2 has no name"]),
        ("1,2\n3,4\n", ["header"]),
        ("a,b\n1,NaN\n", ["line 2", "column 2", "empty field"]),
        ("a,b\n1,2\n1,-inf\n", ["line 3", "column 2", "finite"]),
        ("a,b\n1,1e999\n", ["line 2", "column 2", "finite"]),
        ("a,b\n1,2\n1,two\n", ["line 3", "column 2", "got text"]),
        ("a,b\n1,\n", ["line 2", "column 2", "empty field"]),
        ("a,b\n1,1_000\n", ["line 2", "column 2", "got text"]),
        ("a,b\n1,9007199254740993\n", ["line 2", "column 2", "2⁵³"]),
        ('a,b\n1,"2\n3,4\n', ["line 2", "a quote opens there"]),
        ("a,b\n1,2\x00\n", ["zero byte"]),
        ("a,b\n1,2\n3,4\n", ["pool", "at least"]),
    ],
)
def test_bad_tables(tmp_path: Path, tacit: Tacit, text: str, parts: list[str]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refused(tacit("statistic", path, "--query", "mean", "--success", "0.6", *QUICK), *parts)


def test_missing_and_unreadable_tables(tmp_path: Path, data: Path, tacit: Tacit) -> None:
    command = ("--query", "mean", "--success", "0.6", *QUICK)
    refused(tacit("statistic", tmp_path / "none.csv", *command), "no such file", "none.csv")
    refused(tacit("statistic", tmp_path, *command), "expected a file")
    missing = tacit("statistic", data, *command, "--columns", "a,lable")
    refused(missing, "no column 'lable'", "did you mean 'label'?")
    told = tacit("statistic", data, *command, "--columns", "a,z", "--show-values")
    refused(told, "no column 'z'", "'a', 'b', 'c', 'label'")
    refused(tacit("statistic", data, *command), "line 2", "column 4", "got text")
    named = tacit("statistic", data, *command, "--columns", "a,label")
    refused(named, "line 2", "column 'label'")
    assert "red" not in named.err
    told = tacit("statistic", data, *command, "--show-values")
    refused(told, "line 2", "column 'label'", "'red'")


@pytest.mark.parametrize("cell", ["4242secret", "4242_1", "-inf"])
def test_no_cell_of_the_table_is_in_a_message(tmp_path: Path, tacit: Tacit, cell: str) -> None:
    path = tmp_path / "bad.csv"
    for text in (f"a,b\n1,2\n3,{cell}\n", f"4242,{cell.lstrip('-')[:4]}\n1,2\n"):
        path.write_text(text)
        outcome = tacit("statistic", path, "--query", "mean", "--success", "0.6", *QUICK)
        assert outcome.code == 2
        assert cell not in outcome.err
        assert "4242" not in outcome.err


PRIVATE = """root:x:0:0:root:/root:/bin/bash
-----BEGIN PRIVATE KEY-----, 17
dear ann, the password is swordfish
{"user": "ann", "password": "swordfish"}
"""


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("columns", [[], ["--columns", "age"]])
def test_a_wrong_path_never_prints_lines_of_that_file(
    tmp_path: Path, tacit: Tacit, first: int, columns: list[str]
) -> None:
    lines = PRIVATE.splitlines()
    path = tmp_path / "other.txt"
    path.write_text("\n".join([*lines[first:], *lines[:first]]) + "\n")
    command = ("statistic", path, "--query", "mean", "--success", "0.6", *columns, *QUICK)
    done = tacit(*command)
    refused(done)
    words = ("root", "bash", "PRIVATE", "17", "dear", "ann", "swordfish", "password", "user")
    assert [word for word in words if word in done.err.replace(str(tmp_path), "")] == []


@pytest.mark.thorough
def test_a_query_that_returns_no_numbers_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def broken(rows):\n    return float('nan')\n")
    command = ("statistic", data, "--columns", "a", "--success", "0.6", *QUICK)
    refused(forked_tacit(*command, "--query", "bad:broken", cwd=tmp_path), "query")
    refused(forked_tacit(*command, "--query", "bad:absent", cwd=tmp_path), "query", "absent")
    unknown = forked_tacit(*command, "--query", "histogram:10", cwd=tmp_path)
    refused(unknown, "has no column '10'")


def test_a_flag_of_a_neighbour_names_the_right_one(data: Path, tacit: Tacit) -> None:
    done = tacit("classifier", data, "--epsilon", "1")
    refused(done, "--epsilon", "--success or --mi-budget")
    done = tacit("statistic", data, "--query", "mean", "--protect", "draw", "--epsilon", "1")
    refused(done, "--epsilon", "--mi-budget, --success")


def test_bad_input_in_a_real_process(data: Path) -> None:
    command = ("statistic", data, "--query", "mean", "--columns", "a")
    refused(subprocess_tacit(*command, "--success", "0.4"), "success")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["gate", "table.csv", "--max-success", "0.6"], ["not JSON"]),
        (["gate", "table.csv"], ["at least one of --verify, --max-factor"]),
        (["gate", "table.csv", "--max-success", "nan"], ["--max-success"]),
        (["gate", "table.csv", "--max-success", "0"], ["--max-success"]),
        (["gate", "table.csv", "--max-success", "55"], ["--max-success"]),
        (["gate", "table.csv", "--max-attack", "2"], ["--max-attack"]),
        (["gate", "table.csv", "--max-information", "-1"], ["--max-information"]),
        (["gate"], ["release"]),
        (["ledger", "show", "--ledger", "none.db"], ["no such file"]),
        (["ledger", "show", "--ledger", "table.csv"], ["not a SQLite database"]),
        (["ledger", "show"], ["--ledger"]),
        (["ledger", "budget", "--ledger", "l.db", "--mi-budget", "1"], ["--secret"]),
        (["ledger", "budget", "--ledger", "l.db", "--secret", "s"], ["no such file"]),
        (
            ["ledger", "budget", "--ledger", "l.db", "--secret", "s", "--mi-budget", "0"],
            ["--mi-budget"],
        ),
        (["ledger", "budget", "--ledger", "l.db", "--secret", "s", "--delta", "0.1"], ["epsilon"]),
        (
            ["ledger", "budget", "--ledger", "l.db", "--secret", "s", "--data", "table.csv"],
            ["both"],
        ),
        (["unknown"], ["unknown"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_gates_and_ledgers(
    data: Path,
    tacit: Tacit,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(data.parent)
    refused(tacit(*arguments), *parts)
    assert not (data.parent / "l.db").exists()


def test_a_corrupt_ledger_is_refused_before_the_simulations(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    ledger = tmp_path / "ledger.db"
    ledger.write_text("SQLite it is not, whatever it says\n" * 50)
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6", *QUICK)
    refused(tacit(*command, "--ledger", ledger), "not a SQLite database")
    ledger.write_bytes(b"")
    ledger.chmod(0o400)
    refused(tacit(*command, "--ledger", ledger), "read-only")


def test_an_interruption_is_said_and_writes_nothing(
    data: Path, tmp_path: Path, tacit: Tacit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupting.py").write_text("def query(rows):\n    raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    command = ("statistic", data, "--query", "interrupting:query", "--columns", "a", *QUICK)
    done = tacit(*command, "--success", "0.6", "--json", "o.json", "--ledger", "l.db")
    assert (done.code, done.out, done.err) == (130, "", "tacit: interrupted\n")
    assert not (tmp_path / "o.json").exists()
    assert not (tmp_path / "l.db").exists()


INTERRUPTED_AT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from tacit.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        "tacit.cli",
        "typer",
        "tacit.cli.options",
        "tacit.cli.statistic",
        "tacit.cli.publishing",
        "numpy",
        "tacit.statistics.workflow",
        "scipy.special",
    ],
)
def test_an_interruption_while_importing_is_one_line(module: str, data: Path) -> None:
    asked = ("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6", *QUICK)
    code = INTERRUPTED_AT.replace("MODULE", repr(module))
    command = [sys.executable, "-c", code, *map(str, asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tacit: interrupted\n")
