"""How the records of a loop's steps are drawn, and that the account is of that law."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.accounting import random_allocation, subsampled_group
from tacit.gradients import DPSGD
from tacit.gradients.given import GivenNoise
from tacit.gradients.steps import Schedule
from tacit.guarantees import ApproximateDP
from tacit.guarantees.adjacency import Adjacency
from tacit.training import FixedOrder, People, Poisson, RandomAllocation, TruncatedPoisson
from tacit.training.sampling import SampledSteps
from tests.soundness.registry import certifies
from tests.training.loops import begun, losses, network, records

REPLACED = GivenNoise(multiplier=1.0, delta=1e-3, adjacency=Adjacency.REPLACE)


def limited_law(present, others, rate, largest):
    """Of every sum that a step of so few records may have: its probability, by all coins."""
    values = [*others, 1.0] if present else list(others)
    law = {}
    for coins in itertools.product((False, True), repeat=len(values)):
        inside = [value for value, coin in zip(values, coins, strict=True) if coin]
        chance = math.prod(rate if coin else 1.0 - rate for coin in coins)
        kept = list(itertools.combinations(inside, min(largest, len(inside))))
        for some in kept:
            law[sum(some)] = law.get(sum(some), 0.0) + chance / len(kept)
    return law


def hockey_stick(first, second, epsilon, noise):
    """∫ max(p − e^ε q, 0) of two mixtures of N(v, σ²), on a fine grid."""
    grid = np.linspace(-12.0, 12.0, 20_001)
    p, q = (
        sum(chance * stats.norm.pdf(grid, value, noise) for value, chance in law.items())
        for law in (first, second)
    )
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * (grid[1] - grid[0]))


@certifies(ApproximateDP)
@pytest.mark.parametrize(("rate", "largest"), [(0.1, 1), (0.3, 2), (0.05, 3)])
def test_a_limited_batch_is_told_apart_no_better_than_certified(rate, largest):
    """Records that are crowded out contribute against the one: its sum moves by twice the clip."""
    steps = SampledSteps(Schedule(sampling_rate=rate, steps=1, dims=(1,)), 1, 4)
    certified = TruncatedPoisson(largest=largest).profile(0.8, steps)
    free = Poisson().profile(0.8, steps)
    for others in ([0.0] * 4, [-1.0] * 4, [-1.0, 1.0, -1.0, 1.0]):
        laws = [limited_law(one, others, rate, largest) for one in (True, False)]
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            true = max(hockey_stick(*laws, epsilon, 0.8), hockey_stick(*laws[::-1], epsilon, 0.8))
            assert certified.delta(epsilon) >= true - 1e-9
            assert certified.delta(epsilon) >= free.delta(epsilon)
    if largest == 1:
        # the account of coins alone would be false
        crowded = [limited_law(one, [-1.0] * 4, rate, 1) for one in (True, False)]
        assert hockey_stick(*crowded, 2.5, 0.8) > free.delta(2.5)
    # δ falls with ε, to its end
    curve = certified.delta(np.linspace(0.0, 800.0, 200))
    assert bool((np.diff(curve) <= 1e-15).all())


@certifies(ApproximateDP)
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_fixed_order_is_a_gaussian_of_the_record_that_is_replaced(epochs):
    """μ = 2 √E/s in closed form: the record goes from one side of the clip to the other."""
    private, _ = begun(network(), epochs=epochs, sampling=FixedOrder(), promise=REPLACED)
    private.close()
    [held] = [one for one in private.guarantees if isinstance(one, ApproximateDP)]
    mu = 2.0 * math.sqrt(epochs)
    true = stats.norm.cdf(mu / 2 - held.epsilon / mu) - math.exp(held.epsilon) * stats.norm.cdf(
        -mu / 2 - held.epsilon / mu
    )
    assert true <= held.delta * (1 + 1e-9)
    assert true > 0.999 * held.delta
    assert held.adjacency == "replace one record"


def drawn(sampling, epochs=2, count=400, seed=None, **options):
    """The units of every step of a loop, as its loader passes them."""
    data = torch.utils.data.TensorDataset(torch.randn(count, 6), torch.randint(3, (count,)))
    private, _ = begun(
        network(), data, batch=50, epochs=epochs, seed=seed, sampling=sampling, **options
    )
    each = len(private.loader)
    found = [
        piece
        for epoch in range(epochs)
        for piece in private.loader._pieces(range(epoch * each, (epoch + 1) * each))
    ]
    private.close()
    return found


def order_of(pieces, epoch):
    """The records of an epoch of eight steps, in the order in which they came."""
    return [record for piece in pieces[8 * epoch : 8 * epoch + 8] for record in piece.records]


def test_every_record_draws_one_step_of_an_epoch():
    pieces = drawn(RandomAllocation(), epochs=8)
    places = np.zeros((8, 400), dtype=int)
    sizes = []
    for number, piece in enumerate(pieces):
        places[number // 8, piece.records] += 1 + number % 8
        sizes.append(piece.counted)
    steps = places - 1
    # exactly one: the sum of places over an epoch is the step's own
    assert sum(sizes) == 8 * 400
    assert all(sorted(order_of(pieces, epoch)) == list(range(400)) for epoch in range(8))
    # which step it is is uniform, and independent of the record before and of the epoch before
    assert stats.chisquare(np.bincount(steps.ravel(), minlength=8)).pvalue > 1e-4
    for first, second in ((steps[:, :-1], steps[:, 1:]), (steps[:-1], steps[1:])):
        pairs = np.bincount(8 * first.ravel() + second.ravel(), minlength=64)
        assert stats.chisquare(pairs).pvalue > 1e-4
    # batches of no fixed size, as balls fall
    assert 0.4 < np.var(sizes) / (50 * 7 / 8) < 2.0


def test_a_fixed_order_has_every_record_once_in_batches_of_one_size():
    for shuffled in (True, False):
        pieces = drawn(FixedOrder(shuffled=shuffled), promise=REPLACED)
        assert {piece.counted for piece in pieces} == {50}
        orders = [order_of(pieces, epoch) for epoch in range(2)]
        assert all(sorted(order) == list(range(400)) for order in orders)
        assert (orders[0] == orders[1]) is not shuffled


def test_a_limited_batch_is_never_larger_and_keeps_each_alike():
    pieces = drawn(TruncatedPoisson(largest=45), epochs=20)
    sizes = [piece.counted for piece in pieces]
    assert max(sizes) == 45
    assert min(sizes) < 45
    counts = np.bincount([r for one in pieces for r in one.records], minlength=400)
    assert stats.chisquare(counts).pvalue > 1e-4 or counts.var() < 2 * counts.mean()


def test_an_epoch_that_is_taken_up_goes_on_with_its_own_draw(tmp_path):
    common = {"checkpoint": tmp_path / "loop", "every": 1, "sampling": RandomAllocation()}
    model = network()
    private, optimizer = begun(model, seed=None, **common)
    seen = []
    for inputs, targets in private.loader:
        seen += private.loader.current.records[: private.loader.current.counted]
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        break
    # as if the process had died
    private.close()
    model = network()
    private, optimizer = begun(model, seed=None, **common)
    for inputs, targets in private.loader:
        seen += private.loader.current.records[: private.loader.current.counted]
        private.backward(losses(model, inputs, targets))
        optimizer.step()
    # none twice, none left out
    assert sorted(seen) == list(range(24))
    private.release()


@certifies(ApproximateDP)
def test_the_account_is_that_of_the_draw():
    for settings, true in (
        ({"sampling": RandomAllocation(), "epochs": 2},
         random_allocation(1.0, steps=3, epochs=2)),
        # 18 records are left, three of each of six persons
        ({"person": People(of=np.arange(24) // 4, most=3, drawn="records")},
         subsampled_group(8 / 18, 1.0, 3, 3)),
    ):  # fmt: skip
        private, _ = begun(network(), **settings)
        private.close()
        assert private.guarantees[1].epsilon == true.epsilon(1e-3)
    assert private.guarantees[1].adjacency == "add or remove one person"


class Mixed(nn.Module):
    """A table, a layer of several positions, a norm and a head that is the table."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm = nn.Embedding(30, 5), nn.LayerNorm(5)
        self.layer = nn.Linear(5, 5)

    def forward(self, tokens):
        states = self.norm(self.layer(self.table(tokens)))
        return nn.functional.linear(states, self.table.weight).mean(dim=1)


