"""Norms, sums and noise of a step: fast ones against plain ones in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit._ground.random import normals_from_words
from tacit.gradients import DPSGD, normals, products
from tacit.gradients.clipping import ROUNDING
from tacit.gradients.modules import KnownModules
from tacit.gradients.normals import released_normal_tensor
from tacit.gradients.pieces import ParameterGradients, Room
from tacit.gradients.products import LayerGradients
from tacit.gradients.publication import TOGETHER, publish_drawn, publish_tensor
from tacit.gradients.rows import ROUNDED, divided, squares, weighted
from tacit.gradients.together import norms_together, sums_together


@pytest.mark.parametrize("size", [1.0, 1e-18, 1e-21, 1e-30, 1e18, 1e25])
def test_a_squared_norm_is_true_to_its_share(size):
    source = torch.Generator().manual_seed(0)
    rows = size * torch.randn(40, 5003, generator=source)
    rows[3] = 0.0
    # one entry alone, which its part of the sum may round most
    rows[4] = 0.0
    rows[4, 7] = size
    true = rows.double().square().sum(dim=1)
    found = squares(rows)
    assert bool((found * (1.0 + ROUNDED) >= true).all())
    assert bool((found <= true * (1.0 + ROUNDED)).all())


def test_a_row_that_is_not_finite_has_no_finite_norm():
    rows = torch.ones(40, 5000)
    rows[1, 2], rows[2, 4999] = torch.inf, torch.nan
    finite = squares(rows).isfinite()
    assert finite.tolist() == [True, False, False] + [True] * 37


@pytest.mark.parametrize("size", [(7, 20_001), (40, 33_000)], ids=["one block", "several"])
def test_a_weighted_sum_is_that_of_float64(size):
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(size, generator=source)
    factors = torch.rand(size[0], generator=source, dtype=torch.float64)
    assert torch.allclose(weighted(rows, factors), factors @ rows.double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cancel", [0.0, 1e4, 1e7])
def test_products_that_are_formed_twice_add_no_more_than_their_norms(cancel, monkeypatch):
    monkeypatch.setattr(products, "FORMED", 2000)
    source = torch.Generator().manual_seed(0)
    gradients = torch.randn(3, 64, 40, generator=source)
    inputs = torch.randn(3, 64, 50, generator=source)
    # pairs of positions that cancel, up to rounding
    gradients[:, 1::2] = torch.where(torch.tensor(cancel > 0.0), -gradients[:, ::2], 1.0)
    inputs[:, ::2] += cancel
    inputs[:, 1::2] = inputs[:, ::2] + 1e-3
    layer = LayerGradients(40, 50, single=True)
    # more than twice its factors, so that they are kept
    monkeypatch.setattr(products, "GRAM_COST", 0)
    layer.add(gradients, inputs)
    known = layer.squared_norms()
    for place, one in enumerate(torch.eye(3, dtype=torch.float64)):
        added = layer.sums(one)
        assert float(added.square().sum()) <= float(known[place]) * (1.0 + ROUNDED)
        if not cancel:
            true = gradients[place].double().T @ inputs[place].double()
            assert torch.allclose(added, true, rtol=0, atol=1e-4)


def test_values_are_those_of_the_released_normals():
    count = normals.TOGETHER
    drawn = released_normal_tensor(count, np.random.default_rng(3))
    words = np.split(np.frombuffer(np.random.default_rng(3).bytes(16 * count), dtype="<u8"), 2)
    plain = normals_from_words(*words)
    assert np.abs(drawn.numpy() - plain).max() < 2.0**-47
    far = np.abs(plain) > 2.7
    assert np.array_equal(drawn.numpy()[far], plain[far])
    assert not torch.equal(released_normal_tensor(9, None), released_normal_tensor(9, None))
    assert released_normal_tensor(0, None).shape == (0,)


def test_noise_in_parts_is_noise_on_the_grid():
    count = TOGETHER + 5
    noise = torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rest = iter(noise.split(TOGETHER))
    value = torch.arange(count, dtype=torch.float64) / 7.0
    whole = publish_tensor(value, 0.3 * noise, 0.3)
    assert torch.equal(publish_drawn(value.clone(), 0.3, lambda _: next(rest)), whole)


def test_a_module_that_is_added_replaced_or_taken_is_seen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2)))
    known = KnownModules(model)

    def same():
        assert known.named() == list(model.named_modules())
        assert list(known.parameters().items()) == list(model.named_parameters())
        assert list(known.buffers().items()) == list(model.named_buffers())

    same()
    model[1].append(nn.Linear(2, 3))
    same()
    model[0] = nn.Linear(2, 2)
    same()
    # a shared one has its first name alone
    model[1][1].weight = model[0].weight
    same()
    del model[1]
    same()


@pytest.mark.parametrize("room", [0, 10**9], ids=["formed again", "kept"])
def test_a_longer_record_moves_what_others_add_by_less_than_the_clip_leaves(room: int) -> None:
    generator = torch.Generator().manual_seed(3)
    factors = [torch.randn(128, 39, width, generator=generator) for width in (96, 160)]
    # of 41 positions on products are formed otherwise
    longer = [torch.cat((one, torch.zeros(128, 2, one.shape[2])), dim=1) for one in factors]
    method = DPSGD(clip=1.0)
    found = []
    for gradients, inputs in (factors, longer):
        held = ParameterGradients((96, 160), room=Room(room))
        held.add_layer(gradients, inputs)
        found.append(held.sums(method.factors({"w": held.squared_norms()})["w"]))
    assert float((found[0] - found[1]).norm()) < ROUNDING


def test_what_is_not_on_a_half_and_what_is_are_rounded_alike():
    value = torch.arange(-4, 4, dtype=torch.float64) * 2.0**-22
    # a half of the grid 2⁻²⁰ stands among them, and a value whose doubles are wider than the grid
    for large in (0.0, 2.0**40):
        clean = torch.cat([value, torch.tensor([large, -0.0], dtype=torch.float64)])
        noise = torch.zeros(len(clean), dtype=torch.float64)
        found = publish_drawn(clean.clone(), 1.0, lambda _, held=noise: held)
        assert torch.equal(found, publish_tensor(clean, noise, 1.0))
        assert not bool(torch.signbit(found[found == 0.0]).any())


def test_small_parameters_add_up_together_as_each_does_alone():
    source = torch.Generator().manual_seed(0)
    factors = torch.rand(5, generator=source, dtype=torch.float64)
    found = {}
    for name, shape in {"wide": (40, 4), "tall": (4, 40), "norm": (6,), "one": ()}.items():
        found[name] = ParameterGradients(shape)
        if len(shape) == 2:
            sides = [torch.randn(5, 30, width, generator=source) for width in shape]
            found[name].add_layer(*sides)
        else:
            found[name].add_dense(torch.randn(5, *shape, generator=source))
    # one record of one parameter is not finite: that parameter is added up by itself
    found["bad"] = ParameterGradients((3,))
    found["bad"].add_dense(torch.tensor([[torch.inf, 1.0, 1.0]] + 4 * [[1.0, 2.0, 3.0]]))
    norms = norms_together(found)
    assert norms["bad"].isfinite().tolist() == [False] + 4 * [True]
    sums = sums_together(found, dict.fromkeys(found, factors))
    assert list(sums) == list(found)
    for name, one in found.items():
        rows = one.dense()
        if name == "bad":
            rows = torch.cat([torch.zeros(1, 3), rows[1:]]).double()
        true = torch.tensordot(factors, rows.double(), dims=1)
        assert sums[name].shape == true.shape
        assert torch.allclose(sums[name], true, rtol=0, atol=1e-12)
        keep = norms[name].isfinite()
        assert bool((norms[name] >= rows.reshape(5, -1).square().sum(dim=1))[keep].all())


def test_a_use_of_the_other_orientation_is_added_as_it_stands():
    source = torch.Generator().manual_seed(0)
    gradients, inputs = torch.randn(3, 30, 40, generator=source), torch.randn(3, 30, 4)
    rows = torch.randn(3, 40, 4, generator=source)
    true = torch.bmm(gradients.double().mT, inputs.double()) + rows.double()
    for first in (True, False):
        held = ParameterGradients((40, 4))
        if first:
            held.add_layer(gradients, inputs)
        held.add_dense(rows)
        if not first:
            held.add_dense(torch.bmm(inputs.mT, gradients), swapped=True)
        assert torch.allclose(held.dense(), true, rtol=0, atol=1e-4)
        assert torch.allclose(held.sums(torch.ones(3)), true.sum(dim=0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("count", [7, 2**15 + 3])
def test_a_quotient_is_rounded_once(count):
    values = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(divided(values, 3.7, torch.float32), (values / 3.7).float())
