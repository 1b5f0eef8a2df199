"""States of the last position for many tokens that may follow one prompt."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from tacit.models.anatomy import Anatomy, ReachedError, watched, whole
from tacit.models.continuation import batch_rows
from tacit.models.language import TOKENS_PER_BATCH, LanguageModel
from tacit.models.padding import PADDING


def as_tokens(name: str, value: Any, *, ndim: int | tuple[int, ...] = 1) -> Tensor:
    """Return ``value`` as a tensor with ``ndim`` dimensions; the model checks its entries."""
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    try:
        # a tensor may be written to: what may not be is copied
        held = isinstance(value, np.ndarray) and not value.flags.writeable
        found = torch.as_tensor(value.copy() if held else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name}: expected tokens, got {type(value).__name__}") from None
    if found.ndim not in allowed:
        wanted = " or ".join(str(each) for each in allowed)
        raise ValueError(
            f"{name}: expected tokens in {wanted} dimensions, got shape {tuple(found.shape)}"
        )
    return found


def single_tokens(
    model: LanguageModel, name: str, value: Any, *, count: int | None = None
) -> Tensor:
    """Return tokens of the model, (n,), ``count`` of them where given."""
    found = as_tokens(name, value)
    if count is not None and len(found) != count:
        raise ValueError(f"{name}: expected shape ({count},), got {tuple(found.shape)}")
    return model.check_tokens(found[:, None], name=name)[:, 0]


@torch.no_grad()
def next_states(
    model: LanguageModel,
    prefix: Any,
    candidates: Any,
    layers: Sequence[int],
    *,
    batch_size: int | None = None,
) -> Iterator[tuple[Tensor, ...]]:
    """Read the state of ``prefix ⊕ v`` after each layer, for every candidate token v.

    The prompt runs once; each candidate costs one position through the lower layers.

    Args:
        model: the language model.
        prefix: tokens, (T,), T >= 0; −1 where it is padded.
        candidates: tokens, (m,).
        layers: each 1 … L, or 0 for the embeddings.
        batch_size: candidates run at a time.

    Yields:
        For consecutive batches of candidates, one (b, d) tensor a layer.

    Raises:
        ValueError: tokens or a layer outside the model, or T + 1 beyond its context.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> [states.shape for (states,) in next_states(model, [1, 2], range(50), [1])]
        [torch.Size([50, 16])]
    """
    ids = model.check_tokens(as_tokens("candidates", candidates)[:, None])
    wanted = [model.check_layer(layer) for layer in layers]
    past = as_tokens("prefix", prefix)
    past = past[past != PADDING]
    anatomy = model.anatomy
    # the first layer's cache is what tells the body how long the prompt is
    stop = max(1, *wanted)
    cache = None
    if len(past):
        context = model.check_tokens(past[None], room=1)
        cache = DynamicCache(config=model.network.config)
        _run(anatomy, context, cache, wanted, stop)
    size = batch_rows(batch_size, max(1, TOKENS_PER_BATCH // (len(past) + 1)))
    for batch in torch.split(ids, size):
        followed = DynamicCache(config=model.network.config)
        if cache is not None:
            followed = copy.deepcopy(cache)
            followed.batch_repeat_interleave(len(batch))
        yield tuple(state[:, -1] for state in _run(anatomy, batch, followed, wanted, stop))


@torch.no_grad()
def following_states(
    model: LanguageModel, prefixes: Tensor, candidates: Sequence[Tensor], layer: int
) -> Iterator[Tensor]:
    """Read the state of ``prefix_i ⊕ v`` after a layer, for every candidate v of every prompt.

    Prompts of one length run together once, as many as fill a batch with their candidates.

    Args:
        model: the language model.
        prefixes: tokens, (n, T), T >= 1, unpadded.
        candidates: n vectors of tokens, (m_i,).
        layer: 1 … L, or 0 for the embeddings.

    Yields:
        The states of consecutive rows, (b, d): every candidate of the first prompt, then others.

    Raises:
        ValueError: tokens or a layer outside the model, or T + 1 beyond its context.
    """
    anatomy, level = model.anatomy, model.check_layer(layer)
    stop, size = max(1, level), max(1, TOKENS_PER_BATCH // (prefixes.shape[1] + 1))
    start = 0
    while start < len(prefixes):
        end, rows = start + 1, len(candidates[start])
        while end < len(prefixes) and rows + len(candidates[end]) <= size:
            rows, end = rows + len(candidates[end]), end + 1
        ids = model.check_tokens(torch.cat(list(candidates[start:end]))[:, None])
        cache = DynamicCache(config=model.network.config)
        _run(anatomy, model.check_tokens(prefixes[start:end], room=1), cache, [level], stop)
        counts = torch.tensor([len(tried) for tried in candidates[start:end]])
        owners = torch.repeat_interleave(torch.arange(end - start), counts).to(ids.device)
        for batch, owner in zip(torch.split(ids, size), torch.split(owners, size), strict=True):
            followed = copy.deepcopy(cache)
            followed.batch_select_indices(owner)
            yield _run(anatomy, batch, followed, [level], stop)[0][:, -1]
        start = end


def _run(
    anatomy: Anatomy, tokens: Tensor, cache: Any, layers: Sequence[int], stop: int
) -> list[Tensor]:
    """Run tokens after what the cache holds; keep what each layer returns, and end at ``stop``."""
    seen: dict[int, Tensor] = {}

    def see(layer: int, states: Tensor) -> None:
        seen[layer] = whole(states)
        if layer == stop:
            raise ReachedError

    try:
        with watched(anatomy, {*layers, stop}, see):
            anatomy.forward(anatomy.inputs(tokens), cache)
    except ReachedError:
        return [seen[layer] for layer in layers]
    raise AssertionError("the forward pass ended without passing its layers")
