"""Units: noise is the same whatever they are, and where squares overflow is said before a draw."""

import warnings

import numpy as np
import pytest

from tacit import Effort, Rows, Table
from tacit.statistics import prepare, privatize, read_query, read_table
from tacit.statistics.queries import Median, Quantiles

QUIET = Effort(simulations=60, trials=0, workers=1, progress=False)
ROWS = np.random.default_rng(0).uniform(0, 1, (120, 2))


def errors(query, rows):
    return np.array([one.error for one in prepare(query, rows, Rows(success=0.9), QUIET).expected])


@pytest.mark.parametrize(
    ("query", "power"), [("std", 1), ("covariance", 2), ("correlation", 0), ("least-squares", 0)]
)
def test_noise_does_not_depend_on_units(query, power):
    usual = errors(query, ROWS)[0]
    for unit in (1e-20, 1e-6, 1e3, 1e7):
        # pairs are searched for by exchanges: rounding decides between those as good
        found = errors(query, ROWS * unit)[0] / unit**power
        assert found == pytest.approx(usual, rel=0.1)


def test_units_of_one_column_beside_another_do_not_matter():
    source = np.random.default_rng(1)
    age = source.normal(45, 15, 200)
    income = 1000 * age + source.normal(0, 15000, 200)
    usual = errors("std", np.column_stack([age, income]))
    for unit in (1e-3, 100, 1e3):
        found = errors("std", np.column_stack([age, income * unit])) / [1, unit]
        np.testing.assert_allclose(found, usual, rtol=0.1)


@pytest.mark.parametrize("exponent", [-310, -200, -160, -99, 0, 60, 99, 101, 159, 200, 307])
def test_what_is_prepared_can_be_drawn_and_warns_of_nothing(exponent):
    unit = float(f"1e{exponent}")
    rows = ROWS[:16] * unit
    promises = (
        Rows(success=0.7),
        Table(mu=1.0, bounds={"x0": (0, unit), "x1": (0, unit)}),
        Table(mu=1.0, bounds={"x0": (-unit, unit), "x1": (0, 1)}, adjacency="replace"),
    )
    drawn = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for promise in promises:
            for query in ("mean", "std", "median", "quantiles:0.1", "correlation", "sum", "count"):
                try:
                    prepared = prepare(query, rows, promise, QUIET)
                except ValueError as error:
                    refused = str(error)
                    continue
                release = prepared.draw()
                drawn += 1
                assert np.isfinite(release.values).all()
                assert np.isfinite(release.details.noise_power)
    assert drawn
    if not -100 < exponent < 100:
        assert "choose other units" in refused


def test_a_median_and_the_quantile_of_a_half_have_two_names_and_two_meanings():
    rows = np.repeat([0.0, 10.0], 40)[:, None]
    prepared = prepare("median+quantiles:0.5", rows, Rows(success=0.9), QUIET)
    assert prepared.planned.names == ("median[x0]", "q0.5[x0]")
    assert prepared.plan.query.function(rows).tolist() == [5.0, 0.0]
    asked = [Median(), Quantiles((0.5,))]
    assert prepare(asked, rows, Rows(success=0.9), QUIET).planned.names == prepared.planned.names


def test_a_text_that_is_no_query_is_refused_before_a_column_is_read():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3, 4], "b": ["x", "y", "z", "w"]})
    with pytest.raises(ValueError, match="query: expected one of mean"):
        privatize("meen", frame, Rows(success=0.6), QUIET)


@pytest.mark.parametrize("missing", ["refuse", "drop", "drop-unreadable"])
def test_a_table_of_no_row_is_answered_as_one_of_few(tmp_path, missing):
    path = tmp_path / "t.csv"
    promise = Table(epsilon=1.0, delta=1e-6, bounds={"a": (0, 50)})
    expected = None
    for lines in ("a", "a\n30", "a\n30\n40", "a\nx", "a\nNA"):
        if (missing == "refuse" and lines[-1] in "xA") or (missing == "drop" and lines[-1] == "x"):
            continue
        path.write_text(f"{lines}\n")
        table = read_table(path, missing=missing)
        prepared = prepare("mean+std+median", table, promise, Effort(trials=100, progress=False))
        expected = expected or prepared.expected
        assert prepared.expected == expected
        assert np.isfinite(prepared.draw().values).all()
    path.write_text("a\n")
    with pytest.raises(ValueError, match="at least 1 row"):
        prepare("mean", read_table(path), Table(mu=1.0, bounds={"a": (0, 1)}, adjacency="replace"))
    with pytest.raises(ValueError, match="pool: expected at least 4 rows, got 0"):
        prepare("mean", read_table(path), Rows(success=0.6))


def test_a_release_of_a_query_says_what_a_row_is(tmp_path):
    import duckdb

    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("create table t as select * from range(40) r(a)")
    table = read_query("select a - (select avg(a) from t) as a from t", path)
    for promise in (Table(mu=1.0, bounds={"a": (-50, 50)}), Rows(success=0.6)):
        notes = privatize("mean", table, promise, QUIET).notes
        assert any("a row of that result is meant" in note for note in notes)


def test_intervals_of_quantiles_end_at_declared_bounds_and_tell_no_pool():
    rows = ROWS[:30, :1]
    promise = Table(mu=0.3, bounds={"x0": (0, 1)})
    release = privatize("quantiles:0.1+median", rows, promise, QUIET)
    assert release.intervals().min() >= 0.0
    assert release.intervals().max() <= 1.0
    assert np.isinf(privatize("median", rows, Rows(success=0.9), QUIET).numbers.limits).all()
