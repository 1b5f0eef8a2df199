"""A training loop of one's own: what it takes and refuses, and how it goes on."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset

from tacit import Ledger, Table
from tacit.gradients import DPSGD
from tacit.gradients.given import GivenNoise
from tacit.guarantees import ApproximateDP
from tacit.training import FixedOrder, LoopSettings, People, RandomAllocation, make_private
from tacit.training.still import Still
from tests.training.loops import NOISE, begun, finish, losses, network, records, trained


def close(first, second, tolerance=1e-6):
    assert set(first) == set(second)
    for name, one in first.items():
        assert torch.allclose(one, second[name], atol=tolerance, rtol=0), name


def test_a_step_is_the_clipped_sum_with_its_noise_over_the_records_expected():
    model, data = network(), records()
    before = copy.deepcopy(model)
    private, optimizer = begun(model, data, rate=1.0)
    inputs, targets = next(iter(private.loader))
    private.backward(losses(model, inputs, targets))
    noise = [
        private._steps._randomness.normal(0, place)(tuple(one.shape))
        for place, one in enumerate(model.parameters())
    ]
    optimizer.step()
    # each record by itself, clipped over all parameters together
    total = [torch.zeros_like(one) for one in before.parameters()]
    for index in range(len(inputs)):
        here = slice(index, index + 1)
        loss = losses(before, inputs[here], targets[here]).sum()
        found = torch.autograd.grad(loss, list(before.parameters()))
        length = torch.stack([one.norm() for one in found]).norm()
        for one, gradient in zip(total, found, strict=True):
            one += gradient * min(1.0, 1.0 / float(length))
    for one, old, held, drawn in zip(
        model.parameters(), before.parameters(), total, noise, strict=True
    ):
        assert torch.allclose(old - one, (held + drawn).float() / 8, atol=2e-5)


def test_batches_that_pass_in_parts_make_the_same_model():
    _, whole = trained()
    _, parts = trained(micro_batch=3)
    close(whole, parts)


def test_checkpointed_layers_make_the_same_model():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, inputs):
            return checkpoint(self.inner, inputs, use_reentrant=False)

    _, plain = trained()
    _, other = trained(Checkpointed())
    close(plain, {name.removeprefix("inner."): one for name, one in other.items()})


def test_half_precision_passes_make_nearly_the_same_model():
    _, plain = trained()
    model = network()
    private, optimizer = begun(model)
    for inputs, targets in private.loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = losses(model, inputs, targets)
        private.backward(found)
        optimizer.step()
    close(plain, model.state_dict(), 0.02)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_makes_the_same_model():
    _, plain = trained()
    model = network()
    private, optimizer = begun(model)
    compiled = torch.compile(model, backend="aot_eager")
    finish(private, compiled, optimizer)
    close(plain, model.state_dict(), 1e-5)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_is_compiled_for_two_batch_sizes_and_not_at_every_step():
    graphs = []

    def backend(graph, _):
        graphs.append(private.taken)
        return graph

    private, optimizer = begun(model := network(), epochs=4)
    finish(private, torch.compile(model, backend=backend), optimizer)
    assert graphs
    # one size, and any: what is compiled then serves every batch that coins draw
    assert max(graphs) < 4


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (torch.optim.AdamW, Table(epsilon=8.0, delta=1e-3)),
        (torch.optim.RMSprop, GivenNoise(multiplier=1.0, delta=1e-3)),
        (torch.optim.Adagrad, GivenNoise(multiplier=1.0, delta=1e-3)),
    ],
)
def test_any_optimizer_and_schedule_moves_the_model(kind, promise):
    model = network()
    optimizer = kind(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=20, cycle_momentum=False
    )
    private = make_private(
        model, optimizer, DataLoader(records(), batch_size=8), DPSGD(clipping="automatic"),
        promise, epochs=2, settings=LoopSettings(micro_batch=4),
    )  # fmt: skip
    before = copy.deepcopy(model.state_dict())
    for _ in private.epochs:
        for inputs, targets in private.loader:
            optimizer.zero_grad()
            private.backward(losses(model, inputs, targets))
            optimizer.step()
            if private.stepped:
                schedule.step()
    release = private.release()
    assert schedule.last_epoch == release.details.taken == release.details.schedule.steps == 6
    assert any(not torch.equal(before[name], one) for name, one in model.state_dict().items())
    held = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    assert held.epsilon <= 8.0


def test_a_step_without_records_has_its_noise():
    model = network()
    private, optimizer = begun(model, seed=None, batch=1, sampling_rate=1e-2)
    for inputs, targets in private.loader:
        none = private.loader.current.counted == 0
        before = [one.detach().clone() for one in model.parameters()]
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        if none:
            break
    moved = torch.cat([(a - b).flatten() for a, b in zip(before, model.parameters(), strict=True)])
    # −0.1 (0 + N(0, 1)) in every entry and nothing of the record that passed
    assert 0.05 < float(moved.detach().std()) < 0.2


def refused(model, act, sentence, **options):
    private, optimizer = begun(model, **options)
    with pytest.raises(ValueError, match=sentence):
        act(private, optimizer)
    private.close()


def test_a_mean_a_second_pass_and_a_skipped_batch_are_refused():
    model = network()

    def mean(private, _):
        inputs, targets = next(iter(private.loader))
        private.backward(losses(model, inputs, targets).mean())

    def twice(private, _):
        inputs, targets = next(iter(private.loader))
        private.backward(losses(model, inputs, targets))
        private.backward(losses(model, inputs, targets))

    def others(private, _):
        inputs, targets = next(iter(private.loader))
        private.backward(losses(model, inputs[:-1], targets[:-1]))

    def skipped(private, _):
        for _batch in private.loader:
            pass

    def no_step(private, _):
        for inputs, targets in private.loader:
            private.backward(losses(model, inputs, targets))

    def coupled(private, _):
        inputs, targets = next(iter(private.loader))
        found = losses(model, inputs, targets)
        private.backward(found - found.mean())

    def around(private, _):
        inputs, targets = next(iter(private.loader))
        decay = (model[1].weight ** 2).sum()
        private.backward(losses(nn.Identity(), model(inputs), targets) + decay)

    def inside(private, _):
        inputs, targets = next(iter(private.loader))
        private.backward(losses(model[:3], inputs, targets))

    refused(model, inside, "through the model itself, got one through 0 alone")
    refused(model, mean, "one loss per example, of which each is clipped, got one number")
    refused(model, twice, "one backward pass for each batch")
    refused(model, others, "one loss per example, shape")
    refused(model, skipped, "for every batch")
    refused(model, no_step, "after the backward pass of every batch")
    refused(model, coupled, "depend on their own record alone")


def test_an_ordinary_backward_pass_is_refused_and_evaluation_is_not():
    model = network()
    private, _ = begun(model)
    inputs, targets = records()[:4]
    with torch.no_grad():
        assert losses(model, inputs, targets).shape == (4,)
    with pytest.raises(RuntimeError, match=r"private.backward"):
        losses(model, inputs, targets).sum().backward()
    private.close()
    losses(model, inputs, targets).sum().backward()


def test_a_step_beyond_the_promise_moves_nothing():
    model = network()
    private, optimizer = begun(model)
    for inputs, targets in private.loader:
        private.backward(losses(model, inputs, targets))
        optimizer.step()
    kept = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="beyond the 1 that are paid for"):
        next(iter(private.loader))
    optimizer.step()
    close(kept, model.state_dict(), 0.0)
    private.release()
    with pytest.raises(ValueError, match="was released"):
        private.backward(losses(model, inputs, targets))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), "BatchNorm1d mixes examples"),
        (nn.Sequential(nn.Linear(6, 3), nn.Softmax(dim=0)), "another example of the batch moves"),
    ],
)
def test_layers_that_mix_examples_are_refused_by_name(model, name):
    with pytest.raises(ValueError, match=name):
        trained(model)


class Levelled(torch.autograd.Function):
    """The identity, whose way back is as long for every batch."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradients):
        return gradients / gradients.norm()


