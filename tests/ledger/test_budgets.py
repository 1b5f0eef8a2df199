"""Budgets of several kinds, their history, and secrets that have none."""

from __future__ import annotations

import difflib
import math
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import gaussian
from tacit.ledger import (
    Budget,
    BudgetExceededError,
    IncomparableGuaranteeError,
    Ledger,
    NoBudgetError,
)
from tacit.ledger.account import Total, account_from_json, root_down, root_up
from tacit.ledger.filters import curve_epsilon
from tacit.ledger.notions import shown
from tests.ledger.guarantees import gaussian_curve, gdp, nats, pair, success


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def test_a_second_kind_of_budget_keeps_the_first(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.5)
    assert ledger.set_budget("s", epsilon=1.0, delta=1e-6) == Budget(
        nats=0.5, epsilon=1.0, delta=1e-6
    )
    ledger.set_budget("s", mu=2.0)
    assert ledger.budget("s") == Budget(nats=0.5, epsilon=1.0, delta=1e-6, mu=2.0)
    assert ledger.set_budget("s", mi_budget=0.25).nats == 0.25
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.5), "above the nats")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", pair(1.5, 0.0), "above ε")
    ledger.reserve("s", nats(0.25), "within the nats")
    with pytest.raises(IncomparableGuaranteeError, match="cannot be compared with a budget of"):
        ledger.reserve("s", success(0.6), "states nothing that is counted")


def test_a_release_must_fit_every_kind_it_states_something_in(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.5, mu=1.0, epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", [nats(0.1), gdp(1.5)], "fits the nats, not μ")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", [nats(0.6), gdp(0.1)], "fits μ, not the nats")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", gdp(0.9), "fits μ, not (ε, δ)")
    ledger.reserve("s", [nats(0.4), gdp(0.1)], "fits all").commit({})
    spent = ledger.spent("s")
    assert (spent.nats, spent.gaussian, spent.releases) == (0.4, {"add-remove": 0.1}, 1)
    assert spent.renyi["add-remove"][1][1] == pytest.approx(0.01)  # α μ²/2 at α = 2
    (entry,) = ledger.entries("s")
    assert entry.guarantees == (nats(0.4), gdp(0.1))
    assert entry.cost == "0.4 nats and μ = 0.1"


@pytest.mark.parametrize(
    "statements", [[pair(0.1, 0), gaussian_curve(9.0)], [nats(0.1), nats(0.1)], []]
)
def test_statements_among_which_one_would_be_chosen_are_refused(
    ledger: Ledger, statements: list[object]
) -> None:
    with pytest.raises(ValueError, match="guarantee: expected"):
        ledger.reserve("s", statements, "twice")
    assert ledger.secrets() == ()


def test_squares_of_mu_add_exactly(ledger: Ledger) -> None:
    ledger.set_budget("s", mu=5.0)
    ledger.reserve("s", gdp(3.0), "first")
    assert ledger.remaining("s") == Budget(mu=4.0)
    with pytest.raises(BudgetExceededError, match=r"budget of μ = 5, μ = 3 spent.*asks for μ = "):
        ledger.reserve("s", gdp(math.nextafter(4.0, 5.0)), "an ulp too much")
    ledger.reserve("s", gdp(4.0), "the rest")
    assert ledger.spent("s").gaussian == {"add-remove": 5.0}
    assert ledger.remaining("s") == Budget(mu=0.0)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", gdp(5e-324), "the smallest float")
    ledger.reserve("s", gdp(0.0), "nothing")


def test_mu_is_not_counted_from_curves_or_across_adjacencies(ledger: Ledger) -> None:
    ledger.set_budget("s", mu=5.0)
    with pytest.raises(IncomparableGuaranteeError, match="'renyi-dp' cannot be compared"):
        ledger.reserve("s", gaussian_curve(9.0), "a curve bounds no μ")
    ledger.reserve("s", gdp(1.0), "first")
    with pytest.raises(IncomparableGuaranteeError, match="adjacenc"):
        ledger.reserve("s", gdp(1.0, "replace-one"), "another adjacency")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", gdp(math.inf), "no bound")


