"""No attacker in the canary game passes what a method certifies; with less noise one does."""

import numpy as np
import pytest

from tacit.adapters import DPSGD, DPLoRAFA, HeadSteps, LoRAFA, NoisyProjection, Schedule
from tacit.guarantees import SuccessBound
from tacit_lab.canary_game import auc_from_profile, canary_game, play_linear_heads

from .registry import bounds, certifies

WIDTH, RECORDS, CLASSES, STEPS, MODELS, NOISE = 16, 20, 3, 5, 600, 1.6
SIGMAS = 4.0
METHODS = [DPSGD(), DPLoRAFA(rank=4), NoisyProjection(rank=4)]


def played(
    method, noise, *, told=None, models=MODELS, rate=0.05, steps=STEPS, width=WIDTH, scale=8.0
):
    """The game on heads trained with this noise, beside the bound of the noise that is told."""
    source = np.random.default_rng(0)
    features = source.normal(size=(RECORDS, width))
    labels = source.integers(CLASSES, size=RECORDS)
    # far out, so that its gradient is above the clip at every step
    canary = scale * source.normal(size=width)
    taken = HeadSteps(steps=steps, rates=rate, noise_multipliers=noise)

    def heads_with(label, **given):
        return play_linear_heads(
            features, labels, (canary, label), method, taken, classes=CLASSES, **given
        )

    label = int(heads_with(0, models=2, rng=3).logits(canary[None])[0, 0].argmin())
    heads = heads_with(label, models=models, rng=1)
    others = source.normal(size=(50, width))
    schedule = Schedule(sampling_rate=1.0, steps=steps, dims=(width,), rank_one=True)
    return canary_game(
        heads.losses,
        heads.memberships,
        population_losses=heads.losses_of(others, source.integers(CLASSES, size=50)),
        log_ratios=heads.log_ratios,
        profile=None if told is None else method.profile(told, schedule),
        rng=2,
    )


@certifies(SuccessBound)
@bounds(auc_from_profile)
@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_attacker_passes_the_bound_and_the_strongest_nearly_attains_it(method):
    game = played(method, NOISE, told=NOISE)
    assert not game.refuted
    known = dict(game.played)["every update, the other records known"]
    spread = SIGMAS * np.sqrt(0.25 / (MODELS / 4))
    assert known.auc > game.auc_bound - spread
    assert known.balanced_accuracy > game.bound.success - spread
    # what is certified for twice the noise is passed
    assert played(method, NOISE / 2.0, told=NOISE).refuted


def test_without_noise_the_loss_tells_all():
    game = played(LoRAFA(rank=64), 0.0, models=100, rate=0.01, steps=20, width=256, scale=1.0)
    assert game.bound is None
    assert dict(game.played)["loss of the canary"].auc > 0.99