def hooked(values):
    values.register_hook(lambda gradients: gradients / gradients.norm())
    return values


@pytest.mark.parametrize("join", [Levelled.apply, hooked])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_way_back_that_joins_records_is_refused(join, passes):
    """No loss depends on another record, and what a record gives is scaled by the others'."""
    model = network()
    private, _ = begun(model, passes=passes)
    inputs, targets = next(iter(private.loader))
    found = functional.cross_entropy(join(model(inputs)), targets, reduction="none")
    with pytest.raises(ValueError, match="another length where the losses of others"):
        private.backward(found)
    private.close()


@pytest.mark.parametrize("masks", [0.0, 0.5])
def test_what_mixes_examples_in_training_alone_is_refused(masks):
    class Centred(nn.Module):
        def forward(self, inputs):
            # no gradient leads through the mean
            return inputs - inputs.mean(dim=0).detach() if self.training else inputs

    with pytest.raises(ValueError, match="another example of the batch moves"):
        trained(nn.Sequential(Centred(), nn.Dropout(masks), network()))


def seen_in_place(module, value):
    module.seen += value


def seen_anew(module, value):
    module.seen = module.seen + value


def seen_by_data(module, value):
    """As code books of moving averages do: no version of the tensor is counted."""
    module.seen.data.add_(value)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("write", [seen_in_place, seen_anew, seen_by_data])
