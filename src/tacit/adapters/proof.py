"""That a run trained what it should and nothing else, and that its records stand alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.adapters.gradients.hooks import LinearHooks
from tacit.adapters.layers import AdapterLayer

# Between the norm of a record's gradient alone and among others.
ALONE = 1e-3
# Records that are tried together and alone.
TRIED = 4


class Frozen:
    """Everything that must not move, by its digest.

    Args:
        model: with the adapters on.
        layers: whose trained parameters may move.
    """

    def __init__(self, model: nn.Module, layers: Sequence[AdapterLayer]) -> None:
        self._model = model
        self._free = {id(layer.trained) for layer in layers}
        self._layers = layers
        self._start = {layer.name: layer.trained.detach().clone() for layer in layers}
        self._digests = self._now()

    def check(self) -> None:
        """Refuse what moved though it is frozen, and what did not though it is trained.

        Raises:
            ValueError: names it.
        """
        for name, digest in self._now().items():
            if self._digests.get(name) != digest:
                raise ValueError(
                    f"model: expected {name} to stay as it was, got another value after a step"
                )
        if all(torch.equal(self._start[one.name], one.trained.detach()) for one in self._layers):
            raise ValueError(
                "rate: expected a step that moves the trained weights, got one that moves none"
            )

    def _now(self) -> dict[str, str]:
        held = [*self._model.named_parameters(), *self._model.named_buffers()]
        found = {name: _digest(value) for name, value in held if id(value) not in self._free}
        for layer in self._layers:
            if layer.matrix_a is not None:
                found[f"A of {layer.name}"] = _digest(layer.matrix_a)
        return found


def check_alone(gradients: Callable[[Tensor], LinearHooks], count: int) -> None:
    """Refuse a model in which a record's gradient depends on what else is in the batch.

    Args:
        gradients: of the records of some indices.
        count: how many there are.

    Raises:
        ValueError: the norms of some records differ together and alone.
    """
    # from everywhere, for neighbours in a table may be equal
    tried = torch.linspace(0, count - 1, min(count, TRIED)).round().long()
    if count < 2:
        return
    together = _norms(gradients(tried))
    for place in range(len(tried)):
        alone = _norms(gradients(tried[place : place + 1]))[0]
        if abs(float(together[place] - alone)) > ALONE * float(alone) + 1e-12:
            raise ValueError(
                "model: expected outputs of a record that depend on that record alone, got a "
                "gradient that another record of the batch changes"
            )


def _norms(hooks: Any) -> Tensor:
    return torch.stack([held.double() for held in hooks.squared_norms.values()]).sum(dim=0)


def _digest(value: Tensor) -> str:
    held = value.detach().cpu().contiguous()
    raw = held.view(-1).view(torch.uint8).numpy().tobytes() if held.numel() else b""
    return hashlib.sha256(f"{held.dtype}{tuple(held.shape)}".encode() + raw).hexdigest()
