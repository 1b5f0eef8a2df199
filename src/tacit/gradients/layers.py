"""Rules of layers: from the gradient of an output to per-example gradients of parameters."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tacit.gradients.pieces import ParameterGradients
from tacit.gradients.products import GRAM_COST, sequences
from tacit.gradients.rules import margins
from tacit.gradients.uses import ConvolutionFactors

# Takes a layer, its input, the gradient of its output and where each parameter's gradients go.
LayerRule: TypeAlias = Callable[[Any, Tensor, Tensor, dict[str, ParameterGradients]], None]


def linear(_: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]) -> None:
    """``y = a Wᵀ + b``: ``G_i = Σ_t g_it a_itᵀ``, and ``Σ_t g_it`` of b."""
    rows, columns = sequences("a layer", gradients, inputs)
    if "weight" in into:
        into["weight"].add_layer(rows, columns)
    if "bias" in into:
        into["bias"].add_dense(rows.sum(dim=1))


def embedding(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """Rows of a table: every position adds its g to the row of its index."""
    rows = _precise(gradients).reshape(gradients.shape[0], -1, gradients.shape[-1])
    indices = inputs.expand(gradients.shape[:-1]).reshape(gradients.shape[0], -1)
    padding = -1 if module.padding_idx is None else module.padding_idx
    into["weight"].add_table(indices, rows, padding)


def scaled_embedding(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """Rows of a table times a number, as transformers scales words: trying it on examples tells."""
    embedding(module, inputs, gradients * module.embed_scale, into)


def convolution(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """A convolution: of its patches it is a linear layer with a position for each output."""
    gradients, inputs = _precise(gradients), _precise(inputs)
    if "bias" in into:
        into["bias"].add_dense(gradients.flatten(2).sum(dim=2))
    if "weight" not in into:
        return
    if module.padding_mode != "zeros":
        inputs = functional.pad(
            inputs, module._reversed_padding_repeated_twice, mode=module.padding_mode
        )
        sides: list[int] | None = [0] * len(module.kernel_size)
    else:
        sides = margins(module.padding, module.kernel_size, module.dilation)
    if sides is None:
        # "same" with an even kernel pads one more behind
        inputs = functional.pad(inputs, module._reversed_padding_repeated_twice)
        sides = [0] * len(module.kernel_size)
    shape, positions = tuple(module.weight.shape), gradients[0, 0].numel()
    # G_i is formed where it is no larger than the patches that it is made of
    small = math.prod(shape) <= GRAM_COST * positions * (math.prod(shape[1:]) + shape[0])
    if module.groups == 1 and len(module.kernel_size) <= 2 and not small:
        into["weight"].add_layer(gradients.flatten(2).mT, _patches(module, inputs, sides))
        return
    # one group for each example, in which no example meets another
    use = ConvolutionFactors(
        inputs.to(gradients.dtype),
        gradients,
        shape,
        module.stride,
        sides,
        module.dilation,
        module.groups,
    )
    into["weight"].add_dense(use.rows(0, shape[0]))


def _patches(module: Any, inputs: Tensor, sides: Sequence[int]) -> Tensor:
    """Return what the kernel sees at each position, (B, T, C · kernel)."""
    kernel, stride, gaps = module.kernel_size, module.stride, module.dilation
    if len(kernel) == 1:
        # a line is an image of height 1
        inputs = inputs.unsqueeze(2)
        kernel, stride, gaps = (1, *kernel), (1, *stride), (1, *gaps)
        sides = [0, *sides]
    if all(size == 1 for size in kernel) and not any(sides):
        # a kernel of one point sees the input itself
        return inputs[:, :, :: stride[0], :: stride[1]].flatten(2).mT
    return functional.unfold(inputs, tuple(kernel), tuple(gaps), tuple(sides), tuple(stride)).mT


def layer_norm(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """``y = w x̂ + b`` over the last dimensions: ``Σ_t g x̂`` and ``Σ_t g``."""
    shape = tuple(module.normalized_shape)
    gradients, features = _precise(gradients), _precise(inputs)
    if isinstance(module, nn.LayerNorm):
        plain = functional.layer_norm(features, shape, None, None, module.eps)
    else:
        plain = functional.rms_norm(features, list(shape), None, module.eps)
    if "weight" in into:
        into["weight"].add_dense(_over_positions(gradients * plain, len(shape)))
    if "bias" in into:
        into["bias"].add_dense(_over_positions(gradients, len(shape)))


def scaled(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """``y = w f(x) + r(x)``, entry by entry, as RMSNorm of transformers: ``Σ_t g f``."""
    shape = tuple(module.weight.shape)
    if len(shape) == 1 and inputs.dtype == torch.float32 and is_root_mean_square(module):
        # x̂ = x/rms(x): positions are weighted in their sum, and x̂ is never formed
        rows = (inputs * gradients).reshape(len(inputs), -1, shape[0])
        mean = torch.linalg.vector_norm(inputs, dim=-1).square_().div_(shape[0])
        rate = mean.add_(module.variance_epsilon).rsqrt_()
        into["weight"].add_dense(torch.bmm(rate.reshape(len(rows), 1, -1), rows)[:, 0])
        return
    # f(x) = y(w = 1) − y(w = 0); where y is not of that form, trying it on examples tells
    plain = _precise(functional_call(module, {"weight": inputs.new_ones(shape)}, (inputs,)))
    if has_rest(module, inputs):
        rest = functional_call(module, {"weight": inputs.new_zeros(shape)}, (inputs,))
        plain = plain - _precise(rest)
    into["weight"].add_dense(_over_positions(_precise(gradients) * plain, len(shape)))


def _asked_once(asked: Callable[..., bool]) -> Callable[..., bool]:
    """Keep what made-up positions show of a module: to see it, the host waits for a device."""
    known: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()

    @wraps(asked)
    def answer(module: nn.Module, *given: Tensor) -> bool:
        if module not in known:
            known[module] = asked(module, *given)
        return known[module]

    return answer


@_asked_once
def has_rest(module: Any, inputs: Tensor) -> bool:
    """Whether r of ``y = w f(x) + r(x)`` is more than nothing at one made-up position."""
    shape = tuple(module.weight.shape)
    shown = torch.linspace(-2.0, 3.0, math.prod(shape)).to(inputs).reshape(shape)
    shown = shown.expand(*[1] * (inputs.ndim - len(shape)), *shape)
    return bool(functional_call(module, {"weight": inputs.new_zeros(shape)}, (shown,)).any())


@_asked_once
def is_root_mean_square(module: Any) -> bool:
    """Whether a norm of transformers is ``w x/√(mean x² + ε)``, as made-up positions show."""
    width, small = module.weight.numel(), getattr(module, "variance_epsilon", None)
    if not isinstance(small, float):
        return False
    # positions of usual length, and of one that ε is seen at
    drawn = torch.linspace(-2.0, 3.0, width, device=module.weight.device)
    shown = torch.stack([drawn, drawn * small**0.5])[None]
    made = functional_call(module, {"weight": drawn}, (shown,))
    plain = functional.rms_norm(shown, [width], drawn, small)
    return made.shape == plain.shape and bool(torch.allclose(made, plain, rtol=1e-4, atol=1e-6))


def channel_norm(
    module: Any, inputs: Tensor, gradients: Tensor, into: dict[str, ParameterGradients]
) -> None:
    """``y = w x̂ + b`` by channel: groups of one example, or statistics that are fixed."""
    gradients, features = _precise(gradients), _precise(inputs)
    if isinstance(module, nn.GroupNorm):
        plain = functional.group_norm(features, module.num_groups, None, None, module.eps)
    else:
        plain = functional.batch_norm(
            features, module.running_mean, module.running_var, None, None, False, 0.0, module.eps
        )
    for name, values in (("weight", gradients * plain), ("bias", gradients)):
        if name in into:
            # (B, C, …) summed over all but examples and channels
            into[name].add_dense(values.reshape(*values.shape[:2], -1).sum(dim=2))


def _precise(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _over_positions(values: Tensor, kept: int) -> Tensor:
    """Sum over all dimensions but the first and the last few."""
    between = list(range(1, values.ndim - kept))
    return values.sum(dim=between) if between else values


RULES: dict[Any, LayerRule] = {
    nn.Linear.forward: linear,
    nn.Embedding.forward: embedding,
    nn.Conv1d.forward: convolution,
    nn.Conv2d.forward: convolution,
    nn.Conv3d.forward: convolution,
    nn.LayerNorm.forward: layer_norm,
    nn.RMSNorm.forward: layer_norm,
    nn.GroupNorm.forward: channel_norm,
    nn.BatchNorm2d.forward: channel_norm,
}


# How norms of transformers are called; those that are no weight times a norm are found by trying.
NORMS = ("RMSNorm", "LayerNorm")


def rule_of(module: nn.Module) -> LayerRule | None:
    """Return the rule of a layer with the forward pass of its class; None for any other."""
    # a replaced or parametrised forward computes something else
    if "forward" in vars(module) or hasattr(module, "parametrizations"):
        return None
    # so does one whose weight a hook makes of others, as the former weight_norm does
    if set(module._parameters) - {"weight", "bias"}:
        return None
    # a table that is renormalised, or whose gradients are scaled by how often others occur
    if isinstance(module, nn.Embedding) and (
        module.max_norm is not None or module.scale_grad_by_freq
    ):
        raise ValueError(
            "model: expected an embedding without max_norm and scale_grad_by_freq, which mix "
            "examples, got one with"
        )
    written: Any = sys.modules.get("transformers.pytorch_utils")
    if written is not None and type(module).forward is written.Conv1D.forward:
        return linear
    known: LayerRule | None = RULES.get(type(module).forward)
    if known is None and isinstance(module, nn.Embedding) and hasattr(module, "embed_scale"):
        return scaled_embedding
    only = [name for name, _ in module.named_parameters()]
    if type(module).__name__.endswith(NORMS) and only == ["weight"]:
        return known or scaled
    return known


def keeps_turned(module: nn.Module) -> bool:
    """Whether a layer keeps its weight as (in, out), as transformers' ``Conv1D`` does."""
    written: Any = sys.modules.get("transformers.pytorch_utils")
    return written is not None and type(module).forward is written.Conv1D.forward
