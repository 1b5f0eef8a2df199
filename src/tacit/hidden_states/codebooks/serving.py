"""Codes of prompts as a model is served them: its states and its predictions, then the cell."""

from __future__ import annotations

import numpy as np
import torch

from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.models.language import LanguageModel
from tacit.models.padding import prompt_lengths

PROMPTS_TOGETHER = 1024


def codes_of_prompts(
    book: Codebook, model: LanguageModel, layer: int, tokens: torch.Tensor
) -> Codes:
    """Return the code of the last state of every prompt, (n, 1).

    Prompts of one length are run together, each as long as it is.

    Args:
        book: the codebook.
        model: the model that it was fitted on.
        layer: 1 … L.
        tokens: (n, T), −1 before the first token of a shorter prompt, as ``model.prompts`` gives
            them.

    Raises:
        ValueError: tokens or layer outside the model.
    """
    lengths = prompt_lengths(tokens).numpy()
    codes = np.empty((len(tokens), 1), dtype=np.int64)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), PROMPTS_TOGETHER):
            part = same[start : start + PROMPTS_TOGETHER]
            codes[part, 0] = _assigned(book, model, layer, tokens[part, -length:])
    return codes


def _assigned(book: Codebook, model: LanguageModel, layer: int, tokens: torch.Tensor) -> Codes:
    if book.centres is not None:
        return book.assign(model.states(tokens, layer).cpu())
    parts = [(states[layer], logits) for states, logits in model.passes(tokens, [layer])]
    states, logits = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return book.assign(states, behaviours=logits)
