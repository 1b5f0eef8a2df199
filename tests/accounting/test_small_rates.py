"""Composed Poisson samples at small rates: within a hundredth in ε of another rigorous bound."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from mpmath import mp, mpf

from tacit.accounting import laplace, subsampled_gaussian
from tacit.accounting.curves.composition import LossSum
from tacit.accounting.curves.discretisation import LossMasses

WIDEST = 3e5  # points of the peer's lattice


def peer(rate, noise, steps, delta, epsilon, **how):
    """ε of the peer on a lattice a thousandth of the answer fine, where its range allows it."""
    # the loss of a step reaches ln(1 + q e^{38/σ}), and the peer holds a list of all points
    widest = np.log1p(rate * np.expm1(10 / noise + 0.5 / noise**2))
    interval = max(min(1e-4, epsilon / 1000), widest / WIDEST)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate, **how
    )
    return one.self_compose(steps).get_epsilon_for_delta(delta), interval


def setting(index):
    rng = np.random.default_rng(index)
    rate, noise = 10 ** rng.uniform(-5.5, -1), rng.uniform(0.55, 3)
    return rate, noise, int(10 ** rng.uniform(0.3, 3.7)), 10 ** rng.uniform(-10, -5)


KNOWN = [
    (5.297e-4, 1.209, 4081, 1.369e-10, 0.195865),
    (1.699e-4, 0.6026, 11, 1.368e-9, 0.81008),
    (2.764e-6, 0.5494, 4349, 1.696e-8, 0.0436834),
    (2.528e-6, 0.5004, 485, 1.915e-8, 0.043814),
    (1.592e-5, 0.5468, 739, 6.597e-9, 0.324923),
    (4.865e-6, 0.8711, 225, 3.657e-10, 0.00193827),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "bound"), KNOWN)
def test_known_upper_bounds(rate, noise, steps, delta, bound):
    assert subsampled_gaussian(rate, noise, steps).epsilon(delta) <= 1.008 * bound


def test_a_known_upper_bound_for_replacement():
    assert subsampled_gaussian(1.426e-4, 0.636, 33, "replace").epsilon(4.263e-9) <= 0.44777 * 1.002


def compared(index):
    rate, noise, steps, delta = setting(index)
    epsilon = subsampled_gaussian(rate, noise, steps).epsilon(delta)
    bound, interval = peer(rate, noise, steps, delta, epsilon)
    # never looser; never below what the peer rounds down to
    assert epsilon <= 1.01 * bound + interval, (rate, noise, steps, delta)
    low, _ = peer(
        rate, noise, steps, delta, epsilon, pessimistic_estimate=False, use_connect_dots=False
    )
    assert epsilon >= low * (1 - 1e-6) - 1e-12, (rate, noise, steps, delta)


@pytest.mark.parametrize("index", range(8))
def test_within_a_hundredth_of_the_peer(index):
    compared(index)


@pytest.mark.thorough
@pytest.mark.parametrize("index", range(8, 60))
def test_within_a_hundredth_of_the_peer_on_many_settings(index):
    compared(index)


def test_a_sum_of_very_many_rare_losses_has_a_window_of_its_own_width():
    # rare losses of one step down beside an atom: a sum of 10⁹ reaches no further than its law
    masses, count, step = np.zeros(4096), 10**9, 5e-5
    masses[[0, 2, 3000]] = 2.5e-5, 2.5e-5, 1e-9
    masses[1] = 1.0 - masses.sum()
    total = LossSum([(LossMasses(step, -1, masses, 0.0), count)])
    # Bennett's inequality of the losses below 0 alone: 25,000 expected
    expected = 2.5e-5 * count
    lower, upper = total.reach(1e-16, -1), total.reach(1e-28, 1)
    assert lower > -step * 16 * np.sqrt(2 * expected)
    assert upper < step * (16 * np.sqrt(2 * expected) + 3000 * 30)


@pytest.mark.parametrize(("rate", "epsilon"), [(1e-50, 601.0), (1e-50, 880.0), (1e-300, 100.0)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_loss_beyond_every_float_of_a_quotient_by_the_rate_is_kept(rate, epsilon, neighbours):
    """δ = q(1 − e^{(ε' − 1/b)/2}), ε' = ln(1 + (e^ε − 1)/q) of a quotient that is no float."""
    profile = laplace(1.0, 1e-3).poisson_subsample(rate, neighbours=neighbours)
    with mp.workdps(40):
        inner = mp.log(1 + mp.expm1(epsilon) / mpf(rate))
        true = mpf(rate) * (1 - mp.exp((inner - 1000) / 2))
        assert true <= profile.delta(epsilon) <= true * (1 + mpf("1e-6"))
        # no loss is larger
        assert profile.epsilon(0.0) >= mp.log(1 + mpf(rate) * mp.expm1(1000))
