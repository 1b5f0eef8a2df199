"""Trivial baselines: means of frozen features, without a gradient, and the names of classes alone.

One record adds c(φ) or its label's row of it, ‖c(φ)‖ ≤ C, so replacing one record moves the mean by
at most 2C/n; the noise is the exact Gaussian mechanism's for that. Of a histogram of labels, which
looks at no input, it moves two shares by 1/n each: √2/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tacit.accounting import calibrate, gaussian

Floats = npt.NDArray[np.float64]
DELTA = 1e-5
# Rows of the labelled means: more labels than any task has.
LABELS = 5
NAMES = ("mean feature", "scatter", "class means", "inner class means")
HISTOGRAM = "label histogram"
BASELINES = (*NAMES, HISTOGRAM)


@dataclass(frozen=True, eq=False)
class BaselineFrame:
    """What is public: where features lie, how far they reach, and the clip.

    Attributes:
        centre: (d,) mean of public features.
        scale: (d,) their standard deviations times √d.
        clip: C, the median length of public features that are centred and scaled.
    """

    centre: Floats
    scale: Floats
    clip: float

    @staticmethod
    def of(public: npt.NDArray[np.floating]) -> BaselineFrame:
        """Return the frame of public features (n, d)."""
        held = np.asarray(public, dtype=float)
        centre = held.mean(axis=0)
        spread = held.std(axis=0)
        scale = (spread + 0.1 * float(spread.mean())) * held.shape[1] ** 0.5
        return BaselineFrame(
            centre, scale, float(np.median(np.linalg.norm((held - centre) / scale, axis=1)))
        )

    def clipped(self, features: npt.NDArray[np.floating]) -> Floats:
        """Return centred and scaled features, none longer than C."""
        moved = (np.asarray(features, dtype=float) - self.centre) / self.scale
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return np.asarray(moved * np.minimum(1.0, self.clip / np.maximum(lengths, 1e-300)))


def vectors(
    features: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    frame: BaselineFrame,
    *,
    epsilon: float | None,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Return the three baselines of one data set, each a release of its own under ε.

    Args:
        features: (n, d) of the frozen backbone.
        labels: (n,) 0 … K − 1; K is public.
        frame: the public frame.
        epsilon: budget of each for replacing one record at δ = 10⁻⁵, or None without privacy.
        rng: of the noise.
    """
    clipped = frame.clipped(features)
    count = len(clipped)
    std = 0.0 if epsilon is None else 2 * frame.clip / count * multiplier(epsilon)
    rows = np.zeros((LABELS, clipped.shape[1]))
    np.add.at(rows, labels, clipped)
    rows = rows / count + std * rng.standard_normal(rows.shape)
    mean = clipped.mean(axis=0) + std * rng.standard_normal(clipped.shape[1])
    means = rows[: int(labels.max()) + 1]
    apart = means - means.mean(axis=0)
    return {"mean feature": mean, "scatter": _square(apart), "class means": rows.ravel()}


def histogram(
    labels: npt.NDArray[np.int64],
    names: Sequence[str],
    known: Sequence[str],
    *,
    epsilon: float | None,
    rng: np.random.Generator,
) -> Floats:
    """Return how often every name is a record's, with noise: a release of its own under ε.

    Args:
        labels: (n,) 0 … K − 1.
        names: of the K classes, all of them known.
        known: public names of classes, of which each has a share, 0 for most.
        epsilon: budget for replacing one record at δ = 10⁻⁵, or None without privacy.
        rng: of the noise.
    """
    places = np.array([known.index(name) for name in names])
    shares = np.bincount(places[labels], minlength=len(known)) / len(labels)
    std = 0.0 if epsilon is None else 2**0.5 / len(labels) * multiplier(epsilon)
    return np.asarray(shares + std * rng.standard_normal(len(known)))


@cache
def multiplier(epsilon: float) -> float:
    """Return σ/Δ of the Gaussian mechanism that is (ε, 10⁻⁵)-private."""
    return calibrate(
        lambda std: gaussian(1.0, std), epsilon=epsilon, delta=DELTA, bracket=(1e-2, 1e3)
    )


def _square(apart: Floats) -> Floats:
    """Return the scatter Σ_c (m_c − m̄)(m_c − m̄)ᵀ, which no order of labels changes."""
    return np.asarray((apart.T @ apart).ravel())
