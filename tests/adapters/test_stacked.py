"""Stacked heads against one head at a time in double precision, on the same random numbers."""

import numpy as np
import pytest
import torch

from tacit.adapters import DPSGD, DPLoRAFA, LoRAFA, NoisyProjection
from tacit.adapters import heads as stacked
from tests.adapters.test_heads import heads_of

ROWS, WIDTH, CLASSES, HEADS, STEPS, RATE = 40, 9, 3, 4, 5, 0.8
CLIPS = [0.2, 0.5, 1.0, 3.0]


def records(seed=0):
    source = np.random.default_rng(seed)
    return source.normal(size=(ROWS, WIDTH)), source.integers(CLASSES, size=ROWS)


def step_alone(weights, inputs, labels, chosen, clip, low):
    """The sum of clipped gradients of the records of one head, each by autograd."""
    total = torch.zeros(CLASSES, WIDTH if low is None else len(low), dtype=torch.float64)
    for place in np.flatnonzero(chosen):
        start = weights.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(start @ inputs[place], labels[place])
        (gradient,) = torch.autograd.grad(loss, start)
        seen = gradient if low is None else gradient @ low.T
        total += seen if clip is None else seen * min(1.0, clip / float(seen.norm()))
    return total


def alone(rows, labels, methods, stds, members, sampling_rate, seed):
    """Every head by itself, on the numbers that the stack draws: samples, A and noise."""
    inputs, truth = torch.from_numpy(rows), torch.from_numpy(labels)
    source = np.random.default_rng(seed)
    normal = torch.Generator().manual_seed(int(source.integers(2**63)))
    rank, kind = getattr(methods[0], "rank", None), methods[0]

    def drawn(*shape):
        return torch.randn(shape, generator=normal).double()

    weights = torch.zeros(HEADS, CLASSES, WIDTH, dtype=torch.float64)
    if rank is not None and not kind.fresh:
        projections = drawn(HEADS, rank, WIDTH) / rank**0.5
    for _ in range(STEPS):
        if kind.fresh:
            projections = drawn(HEADS, rank, WIDTH) / rank**0.5
        chosen = source.random((HEADS, ROWS)) < sampling_rate if sampling_rate < 1 else members
        width = rank if kind.fresh or not kind.full else WIDTH
        if kind.noise_kind != "none":
            noise = drawn(HEADS, 1, CLASSES, width)[:, 0] * torch.tensor(stds)[:, None, None]
        for head in range(HEADS):
            low = None if kind.full else projections[head]
            clip = getattr(methods[head], "clip", None)
            total = step_alone(
                weights[head], inputs, truth, chosen[head] & members[head], clip, low
            )
            if kind.fresh:
                a = projections[head]
                total = (total @ a.T + noise[head] @ torch.linalg.cholesky(a @ a.T).T) @ a
            else:
                total = total if kind.noise_kind == "none" else total + noise[head]
                total = total if low is None else total @ low
            weights[head] -= RATE / (sampling_rate * ROWS) * total
    return weights.numpy()


