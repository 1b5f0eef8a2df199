"""Heads trained side by side, against one head at a time by autograd, and the noise they have."""

import numpy as np
import pytest
import torch

from tacit.adapters import (
    DPSGD,
    DPLoRAFA,
    HeadSteps,
    LoRAFA,
    NoisyProjection,
    WithoutClipping,
    train_heads,
)

ROWS, WIDTH, CLASSES = 30, 7, 3


def records(seed=0):
    source = np.random.default_rng(seed)
    return source.normal(size=(ROWS, WIDTH)), source.integers(CLASSES, size=ROWS)


def heads_of(rows, labels, methods, **given):
    """Heads of three steps without noise, where nothing else is asked for."""
    given = {"classes": CLASSES, "rng": 1, "steps": 3, "rates": 0.7, **given}
    names = ("steps", "rates", "noise_multipliers", "sampling_rate", "projection")
    steps = HeadSteps(**{name: given.pop(name) for name in names if name in given})
    return train_heads(rows, labels, methods, steps, **given)


def one_by_one(rows, labels, clip, rate, steps, projection, inside):
    """Gradient descent in float64, every record's gradient by autograd and clipped alone."""
    inputs, targets = torch.from_numpy(rows), torch.from_numpy(labels)
    weights = torch.zeros(CLASSES, WIDTH, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        total = torch.zeros(CLASSES, WIDTH, dtype=torch.float64)
        for place in np.flatnonzero(inside):
            loss = torch.nn.functional.cross_entropy(
                (inputs[place] @ weights.T)[None], targets[place][None]
            )
            (gradient,) = torch.autograd.grad(loss, weights)
            low = gradient if projection is None else gradient @ projection.T
            low = low * min(1.0, clip / float(low.norm()))
            total += low if projection is None else low @ projection
        with torch.no_grad():
            weights -= rate * total / len(rows)
    return weights.detach().numpy()


@pytest.mark.parametrize("projected", [False, True])
def test_every_head_is_the_one_that_is_trained_alone(projected):
    rows, labels = records()
    source = np.random.default_rng(2)
    factor = source.normal(size=(2, WIDTH)) if projected else None
    inside = source.random((3, ROWS)) < 0.5
    clips, rates = [0.3, 1.0, 5.0], [0.5, 2.0, 1.0]
    kinds = [DPLoRAFA(rank=2, clip=c) if projected else DPSGD(clip=c) for c in clips]
    heads = heads_of(rows, labels, kinds, projection=factor, members=inside, rates=rates)
    exact = None if factor is None else torch.from_numpy(factor)
    for place in range(3):
        expected = one_by_one(rows, labels, clips[place], rates[place], 3, exact, inside[place])
        np.testing.assert_allclose(heads.weights[place], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [DPSGD, DPLoRAFA, NoisyProjection])
def test_the_noise_has_the_energy_that_is_told(kind):
    """Nobody is in: every step is noise alone."""
    rows, labels = records()
    method = kind(clip=0.5) if kind is DPSGD else kind(clip=0.5, rank=3)
    heads = heads_of(
        rows, labels, [method] * 400, members=np.zeros((400, ROWS)), noise_multipliers=2.0, steps=1,
        rates=1.0,
    )  # fmt: skip
    drawn = (heads.weights * ROWS) ** 2
    energies = drawn.sum(axis=(1, 2))
    error = energies.std() / 20
    assert abs(energies.mean() - heads.energies.mean()) < 4 * (error + heads.energies.std() / 20)
    if kind is DPSGD:
        np.testing.assert_allclose(heads.energies, CLASSES * WIDTH)


def test_heads_of_one_group_share_samples_and_others_do_not():
    rows, labels = records()
    heads = heads_of(rows, labels, [DPSGD()] * 4, groups=[0, 0, 1, 1], sampling_rate=0.3)
    np.testing.assert_allclose(heads.weights[0], heads.weights[1], atol=1e-6)
    assert not np.allclose(heads.weights[0], heads.weights[2])


def test_a_step_has_as_many_records_as_the_rate_says():
    rows, labels = np.ones((2000, 1)), np.zeros(2000, dtype=int)
    heads = heads_of(
        rows, labels, [DPSGD(clip=1e-3)] * 50, classes=2, rates=1.0, steps=1, sampling_rate=0.1,
        rng=3,
    )  # fmt: skip
    # each record adds a clipped gradient of the same length and direction
    counts = np.linalg.norm(heads.weights, axis=(1, 2)) / 1e-3 * 200
    assert abs(counts.mean() - 200) < 4 * np.sqrt(180 / 50)
    assert 0.6 < counts.std() / np.sqrt(180) < 1.5


def test_losses_and_accuracy_are_those_of_the_logits():
    rows, labels = records()
    heads = heads_of(rows, labels, [LoRAFA(rank=4)] * 2, steps=30)
    logits = torch.from_numpy(heads.logits(rows))
    for place in range(2):
        expected = torch.nn.functional.cross_entropy(
            logits[place], torch.from_numpy(labels), reduction="none"
        )
        np.testing.assert_allclose(heads.losses(rows, labels)[place], expected, rtol=1e-9)
        right = (logits[place].argmax(dim=1).numpy() == labels).mean()
        assert heads.accuracy(rows, labels)[place] == right


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": []}, "methods"),
        ({"methods": [DPSGD(), LoRAFA(rank=2)]}, "one kind and one rank"),
        ({"methods": [WithoutClipping(rank=2, bound=1.0)]}, "one kind and one rank"),
        ({"rates": [1.0, 2.0]}, "rates"),
        ({"noise_multipliers": -1.0}, "noise_multipliers"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"members": np.ones((2, ROWS))}, "members"),
        ({"groups": [0, 1]}, "groups"),
        ({"projection": np.ones((2, WIDTH))}, "projection"),
        ({"steps": 0}, "steps"),
    ],
)
def test_bad_input_is_named(change, message):
    rows, labels = records()
    with pytest.raises(ValueError, match=message):
        heads_of(rows, labels, **{"methods": [DPSGD()], **change})
    with pytest.raises(ValueError, match="labels"):
        heads_of(rows, labels + 5, [DPSGD()])
