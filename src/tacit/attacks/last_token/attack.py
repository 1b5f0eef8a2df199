"""The attacker who knows all earlier tokens and runs the model on candidates for the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import in_interval, integer
from tacit.attacks.exact.channels import Channel
from tacit.attacks.exact.posterior import standing
from tacit.attacks.exact.result import GuessAttack
from tacit.attacks.last_token.candidates import (
    Continued,
    LastTokenCandidates,
    continuations,
    list_candidates,
)
from tacit.attacks.last_token.tokens import LIKELIEST, CandidateTokens
from tacit.models.language import LanguageModel

ATTACKER = "exact posterior over last tokens"
KNOWS = "all earlier tokens"
TASK = "the last token"


def known_prefix(
    model: LanguageModel,
    layer: int,
    prompts: Any,
    released: ArrayLike,
    channel: Channel,
    *,
    candidates: CandidateTokens = LIKELIEST,
    leakage_factor: float | None = None,
    confidence: float = 0.95,
) -> GuessAttack:
    """Guess the last token of prompts whose earlier tokens are known, from what was released.

    ``P(v | x_<T, y) ∝ p(v | x_<T) P(y | h(x_<T ⊕ v))``: the attacker runs the model on every
    candidate and weighs it by the exact likelihood of the release. The prompt before the candidate
    is run once, candidates in batches after it. The success does not depend on any bank.

    Args:
        model: the language model.
        layer: 1 … L, whose last state was released.
        prompts: tokens, (n, T) or a list of n prompts of their own lengths >= 2; the last token
            of each is the secret.
        released: what was released of each, codes (n,) or states (n, d).
        channel: how, a ``GaussianChannel`` or ``CodeChannel``; its ``assign`` is given candidates'
            states and, where it ``predicts``, what the model predicts after them.
        candidates: which tokens are tried in the last place, and how likely each is before.
        leakage_factor: of the release, where one is certified, to stand beside the result.
        confidence: coverage of each interval, in (0, 1).

    Returns:
        The attack, with the success of the prior alone beside it. A prompt whose token is not among
        the candidates counts as a failure of both; ``covered`` says how many have theirs there.

    Raises:
        ValueError: a bad argument, or releases that the channel does not make.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.attacks.exact.channels import GaussianChannel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompts = torch.arange(12).reshape(4, 3)
        >>> clean = model.states(prompts, 1)
        >>> tried = CandidateTokens(count=50)
        >>> found = known_prefix(model, 1, prompts, clean, GaussianChannel(), candidates=tried)
        >>> found.success, found.covered
        (1.0, 1.0)

    Source: Bayes' rule; protocol A of the utility, in which the earlier positions are known.
    """
    if not isinstance(channel, Channel):
        raise ValueError(f"channel: expected a Channel, got {type(channel).__name__}")
    level = model.check_layer(integer("layer", layer, minimum=1))
    listed = list_candidates(model, prompts, candidates)
    seen = channel.checked("released", released, released=True)
    if len(seen) != len(listed):
        raise ValueError(f"released: expected {len(listed)} releases, got {len(seen)}")
    rows = continuations(model, level, listed, predicts=channel.predicts)
    return attack_continued(
        listed, rows, seen, channel, leakage_factor=leakage_factor, confidence=confidence
    )


def attack_continued(
    listed: Sequence[LastTokenCandidates],
    rows: Iterable[Continued],
    released: Any,
    channel: Channel,
    *,
    leakage_factor: float | None = None,
    confidence: float = 0.95,
    task: str = TASK,
    knows: str = KNOWS,
) -> GuessAttack:
    """Attack releases of prompts that were continued by their candidates before.

    Args:
        listed: the candidates of each prompt.
        rows: the prompts continued by them, in order.
        released: codes (n,) or states (n, d), one for each prompt.
        channel: how a release was drawn.
        leakage_factor: as for ``known_prefix``.
        confidence: coverage of each interval.
        task: what is guessed.
        knows: what the attacker knows besides.
    """
    share = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    seen = channel.checked("released", released, released=True)
    found, blind = [], []
    for place, held in enumerate(_held(listed, rows, channel)):
        logs = listed[place].log_priors
        truth = np.full(len(logs), listed[place].truth)
        joint = logs + channel.log_likelihood(seen[place : place + 1], held)
        found.append(standing(joint, truth))
        blind.append(standing(logs, truth)[0])
    # (n, L): one column a law; who attacks and who guesses blind each take the best for them
    hits, better, tied = (np.stack(column) for column in zip(*found, strict=True))
    without = np.stack(blind)
    best = int(hits.mean(axis=0).argmax())
    laws = hits.shape[1]
    return GuessAttack.of(
        hits=hits[:, best], blind=without[:, int(without.mean(axis=0).argmax())],
        better=better[:, best], tied=tied[:, best], confidence=share, chosen_of=laws, task=task,
        attacker=ATTACKER if laws == 1 else f"{ATTACKER}, by the best of {laws} laws",
        knows=knows if laws == 1 else f"{knows}, and those of public prompts there",
        leakage_factor=leakage_factor,
        candidates=max(len(one.tokens) for one in listed),
        covered=float(np.mean([one.truth >= 0 for one in listed])),
    )  # fmt: skip


def _held(
    listed: Sequence[LastTokenCandidates], rows: Iterable[Continued], channel: Channel
) -> Iterator[Any]:
    """What the channel holds of each prompt's candidates, cut out of the parts they came in."""
    parts: list[Any] = []
    source = iter(rows)
    for one in listed:
        wanted = len(one.tokens)
        while sum(map(len, parts)) < wanted:
            part = next(source)
            parts.append(channel.held(part.states, part.behaviours))
        whole = np.concatenate(parts)
        parts = [whole[wanted:]]
        yield whole[:wanted]
