"""The log-ratio of an update against the densities of its law, written out."""

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.adapters import DPSGD, DPLoRAFA, LoRAFA, NoisyProjection, WithoutClipping
from tacit_lab.canary_game import update_log_ratio

OUTPUTS, WIDTH = 2, 5


def problem(rank, seed=0, *, full):
    source = torch.Generator().manual_seed(seed)
    projection = torch.randn(rank, WIDTH, generator=source, dtype=torch.float64)
    columns = WIDTH if full else rank
    others, canary, noise = (
        torch.randn(OUTPUTS, columns, generator=source, dtype=torch.float64) for _ in range(3)
    )
    return projection, others, canary, noise


def log_density(value, mean, covariance):
    """Of a matrix with independent rows N(mean, Σ), Σ perhaps singular."""
    law = stats.multivariate_normal(np.zeros(len(covariance)), covariance, allow_singular=True)
    return sum(law.logpdf(row) for row in (value - mean).numpy())


@pytest.mark.parametrize("method", [DPSGD(), DPLoRAFA(rank=3)], ids=lambda m: m.name)
def test_independent_noise(method):
    projection, others, canary, noise = problem(3, full=method.full)
    std = 0.7
    used = None if method.full else projection
    published = others + canary + std * noise
    found = update_log_ratio(method, published, others, canary, used, std)
    covariance = std**2 * np.eye(others.shape[1])
    expected = log_density(published, others + canary, covariance)
    expected -= log_density(published, others, covariance)
    assert float(found) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rank", [1, 3, 5, 7])
def test_noise_projected_with_the_gradient(rank):
    """(V + σE) AᵀA, whose rows have covariance σ² (AᵀA)² on the rows of A."""
    projection, others, canary, noise = problem(rank, full=True)
    square = projection.T @ projection
    std = 0.7
    published = (others + canary + std * noise) @ square
    method = NoisyProjection(rank=rank)
    found = update_log_ratio(method, published, others, canary, projection, std)
    covariance = std**2 * (square @ square).numpy()
    expected = log_density(published, (others + canary) @ square, covariance)
    expected -= log_density(published, others @ square, covariance)
    assert float(found) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_projected_noise_on_gradients_of_b(rank):
    """G Aᵀ + σ E Aᵀ, at more rows than columns too."""
    projection, others, canary, noise = problem(WIDTH, full=True)
    projection = torch.randn(rank, WIDTH, dtype=torch.float64, generator=torch.manual_seed(1))
    std = 0.7
    low, moved = others @ projection.T, canary @ projection.T
    published = low + moved + std * noise @ projection.T
    method = WithoutClipping(rank=rank, bound=1.0)
    found = update_log_ratio(method, published, low, moved, projection, std)
    covariance = std**2 * (projection @ projection.T).numpy()
    expected = log_density(published, low + moved, covariance)
    expected -= log_density(published, low, covariance)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_of_a_sample_is_that_of_the_mixture():
    """Under a canary in the sample with probability q the mean of e^−l is one."""
    rate, std, draws = 0.3, 1.5, 40_000
    source = np.random.default_rng(2)
    canary = torch.tensor([[1.0, 0.5]], dtype=torch.float64).expand(draws, 1, 2)
    inside = torch.from_numpy(source.random((draws, 1, 1)) < rate)
    published = inside * canary + std * torch.from_numpy(source.standard_normal((draws, 1, 2)))
    found = update_log_ratio(
        DPSGD(), published, torch.zeros_like(canary), canary, None, std, sampling_rate=rate
    )
    inverse = np.exp(-found.numpy())
    assert abs(inverse.mean() - 1.0) < 5 * inverse.std() / np.sqrt(draws)
    # and not as if the canary were in every sample
    certain = update_log_ratio(DPSGD(), published, torch.zeros_like(canary), canary, None, std)
    wrong = np.exp(-certain.numpy())
    assert abs(wrong.mean() - 1.0) > 5 * wrong.std() / np.sqrt(draws)


def test_without_noise_is_refused():
    zero = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=r"^method: .*without noise"):
        update_log_ratio(LoRAFA(rank=2), zero, zero, zero, None, 1.0)
    with pytest.raises(ValueError, match=r"^std: "):
        update_log_ratio(DPSGD(), zero, zero, zero, None, 0.0)
    with pytest.raises(ValueError, match=r"^sampling_rate: "):
        update_log_ratio(DPSGD(), zero, zero, zero, None, 1.0, sampling_rate=0.0)
