"""A step that an error ends is taken again or none is; what is kept is for its holder alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch
from torch import nn

from tacit.design import Buffered
from tacit.gradients import CorrelatedDPSGD
from tacit.gradients.given import GivenNoise
from tacit.gradients.steps import Schedule
from tacit.releases import load
from tacit.training import FixedOrder

from . import loops


class Breaking(torch.optim.SGD):
    """Fails in its first step."""

    broken = False

    def step(self, closure=None):
        if not self.broken:
            self.broken = True
            raise KeyboardInterrupt
        return super().step(closure)


def test_after_a_step_that_an_error_ended_no_raw_gradient_moves_the_model(monkeypatch):
    monkeypatch.setattr(torch.optim, "SGD", Breaking)
    model = loops.network()
    private, optimizer = loops.begun(model)
    inputs, targets = next(iter(private.loader))
    private.backward(loops.losses(model, inputs, targets))
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    before = [one.detach().clone() for one in model.parameters()]
    noised = [one.grad.clone() for one in model.parameters()]
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    for one, old, grad in zip(model.parameters(), before, noised, strict=True):
        torch.testing.assert_close(one.detach(), old - 0.1 * grad)
    assert private.taken == 1


def test_noise_that_could_not_be_written_is_not_drawn_again(monkeypatch):
    model = loops.network()
    private, optimizer = loops.begun(model)
    inputs, targets = next(iter(private.loader))
    private.backward(loops.losses(model, inputs, targets))
    monkeypatch.setattr(private._steps, "_deviation", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    with pytest.raises(ValueError, match="ended by an error"):
        private.release()


def test_tied_noise_has_no_account_without_a_law_of_participation():
    schedule = Schedule(sampling_rate=0.1, steps=5, dims=(2,))
    with pytest.raises(ValueError, match="which steps a record may be in"):
        CorrelatedDPSGD().profile(1.0, schedule)


def test_tied_noise_is_kept_for_its_holder_alone_and_said_to_be_secret(tmp_path: Path):
    model = nn.Linear(6, 3)
    private, optimizer = loops.begun(
        model, seed=None, method=CorrelatedDPSGD(noise=Buffered(buffers=1)),
        promise=GivenNoise(multiplier=4.0, delta=1e-3, adjacency="replace"),
        sampling=FixedOrder(shuffled=False), checkpoint=tmp_path, every=1,
    )  # fmt: skip
    release = loops.finish(private, model, optimizer)
    for name in ("state.pt", "declared.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    assert "as secret as the records" in release.notes[0]
    content = release.to_dict()
    assert load(content).notes == release.notes
    with pytest.raises(ValueError, match="secret: expected"):
        load({**content, "secret": "all that a person ever did"})
