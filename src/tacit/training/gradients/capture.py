"""Per-example gradients of a batch, exact, approximate or none at all."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from torch import nn

from tacit._ground.checks import choice, integer
from tacit.training.gradients.base import PerExample
from tacit.training.gradients.batches import Loss, batch_size, part, trainable_parameters
from tacit.training.gradients.exact import Exact
from tacit.training.gradients.ordinary import Ordinary
from tacit.training.gradients.separation import refuse_mixing

Grams: TypeAlias = Literal["exact", "forward", "none"]


def per_example(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    gram: Grams = "exact",
    micro_batch: int | None = None,
) -> PerExample:
    """Return per-example gradients of a batch's losses and their Gram matrix.

    ``g_i = ∂ℓ_i/∂θ, G_ij = ⟨g_i, g_j⟩`` for the trainable parameters θ. ``"exact"`` takes one
    forward pass and one backward pass to the outputs of the layers, whose gradients give the
    per-example gradients layer by layer; a weighted sum needs no second backward pass.
    ``"forward"`` has the Gram matrix of the last linear layer instead of the whole one, and
    ``"none"`` has none; their weighted sum, of which there is one, is an ordinary backward pass.

    A layer that draws random numbers, such as dropout, draws them once for every example; the
    gradients are those of the masks drawn, the same with and without another example.

    Args:
        model: a module in which no example's loss depends on another example.
        loss: ``loss(model, inputs, targets)`` gives the losses, shape (B,), one per example.
        inputs: tensors with the B examples along their first dimension, in any nesting.
        targets: the same, or anything the loss reads.
        gram: ``"exact"``, ``"forward"`` or ``"none"``.
        micro_batch: number of examples that pass through the model at a time; None for all. The
            Gram matrix has every inner product nevertheless.

    Returns:
        The gradients as ``PerExample``.

    Raises:
        ValueError: a module mixes examples, a buffer changes in the forward pass, the losses are
            not one finite number per example, or nothing is trainable.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> def loss(model, inputs, targets):
        ...     return (model(inputs)[:, 0] - targets).square()
        >>> inputs, targets = torch.eye(2), torch.zeros(2)
        >>> found = per_example(model, loss, inputs, targets)
        >>> found.weighted([0.5, 0.5])
        >>> ordinary = torch.autograd.grad(loss(model, inputs, targets).mean(), model.weight)
        >>> torch.allclose(model.weight.grad, ordinary[0])
        True
    """

    choice("gram", gram, ("exact", "forward", "none"))
    count = batch_size(inputs)
    size = count if micro_batch is None else integer("micro_batch", micro_batch, minimum=1)
    refuse_mixing(model)
    parameters = trainable_parameters(model)
    batches = [
        (part(inputs, start, start + size, count), part(targets, start, start + size, count))
        for start in range(0, count, size)
    ]
    sizes = [min(size, count - start) for start in range(0, count, size)]
    if gram == "exact":
        return Exact(model, loss, batches, sizes, parameters)
    return Ordinary(model, loss, batches, sizes, parameters, forward=gram == "forward")
