"""An adapter is made of released sums alone, and those have no bit below the grid of the noise."""

import math

import numpy as np
import pytest
import torch

from tacit._ground import outlet
from tacit.adapters import DPSGD, DPLoRAFA, NoisyProjection, WithoutClipping
from tests.adapters.models import network, supervised
from tests.adapters.models import trained as trained_by

# the finest grid of any noise here is coarser; a plain sum of doubles goes down to 2⁻⁵⁵
FINEST = 2.0**45
METHODS = {
    "dp-sgd": (DPSGD(), 2),
    "dp-lora-fa": (DPLoRAFA(rank=2), 2),
    "noisy projection": (NoisyProjection(rank=2), 2),
    "noise once": (WithoutClipping(rank=4, bound=math.sqrt(2) * 1.001, smoothness=0.5), 4),
}


def on_the_grid(values):
    return bool((values * FINEST == np.round(values * FINEST)).all())


def records():
    inputs, targets = supervised()
    return inputs / inputs.norm(dim=1, keepdim=True), targets


def trained(name, rows, door, monkeypatch):
    """The digest of an adapter, with what is released seen or replaced on its way out."""
    method, steps = METHODS[name]
    torch.manual_seed(0)
    once = isinstance(method, WithoutClipping)
    model = torch.nn.Sequential(torch.nn.Linear(6, 3)) if once else network()
    sampling = {} if once else {"batch": 12}
    with monkeypatch.context() as patch:
        patch.setattr(outlet, "let_out", door)
        release = trained_by(
            model, rows, method, multiplier=8.0, delta=1e-3, steps=steps, optimizer="sgd",
            rate=0.2, rng=5, **sampling,
        )  # fmt: skip
    return dict(release.digests)


@pytest.mark.parametrize("name", METHODS)
def test_an_adapter_is_a_function_of_what_was_released(name, monkeypatch):
    seen = []

    def note(values):
        seen.append(np.array(values))
        return values

    inputs, targets = records()
    first = trained(name, (inputs, targets), note, monkeypatch)
    assert seen
    assert all(on_the_grid(held) for held in seen)
    waiting = list(seen)
    other = inputs.clone()
    other[3] = -other[3]
    second = trained(name, (other, targets), lambda _: waiting.pop(0), monkeypatch)
    assert not waiting
    assert first == second
    third = trained(name, (other, targets), lambda values: values, monkeypatch)
    assert first != third


def test_a_plain_sum_is_not_on_the_grid():
    source = np.random.default_rng(0)
    assert not on_the_grid(source.normal(size=50) + 2.0 * source.normal(size=50))
