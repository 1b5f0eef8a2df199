"""``tacit ledger`` and the secrets that ``tacit statistic`` spends from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.ledger import Budget, Ledger
from tacit.statistics import fingerprint
from tacit.statistics.tables.reading import fingerprints
from tests.cli_runner import QUICK, Tacit, refused, write_table
from tests.ledger.guarantees import gaussian_curve, nats


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_table(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger(tmp_path / "ledger.db").set_budget("customers", mi_budget=1.0)
    return tmp_path / "ledger.db"


def release(tacit: Tacit, data: Path, path: Path, *more: str) -> object:
    command = ("statistic", data, "--query", "mean", "--columns", "a", "--mi-budget", "0.1")
    return tacit(*command, "--protect", "draw", "--ledger", path, "--no-attack", *QUICK, *more)


def test_a_misspelt_or_missing_secret_is_refused(data: Path, path: Path, tacit: Tacit) -> None:
    misspelt = release(tacit, data, path, "--secret", "custmers")
    refused(misspelt, "'custmers' has no budget", "did you mean 'customers'?", "--no-budget")
    refused(release(tacit, data, path), "has no budget", "'customers'", "nothing was drawn")
    assert Ledger(path).entries() == ()
    assert release(tacit, data, path, "--no-budget").code == 0
    assert release(tacit, data, path, "--secret", "customers").code == 0
    assert Ledger(path).secrets() == ("customers", fingerprint(data))
    alone = ("statistic", data, "--query", "mean", "--success", "0.6", "--no-budget")
    refused(tacit(*alone, "--columns", "a"), "--no-budget: expected --ledger")


def test_the_same_rows_written_otherwise_spend_from_the_same_budget(
    data: Path, path: Path, tacit: Tacit
) -> None:
    assert (
        tacit("ledger", "budget", "--ledger", path, "--data", data, "--mi-budget", "0.15").code == 0
    )
    assert release(tacit, data, path).code == 0
    data.write_text(data.read_text().replace(",", ";"))
    refused(release(tacit, data, path), "budget of 0.15 nats", "nothing was drawn")


def test_a_table_named_by_0_1_keeps_its_name(data: Path, path: Path, tacit: Tacit) -> None:
    Ledger(path).set_budget(fingerprints(data).file, mi_budget=0.15)
    assert release(tacit, data, path).code == 0
    assert Ledger(path).spent(fingerprints(data).file).releases == 1
    shown = tacit("ledger", "show", "--ledger", path, "--data", data)
    assert fingerprints(data).file in shown.out


@pytest.mark.parametrize("command", ["show", "budget"])
def test_an_unknown_secret_is_refused_with_names(path: Path, tacit: Tacit, command: str) -> None:
    asked = ("ledger", command, "--ledger", path, "--secret")
    refused(tacit(*asked, "Customer"), "no secret 'Customer'", "did you mean 'customers'?")
    refused(tacit(*asked, "nosuch", "--json", "-"), "no secret 'nosuch'", "it has 'customers'")
    assert Ledger(path).secrets() == ("customers",)


def test_kinds_of_budget_are_added_and_dropped(path: Path, tacit: Tacit) -> None:
    command = ("ledger", "budget", "--ledger", path, "--secret", "customers")
    both = tacit(*command, "--epsilon", "1", "--delta", "1e-6", "--orders", "8,16", "--mu", "0.5")
    assert "1 nat and ε = 1, δ = 1e-06 (orders 8, 16) and μ = 0.5" in both.out
    assert tacit(*command, "--drop", "mi_budget, mu").code == 0
    assert Ledger(path).budget("customers") == Budget(epsilon=1.0, delta=1e-6, orders=(8.0, 16.0))
    refused(tacit(*command, "--drop", "mu"), "drop: expected a budget that has mu")
    refused(tacit(*command, "--drop", "mu", "--mu", "1"), "--drop", "no new limit")
    refused(tacit(*command, "--orders", "x", "--epsilon", "1"), "--orders", "'x'")
    refused(tacit(*command, "--orders", "8"), "epsilon: expected a value beside")
    Ledger(path).reserve("customers", gaussian_curve(50.0), "curve").commit({})
    refused(tacit(*command, "--epsilon", "1", "--orders", "4"), "orders: expected the orders fixed")
    shown = tacit("ledger", "show", "--ledger", path)
    assert shown.out.count("  budget ") == 3
    assert "1 nat → 1 nat and ε = 1" in shown.out


def test_a_new_name_beside_a_near_one_is_said(path: Path, tacit: Tacit) -> None:
    command = ("ledger", "budget", "--ledger", path, "--secret", "customer", "--mi-budget", "1")
    assert "'customer' was not in the ledger; 'customers' is" in tacit(*command).out
    assert "was not in" not in tacit(*command).out


def test_an_unknown_status_counts_and_is_shown(path: Path, tacit: Tacit) -> None:
    import sqlite3
    from contextlib import closing

    Ledger(path).reserve("customers", nats(0.25), "one").commit({})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE tacit_entries SET status = 'refunded'")
        connection.commit()
    shown = tacit("ledger", "show", "--ledger", path, "--json", "-")
    (secret,) = json.loads(shown.out)["secrets"]
    assert (secret["spent"]["nats"], secret["entries"][0]["status"]) == (0.25, "refunded")


@pytest.mark.parametrize("location", ["~nobody-of-this-name/x.db", "x" * 300, "a\x00b"])
def test_a_location_that_is_no_path_is_one_sentence(
    data: Path, tmp_path: Path, tacit: Tacit, location: str
) -> None:
    with pytest.raises(ValueError, match="ledger: expected a file path, got"):
        Ledger(location)
    for command in ("show", "verify", "report"):
        refused(tacit("ledger", command, "--ledger", location), "tacit: --ledger: expected a file")
    refused(release(tacit, data, Path(location)), "ledger: expected a file path")
    refused(
        tacit(
            "statistic",
            data,
            "--query",
            "mean",
            "--columns",
            "a",
            "--mi-budget",
            "0.1",
            "--protect",
            "draw",
            "--report",
            location,
            *QUICK,
        ),
        "--report: expected a file path",
    )


def test_a_budget_that_counts_no_nats_says_so(data: Path, path: Path, tacit: Tacit) -> None:
    Ledger(path).set_budget("t", epsilon=1.0)
    outcome = release(tacit, data, path, "--secret", "t")
    refused(outcome, "guarantee: a guarantee of kind 'information' cannot be compared", "ε = 1")


def test_a_release_of_nothing_is_said_to_cost_0_nats(path: Path, tacit: Tacit) -> None:
    ledger = Ledger(path)
    ledger.reserve("s", nats(0.0), "a constant", no_budget=True).commit({})
    assert "spent        0 nats in 1 release" in tacit("ledger", "show", "--ledger", path).out


@pytest.mark.parametrize("flags", [("--orders", "8"), ("--delta", "1e-6")])
def test_what_stands_beside_epsilon_asks_for_it(
    path: Path, tacit: Tacit, flags: tuple[str, str]
) -> None:
    new = path.with_name("new.db")
    outcome = tacit("ledger", "budget", "--ledger", new, "--secret", "s", *flags)
    refused(outcome, f"epsilon: expected a value beside {flags[0][2:]}")
    assert not new.exists()
