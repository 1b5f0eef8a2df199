"""One backward pass that keeps gradients, or two that keep none: the same model."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tacit.gradients import DPSGD, AdaptiveDPSGD
from tacit.training import People
from tacit.training import private_loop as loop
from tests.training.loops import begun, finish, losses, network


class Tied(nn.Module):
    """A table that is also the head, a layer that is passed twice, and one in a checkpoint."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = nn.Embedding(9, 5), nn.Linear(5, 5)
        self.norm, self.unused = nn.LayerNorm(5), nn.Linear(5, 5)

    def forward(self, inputs):
        states = self.table((inputs.abs() * 4).long() % 9)
        states = self.layer(torch.tanh(self.layer(states)))
        states = checkpoint(self.norm, states, use_reentrant=False)
        return nn.functional.linear(states, self.table.weight).mean(1)[:, :3]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": DPSGD(clipping="layers"), "micro_batch": 3},
        {"method": AdaptiveDPSGD(clip=0.3)},
        {"person": People(of=[place // 3 for place in range(24)]), "batch": 4},
    ],
)
@pytest.mark.parametrize("made", [network, Tied])
def test_two_passes_make_the_same_model(made, options):
    def moved(passes):
        model = made()
        private, optimizer = begun(model, epochs=2, passes=passes, **options)
        for _ in range(2):
            for inputs, targets in private.loader:
                private.backward(losses(model, inputs, targets))
                optimizer.step()
        private.close()
        return model.state_dict()

    one, two = moved(1), moved(2)
    for name, held in one.items():
        assert torch.allclose(held, two[name], atol=1e-6, rtol=0), name


def test_two_passes_keep_the_gradients_of_no_more_than_a_layer(monkeypatch):
    model = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(6, 6), nn.Tanh())])
    private, optimizer = begun(model, epochs=2, passes=2)
    gradients, held = private._gradients, []
    true = gradients.into

    def into(name):
        found = true(name)
        held.append((private._checked, len(gradients.found)))
        return found

    monkeypatch.setattr(gradients, "into", into)
    finish(private, model, optimizer)
    # weight and bias of one layer; what tries the model on two examples has all of them
    assert max(count for checked, count in held if checked) == 2


@pytest.mark.parametrize("size", [1.0, 1e10, 1e30, math.inf, math.nan])
def test_no_record_adds_more_than_the_clip_in_two_passes(size):
    data = torch.utils.data.TensorDataset(
        torch.tensor([[size, -size, 1.0, size, 0.0, -1.0]] * 2), torch.zeros(2, dtype=torch.long)
    )
    model = network()
    private, optimizer = begun(model, data, batch=1, passes=2, sampling_rate=1.0, micro_batch=1,
                               method=DPSGD(clip=0.5), rate=0.0)  # fmt: skip
    sums = []
    for number, (inputs, targets) in enumerate(private.loader):
        before = {name: one.clone() for name, one in private._steps.sums.items()}
        private.backward(losses(model, inputs, targets))
        added = [one - before.get(name, 0.0) for name, one in private._steps.sums.items()]
        sums.append((number, torch.cat([one.flatten() for one in added]).norm()))
        optimizer.step()
    private.close()
    assert len(sums) == 2
    assert all(float(one) <= 0.5 for _, one in sums)


def test_a_model_that_is_called_twice_has_the_whole_of_its_gradients():
    """The losses of pairs of inputs: both calls are of the same records."""

    def paired(passes):
        model = network()
        private, optimizer = begun(model, epochs=2, passes=passes, rate=1.0)
        for _ in private.epochs:
            for inputs, targets in private.loader:
                private.backward(losses(model, inputs, targets) + losses(model, -inputs, targets))
                optimizer.step()
        private.close()
        return torch.cat([one.detach().flatten() for one in model.parameters()])

    assert torch.allclose(paired(1), paired(2), atol=1e-5, rtol=0)


def test_a_pilot_chooses_by_what_the_first_batch_kept(monkeypatch):
    for least, chosen in ((2**28, 1), (0, 2)):
        monkeypatch.setattr(loop, "KEPT", least)
        model = network()
        private, optimizer = begun(model)
        inputs, targets = next(iter(private.loader))
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        assert private.passes == chosen
        private.close()
