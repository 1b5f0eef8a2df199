"""What is declared before a table is looked at, and which way a query that does not add up goes."""

import numpy as np
import pandas as pd
import pytest
from tacit.statistics.strength import gaussian_mu, success_of

from tacit.statistics import prepare, read_table
from tacit.statistics.sums import GroupBy, SecondMoments

QUIET = {"success": 0.7, "attack": False, "progress": False}


def test_categories_found_in_a_table_are_refused_where_a_row_in_it_is_hidden(tmp_path):
    """One row more with a new category would change the codes of all others."""
    frame = pd.DataFrame({"city": ["Rome", "Bern", "Rome", "Oslo"] * 5, "age": range(20)})
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    found = read_table(path, categories={"city": None})
    bounds = {"age": (0.0, 120.0)}
    with pytest.raises(ValueError, match="city to be declared"):
        prepare("histogram:city", found, protect="table", levels={"city": [0, 1]}, **QUIET)
    with pytest.raises(ValueError, match="city to be declared"):
        prepare(
            "mean by city", found, protect="table", bounds=bounds, levels={"city": [0]}, **QUIET
        )
    cities = ["Athens", "Bern", "Oslo", "Rome"]
    declared = read_table(path, categories={"city": cities})
    prepared = prepare("histogram:city", declared, protect="table", **QUIET)
    assert len(prepared.expected) == len(cities)
    # the same column does no harm to a query that does not read it
    one = prepare(
        "quantiles:0.5", read_table(path, ["age"]), protect="table", bounds=bounds, **QUIET
    )
    assert len(one.expected) == 1


def test_a_number_out_of_bounds_counts_where_its_bound_is():
    """Conditions and squares see the same clamped number."""
    rows = np.array([[0.2], [0.4], [3.0], [0.9]])
    moments = GroupBy(SecondMoments(("x0",)), "x0", (0.0, 2.0))
    plan = prepare(
        moments, rows, protect="table", bounds=[(0.0, 1.0)],
        adjacency="replace", **QUIET,
    ).plan  # fmt: skip
    total = plan.values.total(np.arange(4))
    clamped = np.clip(rows[:, 0], 0.0, 1.0)
    moment = plan.added.finish(total, 4.0)[0]
    assert moment == pytest.approx(np.mean(clamped**2), abs=1e-6)


def test_numbers_too_large_for_the_grid_are_not_repeated():
    rows = np.full((6, 1), 1.25e300)
    rows[0] = -1.25e300
    with pytest.raises(ValueError, match="choose other units") as refused:
        prepare("second-moments", rows, protect="rows", **QUIET)
    assert "1.25" not in str(refused.value)


def test_a_group_without_another_column_is_refused():
    with pytest.raises(ValueError, match="beside those"):
        prepare("mean by x0:0,1,2", np.arange(6.0), protect="rows", **QUIET)


def largest(rows):
    return rows.max(axis=0)


@pytest.mark.parametrize(("method", "told"), [("auto", True), ("cheaper", None), ("family", False)])
def test_a_query_that_does_not_add_up_keeps_the_promise_of_rows_unless_asked(method, told):
    rows = np.random.default_rng(1).uniform(size=(12, 1))
    prepared = prepare(
        largest, rows, protect="rows", method=method, simulations=200, confidence=0.99, rng=1,
        workers=1, **QUIET,
    )  # fmt: skip
    said = any("not from someone who is told" in note for note in prepared.notes)
    if told is not None:
        assert said is not told


@pytest.mark.parametrize("prior", [0.5, 0.25, 0.1])
@pytest.mark.parametrize("share", [1e-6, 0.01, 0.5, 0.99, 1 - 1e-9])
def test_mu_is_the_largest_that_keeps_the_success(prior, share):
    blind = max(prior, 1 - prior)
    success = blind + share * (1 - blind)
    mu = gaussian_mu(success=success, prior=prior)
    assert success_of(mu, prior) <= success
    assert success_of(mu * (1 + 1e-6), prior) > success


def test_bounds_too_wide_for_double_precision_are_refused_by_name():
    with pytest.raises(ValueError, match=r"bounds: expected .* of x0"):
        prepare("mean", np.ones((8, 1)), protect="table", mu=1.0, bounds=[(0.0, 1e300)])


def test_a_median_within_bounds_does_not_say_that_none_are_needed():
    prepared = prepare(
        "median", np.ones((8, 1)), protect="table", mu=1.0, bounds=[(0.0, 2.0)], attack=False
    )
    assert not any("no bounds are needed" in note for note in prepared.notes)
