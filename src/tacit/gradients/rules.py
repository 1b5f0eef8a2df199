"""Rules of functions that are called with parameters: what their per-example gradients are."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.recorder import KeptInput, Recorder, Rule, add_factors, names_of
from tacit.gradients.uses import (
    ConvolutionFactors,
    DenseGradients,
    EmbeddingFactors,
    LinearFactors,
)

KERNEL_DIMENSIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}


def linear(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``y = a Wᵀ + b``."""
    return _linear(
        recorder, *_linear_arguments(*args, **kwargs), transposed=False, call=functional.linear
    )


def _linear_arguments(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return input, weight, bias


def matmul(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``y = a V``."""
    if kwargs or len(args) != 2:
        return NotImplemented
    return _linear(recorder, *args, None, transposed=True, call=lambda a, v, _: torch.matmul(a, v))


def addmm(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``y = b + a V``."""
    if kwargs or len(args) != 3 or args[0].ndim != 1:
        return NotImplemented
    bias, inputs, weight = args
    return _linear(
        recorder, inputs, weight, bias, transposed=True, call=lambda a, v, b: torch.addmm(b, a, v)
    )


def _linear(
    recorder: Recorder,
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    transposed: bool,
    call: Callable[..., Tensor],
) -> Any:
    # (B, …, in), or (B T, in) where positions were flattened into the batch
    batch, whole = recorder.batch, inputs.shape[0] if inputs.ndim else 0
    flat = inputs.ndim == 2 and whole > 0 and whole % batch == 0
    # a product of parameters alone, or with a vector, is no layer of examples
    if weight.ndim != 2 or not recorder.is_of_examples(inputs) or recorder.key(inputs) is not None:
        return NotImplemented
    if not flat and (inputs.ndim < 2 or whole != batch):
        return NotImplemented
    of_weight, of_bias = recorder.key(weight), recorder.key(bias)
    if any(
        key is None and one is not None and recorder.is_of_examples(one)
        for key, one in ((of_weight, weight), (of_bias, bias))
    ):
        return NotImplemented
    # y, with parameters frozen
    output = call(inputs, weight, bias)
    kept, what = KeptInput(inputs), names_of(recorder, of_weight, of_bias)

    def receive(gradient: Tensor) -> None:
        # g, (B, T, out)
        rows = gradient.reshape(batch, -1, gradient.shape[-1])
        if of_weight is not None:
            # a, (B, T, in): J_i = Σ_t g_it a_itᵀ
            features = kept.get(what)
            features = features.reshape(batch, -1, features.shape[-1]).to(rows.dtype)
            use = LinearFactors(features, rows, transposed)
            add_factors(recorder, of_weight, use, features, rows)
        if of_bias is not None:
            # ∂ℓ_i/∂b = Σ_t g_it
            recorder.add(of_bias, DenseGradients(rows.sum(dim=1), tuple(gradient.shape[-1:])))

    return recorder.watch(output, receive, what)


def convolution(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convolve in any number of dimensions, with stride, padding, dilation and groups."""
    return _convolution(recorder, *args, **kwargs)


def _convolution(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    # one, two or three of them
    dimensions = weight.ndim - 2
    if not recorder.has_rows(input) or recorder.key(input) is not None or input.ndim != weight.ndim:
        return NotImplemented
    call = {count: function for function, count in KERNEL_DIMENSIONS.items()}[dimensions]
    steps, gaps = _each(stride, dimensions), _each(dilation, dimensions)
    # padding that differs by side has no backward function here
    sides = margins(padding, weight.shape[2:], gaps)
    if sides is None:
        return NotImplemented
    of_weight, of_bias = recorder.key(weight), recorder.key(bias)
    output = call(input, weight, bias, steps, sides, gaps, groups)
    kept, what, shape = (
        KeptInput(input),
        names_of(recorder, of_weight, of_bias),
        tuple(weight.shape),
    )

    def receive(gradient: Tensor) -> None:
        if of_weight is not None:
            features = kept.get(what).to(gradient.dtype)
            # a and g are kept: J is a convolution of the two
            use = ConvolutionFactors(features, gradient, shape, steps, sides, gaps, groups)
            add_factors(recorder, of_weight, use, features, gradient)
        if of_bias is not None:
            # ∂ℓ_i/∂b = Σ over positions
            sums = gradient.flatten(2).sum(dim=2)
            recorder.add(of_bias, DenseGradients(sums, (shape[0],)))

    return recorder.watch(output, receive, what)


def _each(value: Any, dimensions: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dimensions if len(values) == 1 else values


def margins(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int] | None:
    """Return the padding of each side in numbers, None where the sides differ."""
    if padding == "valid":
        return [0] * len(kernel)
    if padding == "same":
        # "same" pads d (k − 1) in all, half of it on each side
        whole = [gap * (size - 1) for gap, size in zip(dilation, kernel, strict=True)]
        return None if any(total % 2 for total in whole) else [total // 2 for total in whole]
    return _each(padding, len(kernel))


def embedding(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Look up rows of a table."""
    return _embedding(recorder, *args, **kwargs)


def _embedding(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    scale_grad_by_freq: bool = False,
    **_: Any,
) -> Any:
    key = recorder.key(weight)
    if max_norm is not None or scale_grad_by_freq:
        option = "scale_grad_by_freq" if scale_grad_by_freq else "max_norm"
        raise ValueError(
            f"model: {names_of(recorder, key)} is an embedding with {option}, which mixes examples"
        )
    if not recorder.has_rows(input) or key is None:
        return NotImplemented
    output = functional.embedding(input, weight, padding_idx)
    # what is looked up, by example
    indices, (count, width) = input.reshape(recorder.batch, -1), weight.shape
    padding = -1 if padding_idx is None else padding_idx % count

    def receive(gradient: Tensor) -> None:
        rows = gradient.reshape(recorder.batch, -1, width)
        # g of a position belongs to the row of its index
        use = EmbeddingFactors(indices, rows, count, padding)
        add_factors(recorder, key, use, rows)

    return recorder.watch(output, receive, names_of(recorder, key))


def group_norm(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise groups of channels of every example."""
    return _group_norm(recorder, *args, **kwargs)


def _group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if not recorder.has_rows(input) or recorder.key(input) is not None:
        return NotImplemented
    keys = recorder.key(weight), recorder.key(bias)
    (batch, channels), positions = input.shape[:2], input[0, 0].numel()
    # autocast runs the norm in float32
    if torch.is_autocast_enabled(input.device.type):
        input = input.float()
    # what functional.group_norm calls, which keeps the statistics to itself
    output, mean, rstd = torch.native_group_norm(
        input.contiguous(), weight, bias, batch, channels, positions, num_groups, eps
    )
    kept, what = KeptInput(input), names_of(recorder, *keys)
    # statistics of each example's groups, no other example in them
    mean, rstd = mean.detach().view(1, -1), rstd.detach().view(1, -1)

    def receive(gradient: Tensor) -> None:
        features = kept.get(what)
        # examples side by side as the channels of one: a sum over examples has one term
        side_by_side = (1, batch * channels, positions)
        _, scales, shifts = torch.ops.aten.native_group_norm_backward(
            gradient.reshape(side_by_side),
            features.reshape(side_by_side),
            mean,
            rstd,
            features.new_ones(batch * channels),
            1,
            batch * channels,
            positions,
            batch * num_groups,
            [False, True, True],
        )
        for key, sums in zip(keys, (scales, shifts), strict=True):
            if key is not None:
                # ∂ℓ_i/∂w = Σ_t g x̂, ∂ℓ_i/∂b = Σ_t g, by channel
                recorder.add(key, DenseGradients(sums.view(batch, channels), (channels,)))

    return recorder.watch(output, receive, what)


def layer_norm(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Normalise the last dimensions."""
    return _layer_norm(recorder, *args, **kwargs)


def _layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    def plain(features: Tensor) -> Tensor:
        # x̂, without w and b
        return functional.layer_norm(features, normalized_shape, None, None, eps)

    output = functional.layer_norm(input, normalized_shape, weight, bias, eps)
    return _by_last_dimensions(recorder, input, weight, bias, output, plain)


def rms_norm(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Scale the last dimensions to root mean square 1."""
    return _rms_norm(recorder, *args, **kwargs)


def _rms_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    shape = list(normalized_shape)

    def plain(features: Tensor) -> Tensor:
        # x̂ = x / rms(x)
        return functional.rms_norm(features, shape, None, eps)

    output = functional.rms_norm(input, shape, weight, eps)
    return _by_last_dimensions(recorder, input, weight, None, output, plain)


def _by_last_dimensions(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output: Tensor,
    plain: Callable[[Tensor], Tensor],
) -> Any:
    """Watch ``y = w x̂ + b`` where w and b have the shape of the last dimensions."""
    like = weight if weight is not None else bias
    if like is None or not recorder.has_rows(input) or recorder.key(input) is not None:
        return NotImplemented
    if input.ndim <= like.ndim:
        return NotImplemented
    keys = recorder.key(weight), recorder.key(bias)
    kept, what, shape = KeptInput(input), names_of(recorder, *keys), tuple(like.shape)

    def receive(gradient: Tensor) -> None:
        if keys[0] is not None:
            # ∂ℓ/∂w = Σ_t g x̂
            scaled = gradient * plain(kept.get(what)).to(gradient.dtype)
            recorder.add(keys[0], DenseGradients(_sum_positions(scaled, shape), shape))
        if keys[1] is not None:
            recorder.add(keys[1], DenseGradients(_sum_positions(gradient, shape), shape))

    return recorder.watch(output, receive, what)


def _sum_positions(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the sum over the positions of each example, (B, entries of ``shape``)."""
    return values.reshape(values.shape[0], -1, math.prod(shape)).sum(dim=1)


def batch_norm(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Shift and scale channels by fixed statistics; statistics of the batch are refused."""
    return _batch_norm(recorder, *args, **kwargs)


def _batch_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    keys = recorder.key(weight), recorder.key(bias)
    # statistics of the batch make every example's loss depend on the others
    if training or running_mean is None:
        raise ValueError(
            f"model: {names_of(recorder, *keys)} belongs to a batch norm, which mixes examples"
        )
    if not recorder.has_rows(input) or recorder.key(input) is not None:
        return NotImplemented
    output = functional.batch_norm(
        input, running_mean, running_var, weight, bias, False, momentum, eps
    )
    kept, what, shape = KeptInput(input), names_of(recorder, *keys), (input.shape[1],)

    def receive(gradient: Tensor) -> None:
        # x̂ by the fixed statistics: an affine map of each example alone
        plain = functional.batch_norm(
            kept.get(what), running_mean, running_var, None, None, False, momentum, eps
        )
        for key, values in zip(keys, (gradient * plain, gradient), strict=True):
            if key is not None:
                # ∂ℓ_i/∂w = Σ_t g x̂, ∂ℓ_i/∂b = Σ_t g, by channel
                sums = values.reshape(*values.shape[:2], -1).sum(dim=2)
                recorder.add(key, DenseGradients(sums, shape))

    return recorder.watch(output, receive, what)


def elementwise(function: Callable[..., Tensor]) -> Rule:
    """Return the rule of an elementwise function of two values, one of them a parameter."""

    def rule(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2:
            return NotImplemented
        first, second = recorder.key(args[0]), recorder.key(args[1])
        # of two parameters it is a derived one, of none it is nobody's
        if (first is None) == (second is None):
            return NotImplemented
        key, place = (first, 0) if first is not None else (second, 1)
        assert key is not None
        parameter, other = args[place], args[1 - place]
        if not recorder.has_rows(other):
            return NotImplemented
        # the parameter is broadcast over the leading dimensions, the batch among them
        lead = other.ndim - parameter.ndim
        if lead < 0 or (lead == 0 and parameter.shape[0] != 1):
            return NotImplemented
        output = function(*args)
        if output.shape[0] != recorder.batch:
            return NotImplemented
        kept, what = KeptInput(other), names_of(recorder, key)

        def receive(gradient: Tensor) -> None:
            # ∂y/∂θ, entry by entry
            partial = _partial(function, place, kept.get(what), parameter)
            # g ∂y/∂θ
            local = gradient if partial is None else gradient * partial
            # summed over what it was broadcast over, but the batch
            over = [*range(1, lead)]
            over += [
                lead + i for i, length in enumerate(parameter.shape) if length == 1 and lead + i > 0
            ]
            sums = local.sum(dim=over, keepdim=True) if over else local
            recorder.add(
                key, DenseGradients(sums.reshape(recorder.batch, -1), tuple(parameter.shape))
            )

        return recorder.watch(output, receive, what)

    return rule


def _partial(
    function: Callable[..., Tensor], place: int, other: Tensor, parameter: Tensor
) -> Tensor | None:
    """Return ∂ function / ∂ parameter, None for 1."""
    # ∂(x + θ)/∂θ = 1
    if function is torch.add or (function is torch.sub and place == 0):
        return None
    # ∂(x θ)/∂θ = x
    if function is torch.mul:
        return other
    # ∂(x − θ)/∂θ = −1
    if function is torch.sub:
        return torch.full((), -1.0, dtype=parameter.dtype, device=parameter.device)
    # ∂(θ/x)/∂θ = 1/x, ∂(x/θ)/∂θ = −x/θ²
    return 1 / other if place == 0 else -other / parameter**2


def self_attention(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Self-attention with one joint projection: its two projections are linear layers."""
    call = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    given = call.arguments
    # one tensor for queries, keys and values, sequence first
    values, width = given["query"], given["embed_dim_to_check"]
    if (
        given["key"] is not values
        or given["value"] is not values
        or given.get("use_separate_proj_weight", False)
        or given["bias_k"] is not None
        or values.ndim != 3
        or values.shape[1] != recorder.batch
        or not recorder.is_of_examples(values)
        or recorder.key(values) is not None
    ):
        return NotImplemented

    def project(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # the rule of a linear layer reads examples first
        rows = states.transpose(0, 1)
        recorder.start_from(rows)
        found: Tensor = linear(recorder, (rows, weight, bias), {})
        return found.transpose(0, 1)

    # Q, K and V of one product
    joint = project(values, given["in_proj_weight"], given["in_proj_bias"])
    # a product with the identity is exact
    same = torch.eye(width, dtype=values.dtype, device=values.device)
    # the projections are done: attention gets identities in their place
    given |= dict(zip(("query", "key", "value"), joint.chunk(3, dim=-1), strict=True))
    given |= dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), same)
    last = given["out_proj_weight"], given["out_proj_bias"]
    given |= {"out_proj_weight": same, "out_proj_bias": None, "use_separate_proj_weight": True}
    given |= {"in_proj_weight": None, "in_proj_bias": None}
    mixed, weights = functional.multi_head_attention_forward(**given)
    return project(mixed, *last), weights


RULES: dict[Any, Rule] = {
    functional.linear: linear,
    torch.matmul: matmul,
    Tensor.matmul: matmul,
    torch.addmm: addmm,
    functional.embedding: embedding,
    functional.multi_head_attention_forward: self_attention,
    functional.group_norm: group_norm,
    functional.layer_norm: layer_norm,
    functional.rms_norm: rms_norm,
    functional.batch_norm: batch_norm,
    **dict.fromkeys(KERNEL_DIMENSIONS, convolution),
    **dict.fromkeys((torch.add, Tensor.add), elementwise(torch.add)),
    **dict.fromkeys((torch.sub, Tensor.sub), elementwise(torch.sub)),
    **dict.fromkeys((torch.mul, Tensor.mul), elementwise(torch.mul)),
    **dict.fromkeys((torch.div, Tensor.div, torch.true_divide), elementwise(torch.div)),
}
