"""Gradients of low-rank adapters in language models, against one example at a time."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tacit.gradients import LinearHooks
from tests.gradients.models import (
    FAMILIES,
    adapted,
    batch,
    largest_error,
    losses,
    one_by_one,
    reference,
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def caught(model, layers, data):
    hooks = LinearHooks(layers, model=model)
    with hooks:
        hooks.backward(losses(model, data))
    return hooks


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_adapters_are_those_of_one_example_at_a_time(family, padded, dtype):
    data = batch(family, padded=padded)
    model, layers = adapted(family, dtype)
    found = caught(model, layers, data).gradients()
    assert largest_error(found, reference(family, data)) < TOLERANCE[dtype]
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_checkpoints_change_nothing(family, reentrant):
    data = batch(family, padded=True)
    model, layers = adapted(family, torch.float64)
    model.enable_input_require_grads()
    model.base_model.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.train()
    forwards = []
    first = next(iter(layers.values()))
    first.register_forward_hook(lambda *_: forwards.append(torch.is_grad_enabled()))
    hooks = caught(model, layers, data)
    assert forwards == [not reentrant, True]
    assert largest_error(hooks.gradients(), reference(family, data)) < 1e-12


@pytest.mark.parametrize("checkpoints", [True, False])
def test_checkpoints_keep_no_activation(checkpoints):
    model, layers = adapted("gpt2")
    if checkpoints:
        model.base_model.model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    kept = []
    layers = {name: layer for name, layer in layers.items() if "h.0." in name}
    for layer in layers.values():
        layer.register_forward_hook(
            lambda module, args, output: kept.append(StorageWeakRef(args[0].untyped_storage()))
        )
    with LinearHooks(layers):
        found = losses(model, batch("gpt2"))
        assert found.requires_grad
        assert {one.expired() for one in kept} == {checkpoints}


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_is_near_the_gradients_in_full_precision(family):
    data = batch(family, padded=True)
    model, layers = adapted(family)
    hooks = LinearHooks(layers)
    with hooks:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = losses(model, data)
        hooks.backward(found)
    gradients = hooks.gradients()
    assert {one.dtype for one in gradients.values()} == {torch.float32}
    exact = reference(family, data)

    def run(index):
        row = {name: one[index : index + 1] for name, one in data.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return losses(model, row)[0]

    plain = largest_error(one_by_one(layers, run, len(data["input_ids"])), exact)
    assert 1e-4 < largest_error(gradients, exact) < 2 * plain


def test_dropout_is_that_of_the_pass():
    model, layers = adapted("gpt2", torch.float64)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    model.train()
    data = batch("gpt2")
    torch.manual_seed(8)
    hooks = caught(model, layers, data)
    torch.manual_seed(8)
    losses(model, data).sum().backward()
    ones = torch.ones(len(data["input_ids"]))
    for name, total in hooks.sums(ones).items():
        assert torch.allclose(total, layers[name].weight.grad, rtol=1e-10, atol=1e-14)
