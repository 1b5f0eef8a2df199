"""A loop used amiss: no record counts twice, none goes missing, none moves another's part."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.gradients import DPSGD, GivenNoise
from tacit.training import FixedOrder, People, Poisson, make_private
from tests.training.loops import begun

REPLACED = GivenNoise(multiplier=1.0, delta=1e-3, adjacency="replace")


def line():
    torch.manual_seed(0)
    return nn.Linear(3, 1, bias=False)


def long(count=8):
    """Records whose gradients are far longer than a clip of 1, all in one direction."""
    return TensorDataset(torch.full((count, 3), 10.0))


def test_a_pass_that_ends_amid_a_step_is_not_begun_again():
    """Such a law draws the step the same again: its first record would count twice."""
    model = line()
    private, _ = begun(model, long(), micro_batch=1, sampling=FixedOrder(), promise=REPLACED)
    [inputs] = next(iter(private.loader))
    private.backward(model(inputs).sum(1))
    with pytest.raises(ValueError, match="another pass amid a step"):
        next(iter(private.loader))
    private.close()


def test_two_passes_at_a_time_draw_no_step_twice():
    model = line()
    private, optimizer = begun(model, long(), batch=2, sampling=FixedOrder(), promise=REPLACED)
    one, other = iter(private.loader), iter(private.loader)
    for one_pass in (one, other):
        [inputs] = next(one_pass)
        private.backward(model(inputs).sum(1))
        optimizer.step()
    with pytest.raises(ValueError, match="one pass at a time"):
        next(one)
    private.close()


def test_an_error_amid_a_backward_pass_ends_the_loop(monkeypatch):
    """Records whose pass failed are not left out of a step: that may be because of one of them."""
    model = line()
    private, optimizer = begun(model, long(), micro_batch=2)
    before = model.weight.detach().clone()

    def fails(*_):
        raise RuntimeError("out of memory")

    [inputs] = next(iter(private.loader))
    monkeypatch.setattr(private._gradients, "sums", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        private.backward(model(inputs).sum(1))
    optimizer.step()
    assert torch.equal(before, model.weight)
    with pytest.raises(ValueError, match="ended by an error"):
        private.release()


def test_a_step_that_calls_its_parents_is_one_step():
    class Called(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    # the parent's step has hooks of its own as soon as there is one of its class
    torch.optim.SGD(line().parameters())
    model = line()
    before = model.weight.detach().clone()
    optimizer = Called(model.parameters(), lr=1.0)
    private = make_private(
        model, optimizer, DataLoader(long(), batch_size=8), DPSGD(),
        GivenNoise(multiplier=1e-6, delta=1e-3), epochs=1,
    )  # fmt: skip
    [inputs] = next(iter(private.loader))
    private.backward(model(inputs).sum(1))
    optimizer.step()
    assert private.taken == 1
    # all 8 records, clipped to 1, over the 8 that are expected: and not their noise alone
    assert float((model.weight - before).detach().norm()) == pytest.approx(1.0, rel=1e-3)
    private.close()


class Sometimes(nn.Module):
    """A second layer that runs only where a record of the batch asks for it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)

    def forward(self, inputs):
        asked = inputs[:, 2:] > 0
        found = self.first(inputs[:, :2])
        return found + torch.where(asked, self.second(inputs[:, :2]), 0.0) if asked.any() else found


def test_which_layers_a_record_reaches_moves_no_other_record():
    """One record among 8 is replaced: the clipped sums are 2 C apart at most."""
    sums = []
    for last in (0.0, 1.0):
        rows = torch.full((8, 3), 10.0)
        rows[:, 2] = 0.0
        rows[7, 2] = last
        torch.manual_seed(0)
        model = Sometimes()
        private, _ = begun(model, TensorDataset(rows), method=DPSGD(clipping="layers"))
        [inputs] = next(iter(private.loader))
        private.backward(model(inputs).sum(1))
        sums.append(dict(private._steps.sums))
        private.close()
    # that of the first layer is the same: the record's own part of it did not change either
    assert torch.allclose(sums[0]["first.weight"], sums[1]["first.weight"], rtol=1e-6)
    assert float(sums[1]["second.weight"].norm()) <= 0.5**0.5


def test_a_record_of_several_rows_is_refused():
    """Four rows of one record would be clipped each by itself, and add up to 4 C."""
    model = line()
    private, _ = begun(model, long(), micro_batch=1)
    [inputs] = next(iter(private.loader))
    with pytest.raises(ValueError, match="got 1 losses of 4 rows"):
        private.backward(model(inputs.repeat(4, 1)).sum(1).view(1, 4).mean(1))
    private.close()