@pytest.mark.parametrize("clipping", ["joint", "layers", "automatic"])
@pytest.mark.parametrize("micro", [None, 4])
def test_a_person_adds_what_its_records_add_together_clipped_once(clipping, micro):
    source = torch.Generator().manual_seed(3)
    tokens = torch.randint(30, (12, 7), generator=source)
    targets = torch.randint(30, (12,), generator=source)
    owners = np.array([0, 1, 0, 2, 2, 2, 0, 3, 3, 1, 2, 4])
    model = Mixed()
    method = DPSGD(clip=0.3, clipping=clipping)
    data = torch.utils.data.TensorDataset(tokens, targets)
    private, _ = begun(
        model, data, batch=5, method=method, person=People(of=owners), micro_batch=micro
    )
    for piece, batch in zip(private.loader._pieces(range(1)), [None] * 9, strict=False):
        del batch
        private.loader.current = piece
        rows = torch.tensor(piece.records)
        private.backward(nn.functional.cross_entropy(model(tokens[rows]), targets[rows],
                                                     reduction="none"))  # fmt: skip
    found = {name: one.clone() for name, one in private._steps.sums.items()}
    private.close()
    expected = {name: torch.zeros_like(one).double() for name, one in model.named_parameters()}
    for person in range(5):
        own = torch.from_numpy(np.flatnonzero(owners == person))
        loss = nn.functional.cross_entropy(model(tokens[own]), targets[own], reduction="sum")
        grads = torch.autograd.grad(loss, list(model.parameters()))
        lengths = torch.stack([one.double().norm() for one in grads])
        whole = float(lengths.norm())
        for total, grad, length in zip(expected.values(), grads, lengths, strict=True):
            factor = {
                "joint": min(1.0, 0.3 / whole),
                "automatic": 0.3 / (whole + 0.01),
                "layers": min(1.0, 0.3 / math.sqrt(len(grads)) / max(float(length), 1e-30)),
            }[clipping]
            total += factor * grad.double()
    for name, total in expected.items():
        assert torch.allclose(found[name], total, atol=2e-5), name


@pytest.mark.parametrize("size", [1e6, 1e20, math.inf, math.nan])
def test_no_person_adds_more_than_the_clip(size):
    inputs = torch.full((6, 6), size)
    inputs[::2] *= -1.0
    data = torch.utils.data.TensorDataset(inputs, torch.zeros(6, dtype=torch.long))
    model = network()
    private, _ = begun(model, data, batch=1, method=DPSGD(clip=0.5), person=People(of=["a"] * 6))
    taken, targets = next(iter(private.loader))
    private.backward(losses(model, taken, targets))
    total = torch.cat([one.flatten() for one in private._steps.sums.values()])
    private.close()
    assert float(total.norm()) <= 0.5
    assert records(6)[:][0].shape == inputs.shape
