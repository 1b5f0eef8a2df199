"""Behavioural scores of features and the classes that a declared threshold makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tacit._ground.checks import Array, in_interval, integer, non_negative, positive
from tacit._ground.frozen import read_only

# KL that single precision cannot tell from nothing
RESOLUTION = float(np.finfo(np.float32).eps)
SCAFFOLD, BACKBONE, UNSCORED = 0, 1, -1


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FeatureScores:
    """Scores ``s_f = E[KL(p ‖ p without a_f W_dec[f])]`` over prompts in which f is active.

    Attributes:
        threshold: τ, nats: a feature of a higher score is backbone, one of a lower one scaffold.
        prompts: on which they were measured.
        active: prompts of them in which each feature is active, (F,).
        measured: prompts of those that it was taken out of, (F,).
        score: means, nats, (F,); 0 where never measured.
        error: standard errors, nats, (F,); infinite below two prompts.
        largest: the largest activation of each, (F,).
        mean: its mean activation where it is active, (F,).
        zeros: of all single ablations, those of exactly no KL in double precision.
        ablations: single ablations measured.
        floor: the most KL between two runs of the clean states in batches of other sizes, nats.
    """

    threshold: float
    prompts: int
    active: NDArray[np.int64] = field(repr=False)
    measured: NDArray[np.int64] = field(repr=False)
    score: Array = field(repr=False)
    error: Array = field(repr=False)
    largest: Array = field(repr=False)
    mean: Array = field(repr=False)
    zeros: int
    ablations: int
    floor: float

    def __post_init__(self) -> None:
        size = len(self.active)
        for name in ("measured", "score", "error", "largest", "mean"):
            shape = getattr(self, name).shape
            if shape != (size,):
                raise ValueError(
                    f"{name}: expected {size} numbers, as many as active, got shape {shape}"
                )
            # an error alone may be infinite, of what was measured less than twice
            if name != "error" and not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name}: expected finite numbers, got other values")
        for name in ("prompts", "zeros", "ablations"):
            integer(name, getattr(self, name), minimum=0)
        for name in ("active", "measured"):
            if (getattr(self, name) < 0).any():
                raise ValueError(f"{name}: expected counts >= 0, got a negative one")
        positive("threshold", self.threshold)
        non_negative("floor", self.floor)

    def __repr__(self) -> str:
        return (
            f"FeatureScores({self.count(BACKBONE)} backbone, {self.count(SCAFFOLD)} scaffold, "
            f"{self.count(UNSCORED)} silent, τ={self.threshold:g} nats)"
        )

    @property
    def classes(self) -> NDArray[np.int64]:
        """1 for backbone, 0 for scaffold, −1 for a feature never active, (F,)."""
        found = np.where(self.score > self.threshold, BACKBONE, SCAFFOLD)
        return np.where(self.measured > 0, found, UNSCORED)

    def count(self, kind: int) -> int:
        """Return how many features are of a class."""
        return int((self.classes == kind).sum())

    def told(self, *, confidence: float = 0.95) -> NDArray[np.bool_]:
        """Whether a feature's class holds beside all others at once, (F,).

        One-sided t bounds at (1 − confidence)/m each, m features scored. A score is a mean of
        skewed values, so that few prompts may say too much.
        """
        level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
        scored = self.measured > 1
        tail = (1.0 - level) / max(1, int(scored.sum()))
        quantile = stats.t.ppf(1.0 - tail, np.maximum(self.measured - 1, 1))
        with np.errstate(invalid="ignore"):
            far = np.abs(self.score - self.threshold) > quantile * self.error
        found: NDArray[np.bool_] = scored & far & np.isfinite(self.error)
        return found

    def summary(self) -> dict[str, Any]:
        """Return counts and quantiles, JSON-able."""
        kinds = self.classes
        held = self.score[kinds != UNSCORED]
        ends = [float(one) for one in np.quantile(held, (0.1, 0.5, 0.9))] if len(held) else []
        sure = self.told()
        return {
            "features": len(kinds),
            "silent": self.count(UNSCORED),
            "backbone": self.count(BACKBONE),
            "scaffold": self.count(SCAFFOLD),
            "backbone_told": int((sure & (kinds == BACKBONE)).sum()),
            "scaffold_told": int((sure & (kinds == SCAFFOLD)).sum()),
            "exactly_zero": int((held == 0.0).sum()),
            "below_resolution": int((held < RESOLUTION).sum()),
            "below_floor": int((held <= self.floor).sum()),
            "zero_ablations": self.zeros,
            "ablations": self.ablations,
            "floor": self.floor,
            "quantiles": ends,
            "largest_scaffold": _median(self.largest[kinds == SCAFFOLD]),
            "largest_backbone": _median(self.largest[kinds == BACKBONE]),
        }


def _median(values: Array) -> float | None:
    return float(np.median(values)) if len(values) else None
