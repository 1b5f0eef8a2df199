"""The canary game on laws of losses for which every attacker's success is known."""

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import gaussian
from tacit.attacks import roc
from tacit.releases import Attack
from tacit_lab.canary_game import canary_game

MODELS, POPULATION = 600, 40


def models(seed, mu=1.5):
    """Log-odds of the canary one Gaussian in and one out, at distance μ; a population beside."""
    source = np.random.default_rng(seed)
    saw = np.arange(MODELS) % 2
    losses = np.logaddexp(0.0, -(mu * saw + source.standard_normal(MODELS)))
    others = np.logaddexp(0.0, source.standard_normal((MODELS, POPULATION)))
    ratios = mu * (mu * saw + source.standard_normal(MODELS)) - mu**2 / 2
    return losses, saw, others, ratios


def test_every_attacker_reaches_what_the_law_gives_it_and_no_more_than_the_bound():
    losses, saw, others, ratios = models(0)
    profile = gaussian(1.5, 1.0)
    game = canary_game(
        losses, saw, population_losses=others, log_ratios=ratios, profile=profile, rng=1
    )
    assert len(game.played) == len(game.attacks) == 4
    assert game.bound.success == pytest.approx(stats.norm.cdf(0.75), abs=1e-6)
    assert not game.refuted
    area = stats.norm.cdf(1.5 / np.sqrt(2.0))
    for name, found in game.played:
        low, high = found.auc_interval
        assert low <= area <= high, name
        # each of four attackers, balanced accuracy and AUC, at 95% together
        assert found.confidence == pytest.approx(1 - 0.05 / 8)
        assert found.balanced_accuracy > 0.7


def test_stronger_attackers_than_certified_refute_the_bound():
    losses, saw, others, ratios = models(1, mu=4.0)
    game = canary_game(losses, saw, log_ratios=ratios, profile=gaussian(1.0, 1.0), rng=1)
    assert game.refuted
    assert not canary_game(losses, saw, population_losses=others, rng=1).refuted


def test_thresholds_are_of_other_models():
    """Where losses say nothing, the best threshold in sample looks better than ½."""
    source = np.random.default_rng(2)
    inside, measured, best = np.arange(24) % 2, [], []
    for _ in range(60):
        losses = source.exponential(size=24)
        game = canary_game(losses, inside, rng=source)
        measured.append([found.balanced_accuracy for _, found in game.played])
        cuts = losses[:, None] >= losses
        shares = cuts[inside == 0].mean(axis=0) - cuts[inside == 1].mean(axis=0)
        best.append(0.5 + 0.5 * shares.max())
    values = np.array(measured)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (abs(values.mean(axis=0) - 0.5) < 4 * error).all()
    assert np.mean(best) > 0.6


def test_attacks_are_those_of_a_release():
    losses, saw, _, _ = models(3)
    game = canary_game(losses, saw, rng=0)
    assert game.bound is None
    assert game.auc_bound == 1.0
    for attack, (name, found) in zip(game.attacks, game.played, strict=True):
        assert isinstance(attack, Attack)
        assert (attack.name, attack.prior, attack.trials) == (name, 0.5, MODELS // 2)
        assert (attack.success.low, attack.success.high) == found.balanced_accuracy_interval
    told = game.to_dict()
    assert told["played"]["loss of the canary"]["auc"] == roc(-losses, saw, rng=0).auc


def test_models_that_lost_nothing_are_played_with():
    """Losses that all round to zero have no log odds that vary, and LiRA has nothing to fit."""
    losses = np.where(np.arange(40) % 2, 0.0, np.linspace(0.1, 1.0, 40))
    game = canary_game(losses, np.arange(40) % 2, rng=0)
    assert [(name, found.auc) for name, found in game.played] == [("loss of the canary", 1.0)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"losses": -np.ones(MODELS)}, "losses"),
        ({"losses": np.full(MODELS, np.nan)}, "losses"),
        ({"memberships": np.ones(MODELS)}, "memberships"),
        ({"memberships": np.ones(4)}, "memberships"),
        ({"population_losses": np.ones((3, 2))}, "population_losses"),
        ({"population_losses": -np.ones((MODELS, 2))}, "population_losses"),
        ({"log_ratios": np.ones(3)}, "log_ratios"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_arguments_are_named(changed, words):
    losses, saw, _, _ = models(4)
    with pytest.raises(ValueError, match=f"^{words}: "):
        canary_game(**{"losses": losses, "memberships": saw, "rng": 0, **changed})
