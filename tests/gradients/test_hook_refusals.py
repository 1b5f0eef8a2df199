"""What per-example gradients are refused for, in one sentence, with nothing left behind."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from tacit.gradients import LinearHooks, check_gradients


class Scaled(nn.Linear):
    def forward(self, values):
        return 2 * super().forward(values)


class Tied(nn.Module):
    """A vocabulary's embedding that is also the last layer's weight."""

    def __init__(self, *, shared):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        if shared:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def losses_of(outputs):
    return outputs.square().flatten(1).sum(dim=1)


@contextlib.contextmanager
def refused(message, *modules):
    """Expect a message of one line, and no hook or frozen parameter left behind."""
    with pytest.raises(ValueError, match=message) as caught:
        yield
    assert "\n" not in str(caught.value)
    for module in modules:
        assert not module._forward_hooks
        assert all(one.requires_grad for one in module.parameters())


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: nn.Conv2d(1, 1, 1), "Conv2d"),
        (lambda: nn.Embedding(3, 2), "Embedding"),
        (lambda: Scaled(3, 2), "Scaled"),
        (lambda: parametrizations.weight_norm(nn.Linear(3, 2)), "ParametrizedLinear"),
        (lambda: nn.ReLU(), "ReLU"),
        (lambda: nn.Linear(3, 2).weight, "Parameter"),
    ],
)
def test_what_is_not_a_linear_layer(build, named):
    with refused(f"modules: expected torch.nn.Linear .* at one, got {named}"):
        LinearHooks({"one": build()})


def test_a_replaced_forward():
    layer = nn.Linear(3, 2)
    layer.forward = lambda values: values
    with refused("got one whose forward was replaced"):
        LinearHooks({"one": layer})


def test_names():
    with refused("at least one layer, got none"):
        LinearHooks({})
    with refused("names that no bias has, got one.bias"):
        LinearHooks({"one": nn.Linear(2, 2), "one.bias": nn.Linear(2, 2)})


def test_layers_that_share_a_weight():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    with refused("got first and second tied"):
        LinearHooks({"first": first, "second": second})
    with refused("got first and again tied"):
        LinearHooks({"first": first, "again": first})


def test_a_weight_that_another_module_has_too():
    model = Tied(shared=True)
    with refused("own at head, got one that is tied to embedding"):
        LinearHooks({"head": model.head}, model=model)
    LinearHooks({"head": Tied(shared=False).head})


def test_a_weight_that_was_tied_after_the_first_look():
    model = Tied(shared=False)
    hooks = LinearHooks({"head": model.head}, model=model)
    model.head.weight = model.embedding.weight
    with refused("tied to embedding", model.head), hooks:
        pass


def test_the_head_of_a_language_model():
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=5, n_embd=4, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    )
    with refused("at head, got one that is tied to transformer.wte"):
        LinearHooks({"head": model.lm_head}, model=model)


def test_a_layer_of_another_model():
    with refused("expected layers of the model, got first"):
        LinearHooks({"first": nn.Linear(3, 2)}, model=nn.Sequential(nn.Linear(3, 2)))


def test_batch_normalisation_in_training_mode():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with refused("do not depend on each other, got BatchNorm1d in training mode at 1"):
        LinearHooks({"first": model[0]}, model=model)
    hooks = LinearHooks({"first": model[0]}, model=model.eval())
    model.train()
    with refused("BatchNorm1d", model[0]), hooks:
        pass


def test_replicas():
    layer = nn.Linear(3, 2)
    with refused("got DataParallel around it"):
        LinearHooks({"layer": layer}, model=nn.DataParallel(layer))
    replica = layer._replicate_for_data_parallel()
    replica.weight, replica.bias = layer.weight.clone(), layer.bias.clone()
    with refused("got a replica of it", layer), LinearHooks({"layer": layer}):
        # it has the hooks of its original
        assert replica._forward_hooks
        replica(torch.ones(2, 3))


def test_a_layer_that_is_not_used():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    hooks = LinearHooks({"first": model[0], "second": model[1]}, model=model)
    with refused(r"through every layer, got none at second \(1 of 2;", model[1]), hooks:
        hooks.backward(losses_of(model[0](torch.ones(4, 3))))
    with refused("got none at first"):
        _ = hooks.squared_norms


def test_reentrant_checkpoints_of_inputs_without_a_gradient():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    hooks = LinearHooks({"first": model[0], "last": model[1]}, model=model)
    inputs = torch.ones(4, 3)
    with pytest.warns(UserWarning, match="None of the inputs"), refused("none at first"), hooks:
        hooks.backward(losses_of(model[1](checkpoint(model[0], inputs, use_reentrant=True))))


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (torch.mean, r"one loss per example, shape \(B,\), got shape \(\)"),
        (lambda found: found[:, None], r"got shape \(4, 1\)"),
        (lambda found: found[:0], r"got shape \(0,\)"),
        (lambda found: found[:3], "of 3 losses, got 4 at layer"),
        (lambda found: found.detach(), "depend on a layer, got none that does"),
        (lambda found: found.tolist(), r"one loss per example, shape \(B,\), got list"),
    ],
)
def test_losses_that_are_not_one_per_example(turn, message):
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    with refused(message, layer), hooks:
        hooks.backward(turn(losses_of(layer(torch.ones(4, 3)))))


def test_a_first_dimension_that_is_not_the_batch():
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    for inputs in (torch.ones(5, 4, 3), torch.ones(20, 3)):
        with refused("first dimension is the batch, of 4 losses, got", layer), hooks:
            hooks.backward(layer(inputs).reshape(5, 4, 2).sum(dim=(0, 2)))
    with refused(r"batch at layer, got shape \(3,\)", layer), hooks:
        hooks.backward(layer(torch.ones(3)))


def test_layers_that_disagree_on_the_batch():
    model = nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 2)])
    hooks = LinearHooks({"first": model[0], "last": model[1]})
    with refused("got 4 at last and 20 at first", model[0]), hooks:
        middle = model[0](torch.ones(20, 3)).reshape(4, 5, 2)
        hooks.backward(losses_of(model[1](middle)))


def test_uses_that_disagree_on_the_batch():
    layer = nn.Linear(3, 3)
    hooks = LinearHooks({"layer": layer})
    with refused("got 4 at layer and 20 at layer", layer), hooks:
        middle = layer(torch.ones(20, 3)).reshape(4, 5, 3)
        hooks.backward(losses_of(layer(middle)))


def test_gradients_that_are_not_finite():
    model = nn.Linear(3, 2)
    inputs = torch.zeros(4, 3)
    hooks = LinearHooks({"layer": model})
    with hooks:
        # finite at zero, and its slope is not
        hooks.backward((model(inputs) * 0).sqrt().sum(dim=1))
    assert torch.isinf(hooks.squared_norms["layer"]).all()
    assert torch.equal(hooks.sums(torch.ones(4))["layer"], torch.zeros(2, 3).double())


def test_two_backward_passes():
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    with refused("one backward pass per entry, got a second at layer", layer), hooks:
        for _ in range(2):
            losses_of(layer(torch.ones(4, 3))).sum().backward()
    with hooks:
        hooks.backward(losses_of(layer(torch.ones(4, 3))))


def test_a_layer_that_two_reentrant_checkpoints_use():
    layer = nn.Linear(3, 3)
    inputs = torch.ones(4, 3, requires_grad=True)
    hooks = LinearHooks({"layer": layer})
    with refused("take use_reentrant=False", layer), hooks:
        middle = checkpoint(layer, inputs, use_reentrant=True)
        hooks.backward(losses_of(checkpoint(layer, middle, use_reentrant=True)))
    with hooks:
        middle = checkpoint(layer, inputs, use_reentrant=False)
        hooks.backward(losses_of(checkpoint(layer, middle, use_reentrant=False)))
    losses_of(layer(layer(inputs))).sum().backward()
    assert torch.allclose(hooks.sums(torch.ones(4))["layer"].float(), layer.weight.grad)


def test_a_backward_pass_of_an_earlier_entry():
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    with hooks:
        early = losses_of(layer(torch.ones(4, 3)))
    with refused("got a backward pass through an earlier one", layer), hooks:
        hooks.backward(early)


def test_an_entry_inside_an_entry():
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    with refused("got a second inside it", layer), hooks, hooks:
        pass


def test_inputs_that_change_before_the_sums_are_read():
    layer = nn.Linear(3, 2)
    inputs = torch.ones(4, 3)
    hooks = LinearHooks({"layer": layer})
    with hooks:
        found = losses_of(layer(inputs))
        inputs.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            hooks.backward(found)
    with hooks:
        hooks.backward(losses_of(layer(inputs)))
    inputs.add_(1.0)
    with refused("got a tensor that was written to"):
        hooks.sums(torch.ones(4))


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        (torch.ones(3), r"expected shape \(4,\) at layer, got \(3,\)"),
        (torch.ones(4, 1), r"got \(4, 1\)"),
        (torch.tensor([1.0, 1.0, float("inf"), 1.0]), "expected finite numbers"),
        ({"layer": torch.ones(4)}, "got layer.bias amiss"),
    ],
)
def test_coefficients(coefficients, message):
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(losses_of(layer(torch.ones(4, 3))))
    with refused(f"coefficients: .*{message}", layer):
        hooks.sums(coefficients)


def test_the_comparison_with_autograd_passes_where_all_is_well():
    torch.manual_seed(0)
    model = nn.Sequential(Conv1D(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
    model[2].weight.grad = torch.ones(3, 3)
    inputs, state = torch.randn(4, 6, 3), torch.get_rng_state()
    hooks = LinearHooks({"first": model[0], "last": model[2]}, model=model)
    check_gradients(hooks, lambda: losses_of(model(inputs)), example=2, tolerance=1e-6)
    assert torch.equal(model[2].weight.grad, torch.ones(3, 3))
    assert model[0].weight.grad is model[2].bias.grad is None
    assert torch.equal(state, torch.get_rng_state())
    with refused("example: expected an integer <= 3"):
        check_gradients(hooks, lambda: losses_of(model(inputs)), example=4)


def test_the_comparison_finds_a_weight_that_is_used_elsewhere():
    model = Tied(shared=False)
    tokens = torch.arange(4)[:, None]
    hooks = LinearHooks({"head": model.head}, model=model)

    def run():
        return losses_of(model(tokens)) + model.head.weight[0].sum()

    with refused("to be those of its layer at head", model.head):
        check_gradients(hooks, run)


def test_the_comparison_finds_examples_that_depend_on_each_other():
    layer = nn.Linear(3, 2)
    hooks = LinearHooks({"layer": layer})
    inputs = torch.eye(3)
    with refused("got the loss of example 1 with a gradient of example 0 at layer", layer):
        check_gradients(hooks, lambda: layer(inputs).softmax(dim=0)[:, 0], example=1)
    # as many positions as examples, in the wrong order
    square = torch.randn(3, 3, 3)
    with refused("with a gradient of example 1 at layer", layer):
        check_gradients(hooks, lambda: layer(square).sum(dim=(0, 2)))
