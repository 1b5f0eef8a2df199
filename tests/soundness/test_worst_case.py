"""Worst-case designs in extended precision: what is drawn keeps every difference in its budget."""

import mpmath
import numpy as np
import pytest

from tacit.design import worst_case
from tacit.divergences import shift_distance, shift_divergence
from tacit.guarantees import Indistinguishability
from tests.design.families import FAMILIES, instance
from tests.soundness.registry import certifies


def exact_distances(covariance, rows):
    """zᵀ Σ⁻¹ z from the stored rows and triangle of the noise, in 50 digits.

    The noise is rowsᵀ L⁻ᵀ η; its covariance on the span of A = rowsᵀ L⁻ᵀ has Σ⁺ with
    zᵀ Σ⁺ z = uᵀ u, u the least-norm solution of A u = z.
    """
    mixed = mpmath.matrix(covariance.rows.tolist())
    if covariance.lower is None:
        factor = mixed.T
    else:
        factor = (mpmath.inverse(mpmath.matrix(covariance.lower.tolist())) * mixed).T
    # Least norm through the normal equations of whichever side has full rank.
    wide = factor.cols > factor.rows
    normal = factor * factor.T if wide else factor.T * factor
    distances = []
    for row in rows:
        z = mpmath.matrix(row.tolist())
        if wide:
            distances.append((z.T * mpmath.lu_solve(normal, z))[0])
            continue
        u = mpmath.lu_solve(normal, factor.T * z)
        residual = mpmath.norm(factor * u - z) / (mpmath.norm(z) + mpmath.mpf("1e-300"))
        assert residual < 1e-10
        distances.append((u.T * u)[0])
    return distances


@certifies(Indistinguishability)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("m", "d"), [(5, 9), (8, 8), (14, 4)])
def test_every_difference_is_within_its_budget(family, m, d):
    rows, budgets = instance(family, m, d, seed=3)
    design = worst_case(rows, budgets)
    with mpmath.workdps(50):
        distances = exact_distances(design.covariance, rows)
        for distance, budget in zip(distances, budgets, strict=True):
            assert distance <= mpmath.mpf(float(budget)) * (1 + mpmath.mpf("1e-9"))


@certifies(Indistinguishability)
@pytest.mark.parametrize("kind", ["kl", "tv", ("renyi", 4.0), ("hockey-stick", 1.0)])
def test_a_certificate_bounds_the_divergence_of_what_is_drawn(kind):
    rows, _ = instance("collinear", 10, 20, seed=1)
    wanted = 0.3
    design = worst_case(rows, shift_distance(kind, wanted) ** 2)
    guarantee = Indistinguishability(
        references=tuple(str(i) for i in range(10)),
        divergence=kind,
        bounds=(wanted,) * 10,
        evidence="numerical",
        assumptions=("noise N(0, Σ) added once",),
        source="dsi, Lemma 3.1 and Thm 3.3",
    )
    # Independent of mahalanobis: whiten with a pseudo-inverse root of the dense covariance.
    values, vectors = np.linalg.eigh(design.covariance.to_dense())
    kept = values > 1e-12 * values[-1]
    white = rows @ vectors[:, kept] / np.sqrt(values[kept])
    assert np.linalg.norm(rows - rows @ vectors[:, kept] @ vectors[:, kept].T) < 1e-6
    for row, bound in zip(white, guarantee.bounds, strict=True):
        assert shift_divergence(kind, np.linalg.norm(row)) <= bound * (1 + 1e-6)
    # A control: 10% less noise breaks the certificate of at least one reference.
    worst = max(np.linalg.norm(row) for row in white) / np.sqrt(0.9)
    assert shift_divergence(kind, worst) > wanted
