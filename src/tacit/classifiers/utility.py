"""What released logits are still good for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.attacks.intervals import proportion_interval
from tacit.classifiers.inputs import Labels


@dataclass(frozen=True)
class Accuracy:
    """How often the largest logit is that of the label; nothing without labels."""

    clean: float | None = None
    noisy: float | None = None
    interval: tuple[float, float] | None = None
    right: int = 0


def utility_of(
    clean: Array,
    released: Array,
    rows: npt.NDArray[np.intp],
    classes: Labels | None,
    confidence: float,
) -> Accuracy:
    """Return how often the label is named, before and after the noise."""
    if classes is None:
        return Accuracy()
    truth = classes.values[rows]
    right = int((released.argmax(axis=1) == truth).sum())
    return Accuracy(
        clean=float((clean.argmax(axis=1) == truth).mean()),
        noisy=right / truth.size,
        interval=proportion_interval(right, truth.size, confidence),
        right=right,
    )