@given(st.lists(st.floats(min_value=0.0, allow_infinity=False), min_size=1, max_size=8))
@settings(derandomize=True, max_examples=300)
def test_roots_are_rounded_to_the_safe_side(values: list[float]) -> None:
    square = sum((Fraction(value) ** 2 for value in values), Fraction(0))
    above, below = (
        root_up(Total.lowest(square.numerator, square.denominator.bit_length() - 1)),
        root_down(square),
    )
    assert math.isinf(above) or Fraction(above) ** 2 >= square
    assert above == 0.0 or Fraction(math.nextafter(above, 0.0)) ** 2 < square
    assert Fraction(below) ** 2 <= square
    over = math.nextafter(below, math.inf)
    assert math.isinf(over) or Fraction(over) ** 2 > square


def test_orders_are_fixed_before_the_first_curve(ledger: Ledger) -> None:
    ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=[8, 32])
    assert ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=16.0).orders == (16.0,)
    ledger.reserve("s", gaussian_curve(50.0), "first")
    with pytest.raises(ValueError, match=r"orders: expected the orders fixed .* \[16.0\], got"):
        ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=8)
    assert ledger.set_budget("s", epsilon=2.0, delta=1e-6).orders == (16.0,)
    ledger.drop_budget("s", "epsilon")
    assert ledger.set_budget("s", epsilon=2.0, delta=1e-6).orders == (16.0,)
    assert "orders 16" in str(ledger.budget("s"))


def test_orders_cannot_be_picked_after_curves_recorded_without_a_budget(ledger: Ledger) -> None:
    reservation = ledger.reserve("s", gaussian_curve(50.0), "first")
    with pytest.raises(ValueError, match="orders: expected the orders fixed"):
        ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=8)
    assert ledger.budget("s") is None
    reservation.cancel()
    assert ledger.set_budget("s", epsilon=2.0, delta=1e-6, orders=8).orders == (8.0,)


@pytest.mark.parametrize("orders", [1.0, [2, 2], [4, 2], [], [math.inf], ["8"], math.nan])
def test_bad_orders_are_refused(ledger: Ledger, orders: object) -> None:
    with pytest.raises(ValueError, match="orders"):
        ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=orders)
    assert ledger.secrets() == ()


def test_every_change_of_a_budget_leaves_a_trace(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.5)
    ledger.set_budget("s", mi_budget=50.0)
    ledger.set_budget("s", mu=1.0)
    ledger.drop_budget("s", "mi_budget")
    assert ledger.drop_budget("s", "mu") is None
    history = ledger.budget_history("s")
    assert [(change.old, change.new) for change in history] == [
        (None, Budget(nats=0.5)),
        (Budget(nats=0.5), Budget(nats=50.0)),
        (Budget(nats=50.0), Budget(nats=50.0, mu=1.0)),
        (Budget(nats=50.0, mu=1.0), Budget(mu=1.0)),
        (Budget(mu=1.0), None),
    ]
    assert all("@" in change.who and change.time.endswith("+00:00") for change in history)
    assert ledger.budget_history("t") == ()
    assert ledger.verify().holds


@pytest.mark.parametrize("kinds", [("mu",), ("nats",), ("mi_budget", "mi_budget")])
def test_only_a_kind_that_is_there_is_dropped(ledger: Ledger, kinds: tuple[str, ...]) -> None:
    ledger.set_budget("s", mi_budget=0.5)
    with pytest.raises(ValueError, match="drop: expected"):
        ledger.drop_budget("s", *kinds)
    assert ledger.budget("s") == Budget(nats=0.5)


