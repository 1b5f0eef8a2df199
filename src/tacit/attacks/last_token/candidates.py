"""Candidates for the last token of prompts whose earlier tokens are known, and their states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.last_token.tokens import LIKELIEST, CandidateTokens
from tacit.models.behaviours import Behaviours
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens, following_states, single_tokens
from tacit.models.padding import unpadded

# A candidate that no public prompt ends with counts as this share of a prompt.
PSEUDO_COUNT = 1e-3
PROMPTS_TOGETHER = 64
ROWS_TOGETHER = 2048
LOGITS_TOGETHER = 2**25
BYTES_TOGETHER = 2**28


@dataclass(frozen=True, eq=False)
class LastTokenCandidates:
    """What the last token of one prompt may be.

    Attributes:
        prefix: the earlier tokens, (T − 1,).
        tokens: (m,).
        log_priors: (L, m), each of L laws of the token, normalised over the candidates.
        truth: place of the true token among them, −1 where it is not there.
    """

    prefix: Tensor
    tokens: Tensor
    log_priors: Array
    truth: int


@dataclass(frozen=True, eq=False)
class PublicTokens:
    """The last tokens of public prompts, and how often each occurs.

    Attributes:
        tokens: (k,), each once, the commonest first.
        counts: (k,).
    """

    tokens: Tensor
    counts: Tensor

    @classmethod
    def of(cls, model: LanguageModel, public: Any) -> PublicTokens:
        """Count tokens, (M,)."""
        rows = single_tokens(model, "public", public).cpu()
        tokens, counts = torch.unique(rows, return_counts=True)
        order = torch.argsort(counts, descending=True, stable=True)
        return cls(tokens[order], counts[order])

    def commonest(self, count: int) -> Tensor:
        """Return at most so many of them."""
        return self.tokens[:count]

    def laws(self, model: Array, tokens: Tensor) -> Array:
        """Return four laws of candidates: the model's, the public one, their product and mean.

        Args:
            model: (m,) ln p(v | earlier tokens), normalised over the candidates.
            tokens: (m,) candidates.
        """
        held = dict(zip(self.tokens.tolist(), self.counts.tolist(), strict=True))
        counted = np.array([held.get(token, 0) + PSEUDO_COUNT for token in tokens.tolist()])
        public = np.log(counted / counted.sum())
        product = model + public
        product -= np.logaddexp.reduce(product)
        return np.stack([model, public, product, np.logaddexp(model, public) - math.log(2.0)])


@dataclass(frozen=True, eq=False)
class Continued:
    """Some consecutive rows of a listing: one for each candidate of each prompt.

    Attributes:
        states: the state of the last position after the candidate, (r, d).
        behaviours: what the model predicts after it, or None.
    """

    states: Tensor
    behaviours: Behaviours | None


def list_candidates(
    model: LanguageModel,
    prompts: Any,
    candidates: CandidateTokens = LIKELIEST,
) -> list[LastTokenCandidates]:
    """Return the candidates for the last token of every prompt; see ``known_prefix``."""
    if not isinstance(candidates, CandidateTokens):
        raise ValueError(f"candidates: expected CandidateTokens, got {type(candidates).__name__}")
    rows, public, most = as_prompts(model, prompts), candidates.public, candidates.count
    seen = None if public is None else PublicTokens.of(model, public)
    given = None
    if not isinstance(candidates.tokens, str):
        given = torch.unique(single_tokens(model, "tokens", candidates.tokens))
    found = []
    for row, logs in zip(rows, _predicted(model, rows), strict=True):
        if given is not None:
            tokens = given.cpu()
        elif candidates.tokens == "vocabulary":
            tokens = torch.arange(model.vocabulary)
        else:
            tokens = logs.topk(min(most, len(logs))).indices.sort().values
            if seen is not None:
                tokens = torch.unique(torch.cat([tokens, seen.commonest(most)]))
        weights = torch.zeros(len(tokens), dtype=torch.float64)
        if candidates.token_law == "model":
            weights = logs[tokens]
        laws = weights.log_softmax(dim=-1).numpy()[None]
        place = (tokens == row[-1].cpu()).nonzero()
        found.append(
            LastTokenCandidates(
                prefix=row[:-1],
                tokens=tokens,
                log_priors=laws if seen is None else seen.laws(laws[0], tokens),
                truth=int(place[0, 0]) if len(place) else -1,
            )
        )
    return found


def continuations(
    model: LanguageModel, layer: int, listed: list[LastTokenCandidates], *, predicts: bool
) -> Iterator[Continued]:
    """Run the model on every candidate of every prompt, a part of the rows at a time.

    Each prefix is run once and its candidates together after it: the lower layers by their cached
    keys, the upper ones, where predictions are asked for, from the states just read.
    """
    for group in _groups(listed):
        states = candidate_states(model, layer, group)
        yield from predicted(model, layer, group, states) if predicts else [Continued(states, None)]


def candidate_states(
    model: LanguageModel, layer: int, listed: Sequence[LastTokenCandidates]
) -> Tensor:
    """Return the last state after each candidate of each prompt, (r, d)."""
    parts: list[Tensor] = []
    for _, alike in groupby(listed, key=lambda one: len(one.prefix)):
        group = list(alike)
        prefixes = torch.stack([one.prefix for one in group])
        parts += following_states(model, prefixes, [one.tokens for one in group], layer)
    return torch.cat(parts)


@torch.no_grad()
def predicted(
    model: LanguageModel,
    layer: int,
    listed: list[LastTokenCandidates],
    states: Tensor,
    *,
    precision: torch.dtype = torch.float32,
) -> Iterator[Continued]:
    """Predict from the states of all candidates, a part of the rows at a time.

    Args:
        model: the language model.
        layer: 1 … L.
        listed: the candidates of each prompt.
        states: their states in order, (r, d).
        precision: of the log-probabilities.
    """
    start = 0
    for group in _groups(listed):
        sizes = [len(one.tokens) for one in group]
        # the upper layers know the earlier positions by their keys, the candidate by its state
        whole = [torch.cat([one.prefix, one.tokens[:1].to(one.prefix)]) for one in group]
        upper = model.continuation(torch.stack(whole), layer)
        fits = BYTES_TOGETHER * len(upper) // max(1, upper.nbytes)
        most = max(1, min(ROWS_TOGETHER, LOGITS_TOGETHER // model.vocabulary, fits))
        owner = torch.repeat_interleave(torch.arange(len(group)), torch.tensor(sizes))
        for part in torch.split(owner, most):
            rows = states[start : start + len(part)]
            logits = upper.select(part).logits(rows)
            yield Continued(rows, Behaviours(logits.log_softmax(dim=-1).to(precision)))
            start += len(part)


def _groups(listed: list[LastTokenCandidates]) -> Iterator[list[LastTokenCandidates]]:
    """Consecutive prompts of one length, few enough to be held together."""
    group: list[LastTokenCandidates] = []
    for one in listed:
        rows = sum(len(other.tokens) for other in group) + len(one.tokens)
        if group and (len(one.prefix) != len(group[0].prefix) or rows > ROWS_TOGETHER):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _predicted(model: LanguageModel, rows: list[Tensor]) -> Iterator[Tensor]:
    """Log-probabilities of the last token after the earlier ones, a prompt at a time."""
    for _, same in groupby(rows, key=len):
        whole = list(same)
        for start in range(0, len(whole), PROMPTS_TOGETHER):
            part = torch.stack(whole[start : start + PROMPTS_TOGETHER])
            yield from model.logits(part[:, :-1]).double().log_softmax(dim=-1).cpu()


def as_prompts(model: LanguageModel, prompts: Any) -> list[Tensor]:
    """Return prompts of at least two tokens each, from (n, T), padded or not, or a list."""
    if isinstance(prompts, (list, tuple)) and prompts and np.ndim(prompts[0]) == 1:
        rows = [model.check_tokens(as_tokens("prompts", row)[None])[0] for row in prompts]
    else:
        rows = unpadded(model.check_tokens(as_tokens("prompts", prompts, ndim=2)))
    shortest = min(len(row) for row in rows)
    if shortest < 2:
        raise ValueError(
            f"prompts: expected at least 2 tokens each, the last one being the secret, got "
            f"{shortest}"
        )
    return rows
