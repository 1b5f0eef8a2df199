"""Statistics of sums: their numbers against NumPy's, their names, what they refuse."""

import numpy as np
import pytest

from tacit import Effort, Rows
from tacit.statistics import prepare, queries
from tacit.statistics.queries import Columns, SumQuery, bind_query
from tacit.statistics.queries.sums import Condition, at_most, equals, on_grid, row_values, term

NAMES = ("group", "x", "y")


def table(count=500, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [rng.integers(0, 3, count), rng.normal(5, 2, count), rng.standard_t(4, count)]
    )
    rows[:, 2] += 0.5 * rows[:, 1] - rows[:, 0]
    return rows


def value(query, rows, **known):
    found = bind_query(query, Columns(NAMES, rows, **known))
    numbers = of_sums(found, rows)
    # quantiles of rows are their own values, and of sums those of a grid
    if not isinstance(query, str) or ("quantile" not in query and "median" not in query):
        np.testing.assert_allclose(found(rows), numbers, rtol=1e-8, atol=1e-12)
    return dict(zip(found.names, numbers, strict=True))


def of_sums(query, rows):
    """The numbers of all rows, from what these add."""
    centres = rows.mean(axis=0)
    sums = query.row_values(rows, centres).sum(axis=0)
    return query.finish(sums, centres, float(len(rows)))


def test_moments_are_numpys():
    rows = table()
    covariance = np.cov(rows.T)
    correlation = np.corrcoef(rows.T)
    found = value("count+sum+mean+variance+std+covariance+correlation+second-moments", rows)
    assert found["count"] == 500
    for place, name in enumerate(NAMES):
        column = rows[:, place]
        assert found[f"sum[{name}]"] == pytest.approx(column.sum(), rel=1e-12)
        assert found[f"mean[{name}]"] == pytest.approx(column.mean(), rel=1e-12)
        assert found[f"variance[{name}]"] == pytest.approx(column.var(ddof=1), rel=1e-10)
        assert found[f"std[{name}]"] == pytest.approx(column.std(ddof=1), rel=1e-10)
        for other in range(place, 3):
            pair = f"[{name},{NAMES[other]}]"
            assert found["cov" + pair] == pytest.approx(covariance[place, other], rel=1e-9)
            product = (column * rows[:, other]).mean()
            assert found["moment" + pair] == pytest.approx(product, rel=1e-10)
            if other > place:
                assert found["corr" + pair] == pytest.approx(correlation[place, other], rel=1e-9)


def test_regression_and_components_are_numpys():
    rows = table()
    design = np.column_stack([rows[:, :2], np.ones(500)])
    expected = np.linalg.lstsq(design, rows[:, 2], rcond=None)[0]
    np.testing.assert_allclose(list(value("least-squares", rows).values()), expected, rtol=1e-8)
    values, axes = np.linalg.eigh(np.cov(rows.T))
    found = np.array(list(value("principal-components:2", rows).values()))
    np.testing.assert_allclose(found[:2], values[::-1][:2], rtol=1e-9)
    for number in (1, 2):
        axis = found[2 + 3 * (number - 1) : 5 + 3 * (number - 1)]
        assert abs(axis @ axes[:, -number]) == pytest.approx(1.0, rel=1e-9)
    one = queries.LeastSquares("y", columns=("x",)).bind(Columns(NAMES, rows))
    assert one.names() == ("coef[x]", "intercept")


def test_counts_in_bins_categories_and_cells():
    rows = table()
    bins = value("histogram:x:0,4,6,20", rows)
    np.testing.assert_array_equal(list(bins.values()), np.histogram(rows[:, 1], [0, 4, 6, 20])[0])
    assert list(bins) == ["count[0≤x<4]", "count[4≤x<6]", "count[6≤x≤20]"]
    kinds = value("histogram:group", rows)
    np.testing.assert_array_equal(list(kinds.values()), np.bincount(rows[:, 0].astype(int)))
    cells = value(queries.TwoWayTable("group", "x", None, (-50.0, 5.0, 50.0)), rows)
    assert cells["count[group=1,-50≤x<5]"] == ((rows[:, 0] == 1) & (rows[:, 1] < 5)).sum()
    nested = value("cumulative:x:3,5,7", rows)
    np.testing.assert_array_equal(
        list(nested.values()), [(rows[:, 1] <= t).sum() for t in (3, 5, 7)]
    )


def test_statistics_by_group_are_those_of_each_group():
    rows = table()
    found = value("mean by group+covariance by group", rows)
    for kind in range(3):
        inside = rows[rows[:, 0] == kind, 1:]
        assert found[f"mean[x]|group={kind}"] == pytest.approx(inside[:, 0].mean(), rel=1e-10)
        expected = np.cov(inside.T)[0, 1]
        assert found[f"cov[x,y]|group={kind}"] == pytest.approx(expected, rel=1e-9)
    assert not any("[group]" in name for name in found)


def test_quantiles_are_within_the_step_of_their_grid():
    rows = table(2000)
    grid = {"x": np.linspace(-2, 12, 300)}
    query = bind_query(queries.Quantiles((0.1, 0.5), ("x",), grid), Columns(NAMES, rows))
    exact = np.quantile(rows[:, 1], [0.1, 0.5])
    np.testing.assert_allclose(of_sums(query, rows), exact, atol=14 / 299)
    near = bind_query(queries.Quantiles((0.5,), ("x",)), Columns(NAMES, rows))
    assert abs(of_sums(near, rows)[0] - np.median(rows[:, 1])) < 0.02


