"""How far neighbours' vectors may point apart: bounded for means, raised by noise, or measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from tacit._ground.checks import in_interval, integer, matrix, positive
from tacit._ground.numbers import EPS


@dataclass(frozen=True, kw_only=True)
class MeasuredAlignment:
    """The smallest cosine found among some neighbours: evidence about them, and no bound.

    Attributes:
        value: the smallest cosine.
        neighbours: how many were looked at.
    """

    value: float
    neighbours: int


def mean_alignment(count: int, *, bound: float, least_norm: float) -> float:
    """Bound the cosine of neighbouring means from below: ``ρ >= 1 − 2L²/(c₀² n²)``.

    The means of n vectors of norm at most L that differ in one vector are within 2L/n. Two vectors
    of norm at least c₀ and that near to each other have an angle of at most 2 arcsin(L/(n c₀)),
    reached where both norms are c₀.

    Args:
        count: n >= 1 vectors, the same for both neighbours.
        bound: L > 0, largest norm of one.
        least_norm: c₀ > 0, smallest norm of a mean; data sets with a smaller one are not among
            those that the guarantee is about.

    Returns:
        ρ in [−1, 1], rounded down.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(mean_alignment(1000, bound=1.0, least_norm=0.5), 9)
        0.999992

    Source: lora-privacy, Sec. 3.1, with 2 in place of 8.
    """
    size = integer("count", count, minimum=1)
    longest, least = positive("bound", bound), positive("least_norm", least_norm)
    half = longest / (size * least) * (1 + 4 * EPS)
    return -1.0 if half >= 1.0 else 1.0 - 2.0 * half**2 * (1 + 4 * EPS) - EPS


def raised_alignment(alignment: float, *, noise: float, dim: int, confidence: float) -> float:
    """Bound the cosine from below after ``v ↦ (v + γu)/‖v + γu‖``, u uniform on the sphere.

    With c = √((1 + ρ)/2) and u₁ the part of u along v + v', the cosine with the same u in both is
    at least ``(ρ + γ² + 2γcu₁)/(1 + γ² + 2γcu₁)``, which grows with u₁; u₁² is Beta(½, (d−1)/2),
    and with t its quantile u₁ >= −t but with probability 1 − ``confidence``. The hockey-stick
    divergence is jointly convex: δ is at most δ at this cosine, plus that probability.

    Args:
        alignment: ρ in [−1, 1], of the vectors.
        noise: γ > 0.
        dim: d >= 2.
        confidence: in (0, 1), that the cosine is raised so far.

    Returns:
        The raised ρ, rounded down; ρ itself where nothing is gained.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> round(raised_alignment(0.5, noise=2.0, dim=1000, confidence=1 - 1e-6), 3)
        0.888

    Source: lora-privacy, Lemma 10, with the exact law of u₁ and vectors of one norm.
    """
    before = in_interval("alignment", alignment, -1.0, 1.0)
    size, width = positive("noise", noise), integer("dim", dim, minimum=2)
    sure = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    chance = 1.0 - sure
    if before == 1.0 or chance >= 0.5:
        return before
    farthest = math.sqrt(float(stats.beta.isf(2 * chance, 0.5, (width - 1) / 2))) * (1 + 1e-9)
    half = math.sqrt((1 + before) / 2)
    shift = size**2 - 2 * size * min(farthest, 1.0) * half
    # the bound grows with ρ where this holds, so that the smallest ρ of neighbours decides
    least = 1 + size**2 - 2 * size * min(farthest, 1.0)
    grows = half > 0 and least >= size * farthest * (1 - before) / (2 * half)
    if before + shift < 0.0 or not grows:
        return before
    found = (before + shift) / (1 + shift) * (1 - 1e-12)
    return max(before, min(found, 1.0))


def measured_alignment(vectors: ArrayLike) -> MeasuredAlignment:
    """Return the smallest cosine between the mean of all vectors and the means without one.

    It is about these data only: the guarantee needs a bound for every data set (`mean_alignment`),
    and no projection takes this value.

    Args:
        vectors: (n, d), n >= 2.

    Raises:
        ValueError: a bad argument, or a mean that is zero.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(100, 5)) + 3.0
        >>> measured_alignment(rows).value > 0.999
        True
    """
    rows = matrix("vectors", vectors)
    if len(rows) < 2:
        raise ValueError(f"vectors: expected at least 2, got {len(rows)}")
    total = rows.sum(axis=0)
    others = total - rows
    lengths = np.linalg.norm(others, axis=1) * float(np.linalg.norm(total))
    if not lengths.all():
        raise ValueError("vectors: expected means that are not zero, got one that is")
    return MeasuredAlignment(
        value=float((others @ total / lengths).clip(-1.0, 1.0).min()), neighbours=len(rows)
    )


def checked_alignment(value: Any) -> float:
    """Return a bound on the alignment; a measured one is refused."""
    if isinstance(value, MeasuredAlignment):
        raise ValueError(
            "alignment: expected a bound that holds for every data set, such as mean_alignment, "
            f"got one measured on {value.neighbours} neighbours"
        )
    return in_interval("alignment", value, -1.0, 1.0)