def test_losses_that_meet_are_found_after_a_first_batch_of_one_record():
    model = line()
    people = People(of=[0, 1, 1])
    private, optimizer = begun(
        model, TensorDataset(torch.randn(3, 3)), batch=1, person=people, promise=REPLACED,
        sampling=FixedOrder(shuffled=False),
    )  # fmt: skip
    for [inputs] in private.loader:
        found = model(inputs).sum(1)
        if len(inputs) > 1:
            break
        private.backward(found + found.sum())
        optimizer.step()
    with pytest.raises(ValueError, match="depend on their own record alone"):
        private.backward(found + found.sum())
    assert private.taken == 1
    private.close()


def test_persons_come_in_the_order_of_the_loader():
    """One that is replaced by another moves none of the others, whatever their names."""
    names = (["b", "c", "b", "d"], ["z", "c", "z", "d"])
    before, after = ([one.tolist() for one in People(of=every).groups(4)] for every in names)
    assert before == after == [[0, 2], [1], [3]]


@pytest.mark.parametrize("sampling", [FixedOrder(shuffled=False), Poisson()])
def test_where_a_replaced_person_stands_is_said_of_an_order_alone(sampling):
    """One whose first record comes later moves those between into earlier batches of an order."""
    groups = [People(of=list(every)).groups(4) for every in ("abca", "bcaa")]
    assert [one.tolist() for one in groups[0]] == [[0, 3], [1], [2]]
    assert [one.tolist() for one in groups[1]] == [[0], [1], [2, 3]]
    private, _ = begun(
        line(), long(4), batch=1, person=People(of=list("abca")), promise=REPLACED,
        sampling=sampling,
    )  # fmt: skip
    private.close()
    said = any("stands where the one before" in one for one in private.guarantees[0].assumptions)
    assert said == isinstance(sampling, FixedOrder)


class Routed(nn.Module):
    """A layer that only tokens of one kind pass through."""

    def __init__(self):
        super().__init__()
        self.table, self.expert = nn.Embedding(4, 3), nn.Linear(3, 3)

    def forward(self, tokens):
        found = self.table(tokens)
        chosen = tokens == 3
        if chosen.any():
            found = found.index_put((chosen,), self.expert(found[chosen]))
        return found.sum(1)


@pytest.mark.parametrize("token", [1, 3])
def test_how_a_routed_layer_was_seen_is_not_published(token):
    """Which layers the first batch reaches depends on its tokens; what is published does not."""
    torch.manual_seed(0)
    model = Routed()
    private, optimizer = begun(model, TensorDataset(torch.tensor([[token, token]] * 8)))
    [tokens] = next(iter(private.loader))
    private.backward(model(tokens).square().sum(1))
    optimizer.step()
    release = private.release()
    assert release.details.seen_again == (("",) if token == 3 else ())
    assert release.published()["details"]["seen_again"] == []


def test_rows_of_one_record_do_not_pass_as_those_of_several():
    """Three tokens of one record in a batch of three, at an expert that no batch reached before."""
    torch.manual_seed(0)
    model = Routed()
    rows = torch.tensor([[0, 1, 2]] * 3 + [[3, 3, 3]] + [[1, 1, 1]] * 2)
    private, optimizer = begun(
        model, TensorDataset(rows), batch=3, sampling=FixedOrder(shuffled=False), promise=REPLACED
    )
    every = iter(private.loader)
    for _ in range(2):
        [tokens] = next(every)
        found = model(tokens).square().sum(1)
        if not (tokens == 3).any():
            private.backward(found)
            optimizer.step()
    with pytest.raises(ValueError, match=r"a gradient of another record at expert"):
        private.backward(found)
    private.close()


@pytest.mark.parametrize("first", [1, 2, 4])
def test_losses_that_read_other_records_from_a_later_step_on_are_refused(first):
    """Records are held apart again at steps 1, 2, 4, 8 …, each time by another one's loss."""
    model = line()
    private, optimizer = begun(
        model, long(), batch=2, epochs=2, sampling=FixedOrder(), promise=REPLACED
    )
    for taken in range(first + 1):
        [inputs] = next(iter(private.loader))
        found = model(inputs).square().sum(1)
        if taken < first:
            private.backward(found)
            optimizer.step()
    with pytest.raises(ValueError, match="a gradient of another record at weight"):
        private.backward(found - found.mean())
    private.close()
