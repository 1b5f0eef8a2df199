"""Confidence intervals with finite-sample coverage for what an attack measured."""

from __future__ import annotations

import math

from scipy import stats

from tacit._validation import Array, in_interval, integer, vector


def mean_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Return an interval for the mean of independent values in [0, 1].

    Maurer and Pontil's empirical Bernstein bound on each side, γ = 1 − confidence:
    ``mean ± (√(2 V L/n) + 7 L/(3 (n − 1)))``, L = ln(4/γ), V the unbiased sample variance.

    Args:
        values: (n,), n >= 2, independent, each in [0, 1].
        confidence: in (0, 1).

    Returns:
        (low, high), clipped to [0, 1].

    Raises:
        ValueError: fewer than two values, a value outside [0, 1], or a bad confidence.

    Example:
        >>> import numpy as np
        >>> low, high = mean_interval(np.full(2000, 0.5), 0.95)
        >>> low < 0.5 < high and high - low < 0.011
        True
    """
    sample = vector("values", values)
    if sample.size < 2:
        raise ValueError(f"values: expected at least 2 values, got {sample.size}")
    if sample.min() < 0.0 or sample.max() > 1.0:
        raise ValueError(
            f"values: expected values in [0, 1], got {sample.min():.6g} to {sample.max():.6g}"
        )
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    log_term = math.log(4.0 / (1.0 - level))
    count = sample.size
    half = math.sqrt(2.0 * float(sample.var(ddof=1)) * log_term / count)
    half += 7.0 * log_term / (3.0 * (count - 1))
    mean = float(sample.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def proportion_interval(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return Clopper and Pearson's exact interval for a probability.

    Args:
        hits: number of successes, 0 … trials.
        trials: number of independent trials, >= 1.
        confidence: in (0, 1).

    Returns:
        (low, high): ``P(Bin(n, low) >= hits) = P(Bin(n, high) <= hits) = (1 − confidence)/2``.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> low, high = proportion_interval(0, 100, 0.95)
        >>> low, round(high, 4)
        (0.0, 0.0362)
    """
    count = integer("trials", trials, minimum=1)
    found = integer("hits", hits, minimum=0, maximum=count)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    tail = (1.0 - level) / 2.0
    low = 0.0 if found == 0 else float(stats.beta.ppf(tail, found, count - found + 1))
    high = 1.0 if found == count else float(stats.beta.isf(tail, found + 1, count - found))
    return low, high
