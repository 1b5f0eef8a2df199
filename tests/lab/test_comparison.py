"""Promises side by side: one unit for all errors, and all of the error."""

from dataclasses import replace

import numpy as np
import pytest

from tacit import Effort, Table
from tacit_lab.comparison import compare
from tacit_lab.comparison.page import LITTLE_MORE, comparison_lines, errors_beside, headline

QUIET = Effort(simulations=100, trials=0)


def heights(count=300):
    return np.random.default_rng(3).normal(170.0, 8.0, size=(count, 1))


def results(query, rows, **options):
    found = compare(query, rows, Table(success=0.6, **options), QUIET, rng=0)
    return found, {one.name: one for one in found.results}


def test_all_errors_have_the_unit_of_the_whole_table():
    rows = heights()
    _, found = results("mean", rows, bounds=[(120, 220)])
    of_the_table = rows.std(ddof=1) / np.sqrt(len(rows))
    for one in found.values():
        assert one.unit == pytest.approx([of_the_table], rel=0.02)
        assert one.noise == pytest.approx(one.errors[0] / one.unit[0])
        assert one.total == pytest.approx(one.totals[0] / one.unit[0])
    # half of the rows, whatever the noise, and all of them
    assert found["rows random"].sampling[0] > 1.3 * of_the_table
    assert found["table"].sampling == pytest.approx([of_the_table], rel=0.02)


@pytest.mark.parametrize("query", ["mean", "median", "std", "sum"])
def test_what_bounds_clip_is_part_of_the_error(query):
    rows = heights()
    comparison, found = results(query, rows, bounds=[(100, 150)])
    true = {
        "mean": np.mean, "median": np.median, "std": lambda some: np.std(some, ddof=1),
        "sum": np.sum,
    }[query]  # fmt: skip
    moved = abs(float(true(rows)) - float(true(np.clip(rows, 100, 150))))
    table = found["table"]
    assert table.clipping == pytest.approx([moved], rel=0.02)
    assert table.totals[0] > moved
    assert all(not one.clipping.any() for name, one in found.items() if name != "table")
    assert any("outside the declared bounds" in note for note in comparison.notes)
    assert "clipping" in dict(comparison_lines(comparison))["table"]


def test_sums_of_half_the_rows_are_told_as_those_of_the_whole_table():
    rows = heights()
    _, found = results("sum", rows, bounds=[(120, 220)])
    of_the_table = rows.std(ddof=1) * np.sqrt(len(rows))
    _, means = results("mean", rows, bounds=[(120, 220)])
    for name in ("rows matched", "rows random", "draw"):
        assert found[name].unit == pytest.approx([of_the_table], rel=0.02)
        assert found[name].noise == pytest.approx(means[name].noise, rel=0.02)
        assert found[name].total == pytest.approx(means[name].total, rel=0.02)


def test_nothing_is_clipped_where_bounds_hold_all_rows_and_in_bins():
    comparison, found = results("mean", heights(), bounds=[(100, 250)])
    assert not found["table"].clipping.any()
    assert not any("outside" in note for note in comparison.notes)
    _, found = results("histogram:x0:150,170,190", heights(), bounds=[(160, 165)])
    assert not found["table"].clipping.any()


def test_the_headline_tells_the_total_error():
    rows = np.r_[np.random.default_rng(0).normal(size=(99, 1)), [[100.0]]]
    comparison, found = results("mean", rows, bounds=[(-5, 100)])
    for one in found.values():
        assert f"by {one.name} (noise alone " in errors_beside(comparison)
    # one outlier: a swap with it is as long as a row within the bounds, of half as many rows
    assert found["rows matched"].noise > found["table"].noise


def test_the_headline_takes_what_hides_most_where_that_costs_little():
    close, found = results("mean", heights(), bounds=[(100, 250)])
    far, others = results("mean", heights(), bounds=[(-10_000, 10_000)])
    for comparison, held in ((close, found), (far, others)):
        least, table = min(one.total for one in held.values()), held["table"].total
        said = headline(comparison)
        assert len(said.partition(". ")[0].split()) <= 15
        assert len(said.split()) <= 25
        # the number that is said is that of the promise to take, rounded up
        taken = float(said.partition(":")[0])
        wanted = table if table <= LITTLE_MORE * least else least
        assert wanted <= taken <= wanted * 1.01
    assert others["table"].total > LITTLE_MORE * min(one.total for one in others.values())
    assert "unless being in the table must be hidden: table has" in headline(far)


def test_a_comparison_says_that_it_is_the_holders():
    comparison, _ = results("mean", heights(40))
    assert comparison.to_dict()["audience"].startswith("Keep this comparison with the data")


def test_persons_are_compared_with_all_of_their_rows():
    source = np.random.default_rng(4)
    rows = np.c_[np.repeat(np.arange(60.0), 5), source.uniform(0.0, 10.0, 300)]
    promise = Table(success=0.6, bounds={"x": (0, 10)}, person="who", unit="customer", clip=4)
    effort = Effort(simulations=100, trials=16)
    found = compare("mean", rows, promise, effort, columns=["who", "x"], rng=0)
    by = {one.name: one for one in found.results}
    assert {name: one.rows for name, one in by.items()} == {
        "rows matched": 30, "rows random": 30, "draw": 30, "table": 60
    }  # fmt: skip
    assert all(one.attacks for one in found.results)
    assert "a customer is in the table at all" in by["table"].hides
    # five rows each, of which four at the bounds are kept: the sums of all persons shrink alike
    high = np.c_[rows[:, 0], 9.0 + rows[:, 1] / 10.0]
    summed = compare("sum", high, promise, QUIET, columns=["who", "x"]).results[-1]
    assert 0.1 * high[:, 1].sum() < summed.clipping[0] < 0.2 * high[:, 1].sum()
    # of which caps leave three
    capped = replace(promise, max_rows=3)
    cut = compare("sum", high, capped, QUIET, columns=["who", "x"]).results[-1]
    assert 0.35 * high[:, 1].sum() < cut.clipping[0] < 0.45 * high[:, 1].sum()
    found = compare("sum", high, replace(promise, bounds={"x": "auto"}), QUIET,
                    columns=["who", "x"])  # fmt: skip
    assert len(found.results) == 3
    assert "bounds that are found" in found.notes[0]
    without = compare("mean", rows, Table(success=0.6, person="who"), QUIET, columns=["who", "x"])
    assert len(without.results) == 3
    assert "bounds" in without.notes[0]
