"""Batched heads against one head at a time, record by record."""

import numpy as np
import pytest
import torch

from tacit.adapters import DPSGD, DPLoRAFA, HeadSteps, LoRAFA, NoisyProjection
from tacit_lab.canary_game import play_linear_heads

RECORDS, WIDTH, CLASSES = 12, 5, 3
STEPS, RATE = 4, 0.3
PLAIN = HeadSteps(steps=STEPS, rates=RATE)
SETTINGS = {"classes": CLASSES, "models": 4, "rng": 3}


def problem():
    source = np.random.default_rng(0)
    features = source.normal(size=(RECORDS, WIDTH))
    return features, source.integers(CLASSES, size=RECORDS), 2.0 * source.normal(size=WIDTH)


def step_by_step(features, labels, clip, projections, steps, rate, *, full):
    """Full-batch descent in float64, one record at a time."""
    weights = np.zeros((CLASSES, WIDTH))
    for step in range(steps):
        square = projections[step].T @ projections[step]
        total = np.zeros_like(weights)
        for row, label in zip(features, labels, strict=True):
            odds = np.exp(weights @ row)
            error = odds / odds.sum() - np.eye(CLASSES)[label]
            gradient = np.outer(error, row)
            if full:
                norm = np.linalg.norm(gradient)
                total += min(1.0, clip / norm) * gradient @ square
            else:
                low = gradient @ projections[step].T
                total += min(1.0, clip / np.linalg.norm(low)) * low @ projections[step]
        weights -= rate * total
    return weights


@pytest.mark.parametrize(
    "method",
    [
        DPSGD(clip=0.8),
        DPLoRAFA(rank=2, clip=0.8),
        NoisyProjection(rank=2, clip=0.8),
        LoRAFA(rank=2),
    ],
    ids=lambda method: method.name,
)
def test_is_one_head_at_a_time(method, monkeypatch):
    features, labels, canary = problem()
    drawn = []
    normal = torch.randn

    def remembered(*arguments, **options):
        drawn.append(normal(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(torch, "randn", remembered)
    heads = play_linear_heads(features, labels, (canary, 1), method, PLAIN, **SETTINGS)
    assert heads.memberships.tolist() == [False, True, False, True]
    assert heads.log_ratios is None
    # Without noise all that is drawn and used is A.
    shape = (4, 2, WIDTH)
    found = [values.double().numpy() for values in drawn if tuple(values.shape) == shape]
    for model in range(4):
        if method.noise_kind != "independent" or not method.full:
            used = [values[model] / np.sqrt(2) for values in found]
            used = used if method.fresh else used[:1] * STEPS
        else:
            used = [np.eye(WIDTH)] * STEPS
        more = model % 2
        weights = step_by_step(
            np.vstack([features, canary[None][:more]]),
            np.concatenate([labels, np.ones(more, dtype=int)]),
            getattr(method, "clip", np.inf), used, STEPS, RATE,
            full=method.full,
        )  # fmt: skip
        np.testing.assert_allclose(heads.weights[model], weights, atol=2e-5)
        logits = weights @ canary
        loss = np.log(np.exp(logits).sum()) - logits[1]
        assert heads.losses[model] == pytest.approx(loss, abs=1e-4)


def test_losses_and_accuracy_are_those_of_the_weights():
    features, labels, canary = problem()
    heads = play_linear_heads(features, labels, (canary, 1), DPSGD(), PLAIN, **SETTINGS)
    logits = np.einsum("mcd,zd->mzc", heads.weights, features)
    expected = np.log(np.exp(logits).sum(-1)) - logits[:, np.arange(RECORDS), labels]
    np.testing.assert_allclose(heads.losses_of(features, labels), expected, atol=1e-12)
    right = (logits.argmax(-1) == labels).mean(axis=1)
    np.testing.assert_array_equal(heads.accuracy(features, labels), right)


def test_noise_differs_between_heads_and_is_that_of_the_seed():
    features, labels, canary = problem()
    noisy = HeadSteps(steps=STEPS, rates=RATE, noise_multipliers=1.0)
    first, again, other = (
        play_linear_heads(
            features, labels, (canary, 1), DPSGD(), noisy, **{**SETTINGS, "rng": seed}
        )
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.weights, again.weights)
    assert np.unique(first.losses).size == 4
    assert (first.losses != other.losses).all()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"features": np.full((RECORDS, WIDTH), np.nan)}, "features"),
        ({"labels": np.full(RECORDS, CLASSES)}, "labels"),
        ({"labels": np.zeros(RECORDS)}, "labels"),
        ({"canary": (np.zeros(WIDTH + 1), 1)}, "canary"),
        ({"canary": (np.zeros(WIDTH), CLASSES)}, "canary"),
        ({"models": 3}, "models"),
        ({"steps": HeadSteps(steps=1, rates=0.0)}, "rates"),
        ({"steps": HeadSteps(steps=1, rates=0.1, sampling_rate=0.5)}, "steps"),
        ({"steps": HeadSteps(steps=1, rates=0.1, noise_multipliers=-1.0)}, "noise_multipliers"),
    ],
)
def test_bad_arguments_are_named(changed, words):
    features, labels, canary = problem()
    arguments = {
        "features": features, "labels": labels, "canary": (canary, 1), "method": DPSGD(),
        "steps": PLAIN, **SETTINGS, **changed,
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^{words}: "):
        play_linear_heads(**arguments)
