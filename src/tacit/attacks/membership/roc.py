"""What scores say about membership: balanced accuracy, AUC and true positive rates, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import special

from tacit._ground.checks import Array, RandomSource, generator, in_interval, vector
from tacit.attacks.intervals import chernoff_interval, proportion_interval

# A half of fewer has no threshold to choose.
SMALLEST_GROUP = 4


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """The true positive rate at one false positive rate.

    Attributes:
        fpr: the false positive rate.
        tpr: the true positive rate on the measured ROC curve, ties broken by lot in expectation.
        interval: (low, high) for the true positive rate of the score's law at exactly ``fpr``.
    """

    fpr: float
    tpr: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class RocSummary:
    """How well scores tell members from non-members: a measurement, never a guarantee.

    Attributes:
        members: number of members scored.
        non_members: number of non-members scored.
        balanced_accuracy: (TPR + TNR)/2 at the threshold that was best on other scores.
        balanced_accuracy_interval: (low, high) for that threshold's balanced accuracy.
        auc: probability that a member scores above a non-member, ties counting one half.
        auc_interval: (low, high) for ``auc``.
        operating_points: the true positive rates asked for.
        confidence: coverage of each interval taken alone.
    """

    members: int
    non_members: int
    balanced_accuracy: float
    balanced_accuracy_interval: tuple[float, float]
    auc: float
    auc_interval: tuple[float, float]
    operating_points: tuple[OperatingPoint, ...]
    confidence: float


def roc(
    scores: ArrayLike,
    memberships: ArrayLike,
    *,
    confidence: float = 0.95,
    fpr: Sequence[float] = (0.01, 0.001),
    rng: RandomSource = None,
    chosen_on: tuple[ArrayLike, ArrayLike] | None = None,
) -> RocSummary:
    """Measure how well scores tell members from non-members, with finite-sample intervals.

    For scores that are independent given membership, with one law for members and one for
    non-members, and γ = 1 − confidence:

    * balanced accuracy: the threshold is chosen on a random half or on others; the rest is n₁ and
      n₀ independent trials, each with an exact binomial interval at failure γ/2;
    * AUC: with k = min(n₁, n₀), the U-statistic has the exponential moments of a mean of k
      independent comparisons at most (Hoeffding), hence ``k · kl(Û ‖ AUC) <= ln(2/γ)``;
    * TPR at FPR a: the j-th largest non-member score has a false positive rate of law
      Beta(j, n₀ + 1 − j) at most, so two of them enclose the threshold at failure γ/4 each; the
      members above them give exact binomial bounds at failure γ/4 each. With fewer than
      about ln(4/γ)/a non-members the lower end is zero: no such data can say otherwise.

    Args:
        scores: (n,), higher for members.
        memberships: (n,) truth values, at least four of each.
        confidence: in (0, 1), of each interval alone.
        fpr: false positive rates in (0, 1).
        rng: seed or generator that splits the scores into halves; the operating system's when
            None.
        chosen_on: scores and memberships of others, on which the threshold is chosen instead; all
            of ``scores`` are measured then, and what was learned from the others may be in them.

    Returns:
        The summary; nothing in it but the split depends on the order of the scores.

    Raises:
        ValueError: a bad argument, NaN or infinite scores included.

    Example:
        >>> source = np.random.default_rng(0)
        >>> saw = np.arange(4000) < 2000
        >>> found = roc(source.standard_normal(4000) + saw, saw, rng=0)
        >>> round(found.auc, 2), found.auc_interval[0] < 0.7602 < found.auc_interval[1]
        (0.76, True)

    Source: Hoeffding (1963), Sec. 5a; Clopper and Pearson (1934); Carlini et al. (2022), Sec. III.
    """
    members, others = _groups("", scores, memberships)
    chosen = None if chosen_on is None else _groups("chosen_on: ", *_two(chosen_on))
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    rates = [
        in_interval("fpr", rate, 0.0, 1.0, open_low=True, open_high=True)
        for rate in vector("fpr", fpr)
    ]
    area = _area(members, others)
    if chosen is None:
        chosen, (left_in, left_out) = _halves(members, others, generator(rng))
    else:
        left_in, left_out = members, others
    # chosen on scores that are not measured: the best of many thresholds is too good by luck
    threshold = _best_threshold(*chosen)
    accuracy, accuracy_interval = _balanced_accuracy(left_in, left_out, threshold, level)
    return RocSummary(
        members=members.size,
        non_members=others.size,
        balanced_accuracy=accuracy,
        balanced_accuracy_interval=accuracy_interval,
        auc=area,
        auc_interval=chernoff_interval(area, min(members.size, others.size), level),
        operating_points=tuple(_operating_point(members, others, rate, level) for rate in rates),
        confidence=level,
    )


def truth_values(name: str, values: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return an array of truth values of the shape given; zeros and ones count as such."""
    try:
        raw = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: expected truth values, got ragged rows") from None
    if raw.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {raw.shape}")
    if raw.dtype.kind not in "biuf" or not np.isin(raw, (0, 1)).all():
        raise ValueError(f"{name}: expected truth values, got others ({raw.dtype})")
    return raw.astype(bool)


