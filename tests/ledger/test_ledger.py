"""The ledger: sums, refusals, crashes, races, and files that are not ledgers."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit._ground.numbers import rounded_down, rounded_up
from tacit.ledger import (
    Budget,
    BudgetExceededError,
    Charge,
    IncomparableGuaranteeError,
    Ledger,
    charge_of,
)
from tacit.ledger.account import DEFAULT_ORDERS, Account
from tacit.ledger.filters import exceeds, left
from tests.ledger.guarantees import gaussian_curve, nats, pair, success


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


def test_nats_add_up_to_the_budget_and_not_beyond(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.75)
    ledger.reserve("s", nats(0.25), "first").commit({})
    ledger.reserve("s", nats(0.5), "second").commit({})
    assert ledger.spent("s").nats == 0.75
    assert ledger.remaining("s") == Budget(nats=0.0)
    with pytest.raises(BudgetExceededError) as caught:
        ledger.reserve("s", nats(2.0**-60), "third")
    assert caught.value.secret == "s"
    assert caught.value.budget == Budget(nats=0.75)
    assert caught.value.spent.nats == 0.75
    assert caught.value.asked.nats == 2.0**-60
    assert "0.75 nats" in str(caught.value)
    assert len(ledger.entries("s")) == 2


def test_the_comparison_is_exact_where_floats_would_forgive(ledger: Ledger) -> None:
    # the float 0.1 is above 1/10, so ten of them exceed 1 although 0.1 * 10 == 1.0
    ledger.set_budget("s", mi_budget=1.0)
    for index in range(9):
        ledger.reserve("s", nats(0.1), str(index)).commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.1), "tenth")


def test_secrets_do_not_share_a_budget(ledger: Ledger) -> None:
    ledger.set_budget("a", mi_budget=0.1)
    ledger.set_budget("b", mi_budget=0.1)
    ledger.reserve("a", nats(0.1), "all of a").commit({})
    ledger.reserve("b", nats(0.1), "all of b").commit({})
    assert ledger.secrets() == ("a", "b")
    assert len(ledger.entries()) == 2
    assert [entry.description for entry in ledger.entries("b")] == ["all of b"]


@given(st.floats(min_value=1e-300, max_value=1e9), st.floats(min_value=0.0, max_value=1e9))
@settings(derandomize=True, max_examples=200)
def test_what_is_left_never_overruns(limit: float, spent: float) -> None:
    rest = left(limit, spent)
    assert rest >= 0
    assert Fraction(spent) + Fraction(rest) <= max(Fraction(limit), Fraction(spent))


def test_epsilon_and_delta_both_add(ledger: Ledger) -> None:
    ledger.set_budget("s", epsilon=1.0, delta=2.0**-10)
    ledger.reserve("s", pair(0.5, 2.0**-11), "first").commit({})
    assert ledger.spent("s").approximate == {"add-remove": (0.5, 2.0**-11)}
    assert ledger.remaining("s") == Budget(epsilon=0.5, delta=2.0**-11)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", pair(0.75, 0.0), "too much epsilon")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", pair(0.25, 2.0**-10), "too much delta")
    ledger.reserve("s", pair(0.5, 2.0**-11), "exactly the rest").commit({})


def converted(order: float, value: float, delta: float) -> float:
    """Balle et al. (2020), Theorem 21, at one order."""
    return value + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def test_renyi_curves_add_at_an_order_fixed_with_the_budget(ledger: Ledger) -> None:
    sigma, delta, order = 8.0, 1e-6, 16.0

    def epsilon(count: int) -> float:
        return converted(order, count * order / (2 * sigma**2), delta)

    ledger.set_budget("s", epsilon=(epsilon(3) + epsilon(4)) / 2, delta=delta, orders=order)
    for index in range(3):
        ledger.reserve("s", gaussian_curve(sigma), str(index)).commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", gaussian_curve(sigma), "fourth")
    orders, values = ledger.spent("s").renyi["add-remove"]
    assert orders == (order,)
    assert values == pytest.approx([3 * order / (2 * sigma**2)], rel=1e-15)


def test_renyi_curves_pay_for_the_choice_among_orders(ledger: Ledger) -> None:
    sigma, delta = 8.0, 1e-6

    def epsilon(count: int, share: float) -> float:
        return min(
            converted(order, count * order / (2 * sigma**2), delta * share)
            for order in DEFAULT_ORDERS
        )

    between = (epsilon(3, 1.0) + epsilon(3, 1 / len(DEFAULT_ORDERS))) / 2
    ledger.set_budget("cheap", epsilon=between, delta=delta)
    ledger.set_budget("s", epsilon=epsilon(3, 1 / len(DEFAULT_ORDERS)) + 1e-9, delta=delta)
    curve = gaussian_curve(sigma, DEFAULT_ORDERS)
    for index in range(3):
        ledger.reserve("s", curve, str(index)).commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", curve, "fourth")
    for index in range(2):
        ledger.reserve("cheap", curve, str(index)).commit({})
    with pytest.raises(BudgetExceededError):  # the best order after the fact would admit it
        ledger.reserve("cheap", curve, "third")


def test_curves_are_bounded_at_missing_orders_by_the_next_order() -> None:
    first = charge_of(gaussian_curve(2.0, (2.0, 8.0)))
    second = charge_of(gaussian_curve(3.0, (4.0, 16.0)))
    account = Account(orders=(1.5, 4.0, 8.0, 16.0)).added([first]).added([second])
    orders, values = account.curve("add-remove")
    assert orders == (1.5, 4.0, 8.0, 16.0)
    for order, value in zip(orders, values, strict=True):
        assert value >= order / 8 + order / 18
    assert values[:3] == pytest.approx((2 / 8 + 4 / 18, 8 / 8 + 4 / 18, 8 / 8 + 16 / 18))
    assert math.isinf(values[-1])


@pytest.mark.parametrize(
    ("limits", "guarantee"),
    [
        ({"mi_budget": 10.0}, pair(0.1, 0.0)),
        ({"mi_budget": 10.0}, gaussian_curve(100.0)),
        ({"epsilon": 10.0, "delta": 0.1}, nats(0.001)),
        ({"mi_budget": 10.0}, success(0.51)),
        ({"epsilon": 10.0}, success(0.51)),
    ],
)
def test_a_budget_refuses_what_it_cannot_count(
    ledger: Ledger, limits: dict[str, float], guarantee: object
) -> None:
    ledger.set_budget("s", **limits)
    with pytest.raises(IncomparableGuaranteeError, match="cannot be compared"):
        ledger.reserve("s", guarantee, "incomparable")
    assert ledger.entries() == ()


def test_mixing_pairs_and_curves_or_adjacencies_is_refused(ledger: Ledger) -> None:
    ledger.set_budget("s", epsilon=10.0, delta=1e-5)
    ledger.reserve("s", pair(0.1, 0.0), "pair").commit({})
    with pytest.raises(IncomparableGuaranteeError, match="Rényi"):
        ledger.reserve("s", gaussian_curve(100.0), "curve")
    with pytest.raises(IncomparableGuaranteeError, match="adjacenc"):
        ledger.reserve("s", pair(0.1, 0.0, "replace-one"), "other adjacency")


def test_without_a_budget_everything_is_recorded_and_later_blocks_a_budget(ledger: Ledger) -> None:
    ledger.reserve("s", success(0.6), "a success bound alone").commit({})
    assert ledger.spent("s").unadded == 1
    assert ledger.remaining("s") is None
    ledger.set_budget("s", mi_budget=5.0)
    assert ledger.remaining("s") == Budget(nats=0.0)
    with pytest.raises(IncomparableGuaranteeError, match="among the releases recorded"):
        ledger.reserve("s", nats(0.001), "cannot be counted with it")


def test_two_budgets_are_two_promises(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.5, epsilon=1.0, delta=0.0)
    ledger.reserve("s", nats(0.5), "in nats").commit({})
    ledger.reserve("s", pair(1.0, 0.0), "in epsilon").commit({})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.01), "more nats")


def test_a_seeded_release_is_refused_under_a_budget_and_void_without(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=100.0)
    with pytest.raises(BudgetExceededError, match="asks for everything"):
        ledger.reserve("s", nats(0.001), "seeded", reproducible=True)
    assert ledger.entries("s") == ()
    ledger.reserve("t", nats(0.001), "seeded", reproducible=True, no_budget=True).commit({})
    assert math.isinf(ledger.spent("t").nats)
    assert ledger.spent("t").void == 1
    ledger.set_budget("t", mi_budget=100.0)
    assert ledger.remaining("t") == Budget(nats=0.0)
    with pytest.raises(BudgetExceededError, match="everything"):
        ledger.reserve("t", nats(0.001), "after a void one")


def test_failure_probabilities_add_by_the_union_bound(ledger: Ledger) -> None:
    for confidence in (0.95, 0.99):
        bound = nats(0.1, evidence="statistical", confidence=confidence)
        ledger.reserve("s", bound, "statistical").commit({})
    failure = ledger.spent("s").failure
    assert failure >= (1 - Fraction(0.95)) + (1 - Fraction(0.99))
    assert failure == pytest.approx(0.06)


def test_the_newest_budget_is_in_force(ledger: Ledger) -> None:
    assert ledger.budget("s") is None
    ledger.set_budget("s", mi_budget=1.0)
    ledger.reserve("s", nats(0.5), "half").commit({})
    ledger.set_budget("s", mi_budget=0.25)
    assert ledger.budget("s") == Budget(nats=0.25)
    assert ledger.remaining("s") == Budget(nats=0.0)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("s", nats(0.01), "lowered")


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({}, "mi_budget"),
        ({"mi_budget": 0.0}, "mi_budget"),
        ({"mi_budget": -1.0}, "mi_budget"),
        ({"mi_budget": math.nan}, "mi_budget"),
        ({"mi_budget": math.inf}, "mi_budget"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.1}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": -0.1}, "delta"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta"),
    ],
)
def test_bad_budgets_are_refused_and_not_kept(
    ledger: Ledger, limits: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        ledger.set_budget("s", **limits)
    assert ledger.budget("s") is None
    assert ledger.secrets() == ()


def test_bad_reservations_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="secret"):
        ledger.reserve("  ", nats(0.1), "no name")
    with pytest.raises(ValueError, match="guarantee"):
        ledger.reserve("s", 0.1, "not a guarantee")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="description"):
        ledger.reserve("s", nats(0.1), None)  # type: ignore[arg-type]
    assert ledger.entries() == ()


def test_a_cancelled_reservation_gives_its_cost_back(ledger: Ledger) -> None:
    ledger.set_budget("s", mi_budget=0.1)
    reservation = ledger.reserve("s", nats(0.1), "not drawn")
    assert ledger.spent("s").nats == 0.1
    assert ledger.spent("s").open == 1
    reservation.cancel()
    assert ledger.spent("s").nats == 0.0
    assert [entry.status for entry in ledger.entries("s")] == ["cancelled"]
    ledger.reserve("s", nats(0.1), "drawn").commit({"value": 1.5})
    assert ledger.entries("s")[1].record == {"value": 1.5}


def test_an_error_before_the_draw_cancels_and_after_it_does_not(ledger: Ledger) -> None:
    def fail(*, drawn: bool) -> None:
        with ledger.reserve("s", nats(0.1), "fails") as reservation:
            if drawn:
                reservation.mark_drawn()
            raise KeyError

    with pytest.raises(KeyError):
        fail(drawn=False)
    assert ledger.spent("s").nats == 0.0
    with pytest.raises(KeyError):
        fail(drawn=True)
    assert ledger.spent("s").nats == 0.1
    assert ledger.entries("s")[1].status == "drawn"


def test_a_reservation_is_used_once(ledger: Ledger) -> None:
    reservation = ledger.reserve("s", nats(0.1), "once")
    reservation.mark_drawn()
    with pytest.raises(ValueError, match="already drawn"):
        reservation.mark_drawn()
    with pytest.raises(ValueError, match="already drawn"):
        reservation.cancel()
    with pytest.raises(ValueError, match="JSON-able"):
        reservation.commit({"value": math.nan})
    reservation.commit({})
    with pytest.raises(ValueError, match="already committed"):
        reservation.commit({})
    assert reservation.status == "committed"


def test_a_reopened_ledger_has_everything(path: Path) -> None:
    first = Ledger(path)
    first.set_budget("s", epsilon=1.0, delta=1e-5)
    first.reserve("s", pair(0.25, 1e-6), "one").commit({"release": [1.0, 2.0]})
    second = Ledger(f"sqlite:///{path}")
    assert second.entries() == first.entries()
    entry = second.entries()[0]
    assert entry.guarantee == pair(0.25, 1e-6)
    assert entry.time.endswith("+00:00")
    assert entry.version
    assert json.loads(json.dumps(entry.to_dict(), allow_nan=False))["cost"].startswith("ε = 0.25")


def test_infinite_costs_are_kept_and_shown_in_strict_json(ledger: Ledger) -> None:
    ledger.reserve("s", nats(math.inf), "no bound").commit({})
    assert math.isinf(ledger.spent("s").nats)
    text = json.dumps(ledger.spent("s").to_dict(), allow_nan=False)
    assert json.loads(text)["nats"] == "infinity"
    charge = Charge(notion="information", nats=math.inf)
    assert exceeds(Budget(nats=1e308), Account().added([charge]))


def test_sums_above_the_largest_float_are_infinite() -> None:
    assert math.isinf(rounded_up(Fraction(1.7e308) * 2))
    assert rounded_down(Fraction(1.7e308) * 2) == sys.float_info.max
    assert math.copysign(1.0, rounded_down(Fraction(0))) == 1.0
    assert rounded_down(Fraction(1, 3)) < Fraction(1, 3) < rounded_up(Fraction(1, 3))
