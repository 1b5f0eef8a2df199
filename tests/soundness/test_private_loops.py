"""What a loop of one's own adds is bounded, and what it draws is what its account is of."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit._ground import outlet
from tacit.accounting import subsampled_gaussian
from tacit.gradients import DPSGD, AdaptiveDPSGD
from tacit.gradients.given import GivenNoise
from tacit.guarantees import ApproximateDP
from tests.soundness.registry import certifies
from tests.training.loops import NOISE, begun, losses, network, records, trained

# Everything that a loop releases is on a grid no finer than this.
FINEST = 2.0**45


class Difference(nn.Module):
    """Two visits whose difference counts: where they nearly cancel, rounding is all there is."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(4, 3, bias=False)

    def forward(self, inputs):
        found = self.layer(inputs.reshape(len(inputs), 2, -1)[..., :4])
        return found[:, 0] - found[:, 1]


def one_record(model, inputs, method):
    """The contribution of a single record, as it is summed before its noise."""
    data = torch.utils.data.TensorDataset(inputs, torch.zeros(1, dtype=torch.long))
    private, _ = begun(model, data, batch=1, method=method)
    taken, targets = next(iter(private.loader))
    private.backward(losses(model, taken, targets))
    total = torch.cat([one.flatten() for one in private._steps.sums.values()])
    private.close()
    return total


@pytest.mark.parametrize("clipping", ["joint", "layers", "automatic"])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e10, 1e15, 1e30, math.inf, math.nan])
def test_no_record_adds_more_than_the_clip(clipping, size):
    method = DPSGD(clip=0.5, clipping=clipping)
    visits = torch.full((1, 2, 4), size)
    visits[0, 1] += torch.tensor([0.1, -0.2, 0.3, 0.4])
    for model, inputs in (
        (Difference(), visits.reshape(1, -1)),
        (network(), torch.full((1, 6), size)),
    ):
        total = one_record(model, inputs, method)
        assert float(total.norm()) <= 0.5
        assert bool(total.isfinite().all())


@pytest.mark.parametrize("clipping", ["joint", "layers", "automatic"])
def test_a_half_precision_pass_adds_no_more_than_the_clip(clipping):
    method = DPSGD(clip=0.5, clipping=clipping)
    model = network()
    data = torch.utils.data.TensorDataset(100 * torch.randn(1, 6), torch.zeros(1, dtype=torch.long))
    private, _ = begun(model, data, batch=1, method=method)
    inputs, targets = next(iter(private.loader))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = losses(model, inputs, targets)
    private.backward(found)
    total = torch.cat([one.flatten() for one in private._steps.sums.values()])
    assert float(total.norm()) <= 0.5
    private.close()


def moves(private, model, optimizer):
    """Of every step of an epoch: whether it had no record, and what it took from the parameters."""
    before = torch.cat([one.detach().flatten() for one in model.parameters()])
    for inputs, targets in private.loader:
        none = private.loader.current.counted == 0
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        now = torch.cat([one.detach().flatten() for one in model.parameters()])
        yield none, before - now
        before = now


def test_the_noise_that_is_drawn_has_the_deviation_of_the_account():
    """Of no records the gradient is the noise: N(0, s²C²) in every entry, each step anew."""
    model = nn.Linear(40, 50)
    data = torch.utils.data.TensorDataset(torch.randn(9, 40), torch.zeros(9, dtype=torch.long))
    noise = GivenNoise(multiplier=1.7, delta=1e-3)
    private, optimizer = begun(
        model, data, seed=None, batch=3, rate=1.0, sampling_rate=1e-2, method=DPSGD(clip=0.25),
        promise=noise,
    )  # fmt: skip
    drawn = []
    for none, moved in moves(private, model, optimizer):
        if none:
            drawn.append(moved.numpy() * 3 / (1.7 * 0.25))
        if len(drawn) == 3:
            break
    values = np.concatenate(drawn)
    assert private._details.noise_multiplier == 1.7
    # a law of deviation 1: a noise that is 2% off fails
    assert stats.kstest(values, "norm").pvalue > 1e-4
    assert abs(values.std() - 1.0) < 4.5 / math.sqrt(2 * len(values))
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 4.5 / math.sqrt(len(drawn[0]))
    private.close()


