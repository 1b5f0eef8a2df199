"""Specifications: who knows both data sets and all else guesses no better than certified."""

import math

import numpy as np
import pytest
import torch

from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.specifications import (
    Description,
    PublicTasks,
    ReplacedRecord,
    prepare_specification,
    public_subspace,
)
from tacit.specifications.methods import OBJECTIVES

from .registry import certifies

COUNT, CLASSES, WIDTH = 10, 2, 4
QUICK, DRAWS = 2_000, 40_000
STEPS = [QUICK, pytest.param(DRAWS, marks=pytest.mark.thorough)]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))


def public(objective):
    rng = np.random.default_rng(5)
    return public_subspace(
        network(), rng.normal(size=(90, WIDTH)), np.arange(90) % 3, objective=objective,
        size=4, tasks=PublicTasks(count=12, records=20), rng=1,
    )  # fmt: skip


def neighbours(held):
    """Two data sets in which one record's clipped row is turned round: the farthest there are."""
    rng = np.random.default_rng(2)
    data, labels = rng.normal(size=(COUNT, WIDTH)), np.arange(COUNT) % CLASSES
    best, pair = -1.0, None
    for _ in range(40):
        other, changed = data.copy(), labels.copy()
        other[0] = 10.0 * rng.normal(size=WIDTH)
        changed[0] = 1 - labels[0]
        means = [clean(given, held) for given in ((data, labels), (other, changed))]
        gap = float(np.linalg.norm(means[0] - means[1]))
        if gap > best:
            best, pair = gap, ((data, labels), (other, changed))
    return pair


def prepared(given, held, promise):
    return prepare_specification(
        given[1], given[0], promise, OBJECTIVES[held.objective](),
        about=Description(classes=CLASSES), backbone=network(), space=held,
    )  # fmt: skip


def certified(given, held):
    return prepared(given, held, ReplacedRecord(epsilon=1.0))


def numbers(release):
    factors = release.details.specification.factors
    return np.concatenate([rows.ravel() for rows in factors.values()])


def clean(given, held):
    return numbers(prepared(given, held, None).draw())


def drawn(given, held, count):
    """What is released, drawn as it is for anyone: fresh noise from the operating system."""
    told = certified(given, held)
    return np.stack([numbers(told._drawn()) for _ in range(count)])


def right(left, other, direction):
    """Share of right guesses at even odds by the best cut on one half, on the other half."""
    scores = [rows @ direction for rows in (left, other)]
    half = len(left) // 2
    learned = np.sort(np.concatenate([values[:half] for values in scores]))[:: max(1, half // 100)]
    rates = [
        0.5 * ((scores[0][:half] <= cut).mean() + (scores[1][:half] > cut).mean())
        for cut in learned
    ]
    cut = learned[int(np.argmax(rates))]
    return 0.5 * float((scores[0][half:] <= cut).mean() + (scores[1][half:] > cut).mean())


@certifies(SuccessBound, GaussianDP, ApproximateDP)
@pytest.mark.parametrize("objective", ["labels", "mean"])
@pytest.mark.parametrize("count", STEPS)
def test_who_knows_both_data_sets_tells_them_apart_no_more_often_than_certified(count, objective):
    held = public(objective)
    one, other = neighbours(held)
    direction = clean(other, held) - clean(one, held)
    told = certified(one, held)
    bound = told.guarantees[0].success
    left, right_side = drawn(one, held, count), drawn(other, held, count)
    error = 0.5 / math.sqrt(count)
    found = right(left, right_side, direction)
    assert found <= bound + 4 * error
    # the noise is not drowned in: a third of it is found out
    middles = clean(one, held), clean(other, held)
    less = [middle + (rows - middle) / 3.0
            for middle, rows in zip(middles, (left, right_side), strict=True)]  # fmt: skip
    assert right(*less, direction) > bound + 4 * error
    # every event has P(one) <= e^ε P(other) + δ
    epsilon, delta = told.guarantees[2].epsilon, told.guarantees[2].delta
    scores = left @ direction, right_side @ direction
    for cut in np.quantile(np.concatenate(scores), np.linspace(0.05, 0.95, 19)):
        shares = (scores[0] <= cut).mean(), (scores[1] <= cut).mean()
        assert shares[0] <= math.exp(epsilon) * (shares[1] + 4 * error) + delta + 4 * error


@certifies(SuccessBound)
@pytest.mark.parametrize("count", [600, pytest.param(DRAWS // 4, marks=pytest.mark.thorough)])
def test_a_scatter_is_told_apart_no_more_often_than_certified(count):
    held = public("scatter")
    one, other = neighbours(held)
    left, right_side = drawn(one, held, count), drawn(other, held, count)
    half = count // 2
    # Fisher's direction from one half: nobody knows the law of both parts in closed form
    centred = [rows[:half] - rows[:half].mean(axis=0) for rows in (left, right_side)]
    pooled = np.cov(np.concatenate(centred).T)
    gap = right_side[:half].mean(axis=0) - left[:half].mean(axis=0)
    found = right(left, right_side, np.linalg.solve(pooled, gap))
    assert found <= certified(one, held).guarantees[0].success + 4 * 0.5 / math.sqrt(count)
