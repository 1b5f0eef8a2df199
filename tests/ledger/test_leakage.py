"""Budgets of maximal leakage: factors multiply, their nats are counted exactly."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tacit.cli import run
from tacit.hidden_states.codebooks.certificates import certify
from tacit.ledger import Budget, BudgetExceededError, IncomparableGuaranteeError, Ledger
from tests.ledger.guarantees import factor, nats, pair


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def test_codes_about_one_prompt_multiply_until_the_budget_is_spent(ledger: Ledger) -> None:
    ledger.set_budget("prompt", leakage=13.0)
    for count in range(1, 4):
        with ledger.reserve("prompt", factor(64), "a code") as reservation:
            reservation.mark_drawn()
            reservation.commit({"code": 7})
        assert math.log(64**count) <= ledger.spent("prompt").leakage
        assert ledger.spent("prompt").leakage <= math.log(64**count) * (1 + 1e-12)
    with pytest.raises(BudgetExceededError, match=r"13 nats of maximal leakage, 12\.4767 nats of"):
        ledger.reserve("prompt", factor(64), "a fourth")
    assert ledger.remaining("prompt") == Budget(leakage=13.0 - ledger.spent("prompt").leakage)
    assert ledger.verify().holds
    assert Ledger(ledger.location).spent("prompt") == ledger.spent("prompt")


def test_a_certificate_of_codes_spends_in_every_budget_it_speaks_about(ledger: Ledger) -> None:
    found = certify([0, 0, 1, 1, 1, 2, 2, 2, 2, 2], size=4)
    statements = [found.leakage, found.information]
    ledger.set_budget("prompt", leakage=3.0, mi_budget=1.5)
    ledger.reserve("prompt", statements, "a code")
    assert ledger.spent("prompt").leakage == found.leakage.nats
    assert ledger.spent("prompt").nats == found.information.nats
    with pytest.raises(BudgetExceededError, match="nats"):
        ledger.reserve("prompt", statements, "another")
    assert ledger.entries()[0].cost.endswith("nats of maximal leakage and 1.02966 nats")


def test_a_factor_alone_counts_against_information_and_nothing_else_against_a_factor(
    ledger: Ledger,
) -> None:
    ledger.set_budget("nats", mi_budget=1.0)
    ledger.reserve("nats", factor(2), "ln 2 at most under every law")
    assert ledger.spent("nats").nats >= math.log(2)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("nats", factor(2), "ln 4 is more than 1")
    ledger.set_budget("factor", leakage=1.0)
    for guarantee in (nats(0.1), pair(0.1, 0.0)):
        with pytest.raises(IncomparableGuaranteeError, match="budget of 1 nat of maximal leakage"):
            ledger.reserve("factor", guarantee, "says nothing for every prior")
    with pytest.raises(ValueError, match="at most one statement that counts as 'maximal-leakage'"):
        ledger.reserve("factor", [factor(2), factor(3)], "two factors of one release")
    with pytest.raises(ValueError, match="leakage: expected a finite number > 0"):
        ledger.set_budget("factor", leakage=0.0)


def test_a_budget_of_leakage_is_set_changed_dropped_and_kept_in_history(ledger: Ledger) -> None:
    ledger.set_budget("s", leakage=4.0)
    assert ledger.set_budget("s", mi_budget=1.0) == Budget(leakage=4.0, nats=1.0)
    assert ledger.drop_budget("s", "leakage") == Budget(nats=1.0)
    assert [change.new for change in ledger.budget_history("s")] == [
        Budget(leakage=4.0),
        Budget(leakage=4.0, nats=1.0),
        Budget(nats=1.0),
    ]
    with pytest.raises(ValueError, match="drop: expected a budget that has leakage"):
        ledger.drop_budget("s", "leakage")


def test_the_command_sets_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "ledger.db")
    asked = ["ledger", "budget", "--ledger", path, "--secret", "prompt"]
    assert run([*asked, "--leakage", "9"]) == 0
    assert "9 nats of maximal leakage" in capsys.readouterr().out
    Ledger(path).reserve("prompt", factor(1024), "a code")
    assert run(["ledger", "show", "--ledger", path, "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)["secrets"][0]
    assert shown["spent"]["leakage"] == pytest.approx(math.log(1024))
    assert shown["budget"]["leakage"] == 9.0
    assert run([*asked, "--drop", "leakage"]) == 0
