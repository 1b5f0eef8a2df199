"""What the next token's law loses without one feature: the behavioural score, and its classes."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer, positive
from tacit._ground.frozen import read_only
from tacit.hidden_states.features.sites import check_site, read_site
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.continuation import Continuation
from tacit.models.language import LanguageModel

# KL that single precision cannot tell from nothing
RESOLUTION = float(np.finfo(np.float32).eps)
LOGITS, PROMPTS_TOGETHER = 1 << 22, 512
SCAFFOLD, BACKBONE, UNSCORED = 0, 1, -1


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FeatureScores:
    """Scores ``s_f = E[KL(p ‖ p without a_f W_dec[f])]`` over prompts in which f is active.

    Attributes:
        threshold: τ, nats: a feature of a higher score is backbone, one of a lower one scaffold.
        prompts: on which they were measured.
        active: prompts of them in which each feature is active, (F,).
        measured: prompts of those that it was taken out of, (F,).
        score: means, nats, (F,); 0 where never measured.
        error: standard errors, nats, (F,); infinite below two prompts.
        largest: the largest activation of each, (F,).
        mean: its mean activation where it is active, (F,).
        zeros: of all single ablations, those of exactly no KL in double precision.
        ablations: single ablations measured.
        floor: the most KL between two runs of the clean states in batches of other sizes, nats.
    """

    threshold: float
    prompts: int
    active: NDArray[np.int64] = field(repr=False)
    measured: NDArray[np.int64] = field(repr=False)
    score: Array = field(repr=False)
    error: Array = field(repr=False)
    largest: Array = field(repr=False)
    mean: Array = field(repr=False)
    zeros: int
    ablations: int
    floor: float

    def __repr__(self) -> str:
        return (
            f"FeatureScores({self.count(BACKBONE)} backbone, {self.count(SCAFFOLD)} scaffold, "
            f"{self.count(UNSCORED)} silent, τ={self.threshold:g} nats)"
        )

    @property
    def classes(self) -> NDArray[np.int64]:
        """1 for backbone, 0 for scaffold, −1 for a feature never active, (F,)."""
        found = np.where(self.score > self.threshold, BACKBONE, SCAFFOLD)
        return np.where(self.measured > 0, found, UNSCORED)

    def count(self, kind: int) -> int:
        """Return how many features are of a class."""
        return int((self.classes == kind).sum())

    def told(self, *, confidence: float = 0.95) -> NDArray[np.bool_]:
        """Whether a feature's class holds beside all others at once, (F,).

        One-sided t bounds at (1 − confidence)/m each, m features scored. A score is a mean of
        skewed values, so that few prompts may say too much.
        """
        level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
        scored = self.measured > 1
        tail = (1.0 - level) / max(1, int(scored.sum()))
        quantile = stats.t.ppf(1.0 - tail, np.maximum(self.measured - 1, 1))
        with np.errstate(invalid="ignore"):
            far = np.abs(self.score - self.threshold) > quantile * self.error
        return scored & far & np.isfinite(self.error)

    def summary(self) -> dict[str, Any]:
        """Return counts and quantiles, JSON-able."""
        kinds = self.classes
        held = self.score[kinds != UNSCORED]
        ends = [float(one) for one in np.quantile(held, (0.1, 0.5, 0.9))] if len(held) else []
        sure = self.told()
        return {
            "features": len(kinds),
            "silent": self.count(UNSCORED),
            "backbone": self.count(BACKBONE),
            "scaffold": self.count(SCAFFOLD),
            "backbone_told": int((sure & (kinds == BACKBONE)).sum()),
            "scaffold_told": int((sure & (kinds == SCAFFOLD)).sum()),
            "exactly_zero": int((held == 0.0).sum()),
            "below_resolution": int((held < RESOLUTION).sum()),
            "below_floor": int((held <= self.floor).sum()),
            "zero_ablations": self.zeros,
            "ablations": self.ablations,
            "floor": self.floor,
            "quantiles": ends,
            "largest_scaffold": _median(self.largest[kinds == SCAFFOLD]),
            "largest_backbone": _median(self.largest[kinds == BACKBONE]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return every field, JSON-able; ``from_dict`` reads it back."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        listed = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in found.items()
        }
        # infinity is no number of strict JSON
        listed["error"] = [None if np.isinf(one) else float(one) for one in self.error]
        return listed

    @staticmethod
    def from_dict(content: Any) -> FeatureScores:
        """Return what ``to_dict`` described."""
        held = dict(content)
        held["error"] = [np.inf if one is None else one for one in held["error"]]
        for name in ("active", "measured"):
            held[name] = np.array(held[name], dtype=np.int64)
        for name in ("score", "error", "largest", "mean"):
            held[name] = np.array(held[name], dtype=np.float64)
            if held[name].shape != held["active"].shape or np.isnan(held[name]).any():
                raise ValueError(f"scores.{name}: expected {held['active'].size} numbers")
        positive("scores.threshold", held["threshold"])
        return FeatureScores(**held)


@torch.no_grad()
def score_features(
    model: LanguageModel,
    layer: int,
    transcoder: Transcoder,
    prompts: ArrayLike,
    *,
    threshold: float = 1e-3,
    each: int | None = 50,
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
        threshold: τ > 0, nats, declared before scores are looked at.
        each: prompts a feature is taken out of at most; all when None.
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
    tau = positive("threshold", threshold)
    if each is not None:
        integer("each", each, minimum=1)
    tokens = model.check_tokens(prompts, name="prompts")
    coder = transcoder.to(model.device)
    site = read_site(model, level, tokens, coder.reads)
    found = coder.encode(site.inputs)
    pairs = _chosen((found > 0).cpu().numpy(), each, generator(rng))
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
                logits = onward.select(rows).logits(states)
                values[part] = divergences(clean[rows], logits).cpu().numpy()
    return _summed(found, pairs, values, tau, floor)


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


def _median(values: Array) -> float | None:
    return float(np.median(values)) if len(values) else None
