"""Confidence intervals with finite-sample coverage for what an attack measured."""

from __future__ import annotations

import math

from scipy import special

from tacit._ground.checks import Array, in_interval, integer, vector

# up to so many values Chernoff's interval is used, beyond them the empirical Bernstein one
FEW = 500


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
    half = _half_width(float(sample.var(ddof=1)), sample.size, level)
    mean = float(sample.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def share_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Return an interval for the mean of independent values in [0, 1], of few or of many.

    Up to 500 values it is that of Chernoff's bound, which Hoeffding showed for every law on
    [0, 1]: the μ with ``n kl(mean ‖ μ) <= ln(2/γ)``. Beyond, it is ``mean_interval``, which gains
    by a small variance. Which of the two it is depends on n alone, so that each keeps its coverage.

    Args:
        values: (n,), independent, each in [0, 1].
        confidence: in (0, 1).

    Raises:
        ValueError: as ``mean_interval``.

    Example:
        >>> import numpy as np
        >>> [round(end, 3) for end in share_interval(np.ones(24), 0.95)]
        [0.858, 1.0]

    Source: Hoeffding (1963), Theorem 1, (2.1).
    """
    sample = vector("values", values)
    if sample.size > FEW:
        return mean_interval(sample, confidence)
    if sample.min() < 0.0 or sample.max() > 1.0:
        raise ValueError(
            f"values: expected values in [0, 1], got {sample.min():.6g} to {sample.max():.6g}"
        )
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    # n kl(mean ‖ μ) <= ln(2/γ) on either side; the upper end is the lower one of 1 − x
    mean, most = float(sample.mean()), math.log(2.0 / (1.0 - level)) / sample.size
    return _chernoff_end(mean, most), 1.0 - _chernoff_end(1.0 - mean, most)


def _chernoff_end(mean: float, most: float) -> float:
    """Return the least μ <= mean with ``kl(mean ‖ μ) <= most``, by bisection from below."""
    low, high = 0.0, mean
    # 60 halvings of [0, 1] reach a double; the end kept is outside, so the interval is no shorter
    for _ in range(60):
        middle = 0.5 * (low + high)
        told = special.rel_entr(mean, middle) + special.rel_entr(1.0 - mean, 1.0 - middle)
        low, high = (low, middle) if told <= most else (middle, high)
    return low


def least_upper_end(mean: float, count: int, confidence: float) -> float:
    """Return the least upper end that an interval can have for n values in [0, 1] of this mean.

    It is that of ``proportion_interval`` where the mean is a share of n, or of ``mean_interval``
    for n values that are all alike, whichever is lower.

    Args:
        mean: of the values, in [0, 1].
        count: n >= 1.
        confidence: in (0, 1).

    Example:
        >>> least_upper_end(0.5, 100, 0.95) == proportion_interval(50, 100, 0.95)[1]
        True
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    ends = [1.0]
    if count > 1:
        ends.append(mean + _half_width(0.0, count, level))
    hits = round(mean * count)
    if math.isclose(hits, mean * count, rel_tol=1e-9, abs_tol=1e-9):
        ends.append(proportion_interval(hits, count, level)[1])
    return min(ends)


def _half_width(variance: float, count: int, level: float) -> float:
    """Return √(2 V L/n) + 7 L/(3 (n − 1)), L = ln(4/γ)."""
    log_term = math.log(4.0 / (1.0 - level))
    return math.sqrt(2.0 * variance * log_term / count) + 7.0 * log_term / (3.0 * (count - 1))


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
    low = 0.0 if found == 0 else float(special.betaincinv(found, count - found + 1, tail))
    high = 1.0 if found == count else float(special.betainccinv(found + 1, count - found, tail))
    return low, high


def chernoff_interval(mean: float, count: int, confidence: float) -> tuple[float, float]:
    """Return an interval for an expectation from an average of values in [0, 1].

    All θ with ``n kl(mean ‖ θ) <= ln(2/(1 − confidence))``. It holds for n independent values of
    different laws, and for a U-statistic that averages means of n independent values.

    Args:
        mean: the average, in [0, 1].
        count: n >= 1.
        confidence: in (0, 1).

    Returns:
        (low, high), in [0, 1].

    Raises:
        ValueError: a bad argument.

    Example:
        >>> low, high = chernoff_interval(0.5, 1000, 0.95)
        >>> 0.456 < low < 0.458 and 0.542 < high < 0.544
        True

    Source: Hoeffding (1963), Thm 1 and Sec. 5.
    """
    average = in_interval("mean", mean, 0.0, 1.0)
    trials = integer("count", count, minimum=1, maximum=2**53)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    budget = math.log(2.0 / (1.0 - level)) / trials
    return 1.0 - _farthest(1.0 - average, budget), _farthest(average, budget)


def _farthest(average: float, budget: float) -> float:
    """Return the largest θ >= average with kl(average ‖ θ) <= budget, rounded up."""
    low, high = average, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        distance = special.rel_entr(average, middle)
        distance += special.rel_entr(1.0 - average, 1.0 - middle)
        if distance <= budget:
            low = middle
        else:
            high = middle
    return high


def student_errors(count: int, confidence: float) -> float:
    """Return standard errors on each side of a mean of n values, by Student's law of n − 1.

    Exact where values are normal; the interval of a mean that has no upper end, such as of KL.

    Args:
        count: n >= 2.
        confidence: in (0, 1).

    Example:
        >>> round(student_errors(2, 0.95), 2), round(student_errors(10_000, 0.95), 2)
        (12.71, 1.96)
    """
    freedom = integer("count", count, minimum=2) - 1
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    return float(special.stdtrit(freedom, 0.5 + 0.5 * level))
