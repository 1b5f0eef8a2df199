"""Exact per-example gradients of every kind of layer, against one example at a time."""

import copy

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tacit.gradients import per_example
from tacit.gradients.batches import frozen_parameters, trainable_parameters
from tacit.gradients.capture import record_losses
from tacit.training import noisy_coefficients
from tests.gradients.layers import CASES, case, curved
from tests.gradients.naive import (
    captured_gradients,
    naive_gradients,
    relative,
    written,
)
from tests.training.networks import resnet20

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
# Processors add up in orders of their own: 32 roundings in single precision.
PRECISION = {torch.float64: 1e-12, torch.float32: 32 * torch.finfo(torch.float32).eps}


@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("kind", PRECISION, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gram_and_gradients(name, kind, micro_batch):
    model, inputs, targets = case(name)
    expected = naive_gradients(model, curved, inputs, targets)
    model.to(kind)
    inputs = inputs.to(kind) if inputs.is_floating_point() else inputs
    found = per_example(model, curved, inputs, targets.to(kind), micro_batch=micro_batch)
    found.check()
    assert relative(found.gram, expected @ expected.T) < PRECISION[kind]
    assert (found.gram == found.gram.T).all()
    np.testing.assert_array_equal(found.squared_norms, np.diagonal(found.gram))
    assert relative(captured_gradients(model, found), expected) < PRECISION[kind]
    weights = np.random.default_rng(0).standard_normal(len(targets))
    found.weighted(weights)
    assert relative(written(model), weights @ expected) < 2 * PRECISION[kind]


def test_kinks_are_where_the_forward_pass_has_them():
    torch.manual_seed(0)
    model, inputs, targets = resnet20(), torch.randn(6, 3, 32, 32), torch.randn(6, 10)
    found = per_example(model, curved, inputs, targets)
    trained = list(model.parameters())
    losses = curved(model, inputs, targets)
    rows = [torch.autograd.grad(one, trained, retain_graph=True) for one in losses]
    flat = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    expected = flat.double().numpy()
    assert relative(found.gram, expected @ expected.T) < 1e-6
    assert relative(captured_gradients(model, found), expected) < 1e-6


@pytest.mark.parametrize("name", ["convolution 2d", "tied", "attention", "weight norm"])
def test_differences_and_noise_covariance(name):
    model, inputs, targets = case(name)
    gradients = naive_gradients(model, curved, inputs, targets)
    found = per_example(model, curved, inputs, targets)
    membership = np.random.default_rng(1).random((4, len(targets))) < 0.5
    _, design = noisy_coefficients(found.gram, membership, [0.5, 1.0, 2.0, 4.0], rng=0)
    mixing = np.where(membership, 0.0, -1.0 / len(targets))
    ours = mixing @ captured_gradients(model, found)
    expected = mixing @ gradients
    assert relative(ours, expected) < 1e-6
    within = design.covariance.to_dense()
    covariance, true = ours.T @ within @ ours, expected.T @ within @ expected
    assert relative(covariance, true) < 1e-6


LAST_LINEAR = {
    "linear", "linear of rank 3", "linear of rank 4", "class token", "positions", "weight norm",
    "tied", "twice", "encoder", "as many positions as examples", "frozen parts", "resnet20",
    "transformer",
}  # fmt: skip


@pytest.mark.parametrize("gram", ["forward", "none"])
@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("name", CASES)
def test_weighted_without_gradients(name, gram, micro_batch):
    model, inputs, targets = case(name)
    expected = naive_gradients(model, curved, inputs, targets)
    weights = np.random.default_rng(0).standard_normal(len(targets))
    if gram == "forward" and name not in LAST_LINEAR:
        with pytest.raises(ValueError, match="without a linear layer"):
            per_example(model, curved, inputs, targets, gram=gram, micro_batch=micro_batch)
        return
    found = per_example(model, curved, inputs, targets, gram=gram, micro_batch=micro_batch)
    found.check()
    found.weighted(weights)
    assert relative(written(model), weights @ expected) < 2e-6


FREE = {
    "instance norm", "transposed convolution", "class token", "sequence first", "recurrent",
    "weight norm", "uneven padding",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(CASES) - FREE))
def test_rules_cover_what_is_common(name):
    model, inputs, targets = case(name)
    assert not free_parameters(model, curved, inputs, targets)


def free_parameters(model, loss, inputs, targets):
    parameters = trainable_parameters(model)
    with frozen_parameters(parameters):
        _, recorder = record_losses(model, loss, (inputs, targets), len(targets), parameters)
    return recorder.free


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    )  # fmt: skip


