"""How the last state of a prompt moves with its embedded tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tacit.models.anatomy import states_after
from tacit.models.language import LanguageModel


def embedding_gradients(
    model: LanguageModel, layer: int, tokens: Tensor, pull: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the gradient of the last state by the embedding of every token: ``(∂h/∂e_t)ᵀ p(h)``.

    Args:
        model: the language model.
        layer: 1 … L.
        tokens: (n, T), without padding.
        pull: p, from the states (n, d) to what they are multiplied with, (n, d); ``h − y`` for
            half the gradient of ``‖h − y‖²``.

    Returns:
        (n, T, e), of float32.

    Raises:
        ValueError: tokens or a layer outside the model.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> embedding_gradients(model, 1, torch.tensor([[3, 4, 5]]), torch.ones_like).shape
        torch.Size([1, 3, 16])
    """
    ids, level = model.check_tokens(tokens), model.check_layer(layer)
    leaves: list[Tensor] = []

    def embedded(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_(True))
        # a model may scale what it embeds in place, which a leaf forbids
        return leaves[0].clone()

    handle = model.network.get_input_embeddings().register_forward_hook(embedded)
    try:
        with torch.enable_grad():
            last = states_after(model.anatomy, level, ids)[:, -1]
            (found,) = torch.autograd.grad(last, leaves[0], pull(last.detach()))
    finally:
        handle.remove()
    return found.float()
