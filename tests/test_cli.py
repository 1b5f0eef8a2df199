"""The command line: the main road end to end, and one plain sentence for every bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tacit import __version__
from tacit.cli import run
from tacit.ledger import Ledger
from tacit.statistics import StatisticRelease
from tacit.statistics.table import fingerprint, read_table

QUICK = ["--simulations", "60", "--workers", "1"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Tacit = Callable[..., Outcome]


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str]) -> Tacit:
    """Run the command in this process, the way ``main`` does."""

    def call(*arguments: object) -> Outcome:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


def subprocess_tacit(*arguments: object, cwd: Path | None = None) -> Outcome:
    command = [sys.executable, "-c", "from tacit.cli import main; main()", *map(str, arguments)]
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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 5.0, 0.2]
    path = tmp_path / "table.csv"
    lines = ["a,b,c,label"] + [f"{x!r},{y!r},{z!r},red" for x, y, z in rows.tolist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_main_road_in_a_real_process(data: Path, tmp_path: Path) -> None:
    done = subprocess_tacit(
        *("statistic", data.name, "--query", "mean", "--columns", "a,b", "--success", "0.55"),
        *("--report", "out.html", "--json", "out.json", "--ledger", "ledger.db", *QUICK),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    lines = done.out.strip().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("An attacker who knows everything but the noise and which rows were")
    assert "at most 55.0%" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == [
        "released",
        "guarantee",
        "attack",
        "noise",
        "randomness",
        "data",
        "ledger",
        "report",
        "json",
    ]
    content = json.loads((tmp_path / "out.json").read_text())
    release = StatisticRelease.from_dict(content)
    assert release.names == ("mean[a]", "mean[b]")
    assert not release.reproducible
    assert release.membership.success <= 0.55
    assert content["provenance"]["data_fingerprint"] == fingerprint(data)
    assert content["provenance"]["command"].startswith("tacit statistic table.csv --query mean")
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    (entry,) = Ledger(tmp_path / "ledger.db").entries(fingerprint(data))
    assert entry.status == "committed"
    assert entry.guarantee == release.guarantee
    assert entry.record is not None
    assert entry.record["release"] == release.release.tolist()
    assert subprocess_tacit("gate", "out.json", "--max-success", "0.55", cwd=tmp_path).code == 0
    crossed = subprocess_tacit("gate", "out.json", "--max-success", "0.51", cwd=tmp_path)
    assert crossed.code == 1
    assert "crossed: success bound" in crossed.out


def test_json_to_standard_output_is_json_alone(data: Path, tacit: Tacit) -> None:
    done = tacit(
        *("statistic", data, "--query", "mean+std", "--columns", "a", "--mi-budget", "0.1"),
        *("--json", "-", "--no-attack", *QUICK),
    )
    assert done.code == 0
    assert json.loads(done.out)["names"] == ["mean[a]", "std[a]"]
    assert json.loads(done.out)["attack"] is None
    assert done.err.startswith("An attacker who knows")


def test_two_runs_differ_and_two_seeded_runs_do_not(data: Path, tacit: Tacit) -> None:
    command = ("statistic", data, "--query", "mean", "--columns", "a,b,c", "--success", "0.6")
    command += ("--json", "-", "--no-attack", *QUICK)

    def released(*more: str) -> list[float]:
        return json.loads(tacit(*command, *more).out)["release"]

    assert released() != released()
    assert released("--seed", "4") == released("--seed", "4")


def test_a_seeded_release_says_so_everywhere(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "out.json"
    done = tacit(
        *("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6"),
        *("--seed", "4", "--json", out, "--report", tmp_path / "r.html", *QUICK),
        *("--ledger", tmp_path / "ledger.db", "--secret", "s"),
    )
    assert done.code == 0
    assert done.out.startswith("This release carries no guarantee")
    assert "no guarantee" in (tmp_path / "r.html").read_text()
    assert Ledger(tmp_path / "ledger.db").spent("s").void == 1
    gated = tacit("gate", out, "--max-success", "0.99")
    assert gated.code == 1
    assert "no guarantee" in gated.out


def test_the_budget_is_spent_then_refused_before_the_draw(
    data: Path, tmp_path: Path, tacit: Tacit
) -> None:
    ledger, out = tmp_path / "ledger.db", tmp_path / "out.json"
    set_up = tacit("ledger", "budget", "--ledger", ledger, "--secret", "s", "--mi-budget", "0.15")
    assert set_up.code == 0
    assert "0.15 nats" in set_up.out
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--mi-budget", "0.1")
    command += ("--ledger", ledger, "--secret", "s", "--json", out, "--no-attack", *QUICK)
    assert tacit(*command).code == 0
    first = out.read_text()
    refused(tacit(*command), "secret 's'", "budget of 0.15 nats", "asks for", "nothing was drawn")
    assert out.read_text() == first
    assert len(Ledger(ledger).entries("s")) == 1
    seeded = tacit(*command, "--seed", "1")
    refused(seeded, "--seed", "guarantees nothing")


def test_ledger_show_and_budget(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    ledger = tmp_path / "ledger.db"
    by_file = tacit("ledger", "budget", "--ledger", ledger, "--data", data, "--mi-budget", "0.5")
    assert by_file.code == 0
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--mi-budget", "0.25")
    done = tacit(*command, "--ledger", ledger, "--no-attack", *QUICK)
    assert done.code == 0
    shown = tacit("ledger", "show", "--ledger", ledger)
    assert "committed" in shown.out
    assert fingerprint(data) in shown.out
    account = json.loads(tacit("ledger", "show", "--ledger", ledger, "--json").out)
    (secret,) = account["secrets"]
    assert secret["secret"] == fingerprint(data)
    assert secret["budget"]["mi_budget"] == 0.5
    assert 0.24 < secret["spent"]["nats"] <= 0.25
    assert 0.25 <= secret["remaining"]["mi_budget"] < 0.26
    assert secret["entries"][0]["description"] == "mean of table.csv"
    one = tacit("ledger", "show", "--ledger", ledger, "--secret", "unknown", "--json")
    assert json.loads(one.out)["secrets"][0]["entries"] == []
    pair = ("--epsilon", "1", "--delta", "1e-6", "--json")
    both = tacit("ledger", "budget", "--ledger", ledger, "--secret", "t", *pair)
    assert json.loads(both.out)["budget"] == {"mi_budget": None, "epsilon": 1.0, "delta": 1e-6}
    looked = tacit("ledger", "budget", "--ledger", ledger, "--secret", "t")
    assert "ε = 1, δ = 1e-06" in looked.out


def test_gate_json(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "out.json"
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6")
    assert tacit(*command, "--json", out, *QUICK).code == 0
    thresholds = (
        "--max-success",
        "0.6",
        "--max-information",
        "0.001",
        "--max-attack",
        "1",
        "--json",
    )
    done = tacit("gate", out, *thresholds)
    assert done.code == 1
    result = json.loads(done.out)
    assert [(c["name"], c["holds"]) for c in result["checks"]] == [
        ("max_success", True),
        ("max_information", False),
        ("max_attack", True),
    ]
    assert "crossed: information" in done.err


def test_module_function_queries_are_found_beside_the_caller(data: Path, tmp_path: Path) -> None:
    (tmp_path / "middle.py").write_text(
        "import numpy as np\n\n\ndef median(rows):\n    return np.median(rows, axis=0)\n"
    )
    done = subprocess_tacit(
        *("statistic", data, "--query", "middle:median", "--columns", "a,b", "--success", "0.6"),
        *("--json", "-", "--no-attack", *QUICK),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["release"]) == 2


def test_a_regression_takes_its_target_along(data: Path, tacit: Tacit) -> None:
    done = tacit(
        *("statistic", data, "--query", "least-squares", "--columns", "a,b", "--target", "c"),
        *("--success", "0.6", "--cost", "relative", "--json", "-", "--no-attack", *QUICK),
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["provenance"]["data_columns"] == ["a", "b", "c"]


def test_version_and_help(tacit: Tacit) -> None:
    assert tacit("--version").out == f"tacit {__version__}\n"
    for command in ((), ("statistic",), ("gate",), ("ledger",), ("ledger", "show")):
        shown = tacit(*command, "--help")
        assert shown.code == 0
        assert "--help" in shown.out


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--query", "mean"], ["success", "mi_budget"]),
        (["--query", "mean", "--success", "0.6", "--mi-budget", "0.1"], ["exactly one"]),
        (["--query", "mean", "--success", "0.5"], ["success"]),
        (["--query", "mean", "--success", "1.0"], ["success"]),
        (["--query", "mean", "--success", "nan"], ["success"]),
        (["--query", "mean", "--success", "high"], ["success", "high"]),
        (["--query", "mean", "--mi-budget", "0"], ["mi_budget"]),
        (["--query", "mean", "--mi-budget", "-1"], ["mi_budget"]),
        (["--query", "mean", "--mi-budget", "inf"], ["mi_budget"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "0"], ["sampling_rate"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "1"], ["sampling_rate"]),
        (["--query", "mean", "--success", "0.9", "--sampling-rate", "nan"], ["sampling_rate"]),
        (["--query", "mode", "--success", "0.6"], ["query", "'mode'"]),
        (["--query", "no_such_module:f", "--success", "0.6"], ["query", "no_such_module"]),
        (["--query", "quantiles:2", "--success", "0.6"], ["quantile"]),
        (["--query", "kmeans:0", "--success", "0.6"], ["centroids", "'0'"]),
        (["--query", "mean", "--success", "0.6", "--method", "magic"], ["method", "magic"]),
        (["--query", "mean", "--success", "0.6", "--cost", "gold"], ["cost", "gold"]),
        (["--query", "mean", "--success", "0.6", "--simulations", "1"], ["simulations"]),
        (["--query", "mean", "--success", "0.6", "--workers", "0"], ["workers"]),
        (["--query", "mean", "--success", "0.6", "--seed", "-1"], ["rng"]),
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
        ("a,b\n", ["no rows"]),
        ("a,b\n1,2\n3\n", ["line 3", "expected 2 fields", "got 1"]),
        ("a,b\n1,2\n3,4,5\n", ["line 3", "got 3"]),
        ("a,b\n1,2\n\n3,4\n", ["line 3", "got 0"]),
        ("a,a\n1,2\n", ["'a' twice"]),
        ("a,\n1,2\n", ["column 2 has no name"]),
        ("1,2\n3,4\n", ["header"]),
        ("a,b\n1,NaN\n", ["line 2", "column 'b'", "'NaN'", "finite"]),
        ("a,b\n1,2\n1,-inf\n", ["line 3", "column 'b'", "finite"]),
        ("a,b\n1,1e999\n", ["line 2", "finite"]),
        ("a,b\n1,2\n1,two\n", ["line 3", "column 'b'", "'two'"]),
        ("a,b\n1,\n", ["line 2", "column 'b'", "empty field"]),
        ("a,b\n1,1_000\n", ["'1_000'"]),
        ('a,b\n1,"2\n', ["line"]),
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
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"a,b\n\xff\xfe,2\n")
    refused(tacit("statistic", binary, *command), "not UTF-8", "byte 4")
    missing = tacit("statistic", data, *command, "--columns", "a,z")
    refused(missing, "no column 'z'", "'a', 'b', 'c', 'label'")
    refused(tacit("statistic", data, *command), "line 2", "column 'label'", "'red'")


def test_a_query_that_fails_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def broken(rows):\n    return float('nan')\n")
    command = ("statistic", data, "--columns", "a", "--success", "0.6", *QUICK)
    refused(subprocess_tacit(*command, "--query", "bad:broken", cwd=tmp_path), "query")
    refused(subprocess_tacit(*command, "--query", "bad:absent", cwd=tmp_path), "query", "absent")


def test_bad_input_in_a_real_process(data: Path, tmp_path: Path) -> None:
    command = ("statistic", data, "--query", "mean", "--columns", "a")
    refused(subprocess_tacit(*command, "--success", "0.4"), "success")
    refused(subprocess_tacit("statistics"), "statistics")
    refused(
        subprocess_tacit("gate", tmp_path / "none.json", "--max-success", "0.6"), "no such file"
    )


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["gate", "table.csv", "--max-success", "0.6"], ["not JSON"]),
        (["gate", "table.csv"], ["at least one threshold"]),
        (["gate", "table.csv", "--max-success", "nan"], ["max_success"]),
        (["gate", "table.csv", "--max-success", "0"], ["max_success"]),
        (["gate", "table.csv", "--max-success", "55"], ["max_success"]),
        (["gate", "table.csv", "--max-attack", "2"], ["max_attack"]),
        (["gate", "table.csv", "--max-information", "-1"], ["max_information"]),
        (["gate"], ["release"]),
        (["ledger", "show", "--ledger", "none.db"], ["no such file"]),
        (["ledger", "show", "--ledger", "table.csv"], ["not a SQLite database"]),
        (["ledger", "show"], ["--ledger"]),
        (["ledger", "budget", "--ledger", "l.db", "--mi-budget", "1"], ["--secret"]),
        (["ledger", "budget", "--ledger", "l.db", "--secret", "s"], ["no such file"]),
        (
            ["ledger", "budget", "--ledger", "l.db", "--secret", "s", "--mi-budget", "0"],
            ["mi_budget"],
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_in_every_dress_read_alike(
    tmp_path: Path, delimiter: str, start: str, end: str
) -> None:
    rows = [['"first, or; so"', "second"], ["1.5", " -2e3 "], ["0", "+.25"], []]
    text = start + "".join(delimiter.join(row) + end for row in rows)
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    table = read_table(path)
    assert table.names == ("first, or; so", "second")
    assert table.rows.tolist() == [[1.5, -2000.0], [0.0, 0.25]]
    assert table.fingerprint == fingerprint(path)


def test_read_table_refuses_no_columns(data: Path) -> None:
    with pytest.raises(ValueError, match="at least one column"):
        read_table(data, [])
