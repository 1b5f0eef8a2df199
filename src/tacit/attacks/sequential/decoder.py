"""Token by token maximum likelihood from a released trajectory of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    choice,
    generator,
    in_interval,
    integer,
    non_negative,
)
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.attacks.sequential.margin_law import StepLaw, step_law
from tacit.covariance import Covariance, Dense
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens, next_states
from tacit.models.texts.prefixes import Tokens

# states of one token differ by this much between two batch shapes, relative to the largest entry
STATE_ROUNDING = 2.0**-18


@short_repr
@read_only
@dataclass(frozen=True, eq=False)
class SequentialAttack:
    """What the decoder recovered, beside what the margins of the true prompts predict.

    Predictions are for maximum likelihood with one prefix kept, every token a candidate, and
    the floor as part of the noise. Without the truth they are None, as is what was recovered.

    Attributes:
        tokens: decoded prompts, (n, T).
        scores: their squared Mahalanobis distance to the release, (n,).
        floor: variance added to Σ by the decoder for the rounding of states.
        confidence: of the intervals.
        exact: share of prompts recovered whole.
        exact_interval: exact interval of its probability.
        recovered: share of tokens recovered, mean over prompts.
        recovered_interval: interval of its mean.
        margins: m_t, Mahalanobis distance from the true token's state to the nearest other's,
            (n, T).
        predicted: mean over prompts of the probability that all steps are right, each step's by
            drawing its noise.
        predicted_low: the same from ``Σ_v Φ(−m_v/2)``, at most every step's error.
        predicted_high: from ``Φ(−m_t/2)``, at least every step's error.
        published: the bound of Thm 20, ``Π [1 − (V − 1) exp(−m_t²/8)]₊``.
    """

    tokens: Tokens
    scores: Array
    floor: float
    confidence: float
    exact: float | None = None
    exact_interval: tuple[float, float] | None = None
    recovered: float | None = None
    recovered_interval: tuple[float, float] | None = None
    margins: Array | None = None
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    published: float | None = None


def sequential_decoder(
    model: LanguageModel,
    layer: int | Sequence[int],
    released: ArrayLike,
    covariance: Covariance | ArrayLike | Sequence[Covariance | ArrayLike],
    *,
    truth: ArrayLike | None = None,
    beam: int = 1,
    shortlist: int | None = None,
    token_law: str = "uniform",
    floor: float | None = None,
    confidence: float = 0.95,
    draws: int = 500,
    batch_size: int | None = None,
    rng: RandomSource = None,
) -> SequentialAttack:
    """Decode prompts from the noisy states of all their positions.

    ``ŷ_t = argmin_v ‖z_t − h_t(ŷ_<t ⊕ v)‖²_{Σ⁻¹}``, the likeliest token given those before, with
    ``beam`` prefixes kept. Several layers are independent views: their distances add up. A step
    costs V positions through the lower layers for every kept prefix.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings; or one for every view.
        released: noisy states, (T, d) of one prompt or (n, T, d); with several layers a sequence
            of such arrays.
        covariance: Σ of the noise at each position, a `Covariance` or (d, d); with several layers
            a sequence of them.
        truth: the true prompts, (T,) or (n, T), to measure and predict success.
        beam: prefixes kept.
        shortlist: candidates a step, the model's likeliest after the prefix; all V at the first
            position, and everywhere without.
        token_law: ``"uniform"``, or ``"model"`` to weigh tokens by the model's own prediction.
        floor: variance added to Σ, so that the rounding of states is not taken for information
            where Σ is small or singular; by default 2⁻³⁶ of the largest squared entry.
        confidence: of the intervals.
        draws: of the noise, a step of each prompt, for ``predicted``.
        batch_size: candidates run at a time.
        rng: source of the draws behind ``predicted``.

    Returns:
        The decoded prompts: evidence, never a guarantee.

    Raises:
        ValueError: shapes that do not fit, or an argument outside the model.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompt = torch.tensor([[7, 3, 44]])
        >>> clean = model.states(prompt, 1, positions="all")
        >>> sequential_decoder(model, 1, clean, 1e-8 * np.eye(16)).tokens.tolist()
        [[7, 3, 44]]

    Source: hidden-state, Thm 20, Cor. 21.
    """
    views = _views(model, layer, released, covariance, floor)
    count, length = views[0].released.shape[:2]
    if length > model.context:
        raise ValueError(f"released: expected at most {model.context} positions, got {length}")
    keep = integer("beam", beam, minimum=1)
    short = None if shortlist is None else integer("shortlist", shortlist, minimum=1)
    weigh = choice("token_law", token_law, ("uniform", "model")) == "model"
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    prompts = None if truth is None else _truth(model, truth, count, length)
    source, times = generator(rng), integer("draws", draws, minimum=1)
    reader = _Reader(model, views, short, weigh, batch_size)
    decoded = [_decode(reader, row, keep) for row in range(count)]
    tokens = np.array([best for best, _ in decoded], dtype=np.int64)
    scores = np.array([score for _, score in decoded])
    added = max(view.floor for view in views)
    if prompts is None:
        return SequentialAttack(tokens, scores, added, level)
    laws = [_law(reader, prompt, times, source) for prompt in prompts]
    right = tokens == prompts
    hits, shares = int(right.all(axis=1).sum()), right.mean(axis=1)
    spread = mean_interval(shares, level) if count > 1 else (0.0, 1.0)
    return SequentialAttack(
        tokens=tokens,
        scores=scores,
        floor=added,
        confidence=level,
        exact=hits / count,
        exact_interval=proportion_interval(hits, count, level),
        recovered=float(shares.mean()),
        recovered_interval=spread,
        margins=np.array([[law.margin for law in laws_of] for laws_of in laws]),
        predicted=_mean_product([[law.success for law in steps] for steps in laws]),
        predicted_low=_mean_product([[law.low for law in steps] for steps in laws]),
        predicted_high=_mean_product([[law.high for law in steps] for steps in laws]),
        published=_mean_product([[law.published for law in steps] for steps in laws]),
    )


def _mean_product(chances: list[list[float]]) -> float:
    """Noise is independent from step to step: chances multiply along a prompt (Thm 20)."""
    return float(np.prod(np.array(chances), axis=1).mean())


@dataclass(frozen=True, eq=False)
class _View:
    """One layer's released states with Σ + floor I whitened: ``Σ⁻¹ = W Wᵀ``."""

    layer: int
    released: Array
    whitener: Array
    floor: float


