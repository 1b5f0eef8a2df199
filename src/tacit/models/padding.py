"""Prompts of several lengths in one matrix of tokens, with padding on the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PADDING = -1
# prompts of one length that are run together where no state may depend on the others, and their
# tokens at most
ROWS_ALIKE, TOKENS_ALIKE = 16, 8192
Places = npt.NDArray[np.int64]


def pad(prompts: Sequence[Sequence[int]]) -> Tensor:
    """Return prompts of any lengths as one matrix, −1 before the shorter ones.

    The last token of every prompt stands in the last column, so that ``[:, -1]`` is the position
    whose state is released. What reads tokens masks the padding and counts positions from the
    first token of each prompt.

    Args:
        prompts: n sequences of at least one token.

    Returns:
        (n, T) of int64, T the length of the longest.

    Raises:
        ValueError: no prompt, or an empty one.

    Example:
        >>> pad([[5], [6, 7, 8]])
        tensor([[-1, -1,  5],
                [ 6,  7,  8]])
    """
    lengths = [len(prompt) for prompt in prompts]
    if not lengths or min(lengths) == 0:
        raise ValueError(
            "prompts: expected at least one prompt, and at least one token in each, got "
            + (f"none in prompt {lengths.index(0)}" if lengths else "no prompt")
        )
    tokens = torch.full((len(lengths), max(lengths)), PADDING, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, -lengths[row] :] = torch.as_tensor(prompt, dtype=torch.int64)
    return tokens


def prompt_lengths(tokens: Tensor) -> Tensor:
    """Return the number of tokens of every prompt, (n,).

    Example:
        >>> prompt_lengths(pad([[5], [6, 7, 8]]))
        tensor([1, 3])
    """
    return (tokens != PADDING).sum(dim=1)


def unpadded(tokens: Tensor) -> list[Tensor]:
    """Return every prompt without its padding.

    Example:
        >>> [len(row) for row in unpadded(pad([[5], [6, 7, 8]]))]
        [1, 3]
    """
    lengths = prompt_lengths(tokens).tolist()
    return [row[len(row) - held :] for row, held in zip(tokens, lengths, strict=True)]


def trimmed(tokens: Tensor) -> Tensor:
    """Return prompts (n, T) without the columns that pad all of them."""
    return tokens[:, tokens.shape[1] - int(prompt_lengths(tokens).max()) :]


def alike(lengths: Any, rows: int = ROWS_ALIKE) -> Iterator[tuple[Places, Places]]:
    """Yield which prompts are read in a pass, and all that are run in it: always as many.

    A pass rounds by its shape. Where prompts of one length are run in passes of one shape, filled
    up with some of them again, no bit of a state depends on how many others there are, or how long.

    Args:
        lengths: tokens of every prompt, (n,); one without tokens is not run.
        rows: prompts in a pass, fewer where they are very long.

    Example:
        >>> [(kept.tolist(), run.tolist()) for kept, run in alike([3, 1, 3, 3], rows=2)]
        [([1], [1, 1]), ([0, 2], [0, 2]), ([3], [3, 3])]
    """
    held = np.asarray(lengths)
    for length in np.unique(held[held > 0]).tolist():
        same = np.flatnonzero(held == length)
        # a function of the length alone
        size = max(1, min(rows, TOKENS_ALIKE // length))
        for start in range(0, len(same), size):
            part = same[start : start + size]
            yield part, np.resize(part, size)


def is_padded(tokens: Tensor) -> bool:
    """Whether any prompt is shorter than the others."""
    return bool((tokens[:, 0] == PADDING).any())


def inputs_of(tokens: Tensor, accepted: frozenset[str]) -> dict[str, Tensor]:
    """Return what a network is called with: tokens, and where some are padding, mask and positions.

    Args:
        tokens: (n, T), −1 where padded.
        accepted: names of the arguments that the network takes.
    """
    if not is_padded(tokens):
        return {"input_ids": tokens}
    mask = (tokens != PADDING).long()
    found = {"input_ids": tokens.clamp_min(0), "attention_mask": mask}
    if "position_ids" in accepted:
        found["position_ids"] = (mask.cumsum(dim=1) - 1).clamp_min(0)
    return found


def last_of(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of the last position alone, whose earlier positions a cache holds."""
    return {
        name: value if name == "attention_mask" else value[:, -1:] for name, value in inputs.items()
    }


def before_last(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of all positions but the last."""
    return {name: value[:, :-1] for name, value in inputs.items()}


def followed(inputs: dict[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
    """Return the inputs of one more token (n, 1), the positions before it held by a cache."""
    found = {"input_ids": chosen}
    if "attention_mask" in inputs:
        mask = inputs["attention_mask"]
        found["attention_mask"] = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
    if "position_ids" in inputs:
        found["position_ids"] = inputs["position_ids"][:, -1:] + 1
    return found
