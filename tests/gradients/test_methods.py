"""Methods: what they add and what they certify, against their definitions."""

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.accounting import gaussian, noisy_projection, subsampled_gaussian
from tacit.adapters import (
    DPSGD,
    DPLoRAFA,
    LoRAFA,
    NoisyProjection,
    Schedule,
    WithoutClipping,
)

ONE = Schedule(sampling_rate=1.0, steps=1, dims=(20,), rank_one=True)


def normal(seed):
    source = np.random.default_rng(seed)
    return lambda shape: torch.from_numpy(source.standard_normal(shape))


def test_joint_factors_bring_the_whole_gradient_to_the_clip():
    norms = {"a": torch.tensor([9.0, 0.0, 0.01]), "b": torch.tensor([16.0, 0.0, 0.0])}
    factors = DPSGD(clip=2.0).factors(norms)
    whole = sum(factors[name] ** 2 * norms[name] for name in norms).sqrt()
    np.testing.assert_allclose(whole, [2.0, 0.0, 0.1], rtol=1e-6)
    assert torch.equal(factors["a"], factors["b"])


def test_factors_of_layers_bring_each_to_its_share():
    norms = {"a": torch.tensor([9.0, 0.01]), "b": torch.tensor([1e-4, 16.0])}
    factors = DPLoRAFA(rank=1, clip=2.0, clipping="layers").factors(norms)
    whole = sum(factors[name] ** 2 * norms[name] for name in norms).sqrt()
    assert float(whole.max()) <= 2.0
    np.testing.assert_allclose(factors["a"], [2**0.5 / 3, 1.0], rtol=1e-6)


@pytest.mark.parametrize("method", [DPSGD(clip=1.5), DPLoRAFA(rank=3, clip=1.5)])
def test_independent_noise_has_the_deviation_asked_for_in_every_entry(method):
    total = torch.zeros(400, 5, 4, dtype=torch.float64)
    found = method.step(total, None, 3.0, normal(0)).numpy()
    assert abs(found.std() - 3.0) < 4 * 3.0 / np.sqrt(2 * found.size)
    covariance = np.cov(found.reshape(400, 20).T)
    assert np.abs(covariance - 9 * np.eye(20)).max() < 9 * 5 / np.sqrt(400)


@pytest.mark.parametrize("rank", [3, 9])
def test_projected_noise_is_that_of_a_gaussian_matrix_times_a_transposed_a(rank):
    width, trials = 6, 4000
    source = np.random.default_rng(3)
    factor = torch.from_numpy(source.standard_normal((rank, width)) / rank**0.5)
    total = torch.from_numpy(source.standard_normal((2, width)))
    many = total.expand(trials, 2, width)
    found = NoisyProjection(rank=rank).step(many, factor, 0.7, normal(4)).numpy()
    product = (factor.T @ factor).numpy()
    middle = total.numpy() @ product
    covariance = 0.49 * product @ product
    errors = np.sqrt(np.diag(covariance) / trials)
    assert (np.abs(found.mean(axis=0) - middle) < 5 * errors).all()
    for row in range(2):
        rest = found[:, row] - middle[row]
        size = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) / trials)
        assert (np.abs(rest.T @ rest / trials - covariance) < 6 * size + 1e-12).all()
    # the rows are independent of each other
    cross = (found[:, 0] - middle[0]).T @ (found[:, 1] - middle[1]) / trials
    assert np.abs(cross).max() < 6 * covariance.max() / np.sqrt(trials)


def test_nothing_of_the_noise_leaves_the_range_of_a():
    factor = torch.from_numpy(np.random.default_rng(5).standard_normal((2, 7)))
    found = NoisyProjection(rank=2).step(torch.zeros(3, 7).double(), factor, 1.0, normal(6))
    outside = torch.linalg.svd(factor)[2][2:]
    assert float((found @ outside.mT).abs().max()) < 1e-12