def _views(
    model: LanguageModel, layer: Any, released: Any, covariance: Any, floor: float | None
) -> list[_View]:
    many = isinstance(layer, Sequence) and not isinstance(layer, str)
    layers = [model.check_layer(each) for each in (layer if many else [layer])]
    if many and not isinstance(released, (Sequence, np.ndarray, Tensor)):
        raise ValueError(
            f"released: expected an array for each layer, got {type(released).__name__}"
        )
    parts = list(released) if many else [released]
    noises = list(covariance) if many and isinstance(covariance, Sequence) else [covariance]
    if not layers or len(parts) != len(layers) or len(noises) != len(layers):
        raise ValueError(
            f"released: expected states and a covariance for each of {len(layers)} layers, got "
            f"{len(parts)} and {len(noises)}"
        )
    views = [_view(model.width, *each, floor) for each in zip(layers, parts, noises, strict=True)]
    shapes = {view.released.shape for view in views}
    if len(shapes) > 1:
        raise ValueError(f"released: expected one shape in all layers, got {sorted(shapes)}")
    return views


def _view(width: int, layer: int, released: Any, noise: Any, floor: float | None) -> _View:
    found = array("released", released, ndim=(2, 3))
    states = found if found.ndim == 3 else found[None]
    sigma = noise if isinstance(noise, Covariance) else Dense(noise)
    if states.shape[2] != width or sigma.dim != width:
        raise ValueError(
            f"released: expected states and noise of {width} numbers, got {states.shape[2]} and "
            f"{sigma.dim}"
        )
    if floor is None:
        added = (STATE_ROUNDING * float(np.abs(states).max())) ** 2
    else:
        added = non_negative("floor", floor)
    if added == 0.0 and sigma.rank < width:
        raise ValueError(
            f"floor: expected a number > 0 for noise of rank {sigma.rank} in {width} dimensions"
        )
    values, vectors = np.linalg.eigh(sigma.to_dense())
    whitener = vectors / np.sqrt(np.maximum(values, 0.0) + added)
    return _View(layer, states, whitener, added)


