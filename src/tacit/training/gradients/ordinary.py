"""Weighted gradients by one ordinary backward pass, with the last layer's Gram matrix or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit._ground.checks import Array
from tacit.training.gradients.base import PerExample
from tacit.training.gradients.batches import (
    Batch,
    Loss,
    frozen_parameters,
    losses_of,
    random_states,
    replayed,
)
from tacit.training.gradients.contributions import LinearFactors, at_least_single
from tacit.training.gradients.gramian import Gramian
from tacit.training.gradients.separation import unchanged_buffers

# Principal directions of the last features that the Gram matrix of a sequence is taken in.
DIRECTIONS = 16


class LastLinear(TorchFunctionMode):
    """Remembers the input and the output of the last matrix product of a forward pass.

    Attributes:
        features: H, what the last product multiplies.
        output: what comes of it, where a backward pass starts that is worth next to nothing.
    """

    def __init__(self, count: int, *, cut: bool) -> None:
        super().__init__()
        self.features: Tensor | None = None
        self.output: Tensor | None = None
        self._count, self._cut = count, cut

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        place = 1 if func is torch.addmm else 0
        if func not in (functional.linear, torch.addmm) or len(args) <= place:
            return result
        features = args[place]
        if features.ndim < 2 or features.shape[0] % self._count:
            return result
        if self._cut:
            result = result.detach().requires_grad_()
        self.features, self.output = features.detach(), result
        return result


class Ordinary(PerExample):
    """Per-example gradients that are never formed."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: list[Batch],
        sizes: list[int],
        parameters: Mapping[str, nn.Parameter],
        *,
        forward: bool,
    ) -> None:
        self._parameters, self._sizes = parameters, sizes
        self._model, self._loss, self._batches = model, loss, batches
        self._versions = [one._version for one in parameters.values()]
        self._states: list[list[Tensor]] = []
        # one micro-batch keeps its graph; several are run again when their weights are known
        self._graph: tuple[Tensor, Tensor | None] | None = None
        losses, factors, unused = [], [], set[str]()
        for batch, size in zip(batches, sizes, strict=True):
            self._states.append(random_states(model))
            found, last = self._pass(batch, size, forward)
            losses.append(found.detach().double().cpu().numpy())
            gradient = _at_the_last_layer(found, last) if forward else None
            if gradient is not None:
                factors.append(_factors(gradient, last, size))
            unused = self._keep(found, last, gradient) if len(batches) == 1 else set()
        self.losses = np.concatenate(losses)
        self.unused = tuple(name for name in parameters if name in unused)
        self.gram = _last_layer_gram(factors) if forward else None

    def _pass(self, batch: Batch, count: int, forward: bool) -> tuple[Tensor, LastLinear]:
        """Run one micro-batch, and keep its graph when it is the only one."""
        whole = len(self._batches) == 1
        last = LastLinear(count, cut=not whole)
        grads = torch.enable_grad() if whole or forward else torch.no_grad()
        frozen = _as_they_are() if whole else frozen_parameters(self._parameters)
        with frozen, unchanged_buffers(self._model), grads, last if forward else _as_they_are():
            losses = losses_of(self._loss, self._model, *batch, count)
        return losses, last

    def _keep(self, losses: Tensor, last: LastLinear, gradient: Tensor | None) -> set[str]:
        """Keep the graph from the last layer on where all goes through it; return what is unused.

        ``Σ c_i ∂ℓ_i/∂θ`` is then a product with c_i P_i, and P is known.
        """
        names = {id(one): name for name, one in self._parameters.items()}
        every = _reached(losses.grad_fn, names, None)
        self._graph = (losses, None)
        node = None if last.output is None else last.output.grad_fn
        if gradient is not None and last.output is not None and node is not None:
            around = _reached(losses.grad_fn, names, node)
            self._graph = (losses, None) if around else (last.output, gradient)
        return set(self._parameters) - every

    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter, from a backward pass."""
        if self._versions != [one._version for one in self._parameters.values()]:
            raise ValueError("model: expected the parameters of the capture, got changed ones")
        sums: dict[str, Tensor] = {}
        for index, own in enumerate(torch.split(coefficients, self._sizes)):
            for name, value in self._weighted(index, own).items():
                sums[name] = sums[name] + value if name in sums else value
        missing = [name for name in self._parameters if name not in sums]
        if missing:
            raise ValueError(
                f"model: expected a gradient of every parameter, got none of {missing[0]}"
            )
        return sums

    def _weighted(self, index: int, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ c_i g_i over one micro-batch, whose graph is gone afterwards."""
        if len(self._batches) == 1:
            kept, self._graph = self._graph, None
            if kept is None:
                raise ValueError('gram: expected "exact" for a second weighted sum of one capture')
            end, weights = kept[0], coefficients
            if kept[1] is not None:
                end, weights = _by_example(kept[0], kept[1], coefficients)
        else:
            with torch.enable_grad(), replayed(self._model, self._states[index]):
                end = losses_of(self._loss, self._model, *self._batches[index], self._sizes[index])
            weights = coefficients
        found = torch.autograd.grad(
            end, list(self._parameters.values()), weights.to(end), allow_unused=True
        )
        named = zip(self._parameters, found, strict=True)
        return {name: value for name, value in named if value is not None}


