"""The attacker who knows every token of a prompt but one, wherever it stands."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.last_token.candidates import Continued, LastTokenCandidates, PublicTokens
from tacit.models.language import LanguageModel
from tacit.models.padding import PADDING
from tacit.models.passes import Pass

# Of public prompts, the least share that the commonest tokens at a field hold.
OF_A_FIELD = 0.9
# Of prompts of one template, the least information between a token and its place, nats.
OF_A_TEMPLATE = 0.5


@dataclass(frozen=True, eq=False)
class Field:
    """Prompts with one token open, and what the layer holds of every candidate in its place.

    Attributes:
        position: of the token, negative from the end.
        listed: the candidates of each prompt.
        rows: the prompts with them, in order.
    """

    position: int
    listed: list[LastTokenCandidates]
    rows: list[Continued]


def field_position(public: Tensor, candidates: int) -> int | None:
    """Return where prompts of one template differ most in a token; None where there is none.

    Prompts are of a template where a token's place says which it is: half a nat of information
    between both. Then it is the position of the largest entropy but the last, counted from the end,
    at which the commonest tokens fill at least 90% of the public prompts.

    Args:
        public: (M, T) tokens, padded with −1 on the left.
        candidates: how many tokens.
    """
    columns = {
        position: public[:, position][public[:, position] != PADDING]
        for position in range(-1, -public.shape[1] - 1, -1)
    }
    total = sum(map(len, columns.values()))
    told = entropy(torch.cat(list(columns.values()))) - sum(
        len(there) / total * entropy(there) for there in columns.values() if len(there)
    )
    if told < OF_A_TEMPLATE:
        return None
    fields = {
        position: entropy(there)
        for position, there in columns.items()
        if position < -1
        and len(there) >= OF_A_FIELD * len(public)
        and _commonest(there, candidates) >= OF_A_FIELD
    }
    found = max(fields, key=lambda position: fields[position], default=None)
    return found if found is not None and fields[found] > 0.0 else None


def entropy(tokens: Tensor) -> float:
    """Return the entropy of the tokens that occur, nats."""
    counts = torch.unique(tokens, return_counts=True)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log()).sum())


def _commonest(tokens: Tensor, count: int) -> float:
    """Return the share of the ``count`` commonest tokens."""
    counts = torch.unique(tokens, return_counts=True)[1].double().sort(descending=True).values
    return float(counts[:count].sum() / counts.sum())


def open_field(
    model: LanguageModel,
    layer: int,
    prompts: Tensor,
    public: Tensor,
    *,
    position: int,
    count: int,
) -> Field:
    """Run prompts with every candidate at one position: the commonest there in public prompts.

    Four laws weigh them: what the model predicts after the tokens before, how often public prompts
    have them there, the product and the mean of both.

    Args:
        model: the language model.
        layer: 1 … L.
        prompts: (n, T), padded with −1 on the left.
        public: (M, T') public prompts.
        position: negative, from the end; the prompts are longer.
        count: candidates at most.
    """
    there = public[:, position]
    seen = PublicTokens.of(model, there[there != PADDING])
    tokens = seen.commonest(count).sort().values
    listed, whole = [], []
    for prompt in prompts:
        before = prompt[: prompt.shape[0] + position]
        laws = seen.laws(_prior(model, before, tokens), tokens)
        place = (tokens == prompt[position].cpu()).nonzero()
        listed.append(
            LastTokenCandidates(before, tokens, laws, int(place[0, 0]) if len(place) else -1)
        )
        rows = prompt.repeat(len(tokens), 1)
        rows[:, position] = tokens.to(rows)
        whole.append(rows)
    read = Pass.of(model, torch.cat(whole), [layer])
    parts = range(0, len(whole) * len(tokens), len(tokens))
    rows = [_part(read, layer, start, len(tokens)) for start in parts]
    return Field(position, listed, rows)


def _prior(model: LanguageModel, before: Tensor, tokens: Tensor) -> Array:
    if not bool((before != PADDING).any()):
        return np.full(len(tokens), -math.log(len(tokens)))
    logs = model.logits(before[None]).double().log_softmax(dim=-1)[0].cpu()
    return np.asarray(logs[tokens].log_softmax(dim=-1))


def _part(read: Pass, layer: int, start: int, count: int) -> Continued:
    rows = torch.arange(start, start + count)
    return Continued(read.states[layer][start : start + count], read.behaviours.select(rows))