def _truth(model: LanguageModel, truth: Any, count: int, length: int) -> Tokens:
    found = as_tokens("truth", truth, ndim=(1, 2))
    prompts = model.check_tokens(found[None] if found.ndim == 1 else found).cpu().numpy()
    if prompts.shape != (count, length):
        raise ValueError(f"truth: expected shape ({count}, {length}), got {prompts.shape}")
    return prompts


@dataclass(frozen=True, eq=False)
class _Reader:
    """Whitened states of every candidate after a prefix."""

    model: LanguageModel
    views: list[_View]
    shortlist: int | None
    weigh: bool
    batch_size: int | None

    def candidates(self, prefix: list[int]) -> tuple[Tensor, Array]:
        """Return candidate tokens and −2 log prior of each."""
        everything = torch.arange(self.model.vocabulary)
        bare = not self.weigh and self.shortlist is None
        if bare or not prefix:
            return everything, np.zeros(len(everything))
        logs = self.model.logits([prefix])[0].double().log_softmax(dim=-1).cpu()
        chosen = everything
        if self.shortlist is not None:
            chosen = logs.topk(min(self.shortlist, len(logs))).indices
        prices = -2.0 * logs[chosen].numpy() if self.weigh else np.zeros(len(chosen))
        return chosen, prices

    def whitened(self, prefix: list[int], candidates: Tensor) -> Array:
        """Return the states of the candidates, all views side by side, (m, views · d)."""
        layers = [view.layer for view in self.views]
        parts = next_states(
            self.model,
            torch.tensor(prefix, dtype=torch.int64),
            candidates,
            layers,
            batch_size=self.batch_size,
        )
        rows = [
            np.hstack(
                [
                    state.double().cpu().numpy() @ view.whitener
                    for state, view in zip(part, self.views, strict=True)
                ]
            )
            for part in parts
        ]
        return np.concatenate(rows)

    def target(self, row: int, step: int) -> Array:
        """Return the whitened released state of one position."""
        return np.concatenate([view.released[row, step] @ view.whitener for view in self.views])

    @property
    def length(self) -> int:
        """Positions of a trajectory."""
        return int(self.views[0].released.shape[1])


def _decode(reader: _Reader, row: int, beam: int) -> tuple[list[int], float]:
    """Keep the ``beam`` best prefixes at every step; the score is without the prior."""
    kept: list[tuple[float, float, list[int]]] = [(0.0, 0.0, [])]
    for step in range(reader.length):
        target = reader.target(row, step)
        grown = []
        for weighted, distance, prefix in kept:
            candidates, prices = reader.candidates(prefix)
            found = ((reader.whitened(prefix, candidates) - target) ** 2).sum(axis=1)
            totals = weighted + found + prices
            for i in np.argsort(totals, kind="stable")[:beam]:
                grown.append(
                    (
                        float(totals[i]),
                        distance + float(found[i]),
                        [*prefix, int(candidates[i])],
                    )
                )
        kept = sorted(grown, key=lambda entry: entry[0])[:beam]
    _, distance, best = kept[0]
    return best, distance


def _law(reader: _Reader, prompt: Tokens, draws: int, source: np.random.Generator) -> list[StepLaw]:
    """What each step's margins say, given that the steps before were right."""
    everything = torch.arange(reader.model.vocabulary)
    laws = []
    for step, token in enumerate(prompt):
        states = reader.whitened([int(each) for each in prompt[:step]], everything)
        differences = np.delete(states, int(token), axis=0) - states[int(token)]
        laws.append(step_law(differences, draws, source))
    return laws
