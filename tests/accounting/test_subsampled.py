"""Poisson sampling against the crossing point of the two laws, bounds from tests, and tables."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from mpmath import mp, mpf
from scipy.special import ndtr

from tacit.accounting import gaussian, subsampled_gaussian
from tests.accounting.oracles import gaussian_delta, sampled_gaussian_delta

CORNERS = [(0.02, 1.0), (1e-6, 1.0), (0.5, 0.3), (0.01, 30.0), (0.999, 2.0), (0.02, 0.05)]


@pytest.mark.parametrize(("rate", "noise"), CORNERS)
@pytest.mark.parametrize("epsilon", [-30.0, -1.0, -1e-3, 0.0, 1e-4, 0.1, 0.68, 3.0, 60.0, 700.0])
def test_one_step_is_exact_in_both_directions(rate, noise, epsilon):
    profile = subsampled_gaussian(rate, noise, 1)
    for curve, first in ((profile.forward, True), (profile.backward, False)):
        truth = sampled_gaussian_delta(epsilon, rate, noise, present_first=first)
        found = mpf(float(curve(np.array([epsilon]))[0]))
        assert truth <= found <= truth * (1 + mpf("1e-9")) + mpf("1e-300")


@pytest.mark.parametrize("direction", [True, False])
@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_near_the_end_of_the_losses(rate, direction):
    """At ε = ±ln(1 − q) the inner argument runs off to infinity."""
    profile = subsampled_gaussian(rate, 0.8, 1)
    end = math.log1p(-rate) if direction else -math.log1p(-rate)
    curve = profile.forward if direction else profile.backward
    for nudge in (-1e-6, -1e-12, 0.0, 1e-12, 1e-6):
        truth = sampled_gaussian_delta(end + nudge, rate, 0.8, present_first=direction)
        found = mpf(float(curve(np.array([end + nudge]))[0]))
        assert truth <= found <= truth * (1 + mpf("1e-9")) + mpf("1e-15")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("epsilon", "multiplier"),
    [(0.2, 8.6855), (0.4, 4.7497), (1.0, 2.2192), (2.0, 1.3512), (4.0, 0.92439)],
)
def test_the_reference_multipliers_are_those_of_adding_or_removing(epsilon, multiplier):
    """DP-SGD to five digits at these ε: q = 1024/50000, T = 1000, δ = 1e-4."""
    profile = subsampled_gaussian(1024 / 50_000, multiplier, 1000, "add-remove")
    assert profile.epsilon(1e-4) == pytest.approx(epsilon, rel=2e-4)
    assert subsampled_gaussian(1024 / 50_000, multiplier, 1000, "replace").epsilon(1e-4) > epsilon


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.1, 2.0, 50)])
def test_it_agrees_with_another_accountant(rate, noise, steps):
    """A cross-check only: theirs is an upper bound too, on a lattice of 1e-4."""
    peer = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=1e-4
    ).self_compose(steps)
    profile = subsampled_gaussian(rate, noise, steps)
    for delta in (1e-3, 1e-6, 1e-9):
        assert profile.epsilon(delta) == pytest.approx(peer.get_epsilon_for_delta(delta), rel=1e-4)


def linear_test(rate, noise, steps, epsilon, first, second):
    """P(S > t) − e^ε Q(S > t) at the best t, S the sum of the outputs: a lower bound of δ.

    first and second are the shifts of the sampled record under P and Q, None for no record.
    """
    counts = np.arange(steps + 1)
    log_choose = [float(mp.log(mp.binomial(steps, int(k)))) for k in counts]
    weights = np.exp(
        np.array(log_choose) + counts * math.log(rate) + (steps - counts) * math.log1p(-rate)
    )
    thresholds = np.linspace(-steps, steps, 4001)

    def above(shift):
        means = counts * (0.0 if shift is None else shift)
        tails = ndtr((means[:, None] - thresholds) / (noise * math.sqrt(steps)))
        return weights @ tails

    return float(np.max(above(first) - math.exp(epsilon) * above(second)))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.3, 1.0, 10), (0.1, 0.7, 40)])
def test_no_linear_attack_beats_the_composition(rate, noise, steps, neighbours):
    profile = subsampled_gaussian(rate, noise, steps, neighbours)
    pairs = {"add-remove": [(1, None), (None, -1)], "replace": [(1, -1), (1, 0.3), (1, None)]}
    for epsilon in (0.0, 0.5, 1.5):
        for first, second in pairs[neighbours]:
            reached = linear_test(rate, noise, steps, epsilon, first, second)
            assert reached <= profile.delta(epsilon)
            assert reached > 0


def test_the_attack_finds_a_composition_that_forgets_half_the_steps():
    reached = linear_test(0.3, 1.0, 10, 0.5, 1, None)
    assert reached > subsampled_gaussian(0.3, 1.0, 5).delta(0.5)


def test_replacement_is_between_the_two_plain_shifts():
    replaced = subsampled_gaussian(0.05, 1.0, 1, "replace")
    for epsilon in (0.0, 0.3, 2.0):
        bound = 0.05 * gaussian_delta(math.log1p(math.expm1(epsilon) / 0.05), 2)
        assert replaced.delta(epsilon) <= bound * (1 + mpf("1e-9"))
        added = subsampled_gaussian(0.05, 1.0, 1).delta(epsilon)
        assert replaced.delta(epsilon) >= added


def test_drawn_steps_separate_as_the_advantage_says():
    rng, draws, rate, noise = np.random.default_rng(11), 400_000, 0.4, 0.5
    profile = subsampled_gaussian(rate, noise, 1)
    with_record = (rng.random(draws) < rate) + noise * rng.standard_normal(draws)
    without = noise * rng.standard_normal(draws)
    measured = (with_record > 0.5).mean() - (without > 0.5).mean()  # the laws cross at ½
    error = math.sqrt(2 * 0.25 / draws)
    assert abs(measured - profile.advantage()) < 5 * error
    assert abs(measured - subsampled_gaussian(rate, 1.2 * noise, 1).advantage()) > 5 * error


@pytest.mark.thorough
def test_ends():
    assert subsampled_gaussian(0.0, 1.0, 1000).epsilon(1e-12) <= 1e-9
    everything = subsampled_gaussian(1.0, 10.0, 10_000)
    for epsilon in (0.0, 40.0, 80.0):
        truth = gaussian_delta(epsilon, 10)
        assert truth <= everything.delta(epsilon) <= truth * (1 + mpf("1e-9"))
    doubled = subsampled_gaussian(1.0, 10.0, 25, "replace")
    assert (
        gaussian_delta(1.0, 1) <= doubled.delta(1.0) <= gaussian_delta(1.0, 1) * (1 + mpf("1e-9"))
    )
    rare = subsampled_gaussian(1e-8, 1.0, 10_000)
    assert 0 < rare.epsilon(1e-12) < 1e-2
    loud = subsampled_gaussian(0.01, 100.0, 10_000)
    assert 0 < loud.epsilon(1e-5) < 0.1
    assert subsampled_gaussian(0.5, 1e-3, 3).advantage() == pytest.approx(1 - 0.5**3, rel=1e-6)


def test_renyi_is_the_integral_and_bounds_both_directions():
    rate, noise = 0.1, 1.2
    with mp.workdps(25):
        q, s = mpf(rate), mpf(noise)

        def laws(x):
            absent = mp.npdf(x, 0, s)
            return (1 - q) * absent + q * mp.npdf(x, 1, s), absent

        for order in (1.5, 2.0, 2.5, 8.0):
            found = mpf(float(subsampled_gaussian(rate, noise, 1).renyi([order])[0]))
            truths = []
            for i, j in ((0, 1), (1, 0)):
                moment = mp.quad(
                    lambda x, i=i, j=j, a=order: laws(x)[i] ** a * laws(x)[j] ** (1 - a),
                    [-20, -3, 0, 3, 8, 15, 30],
                )
                truths.append(mp.log(moment) / (mpf(order) - 1))
            assert found >= max(truths)
            if order == int(order):
                assert found <= max(truths) * (1 + mpf("1e-9"))


def test_sampled_renyi_of_any_profile_is_above_the_exact_one():
    exact = subsampled_gaussian(0.1, 1.0, 1).renyi([2.0, 5.0])
    assert np.all(gaussian(1.0, 1.0).poisson_subsample(0.1).renyi([2.0, 5.0]) >= exact)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((1.5, 1.0, 1), "sampling_rate"), ((0.1, 0.0, 1), "noise_multiplier"),
     ((0.1, 1.0, 0), "steps"),
     ((0.1, 1.0, 1, "swap"), "neighbours"), ((0.1, math.nan, 1), "noise_multiplier")],
)  # fmt: skip
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        subsampled_gaussian(*arguments)


def test_the_relation_must_be_that_of_the_profile():
    removed = gaussian(1.0, 1.0).poisson_subsample(0.5)
    assert removed.adjacency == "add or remove one record"
    with pytest.raises(ValueError, match=r"^neighbours: expected 'add-remove'"):
        removed.poisson_subsample(0.5, neighbours="replace")
    with pytest.raises(ValueError, match=r"^sampling_rate: expected"):
        removed.poisson_subsample(-0.1)