@certifies(ApproximateDP)
def test_a_record_moves_sum_and_count_of_an_adaptive_clip_by_the_multiplier_together():
    """Both sums of a step, over the noise of each: a record more moves them by at most 1/s."""
    noise = 1.3
    for seed, share, clipping in (
        (0, 0.02, "joint"), (1, 0.5, "joint"), (2, 0.9, "layers"), (3, 0.02, "layers"),
    ):  # fmt: skip
        method = AdaptiveDPSGD(clip=0.7, share=share, clipping=clipping)
        clips = method.clips(["first", "second"])
        if clipping == "layers":
            # layers whose clips have moved apart: each has its own noise
            clips = replace(clips, norms=(0.2, 5.0))
        source = torch.Generator().manual_seed(seed)
        # one record by itself, shorter than the clip, at it and longer, in two layers
        sizes = torch.tensor([0.0, 0.3, 0.7, 0.7000001, 5.0, 1e20], dtype=torch.float64)
        first = torch.randn(len(sizes), 4, generator=source, dtype=torch.float64)
        second = torch.randn(len(sizes), 3, generator=source, dtype=torch.float64)
        length = (first.square().sum(1) + second.square().sum(1)).sqrt()
        first, second = first * (sizes / length)[:, None], second * (sizes / length)[:, None]
        factors = clips.factors({"first": first.square().sum(1), "second": second.square().sum(1)})
        held = method.lowered(factors)
        moved = torch.cat(
            [
                held[name][:, None] * one / clips.deviation(name, noise)
                for name, one in (("first", first), ("second", second))
            ],
            dim=1,
        )
        counted = torch.stack(
            [
                clips.whole({name: one[place : place + 1] for name, one in factors.items()})
                for place in range(len(sizes))
            ]
        )
        counted = counted / clips.count_deviation(noise)
        apart = torch.cat([moved, counted], dim=1).norm(dim=1)
        assert float(apart.max()) <= 1.0 / noise
        # nothing of the budget is left over where a record is longer than the clip
        assert float(apart[-1]) > (1.0 - 1e-5) / noise
        # a half each: a count of all would move by one
        assert counted.abs().unique().numel() == 1


def test_the_noise_of_an_adaptive_clip_is_drawn_as_it_is_accounted():
    """Of no records both sums are their noise: the gradients', and what the clip moved by."""
    model = nn.Linear(30, 20)
    data = torch.utils.data.TensorDataset(torch.randn(9, 30), torch.zeros(9, dtype=torch.long))
    method = AdaptiveDPSGD(clip=0.25, share=0.3, rate=0.01)
    private, optimizer = begun(
        model, data, seed=None, batch=100, rate=1.0, epochs=3, sampling_rate=1e-2, method=method,
        promise=GivenNoise(multiplier=1.7, delta=1e-3),
    )  # fmt: skip
    sums, counts = [], []
    clip = private.clip
    for _ in private.epochs:
        for none, moved in moves(private, model, optimizer):
            if none:
                # expected · step / (C s/√(1 − a)), and the count from C' = C exp(−η (½ + k/m − γ))
                sums.append((moved * 100 / (clip * 1.7) * math.sqrt(0.7)).numpy())
                counts.append(-math.log(private.clip / clip) / 0.01 * 100)
            clip = private.clip
    values, counted = np.concatenate(sums), np.array(counts) / (1.7 / (2 * math.sqrt(0.3)))
    assert abs(values.std() - 1.0) < 4.5 / math.sqrt(2 * len(values))
    assert len(counted) > 200
    assert stats.kstest(counted, "norm").pvalue > 1e-4
    assert abs(counted.std() - 1.0) < 4.5 / math.sqrt(2 * len(counted))
    private.close()


def test_records_come_by_coins_of_their_own():
    """400 records at q = 1/8: how many come has the variance of coins, and each comes alike."""
    model, data = network(), records(400)
    private, optimizer = begun(model, data, seed=None, batch=50, epochs=8)
    counts = np.zeros(400)
    sizes = []
    for _ in range(8):
        for piece in private.loader._pieces(range(8)):
            counts[piece.records] += 1
            sizes.append(len(piece.records))
    assert stats.chisquare(counts).pvalue > 1e-4 or counts.var() < 2 * 64 * 7 / 64
    assert abs(np.mean(sizes) - 50) < 4.5 * math.sqrt(50 * 7 / 8 / 64)
    assert 0.5 < np.var(sizes) / (50 * 7 / 8) < 1.7
    del optimizer
    private.close()


@certifies(ApproximateDP)
def test_the_account_is_that_of_the_steps_that_are_taken():
    release, _ = trained(epochs=2)
    held = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    # q = 8/24 and 6 steps of multiplier 1
    assert release.details.taken == 6
    true = subsampled_gaussian(8 / 24, NOISE.multiplier, 6)
    assert held.epsilon == true.epsilon(NOISE.delta)
    # a Gaussian that sees the record in all six is worse, in one alone better
    assert true.epsilon(NOISE.delta) < subsampled_gaussian(1.0, 1.0, 6).epsilon(NOISE.delta)
    assert true.epsilon(NOISE.delta) > subsampled_gaussian(8 / 24, 1.0, 1).epsilon(NOISE.delta)


def test_a_model_is_a_function_of_what_was_released(monkeypatch):
    seen = []

    def note(values):
        seen.append(np.array(values))
        return values

    with monkeypatch.context() as patch:
        patch.setattr(outlet, "let_out", note)
        _, first = trained(data=records())
    assert seen
    for held in seen:
        assert bool((held * FINEST == np.round(held * FINEST)).all())
    rest = iter(seen)
    inputs, targets = records().tensors
    other = torch.utils.data.TensorDataset(-3.0 * inputs, (targets + 1) % 3)
    with monkeypatch.context() as patch:
        patch.setattr(outlet, "let_out", lambda _: next(rest))
        _, second = trained(data=other)
    assert all(torch.equal(first[name], one) for name, one in second.items())
