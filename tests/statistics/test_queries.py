import math
import pickle

import numpy as np
import pytest
from scipy.optimize import minimize

from tacit.statistics import Query, built_in_queries
from tacit.statistics.queries import Columns, SumQuery, bind_query
from tacit.statistics.queries.language import summable_queries

COLUMNS = ("a", "b", "c")
# Statistics that are the same of rows as of their sums, and of rows alone.
PLAIN = ("mean", "std", "median", "quantiles", "covariance", "least-squares", "logistic", "kmeans")


def resolve(text, columns, target=None, rows=None):
    table = np.zeros((1, len(columns))) if rows is None else rows
    return bind_query(text, Columns(tuple(columns), table), target)


@pytest.fixture
def rows():
    return np.random.default_rng(3).normal(size=(40, 3)) @ np.array(
        [[1.0, 0.5, 0.0], [0.0, 2.0, -1.0], [0.0, 0.0, 0.3]]
    )


def value(text, rows, target=None):
    query = resolve(text, COLUMNS[: rows.shape[1]], target, rows)
    result = np.asarray(query(rows))
    assert result.shape == (len(query.names),)
    assert len(set(query.names)) == len(query.names)
    return result


def test_mean(rows):
    np.testing.assert_allclose(value("mean", rows), [math.fsum(c) / 40 for c in rows.T])


def test_standard_deviation(rows):
    expected = [math.sqrt(math.fsum((c - c.mean()) ** 2) / 39) for c in rows.T]
    np.testing.assert_allclose(value("std", rows), expected)
    np.testing.assert_array_equal(value("standard_deviation", rows), value("std", rows))


def test_median_and_quantiles():
    rows = np.array([[4.0], [1.0], [3.0], [2.0], [5.0]])
    assert value("median", rows).tolist() == [3.0]
    assert value("quantiles", rows).tolist() == [2.0, 3.0, 4.0]
    assert value("quantiles:0,0.125,0.2,0.21,1", rows).tolist() == [1.0, 1.0, 1.0, 2.0, 5.0]
    assert resolve("quantiles:0.1", ["x"]).names == ("q0.1[x]",)


def test_quantile_names_match_the_order_of_values(rows):
    query = resolve("quantiles:0.1,0.9", COLUMNS)
    found = dict(zip(query.names, query(rows), strict=True))
    assert found["q0.9[b]"] == np.quantile(rows[:, 1], 0.9, method="inverted_cdf")


def test_covariance_is_the_upper_triangle(rows):
    query = resolve("covariance", COLUMNS)
    found = dict(zip(query.names, query(rows), strict=True))
    expected = np.cov(rows, rowvar=False)
    assert len(found) == 6
    for (i, a), (j, b) in [
        ((i, a), (j, b)) for i, a in enumerate("abc") for j, b in enumerate("abc")
    ]:
        if i <= j:
            assert found[f"cov[{a},{b}]"] == pytest.approx(expected[i, j], rel=1e-12)


def test_joined_statistics(rows):
    joined = value("mean + covariance", rows)
    np.testing.assert_array_equal(joined, np.r_[value("mean", rows), value("covariance", rows)])


def test_least_squares_recovers_a_plane(rows):
    table = rows.copy()
    table[:, 1] = 2.0 * rows[:, 0] - 3.0 * rows[:, 2] + 0.25
    query = resolve("least-squares", COLUMNS, "b")
    assert query.names == ("coef[a]", "coef[c]", "intercept")
    np.testing.assert_allclose(query(table), [2.0, -3.0, 0.25], atol=1e-12)


def test_least_squares_explains_the_last_column_unless_told(rows):
    assert resolve("least-squares", COLUMNS).names == ("coef[a]", "coef[b]", "intercept")


def test_least_squares_refuses_dependent_columns(rows):
    table = rows.copy()
    table[:, 1] = table[:, 0]
    with pytest.raises(ValueError, match=r"independent columns, got rank 2 of 3 on 40 rows"):
        value("least-squares", table)


def logistic_table(count=200):
    rng = np.random.default_rng(5)
    features = rng.normal(size=(count, 2)) * [1.0, 30.0]
    odds = features @ [1.5, -0.05] + 0.4
    return np.column_stack([features, rng.random(count) < 1.0 / (1.0 + np.exp(-odds))])


def test_logistic_is_the_minimum_of_its_loss():
    table = logistic_table()
    features, response = table[:, :2], table[:, 2]

    def loss(w):
        margin = features @ w[:2] + w[2]
        return np.logaddexp(0.0, margin).sum() - response @ margin + 0.5 * w[:2] @ w[:2]

    found = value("logistic", table)
    for step in np.eye(3) * 1e-4:
        assert loss(found) < min(loss(found + step), loss(found - step))
    assert loss(found) <= minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-4}).fun


def test_logistic_converges_on_separated_rows():
    table = np.column_stack(
        [np.r_[-np.arange(1.0, 6), np.arange(1.0, 6)] * 50, np.repeat([0.0, 1], 5)]
    )
    coefficient, _ = value("logistic", table)
    assert 0.0 < coefficient < 1.0


