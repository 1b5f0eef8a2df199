import math
import pickle

import numpy as np
import pytest
from scipy.optimize import minimize

from tacit.statistics import Query, built_in_queries, resolve_query
from tacit.statistics.queries import ROW_FUNCTIONS
from tacit.statistics.sums.query import known_names

COLUMNS = ("a", "b", "c")


@pytest.fixture
def rows():
    return np.random.default_rng(3).normal(size=(40, 3)) @ np.array(
        [[1.0, 0.5, 0.0], [0.0, 2.0, -1.0], [0.0, 0.0, 0.3]]
    )


def value(text, rows, target=None):
    query = resolve_query(text, COLUMNS[: rows.shape[1]], target)
    result = np.asarray(query.function(rows))
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
    assert resolve_query("quantiles:0.1", ["x"]).names == ("q0.1[x]",)


def test_quantile_names_match_the_order_of_values(rows):
    query = resolve_query("quantiles:0.1,0.9", COLUMNS)
    found = dict(zip(query.names, query.function(rows), strict=True))
    assert found["q0.9[b]"] == np.quantile(rows[:, 1], 0.9, method="inverted_cdf")


def test_covariance_is_the_upper_triangle(rows):
    query = resolve_query("covariance", COLUMNS)
    found = dict(zip(query.names, query.function(rows), strict=True))
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
    query = resolve_query("least-squares", COLUMNS, "b")
    assert query.names == ("coef[a]", "coef[c]", "intercept")
    np.testing.assert_allclose(query.function(table), [2.0, -3.0, 0.25], atol=1e-12)


def test_least_squares_explains_the_last_column_unless_told(rows):
    assert resolve_query("least-squares", COLUMNS).names == ("coef[a]", "coef[b]", "intercept")


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
    query = resolve_query(lambda table: table.max(axis=0), COLUMNS)
    assert query.names is None
    np.testing.assert_array_equal(query.function(rows), rows.max(axis=0))
    ready = Query(np.max, ("top",), "the largest entry")
    assert resolve_query(ready, COLUMNS) is ready


def test_a_function_of_a_module(rows):
    query = resolve_query("numpy:mean", COLUMNS)
    assert query.function is np.mean
    assert query.description == "numpy:mean"


def test_every_statistic_that_is_built_in_is_listed():
    assert set(built_in_queries()) == {
        *ROW_FUNCTIONS,
        *(n.partition(":")[0] for n in known_names()),
    }


@pytest.mark.parametrize("text", ROW_FUNCTIONS)
def test_built_in_queries_can_be_sent_to_workers(text, rows):
    table = logistic_table() if text == "logistic" else rows
    query = pickle.loads(pickle.dumps(resolve_query(text, COLUMNS)))
    np.testing.assert_array_equal(query.function(table), value(text, table))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("avg", "expected one of mean, std"),
        ("", "expected a text or a callable"),
        (3, "expected a text or a callable"),
        ("mean:2", "expected one of mean, std"),
        ("mean+", "expected one of mean, std"),
        ("quantiles:1.5", "quantile levels in"),
        ("quantiles:x", "quantile levels in"),
        ("quantiles:nan", "quantile levels in"),
        ("kmeans:0", "number of centroids"),
        ("kmeans:two", "number of centroids"),
        ("no_such_module_here:f", "there is no module 'no_such_module_here'"),
        ("histogram:10", "expected one of mean, std.*got .histogram:10."),
        ("numpy:no_such_function", "module 'numpy' has no 'no_such_function'"),
        ("numpy:pi", "to be a function, got float"),
    ],
)
def test_bad_queries(text, message):
    with pytest.raises(ValueError, match=message):
        resolve_query(text, COLUMNS)


def test_bad_targets():
    with pytest.raises(ValueError, match="target: expected one of a, b, c, got 'd'"):
        resolve_query("least-squares", COLUMNS, "d")
    with pytest.raises(ValueError, match="needs a target and at least one more column"):
        resolve_query("least-squares", ("a",))


@pytest.mark.parametrize("text", ["std", "covariance"])
def test_a_single_row_has_no_spread(text):
    with pytest.raises(ValueError, match="needs at least 2 rows, got 1"):
        value(text, np.zeros((1, 2)))
