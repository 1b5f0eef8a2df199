"""A SELECT at the command line: what a policy says of ledger, secret and budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.ledger import Ledger
from tests.cli_runner import Tacit, refused

POLICY = """
person = "who"
{more}
[tables]
t = "t.csv"
[bounds]
x = [0, 10]
[query]
epsilon = 1.0
[budget]
epsilon = 1.5
"""
ASKED = ("sql", "SELECT AVG(x) FROM t", "--clip", "3", "--declarations")


@pytest.fixture
def policy(tmp_path: Path):
    (tmp_path / "t.csv").write_text("who,x\na,1\nb,2\n")

    def written(more: str) -> Path:
        path = tmp_path / "data.toml"
        path.write_text(POLICY.format(more=more))
        return path

    return written


@pytest.mark.parametrize("line", ["[0, 10]", "epsilon = 1.0"])
def test_a_number_that_no_double_holds_is_refused(policy, tmp_path, tacit: Tacit, line) -> None:
    file = policy("")
    file.write_text(file.read_text().replace(line, line.replace("1", "1" * 400, 1)))
    if line.endswith(".0"):
        file.write_text(file.read_text().replace(".0\n", "\n"))
    refused(tacit(*ASKED, file), "--declarations: expected")


@pytest.mark.parametrize(
    "line", ['ledger = "~nobody-here/l.db"', '[tables]\nt = "~nobody-here/t.csv"']
)
def test_a_folder_of_nobody_is_a_sentence(tmp_path: Path, tacit: Tacit, line: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'person = "who"\n{line}\n')
    refused(tacit(*ASKED, file), "--declarations: expected a path of", "~nobody-here")
    refused(tacit(*ASKED, "~nobody-here/policy.toml"), "--declarations: cannot read ~nobody-here")
    asked = (*ASKED[:2], "--table", "t=~nobody-here/t.csv", "--person", "who", "--mu", "1")
    refused(tacit(*asked, "--bounds", "x=0:10"), "~nobody-here")


def test_a_secret_is_named_beside_the_ledger_of_a_policy(policy, tmp_path, tacit: Tacit) -> None:
    file = policy('ledger = "l.db"')
    for code in (0, 2):
        done = tacit(*ASKED, file, "--secret", "shop")
        assert done.code == code, done.err
    # under another name it would be spent once more
    refused(tacit(*ASKED, file, "--secret", "again"), "'again' has no budget")
    assert Ledger(str(tmp_path / "l.db")).secrets() == ("shop",)


def test_a_table_that_grew_does_not_get_the_budget_of_its_policy_again(
    policy, tmp_path, tacit: Tacit
) -> None:
    file = policy('ledger = "l.db"')
    assert tacit(*ASKED, file).code == 0
    (tmp_path / "t.csv").write_text("who,x\na,1\nb,2\nc,3\n")
    refused(tacit(*ASKED, file), "has no budget, and other secrets of this ledger have one")
    # of a secret that is named it is the same budget, which is spent
    file = policy('ledger = "m.db"\nsecret = "shop"')
    assert tacit(*ASKED, file).code == 0
    (tmp_path / "t.csv").write_text("who,x\na,1\nb,2\nc,3\nd,4\n")
    refused(tacit(*ASKED, file), "budget: secret 'shop' has a budget of ε = 1.5")


@pytest.mark.parametrize(
    "ledger", ["l.db", "sqlite:///l.db", "sqlite:///./l.db?mode=rwc", "~/l.db"]
)
def test_a_ledger_of_a_policy_is_one_file_from_wherever_it_is_asked(
    policy, tmp_path, tacit: Tacit, monkeypatch, ledger
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = policy(f'ledger = "{ledger}"\nsecret = "shop"')
    for name, code in (("one", 0), ("other", 2)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert tacit(*ASKED, file).code == code
    assert Ledger(str(tmp_path / "l.db")).secrets() == ("shop",)


def test_a_ledger_of_a_policy_is_no_uri_of_sqlite(policy, tacit: Tacit) -> None:
    """SQLite would open ``l.db`` of the current folder, and we a file of that whole name."""
    for location in ("sqlite:///file:l.db?mode=rwc&uri=true", "file:l.db"):
        refused(
            tacit(*ASKED, policy(f'ledger = "{location}"')), "--declarations: ", "a URI of SQLite"
        )


def test_what_a_policy_names_is_not_named_otherwise(policy, tmp_path, tacit: Tacit) -> None:
    file = policy('ledger = "l.db"\nsecret = "shop"')
    refused(tacit(*ASKED, file, "--secret", "other"), "--secret", "as the policy says")
    refused(tacit(*ASKED, file, "--ledger", tmp_path / "m.db"), "--ledger", "as the policy says")
    refused(tacit(*ASKED, file, "--person", "x"), "--person: expected who", "as the policy says")
    refused(tacit(*ASKED, file, "--public-table", "t"), "--public-table: ", "the policy says t is")
    # of another name the file of persons is what it is, and its name is of no other file
    alias = ("--table", f"u={tmp_path / 't.csv'}", "--public-table", "u")
    refused(tacit(*ASKED, file, *alias), "--public-table: ", "the policy says t is")
    refused(tacit(*ASKED, file, "--table", f"t={file}"), "--table: expected t as the policy has it")
    # of a server another schema's is another
    there = policy('database = "postgresql://nowhere.invalid/none"')
    moved = ("--table", "t=staging.csv")
    refused(tacit(*ASKED, there, *moved), "--table: expected t as the policy has it")
    elsewhere = ("--database", "postgresql://elsewhere.invalid/none")
    refused(tacit(*ASKED, there, *elsewhere), "--database: ", "as the policy says")
    file = policy('ledger = "l.db"\nsecret = "shop"')
    done = tacit(*ASKED, file, "--ledger", tmp_path / "l.db", "--secret", "shop")
    assert done.code == 0, done.err
    refused(tacit(*ASKED, policy(""), "--secret", "shop"), "--secret", "--ledger beside it")


def test_one_table_has_one_name_in_a_ledger(policy, tmp_path, tacit: Tacit) -> None:
    policy("")
    table, ledger = tmp_path / "t.csv", tmp_path / "l.db"
    asked = ("--person", "who", "--epsilon", "0.2", "--ledger", ledger)
    tacit("sql", "SELECT COUNT(DISTINCT who) FROM t", "--table", f"t={table}", *asked)
    tacit("statistic", table, "--query", "count", "--protect", "table", *asked)
    (name,) = Ledger(str(ledger)).secrets()
    assert len(Ledger(str(ledger)).entries(name)) == 2