def test_profiles_are_those_of_the_accounting():
    found = DPSGD().profile(2.0, ONE).delta(1.0)
    assert found == pytest.approx(gaussian(1.0, 2.0).delta(1.0), rel=1e-12)
    several = Schedule(sampling_rate=0.1, steps=3, dims=(20,))
    expected = subsampled_gaussian(0.1, 1.5, 3)
    assert DPLoRAFA(rank=4).profile(1.5, several).epsilon(1e-4) == expected.epsilon(1e-4)
    exact = noisy_projection(dim=20, rank=4, sensitivity=1.0, noise_std=0.5, difference_rank=1)
    found = NoisyProjection(rank=4).profile(0.5, ONE)
    assert found.delta(0.7) == pytest.approx(exact.delta(0.7), rel=1e-12)


def test_the_narrowest_layer_and_unknown_ranks_cost_more():
    def delta(dims, rank_one):
        schedule = Schedule(sampling_rate=1.0, steps=1, dims=dims, rank_one=rank_one)
        return NoisyProjection(rank=4).profile(0.5, schedule).delta(0.5)

    assert delta((20,), True) < delta((20,), False)
    assert delta((40, 20), True) == delta((20, 40), False) == delta((20,), False)


def test_several_layers_are_covered_by_the_narrowest():
    """E δ_G at Σ w_l X_l, X_l ~ Beta(r/2, (d_l − r)/2), is at most what is certified."""
    rank, dims, noise = 3, (12, 40), 0.45
    source = np.random.default_rng(7)
    draws = [
        stats.beta.rvs(rank / 2, (d - rank) / 2, size=200_000, random_state=source) for d in dims
    ]
    schedule = Schedule(sampling_rate=1.0, steps=1, dims=dims)
    profile = NoisyProjection(rank=rank).profile(noise, schedule)
    for share in (0.0, 0.3, 0.5, 1.0):
        distance = np.sqrt(share * draws[0] + (1 - share) * draws[1]) / noise
        for epsilon in (0.0, 0.5, 1.5):
            values = stats.norm.cdf(distance / 2 - epsilon / distance) - np.exp(
                epsilon
            ) * stats.norm.cdf(-distance / 2 - epsilon / distance)
            error = values.std() / np.sqrt(values.size)
            assert values.mean() - 4 * error <= profile.delta(epsilon)


def test_without_clipping_certifies_one_step_or_convex_ones():
    method = WithoutClipping(rank=4, bound=2.0)
    exact = NoisyProjection(rank=4).profile(0.5, ONE)
    assert method.profile(0.5, ONE).delta(1.0) == pytest.approx(exact.delta(1.0), rel=1e-12)
    several = Schedule(sampling_rate=1.0, steps=5, dims=(20,))
    with pytest.raises(ValueError, match="after the first step the gradients depend on A"):
        method.profile(0.5, several)
    convex = WithoutClipping(rank=4, bound=2.0, smoothness=0.5, condition=1.5)
    exact = gaussian(7.5, 10.0)
    assert convex.profile(10.0, several).delta(1.0) == pytest.approx(exact.delta(1.0), rel=1e-12)
    with pytest.raises(ValueError, match="sampling_rate: expected 1"):
        method.profile(0.5, Schedule(sampling_rate=0.5, steps=1, dims=(20,)))


def test_a_noiseless_projection_has_no_profile():
    with pytest.raises(ValueError, match="Proposition 2"):
        LoRAFA(rank=4).profile(1.0, ONE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPLoRAFA(rank=0), "rank"),
        (lambda: NoisyProjection(rank=2, clip=0.0), "clip"),
        (lambda: DPSGD(clip=float("nan")), "clip"),
        (lambda: DPSGD(clipping="both"), "clipping"),
        (lambda: WithoutClipping(rank=2, bound=-1.0), "bound"),
        (lambda: Schedule(sampling_rate=0.0, steps=1, dims=(2,)), "sampling_rate"),
        (lambda: Schedule(sampling_rate=0.5, steps=0, dims=(2,)), "steps"),
        (lambda: Schedule(sampling_rate=0.5, steps=1, dims=()), "dims"),
        (lambda: DPSGD().noise_multiplier(0.0, 1e-5, ONE), "epsilon"),
        (lambda: DPSGD().noise_multiplier(1.0, 1.0, ONE), "delta"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
