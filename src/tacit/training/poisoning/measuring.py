"""Clean accuracy and attack success on test images, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import integer
from tacit.attacks.intervals import chernoff_interval, proportion_interval
from tacit.measured import Interval
from tacit.training.poisoning.sources import LabelledImages
from tacit.training.poisoning.triggers import Images, Trigger

CONFIDENCE = 0.95
# Images of one forward pass.
AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one model does on test images.

    Attributes:
        accuracy: share of clean images named right.
        success: attack success rate, the share of triggered images of another class that are named
            the target.
        images: how many of them there are.
    """

    accuracy: Interval
    success: Interval
    images: int


def measured(
    model: torch.nn.Module, test: LabelledImages, trigger: Trigger, target: int
) -> Outcome:
    """Return clean accuracy and attack success of a model, with Clopper and Pearson's intervals.

    The intervals speak of this model on further images of the same kind, not of another draw of
    its noise.

    Args:
        model: to be attacked; images → (n, C) scores.
        test: images that nothing was learned from.
        trigger: put on those whose class is not the target.
        target: the class that the attacker wants.

    Raises:
        ValueError: every test image is of the target class, or the target is no class.

    Example:
        >>> from tacit.training import blended
        >>> test = LabelledImages(np.zeros((6, 1, 2, 2)), np.array([0, 1, 2, 0, 1, 2]))
        >>> always = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> _ = torch.nn.init.zeros_(always[1].weight)
        >>> always[1].bias.data = torch.tensor([1.0, 0.0, 0.0])
        >>> found = measured(always, test, blended((1, 2, 2)), 0)
        >>> round(found.accuracy.value, 3), found.success.value, found.images
        (0.333, 1.0, 4)

    Source: dsi, Sec. 5.2.
    """
    integer("target", target, minimum=0, maximum=None)
    others = np.flatnonzero(test.labels != target)
    if not others.size:
        raise ValueError("test: expected images of another class than the target, got none")
    right = hits = 0
    for start in range(0, len(test), AT_ONCE):
        some = np.arange(start, min(start + AT_ONCE, len(test)))
        right += int((_named(model, test.floats(some)) == test.labels[some]).sum())
    for start in range(0, others.size, AT_ONCE):
        images = trigger.apply(test.floats(others[start : start + AT_ONCE]))
        hits += int((_named(model, images) == target).sum())
    return Outcome(
        accuracy=_share(right, len(test)), success=_share(hits, others.size), images=others.size
    )


def mean_over_noise(shares: Sequence[float]) -> Interval:
    """Return the mean of shares in [0, 1] over independent runs, with Chernoff's interval."""
    mean = float(np.mean(shares))
    low, high = chernoff_interval(mean, len(shares), CONFIDENCE)
    return Interval(value=mean, low=min(low, mean), high=max(high, mean), confidence=CONFIDENCE)


def _named(model: torch.nn.Module, images: Images) -> npt.NDArray[np.int64]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            scores = model(torch.from_numpy(images))
    finally:
        for module, mode in modes:
            module.training = mode
    if scores.ndim != 2 or not bool(torch.isfinite(scores).all()):
        raise ValueError("model: expected finite scores (n, classes), got others")
    return np.asarray(scores.argmax(dim=1).numpy())


def _share(hits: int, trials: int) -> Interval:
    low, high = proportion_interval(hits, trials, CONFIDENCE)
    return Interval(value=hits / trials, low=low, high=high, confidence=CONFIDENCE)