def test_noisy_sums_give_what_is_possible():
    query = bind_query(
        "variance+correlation+histogram:group+cumulative:x:3,5,7", Columns(NAMES, table())
    )
    rng = np.random.default_rng(3)
    for _ in range(200):
        noise = rng.normal(size=len(query.terms)) * 1e3
        found = query.finish(noise, np.zeros(3), 250.0)
        numbers = dict(zip(query.names, found, strict=True))
        assert min(v for name, v in numbers.items() if "variance" in name) >= 0
        assert all(-1 <= v <= 1 for name, v in numbers.items() if "corr" in name)
        counts = [v for name, v in numbers.items() if "count[x" in name]
        assert min(counts) >= 0
        assert counts == sorted(counts)


def test_numbers_that_are_said_to_be_linear_are():
    """Their errors are taken from one derivative: no projection may bend them."""
    query = bind_query(
        "count+sum+second-moments+mean+covariance+std+correlation+median+least-squares"
        "+histogram:group+cumulative:x:3,5,7+mean by group+rows by group",
        Columns(NAMES, table(), people=True, levels={0: (0.0, 1.0, 2.0)}),
    )
    one, other = np.random.default_rng(3).uniform(0.0, 1e3, (2, 50, len(query.terms)))
    for drawn, flags in ((None, query.additive_numbers), (250.0, query.linear_numbers)):
        first, second, middle = (
            query.finish(sums, np.zeros(3), drawn)[:, flags]
            for sums in (one, other, 0.5 * (one + other))
        )
        np.testing.assert_allclose(middle, 0.5 * (first + second), rtol=1e-9)


def test_whole_counts_are_whole():
    query = bind_query(queries.Histogram("group", whole=True), Columns(NAMES, table()))
    numbers = query.finish(np.array([1.4, -3.0, 2.6]), np.zeros(3), 5.0)
    assert query.round_whole(numbers).tolist() == [1.0, 0.0, 3.0]


def test_conditions_that_exclude_each_other_never_hold_together():
    values = np.linspace(-2, 3, 51)[:, None]
    conditions = [
        equals(0, 0.0), equals(0, 1.0), at_most(0, 0.5), at_most(0, 1.0),
        Condition(0, 0.0, 1.0, closed=False), Condition(0, 1.0, 2.0, closed=True),
    ]  # fmt: skip
    for one in conditions:
        for other in conditions:
            together = (one.holds(values) & other.holds(values)).any()
            assert one.excludes(other) == (not together)


def test_terms_are_products_and_zero_outside_their_conditions():
    rows = table()
    values = row_values(
        [term((), (1, 2)), term((equals(0, 1.0),), (1,))], rows, np.array([0.0, 5.0, 1.0])
    )
    np.testing.assert_allclose(values[:, 0], (rows[:, 1] - 5) * (rows[:, 2] - 1))
    np.testing.assert_array_equal(values[rows[:, 0] != 1, 1], 0.0)


def test_sums_on_the_grid_are_exact_in_every_order():
    rng = np.random.default_rng(5)
    for scale in (1e-30, 1.0, 1e20):
        values = on_grid(scale * rng.standard_t(1.5, (3001, 2)))
        whole = values.total(np.arange(3001))
        order = rng.permutation(3001)
        parts = values.total(order[:1000]) + values.total(order[1000:])
        np.testing.assert_array_equal(whole, parts)
        largest = np.abs(values.values).max(axis=0)
        assert (np.ldexp(1.0, values.exponents) <= largest * 3001 * 2.0**-50).all()
    counts = on_grid(np.ones((10, 1)))
    assert counts.exponents.tolist() == [0]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("histogram:z", "expected a column of the table"),
        ("histogram:x", "at most 1000 categories"),
        ("histogram", "needs a column"),
        ("histogram:x:3,1", "increasing"),
        ("histogram:x:a", "numbers separated by commas"),
        ("two-way:group", "needs two columns"),
        ("two-way:group,group", "two different columns"),
        ("cumulative:x", "needs thresholds"),
        ("quantiles:1.5", r"levels in \[0, 1\]"),
        ("mean:3", "takes no parameter"),
        ("principal-components:9", "integer <= 3"),
    ],
)
def test_what_cannot_be_computed_is_refused(query, words):
    with pytest.raises(ValueError, match=words):
        bind_query(query, Columns(NAMES, table(2000)))


def test_other_queries_are_none_of_these():
    for query in ("kmeans", "logistic+mean", "numpy:median", np.median):
        assert not isinstance(bind_query(query, Columns(NAMES, table())), SumQuery)


def test_categories_have_to_be_declared_where_the_table_may_not_be_looked_at():
    with pytest.raises(ValueError, match="levels: expected the categories of 'group'"):
        bind_query("histogram:group", Columns(NAMES))
    found = bind_query("histogram:group", Columns(NAMES, levels={0: (0.0, 2.0)}))
    assert found.names == ("count[group=0]", "count[group=2]")


def test_a_row_that_is_never_drawn_sets_neither_grid_nor_cost():
    rows = np.append(np.random.default_rng(0).normal(size=80), 1e15)[:, None]
    for query in ("mean", "std"):
        with_it = prepare(query, rows, Rows(success=0.75), Effort(trials=0))
        assert list(with_it.plan.pairing.left_out) == [80]
        alone = prepare(query, rows[:80], Rows(success=0.75), Effort(trials=0))
        error, other = with_it.expected[0].error, alone.expected[0].error
        assert 0.5 * other < error < 2.0 * other
        released = with_it.draw()
        assert not any("the same whatever" in note for note in released.notes)
        assert with_it.plan.values.exponents.min() < -30
