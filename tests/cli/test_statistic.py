"""The command line: the main road end to end, the ledger and the gate."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tacit import __version__, load
from tacit.cli.console import command_line
from tacit.databases import label_of, parse_location
from tacit.ledger import Ledger
from tacit.statistics import fingerprint
from tests.cli_runner import QUICK, Tacit, refused, subprocess_tacit, write_table
from tests.forks import forked_tacit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_table(tmp_path)


def test_the_main_road_in_a_real_process(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    done = subprocess_tacit(
        *("statistic", data.name, "--query", "mean", "--columns", "a,b", "--success", "0.55"),
        *(
            "--protect",
            "draw",
            "--report",
            "out.html",
            "--json",
            "out.json",
            "--ledger",
            "ledger.db",
            *QUICK,
        ),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    lines = done.out.strip().splitlines()
    assert lines[0] == "55%: the most often anyone can be right about whether one row was drawn."
    assert "knows of the secret is that one of" in lines[1]
    assert list(dict.fromkeys(line.split()[0] for line in lines[2:])) == [
        "released",
        "hides",
        "guarantee",
        "attack",
        "noise",
        "note",
        "randomness",
        "data",
        "ledger",
        "report",
        "json",
        "keep",
    ]
    content = json.loads((tmp_path / "out.json").read_text())
    release = load(content)
    assert release.names == ("mean[a]", "mean[b]")
    assert not release.reproducible
    assert release.membership.success <= 0.55
    assert content["provenance"]["data_fingerprint"] == fingerprint(data)
    assert content["provenance"]["command"].startswith("tacit statistic table.csv --query mean")
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    (entry,) = Ledger(tmp_path / "ledger.db").entries(fingerprint(data))
    assert entry.status == "committed"
    assert entry.guarantee == release.guarantees[1]
    assert entry.record is not None
    assert entry.record["numbers"]["values"] == release.values.tolist()
    assert tacit("gate", tmp_path / "out.json", "--max-success", "0.55").code == 0
    crossed = tacit("gate", tmp_path / "out.json", "--max-success", "0.51")
    assert crossed.code == 1
    assert "crossed: success bound" in crossed.out


def test_json_to_standard_output_is_json_alone(data: Path, tacit: Tacit) -> None:
    done = tacit(
        *("statistic", data, "--query", "mean+std", "--columns", "a", "--mi-budget", "0.1"),
        *("--protect", "draw", "--json", "-", "--no-attack", *QUICK),
    )
    assert done.code == 0
    assert json.loads(done.out)["numbers"]["names"] == ["mean[a]", "std[a]"]
    assert json.loads(done.out)["attacks"] == []
    assert ": the most often anyone can be right about" in done.err.splitlines()[0]


def test_two_runs_differ_and_two_seeded_runs_do_not(data: Path, tacit: Tacit) -> None:
    command = ("statistic", data, "--query", "mean", "--columns", "a,b,c", "--success", "0.6")
    command += ("--protect", "draw", "--json", "-", "--no-attack", *QUICK)

    def released(*more: str) -> list[float]:
        return json.loads(tacit(*command, *more).out)["numbers"]["values"]

    assert released() != released()
    assert released("--insecure-seed", "4") == released("--insecure-seed", "4")


def test_a_seeded_release_says_so_everywhere(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "out.json"
    done = tacit(
        *("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6"),
        *("--insecure-seed", "4", "--json", out, "--report", tmp_path / "r.html", *QUICK),
        *("--ledger", tmp_path / "ledger.db", "--secret", "s"),
    )
    assert done.code == 0
    assert done.out.startswith("No guarantee: ")
    assert "No guarantee" in (tmp_path / "r.html").read_text()
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
    command += ("--protect", "draw", "--ledger", ledger, "--secret", "s", "--json", out)
    command += ("--no-attack", *QUICK)
    assert tacit(*command).code == 0
    first = out.read_text()
    refused(tacit(*command), "--json", "exists already", "--force")
    command += ("--force",)
    refused(tacit(*command), "secret 's'", "budget of 0.15 nats", "asks for", "nothing was drawn")
    assert out.read_text() == first
    assert len(Ledger(ledger).entries("s")) == 1
    seeded = tacit(*command, "--insecure-seed", "1")
    refused(seeded, "--insecure-seed", "guarantees nothing")


def test_ledger_show_and_budget(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    ledger = tmp_path / "ledger.db"
    by_file = tacit("ledger", "budget", "--ledger", ledger, "--data", data, "--mi-budget", "0.5")
    assert by_file.code == 0
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--mi-budget", "0.25")
    done = tacit(*command, "--protect", "draw", "--ledger", ledger, "--no-attack", *QUICK)
    assert done.code == 0
    shown = tacit("ledger", "show", "--ledger", ledger)
    assert "committed" in shown.out
    assert fingerprint(data) in shown.out
    account = json.loads(tacit("ledger", "show", "--ledger", ledger, "--json", "-").out)
    (secret,) = account["secrets"]
    assert secret["secret"] == fingerprint(data)
    assert secret["budget"]["mi_budget"] == 0.5
    assert 0.24 < secret["spent"]["nats"] <= 0.25
    assert 0.25 <= secret["remaining"]["mi_budget"] < 0.26
    assert secret["entries"][0]["description"] == "mean of table.csv"
    (change,) = secret["budget_history"]
    assert (change["old"], change["new"]["mi_budget"]) == (None, 0.5)
    assert "none → 0.5 nats  by " in shown.out
    pair = ("--epsilon", "1", "--delta", "1e-6", "--json", "-")
    both = tacit("ledger", "budget", "--ledger", ledger, "--secret", "t", *pair)
    assert json.loads(both.out)["budget"] == {
        "mi_budget": None,
        "epsilon": 1.0,
        "delta": 1e-6,
        "mu": None,
        "leakage": None,
        "orders": None,
    }
    looked = tacit("ledger", "budget", "--ledger", ledger, "--secret", "t")
    assert "ε = 1, δ = 1e-06" in looked.out


def test_gate_json(data: Path, tmp_path: Path, tacit: Tacit) -> None:
    out = tmp_path / "out.json"
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--success", "0.6")
    assert tacit(*command, "--protect", "draw", "--json", out, *QUICK).code == 0
    thresholds = (
        "--max-success",
        "0.6",
        "--max-information",
        "0.001",
        "--max-attack",
        "1",
        "--json",
        "-",
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
    done = forked_tacit(
        *("statistic", data, "--query", "middle:median", "--columns", "a,b", "--success", "0.6"),
        *("--protect", "draw", "--json", "-", "--no-attack", *QUICK),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["numbers"]["values"]) == 2


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


def test_a_password_in_a_ledger_url_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://user:hidden@host:5432/name"
    monkeypatch.setattr(sys, "argv", ["tacit", "statistic", "--ledger", url])
    assert command_line() == "tacit statistic --ledger postgresql://user:***@host:5432/name"


def test_a_password_in_the_query_of_a_url_is_told_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://host/name?user=me&password=hid den&sslpassword=hidden"
    other = "postgresql://me:hid den@host/name"
    odbc = "mssql+pyodbc:///?driver=me&odbc_connect=DRIVER%3DX%3BPWD%3Dhidden&Access_Token=hidden"
    given = ["--ledger", url, f"--database={other}", "--database", odbc]
    monkeypatch.setattr(sys, "argv", ["tacit", "statistic", *given])
    for told in (command_line(), label_of(parse_location("ledger", url))):
        assert "me" in told
        assert "hid" not in told
