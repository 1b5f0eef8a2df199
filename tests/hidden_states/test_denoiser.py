"""Denoisers against closed forms, and what they leave as it is."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.covariance import Dense, Diagonal, Isotropic, LowRank  # noqa: E402
from tacit.guarantees import ApproximateDP  # noqa: E402
from tacit.hidden_states.noise.denoiser import Denoiser  # noqa: E402


def psd(width, seed):
    root = np.random.default_rng(seed).standard_normal((width, width))
    return root @ root.T / width + 0.2 * np.eye(width)


def test_two_points_give_a_hyperbolic_tangent():
    """E[X | z] = μ tanh(⟨μ, z⟩_{Σ⁻¹}) for X = ±μ."""
    noise = psd(4, 1)
    point = np.array([1.0, -0.5, 2.0, 0.3])
    rows = np.random.default_rng(0).standard_normal((50, 4))
    found = Denoiser.posterior_mean(np.stack([point, -point]), Dense(noise)).denoise(rows)
    exact = np.tanh(rows @ np.linalg.solve(noise, point))[:, None] * point
    assert np.abs(found.numpy() - exact).max() < 1e-6


def test_the_posterior_mean_is_the_obvious_sum():
    source = np.random.default_rng(2)
    states = source.standard_normal((9000, 5)) * 4 + 100
    noise = psd(5, 3)
    rows = states[:40] + Dense(noise).sample(40, 4)
    found = Denoiser.posterior_mean(states, Dense(noise)).denoise(rows)
    for row, denoised in zip(rows, found.numpy(), strict=True):
        gaps = states - row
        score = -0.5 * np.einsum("ij,jk,ik->i", gaps, np.linalg.inv(noise), gaps)
        weights = np.exp(score - score.max())
        assert np.abs(weights @ states / weights.sum() - denoised).max() < 1e-4


def test_far_from_every_state_nothing_overflows():
    states = np.array([[0.0], [1.0]])
    found = Denoiser.posterior_mean(states, Isotropic(1e-8, 1)).denoise([[1e6], [-1e6], [0.4]])
    assert found[:, 0].tolist() == [1.0, 0.0, 0.0]


def test_many_gaussian_states_approach_the_wiener_denoiser():
    source = np.random.default_rng(5)
    spread = psd(2, 6)
    noise = Diagonal([0.5, 2.0])
    states = source.multivariate_normal([3.0, -1.0], spread, 60_000)
    rows = states[:300] + noise.sample(300, 7)
    exact = Denoiser.gaussian([3.0, -1.0], spread, noise).denoise(rows).numpy()
    gain = spread @ np.linalg.inv(spread + np.diag([0.5, 2.0]))
    closed = np.array([3.0, -1.0]) + (rows - [3.0, -1.0]) @ gain.T
    assert np.abs(exact - closed).max() < 1e-5
    learnt = Denoiser.posterior_mean(states[1000:], noise).denoise(rows).numpy()
    assert np.sqrt(((learnt - exact) ** 2).mean()) < 0.05
    fitted = Denoiser.wiener(states[1000:], noise).denoise(rows).numpy()
    assert np.sqrt(((fitted - exact) ** 2).mean()) < 0.02


def test_the_posterior_mean_reaches_the_least_error():
    """On a mixture no affine map can reach it, and the network comes between."""
    source = np.random.default_rng(8)
    means = np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 4.0]])
    states = means[source.integers(0, 3, 6000)] + 0.3 * source.standard_normal((6000, 2))
    noise = Isotropic(4.0, 2)
    clean = states[5000:]
    rows = clean + noise.sample(1000, 9)

    def error(denoiser):
        return float(((denoiser.denoise(rows).numpy() - clean) ** 2).sum(axis=1).mean())

    public = states[:5000]
    posterior = error(Denoiser.posterior_mean(public, noise))
    linear = error(Denoiser.wiener(public, noise))
    network = error(Denoiser.trained(public, noise, epochs=8, rng=0))
    raw = float(((rows - clean) ** 2).sum(axis=1).mean())
    assert posterior < 0.95 * linear < 0.95 * raw
    assert network < 0.95 * linear
    assert network > 0.9 * posterior


def test_what_carries_no_noise_is_left_as_released():
    states = np.random.default_rng(0).standard_normal((500, 3))
    noise = LowRank(np.eye(3)[:2], np.eye(2))
    rows = states[:20] + noise.sample(20, 1)
    found = Denoiser.wiener(states, noise).denoise(rows).numpy()
    assert np.abs(found[:, 2] - rows[:, 2]).max() < 1e-6
    assert np.abs(found[:, :2] - rows[:, :2]).max() > 0.1
    with pytest.raises(ValueError, match="covariance"):
        Denoiser.posterior_mean(states, noise)
    floored = Denoiser.posterior_mean(states, noise.with_floor(0.1))
    assert math.isfinite(float(floored.denoise(rows).sum()))


@pytest.mark.parametrize("kind", ["posterior mean", "wiener", "trained"])
def test_the_guarantee_is_that_of_the_release(kind):
    states = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    noise = Isotropic(1.0, 3)
    denoiser = {
        "posterior mean": lambda: Denoiser.posterior_mean(states, noise),
        "wiener": lambda: Denoiser.wiener(states, noise),
        "trained": lambda: Denoiser.trained(states, noise, epochs=1, rng=0),
    }[kind]()
    bound = ApproximateDP(
        epsilon=1.0, delta=0.1, adjacency="two", evidence="theorem", assumptions=(), source="test"
    )
    assert denoiser.guarantee(bound) is bound
    assert denoiser.kind == kind
    assert denoiser.calibration == 60
    assert "public" in denoiser.statement
    assert denoiser.denoise(states).dtype == torch.float32
    for bad in (states[:, :2], states * torch.nan, "x", [[1.0, 2.0], [3.0]]):
        with pytest.raises(ValueError, match="noisy"):
            denoiser.denoise(bad)
    with pytest.raises(ValueError, match="release"):
        denoiser.guarantee("safe")


def test_bad_input_is_refused():
    states = np.random.default_rng(0).standard_normal((60, 3))
    noise = Isotropic(1.0, 3)
    for make in (Denoiser.posterior_mean, Denoiser.wiener, Denoiser.trained):
        with pytest.raises(ValueError, match="calibration"):
            make(states[:, :2], noise)
        with pytest.raises(ValueError, match="calibration"):
            make(states * np.nan, noise)
        with pytest.raises(ValueError, match="covariance"):
            make(states, "noise")
        with pytest.raises(ValueError, match="covariance"):
            make(states, np.diag([1.0, 1.0, -1.0]))
    given = [Denoiser.wiener(states, sigma).denoise(states) for sigma in (noise, np.eye(3))]
    assert torch.allclose(*given)
    with pytest.raises(ValueError, match="epochs"):
        Denoiser.trained(states, noise, epochs=0)
    with pytest.raises(ValueError, match="calibration"):
        Denoiser.trained(states[:5], noise)
    with pytest.raises(ValueError, match="spread"):
        Denoiser.gaussian(np.zeros(3), -np.eye(3), noise)