def test_a_buffer_that_learns_is_refused(stored, write):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()
            self.register_buffer("seen", torch.zeros(()), persistent=stored)

        def forward(self, inputs):
            write(self, inputs.sum())
            return self.inner(inputs)

    with pytest.raises(ValueError, match=r"the buffer seen changes|to stay as they were"):
        trained(Counting())


def test_a_buffer_that_is_replaced_again_and_again_is_another():
    """Where the first is gone, a later one may lie in its place."""
    model = nn.Module()
    model.register_buffer("seen", torch.zeros(()))
    still = Still(model, {})
    for _ in range(20):
        model.seen = model.seen + 1.0
        model.seen = model.seen - 1.0
        with pytest.raises(ValueError, match="the buffer seen changes"):
            still.check()


def test_a_cache_of_positions_may_grow():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()
            self.register_buffer("places", torch.arange(2.0), persistent=False)
            # what is never filled in is no change
            self.register_buffer("unused", torch.tensor([torch.nan]), persistent=False)

        def forward(self, inputs):
            self.register_buffer("places", torch.arange(6.0), persistent=False)
            return self.inner(inputs + self.places)

    assert trained(Cached())[0].details.taken == 3


def test_masks_are_of_no_known_seed():
    """Of a known one a record's mask would follow from how many records come before it."""

    def drawn(seed):
        torch.manual_seed(0)
        private, _ = begun(network(), seed=seed)
        next(iter(private.loader))
        private.close()
        return float(torch.rand(()))

    assert drawn(3) == drawn(3)
    assert drawn(None) != drawn(None)


def test_what_is_not_trained_may_not_move():
    model = network()
    model[0].requires_grad_(False)
    private, optimizer = begun(model)
    for inputs, targets in private.loader:
        private.backward(losses(model, inputs, targets))
        optimizer.step()
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(ValueError, match="not trained to stay as they were"):
        private.release()