def _area(members: Array, others: Array) -> float:
    ordered = np.sort(others)
    # a tie is half a win
    wins = 0.5 * sum(np.searchsorted(ordered, members, side).sum() for side in ("left", "right"))
    return float(min(1.0, max(0.0, wins / (members.size * others.size))))


def _groups(prefix: str, scores: Any, memberships: Any) -> tuple[Array, Array]:
    """Return the scores of members and those of the others."""
    values = vector(f"{prefix}scores", scores)
    inside = truth_values(f"{prefix}memberships", memberships, values.shape)
    members, others = values[inside], values[~inside]
    if min(members.size, others.size) < SMALLEST_GROUP:
        raise ValueError(
            f"{prefix}memberships: expected at least {SMALLEST_GROUP} members and as many "
            f"non-members, got {members.size} and {others.size}"
        )
    return members, others


def _two(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError("chosen_on: expected scores and their memberships, got something else")
    return pair[0], pair[1]


def _halves(
    members: Array, others: Array, source: np.random.Generator
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return a random half of each group, and the rest."""
    shuffled = source.permutation(members), source.permutation(others)
    (first_in, left_in), (first_out, left_out) = (np.array_split(part, 2) for part in shuffled)
    return (first_in, first_out), (left_in, left_out)


def _balanced_accuracy(
    members: Array, others: Array, threshold: float, level: float
) -> tuple[float, tuple[float, float]]:
    """Return accuracy and interval at a threshold that does not depend on these scores."""
    # TPR and TNR are two binomials: γ/2 each
    each = 1.0 - (1.0 - level) / 2.0
    hits_in, hits_out = int((members >= threshold).sum()), int((others < threshold).sum())
    low_in, high_in = proportion_interval(hits_in, members.size, each)
    low_out, high_out = proportion_interval(hits_out, others.size, each)
    accuracy = 0.5 * (hits_in / members.size + hits_out / others.size)
    return accuracy, (0.5 * (low_in + low_out), 0.5 * (high_in + high_out))


def _best_threshold(members: Array, others: Array) -> float:
    """Return t that maximises TPR − FPR for the guess "in if score >= t"."""
    values = np.unique(np.concatenate([members, others]))
    best = int((_share_above(members, values) - _share_above(others, values)).argmax())
    if best == 0:
        return -np.inf
    return float(0.5 * values[best - 1] + 0.5 * values[best])


def _operating_point(members: Array, others: Array, rate: float, level: float) -> OperatingPoint:
    quarter, each = (1.0 - level) / 4.0, 1.0 - (1.0 - level) / 2.0
    count = others.size
    largest_first = np.sort(others)[::-1]
    position = np.arange(1, count + 1)
    # P(S > j-th largest) has the law Beta(j, n + 1 − j), and is smaller still where scores tie.
    below = special.betainc(position, count + 1 - position, rate)
    low, high = 0.0, 1.0
    strict = np.flatnonzero(below >= 1.0 - quarter)
    if strict.size:
        hits = int((members > largest_first[strict[-1]]).sum())
        low = proportion_interval(hits, members.size, each)[0]
    loose = np.flatnonzero(below <= quarter)
    if loose.size:
        hits = int((members >= largest_first[loose[0]]).sum())
        high = proportion_interval(hits, members.size, each)[1]
    return OperatingPoint(fpr=rate, tpr=_measured_rate(members, others, rate), interval=(low, high))


def _measured_rate(members: Array, others: Array, rate: float) -> float:
    """Return the height of the measured ROC curve, linear between thresholds."""
    values = np.unique(np.concatenate([members, others]))[::-1]
    found = np.append(0.0, _share_above(members, values))
    false = np.append(0.0, _share_above(others, values))
    # The last threshold at or below the rate: the top of a vertical stretch.
    last = int(np.searchsorted(false, rate, side="right")) - 1
    if last == values.size or false[last] == rate:
        return float(found[last])
    share = (rate - false[last]) / (false[last + 1] - false[last])
    return float(found[last] + share * (found[last + 1] - found[last]))


def _share_above(scores: Array, thresholds: Array) -> Array:
    """Return the share of scores at or above each threshold."""
    below = np.searchsorted(np.sort(scores), thresholds)
    share: Array = (scores.size - below) / scores.size
    return share
