"""The mean of clipped coordinates that a specification is, and the noise on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit._ground.random import released_normal
from tacit.covariance.publication import publish_sum
from tacit.specifications.backbones.backbone import Backbone
from tacit.specifications.coordinates import GradientFrame, coordinates
from tacit.specifications.objectives import (
    class_means,
    label_directions,
    scatter_directions,
)
from tacit.specifications.schedule import ROUNDING, StepSchedule, shares_of
from tacit.specifications.subspace import PublicSubspace, clip_rows


@dataclass(frozen=True, eq=False)
class DescribedSubject:
    """What is described.

    Attributes:
        backbone: shared.
        data: n records, as ``backbone`` reads them.
        shares: (n, K), how much each record is of each class.
    """

    backbone: Backbone
    data: Any
    shares: Tensor

    @property
    def count(self) -> int:
        """n."""
        return int(self.shares.shape[0])

    @property
    def width(self) -> int:
        """d, features of a record."""
        _, first = next(iter(self.backbone.batches(self.data, 1)))
        return int(self.backbone.features(*first).shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class DescriptionRequest:
    """How it is described.

    Attributes:
        objective: ``"labels"``, ``"scatter"`` or ``"mean"``.
        names: of the classes.
        frame: of the space.
        clip: C.
        subspace: where features are whitened and clip_rows, for a scatter or a mean.
        schedule: of the steps.
    """

    objective: str
    names: tuple[str, ...]
    frame: GradientFrame
    clip: float
    subspace: PublicSubspace | None
    schedule: StepSchedule

    def error(self, count: int, multiplier: float) -> float:
        """Return the standard deviation of the noise of every number, rounded up.

        σ = m Δ with Δ = 2C/(q n) in a step; of the mean of T of them, σ/√T.
        """
        return self.error_of_a_step(count, multiplier) / math.sqrt(self.schedule.steps)

    def error_of_a_step(self, count: int, multiplier: float) -> float:
        """Return the standard deviation of the noise of every number of one step."""
        if not multiplier:
            return 0.0
        # σ/Δ, of a scatter that of the second mechanism
        factor = shares_of(multiplier)[1] if self.objective == "scatter" else multiplier
        # Δ = 2C/(qn): a record of length C turned round
        reach = 2.0 * self.clip / (self.schedule.sampling_rate * count)
        return factor * reach * (1.0 + ROUNDING)

    def add_noise(
        self,
        clean: NDArray[np.float64],
        count: int,
        multiplier: float,
        source: np.random.Generator | None,
    ) -> NDArray[np.float64]:
        """Return the mean with its noise, drawn from the operating system where source is None."""
        error = self.error(count, multiplier)
        if not error:
            return clean
        return publish_sum(clean, error * released_normal(clean.shape, source), error)


def describe_mean(
    subject: DescribedSubject,
    asked: DescriptionRequest,
    multiplier: float,
    source: np.random.Generator | None,
) -> NDArray[np.float64]:
    """Return ``(1/n) Σ_i clip(y_i)``, (k,), before its own noise.

    Args:
        subject: what is described.
        asked: how.
        multiplier: of the noise, of which a scatter's class means take a part; 0 for none.
        source: of the noise on class means; None for the operating system.

    Raises:
        ValueError: the data are no records of the backbone, or a gradient is not finite.

    Source: pave, Algorithm 1, one step.
    """
    if asked.objective == "mean":
        # y = Dᵀ (W(z − z̄) − c): no network is moved
        assert asked.subspace is not None
        rows = asked.subspace.placed(subject.backbone.embedded(subject.data))
    else:
        directions = (
            subject.shares @ label_directions(asked.names, subject.width)
            if asked.objective == "labels"
            else _apart(subject, asked, multiplier, source)
        )
        # y = Dᵀ (vec(G Aᵀ) − c), G the gradient of ⟨f(x), u⟩
        rows = coordinates(subject.backbone, subject.data, directions, asked.frame)
    # ‖y_i‖ ≤ C, and the mean over n, a public number
    held = clip_rows(rows, asked.clip) if np.isfinite(asked.clip) else rows
    return np.asarray(held.sum(axis=0) / subject.count)


def _apart(
    subject: DescribedSubject,
    asked: DescriptionRequest,
    multiplier: float,
    source: np.random.Generator | None,
) -> Tensor:
    """Return directions made of noisy class means: one record moves those by at most 2KC'/n.

    A record's shares of the classes add up to 1, so its part of all K rows is no longer than
    its clipped feature.
    """
    assert asked.subspace is not None
    white = asked.subspace.whitened(subject.backbone.embedded(subject.data))
    shares = subject.shares.double().numpy()
    means, forward = class_means(shares, white), asked.subspace.feature_map.astype(float)
    if not multiplier:
        return scatter_directions(shares, means, forward, white)
    # Δ' = 2KC'/n, C' the public length of whitened features
    reach = 2.0 * asked.subspace.feature_clip * len(asked.names) / subject.count
    # up, since a mean in double precision may move by a little more than Δ'
    std = shares_of(multiplier)[0] * reach * (1.0 + ROUNDING)
    noisy = publish_sum(means, std * released_normal(means.shape, source), std)
    return scatter_directions(shares, noisy, forward, white)