def llama():
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                    num_attention_heads=2, num_key_value_heads=1)
    )  # fmt: skip


def next_tokens(model, inputs, targets):
    logits = model(input_ids=inputs, use_cache=False).logits
    flat = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view(len(targets), -1).mean(dim=1)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("length", [6, 9])
def test_language_models(make, length):
    torch.manual_seed(0)
    model = make()
    inputs, targets = torch.randint(0, 50, (2, 6, length))
    assert not free_parameters(model, next_tokens, inputs, targets)
    expected = naive_gradients(model, next_tokens, inputs, targets)
    found = per_example(model, next_tokens, inputs, targets)
    found.check()
    assert relative(found.gram, expected @ expected.T) < 1e-6
    assert relative(captured_gradients(model, found), expected) < 1e-6


def test_the_last_layer_alone_has_its_exact_gram():
    model, inputs, targets = case("linear")
    expected = naive_gradients(model, curved, inputs, targets)
    found = per_example(model, curved, inputs, targets, gram="forward")
    assert relative(found.gram, expected @ expected.T) < 1e-6


def test_the_last_layers_gram_of_a_sequence_is_close():
    model, inputs, targets = case("linear of rank 3")
    expected = naive_gradients(model, curved, inputs, targets)
    found = per_example(model, curved, inputs, targets, gram="forward")
    assert relative(found.gram, expected @ expected.T) < 1e-6


def test_half_precision():
    model, inputs, targets = case("twice")
    expected = naive_gradients(model, curved, inputs, targets)
    half = copy.deepcopy(model).bfloat16()
    found = per_example(half, curved, inputs.bfloat16(), targets.bfloat16())
    assert relative(found.gram, expected @ expected.T) < 0.05
    found.weighted(np.ones(len(targets)))
    assert all(one.grad.dtype == torch.bfloat16 for one in half.parameters())


def test_dropout_masks_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2)).double()
    inputs, targets = torch.randn(6, 4).double(), torch.randn(6, 2).double()
    state = torch.get_rng_state()
    found = per_example(model, curved, inputs, targets)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    losses = curved(model, inputs, targets)
    np.testing.assert_allclose(found.losses, losses.detach().numpy(), rtol=1e-14)
    ordinary = torch.autograd.grad(losses.sum(), list(model.parameters()))
    found.weighted(np.ones(6))
    flat = torch.cat([one.flatten() for one in ordinary]).numpy()
    assert relative(written(model), flat) < 1e-14
    assert torch.equal(after, torch.get_rng_state())


@pytest.mark.parametrize("gram", ["exact", "forward", "none"])
def test_random_layers_keep_their_masks_where_a_pass_is_repeated(gram):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 20), nn.PReLU(20), nn.Dropout(0.5), nn.Linear(20, 2))
    inputs, targets = torch.randn(6, 4), torch.randn(6, 2)
    state = torch.get_rng_state()
    found = per_example(model, curved, inputs, targets, gram=gram, micro_batch=3)
    found.weighted(np.ones(6))
    torch.set_rng_state(state)
    losses = torch.cat([curved(model, inputs[i : i + 3], targets[i : i + 3]) for i in (0, 3)])
    ordinary = torch.autograd.grad(losses.sum(), list(model.parameters()))
    flat = torch.cat([one.flatten() for one in ordinary]).double().numpy()
    assert relative(written(model), flat) < 1e-6


def test_nothing_but_gradients_is_written():
    model, inputs, targets = case("frozen parts")
    before = copy.deepcopy(model.state_dict())
    found = per_example(model, curved, inputs, targets)
    assert all(one.grad is None for one in model.parameters())
    assert [one.requires_grad for one in model.parameters()] == [False, False, False, *[True] * 3]
    found.weighted(np.ones(len(targets)))
    assert all((one.grad is None) != one.requires_grad for one in model.parameters())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_nested_inputs():
    torch.manual_seed(0)
    model = nn.Bilinear(3, 3, 2)
    pairs = {"left": torch.randn(6, 3), "right": [torch.randn(6, 3)]}
    targets = torch.randn(6, 2)

    def loss(model, inputs, targets):
        return (model(inputs["left"], inputs["right"][0]) - targets).square().mean(dim=1)

    found = per_example(model, loss, pairs, targets, micro_batch=4)
    ordinary = torch.autograd.grad(loss(model, pairs, targets).sum(), list(model.parameters()))
    found.weighted(np.ones(6))
    flat = torch.cat([one.flatten() for one in ordinary]).double().numpy()
    assert relative(written(model), flat) < 1e-6
