"""What a changed state does to the prediction, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit._ground.checks import Array, in_interval, non_negative, vector
from tacit.attacks.intervals import proportion_interval
from tacit.models.continuation import Continuation


@dataclass(frozen=True)
class Utility:
    """KL divergence from clean to changed predictions, and how often the likeliest token stays.

    Attributes:
        count: n, prompts.
        kl: mean of KL(clean ‖ changed), nats.
        kl_error: its standard error.
        median: median of the KL.
        median_interval: distribution-free interval of the population's median.
        agreement: share of prompts whose likeliest token is unchanged.
        agreement_interval: exact interval of its probability.
        predicted: ½ tr(FΣ), what the quadratic approximation says the mean is; None without F.
        confidence: of both intervals.
    """

    count: int
    kl: float
    kl_error: float
    median: float
    median_interval: tuple[float, float]
    agreement: float
    agreement_interval: tuple[float, float]
    predicted: float | None
    confidence: float

    @property
    def ratio(self) -> float | None:
        """Measured over predicted KL: near 1 where the quadratic approximation holds."""
        return None if not self.predicted else self.kl / self.predicted


def divergence(clean: Tensor, changed: Tensor) -> Array:
    """KL(softmax clean ‖ softmax changed) of each row in nats, (n,), float64."""
    reference = clean.detach().double().cpu().log_softmax(dim=-1)
    other = changed.detach().double().cpu().log_softmax(dim=-1)
    values = (reference.exp() * (reference - other)).sum(dim=-1).clamp(min=0.0)
    result: Array = values.numpy()
    return result


def compare(
    clean: Tensor, changed: Tensor, *, predicted: float | None = None, confidence: float = 0.95
) -> Utility:
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
        >>> found.kl, found.agreement
        (0.0, 1.0)
    """
    if clean.ndim != 2 or clean.shape != changed.shape or len(clean) == 0:
        raise ValueError(
            f"changed: expected logits of shape {tuple(clean.shape)}, got {tuple(changed.shape)}"
        )
    return summarise(*outcomes(clean, changed), predicted=predicted, confidence=confidence)


def outcomes(clean: Tensor, changed: Tensor) -> tuple[Array, Array]:
    """Return the KL of every prompt in nats, and 1 where the likeliest token is unchanged."""
    kept = clean.argmax(dim=-1) == changed.argmax(dim=-1)
    return divergence(clean, changed), kept.double().cpu().numpy()


def summarise(
    values: Array, kept: Array, *, predicted: float | None = None, confidence: float = 0.95
) -> Utility:
    """Summarise what ``outcomes`` returned, of one batch or of several put together."""
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    count, same = len(values), int(kept.sum())
    return Utility(
        count=count,
        kl=float(values.mean()),
        kl_error=float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf,
        median=float(np.median(values)),
        median_interval=median_interval(values, level),
        agreement=same / count,
        agreement_interval=proportion_interval(same, count, level),
        predicted=None if predicted is None else non_negative("predicted", predicted),
        confidence=level,
    )


def measure_utility(
    run: Continuation,
    states: Tensor,
    *,
    predicted: float | None = None,
    confidence: float = 0.95,
    batch_size: int | None = None,
) -> Utility:
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


def median_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Return order statistics around the median of values >= 0 that hold for every law.

    ``[x_(j), x_(n+1−j)]`` with the largest j of ``P(Bin(n, ½) <= j − 1) <= (1 − confidence)/2``;
    0 and inf where n is too small for any.

    Example:
        >>> median_interval(np.arange(1.0, 101.0), 0.95)
        (40.0, 61.0)
    """
    ordered = np.sort(vector("values", values))
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    tail = (1.0 - level) / 2.0
    place = int(stats.binom.ppf(tail, ordered.size, 0.5))
    # ppf is the least m with P(Bin <= m) >= tail, so j − 1 < m unless it is met exactly
    while place > 0 and stats.binom.cdf(place - 1, ordered.size, 0.5) > tail:
        place -= 1
    if place == 0:
        return 0.0, math.inf
    return float(ordered[place - 1]), float(ordered[-place])
