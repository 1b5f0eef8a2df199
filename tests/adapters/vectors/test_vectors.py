"""Vectors through a secret projection: alignments against draws, uses, refusals."""

import numpy as np
import pytest

from tacit.accounting import vector_projection
from tacit.adapters import (
    VectorProjection,
    mean_alignment,
    measured_alignment,
    project_prototypes,
    project_query,
    projected_descent,
    raised_alignment,
)


def test_no_pair_of_neighbouring_means_points_further_apart():
    """The worst pair: both means at the smallest norm, as far from each other as one vector may."""
    count, bound, least = 20, 2.0, 0.7
    promised = mean_alignment(count, bound=bound, least_norm=least)
    half = bound / count / least
    angle = 2 * np.arcsin(half)
    assert promised <= np.cos(angle)
    assert promised == pytest.approx(np.cos(angle), abs=1e-9)
    source = np.random.default_rng(0)
    for _ in range(2000):
        one = source.normal(size=4)
        one *= (least * (1 + source.exponential())) / np.linalg.norm(one)
        move = source.normal(size=4)
        other = one + move * (2 * bound / count * source.random()) / np.linalg.norm(move)
        if np.linalg.norm(other) >= least:
            cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            assert cosine >= promised


@pytest.mark.parametrize("dim", [3, 50])
@pytest.mark.parametrize("alignment", [-0.5, 0.2, 0.9])
def test_noise_raises_the_cosine_but_for_the_failures(dim, alignment):
    noise, failure, trials = 2.5, 0.02, 40_000
    raised = raised_alignment(alignment, noise=noise, dim=dim, confidence=1 - failure)
    source = np.random.default_rng(1)
    for rho in (alignment, (1 + alignment) / 2):
        one, other = np.zeros(dim), np.zeros(dim)
        one[:2] = np.sqrt((1 + rho) / 2), np.sqrt((1 - rho) / 2)
        other[:2] = one[0], -one[1]
        u = source.normal(size=(trials, dim))
        u *= noise / np.linalg.norm(u, axis=1, keepdims=True)
        first, second = one + u, other + u
        cosines = (first * second).sum(axis=1)
        cosines /= np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        assert (cosines < raised).mean() <= failure + 4 * np.sqrt(failure / trials)
    assert raised >= alignment


def test_what_is_drawn_has_the_law_of_the_projection():
    """vᵀy is a mean of r squares, and the rest of y is spread by it."""
    mechanism = VectorProjection(rank=5, alignment=0.9)
    source = np.random.default_rng(2)
    drawn = np.array([mechanism.draw([3.0, 0.0, 0.0, 0.0], source) for _ in range(4000)])
    along = drawn[:, 0]
    assert abs(along.mean() - 1) < 5 * np.sqrt(2 / 5 / 4000)
    assert abs(along.var() / (2 / 5) - 1) < 0.15
    assert abs((drawn[:, 1] ** 2).mean() / (1 / 5) - 1) < 0.15
    assert (along > 0).all()


def test_noise_costs_its_failure_and_gains_alignment():
    plain = VectorProjection(rank=8, alignment=0.3).profile(200)
    noisy = VectorProjection(rank=8, alignment=0.3, noise=3.0, confidence=1 - 1e-5).profile(200)
    raised = raised_alignment(0.3, noise=3.0, dim=200, confidence=1 - 1e-5)
    exact = vector_projection(dim=200, rank=8, alignment=raised)
    for epsilon in (0.5, 2.0, 8.0):
        assert noisy.delta(epsilon) >= exact.delta(epsilon) + 0.99e-5
        assert noisy.delta(epsilon) <= exact.delta(epsilon) + 1.01e-5
    assert noisy.delta(2.0) < plain.delta(2.0)


def test_an_attacker_who_tells_two_directions_apart_keeps_to_the_profile():
    """The best test knows the densities; that of vᵀy alone must stay below the bound."""
    dim, rank, rho = 30, 6, 0.95
    mechanism = VectorProjection(rank=rank, alignment=rho)
    bound = mechanism.profile(dim).success().success
    one, other = np.zeros(dim), np.zeros(dim)
    one[:2] = np.sqrt((1 + rho) / 2), np.sqrt((1 - rho) / 2)
    other[:2] = one[0], -one[1]
    source = np.random.default_rng(3)
    trials = 1500
    right = 0
    for vector, sign in ((one, 1), (other, -1)):
        drawn = np.array([mechanism.draw(vector, source) for _ in range(trials)])
        # ln of the density's ratio, Lemma 8
        first, second = drawn @ one, drawn @ other
        square = (drawn**2).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = -(dim - rank + 1) / 2 * np.log(first / second)
            ratio -= rank / 2 * square * (1 / first - 1 / second)
        ratio = np.where(second <= 0, np.inf, np.where(first <= 0, -np.inf, ratio))
        right += (sign * ratio > 0).sum()
    success = right / (2 * trials)
    error = 0.5 / np.sqrt(2 * trials)
    assert success <= bound + 4 * error
    assert success >= bound - 5 * error


def test_descent_with_fresh_projections_composes():
    mechanism = VectorProjection(rank=20, alignment=0.9999)
    found = projected_descent(lambda w: w - 1.0, np.zeros(20), mechanism, steps=4, rate=0.1, rng=0)
    assert found.vectors.shape == (5, 20)
    one = mechanism.profile(20)
    assert found.profile.epsilon(1e-3) > one.epsilon(1e-3)
    steps = np.diff(found.vectors, axis=0)
    assert np.linalg.matrix_rank(steps) == 4


def test_refusals():
    measured = measured_alignment(np.random.default_rng(0).normal(size=(9, 3)) + 1.0)
    with pytest.raises(ValueError, match="expected a bound that holds for every data set"):
        VectorProjection(rank=2, alignment=measured)
    with pytest.raises(ValueError, match="rank: expected at most the 3 dimensions"):
        VectorProjection(rank=4, alignment=0.9).profile(3)
    with pytest.raises(ValueError, match="not zero"):
        project_query(np.zeros(4), VectorProjection(rank=2, alignment=0.9))
    rows = np.random.default_rng(1).normal(size=(10, 4))
    with pytest.raises(ValueError, match="expected one that no class's mean is shorter than"):
        project_prototypes(rows, np.zeros(10), rank=2, bound=1.0, least_norm=0.9)
    with pytest.raises(ValueError, match="gradient"):
        projected_descent(
            lambda w: np.full(4, np.nan), np.zeros(4), VectorProjection(rank=2, alignment=0.9),
            steps=2, rate=0.1,
        )  # fmt: skip
