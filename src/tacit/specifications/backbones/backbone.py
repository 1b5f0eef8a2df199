"""What a shared backbone is: a frozen network, its layers, and how records become its inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from tacit._ground.reprs import short_repr, shown
from tacit.documents import dumps

Modality: TypeAlias = Literal["image", "text", "vector"]
BATCH = 128


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class Backbone:
    """A frozen public network f(·; θ₀), shared by everyone who is to be found.

    Attributes:
        name: how it was asked for.
        module: the network, in evaluation mode, without gradients.
        modality: ``"image"``, ``"text"`` or ``"vector"``.
        layers: names of the modules whose change describes, in the order in which they run.
        digest: SHA-256 of its form and weights.
        prepare: from records as a user holds them to tensors with the records first.
        features: from a batch of such tensors to (b, d), the output f(x; θ₀).

    Source: pave, Sec. 2.1.
    """

    name: str
    module: nn.Module
    modality: Modality
    layers: tuple[str, ...]
    digest: str
    prepare: Callable[[Any], tuple[Tensor, ...]]
    features: Callable[..., Tensor]

    def of_tensors(self) -> Backbone:
        """Return the backbone that takes what ``prepare`` made of records in their place."""
        return replace(self, prepare=tuple)

    def batches(self, data: Any, size: int = BATCH) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Yield places of at most ``size`` records, and their tensors.

        A text comes alone and without padding: beside others its numbers would be rounded by how
        many and how long they are, so that one record would change what all others add.

        Raises:
            ValueError: the data are no records of this modality.
        """
        parts = self.prepare(data)
        count = len(parts[0])
        # pictures and vectors in batches
        if self.modality != "text":
            for start in range(0, count, size):
                rows = torch.arange(start, min(start + size, count))
                yield rows, tuple(part[start : start + size] for part in parts)
            return
        # the mask says how long each text is
        for row, length in enumerate(parts[1].sum(dim=1).tolist()):
            yield torch.tensor([row]), tuple(part[[row], :length] for part in parts)

    def embedded(self, data: Any) -> Tensor:
        """Return f(x; θ₀) of every record, (n, d) float32.

        Raises:
            ValueError: the data are no records of this modality, or a feature is not finite.
        """
        with torch.no_grad():
            found = [(rows, self.features(*batch).float()) for rows, batch in self.batches(data)]
        places = torch.cat([rows for rows, _ in found])
        held = torch.cat([held for _, held in found])[torch.argsort(places)]
        # the number of the record is public, what it holds is not
        finite = held.isfinite().all(dim=1)
        if not finite.all():
            row = int(finite.logical_not().nonzero()[0])
            raise ValueError(f"data: expected finite features, not so in record {row}")
        return held


def frozen(module: nn.Module) -> nn.Module:
    """Return the module in evaluation mode, none of its parameters trained."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"backbone: expected a torch module, got {shown(module)}")
    return module.eval().requires_grad_(False)


def digest_of(module: nn.Module, form: Any) -> str:
    """Return the SHA-256 of a form and of the names, shapes and values of all weights."""
    found = hashlib.sha256(dumps(form, sort_keys=True).encode())
    # names and bytes in one order: the digest is of the values, not of the file they came in
    for name, held in sorted(module.state_dict().items()):
        value = held.detach().cpu().contiguous()
        found.update(f"{name}:{value.dtype}:{tuple(value.shape)};".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"sha256:{found.hexdigest()}"


def chosen_layers(backbone: Backbone, layers: Sequence[str] | None) -> tuple[str, ...]:
    """Return the layers asked for, those of the backbone when None.

    Raises:
        ValueError: names no layer that can be described; the message names it.
    """
    if layers is None:
        return backbone.layers
    if isinstance(layers, str) or not isinstance(layers, (list, tuple)) or not layers:
        raise ValueError(f"layers: expected a list of names, got {shown(layers)}")
    modules = dict(backbone.module.named_modules())
    for name in layers:
        if not isinstance(name, str) or name not in modules or not is_matrix(modules[name]):
            raise ValueError(
                f"layers: expected names of linear or convolutional layers of {backbone.name}, "
                f"got {shown(name)}"
            )
    if len(set(layers)) < len(layers):
        raise ValueError("layers: expected every layer once")
    return tuple(layers)


def is_matrix(module: nn.Module) -> bool:
    """Whether a layer multiplies by one matrix: linear, GPT-2's ``Conv1D``, or a convolution."""
    if isinstance(module, nn.Conv2d):
        return module.groups == 1 and module.padding_mode == "zeros"
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def last_layers(module: nn.Module, run: Callable[[], Tensor], count: int = 3) -> tuple[str, ...]:
    """Return the names of the last layers that the output depends on, in the order they run.

    Args:
        module: the network.
        run: a forward pass on any records, (b, d).
        count: how many.

    Raises:
        ValueError: no linear or convolutional layer takes part.
    """
    from tacit.gradients.watched import WatchedLayers

    names = {name: held for name, held in module.named_modules() if is_matrix(held)}
    with WatchedLayers(names) as watched:
        # any function of the output whose gradient reaches every layer that is used
        watched.differentiate(run().square().sum())
    used = watched.used()
    if not used:
        raise ValueError("backbone: expected linear or convolutional layers, got none that is used")
    return used[-count:]
