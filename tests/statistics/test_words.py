"""Words as categories, and columns that a query does not read."""

import numpy as np
import pandas as pd
import pytest

from tacit import Effort, Rows, Table
from tacit.statistics import Session, privatize, read_table
from tacit.statistics.queries.language import columns_read
from tacit_lab.comparison import compare

CITIES = ["Rome", "Bern", "Oslo"]
BOUNDS = {"income": (0.0, 1000.0)}


def people(count=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "income": rng.uniform(0, 1000, count),
            "city": rng.choice(CITIES[:2], count),
            "name": [f"n{place}" for place in range(count)],
        }
    )


QUIET = Effort(trials=0)


def of_table(query, data, columns=None, **declared):
    return privatize(query, data, Table(success=0.6, **declared), QUIET, rng=1, columns=columns)


def test_groups_of_a_frame_by_words_that_are_declared():
    data = people()[["income", "city"]]
    release = of_table("mean by city", data, bounds=BOUNDS, levels={"city": CITIES})
    names = tuple(f"mean[income]|city={city}" for city in sorted(CITIES))
    assert release.names == names
    session = Session(data, Table(success=0.6, bounds=BOUNDS, levels={"city": CITIES}))
    assert session.ask("mean by city", share=0.5).names == names
    found = compare(
        "mean by city",
        data,
        Table(success=0.6, bounds=BOUNDS, levels={"city": CITIES[:2]}),
        Effort(trials=0, simulations=60),
    )
    assert [one.name for one in found.results][-1] == "table"
    assert found.names == ("mean[income]|city=Bern", "mean[income]|city=Rome")


def test_levels_that_were_found_stand_in_no_name(tmp_path):
    path = tmp_path / "people.csv"
    people()[["income", "city"]].to_csv(path, index=False)
    table = read_table(path, categories={"city": None})
    release = privatize("mean by city", table, Rows(success=0.6), QUIET)
    assert release.names == ("mean[income]|city=0", "mean[income]|city=1")
    # how many there are is said, and nothing of what they are
    assert any(note.startswith("city has 2 levels") for note in release.notes)
    assert not any(city in str(release.to_dict()) for city in CITIES)


def test_declared_levels_are_told_and_found_ones_of_a_hidden_table_are_not(tmp_path):
    path = tmp_path / "people.csv"
    people()[["income", "city"]].to_csv(path, index=False)
    declared = of_table("mean", read_table(path, categories={"city": CITIES}), ["income"],
                        bounds=BOUNDS)  # fmt: skip
    assert not any("city" in note for note in declared.notes)
    counted = of_table("histogram:city", read_table(path, categories={"city": CITIES}))
    assert "codes of city: 0 = Bern, 1 = Oslo, 2 = Rome" in counted.notes
    found = of_table("histogram:income:0,500,1000", read_table(path, categories={"city": None}))
    assert not any("city" in note for note in found.notes)


def test_a_table_that_was_read_is_coded_by_the_levels_declared_later(tmp_path):
    data = people()[["income", "city"]]
    path = tmp_path / "people.csv"
    data.to_csv(path, index=False)
    table = read_table(path, categories={"city": None})
    with pytest.raises(ValueError, match="levels: expected the categories of 'city', declared"):
        of_table("histogram:city", table)
    first = of_table("histogram:city", table, levels={"city": CITIES})
    second = of_table("histogram:city", read_table(path, categories={"city": CITIES}))
    assert first.names == second.names
    np.testing.assert_array_equal(first.values, second.values)
    # codes of levels that were found are another's in another table
    with pytest.raises(ValueError, match="levels: expected the categories of city to be declared"):
        of_table("histogram:city", table, levels={"city": [0, 1]})


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ({"city": ["Rome"]}, "expected every level that 'city' holds among the 1 declared"),
        ({"city": ["Rome", "Rome"]}, "levels: expected different levels for 'city'"),
        ({"income": ["low", "high"]}, "levels: expected numbers for 'income'"),
    ],
)
def test_levels_in_words_are_refused_where_they_do_not_fit(tmp_path, levels, match):
    path = tmp_path / "people.csv"
    people()[["income", "city"]].to_csv(path, index=False)
    table = read_table(path, categories={"city": None})
    with pytest.raises(ValueError, match=match) as refused:
        of_table("histogram:city", table, levels=levels)
    assert "Bern" not in str(refused.value)


def test_rows_are_counted_whatever_their_columns_hold():
    data = people()
    data.loc[3, "name"] = None
    for adjacency in ("add-remove", "replace"):
        release = of_table("count", data, adjacency=adjacency)
        assert abs(release.values[0] - len(data)) < 40
    assert privatize("count", data, Rows(success=0.6), QUIET).values.tolist() == [30.0]
    counted = of_table("histogram:city+count", data, levels={"city": CITIES})
    assert counted.names[-1] == "count"
    with pytest.raises(ValueError, match="columns: expected at least one column name, got none"):
        of_table("mean", data, columns=[], bounds=BOUNDS)
    with pytest.raises(
        ValueError, match=r"bounds: expected the lowest and highest of city, name, "
    ):
        of_table("mean", data, bounds=BOUNDS)
    with pytest.raises(ValueError, match="column 'city': expected a number, got text"):
        privatize("mean", data, Rows(success=0.6), QUIET)


def test_the_columns_that_a_query_names():
    assert columns_read("count") == ()
    assert columns_read("two-way:a,b+cumulative:c:1,2+count by d") == ("a", "b", "c", "d")
    for everything in ("mean", "count+std", "median by a", "least-squares", np.mean, "mine:f"):
        assert columns_read(everything) is None


def test_categories_of_many_digits_have_names_of_their_own():
    codes = np.repeat([1234567.0, 1234568.0, 0.1], 10)[:, None]
    release = privatize("histogram:x0", codes, Rows(success=0.6), QUIET, rng=0)
    assert release.names == ("count[x0=0.1]", "count[x0=1234567.0]", "count[x0=1234568.0]")
