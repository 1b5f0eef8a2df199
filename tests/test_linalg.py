import mpmath
import numpy as np
import pytest

from tacit import linalg


def random_psd(rng, d, rank=None):
    rows = rng.standard_normal((rank or d, d))
    return rows.T @ rows


@pytest.mark.parametrize("d", [1, 2, 7, 40])
def test_sqrt_squares_back(d):
    a = random_psd(np.random.default_rng(d), d)
    root = linalg.sqrt_psd(a)
    np.testing.assert_allclose(root @ root, a, atol=1e-12 * np.abs(a).max())
    assert np.array_equal(root, root.T)
    assert np.linalg.eigvalsh(root).min() > -1e-12 * np.abs(root).max()


def test_sqrt_against_extended_precision():
    a = np.array([[2.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 1.0]])
    with mpmath.workdps(40):
        exact = mpmath.sqrtm(mpmath.matrix(a.tolist()))
        reference = np.array(exact.tolist(), dtype=complex).real
    np.testing.assert_allclose(linalg.sqrt_psd(a), reference, rtol=1e-14)


def test_inverse_root_reports_the_rank_it_decided():
    a = random_psd(np.random.default_rng(0), 6, rank=3)
    found = linalg.inverse_sqrt_psd(a)
    assert found.rank == 3
    assert 0 < found.tolerance < 1e-12 * np.trace(a)
    # A⁺ᐟ² A A⁺ᐟ² is the projector on the range.
    projector = found.root @ a @ found.root
    np.testing.assert_allclose(projector @ projector, projector, atol=1e-9)
    assert round(np.trace(projector)) == 3


def test_rank_tolerance_is_obeyed():
    a = np.diag([1.0, 1e-4, 1e-9])
    assert linalg.inverse_sqrt_psd(a, rtol=1e-6).rank == 2
    assert linalg.inverse_sqrt_psd(a, rtol=1e-12).rank == 3
    assert linalg.inverse_sqrt_psd(a, rtol=0.0).root[2, 2] == pytest.approx(1e4**1.125)


def test_generalized_eigenvectors():
    rng = np.random.default_rng(2)
    a, b = random_psd(rng, 6), random_psd(rng, 6) + np.eye(6)
    values, vectors = linalg.generalized_eigh(a, b)
    assert np.all(np.diff(values) <= 0)
    np.testing.assert_allclose(a @ vectors, b @ vectors * values, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ b @ vectors, np.eye(6), atol=1e-12)


def test_generalized_needs_definite_right_side():
    with pytest.raises(ValueError, match=r"b: expected a positive definite.*smallest eigenvalue"):
        linalg.generalized_eigh(np.eye(2), np.diag([1.0, 0.0]))


def test_fidelity_identities():
    rng = np.random.default_rng(3)
    a, b = random_psd(rng, 5), random_psd(rng, 5)
    assert linalg.bures_fidelity(a, a) == pytest.approx(np.trace(a), rel=1e-12)
    assert linalg.bures_fidelity(a, b) == pytest.approx(linalg.bures_fidelity(b, a), rel=1e-10)
    assert linalg.bures_fidelity(a, b) <= np.sqrt(np.trace(a) * np.trace(b)) * (1 + 1e-12)
    # Commuting matrices: the sum of √(a_i b_i).
    x, y = rng.uniform(size=4), rng.uniform(size=4)
    assert linalg.bures_fidelity(np.diag(x), np.diag(y)) == pytest.approx(np.sqrt(x * y).sum())
    # Pure states: |u·v|.
    u, v = rng.standard_normal(4), rng.standard_normal(4)
    assert linalg.bures_fidelity(np.outer(u, u), np.outer(v, v)) == pytest.approx(
        abs(u @ v), rel=1e-6
    )


@pytest.mark.parametrize(("m", "d", "rank"), [(3, 10, 3), (10, 4, 4), (20, 50, 7), (1, 3, 1)])
def test_row_space_spans_and_is_orthonormal(m, d, rank):
    rng = np.random.default_rng(m)
    rows = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d))
    space = linalg.row_space(rows)
    assert space.rank == rank
    np.testing.assert_allclose(space.basis @ space.basis.T, np.eye(rank), atol=1e-13)
    np.testing.assert_allclose(space.coordinates @ space.basis, rows, atol=1e-11)


def test_row_space_of_graded_rows_is_orthonormal():
    rows = np.random.default_rng(4).standard_normal((6, 30)) * 10.0 ** -np.arange(6)[:, None]
    space = linalg.row_space(rows)
    assert space.rank == 6
    np.testing.assert_allclose(space.basis @ space.basis.T, np.eye(6), atol=1e-13)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[1.0, np.nan], [np.nan, 1.0]], r"a: expected finite numbers, got nan at index \(0, 1\)"),
        ([[1.0, 0.0]], r"a: expected a square matrix, got shape \(1, 2\)"),
        ([[1.0, 2.0], [0.0, 1.0]], r"a: expected a symmetric matrix, got max\|A - A.T\| = 2"),
        ([[1.0, 0.0], [0.0, -1.0]], r"a: expected a positive semidefinite.*eigenvalue -1"),
        ("text", r"a: expected an array of numbers"),
    ],
)
@pytest.mark.parametrize("function", [linalg.sqrt_psd, linalg.inverse_sqrt_psd])
def test_bad_matrices_get_a_sentence(function, bad, message):
    with pytest.raises(ValueError, match=message):
        function(bad)


def test_zero_rows_have_no_span():
    with pytest.raises(ValueError, match="rows: expected at least one non-zero row"):
        linalg.row_space(np.zeros((2, 3)))
