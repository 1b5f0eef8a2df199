"""Codes of prompts as a model is served them: its states and its predictions, then the cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.models.language import LanguageModel

PROMPTS_TOGETHER = 1024


def codes_of_texts(book: Codebook, model: LanguageModel, layer: int, texts: Sequence[str]) -> Codes:
    """Return the code of the last state of every prompt, (n, 1).

    Prompts of one length are run together, each as long as it is.

    Args:
        book: the codebook.
        model: the model that it was fitted on.
        layer: 1 … L.
        texts: n prompts.

    Raises:
        ValueError: a prompt that the model cannot read; the message has its number, not its words.
    """
    tokens = []
    for place, text in enumerate(texts):
        found = model.encode(text)
        if not 1 <= len(found) <= model.context:
            raise ValueError(
                f"texts: expected 1 … {model.context} tokens, got {len(found)} in prompt {place} "
                "(counted from 0)"
            )
        tokens.append(found)
    lengths = np.array([len(found) for found in tokens])
    codes = np.empty((len(tokens), 1), dtype=np.int64)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), PROMPTS_TOGETHER):
            part = same[start : start + PROMPTS_TOGETHER]
            batch = torch.tensor([tokens[place] for place in part])
            codes[part, 0] = _assigned(book, model, layer, batch)
    return codes


def _assigned(book: Codebook, model: LanguageModel, layer: int, tokens: torch.Tensor) -> Codes:
    if book.centres is not None:
        return book.assign(model.states(tokens, layer).cpu())
    parts = [(states[layer], logits) for states, logits in model.passes(tokens, [layer])]
    states, logits = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return book.assign(states, behaviours=logits)
