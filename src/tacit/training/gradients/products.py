"""Rules of functions that multiply by a parameter or look rows of it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.training.gradients.contributions import (
    ConvolutionFactors,
    Dense,
    EmbeddingFactors,
    LinearFactors,
)
from tacit.training.gradients.recorder import Recorder
from tacit.training.gradients.uses import Kept, add_factors, named

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
    batch, whole = recorder.batch, inputs.shape[0] if inputs.ndim else 0
    flat = inputs.ndim == 2 and whole > 0 and whole % batch == 0
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
    output = call(inputs, weight, bias)
    kept, what = Kept(inputs), named(recorder, of_weight, of_bias)

    def receive(gradient: Tensor) -> None:
        rows = gradient.reshape(batch, -1, gradient.shape[-1])
        if of_weight is not None:
            features = kept.get(what)
            features = features.reshape(batch, -1, features.shape[-1]).to(rows.dtype)
            use = LinearFactors(features, rows, transposed)
            add_factors(recorder, of_weight, use, features, rows)
        if of_bias is not None:
            recorder.add(of_bias, Dense(rows.sum(dim=1), tuple(gradient.shape[-1:])))

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
    dimensions = weight.ndim - 2
    if not recorder.has_rows(input) or recorder.key(input) is not None or input.ndim != weight.ndim:
        return NotImplemented
    call = {count: function for function, count in KERNEL_DIMENSIONS.items()}[dimensions]
    steps, gaps = _each(stride, dimensions), _each(dilation, dimensions)
    margins = _margins(padding, weight.shape[2:], gaps)
    if margins is None:
        return NotImplemented
    of_weight, of_bias = recorder.key(weight), recorder.key(bias)
    output = call(input, weight, bias, steps, margins, gaps, groups)
    kept, what, shape = Kept(input), named(recorder, of_weight, of_bias), tuple(weight.shape)

    def receive(gradient: Tensor) -> None:
        if of_weight is not None:
            features = kept.get(what).to(gradient.dtype)
            use = ConvolutionFactors(features, gradient, shape, steps, margins, gaps, groups)
            add_factors(recorder, of_weight, use, features, gradient)
        if of_bias is not None:
            sums = gradient.flatten(2).sum(dim=2)
            recorder.add(of_bias, Dense(sums, (shape[0],)))

    return recorder.watch(output, receive, what)


def _each(value: Any, dimensions: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dimensions if len(values) == 1 else values


def _margins(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int] | None:
    """Return the padding of each side in numbers, None where the sides differ."""
    if padding == "valid":
        return [0] * len(kernel)
    if padding == "same":
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
            f"model: {named(recorder, key)} is an embedding with {option}, which mixes examples"
        )
    if not recorder.has_rows(input) or key is None:
        return NotImplemented
    output = functional.embedding(input, weight, padding_idx)
    indices, (count, width) = input.reshape(recorder.batch, -1), weight.shape
    padding = -1 if padding_idx is None else padding_idx % count

    def receive(gradient: Tensor) -> None:
        rows = gradient.reshape(recorder.batch, -1, width)
        use = EmbeddingFactors(indices, rows, count, padding)
        add_factors(recorder, key, use, rows)

    return recorder.watch(output, receive, named(recorder, key))
