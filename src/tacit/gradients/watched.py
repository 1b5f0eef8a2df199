"""Per-record gradients of the shared layers, multiplied by A before they are ever stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class WatchedLayers:
    """The inputs and output gradients of layers in one forward and one backward pass.

    The network's own parameters take no gradients. A layer's output is handed on as a copy, so
    that what follows may write into it.

    Args:
        layers: linear, ``Conv1D`` or convolutional modules by name.
    """

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        self._layers = dict(layers)
        self._handles: list[Any] = []
        self._inputs: list[tuple[str, Tensor]] = []
        self._outputs: list[Tensor] = []
        self._gradients: tuple[Tensor | None, ...] = ()

    def __enter__(self) -> WatchedLayers:
        """Watch the layers."""
        for name, module in self._layers.items():
            self._handles.append(module.register_forward_hook(self._hook(name)))
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the layers as they were."""
        while self._handles:
            self._handles.pop().remove()

    def differentiate(self, loss: Tensor) -> None:
        """Take the gradients of a sum of losses by every output of a watched layer."""
        if not loss.requires_grad:
            self._gradients = (None,) * len(self._outputs)
            return
        # ∂Σℓ/∂output of every use, and of no parameter
        self._gradients = torch.autograd.grad(loss, self._outputs, allow_unused=True)

    def used(self) -> tuple[str, ...]:
        """Return the names that the loss depends on, in the order in which they first ran."""
        every = zip(self._inputs, self._gradients, strict=True)
        return tuple(dict.fromkeys(name for (name, _), held in every if held is not None))

    def factors(self, matrices: Mapping[str, Tensor], records: int) -> dict[str, Tensor]:
        """Return G_i Aᵀ of every record by layer, (b, m, r).

        Args:
            matrices: A by layer, (r, n).
            records: b. A layer may see a record in several rows that follow each other, such as
                windows of a picture: they are one gradient, which is clipped as one.

        Raises:
            ValueError: a layer does not run, its outputs do not matter, or its rows are not split
                evenly among the records.
        """
        found: dict[str, Tensor] = {}
        for name, gradient, taken in self._uses():
            # rows of one record, such as the windows of a picture, are one gradient
            gradient, taken = _by_record(name, gradient, taken, records)
            # G_i Aᵀ = Σ_t g_it (A x_it)ᵀ: G_i itself, (m, n), is never formed
            part = torch.bmm(gradient, torch.matmul(taken, matrices[name].T))
            found[name] = found[name] + part if name in found else part
        for name in matrices:
            if name not in found:
                raise ValueError(
                    f"layers: expected layers that run as modules in a forward pass, got {name}"
                )
        return found

    def sums(self) -> dict[str, Tensor]:
        """Return Σ_i G_i by layer, (m, n)."""
        found: dict[str, Tensor] = {}
        for name, gradient, taken in self._uses():
            # Σ_i Σ_t g_it x_itᵀ
            part = torch.einsum("bmt,btn->mn", gradient, taken)
            found[name] = found[name] + part if name in found else part
        return found

    def _uses(self) -> Any:
        """Yield every use of a layer: its name, (b, m, t) gradients and (b, t, n) inputs."""
        for (name, taken), gradient in zip(self._inputs, self._gradients, strict=True):
            if gradient is None:
                raise ValueError(f"layers: expected layers that the features depend on, got {name}")
            module = self._layers[name]
            # in float32 at least, whatever the network runs in
            yield name, *_sequences(module, gradient.float(), taken.float())

    def _hook(self, name: str) -> Any:
        def watch(_: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
            # the first watched output starts the graph
            held = output if output.requires_grad else output.detach().requires_grad_(True)
            self._inputs.append((name, given[0].detach()))
            self._outputs.append(held)
            return held.clone()

        return watch


def width(module: nn.Module) -> tuple[int, int]:
    """Return (m, n) of the matrix that a layer multiplies by; a convolution's is unfolded."""
    weight: Any = module.weight
    if isinstance(module, nn.Conv2d):
        return int(weight.shape[0]), int(weight[0].numel())
    rows, columns = (int(side) for side in weight.shape)
    return (rows, columns) if isinstance(module, nn.Linear) else (columns, rows)


def _sequences(module: nn.Module, gradient: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(module, nn.Conv2d):
        # a convolution is a product with patches: x_t is the patch of position t
        columns = functional.unfold(
            taken, module.kernel_size, module.dilation, _padding(module), module.stride
        )
        return gradient.flatten(2), columns.mT
    records = gradient.shape[0]
    # (b, t, m) of any number of positions
    rows = gradient.reshape(records, -1, gradient.shape[-1])
    return rows.mT, taken.reshape(records, -1, taken.shape[-1])


def _by_record(name: str, gradient: Tensor, taken: Tensor, records: int) -> tuple[Tensor, Tensor]:
    """Return (b, m, t) and (b, t, n) of (b w, m, t') and (b w, t', n), t = w t'."""
    rows, outputs, steps = gradient.shape
    if rows == records:
        return gradient, taken
    # w windows of every record, one record after another
    windows, rest = divmod(rows, records)
    if rest or not windows:
        raise ValueError(
            f"layers: expected layers that see the records one after another, but {name} sees "
            f"{rows} rows of {records} records"
        )
    # windows are further positions of the record that they were cut from
    together = gradient.reshape(records, windows, outputs, steps).transpose(1, 2)
    return together.flatten(2), taken.reshape(records, windows * steps, -1)


def _padding(module: nn.Conv2d) -> tuple[int, ...]:
    if isinstance(module.padding, str):
        # "valid" is none; "same" of an odd kernel, the only one that pads both sides alike
        spans = zip(module.kernel_size, module.dilation, strict=True)
        return tuple(
            0 if module.padding == "valid" else step * (size - 1) // 2 for size, step in spans
        )
    return tuple(module.padding)
