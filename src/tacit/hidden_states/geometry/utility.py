"""What a changed state does to the prediction, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit._ground.checks import Array, in_interval, non_negative, vector
from tacit._ground.reprs import short_repr
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.models.continuation import Continuation

LIKELIEST = 5
LARGE = 0.95


@short_repr
@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a change did to the prediction after each of n prompts.

    Attributes:
        kl: KL(clean ‖ changed), nats, (n,).
        jensen_shannon: ½ KL(clean ‖ m) + ½ KL(changed ‖ m) with m their mean, nats, (n,).
        kept: 1 where the likeliest token is unchanged, else 0, (n,).
        top5: share of the 5 likeliest tokens that are among the 5 likeliest after it, (n,).
    """

    kl: Array
    jensen_shannon: Array
    kept: Array
    top5: Array

    def __len__(self) -> int:
        return len(self.kl)

    @classmethod
    def join(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Put batches together."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class PredictionChange:
    """What a change does to predictions: divergences from the clean ones, tokens that stay.

    Attributes:
        count: n, prompts.
        kl: mean of KL(clean ‖ changed), nats.
        kl_error: its standard error.
        median: median of the KL.
        median_interval: distribution-free interval of the population's median.
        large: 95% quantile of the KL, for its tail is heavy.
        large_interval: distribution-free interval of it; up to infinity where n is small.
        jensen_shannon: mean Jensen–Shannon divergence, nats, at most ln 2.
        jensen_shannon_interval: for it, whatever its law.
        agreement: share of prompts whose likeliest token is unchanged.
        agreement_interval: exact interval of its probability.
        top5: mean share of the 5 likeliest tokens that stay among them.
        top5_interval: for it, whatever its law.
        predicted: ½ tr(FΣ), what the quadratic approximation says the mean is; None without F.
        confidence: of the intervals.
    """

    count: int
    kl: float
    kl_error: float
    median: float
    median_interval: tuple[float, float]
    large: float
    large_interval: tuple[float, float]
    jensen_shannon: float
    jensen_shannon_interval: tuple[float, float]
    agreement: float
    agreement_interval: tuple[float, float]
    top5: float
    top5_interval: tuple[float, float]
    predicted: float | None
    confidence: float

    @property
    def ratio(self) -> float | None:
        """Measured over predicted KL: near 1 where the quadratic approximation holds."""
        return None if not self.predicted else self.kl / self.predicted


def compare(
    clean: Tensor, changed: Tensor, *, predicted: float | None = None, confidence: float = 0.95
) -> PredictionChange:
    """Compare clean and changed logits of the same prompts.

    Args:
        clean: (n, V).
        changed: (n, V).
        predicted: ½ tr(FΣ) in nats, kept beside the measurement.
        confidence: of the intervals, in (0, 1).

    Returns:
        What the change did.

    Raises:
        ValueError: shapes differ, or a bad confidence.

    Example:
        >>> found = compare(torch.zeros(3, 2), torch.tensor([[0.0, 0.0]] * 3))
        >>> found.kl, found.agreement, found.top5
        (0.0, 1.0, 1.0)
    """
    if clean.ndim != 2 or clean.shape != changed.shape or len(clean) == 0:
        raise ValueError(
            f"changed: expected logits of shape {tuple(clean.shape)}, got {tuple(changed.shape)}"
        )
    found = outcomes(clean.detach().double().cpu(), changed.detach().double().cpu())
    return summarise(found, predicted=predicted, confidence=confidence)


def outcomes(clean: Tensor, changed: Tensor) -> Outcomes:
    """Return what became of every prompt's prediction, computed in the type of the logits (n, V).

    Example:
        >>> found = outcomes(torch.tensor([[0.0, 80.0]]), torch.tensor([[80.0, 0.0]]))
        >>> found.kl.tolist(), found.jensen_shannon.round(4).tolist(), found.kept.tolist()
        ([80.0], [0.6931], [0.0])
    """
    before, after = clean.log_softmax(dim=-1), changed.log_softmax(dim=-1)
    half = math.log(2.0)
    between = torch.logaddexp(before, after) - half
    count = min(LIKELIEST, clean.shape[1])
    top = before.topk(count, dim=-1).indices[:, :, None]
    shared = (top == after.topk(count, dim=-1).indices[:, None, :]).any(dim=2)
    mean = (_divergence(before, between) + _divergence(after, between)) / 2.0
    same = before.argmax(dim=-1) == after.argmax(dim=-1)
    return Outcomes(
        _numbers(_divergence(before, after)),
        _numbers(mean.clamp(max=half)),
        _numbers(same),
        _numbers(shared.double().mean(dim=1)),
    )


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL of rows given by their logarithms, 0 ln 0 = 0."""
    chances = before.exp()
    terms = torch.where(chances > 0, chances * (before - after), torch.zeros_like(chances))
    return terms.sum(dim=-1).clamp(min=0.0)


def _numbers(values: Tensor) -> Array:
    found: Array = values.detach().double().cpu().numpy()
    return found


def summarise(
    found: Outcomes, *, predicted: float | None = None, confidence: float = 0.95
) -> PredictionChange:
    """Summarise what ``outcomes`` returned, of one batch or of several put together."""
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    count, same = len(found), int(found.kept.sum())
    half = math.log(2.0)
    low, high = _mean_interval(found.jensen_shannon / half, level)
    return PredictionChange(
        count=count,
        kl=float(found.kl.mean()),
        kl_error=float(found.kl.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf,
        median=float(np.median(found.kl)),
        median_interval=quantile_interval(found.kl, 0.5, level),
        large=float(np.quantile(found.kl, LARGE, method="inverted_cdf")),
        large_interval=quantile_interval(found.kl, LARGE, level),
        jensen_shannon=float(found.jensen_shannon.mean()),
        jensen_shannon_interval=(low * half, high * half),
        agreement=same / count,
        agreement_interval=proportion_interval(same, count, level),
        top5=float(found.top5.mean()),
        top5_interval=_mean_interval(found.top5, level),
        predicted=None if predicted is None else non_negative("predicted", predicted),
        confidence=level,
    )


def _mean_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Return an interval for a mean of values in [0, 1]: all of it where there is one value."""
    return mean_interval(np.clip(values, 0.0, 1.0), confidence) if len(values) > 1 else (0.0, 1.0)


def measure_utility(
    run: Continuation,
    states: Tensor,
    *,
    predicted: float | None = None,
    confidence: float = 0.95,
    batch_size: int | None = None,
) -> PredictionChange:
    """Measure what other states at the last position do, the earlier positions clean.

    Args:
        run: the clean prompts.
        states: (n, d).
        predicted: ½ tr(FΣ) in nats, kept beside the measurement.
        confidence: of the intervals.
        batch_size: rows computed at a time.

    Returns:
        The utility under consumer protocol A.

    Raises:
        ValueError: states of another shape, or a bad confidence.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.models import load
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> run = load(GPT2LMHeadModel(GPT2Config(**sizes))).continuation([[1, 2, 3]], layer=1)
        >>> measure_utility(run, run.clean_states).agreement
        1.0
    """
    with torch.no_grad():
        changed = run.logits(states, batch_size=batch_size)
    return compare(run.clean_logits, changed, predicted=predicted, confidence=confidence)


def quantile_interval(values: Array, share: float, confidence: float) -> tuple[float, float]:
    """Return order statistics around a quantile of values >= 0 that hold for every law.

    ``[x_(j), x_(k)]`` with the largest j of ``P(Bin(n, q) <= j − 1) <= (1 − confidence)/2`` and the
    least k of ``P(Bin(n, q) >= k) <= (1 − confidence)/2``; 0 or inf where n is too small for one.

    Args:
        values: (n,), >= 0.
        share: q in (0, 1).
        confidence: in (0, 1).

    Example:
        >>> quantile_interval(np.arange(1.0, 101.0), 0.5, 0.95)
        (40.0, 61.0)
        >>> quantile_interval(np.arange(1.0, 101.0), 0.95, 0.95)
        (90.0, 100.0)
    """
    ordered = np.sort(vector("values", values))
    place = in_interval("share", share, 0.0, 1.0, open_low=True, open_high=True)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    tail, counts = (1.0 - level) / 2.0, np.arange(1, ordered.size + 1)
    below = counts[stats.binom.cdf(counts - 1, ordered.size, place) <= tail]
    above = counts[stats.binom.sf(counts - 1, ordered.size, place) <= tail]
    return (
        float(ordered[below[-1] - 1]) if below.size else 0.0,
        float(ordered[above[0] - 1]) if above.size else math.inf,
    )