@contextmanager
def _as_they_are() -> Iterator[None]:
    yield


def _by_example(output: Tensor, gradient: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and its gradient with the rows of example i times c_i."""
    rows = gradient.view(len(coefficients), -1)
    return output, (rows * coefficients.to(rows)[:, None]).view(gradient.shape)


def _reached(end: Any, names: Mapping[int, str], without: Any) -> set[str]:
    """Return the parameters that a graph leads to, other than through one of its nodes."""
    found: set[str] = set()
    seen, waiting = {without}, [end]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = names.get(id(getattr(node, "variable", None)))
        if name is not None:
            found.add(name)
        waiting.extend(following for following, _ in node.next_functions)
    return found


def _at_the_last_layer(losses: Tensor, last: LastLinear) -> Tensor:
    """Return P = ∂ℓ/∂(output of the last linear layer)."""
    if last.output is None or not last.output.requires_grad or not losses.requires_grad:
        raise ValueError(
            'gram: expected "exact" or "none" for a model without a linear layer of its examples'
        )
    found = torch.autograd.grad(losses.sum(), last.output, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(last.output) if found is None else found.contiguous()


def _factors(gradient: Tensor, last: LastLinear, count: int) -> LinearFactors:
    """Return H and P by example and position."""
    assert last.features is not None
    features = at_least_single(last.features).reshape(count, -1, last.features.shape[-1])
    rows = at_least_single(gradient).reshape(count, -1, gradient.shape[-1])
    return LinearFactors(features.to(rows.dtype), rows)


def _last_layer_gram(factors: list[LinearFactors]) -> Array:
    """Return the Gram matrix of the last layer's weight and bias.

    For one position G̃ = (PPᵀ)∘(HHᵀ + 1). For sequences it is that of Σ_t p_t [V h_t, 1], V the
    principal directions of H.
    """
    positions = {use.inputs.shape[1] for use in factors}
    count = sum(len(use.inputs) for use in factors)
    total = Gramian(count)
    if positions == {1}:
        features = torch.cat([use.inputs[:, 0] for use in factors]).double()
        outer = torch.cat([use.gradients[:, 0] for use in factors]).double()
        total.add_matrix((outer @ outer.T) * (features @ features.T + 1.0))
        return total.result()
    basis = _principal([use.inputs for use in factors])
    blocks = []
    for use in factors:
        reduced = use.inputs @ basis
        reduced = torch.cat([reduced, reduced.new_ones(*reduced.shape[:2], 1)], dim=2)
        blocks.append(torch.bmm(use.gradients.transpose(1, 2), reduced).flatten(1))
    total.add(torch.cat(blocks))
    return total.result()


def _principal(features: list[Tensor]) -> Tensor:
    """Return the leading principal directions of some features, (d, k)."""
    width = features[0].shape[-1]
    moments = torch.zeros(width, width, dtype=torch.float64, device=features[0].device)
    for part in features:
        flat = part.flatten(0, 1)
        moments += (flat.T @ flat).double()
    _, vectors = torch.linalg.eigh(moments)
    leading: Tensor = vectors[:, -DIRECTIONS:].to(features[0].dtype)
    return leading
