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
from tacit.gradients.rows import ROUNDED, squares, weighted


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


def test_a_weighted_sum_is_that_of_float64():
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(7, 20_001, generator=source)
    factors = torch.rand(7, generator=source, dtype=torch.float64)
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
