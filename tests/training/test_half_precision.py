"""Passes in half precision, whose rounding couples records: certificates say that they do."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.gradients.certificates import HALF
from tacit.releases import load
from tests.training.loops import begun, finish, network, trained


def stepped(private, model, optimizer, steps, *, half=True):
    """Some steps of a loop, under autocast or not."""
    batches = iter(private.loader)
    for _ in range(steps):
        inputs, targets = next(batches)
        held = torch.autocast("cpu", dtype=torch.bfloat16) if half else contextlib.nullcontext()
        with held:
            outputs = model(inputs)
        private.backward(functional.cross_entropy(outputs.float(), targets, reduction="none"))
        optimizer.step()


def said(release):
    return all(HALF in one.assumptions for one in release.guarantees)


def test_a_certificate_says_that_passes_ran_in_half_precision():
    plain, _ = trained()
    model = network()
    private, optimizer = begun(model)
    stepped(private, model, optimizer, 3)
    release = private.release()
    assert (said(plain), said(release)) == (False, True)
    assert (plain.details.half, release.details.half) == (False, True)
    # it costs nothing, and is worked out again from the file
    assert release.guarantees[1].epsilon == plain.guarantees[1].epsilon
    assert said(load(release.to_dict()))


def test_a_loop_says_so_as_soon_as_it_is_known():
    model = network()
    private, optimizer = begun(model)
    assert not said(private)
    stepped(private, model, optimizer, 1)
    assert said(private)
    private.close()
    private, _ = begun(network().bfloat16())
    assert said(private)
    assert said(private._prepared)


def test_a_loop_that_is_taken_up_keeps_what_its_first_steps_ran_in(tmp_path):
    model = network()
    private, optimizer = begun(model, checkpoint=tmp_path / "loop", every=1)
    stepped(private, model, optimizer, 1)
    private.close()
    private, optimizer = begun(network(), checkpoint=tmp_path / "loop", every=1)
    assert private.taken == 1
    release = finish(private, private._given, optimizer)
    assert said(release)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_frozen_layers_in_half_precision_count(kind):
    """What is trained may be kept in float32 behind layers that are not."""

    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6).to(kind), nn.Linear(6, 3)
            self.first.requires_grad_(False)

        def forward(self, inputs):
            return self.second(self.first(inputs.to(kind)).float())

    release, _ = trained(Cast())
    assert said(release) == (kind == torch.bfloat16)


class Inside(nn.Module):
    """A layer that is not trained, and turns to half precision by itself, before one that is."""

    def __init__(self, how):
        super().__init__()
        self.first, self.second, self.how = nn.Linear(6, 6), nn.Linear(6, 3), how
        self.first.requires_grad_(False)

    def forward(self, inputs):
        return self.second(self.how(self.first, inputs).float())


def under_autocast(layer, inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(inputs)


def cast(layer, inputs):
    return inputs.bfloat16() @ layer.weight.bfloat16().T


@pytest.mark.parametrize(
    ("how", "half"), [(under_autocast, True), (cast, True), (lambda layer, one: layer(one), False)]
)
def test_half_precision_inside_of_a_model_counts_whatever_comes_back(how, half):
    release, _ = trained(Inside(how))
    assert said(release) == half


def test_a_later_step_under_autocast_counts_where_gradients_come_back_in_single_precision():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3).requires_grad_(False))
    private, optimizer = begun(model)
    stepped(private, model, optimizer, 1, half=False)
    assert not private._gradients.half
    stepped(private, model, optimizer, 1)
    assert said(private.release())
