"""A loop used as no one means it to be: what is done right all the same, and what is refused."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tacit.gradients import DPSGD
from tacit.training import LoopSettings, make_private
from tests.training.loops import NOISE, begun, losses, network, records, trained


def one_step(private, model, optimizer, after=None):
    """A step of one batch, with something done after its backward pass."""
    inputs, targets = next(iter(private.loader))
    private.backward(losses(model, inputs, targets))
    if after is not None:
        after()
    optimizer.step()


def usual():
    model = network()
    private, optimizer = begun(model)
    one_step(private, model, optimizer)
    private.close()
    return model.state_dict()


def same(first, second):
    return all(torch.equal(one, second[name]) for name, one in first.items())


def test_what_others_do_to_gradients_moves_nothing():
    """Cleared, clipped, scaled or written: a step is of the noised sum alone."""
    expected = usual()

    def cleared(_, optimizer):
        optimizer.zero_grad()

    def clipped(model, _):
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    def written(model, _):
        for one in model.parameters():
            one.grad = torch.full_like(one, 1e6)

    for done in (cleared, clipped, written):
        model = network()
        private, optimizer = begun(model)
        one_step(private, model, optimizer, after=partial(done, model, optimizer))
        private.close()
        assert same(expected, model.state_dict()), done.__name__


def test_another_optimizer_moves_nothing():
    model = network()
    private, _ = begun(model)
    other = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.5)
    kept, passes = copy.deepcopy(model.state_dict()), iter(private.loader)
    inputs, targets = next(passes)
    private.backward(losses(model, inputs, targets))
    other.step()
    assert same(kept, model.state_dict())
    assert private.taken == 0
    with pytest.raises(ValueError, match=r"expected optimizer.step\(\) after the backward pass"):
        next(passes)
    private.close()


def test_parameters_added_later_are_not_trained_and_those_taken_away_are_missed():
    model = network()
    private, optimizer = begun(model)
    added = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [added]})
    added.grad = torch.ones(3)
    one_step(private, model, optimizer)
    assert torch.equal(added, torch.ones(3))
    assert private.taken == 1
    optimizer.param_groups[0]["params"].pop()
    with pytest.raises(ValueError, match="expected the parameters that it had"):
        one_step(private, model, optimizer)
    private.close()


def test_a_parameter_frozen_tied_or_replaced_later_is_refused_by_name():
    def frozen(model):
        model[3].weight.requires_grad_(False)

    def replaced(model):
        model[3].bias = nn.Parameter(torch.zeros(3))

    def exchanged(model):
        model[0] = nn.Linear(6, 8)

    for change, name in ((frozen, "3.weight"), (replaced, "3.bias"), (exchanged, "0.weight")):
        model = network()
        private, _ = begun(model)
        passes = iter(private.loader)
        inputs, targets = next(passes)
        found = losses(model, inputs, targets)
        change(model)
        with pytest.raises(ValueError, match=f"expected {name} to be trained to the end"):
            private.backward(found)
        private.close()
        # and before any batch passes
        model = network()
        private, _ = begun(model)
        change(model)
        with pytest.raises(ValueError, match=f"expected {name} to be trained to the end"):
            next(iter(private.loader))
        private.close()


def test_a_loop_is_not_copied():
    model = network()
    private, _ = begun(model)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="one reservation is one release"):
            copied(private)
    # an average of weights is of a copy of the model, which is no part of the loop
    other = copy.deepcopy(model)
    inputs, _ = next(iter(private.loader))
    with torch.no_grad():
        other(inputs)
    assert private.taken == 0
    private.close()


class Fails(torch.optim.SGD):
    """An optimizer that runs out of memory in its first step."""

    fails = True

    def step(self, closure=None):
        if self.fails:
            self.fails = False
            raise RuntimeError("out of memory")
        return super().step(closure)


def test_an_error_in_the_optimizers_step_draws_no_noise_again():
    """The step can be tried again with the sum that was noised, and the loop goes on."""
    model = network()
    optimizer = Fails(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, DataLoader(records(), batch_size=8), DPSGD(), NOISE, epochs=1,
        settings=LoopSettings(seed=3),
    )  # fmt: skip
    kept, passes = copy.deepcopy(model.state_dict()), iter(private.loader)
    inputs, targets = next(passes)
    private.backward(losses(model, inputs, targets))
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    assert same(kept, model.state_dict())
    optimizer.step()
    assert same(usual(), model.state_dict())
    assert private.taken == 1
    next(passes)
    private.close()


def test_one_record_moves_the_sum_by_the_clip_at_most_however_a_loop_is_used():
    """Neighbours pass through every way of use; their sums are C apart."""
    rows = torch.randn(8, 6, generator=torch.Generator().manual_seed(4)) * 100.0
    labels = torch.arange(8) % 3

    def used(way, data):
        model = network()
        private, _ = begun(
            model, TensorDataset(data, labels), batch=8, micro_batch=3 if way == "parts" else None
        )
        if way == "eval":
            model.eval()
        for inputs, targets in private.loader:
            found = losses(model, inputs, targets)
            if way == "scaled":
                # a loss scaler's factor, which clipping takes off
                found = found * 65536.0
            if way == "smoothed":
                found = functional.cross_entropy(
                    model(inputs), targets, reduction="none", label_smoothing=0.1
                )
            private.backward(found)
            if way != "parts" or private.loader.complete:
                break
        sums = torch.cat([one.flatten() for one in private._steps.sums.values()])
        private.close()
        return sums

    for way in ("plain", "eval", "parts", "scaled", "smoothed"):
        other = rows.clone()
        other[3] = 0.0
        moved = float((used(way, rows) - used(way, other)).norm())
        # one record takes another's place: C for each
        assert 0.1 < moved <= 2.0, way


def test_a_whole_loop_in_which_everything_is_cleared_is_the_usual_one():
    _, plain = trained()
    model = network()
    private, optimizer = begun(model)
    for inputs, targets in private.loader:
        optimizer.zero_grad(set_to_none=False)
        private.backward(losses(model, inputs, targets))
        nn.utils.clip_grad_norm_(model.parameters(), 1e-9)
        optimizer.step()
        optimizer.zero_grad()
    private.release()
    assert same(plain, model.state_dict())


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_step_of_the_optimizer_is_the_usual_one():
    for nested in (torch.optim.SGD, Twofold):
        made = []
        for step in (
            lambda held: held.step,
            lambda held: torch.compile(held.step, backend="eager"),
        ):
            model = network()
            optimizer = nested(model.parameters(), lr=0.1)
            loader = DataLoader(records(), batch_size=8)
            private = make_private(
                model, optimizer, loader, DPSGD(), NOISE, epochs=1, settings=LoopSettings(seed=3)
            )
            take = step(optimizer)
            for inputs, targets in private.loader:
                private.backward(losses(model, inputs, targets))
                take()
            assert private.release().details.taken == 3
            made.append(model.state_dict())
        assert all(torch.allclose(one, made[1][name], atol=1e-6) for name, one in made[0].items())


class Twofold(torch.optim.SGD):
    """An optimizer whose step calls its parent's, which is the same step."""

    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.filterwarnings("ignore")
def test_noise_of_the_operating_system_is_drawn_in_a_compiled_step():
    model = network()
    private, optimizer = begun(model, seed=None)
    before = copy.deepcopy(model.state_dict())
    one_step(
        private, model, type("Steps", (), {"step": torch.compile(optimizer.step, backend="eager")})
    )
    private.close()
    assert not same(before, model.state_dict())


def test_what_cannot_train_is_refused_by_its_cause():
    model, loader = network(), DataLoader(records(), batch_size=8)
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ValueError, match=r"without a closure, .* got LBFGS"):
        make_private(model, optimizer, loader, DPSGD(), NOISE, epochs=1)
    with pytest.raises(ValueError, match=r"got 0\.weight without a shape"):
        begun(nn.Sequential(nn.LazyLinear(3)))

    class Wrapped:
        def __init__(self, rows):
            self.rows = rows

    class Opens(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, batch):
            return self.layer(batch.rows)

    model = Opens()
    private, _ = begun(model)
    inputs, _ = next(iter(private.loader))
    with pytest.raises(ValueError, match=r"in lists, tuples and dicts, got Wrapped"):
        model(Wrapped(inputs))
    private.close()