def test_a_secret_without_a_budget_is_refused_where_others_have_one(ledger: Ledger) -> None:
    ledger.reserve("Customers", nats(0.5), "before any budget")
    ledger.set_budget("customers", mi_budget=1.0)
    for name, near in (("custmers", ("customers",)), ("zebra", ()), ("Customers", ("customers",))):
        with pytest.raises(NoBudgetError, match="no_budget=True") as caught:
            ledger.reserve(name, nats(0.1), "misspelt")
        assert set(caught.value.near) >= set(near)
        assert "'customers'" in str(caught.value)
    assert ledger.secrets() == ("Customers", "customers")
    ledger.reserve("custmers", nats(0.1), "on purpose", no_budget=True)
    assert ledger.spent("custmers").nats == 0.1
    assert ledger.near("customer") == ("Customers", "customers", "custmers")
    ledger.drop_budget("customers", "mi_budget")
    ledger.reserve("zebra", nats(0.1), "no budget is in force any more")


def test_names_are_compared_when_nobody_waits_and_fingerprints_never(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.ledger import ledger as module

    prints = [f"sha256:{number:064x}" for number in range(20)]
    for name in ("customers", *prints):
        ledger.set_budget(name, mi_budget=1.0)
    compared: list[str] = []
    held: list[bool] = []

    def recording(name: str, names: Iterable[str], **options: float) -> list[str]:
        compared.extend(names)
        with closing(sqlite3.connect(ledger.location, timeout=0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                held.append(False)
            except sqlite3.OperationalError:
                held.append(True)
        return difflib.get_close_matches(name, list(names), **options)

    monkeypatch.setattr(module, "get_close_matches", recording)
    with pytest.raises(NoBudgetError, match="did you mean 'customers'") as caught:
        ledger.reserve("custmers", nats(0.1), "misspelt")
    assert caught.value.near == ("customers",)
    assert compared == ["customers"]
    assert held == [False]
    with pytest.raises(NoBudgetError) as caught:
        ledger.reserve(f"sha256:{99:064x}", nats(0.1), "another table")
    assert caught.value.near == ()
    assert "custmers" not in ledger.secrets()


def test_a_profile_is_no_guarantee(ledger: Ledger) -> None:
    profile = gaussian(1.0, 4.0) * 10
    with pytest.raises(ValueError, match="a profile is spent as its guarantee"):
        ledger.reserve("s", profile, "ten")  # type: ignore[arg-type]
    ledger.set_budget("s", epsilon=10.0, delta=1e-5)
    guarantee = profile.guarantee(delta=1e-5)
    assert any("fixed in advance" in assumption for assumption in guarantee.assumptions)
    ledger.reserve("s", guarantee, "ten, fixed in advance")


def test_cancelling_restores_the_account_to_the_letter(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=1e300, mu=1e150)
    ledger.reserve("s", [nats(0.1), gdp(0.3)], "kept").commit({})
    with ledger._store.transaction() as connection:
        before = connection.exec_driver_sql("SELECT account FROM tacit_secrets").scalar_one()
    for statements in ([nats(1e-300), gdp(5e-324)], [nats(1e299), gdp(1e149)]):
        ledger.reserve("s", statements, "cancelled").cancel()
    ledger.drop_budget("s", "mi_budget", "mu")
    ledger.reserve("s", [nats(math.inf), gdp(math.inf)], "cancelled").cancel()
    ledger.set_budget("s", mi_budget=1e300, mu=1e150)
    with ledger._store.transaction() as connection:
        after = connection.exec_driver_sql("SELECT account FROM tacit_secrets").scalar_one()
    assert before == after
    assert account_from_json(after).to_json() == after
    assert ledger.verify().holds


def test_curves_that_do_not_fit_are_refused_with_their_numbers(ledger: Ledger) -> None:
    ledger.set_budget("s", epsilon=2.0, delta=1e-6, orders=(16.0,))
    ledger.reserve("s", gaussian_curve(10.0), "first").commit({})
    spent = curve_epsilon(ledger.spent("s").renyi["add-remove"], 1e-6)
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve("s", gaussian_curve(2.0), "too much")
    assert f"ε = {shown(spent)} spent and " in str(caught.value)
    assert "with it at δ = 1e-06 (add-remove)" in str(caught.value)


def test_orders_whose_conversion_alone_is_too_much_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match=r"orders: .* conversion alone gives ε = 1[0-9]"):
        ledger.set_budget("s", epsilon=1.0, delta=1e-6, orders=2.0)
    assert ledger.secrets() == ()
