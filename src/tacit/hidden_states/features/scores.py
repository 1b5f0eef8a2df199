"""What the next token's law loses without one feature: the behavioural score."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator
from tacit.hidden_states.features.methods import SCORING, Scoring
from tacit.hidden_states.features.scored import FeatureScores
from tacit.hidden_states.features.sites import check_site, read_site
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.continuation import Continuation
from tacit.models.language import LanguageModel

LOGITS, PROMPTS_TOGETHER = 1 << 22, 512


@torch.no_grad()
def score_features(
    model: LanguageModel,
    layer: int,
    transcoder: Transcoder,
    prompts: ArrayLike,
    scoring: Scoring = SCORING,
    *,
    rng: RandomSource = None,
) -> FeatureScores:
    """Take every active feature out at the last position, and measure what the prediction loses.

    ``s_f = mean KL(p(·|h) ‖ p(·|h − a_f W_dec[f]))`` over prompts in which f is active; the earlier
    positions stay as they are, and so does the transcoder's error. Laws are compared in double
    precision: in single precision a KL below 1e-7 nats may be lost.

    Args:
        model: the language model.
        layer: 1 … L.
        transcoder: its features.
        prompts: tokens, (n, T), −1 where padded.
        scoring: τ, and how many prompts a feature is taken out of.
        rng: source of their choice.

    Raises:
        ValueError: a bad argument, or features that do not fit the layer.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> weights = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
        >>> coder = Transcoder(encoder=weights, encoder_bias=torch.ones(4), decoder=weights,
        ...                    decoder_bias=torch.zeros(16))
        >>> found = score_features(model, 1, coder, torch.arange(48).reshape(16, 3))
        >>> found.prompts, bool((found.score[found.active > 0] > 0).all())
        (16, True)

    Source: hidden-state, App. O.
    """
    level = check_site(model, layer, transcoder)
    tokens = model.check_tokens(prompts, name="prompts")
    coder = transcoder.to(model.device)
    site = read_site(model, level, tokens, coder.reads)
    found = coder.encode(site.inputs)
    pairs = _chosen((found > 0).cpu().numpy(), scoring.each, generator(rng))
    values = np.zeros(len(pairs))
    floor = 0.0
    for start in range(0, len(tokens), PROMPTS_TOGETHER):
        stop = min(start + PROMPTS_TOGETHER, len(tokens))
        onward = model.continuation(tokens[start:stop], level)
        clean = _clean(onward)
        floor = max(floor, float(divergences(clean, onward.logits(onward.clean_states)).max()))
        here = np.flatnonzero((pairs[:, 0] >= start) & (pairs[:, 0] < stop))
        for part in np.array_split(here, max(1, -(-len(here) * model.vocabulary // LOGITS))):
            if len(part):
                rows = torch.from_numpy(pairs[part, 0] - start).to(model.device)
                which = torch.from_numpy(pairs[part, 1]).to(model.device)
                amount = found[rows + start, which]
                states = onward.clean_states[rows] - amount[:, None] * coder.decoder[which]
                check_predictions(torch.isfinite(states).all(dim=1).cpu().numpy())
                logits = onward.select(rows).logits(states)
                values[part] = divergences(clean[rows], logits).cpu().numpy()
    check_predictions(np.isfinite(values))
    return _summed(found, pairs, values, scoring.threshold, floor)


def check_predictions(finite: NDArray[np.bool_]) -> None:
    """Refuse features so large that the network cannot predict from what they write."""
    lost = int((~finite).sum())
    if lost:
        raise ValueError(
            "transcoder: expected features whose part of the state the model can do without, got "
            f"some that take {lost} of {finite.size} predictions beyond single precision"
        )


def divergences(clean: Tensor, other: Tensor) -> Tensor:
    """Return ``KL(p ‖ q)`` of rows of logits, nats, worked out in double precision: (n,)."""
    before = clean.double().log_softmax(dim=1)
    after = other.double().log_softmax(dim=1)
    return (before.exp() * (before - after)).sum(dim=1).clamp_min(0.0)


def _clean(onward: Continuation) -> Tensor:
    """Return clean logits as the ablated ones are made: in parts of another size than the floor's.

    Two runs of one prompt differ by rounding, which the floor is the measure of.
    """
    return onward.logits(onward.clean_states, batch_size=max(1, len(onward) // 3))


def _chosen(
    active: NDArray[np.bool_], each: int | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return (prompt, feature) pairs, ``each`` of a feature at most, in the order of prompts."""
    parts = []
    for feature in np.flatnonzero(active.any(axis=0)):
        rows = np.flatnonzero(active[:, feature])
        if each is not None and len(rows) > each:
            rows = rng.choice(rows, each, replace=False)
        parts.append(np.stack([rows, np.full(len(rows), feature)], axis=1))
    if not parts:
        raise ValueError("prompts: expected some in which a feature is active, got none")
    found: NDArray[np.int64] = np.concatenate(parts).astype(np.int64)
    return found[np.argsort(found[:, 0], kind="stable")]


def _summed(
    found: Tensor, pairs: NDArray[np.int64], values: Array, threshold: float, floor: float
) -> FeatureScores:
    rows = found.double().cpu().numpy()
    size, which = rows.shape[1], pairs[:, 1]
    active = (rows > 0).sum(axis=0)
    measured = np.bincount(which, minlength=size)
    score = np.bincount(which, values, size) / np.maximum(measured, 1)
    spread = np.bincount(which, (values - score[which]) ** 2, size) / np.maximum(measured - 1, 1)
    error = np.where(measured > 1, np.sqrt(spread / np.maximum(measured, 1)), np.inf)
    return FeatureScores(
        threshold=threshold, prompts=len(rows), active=active, measured=measured, score=score,
        error=error, largest=rows.max(axis=0), mean=rows.sum(axis=0) / np.maximum(active, 1),
        zeros=int((values == 0.0).sum()), ablations=len(values), floor=floor,
    )  # fmt: skip