def test_streams_closures_and_strange_parameters_are_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from ()

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="how many the stream Stream has"):
        make_private(model, optimizer, DataLoader(Stream(), batch_size=2), DPSGD(),
                     Table(epsilon=1.0, delta=1e-3), epochs=1)  # fmt: skip
    stranger = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="parameters of the model"):
        make_private(model, stranger, DataLoader(records(), batch_size=2), DPSGD(),
                     Table(epsilon=1.0, delta=1e-3), epochs=1)  # fmt: skip
    private, optimizer = begun(model)
    with pytest.raises(ValueError, match="without a closure"):
        optimizer.step(lambda: 0.0)
    private.close()


def test_rows_that_a_table_has_several_times_are_refused():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": [[float(i)] * 6 for i in range(24)]})
    other = datasets.Dataset.from_dict({"x": [[1.0] * 6 for _ in range(3)]})
    twice = table.select([0, 0, *range(2, 24)])
    ends = [table.select([3, 0]), table.select([1, 3])]
    for repeated in (
        twice,
        ConcatDataset(ends),
        datasets.concatenate_datasets([table, table]),
        datasets.concatenate_datasets(ends),
        Subset(twice, [0, 1]),
    ):
        with pytest.raises(ValueError, match="a data set that has some several times"):
            begun(network(), repeated)
    for once in (
        table,
        table.shuffle(seed=1),
        datasets.concatenate_datasets([table, other]),
        ConcatDataset([table.select([3, 0, 5, 8]), table.select([1, 2, 4, 6])]),
        Subset(twice, range(1, 20)),
    ):
        begun(network(), once)[0].close()


