"""Rules of normalisations, whose parameters scale and shift."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.training.gradients.contributions import Dense
from tacit.training.gradients.recorder import Recorder
from tacit.training.gradients.uses import Kept, named


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
    if torch.is_autocast_enabled(input.device.type):
        input = input.float()
    # what functional.group_norm calls, which keeps the statistics to itself
    output, mean, rstd = torch.native_group_norm(
        input.contiguous(), weight, bias, batch, channels, positions, num_groups, eps
    )
    kept, what = Kept(input), named(recorder, *keys)
    mean, rstd = mean.detach().view(1, -1), rstd.detach().view(1, -1)

    def receive(gradient: Tensor) -> None:
        features = kept.get(what)
        # examples side by side as the channels of one: a sum over examples has one term
        side_by_side = (1, batch * channels, positions)
        _, scales, shifts = torch.ops.aten.native_group_norm_backward(
            gradient.reshape(side_by_side), features.reshape(side_by_side), mean, rstd,
            features.new_ones(batch * channels), 1, batch * channels, positions,
            batch * num_groups, [False, True, True],
        )  # fmt: skip
        for key, sums in zip(keys, (scales, shifts), strict=True):
            if key is not None:
                recorder.add(key, Dense(sums.view(batch, channels), (channels,)))

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
    kept, what, shape = Kept(input), named(recorder, *keys), tuple(like.shape)

    def receive(gradient: Tensor) -> None:
        if keys[0] is not None:
            scaled = gradient * plain(kept.get(what)).to(gradient.dtype)
            recorder.add(keys[0], Dense(_summed(scaled, shape), shape))
        if keys[1] is not None:
            recorder.add(keys[1], Dense(_summed(gradient, shape), shape))

    return recorder.watch(output, receive, what)


def _summed(values: Tensor, shape: Sequence[int]) -> Tensor:
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
    if training or running_mean is None:
        raise ValueError(
            f"model: {named(recorder, *keys)} belongs to a batch norm, which mixes examples"
        )
    if not recorder.has_rows(input) or recorder.key(input) is not None:
        return NotImplemented
    output = functional.batch_norm(
        input, running_mean, running_var, weight, bias, False, momentum, eps
    )
    kept, what, shape = Kept(input), named(recorder, *keys), (input.shape[1],)

    def receive(gradient: Tensor) -> None:
        plain = functional.batch_norm(
            kept.get(what), running_mean, running_var, None, None, False, momentum, eps
        )
        for key, values in zip(keys, (gradient * plain, gradient), strict=True):
            if key is not None:
                sums = values.reshape(*values.shape[:2], -1).sum(dim=2)
                recorder.add(key, Dense(sums, shape))

    return recorder.watch(output, receive, what)