@pytest.mark.parametrize("sampling_rate", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("kind", [DPSGD, DPLoRAFA, NoisyProjection, LoRAFA])
def test_heads_with_samples_and_a_of_their_own_are_those_trained_alone(kind, sampling_rate):
    rows, labels = records()
    members = np.random.default_rng(3).random((HEADS, ROWS)) < 0.6
    if kind is LoRAFA:
        methods, noise = [LoRAFA(rank=3)] * HEADS, np.zeros(HEADS)
    else:
        more = {} if kind is DPSGD else {"rank": 3}
        methods = [kind(clip=clip, **more) for clip in CLIPS]
        noise = np.array([0.5, 0.0, 2.0, 1.0])
    heads = heads_of(
        rows, labels, methods, classes=CLASSES, noise_multipliers=noise, rates=[RATE] * HEADS,
        steps=STEPS, sampling_rate=sampling_rate, members=members, rng=11,
    )  # fmt: skip
    stds = noise * np.array([one.noise_scale for one in methods])
    expected = alone(rows, labels, methods, stds, members, sampling_rate, 11)
    np.testing.assert_allclose(heads.weights, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("members", [False, True])
@pytest.mark.parametrize("entries", [1, 2**21])
def test_groups_of_unequal_size_go_together_or_not(entries, members, monkeypatch):
    """Without randomness left it does not matter which heads are trained together."""
    monkeypatch.setattr(stacked, "ENTRIES", entries)
    rows, labels = records()
    inside = np.random.default_rng(3).random((5, ROWS)) < 0.6 if members else None
    factor = np.random.default_rng(4).normal(size=(2, WIDTH))
    given = {"classes": CLASSES, "steps": 4, "projection": factor}
    methods = [DPLoRAFA(rank=2, clip=clip) for clip in [*CLIPS, 9.0]]
    heads = heads_of(
        rows, labels, methods, rates=np.arange(1.0, 6.0), members=inside,
        groups=[7, 1, 7, 2, 7], rng=0, **given,
    )  # fmt: skip
    for place, method in enumerate(methods):
        single = heads_of(
            rows, labels, [method], rates=[place + 1.0],
            members=None if inside is None else inside[place][None], rng=1, **given,
        )  # fmt: skip
        np.testing.assert_allclose(heads.weights[place], single.weights[0], rtol=1e-4, atol=1e-6)


def test_no_record_moves_a_head_by_more_than_the_clip():
    """Each head sees one record, of norms over twelve decades; the move is its clipped gradient."""
    source = np.random.default_rng(5)
    rows = source.normal(size=(200, 30)) * 10.0 ** source.uniform(-6, 6, size=(200, 1))
    labels = source.integers(CLASSES, size=200)
    for kind in (DPSGD(clip=0.7), DPLoRAFA(rank=30, clip=0.7)):
        heads = heads_of(
            rows, labels, [kind] * 200, classes=CLASSES, rates=200.0,
            steps=1, members=np.eye(200, dtype=bool), rng=1,
            projection=np.eye(30) if isinstance(kind, DPLoRAFA) else None,
        )  # fmt: skip
        moves = np.linalg.norm(heads.weights, axis=(1, 2))
        errors = np.full((200, CLASSES), 1 / CLASSES) - np.eye(CLASSES)[labels]
        exact = np.linalg.norm(errors, axis=1) * np.linalg.norm(rows, axis=1)
        assert moves.max() <= 0.7
        np.testing.assert_allclose(moves, np.minimum(exact, 0.7), rtol=1e-5)


@pytest.mark.parametrize("fresh", [False, True])
def test_the_noise_has_its_covariance(fresh):
    """Nobody is in, sC = 1: E A has covariance AᵀA, and E AᵀA has (1 + (d + 1)/r) I over A too."""
    rows, labels = records()
    heads, rank = 3000, 4
    factor = np.random.default_rng(6).normal(size=(rank, WIDTH))
    kind = NoisyProjection(rank=rank, clip=0.5) if fresh else DPLoRAFA(rank=rank, clip=0.5)
    found = heads_of(
        rows, labels, [kind] * heads, classes=CLASSES, noise_multipliers=2.0, rates=float(ROWS),
        steps=1, members=np.zeros((heads, ROWS), dtype=bool), rng=2,
        projection=None if fresh else factor,
    ).weights  # fmt: skip
    expected = (1 + (WIDTH + 1) / rank) * np.eye(WIDTH) if fresh else factor.T @ factor
    products = np.einsum("hci,hcj->hij", found, found) / CLASSES
    errors = products.std(axis=0) / heads**0.5
    assert (np.abs(products.mean(axis=0) - expected) < 5 * errors).all()
    # noise of a scale that is a tenth off is told apart
    assert not (np.abs(1.21 * products.mean(axis=0) - expected) < 5 * errors).all()


def test_a_step_without_records_is_noise_alone():
    rows, labels = records()
    heads = heads_of(
        rows, labels, [DPSGD()] * 2, classes=CLASSES, noise_multipliers=[0.0, 1.0], rates=1.0,
        steps=2, sampling_rate=0.1, members=np.zeros((2, ROWS), dtype=bool), rng=0,
    )  # fmt: skip
    assert not heads.weights[0].any()
    assert heads.weights[1].all()
