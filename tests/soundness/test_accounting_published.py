"""References' guarantees beside simulated adaptive attackers; published claims beside the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import (
    account_rounds,
    gaussian,
    noisy_projection,
    per_round_budgets,
    published,
    sketch,
    vector_projection,
)
from tacit.guarantees import ApproximateDP, Indistinguishability, RenyiDP

from .registry import certifies

DRAWS = 200_000


def adaptive_losses(budgets, rng):
    """Losses ln dP/dQ of rounds whose shift and direction of travel follow the outputs so far.

    Under P every output is noise around 0; under Q round t is shifted by the square root of its
    budget, towards or away from what the attacker saw before.
    """
    losses, seen = np.zeros(DRAWS), np.zeros(DRAWS)
    for budget in budgets:
        noise = rng.normal(size=DRAWS)
        shift = math.sqrt(budget) * np.where(seen > 0, 1.0, -1.0)
        losses += shift * shift / 2 - shift * noise
        seen += noise
    return losses


@certifies(ApproximateDP, Indistinguishability)
@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(0.5, 0.05, 1), (1.0, 0.02, 8)])
def test_budgets_bound_every_adaptive_run(epsilon, delta, rounds):
    budgets = per_round_budgets(epsilon, delta, rounds)
    account = account_rounds(budgets, ["without Ada"])
    guarantee = account.approximate("without Ada", delta=delta)
    assert guarantee.epsilon <= epsilon * (1 + 1e-12)
    rng = np.random.default_rng(8)
    gains = np.maximum(-np.expm1(epsilon - adaptive_losses(budgets[:, 0], rng)), 0.0)
    error = float(gains.std()) / math.sqrt(DRAWS)
    assert abs(float(gains.mean()) - delta) < 5 * error  # attained, so nothing is wasted
    greedy = np.maximum(-np.expm1(epsilon - adaptive_losses(2 * budgets[:, 0], rng)), 0.0)
    assert float(greedy.mean()) > delta + 5 * error
    bound = account.indistinguishability(("hockey-stick", epsilon)).bounds[0]
    assert delta * (1 - 1e-9) <= bound <= delta


@certifies(RenyiDP)
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_the_curve_bounds_every_adaptive_run(order):
    budgets = np.array([[0.02], [0.05], [0.01]])
    account = account_rounds(budgets, ["without Ada"])
    curve = account.renyi("without Ada", [order])
    rng = np.random.default_rng(9)
    moments = np.exp((order - 1) * adaptive_losses(budgets[:, 0], rng))
    error = float(moments.std()) / math.sqrt(DRAWS)
    bound = math.exp((order - 1) * curve.epsilons[0])
    assert abs(float(moments.mean()) - bound) < 5 * error
    assert float(account.alpha_divergences(order)[0]) == pytest.approx(bound, rel=1e-12)
    greedy = np.exp((order - 1) * adaptive_losses(2 * budgets[:, 0], rng))
    assert float(greedy.mean()) > bound + 5 * error


@certifies(Indistinguishability)
def test_a_group_bounds_the_mixture_of_its_members():
    """All weights on a grid, differences in every relative direction."""
    rng = np.random.default_rng(10)
    for _ in range(50):
        first, second = rng.normal(size=(2, 3)) * rng.uniform(0.1, 3)
        account = account_rounds([[first @ first, second @ second]], ["a", "b"])
        share = float(rng.uniform(0.01, 0.99))
        bound = account.group({"a": share, "b": 1 - share}, "tv", name="both").bounds[0]
        mixture = share * first + (1 - share) * second
        assert math.erf(math.sqrt(mixture @ mixture / 8)) <= bound
        together = account_rounds([[first @ first] * 2], ["a", "b"])
        tight = together.group({"a": share, "b": 1 - share}, "tv", name="both").bounds[0]
        assert tight == pytest.approx(math.erf(math.sqrt(first @ first / 8)), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(4, 400),
    share=st.floats(0.01, 1.0),
    angle=st.floats(1e-3, 0.3),
    log_delta=st.floats(-12, -1),
)
def test_the_projection_claim_is_sound_where_it_is_not_refused(dim, share, angle, log_delta):
    rank, delta = max(1, round(share * (dim + 1))), math.exp(log_delta)
    claim = published.lora_theorem_1(dim=dim, rank=rank, alignment=math.cos(angle), delta=delta)
    if math.isfinite(claim.epsilon):
        exact = vector_projection(dim=dim, rank=rank, alignment=math.cos(angle)).epsilon(delta)
        assert claim.epsilon >= exact * (1 - 1e-6)


@settings(max_examples=25, deadline=None)
@given(
    rank=st.integers(1, 20),
    noise=st.floats(0.1, 3.0),
    epsilon=st.floats(0.05, 5.0),
)
def test_the_noisy_projection_claim_is_sound(rank, noise, epsilon):
    claim = published.lora_theorem_5(
        dim=40, rank=rank, sensitivity=1.0, noise_std=noise, epsilon=epsilon
    )
    exact = noisy_projection(
        dim=40, rank=rank, sensitivity=1.0, noise_std=noise, difference_rank=1
    ).delta(epsilon)
    assert claim.delta >= exact * (1 - 1e-6) - 1e-12


@settings(max_examples=15, deadline=None)
@given(
    rank=st.integers(1, 6),
    dim=st.integers(1, 6),
    gamma=st.floats(0.01, 0.6),
    log_delta=st.floats(-12, -0.5),
)
def test_the_sketch_claim_is_sound_and_ours_is_below_it(rank, dim, gamma, log_delta):
    delta = math.exp(log_delta)
    claim = published.pave_theorem_3_5(rank=rank, dim=dim, gamma=gamma, delta=delta)
    profile = sketch(rank=rank, dim=dim, gamma=gamma)
    assert profile.epsilon(delta) <= claim.epsilon
    assert profile.advantage() <= 1.0 <= published.pave_risk(claim.epsilon, delta)


def test_the_sketch_advantage_beside_drawn_sketches():
    """Total variation by the likelihood ratio of sketches H Aᵀ drawn with a real matrix A."""
    rank, dim, gamma, draws = 3, 4, 0.2, 100_000
    rng = np.random.default_rng(12)
    root = math.sqrt(1 + gamma)
    factors = rng.normal(size=(draws, dim, rank)) / math.sqrt(rank)
    energy = rank * np.square(root * factors).sum(axis=(1, 2))
    # both laws are scaled χ², so the loss is monotone in the energy: the best test is a threshold
    cut = rank * dim * math.log(1 + gamma) / (1 - 1 / (1 + gamma))
    hit = float((energy > cut).mean()) - float(stats.chi2.sf(cut, rank * dim))
    error = 0.5 / math.sqrt(draws)
    bound = sketch(rank=rank, dim=dim, gamma=gamma).advantage()
    assert hit <= bound + 5 * error
    assert hit > sketch(rank=rank, dim=dim, gamma=0.6 * gamma).advantage() + 5 * error


@settings(max_examples=30, deadline=None)
@given(epsilon=st.floats(1e-3, 1.0), log_delta=st.floats(-25, -0.7))
def test_the_classical_calibration_is_sound_up_to_one(epsilon, log_delta):
    delta = math.exp(log_delta)
    std = published.classical_gaussian_std(1.0, epsilon, delta)
    assert gaussian(1.0, std).delta(epsilon) <= delta
