"""The factor of every record: B_i = G_i Aᵀ, with G_i the gradient of a layer's weight at θ₀."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.specifications.engine.backbones import Backbone

BATCH = 100


def factors(
    backbone: Backbone,
    inputs: Any,
    targets: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor],
    *,
    rank: int,
    seed: int,
) -> Iterator[dict[str, Tensor]]:
    """Yield the factors of the records, a batch at a time.

    Args:
        backbone: whose layers are described.
        inputs: n of a user's.
        targets: (n, …).
        losses: of features (b, d) and targets, (b,).
        rank: r; 0 is the full space, A the identity.
        seed: of A, shared by everyone who is to be compared.

    Returns:
        Layer to (b, m, r): Σ_t g_t (A a_t)ᵀ over places or tokens t.
    """
    modules = dict(backbone.module.named_modules())
    layers = {name: modules[name] for name in backbone.layers}
    prepared = backbone.prepare(inputs)
    for part, wanted in zip(prepared.split(BATCH), targets.split(BATCH), strict=True):
        given, outputs, features = _forward(backbone.module, layers, part)
        gradients = torch.autograd.grad(losses(features, wanted).sum(), list(outputs.values()))
        yield {
            name: _factor(_seen(layer, given[name], rank, seed, name), gradient)
            for (name, layer), gradient in zip(layers.items(), gradients, strict=True)
        }


def projection(name: str, rank: int, width: int, seed: int) -> Tensor:
    """Return A of a layer, (r, width), entries N(0, 1/r), from NumPy's PCG64."""
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    drawn = rng.standard_normal((rank, width)) / rank**0.5
    return torch.from_numpy(drawn.astype(np.float32))


def _forward(
    module: nn.Module, layers: dict[str, nn.Module], part: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Run the network, its graph beginning at the first described layer's output."""
    given: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def watch(name: str) -> Callable[..., Tensor]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            given[name] = inputs[0].detach()
            outputs[name] = output if output.requires_grad else output.detach().requires_grad_()
            return outputs[name]

        return hook

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        features = module(part)
    finally:
        for handle in handles:
            handle.remove()
    return given, outputs, features


def _seen(layer: nn.Module, given: Tensor, rank: int, seed: int, name: str) -> Tensor:
    """Return A a, (n, t, r), at every place or token t."""
    if isinstance(layer, nn.Conv2d):
        shape = tuple(layer.weight.shape[1:])
        width = int(np.prod(shape))
        rows = projection(name, rank, width, seed) if rank else torch.eye(width)
        return torch.nn.functional.conv2d(
            given, rows.view(-1, *shape), stride=layer.stride, padding=layer.padding,
            dilation=layer.dilation,
        ).flatten(2).transpose(1, 2)  # fmt: skip
    seen = given @ projection(name, rank, given.shape[-1], seed).T if rank else given
    return seen if seen.ndim == 3 else seen[:, None]


def _factor(seen: Tensor, gradient: Tensor) -> Tensor:
    if gradient.ndim == 4:
        gradient = gradient.flatten(2).transpose(1, 2)
    elif gradient.ndim == 2:
        gradient = gradient[:, None]
    return torch.einsum("ntm,ntr->nmr", gradient, seen)
