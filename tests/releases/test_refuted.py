"""What an attack is allowed by statements about neighbours, against what the best attacker gets."""

import itertools
import math

import numpy as np
import pytest

from tacit.attacks.intervals import proportion_interval
from tacit.guarantees import ApproximateDP, GaussianDP, Indistinguishability, RenyiDP
from tacit.measured import Interval
from tacit.releases import Attack, Release
from tacit.releases.contradiction import allowed, refuted, standing

REST = {"evidence": "theorem", "assumptions": (), "source": "example"}
ADDED = {"adjacency": "add or remove one record", **REST}


def attack(hits, trials=2000, prior=0.5):
    low, high = proportion_interval(hits, trials, 0.95)
    measured = Interval(value=hits / trials, low=low, high=high, confidence=0.95)
    return Attack(name="one", task="which it was", success=measured, prior=prior, trials=trials)


def release_of(guarantee, reached):
    return Release(
        kind="example", title="a release", secret="a secret", method="some", details=None,
        guarantees=(guarantee,), attacks=(reached,), reproducible=False,
    )  # fmt: skip


@pytest.mark.parametrize("prior", [0.5, 0.49, 0.4])
@pytest.mark.parametrize(
    "guarantee",
    [
        ApproximateDP(epsilon=1.0, delta=0.0, **ADDED),
        ApproximateDP(epsilon=1.0, delta=1e-3, **ADDED),
        GaussianDP(mu=0.1, **ADDED),
        RenyiDP(orders=(2.0,), epsilons=(0.0,), **ADDED),
    ],
)
def test_a_blind_success_just_below_one_half_makes_no_bound_say_nothing(guarantee, prior):
    reached = attack(1990, prior=prior)
    release = release_of(guarantee, reached)
    assert refuted(release) is not None
    assert standing(release, reached).endswith("something assumed does not hold")


@pytest.mark.parametrize("divergence", ["tv", "kl", "hellinger", "chi2", ("renyi", 2.0),
                                        ("renyi", 0.5), ("hockey-stick", 1.0)])  # fmt: skip
def test_every_distance_of_0_from_a_reference_is_refuted_without_a_bound_on_success(divergence):
    guarantee = Indistinguishability(
        divergence=divergence, bounds=(0.0,), references=("r",), **REST
    )
    assert refuted(release_of(guarantee, attack(1990))) is not None
    assert refuted(release_of(guarantee, attack(1010))) is None


@pytest.mark.parametrize("trials", [30, 40, 1140 * 2, 10_000])
def test_a_share_is_held_by_its_exact_end(trials):
    """All of few, or six standard errors of many, are no chance beside a bound of one half."""
    guarantee = ApproximateDP(epsilon=0.0, delta=0.02, **ADDED)
    hits = min(trials, round(trials * 0.51 + 6 * math.sqrt(trials * 0.25)))
    assert refuted(release_of(guarantee, attack(hits, trials))) is not None
    near = round(trials * 0.51 + 2 * math.sqrt(trials * 0.25))
    release = release_of(guarantee, attack(near, trials))
    assert refuted(release) is None
    assert "too few trials" in standing(release, release.attacks[0])


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_no_channel_among_neighbours_of_each_other_beats_what_is_allowed(epsilon, delta):
    """Random channels of 3 to 5 secrets, mixed with what tells nothing until they keep (ε, δ)."""
    source = np.random.default_rng(0)
    held = ApproximateDP(epsilon=epsilon, delta=delta, **{**ADDED, "adjacency": "any two values"})
    for _ in range(200):
        count = int(source.integers(3, 6))
        prior = source.dirichlet(np.full(count, 4.0))
        told = source.dirichlet(np.full(count, 0.3), size=count)
        even = told.mean(axis=0)

        def exceeds(share, told=told, even=even):
            mixed = share * told + (1.0 - share) * even
            pairs = itertools.permutations(mixed, 2)
            return max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in pairs) - delta

        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if exceeds(middle) <= 0.0 else (low, middle)
        channel = low * told + (1.0 - low) * even
        best = float((prior[:, None] * channel).max(axis=0).sum())
        reached = attack(1, prior=float(prior.max()))
        most = allowed(release_of(held, reached), held, reached)
        assert best <= most * (1 + 1e-9)


def test_odds_grow_by_the_factor_and_randomised_response_meets_it():
    for epsilon, count in itertools.product((0.1, 1.0, 3.0), (3, 10)):
        held = ApproximateDP(epsilon=epsilon, delta=0.0, **{**ADDED, "adjacency": "any two values"})
        best = math.exp(epsilon) / (math.exp(epsilon) + count - 1)
        reached = attack(1, prior=1.0 / count)
        most = allowed(release_of(held, reached), held, reached)
        assert best <= most <= best * (1 + 1e-9)
