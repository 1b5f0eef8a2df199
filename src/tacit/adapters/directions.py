"""An A that is better than random and still public: principal directions of public inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer
from tacit.adapters.layers import target_layers
from tacit.adapters.tasks import AdapterTask, Rows, records, select, task_of

# Records in one pass.
TOGETHER = 64


def principal_projections(
    model: nn.Module,
    public: Any,
    *,
    rank: int,
    targets: str | Sequence[str] = "all",
    task: str | None = None,
) -> dict[str, Tensor]:
    """Return A of every layer: orthonormal directions in which its inputs are largest.

    The top eigenvectors of ``Σ x xᵀ`` over the layer's inputs on public records. A gradient of W
    is ``Σ_t g_t x_tᵀ``: what such an A keeps of it is the part along common inputs, and noise is
    added in r directions only.

    Args:
        model: an ``nn.Module`` or ``transformers`` model.
        public: records that are not private, as `fit` takes them. An A made of private records is
            covered by no certificate here.
        rank: r, at most the width of every layer.
        targets: as `AdaptedLayers` takes them.
        task: as `TrainingRecords` takes it.

    Returns:
        By layer, (rank, in), for ``projections`` of `AdaptedLayers`.

    Raises:
        ValueError: a bad argument, or a rank above a layer's width.

    Example:
        >>> from tacit.adapters import DPLoRAFA, fit
        >>> model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> public = torch.randn(100, 6), torch.randint(2, (100,))
        >>> found = principal_projections(model, public, rank=3)
        >>> {name: tuple(held.shape) for name, held in found.items()}
        {'0': (3, 6), '2': (3, 8)}

    Source: Yu et al. (2021), "Do not let privacy overbill utility", for public subspaces.
    """  # noqa: E501
    size = integer("rank", rank, minimum=1)
    rows = records(public)
    given = task_of(model, rows, task, None)
    layers = target_layers(model, targets)
    was_training = model.training
    model.eval()
    try:
        given.check(model, rows)
        moments = _moments(model, layers, rows, given)
    finally:
        model.train(was_training)
    found = {}
    for name, moment in moments.items():
        if size > len(moment):
            raise ValueError(
                f"rank: expected at most the {len(moment)} inputs of {name}, got {size}"
            )
        # Σ x xᵀ = V Λ Vᵀ, Λ rising: the last r columns are the leading directions
        vectors = torch.linalg.eigh(moment)[1]
        found[name] = vectors[:, -size:].flip(1).mT.float().contiguous()
    return found


def _moments(
    model: nn.Module, layers: dict[str, nn.Module], rows: Rows, task: AdapterTask
) -> dict[str, Tensor]:
    """Return Σ x xᵀ of every layer's inputs, in float64; padding counts for nothing of note."""
    moments: dict[str, Tensor] = {}

    def seeing(name: str) -> Any:
        def see(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            # every position is an input of the layer
            flat = inputs[0].detach().flatten(0, -2).double().cpu()
            product = flat.mT @ flat
            moments[name] = moments[name] + product if name in moments else product

        return see

    handles = [one.register_forward_pre_hook(seeing(name)) for name, one in layers.items()]
    device = next(model.parameters()).device
    count = len(next(iter(rows.values())))
    try:
        with torch.no_grad():
            for part in torch.split(torch.arange(count), TOGETHER):
                task.outputs(model, select(rows, part, device))
    finally:
        for handle in handles:
            handle.remove()
    return moments
