import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.covariance import (
    Dense,
    Diagonal,
    Factored,
    Isotropic,
    LowRank,
    covariance_from_dict,
)


def orthonormal_rows(rng, k, d):
    return np.linalg.qr(rng.standard_normal((d, k)))[0].T


def build(kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "isotropic":
        return Isotropic(2.5, 6)
    if kind == "diagonal":
        return Diagonal(rng.uniform(0.5, 2.0, 6))
    if kind == "diagonal-bare":
        return Diagonal([1.0, 0.0, 2.0, 0.0, 3.0, 0.5])
    if kind == "low-rank":
        core = rng.standard_normal((3, 3))
        return LowRank(orthonormal_rows(rng, 3, 6), core @ core.T)
    if kind == "low-rank-floor":
        core = rng.standard_normal((3, 3))
        return LowRank(orthonormal_rows(rng, 3, 6), core @ core.T, floor=0.3)
    if kind == "dense":
        root = rng.standard_normal((6, 6))
        return Dense(root @ root.T)
    if kind == "dense-singular":
        root = rng.standard_normal((6, 2))
        return Dense(root @ root.T)
    if kind == "factored":
        return Factored(rng.standard_normal((4, 6)), np.tril(rng.uniform(0.5, 1.0, (4, 4))))
    if kind == "factored-identity":
        return Factored(rng.standard_normal((4, 6)))
    # More rows than dimensions: the rows are dependent.
    return Factored(rng.standard_normal((9, 6)), np.tril(rng.uniform(0.5, 1.0, (9, 9))))


KINDS = [
    "isotropic",
    "diagonal",
    "diagonal-bare",
    "low-rank",
    "low-rank-floor",
    "dense",
    "dense-singular",
    "factored",
    "factored-identity",
    "factored-wide",
]


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_its_dense_matrix(kind):
    sigma = build(kind)
    dense = sigma.to_dense()
    rng = np.random.default_rng(1)
    assert sigma.dim == 6
    assert sigma.rank == np.linalg.matrix_rank(dense)
    assert sigma.trace() == pytest.approx(np.trace(dense))
    np.testing.assert_allclose(sigma.diagonal(), np.diagonal(dense), atol=1e-12)
    inside = rng.standard_normal((3, 6)) @ dense
    expected = np.einsum("ij,jk,ik->i", inside, np.linalg.pinv(dense), inside)
    np.testing.assert_allclose(sigma.mahalanobis(inside), expected, rtol=1e-8)
    assert isinstance(sigma.mahalanobis(inside[0]), float)
    weights = rng.uniform(size=6)
    full = rng.standard_normal((6, 6))
    full = full @ full.T
    assert sigma.weighted_trace() == pytest.approx(np.trace(dense))
    assert sigma.weighted_trace(2.0) == pytest.approx(2 * np.trace(dense))
    assert sigma.weighted_trace(weights) == pytest.approx(weights @ np.diagonal(dense))
    assert sigma.weighted_trace(full) == pytest.approx(np.trace(full @ dense))
    np.testing.assert_allclose(sigma.scaled(3.0).to_dense(), 3 * dense, atol=1e-12)
    floored = sigma.with_floor(0.25)
    np.testing.assert_allclose(floored.to_dense(), dense + 0.25 * np.eye(6), atol=1e-12)
    assert floored.rank == 6


@pytest.mark.parametrize("kind", ["diagonal-bare", "low-rank", "dense-singular", "factored"])
def test_outside_the_range_is_infinite(kind):
    sigma = build(kind)
    outside = np.linalg.svd(sigma.to_dense())[0][:, -1]
    assert sigma.mahalanobis(outside) == np.inf
    # However small the bare part is beside the covered one.
    inside = sigma.to_dense()[0]
    assert np.isfinite(sigma.mahalanobis(inside))
    assert sigma.mahalanobis(inside + 1e-9 * outside) == np.inf
    assert sigma.mahalanobis(np.zeros(6)) == 0.0
    assert np.isfinite(sigma.with_floor(1e-3).mahalanobis(outside))


def chi_square_interval(count, confidence=1 - 1e-6):
    tail = (1 - confidence) / 2
    return stats.chi2.ppf([tail, 1 - tail], count) / count


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_covariance_and_a_wrong_scale_fails(kind):
    sigma = build(kind)
    draws = sigma.sample(4000, rng=7)
    assert draws.shape == (4000, 6)
    # The squared distances of the draws are χ² with `rank` degrees of freedom each.
    mean = sigma.mahalanobis(draws).mean() / sigma.rank
    low, high = chi_square_interval(4000 * sigma.rank)
    assert low < mean < high
    assert not low < 1.3**2 * mean < high
    standard_error = np.sqrt(np.outer(sigma.diagonal(), sigma.diagonal()) * 2 / 4000)
    assert np.all(np.abs(np.cov(draws.T) - sigma.to_dense()) <= 5 * standard_error + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_seed_draws_come_from_the_operating_system(kind):
    sigma = build(kind)
    assert not np.array_equal(sigma.sample(2), sigma.sample(2))
    np.testing.assert_array_equal(sigma.sample(2, rng=3), sigma.sample(2, rng=3))


@pytest.mark.parametrize("kind", KINDS)
def test_json_round_trip_is_exact(kind):
    sigma = build(kind)
    back = covariance_from_dict(json.loads(json.dumps(sigma.to_dict(), allow_nan=False)))
    assert back == sigma
    assert hash(back) == hash(sigma)
    assert back != sigma.scaled(2.0)
    assert sigma != "something else"


def test_large_low_rank_never_forms_a_square_matrix():
    d, k = 1_000_000, 4
    rng = np.random.default_rng(0)
    basis = np.zeros((k, d))
    # Orthonormal by disjoint support, so the test itself stays small.
    for i in range(k):
        block = rng.standard_normal(d // k)
        basis[i, i * (d // k) : (i + 1) * (d // k)] = block / np.linalg.norm(block)
    sigma = LowRank(basis, np.diag([1.0, 2.0, 3.0, 4.0]), floor=1e-6)
    z = 2 * basis[1]
    assert sigma.mahalanobis(z) == pytest.approx(4 / (2.0 + 1e-6))
    assert sigma.sample(1, rng=1).shape == (1, d)
    assert sigma.trace() == pytest.approx(10.0 + 1.0)
    assert LowRank(basis, np.eye(k)).mahalanobis(np.ones(d)) == np.inf


@settings(deadline=None, derandomize=True, max_examples=40)
@given(m=st.integers(1, 12), d=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_rows_of_a_factored_covariance_lie_within_their_certificate(m, d, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, d)) * 10.0 ** rng.uniform(-3, 3, (m, 1))
    lower = np.tril(rng.uniform(0.2, 1.0, (m, m)))
    distances = Factored(rows, lower).mahalanobis(rows)
    assert np.all(distances <= (lower**2).sum(axis=1) * (1 + 1e-9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Isotropic(-1.0, 2), "variance: expected a finite number >= 0, got -1.0"),
        (lambda: Isotropic(float("nan"), 2), "variance: expected a number, got NaN"),
        (lambda: Isotropic(1.0, 0), "dim: expected an integer >= 1, got 0"),
        (lambda: Diagonal([1.0, -2.0]), "variances: expected numbers >= 0, got -2.0"),
        (lambda: Diagonal([]), "variances: expected at least one entry"),
        (lambda: Dense([[1.0, 2.0], [2.0, 1.0]]), "matrix: expected a positive semidefinite"),
        (lambda: Dense([[1.0, 0.1], [0.2, 1.0]]), "matrix: expected a symmetric matrix"),
        (lambda: LowRank([[1.0, 1.0]], [[1.0]]), "basis: expected orthonormal rows"),
        (lambda: LowRank(np.eye(3)[:, :2], np.eye(3)), "basis: expected at most as many rows"),
        (lambda: LowRank([[1.0, 0.0]], np.eye(2)), r"core: expected shape \(1, 1\)"),
        (lambda: LowRank([[1.0, 0.0]], [[1.0]], floor=-1), "floor: expected a finite number >= 0"),
        (lambda: Factored([[1.0]], [[0.0]]), "lower: expected a lower triangle with a non-zero"),
        (lambda: Factored(np.eye(2), [[1.0, 1.0], [0.0, 1.0]]), "lower: expected a lower"),
        (lambda: Isotropic(1.0, 2).sample(0), "n: expected an integer >= 1, got 0"),
        (lambda: Isotropic(1.0, 2).sample(1, rng=-3), "rng: expected an integer >= 0"),
        (lambda: Isotropic(1.0, 2).scaled(0), "c: expected a finite number > 0, got 0.0"),
        (lambda: Isotropic(1.0, 2).mahalanobis([1.0]), r"z: expected 2 columns, got shape \(1,\)"),
        (lambda: Isotropic(1.0, 2).mahalanobis([1.0, np.inf]), "z: expected finite numbers"),
        (lambda: Isotropic(1.0, 2).weighted_trace(np.eye(3)), r"cost: expected shape \(2, 2\)"),
        (lambda: covariance_from_dict({"type": "odd"}), "description: expected a type among"),
        (lambda: covariance_from_dict({"type": "isotropic"}), "description: fields do not fit"),
    ],
)
def test_bad_input_gets_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_covariance_cannot_be_changed_from_outside():
    variances = np.ones(3)
    sigma = Diagonal(variances)
    variances[0] = 100.0
    assert sigma.trace() == 3.0
    with pytest.raises(ValueError, match="read-only"):
        sigma.variances[0] = 5.0


@pytest.mark.parametrize("least", [1e-12, 1e-15, 1e-17, 3e-300])
@pytest.mark.parametrize(
    "bare",
    [
        Diagonal([1.0, 0.0]),
        Dense([[1.0, 0.0], [0.0, 0.0]]),
        LowRank([[1.0, 0.0]], [[1.0]]),
        Factored([[1.0, 0.0]]),
    ],
    ids=lambda covariance: type(covariance).__name__,
)
def test_a_coordinate_without_noise_shows_a_difference_of_any_size(bare, least):
    assert not bare.sample(20)[:, 1].any()
    assert bare.mahalanobis([1e3, least]) == np.inf
    assert bare.mahalanobis([1e3, -0.0]) == pytest.approx(1e6)


def test_a_distance_whose_square_underflows_is_not_infinite():
    rows = np.random.default_rng(20).standard_normal((6, 4))
    rows *= np.array([1e100, 1e100, 1e99, 1e100, 1e100, 1e-90])[:, None]
    rows[:5, 3] = rows[:5, 2] * (1 + 1e-9)
    sigma = Factored(rows)
    assert (sigma.mahalanobis(rows) <= 1 + 1e-9).all()
    askew = Factored([[1 / 3, 0.3, 0.7], [1 / 3, 0.3000001, 0.7], [0.2, 0.1, 0.9]])
    assert askew.mahalanobis(np.array([1e-3, 0.5, 0.3]) * 1e-165) < 1e-300


@pytest.mark.parametrize("value", [2**64, 10**400, -(10**400), np.longdouble("1e400")])
def test_no_size_of_a_value_is_refused(value):
    released = Isotropic(1.0, 2).release([value, 0])
    assert np.isfinite(released).all()
    assert abs(released[0]) >= 1.8e19