def test_a_loader_that_draws_by_another_law_is_refused():
    """What it would see is another set of records than what is drawn and accounted."""
    data, model = records(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for sampler in (
        torch.utils.data.SubsetRandomSampler(range(12)),
        torch.utils.data.WeightedRandomSampler([1.0] * 24, 24),
        torch.utils.data.RandomSampler(data, replacement=True),
        torch.utils.data.RandomSampler(data, num_samples=10),
    ):
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        with pytest.raises(ValueError, match=f"got one with {type(sampler).__name__}"):
            make_private(model, optimizer, loader, DPSGD(), NOISE, epochs=1)
    twice = Subset(Subset(data, [*range(24), -1]), range(25))
    whole = ConcatDataset([data, data])
    one_more, parts = ConcatDataset([data, Subset(data, [-1])]), Subset(whole, [0, 24])
    for repeated in (twice, whole, one_more, parts):
        with pytest.raises(ValueError, match="a data set that has some several times"):
            begun(model, repeated)
    people = People(of=[*range(24), 23])
    # of whom it is says a person
    begun(model, twice, person=people)[0].close()
    for settings, sentence in (
        (LoopSettings(sampling=FixedOrder()), 'adjacency="replace" beside FixedOrder'),
        (LoopSettings(sampling=RandomAllocation(), sampling_rate=0.1), "whose steps n sets"),
        (LoopSettings(person=People(of=[1, 2])), "whose each of 24 records"),
        (LoopSettings(person=People(of=[None, *"abcdefghijklmnopqrstuvw"])), "missing"),
        (LoopSettings(person=People(of=[float("nan"), *range(23)])), "missing"),
        (LoopSettings(person=People(of=[float("nan"), *"abcdefghijklmnopqrstuvw"])), "missing"),
        (
            LoopSettings(
                person=People(of=range(24), most=2, drawn="records"), sampling=RandomAllocation()
            ),
            "or Poisson sampling and persons",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            make_private(
                model, optimizer, DataLoader(data, batch_size=4), DPSGD(), NOISE, epochs=1,
                settings=settings,
            )  # fmt: skip
    with pytest.raises(ValueError, match="most: expected a number"):
        People(of=range(24), drawn="records")


def test_a_loop_goes_on_where_it_stopped_and_is_paid_for_once(tmp_path):
    _, whole = trained(epochs=2)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    common = {
        "epochs": 2, "checkpoint": tmp_path / "loop", "every": 1, "ledger": ledger, "secret": "s",
    }  # fmt: skip
    model = network()
    private, optimizer = begun(model, **common)
    for number, (inputs, targets) in enumerate(private.loader):
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        if number == 1:
            break
    # as if the process had died
    private.close()
    again = network()
    private, optimizer = begun(again, **common)
    assert private.taken == 2
    release = finish(private, again, optimizer)
    close(whole, again.state_dict(), 1e-6)
    assert release.details.taken == 6
    assert [one.status for one in ledger.entries("s")] == ["committed"]


def test_one_reservation_is_one_release(tmp_path):
    import shutil

    ledger = Ledger(tmp_path / "ledger.sqlite")

    def loop(folder, seed=None):
        model = network()
        return (
            *begun(
                model, seed=seed, checkpoint=tmp_path / folder, every=1, ledger=ledger, secret="s"
            ),
            model,
        )

    private, optimizer, model = loop("first")
    inputs, targets = next(iter(private.loader))
    private.backward(losses(model, inputs, targets))
    optimizer.step()
    private.close()
    for copy_of in ("second", "third"):
        shutil.copytree(tmp_path / "first", tmp_path / copy_of)
    begun_before = loop("third")
    private, optimizer, model = loop("first")
    finish(private, model, optimizer)
    with pytest.raises(ValueError, match="worth one release"):
        loop("second")
    # one that stands open draws nothing more
    private, optimizer, model = begun_before
    with pytest.raises(ValueError, match="already committed; it cannot become drawn"):
        finish(private, model, optimizer)
    private.close()
    assert private.taken == 1
    assert len(ledger.entries("s")) == 1


def test_a_cancelled_reservation_pays_for_no_step(tmp_path):
    ledger, model = Ledger(tmp_path / "ledger.sqlite"), network()
    common = {"checkpoint": tmp_path / "loop", "ledger": ledger, "secret": "s"}
    begun(model, **common)[0].close()
    [entry] = ledger.entries("s")
    ledger.reserved(entry.number, "s").cancel()
    private, optimizer = begun(model, **common)
    with pytest.raises(ValueError, match="already cancelled; it cannot become drawn"):
        finish(private, model, optimizer)
    private.close()
    assert private.taken == 0


def test_a_checkpoint_of_another_loop_is_refused(tmp_path):
    model = network()
    private, _ = begun(model, checkpoint=tmp_path / "loop")
    private.close()
    with pytest.raises(ValueError, match="another mechanism"):
        begun(network(), checkpoint=tmp_path / "loop", method=DPSGD(clip=2.0))
    other = network()
    with torch.no_grad():
        other[0].bias += 1
    with pytest.raises(ValueError, match="another model"):
        begun(other, checkpoint=tmp_path / "loop")


def test_a_schedule_is_kept_with_the_loop(tmp_path):
    model = network()
    private, optimizer = begun(model, checkpoint=tmp_path / "loop", every=1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    private.track(schedule=schedule)
    for inputs, targets in private.loader:
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        schedule.step()
        break
    private.save()
    private.close()
    model = network()
    private, optimizer = begun(model, checkpoint=tmp_path / "loop", every=1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    private.track(schedule=schedule)
    assert schedule.last_epoch == 1
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    private.close()


def test_a_refusal_of_the_ledger_leaves_the_model_free(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_budget("s", epsilon=0.01, delta=1e-3)
    model = network()
    with pytest.raises(ValueError, match=r"budget|spent"):
        begun(model, seed=None, ledger=ledger, secret="s")
    inputs, targets = records()[:4]
    functional.cross_entropy(model(inputs), targets).backward()


def test_a_parameter_of_complex_numbers_is_refused():
    model = nn.Sequential(network())
    model.turn = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="real numbers, got turn of"):
        begun(model)


def test_one_number_is_trained():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = network(), nn.Parameter(torch.tensor(1.0))

        def forward(self, inputs):
            return self.inner(inputs) * self.scale

    assert trained(Scaled())[1]["scale"].shape == ()
