"""The attacker who knows every token of a prompt but one, wherever it stands."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.last_token.candidates import Candidates, Continued, PublicTokens
from tacit.models.language import LanguageModel
from tacit.models.padding import PADDING
from tacit.models.passes import Pass

# Of public prompts, the least share that the commonest tokens at a field hold.
OF_A_FIELD = 0.9


@dataclass(frozen=True, eq=False)
class Field:
    """Prompts with one token open, and what the layer holds of every candidate in its place.

    Attributes:
        position: of the token, negative from the end.
        listed: the candidates of each prompt.
        rows: the prompts with them, in order.
    """

    position: int
    listed: list[Candidates]
    rows: list[Continued]


def field_position(public: Tensor, candidates: int) -> int | None:
    """Return where public prompts differ most in a token that few values fill; None if nowhere.

    Of the positions but the last, counted from the end, at which the commonest tokens fill at least
    90% of the public prompts: that of the largest entropy.

    Args:
        public: (M, T) tokens, padded with −1 on the left.
        candidates: how many tokens.
    """
    best, found = 0.0, None
    for position in range(-2, -public.shape[1] - 1, -1):
        there = public[:, position]
        there = there[there != PADDING]
        if len(there) < OF_A_FIELD * len(public):
            break
        counts = torch.unique(there, return_counts=True)[1].double()
        shares = counts.sort(descending=True).values / counts.sum()
        entropy = float(-(shares * shares.log()).sum())
        if float(shares[:candidates].sum()) >= OF_A_FIELD and entropy > best:
            best, found = entropy, position
    return found


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
        listed.append(Candidates(before, tokens, laws, int(place[0, 0]) if len(place) else -1))
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