@pytest.mark.parametrize("labels", [np.ones(40), np.arange(40.0), np.repeat([1.0, 2.0], 20)])
def test_logistic_refuses_other_targets(rows, labels):
    with pytest.raises(ValueError, match="0 or 1"):
        value("logistic", np.column_stack([rows[:, :2], labels]))


def three_clusters(seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[5.0, 0.0], [0.0, 4.0], [-5.0, -1.0]])
    return centres[rng.integers(3, size=90)] + rng.normal(scale=0.2, size=(90, 2))


def test_centroids_are_found_and_in_canonical_order():
    found = value("kmeans:3", three_clusters()).reshape(3, 2)
    assert np.all(np.diff(found[:, 0]) > 0)
    np.testing.assert_allclose(found, [[-5.0, -1.0], [0.0, 4.0], [5.0, 0.0]], atol=0.2)


def test_centroids_do_not_depend_on_the_order_of_rows():
    table = three_clusters()
    shuffled = np.random.default_rng(1).permutation(table)
    np.testing.assert_allclose(value("kmeans", shuffled), value("kmeans", table), atol=1e-12)


def test_centroids_are_a_fixed_point_of_lloyds_iteration():
    table = np.random.default_rng(2).normal(size=(60, 2))
    found = value("kmeans:4", table).reshape(4, 2)
    nearest = ((table[:, None] - found) ** 2).sum(axis=2).argmin(axis=1)
    for cluster in range(4):
        np.testing.assert_allclose(table[nearest == cluster].mean(axis=0), found[cluster])


def test_more_centroids_than_rows():
    with pytest.raises(ValueError, match="kmeans:5 needs as many rows, got 4"):
        value("kmeans:5", np.zeros((4, 2)))


def test_a_callable_stays_what_it_is(rows):
    query = resolve(lambda table: table.max(axis=0), COLUMNS)
    assert query.names is None
    np.testing.assert_array_equal(query(rows), rows.max(axis=0))
    ready = Query(np.max, ("top",), "the largest entry")
    assert resolve(ready, COLUMNS) == ready
    renamed = resolve(Query("mean", ("p", "q", "r")), COLUMNS, rows=rows)
    assert (renamed.names, renamed.description) == (("p", "q", "r"), "mean")


def test_a_function_of_a_module(rows):
    query = resolve("numpy:mean", COLUMNS)
    assert query.function is np.mean
    assert query.description == "numpy:mean"


def test_every_statistic_that_is_built_in_is_listed():
    assert set(built_in_queries()) == {*PLAIN, *summable_queries()}
    assert set(built_in_queries()) - set(summable_queries()) == {"logistic", "kmeans"}


def test_queries_know_whether_they_add_up(rows):
    for text in PLAIN:
        adds = text not in ("logistic", "kmeans")
        assert isinstance(resolve(text, COLUMNS, rows=rows), SumQuery) is adds
    assert not isinstance(resolve("mean+kmeans", COLUMNS, rows=rows), SumQuery)
    assert not isinstance(resolve(np.mean, COLUMNS), SumQuery)


@pytest.mark.parametrize("text", PLAIN)
def test_built_in_queries_can_be_sent_to_workers(text, rows):
    table = logistic_table() if text == "logistic" else rows
    query = pickle.loads(pickle.dumps(resolve(text, COLUMNS, rows=table)))
    np.testing.assert_array_equal(query(table), value(text, table))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("avg", "expected one of mean, std"),
        ("", "expected a text, a statistic or a callable"),
        (3, "expected a text, a statistic or a callable"),
        ("mean:2", "mean takes no parameter, got '2'"),
        ("mean+", "expected one of mean, std"),
        ("mean+count+mean", r"each number once, got mean\[\w+\] twice in 'mean\+count\+mean'"),
        ("quantiles:0.5,0.5", "each number once"),
        ("count by a by b by a", "each column once behind by, got a twice"),
        ("quantiles:1.5", "quantile levels in"),
        ("quantiles:x", "numbers separated by commas"),
        ("quantiles:nan", "finite numbers"),
        ("kmeans:0", "number of centroids"),
        ("kmeans:two", "number of centroids"),
        ("no_such_module_here:f", "there is no module 'no_such_module_here'"),
        ("histogram:10", "expected a column of the table"),
        ("kmeans by a", "expected a statistic that adds up in each group of 'a', got kmeans"),
        ("numpy:no_such_function", "module 'numpy' has no 'no_such_function'"),
        ("numpy:pi", "to be a function, got float"),
    ],
)
def test_bad_queries(text, message):
    with pytest.raises(ValueError, match=message):
        resolve(text, COLUMNS)


def test_bad_targets():
    with pytest.raises(
        ValueError, match=r"target: expected a column of the table \(a, b, c\), got 'd'"
    ):
        resolve("least-squares", COLUMNS, "d")
    with pytest.raises(ValueError, match="needs a target and at least one more column"):
        resolve("least-squares", ("a",))


@pytest.mark.parametrize("text", ["std", "covariance"])
def test_a_single_row_has_no_spread(text):
    with pytest.raises(ValueError, match="needs at least 2 rows, got 1"):
        value(text, np.zeros((1, 2)))
