"""When a search has found something, and when the truth is that nothing fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import betaincinv

# Chance that directions without relation to the task pass for a match.
FALSE_ALARM = 0.01


@dataclass(frozen=True)
class MatchVerdict:
    """Whether the best match of a search is one.

    Attributes:
        good_match: whether its similarity is above the threshold.
        threshold: what unrelated directions surpass in 1 search of 100.
        sentence: both, in words.
    """

    good_match: bool
    threshold: float
    sentence: str


def judge_match(best: float | None, compared: int, size: int) -> MatchVerdict:
    """Return whether the best similarity of a search is more than chance.

    Of a direction drawn uniformly at random in d dimensions, the cosine c with any other has
    c² ~ Beta(1/2, (d−1)/2). The threshold t is what the largest of n such cosines surpasses
    with probability at most n P(c > t) = 1%.

    Args:
        best: largest similarity, None where nothing was compared.
        compared: n, how many learnwares were compared.
        size: d, how many numbers a specification has.

    Example:
        >>> judge_match(0.5, 100, 64).good_match, judge_match(0.4, 100, 64).good_match
        (True, False)
    """
    if best is None or compared == 0:
        return MatchVerdict(False, 1.0, "No good match: there is nothing to compare with.")
    # P(c > t) = ½ P(c² > t²), and P(c² > t²) = I_{1 − t²}((d − 1)/2, ½)
    tail = min(1.0, 2.0 * FALSE_ALARM / compared)
    rest = float(betaincinv((size - 1) / 2.0, 0.5, tail)) if size > 1 else 0.0
    threshold = math.sqrt(max(0.0, 1.0 - rest))
    told = (
        f"the best of {compared} has similarity {best:.3f}; directions without any relation "
        f"surpass {threshold:.3f} in 1 search of 100"
    )
    if best > threshold:
        return MatchVerdict(True, threshold, f"A match: {told}.")
    return MatchVerdict(False, threshold, f"No good match: {told}.")
