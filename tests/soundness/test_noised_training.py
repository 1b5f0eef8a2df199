"""Trained parameters say no more than the noise allows, down to their last bit."""

import numpy as np
import pytest
import torch

from tacit.training import References
from tacit.training.noise import isotropic_noise, round_noise
from tests.training.runs import made

TRIALS = 60
DIRECTION = np.array([1.0, 0.3, 0.1, 0.7, 1e-2, 1 / 3])
START = np.linspace(0.1, 1.7, 6) * DIRECTION
CANDIDATES = np.stack([START, START + DIRECTION])


def published(value, seed):
    """Float64 parameters after one round with noise along one direction, μ = 0.011."""
    model = torch.nn.Linear(6, 1, bias=False).double()
    run = made(
        model, None, References.leave_out(["Ada"]), loss=lambda m, x, _: m(x)[:, 0],
        mu=0.011, rounds=1, rng=seed,
    )  # fmt: skip
    run.update(value, DIRECTION[None])
    return model.weight.detach().numpy().ravel().copy()


def plain(value, seed):
    return value + np.random.default_rng(seed).normal() / 0.011 * DIRECTION


def possible(point, value):
    """Whether one double, times the direction, leads from a value to all coordinates at once."""
    around = (point[0] - value[0]) / DIRECTION[0]
    normals = around + np.arange(-400, 401) * np.spacing(abs(around))
    return bool(((value + normals[:, None] * DIRECTION) == point).all(axis=1).any())


@pytest.mark.parametrize(("release", "told"), [(plain, True), (published, False)])
def test_the_low_bits_of_an_outcome_name_no_candidate(release, told):
    """With the control: of a plain sum they name nearly every one; certified are 50.2%."""
    source, decided = np.random.default_rng(0), 0
    for seed in range(TRIALS):
        truth = int(source.integers(2))
        point = release(CANDIDATES[truth], seed)
        fits = [possible(point, each) for each in CANDIDATES]
        decided += fits[0] != fits[1]
    assert decided > 0.8 * TRIALS if told else decided == 0


def test_coefficients_are_multiples_of_a_grid_that_one_is_on():
    """An outcome without a reference moves its coefficient by 1 and nothing of its low bits."""
    source = np.random.default_rng(1)
    rows = source.normal(size=(4, 30))
    noise = round_noise(rows @ rows.T, np.full(4, 0.2))
    drawn = noise.draw(np.random.default_rng(2))
    for value in drawn:
        assert (value + 1.0) - 1.0 == value
        assert value * 2.0**40 == np.round(value * 2.0**40)


def test_an_outcome_is_on_the_grid_of_its_own_noise():
    source = np.random.default_rng(3)
    value, rows = (
        source.normal(size=30) * 10.0 ** source.integers(-9, 9, 30),
        source.normal(size=(3, 30)),
    )

    budgets = np.full(3, 0.5)
    for noise in (
        round_noise(rows @ rows.T, budgets),
        isotropic_noise(np.sum(rows**2, axis=1), np.ones(3), budgets, 30),
    ):
        found = noise.publish(value, rows, np.random.default_rng(4))
        fine = np.abs(found) < 2.0**20
        assert fine.any()
        assert np.array_equal(found[fine] * 2.0**32, np.round(found[fine] * 2.0**32))
