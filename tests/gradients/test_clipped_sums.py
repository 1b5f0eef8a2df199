"""What one clipped record adds to a sum is at most C, whatever the record and its company."""

import math

import pytest
import torch
from torch import nn

from tacit.gradients.hooks import LinearHooks
from tacit.gradients.methods import DPSGD
from tacit.gradients.products import BiasGradients, LayerGradients

# (out, in, positions): as factors and as products, narrow inputs and narrow outputs
KINDS = [(8, 6, 1), (64, 64, 2), (64, 64, 20), (96, 40, 3), (6, 80, 30)]
CLIP = 1.0
# by which clipping to C may be off in float64
CLOSE = 1e-6


def adversarial(count, positions, out, width, seed):
    """Records whose positions cancel, of every size a float32 has, or not finite."""
    source = torch.Generator().manual_seed(seed)
    gradients = torch.randn(count, positions, out, generator=source)
    inputs = torch.randn(count, positions, width, generator=source)
    for place in range(count):
        size = 10 ** (float(torch.rand((), generator=source)) * 16)
        kind = place % 8
        if kind < 3 and positions > 1:
            direction = size * torch.randn(width, generator=source)
            gradients[place, 1] = gradients[place, 0] * (1e-6 if kind == 2 else 1)
            gradients[place, 0] = gradients[place, 1]
            inputs[place, 0] += direction
            inputs[place, 1] -= direction
        elif kind == 3:
            gradients[place] *= 10 ** (float(torch.rand((), generator=source)) * 70 - 40)
        elif kind == 4:
            inputs[place], gradients[place] = inputs[place] * 1e30, gradients[place] * 1e-30
        elif kind == 5:
            inputs[place, 0, 0] = math.nan if size > 1e8 else math.inf
        elif kind == 6:
            gradients[place] *= 1e-42
        else:
            gradients[place], inputs[place] = gradients[place] * 1e30, inputs[place] * 1e30
    return gradients, inputs


def clipped_sum(gradients, inputs):
    layer = LayerGradients(gradients.shape[2], inputs.shape[2])
    layer.add(gradients, inputs)
    factors = DPSGD(clip=CLIP).factors({"layer": layer.squared_norms()})["layer"]
    assert torch.isfinite(factors).all()
    return layer.sums(factors).double()


def largest_change(kind, count):
    """How far any record moves the sum, alone, beside ordinary records and beside its like."""
    out, width, positions = kind
    gradients, inputs = adversarial(count, positions, out, width, seed=out + positions)
    beside = adversarial(8, positions, out, width, seed=7)
    ordinary = torch.randn(8, positions, out), torch.randn(8, positions, width)
    worst = 0.0
    for company in (None, ordinary, beside):
        before = 0.0 if company is None else clipped_sum(*company)
        for place in range(count):
            own = gradients[place : place + 1], inputs[place : place + 1]
            if company is not None:
                own = tuple(torch.cat(pair) for pair in zip(company, own, strict=True))
            moved = float((clipped_sum(*own) - before).norm())
            assert math.isfinite(moved)
            worst = max(worst, moved)
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_moves_a_sum_by_more_than_the_clip(kind):
    assert largest_change(kind, 160) <= CLIP * (1 + CLOSE)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_ten_thousand_records_moves_a_sum_by_more_than_the_clip(kind):
    assert largest_change(kind, 3_400) <= CLIP * (1 + CLOSE)


def test_the_sum_in_float32_moves_further():
    """The control: the exact norm of a record that cancels says nothing of its sum in float32."""
    gradients, inputs = torch.ones(1, 2, 8), torch.ones(1, 2, 8) / 3
    direction = 1e10 * torch.randn(8, generator=torch.Generator().manual_seed(0))
    inputs[0, 0] += direction
    inputs[0, 1] -= direction
    gradients = gradients * torch.tensor([1.0, 0.1, 1 / 3, 0.7, 1.3, 0.9, 1.1, 0.3])
    exact = (gradients.double().mT @ inputs.double()).norm()
    factor = min(1.0, CLIP / float(exact)) if exact else 1.0
    rounded = ((gradients * factor).mT @ (inputs + 0.1 * direction)).norm()
    assert float(rounded) > CLIP


@pytest.mark.parametrize(("short", "long"), [(15, 16), (4, 40), (10, 11)])
def test_positions_of_padding_change_nothing(short, long):
    """One record's length sets every record's padding: it must not choose how others are summed."""

    def padded(positions):
        source = torch.Generator().manual_seed(1)
        direction = torch.randn(20, 64, generator=source)
        gradients, inputs = torch.zeros(20, positions, 64), torch.zeros(20, positions, 64)
        gradients[:, 0] = gradients[:, 1] = torch.randn(20, 64, generator=source)
        inputs[:, 0] = 1e9 * direction
        inputs[:, 1] = -1e9 * direction * (1 + 1e-7)
        return clipped_sum(gradients, inputs)

    assert float((padded(short) - padded(long)).norm()) <= CLIP * CLOSE


def test_a_bias_leaves_out_what_is_not_finite():
    held = BiasGradients()
    rows = torch.ones(4, 2, 3)
    rows[1, 0, 0], rows[2, 1, 1], rows[3] = math.nan, math.inf, 1e38
    held.add(rows)
    squares = held.squared_norms()
    factors = DPSGD(clip=CLIP).factors({"bias": squares})["bias"]
    assert factors[1] == factors[2] == 0.0
    assert torch.isfinite(held.sums(factors)).all()
    assert float(held.sums(factors).norm()) <= 2 * CLIP * (1 + CLOSE)


def test_a_record_without_a_finite_loss_adds_nothing_anywhere():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    hooks = LinearHooks({"first": model[0], "last": model[2]}, model=model)
    rows = torch.randn(5, 3)

    def total(inputs):
        with hooks:
            hooks.backward(model(inputs).square().sum(dim=1))
        return hooks.sums(DPSGD(clip=CLIP).factors(hooks.squared_norms))

    clean, spoiled = total(rows[:4]), rows.clone()
    for wrong in (math.nan, math.inf, -math.inf):
        spoiled[4, 1] = wrong
        found = total(spoiled)
        assert all(torch.allclose(found[name], clean[name], atol=1e-7) for name in clean)
