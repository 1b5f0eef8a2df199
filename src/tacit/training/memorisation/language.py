"""Losses of token sequences, and sequences cut out of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import Array, choice, integer
from tacit.training.memorisation.canaries import IGNORED
from tacit.training.memorisation.exposure import TOKENS_TOGETHER, measuring

Loss = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def sequence_loss(reduction: str) -> Loss:
    """Return the loss of a sequence: −ln p of its tokens but the first, nats, mean or sum.

    Args:
        reduction: ``"mean"`` or ``"sum"`` over the tokens of a sequence.

    Raises:
        ValueError: another reduction.
    """
    mean = choice("reduction", reduction, ("mean", "sum")) == "mean"

    def loss(network: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = network(input_ids=inputs, use_cache=False).logits[:, :-1]
        following = targets[:, 1:]
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), following, ignore_index=IGNORED, reduction="none"
        )
        total = each.sum(dim=1)
        return total / (following != IGNORED).sum(dim=1) if mean else total

    return loss


def losses(network: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Array:
    """Return the mean loss of each sequence, (n,) nats a token."""
    loss, size = sequence_loss("mean"), max(1, TOKENS_TOGETHER // inputs.shape[1])
    with measuring(network):
        found = [
            loss(network, *rows)
            for rows in zip(torch.split(inputs, size), torch.split(targets, size), strict=True)
        ]
    return np.asarray(torch.cat(found).double().numpy())


def cut(
    stream: torch.Tensor, length: int, *, count: int | None = None, order: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut a stream of tokens into sequences, a tenth of them to be unseen.

    Args:
        stream: (S,) tokens.
        length: L of each sequence.
        count: most sequences to learn from; all when left out.
        order: seed that says which; it does not depend on the text.

    Returns:
        (n, L) to learn from and (u, L) unseen.

    Raises:
        ValueError: fewer than two sequences.

    Example:
        >>> learned, unseen = cut(torch.arange(100), 5, count=10)
        >>> tuple(learned.shape), tuple(unseen.shape)
        ((10, 5), (2, 5))
    """
    size = integer("length", length, minimum=2)
    rows = stream[: len(stream) // size * size].reshape(-1, size)
    if len(rows) < 2:
        raise ValueError(f"texts: expected at least 2 sequences of {size} tokens, got {len(rows)}")
    shuffled = rows[torch.from_numpy(np.random.default_rng(order).permutation(len(rows)))]
    apart = max(1, len(rows) // 10)
    learned = shuffled[apart:]
    if count is not None:
        learned = learned[: integer("sequences", count, minimum=1)]
    return learned, shuffled[:apart]
