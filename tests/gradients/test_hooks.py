"""Gradients of single layers against plain autograd, one example at a time."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from tacit.gradients import LinearHooks
from tests.gradients.models import largest_error, one_by_one

SHAPES = {
    "rows": (5, 3),
    "one position": (5, 1, 3),
    "sequences": (5, 7, 3),
    "images": (5, 2, 4, 3),
    "long": (5, 40, 3),
}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def network(kind, *, bias, dtype, out=6):
    torch.manual_seed(0)
    first = Conv1D(out, 3) if kind == "Conv1D" else nn.Linear(3, out, bias=bias)
    if kind == "Conv1D":
        nn.init.normal_(first.bias)
        first.bias.requires_grad_(bias)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(out, 2))
    return model.to(dtype)


def squares(outputs):
    return outputs.square().flatten(1).sum(dim=1)


def compare(layers, run, inputs, hooks):
    """The error of the gradients, norms and sums beside one example at a time in float64."""
    exact = one_by_one(layers, lambda index: run(inputs[index : index + 1].double())[0], 5)
    errors = [largest_error(hooks.gradients(), exact)]
    coefficients = torch.linspace(-1, 2, 5, dtype=torch.float64)
    for name, rows in exact.items():
        norms = rows.flatten(1).square().sum(dim=1)
        assert hooks.squared_norms[name].dtype == torch.float64
        # never below, and above by 2⁻³⁵ of the square of its terms
        above = hooks.squared_norms[name] / norms - 1
        errors.append(max(float(above.max()) - 1e-8, float(-above.min())))
        expected = torch.tensordot(coefficients, rows, 1)
        wrong = hooks.sums(coefficients)[name].double() - expected
        errors.append(float(wrong.norm() / rows.norm()))
    return max(errors)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ["Linear", "Linear with bias", "Conv1D", "Conv1D with bias"])
def test_the_gradients_are_those_of_one_example_at_a_time(kind, shape, dtype):
    torch.manual_seed(1)
    inputs = torch.randn(shape, dtype=dtype)
    model = network(kind.split()[0], bias="bias" in kind, dtype=dtype)
    layers = {"first": model[0], "last": model[2]}
    hooks = LinearHooks(layers, model=model)
    with hooks:
        hooks.backward(squares(model(inputs)))
    assert hooks.names[:2] == ("first", "last")
    assert ("first.bias" in hooks.names) == ("bias" in kind)
    exact = copy.deepcopy(model).double()
    if kind.startswith("Conv1D"):
        linear = nn.Linear(3, 6).double()
        linear.weight.data, linear.bias.data = exact[0].weight.data.T, exact[0].bias.data
        linear.bias.requires_grad_("bias" in kind)
        exact[0] = linear
    again = {"first": exact[0], "last": exact[2]}
    error = compare(again, lambda row: squares(exact(row)), inputs, hooks)
    assert error < 3 * TOLERANCE[dtype] if dtype == torch.float32 else error < TOLERANCE[dtype]


@pytest.mark.parametrize("positions", [1, 2, 4, 30])
@pytest.mark.parametrize("uses", [1, 2, 3])
def test_a_layer_that_is_used_several_times_has_the_sum_of_its_uses(positions, uses):
    # factors are kept for few positions, products for many, and the uses turn one into the other
    torch.manual_seed(2)
    layer = nn.Linear(16, 16).double()
    inputs = torch.randn(5, positions, 16, dtype=torch.float64)

    def run(values):
        for _ in range(uses):
            values = layer(torch.tanh(values))
        return squares(values)

    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(run(inputs))
    assert compare({"layer": layer}, run, inputs, hooks) < 1e-12


def test_uses_of_different_lengths_are_added():
    torch.manual_seed(2)
    layer = nn.Linear(16, 16).double()
    inputs = torch.randn(5, 30, 16, dtype=torch.float64)

    def run(values):
        few = layer(values[:, :2]).sum(dim=1)
        return squares(layer(torch.tanh(values)) + layer(few)[:, None])

    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(run(inputs))
    assert compare({"layer": layer}, run, inputs, hooks) < 1e-12


def test_norms_are_right_where_the_terms_of_a_sequence_cancel():
    # G = g (x_1 + x_2)ᵀ with x_1 almost −x_2: the Gram matrix in float32 would lose every digit
    layer = nn.Linear(64, 64, bias=False)
    torch.manual_seed(3)
    first = torch.randn(2, 1, 64)
    inputs = torch.cat((first, -first * (1 + 2**-12)), dim=1)
    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(layer(inputs).sum(dim=(1, 2)))
    exact = 64 * inputs.double().sum(dim=1).square().sum(dim=1)
    found = hooks.squared_norms["layer"]
    assert (found >= exact).all()
    # (Σ_t ‖g_t‖‖x_t‖)² is 2²⁶ times as much, of which a share of 2⁻³⁵ is added
    assert torch.allclose(found, exact * (1 + 2.0**-9), rtol=1e-5, atol=0)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_what_follows_may_change_the_output_in_place(trained, bias):
    torch.manual_seed(4)
    layer = nn.Linear(3, 4, bias=bias).double()
    layer.requires_grad_(trained)
    inputs = torch.randn(5, 2, 3, dtype=torch.float64)

    def run(values):
        outputs = layer(values)
        outputs.mul_(2.0)
        outputs[:, 0].add_(1.0)
        return squares(functional.relu(outputs, inplace=True))

    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(run(inputs))
    assert compare({"layer": layer}, run, inputs, hooks) < 1e-12


def test_passes_without_a_gradient_or_a_backward_pass_do_not_matter():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).double().eval()
    inputs, others = torch.randn(2, 5, 3, dtype=torch.float64)
    layers = {"first": model[0], "last": model[2]}
    hooks = LinearHooks(layers)
    with hooks:
        with torch.no_grad():
            model(others)
        losses = squares(model(inputs))
        model(others[:2])
        with torch.inference_mode():
            model(others)
        hooks.backward(losses)
    assert compare(layers, lambda row: squares(model(row)), inputs, hooks) < 1e-12


def test_inputs_may_come_by_name_and_other_hooks_may_change_the_output():
    torch.manual_seed(6)
    layer = nn.Linear(3, 4).double()
    layer.register_forward_hook(lambda module, args, output: 3 * output)
    inputs = torch.randn(5, 2, 3, dtype=torch.float64)
    hooks = LinearHooks({"layer": layer})
    with hooks:
        hooks.backward(squares(layer(input=inputs)))
    assert compare({"layer": layer}, lambda row: squares(layer(row)), inputs, hooks) < 1e-12


def test_autocast_accumulates_in_float32():
    torch.manual_seed(7)
    layer = nn.Linear(4, 64, bias=True)
    inputs = torch.randn(5, 3000, 4)
    seen = []
    hooks = LinearHooks({"layer": layer})
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = layer(inputs)
        outputs.register_hook(seen.append)
        hooks.backward(outputs.float().tanh().flatten(1).sum(dim=1))
    (gradients,) = seen
    assert gradients.dtype == torch.bfloat16
    exact = torch.einsum("btp,btd->bpd", gradients.double(), inputs.double())
    found = hooks.gradients()
    assert found["layer"].dtype == found["layer.bias"].dtype == torch.float32
    assert float((found["layer"] - exact).norm() / exact.norm()) < 1e-6
    bias = gradients.double().sum(dim=1)
    assert float((found["layer.bias"] - bias).norm() / bias.norm()) < 1e-6


def test_modules_are_as_they_were_afterwards():
    model = network("Linear", bias=True, dtype=torch.float32)
    model[0].bias.requires_grad_(False)
    model[2].weight.grad = torch.ones(2, 6)
    names = [name for name, _ in model.named_modules()]
    before = [(name, one.requires_grad, id(one)) for name, one in model.named_parameters()]
    attributes = set(vars(model[0]))
    hooks = LinearHooks({"first": model[0], "last": model[2]})

    def unchanged():
        assert names == [name for name, _ in model.named_modules()]
        assert before == [
            (name, one.requires_grad, id(one)) for name, one in model.named_parameters()
        ]
        assert not any(module._forward_hooks or module._backward_hooks for module in model)
        assert set(vars(model[0])) == attributes
        assert model[0].weight.grad is None
        assert torch.equal(model[2].weight.grad, torch.ones(2, 6))

    with hooks:
        hooks.backward(squares(model(torch.ones(5, 3))))
    unchanged()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), hooks:
        model(torch.ones(5, 4))
    unchanged()
    with pytest.raises(ValueError, match="got none at first"):
        hooks.gradients()


def test_nothing_is_kept_from_step_to_step():
    model = network("Linear", bias=True, dtype=torch.float32)
    hooks = LinearHooks({"first": model[0], "last": model[2]})
    kept = []
    model[2].register_forward_hook(lambda module, args, output: keep(*args, output))

    def keep(*tensors):
        kept.extend(StorageWeakRef(one.untyped_storage()) for one in tensors)

    gc.disable()
    try:
        for shape in SHAPES.values():
            with hooks:
                losses = squares(model(torch.randn(shape)))
                keep(losses)
                hooks.backward(losses)
            keep(*hooks.gradients().values())
            del losses
            assert len(kept) == 7
            hooks.clear()
            assert all(one.expired() for one in kept)
            kept.clear()
    finally:
        gc.enable()
