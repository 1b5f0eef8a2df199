"""Token by token maximum likelihood from a released trajectory of states or codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, integer
from tacit._ground.frozen import array_value
from tacit._ground.values import Count, NonNegative, Share, value
from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.attacks.inversion.probe import TokenProbe
from tacit.attacks.sequential.search import PrefixReader
from tacit.attacks.sequential.views import View, as_views, side_by_side
from tacit.covariance import Covariance
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import Tokens

# candidates a step from the model and as many from the probe, where there is one
LIKELIEST = 48


@array_value()
class SequentialAttack:
    """What the decoder recovered, beside what the margins of the true prompts predict.

    Predictions are for maximum likelihood with one prefix kept, every token a candidate, and
    the floor as part of the noise; None for codes and where they were not asked for. Without the
    truth they are None, as is what was recovered.

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


@value
class TokenSearch:
    """How a decoder searches tokens, and what is predicted of its success.

    Args:
        beam: Prefixes kept.
        shortlist: Candidates a step, the model's likeliest after the prefix, and with a probe as
            many of its own (48 of each unless told); all V at the first position, and everywhere
            without a probe.
        fallback: Tokens tried where a probe's shortlist fails, the model's likeliest after the
            prefix, at least as many as the shortlist has of each; all V when None, which is slow
            for codes that read predictions.
        token_law: Uniform, or model to weigh tokens by the model's own prediction.
        floor: Variance added to Σ, so that the rounding of states is not taken for information
            where Σ is small or singular; 2⁻³⁶ of the largest squared entry when left out.
        margins: Whether success is predicted too, which costs V positions a step of each true
            prompt; codes have no margins.
        confidence: Of the intervals.
        draws: Of the noise, a step of each prompt, for ``predicted``.
        batch_size: Candidates run at a time.

    Example:
        >>> TokenSearch(beam=3)
        TokenSearch(beam=3)
    """

    beam: Count = 1
    shortlist: Count | None = None
    fallback: Count | None = None
    token_law: Literal["uniform", "model"] = "uniform"
    floor: NonNegative | None = None
    margins: bool = True
    confidence: Share = 0.95
    draws: Count = 500
    batch_size: Count | None = None


SEARCH = TokenSearch()


def sequential_decoder(
    model: LanguageModel,
    layer: int | Sequence[int],
    released: ArrayLike,
    covariance: Covariance | ArrayLike | CodeChannel | Sequence[Any],
    search: TokenSearch = SEARCH,
    *,
    truth: ArrayLike | None = None,
    probe: TokenProbe | None = None,
    rng: RandomSource = None,
) -> SequentialAttack:
    """Decode prompts from the noisy states, or the codes, of all their positions.

    ``ŷ_t = argmin_v ‖z_t − h_t(ŷ_<t ⊕ v)‖²_{Σ⁻¹} − 2 ln p(v)``, the likeliest token given those
    before, with ``beam`` prefixes kept. Several layers are independent views: their distances add
    up. A step costs V positions through the lower layers for every kept prefix, or with a probe
    those of its shortlist and the model's; where the nearest of them is farther from the release
    than the true token's state is once in 10⁶ times, all V are tried, or as many as told.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings; or one for every view.
        released: noisy states, (T, d) of one prompt or (n, T, d), or codes, (T,) or (n, T); with
            several layers a sequence of such arrays.
        covariance: Σ of the noise at each position, a `Covariance` or (d, d), or the `CodeChannel`
            of codes; with several layers a sequence of them.
        search: how tokens are searched, and what is predicted of it.
        truth: the true prompts, (T,) or (n, T), to measure and predict success.
        probe: a `TokenProbe` of the same layers and channels.
        rng: source of the draws behind ``predicted``.

    Returns:
        The decoded prompts: evidence, never a guarantee.

    Raises:
        ValueError: shapes that do not fit, or an argument outside the model.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompt = [[7, 3, 44]]
        >>> clean = model.states(prompt, 1, positions="all")
        >>> sequential_decoder(model, 1, clean, 1e-8 * np.eye(16)).tokens.tolist()
        [[7, 3, 44]]

    Source: hidden-state, Thm 20, Cor. 21.
    """
    views = as_views(model, layer, released, covariance, search.floor, probe)
    count, length = views[0].shape
    if length > model.context:
        raise ValueError(f"released: expected at most {model.context} positions, got {length}")
    weigh, level = search.token_law == "model", search.confidence
    prompts = None if truth is None else _truth(model, truth, count, length)
    source = generator(rng)
    coded = any(isinstance(noise, CodeChannel) for noise in _each(covariance))
    predict = search.margins and not coded
    short, likely = _shortlists(search.shortlist, probe, views)
    last = None if search.fallback is None else _fallback(search.fallback, short, probe)
    reader = PrefixReader(model, views, short, likely, last, weigh, search.batch_size)
    decoded = [reader.decode(row, search.beam) for row in range(count)]
    tokens = np.array([best.tokens for best in decoded], dtype=np.int64)
    scores = np.array([best.distance for best in decoded])
    added = max(view.floor for view in views)
    if prompts is None:
        return SequentialAttack(tokens, scores, added, level)
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
        **(_predicted(reader, prompts, search.draws, source) if predict else {}),
    )


def _each(covariance: Any) -> list[Any]:
    return list(covariance) if isinstance(covariance, (list, tuple)) else [covariance]


def _shortlists(
    shortlist: int | None, probe: TokenProbe | None, views: list[View]
) -> tuple[int | None, Any]:
    """Return how many candidates the model gives, and those of the probe, (n, T, k) or None."""
    if probe is None:
        return shortlist, None
    size = LIKELIEST if shortlist is None else shortlist
    states, covariance = side_by_side(views)
    flat = probe.shortlist(states.reshape(-1, states.shape[2]), covariance, size)
    return size, flat.reshape(*states.shape[:2], -1)


def _fallback(fallback: int, short: int | None, probe: TokenProbe | None) -> int:
    if probe is None:
        raise ValueError("fallback: expected together with a probe, whose shortlist may fail")
    return integer("fallback", fallback, minimum=short or 1)


def _predicted(
    reader: PrefixReader, prompts: Tokens, draws: int, source: np.random.Generator
) -> dict[str, Any]:
    """What the margins of the true prompts predict, averaged over them."""
    laws = [reader.law(prompt, draws, source) for prompt in prompts]
    return {
        "margins": np.array([[law.margin for law in steps] for steps in laws]),
        "predicted": _mean_product([[law.success for law in steps] for steps in laws]),
        "predicted_low": _mean_product([[law.low for law in steps] for steps in laws]),
        "predicted_high": _mean_product([[law.high for law in steps] for steps in laws]),
        "published": _mean_product([[law.published for law in steps] for steps in laws]),
    }


def _mean_product(chances: list[list[float]]) -> float:
    """Noise is independent from step to step: chances multiply along a prompt (Thm 20)."""
    return float(np.prod(np.array(chances), axis=1).mean())


def _truth(model: LanguageModel, truth: Any, count: int, length: int) -> Tokens:
    found = as_tokens("truth", truth, ndim=(1, 2))
    prompts = model.check_tokens(found[None] if found.ndim == 1 else found).cpu().numpy()
    if prompts.shape != (count, length):
        raise ValueError(f"truth: expected shape ({count}, {length}), got {prompts.shape}")
    return prompts
