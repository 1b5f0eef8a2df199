"""A replaced record on Poisson samples: exact pair, every geometry, adaptive steps, channels."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from mpmath import mpf
from scipy.special import ndtr

from tacit.accounting import (
    ProjectedSteps,
    gaussian,
    laplace,
    noisy_projection,
    noisy_projection_steps,
    profile_from_curves,
    randomized_response,
    subsampled_gaussian,
)
from tests.accounting.oracles import replaced_gaussian_delta

CORNERS = [(0.02, 1.0), (1e-8, 1.0), (0.5, 0.3), (0.01, 30.0), (1 - 1e-9, 2.0), (0.02, 0.05)]


@pytest.mark.parametrize(("rate", "noise"), CORNERS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-4, 0.1, 0.68, 3.0, 60.0, 700.0])
def test_one_step_is_the_pair_of_opposite_records(rate, noise, epsilon):
    profile = subsampled_gaussian(rate, noise, 1, "replace")
    truth = replaced_gaussian_delta(epsilon, rate, noise)
    found = mpf(profile.delta(epsilon))
    assert truth <= found <= truth * (1 + mpf("1e-8")) + mpf("1e-300")
    behind = 1 - mpf(math.exp(-epsilon)) * (1 - truth)
    assert mpf(profile.delta(-epsilon)) == pytest.approx(float(behind), rel=1e-9, abs=1e-15)


@pytest.mark.thorough
def test_training_costs_what_the_worst_pair_costs():
    """q = .02, σ = 1, T = 500 at δ = 1e-5; convexity in the two shifts apart would say 7.52."""
    profile = subsampled_gaussian(0.02, 1.0, 500, "replace")
    peer = privacy_loss_distribution.from_gaussian_mechanism(
        1.0,
        sampling_prob=0.02,
        value_discretization_interval=1e-4,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    ).self_compose(500)
    for delta in (1e-3, 1e-5, 1e-9):
        assert profile.epsilon(delta) == pytest.approx(peer.get_epsilon_for_delta(delta), rel=1e-5)
    assert profile.epsilon(1e-5) == pytest.approx(4.2137, abs=1e-3)


CELLS = np.concatenate([[-np.inf], np.linspace(-9, 9, 601), [np.inf]])


def cells(mean, noise):
    """Exact mass of N(mean, σ²) in each cell: what cells tell apart is at most what the laws do."""
    return np.diff(ndtr(CELLS - mean / noise))


def apart(epsilon, first, second):
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def plane(rate, noise, mean):
    absent = np.outer(cells(0, noise), cells(0, noise))
    return (1 - rate) * absent + rate * np.outer(cells(mean[0], noise), cells(mean[1], noise))


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.7), (0.5, 1.0), (0.9, 0.4)])
def test_no_two_records_of_the_plane_are_told_apart_better(rate, noise):
    rng = np.random.default_rng(4)
    profile = subsampled_gaussian(rate, noise, 1, "replace")
    pairs = [((1, 0), (-1, 0)), ((1, 0), (0, 1)), ((1, 0), (0.999, 0.04)), ((0, 0), (0, 1))]
    for _ in range(12):
        angles, lengths = rng.uniform(0, 2 * math.pi, 2), np.sqrt(rng.uniform(0, 1, 2))
        pairs.append(
            [(r * math.cos(a), r * math.sin(a)) for a, r in zip(angles, lengths, strict=True)]
        )
    seen = [[plane(rate, noise, mean) for mean in pair] for pair in pairs]
    for epsilon in (-0.8, 0.0, 0.05, 0.6, 2.0):
        reached = [apart(epsilon, *laws) for laws in seen]
        assert max(reached) <= profile.delta(epsilon) * (1 + 1e-12) + 1e-14
        assert reached[0] == pytest.approx(profile.delta(epsilon), rel=1e-3)


def test_records_chosen_after_the_first_step_are_told_apart_no_better():
    """The second direction turns with the first output; the exact pair of two steps is the line."""
    rate, noise = 0.4, 0.8
    profile = subsampled_gaussian(rate, noise, 2, "replace")

    def sampled(mean):
        return (1 - rate) * cells(0, noise) + rate * cells(mean, noise)

    low = (CELLS[1:] <= 0)[:, None]
    for epsilon in (0.0, 0.5, 1.5):
        opposite = [np.outer(sampled(s), sampled(s)) for s in (1, -1)]
        turning = [
            np.outer(sampled(s), sampled(s)) * low + np.outer(sampled(s), sampled(m)) * ~low
            for s, m in ((1, 0.6), (-1, -1))
        ]
        reached = apart(epsilon, *opposite)
        assert apart(epsilon, *turning) < reached <= profile.delta(epsilon)
        assert profile.delta(epsilon) == pytest.approx(reached, rel=1e-2)


def laplace_pair(epsilon, rate, scale, one, other):
    """Cells that end at every kink, a two-hundredth long."""
    edges = np.concatenate([[-np.inf], np.arange(-4000, 4001) / 200, [np.inf]])

    def law(mean):
        tail = np.exp(-np.abs(edges - mean) / scale) / 2
        return np.diff(np.where(edges < mean, tail, 1 - tail))

    absent = (1 - rate) * law(0)
    return apart(epsilon, absent + rate * law(one), absent + rate * law(other))


@pytest.mark.parametrize(("rate", "scale"), [(0.1, 0.5), (0.6, 1.0)])
def test_laplace_noise_on_opposite_numbers_is_the_worst(rate, scale):
    profile = laplace(2.0, scale).poisson_subsample(
        rate, neighbours="replace", without=laplace(1.0, scale)
    )
    plain = laplace(2.0, scale).poisson_subsample(rate, neighbours="replace")
    assert profile.epsilon(1e-6) < plain.epsilon(1e-6)
    for epsilon in (0.0, 0.1, 0.5):
        exact = laplace_pair(epsilon, rate, scale, 1, -1)
        for one, other in [(1, -1), (1, 0), (1, 0.5), (0.2, -1), (-1, -0.5)]:
            reached = laplace_pair(epsilon, rate, scale, one, other)
            assert reached <= profile.delta(epsilon) * (1 + 1e-12) + 1e-14
        assert profile.delta(epsilon) == pytest.approx(exact, rel=1e-3, abs=1e-8)


def channel_curve(pairs):
    def curve(epsilon):
        factor = np.exp(np.minimum(epsilon, 700.0))[..., None]
        return np.max([np.maximum(p - factor * q, 0).sum(axis=-1) for p, q in pairs], axis=0)

    return curve


@pytest.mark.parametrize("seed", range(6))
def test_any_three_laws_are_bounded(seed):
    rng = np.random.default_rng(seed)
    record, other, absent = rng.dirichlet(np.full(5, 0.7), size=3)

    def profile(*pairs):
        return profile_from_curves(
            channel_curve(pairs), name="channel", source="enumeration", assumptions=()
        )

    far = profile((record, other), (other, record))
    near = profile((record, absent), (other, absent))
    rate = float(rng.uniform(0.05, 0.9))
    found = far.poisson_subsample(rate, neighbours="replace", without=near)
    laws = [(1 - rate) * absent + rate * law for law in (record, other)]
    for epsilon in (0.0, 0.01, 0.2, 1.0, 3.0):
        for one, two in (laws, laws[::-1]):
            truth = float(np.maximum(one - math.exp(epsilon) * two, 0).sum())
            assert truth <= found.delta(epsilon) + 1e-15


def test_gaussian_curves_give_the_exact_pair_without_its_formula():
    sampled = gaussian(2.0, 0.9).poisson_subsample(
        0.07, neighbours="replace", without=gaussian(1.0, 0.9)
    )
    exact = subsampled_gaussian(0.07, 0.9, 1, "replace")
    for epsilon in (0.0, 0.3, 1.0, 4.0):
        assert exact.delta(epsilon) <= sampled.delta(epsilon) * (1 + 1e-12)
        assert sampled.delta(epsilon) == pytest.approx(exact.delta(epsilon), rel=1e-5)


@pytest.mark.thorough
def test_projected_noise_gains_from_the_record_s_distance_to_none():
    whole = noisy_projection(dim=40, rank=4, sensitivity=2.0, noise_std=0.6)
    loose = (whole.poisson_subsample(0.05, neighbours="replace") * 50).epsilon(1e-5)
    assert (
        noisy_projection_steps(
            ProjectedSteps(dim=40, rank=4, steps=50, sampling_rate=0.05, neighbours="replace"), 0.6
        ).epsilon(1e-5)
        < loose
    )


def test_the_ends_of_the_rate():
    whole, near = gaussian(2.0, 1.0), gaussian(1.0, 1.0)
    nothing = whole.poisson_subsample(0.0, neighbours="replace", without=near)
    assert nothing.epsilon(0.0) <= 1e-9
    everything = whole.poisson_subsample(1.0, neighbours="replace", without=near)
    assert everything.delta(1.0) == whole.delta(1.0)
    for rate in (1e-300, 1e-12, 0.5, 1 - 1e-16):
        profile = subsampled_gaussian(rate, 1.0, 1, "replace")
        assert profile.delta(math.inf) == pytest.approx(0.0, abs=1e-300)
        assert profile.delta(-math.inf) == 1.0
        assert profile.advantage() == pytest.approx(rate * (2 * ndtr(1.0) - 1), rel=1e-9)


def test_the_second_curve_must_fit():
    whole = gaussian(2.0, 1.0)
    with pytest.raises(ValueError, match=r"^without: expected a PrivacyProfile"):
        whole.poisson_subsample(0.1, neighbours="replace", without=1.0)
    with pytest.raises(ValueError, match=r"^without: expected it with neighbours 'replace'"):
        whole.poisson_subsample(0.1, without=gaussian(1.0, 1.0))
    replaced = randomized_response(1.0).poisson_subsample(0.1, neighbours="replace")
    with pytest.raises(ValueError, match=r"^without: expected a profile of a record against none"):
        whole.poisson_subsample(0.1, neighbours="replace", without=replaced)


def test_noise_whose_square_is_no_float_tells_what_the_sample_tells():
    profile = subsampled_gaussian(0.1, 1e-160, 1, "replace")
    assert 0.1 <= profile.delta(1.0) <= 0.1 * (1 + 1e-12)
    assert profile.epsilon(0.01) == math.inf
    # of nothing that is sampled nothing is told, however far the divergence of the pair is
    assert gaussian(1e300, 1e-10).poisson_subsample(0.0).renyi([2.0]).tolist() == [0.0]
