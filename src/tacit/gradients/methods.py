"""Methods of training privately: what each of them adds noise to, and its account."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, TypeAlias

from tacit._ground.values import Count, value
from tacit.accounting import (
    PrivacyProfile,
    ProjectedSteps,
    noisy_projection_steps,
    subsampled_gaussian,
)
from tacit.gradients.clipping import ClippedMethod
from tacit.gradients.steps import Method, NoiseKind, Schedule
from tacit.gradients.unclipped import WithoutClipping


@value
class DPSGD(ClippedMethod):
    """Noise on the clipped gradients of W itself: ``Σ c_i G_i + N(0, s²C²)``.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L. automatic has one factor C/(‖G_i‖ + 0.01), so that no C has to be
            chosen well.

    Example:
        >>> schedule = Schedule(sampling_rate=1024 / 50_000, steps=1000, dims=(2048,))
        >>> round(DPSGD().noise_multiplier(1.0, 1e-4, schedule), 3)
        2.219

    Source: Abadi et al. (2016), Algorithm 1.
    """

    word: ClassVar[str] = "dp-sgd"
    name: ClassVar[str] = "DP-SGD"
    full: ClassVar[bool] = True
    noise_kind: ClassVar[NoiseKind] = "independent"

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples, rounded up."""
        return _gaussian_steps(noise_multiplier, schedule)


@value
class DPLoRAFA(ClippedMethod):
    """Noise on the clipped gradients of B, A fixed and public: ``Σ c_i G_i Aᵀ + N(0, s²C²)``.

    Args:
        rank: Rows r of A, the rank of the adapter.
        clip: Largest Frobenius norm C of a record's gradient of B, over all layers.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L. automatic has one factor C/(‖G_i‖ + 0.01), so that no C has to be
            chosen well.

    Source: lora-privacy, Algorithm 2, with the exact account in place of the classical one.
    """

    word: ClassVar[str] = "dp-lora-fa"
    name: ClassVar[str] = "DP-LoRA-FA"
    noise_kind: ClassVar[NoiseKind] = "independent"

    rank: Count = 16

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples, rounded up."""
        return _gaussian_steps(noise_multiplier, schedule)


@value
class NoisyProjection(ClippedMethod):
    """A fresh public A_t in every step: ``(Σ c_i G_i + N(0, s²C²)) A_tᵀ A_t``, G_i of W.

    Given A_t the noise is seen on its r directions alone, and so is the record: the squared
    distance is scaled by a Beta(r/2, (d − r)/2) variable. A_t must be drawn after the gradients
    are fixed, independently of them.

    Over several layers, or where a record's gradient has any rank, the squared distance is a
    weighted mean of such variables, and the one of the narrowest layer is above it in increasing
    convex order.

    Args:
        rank: Rows r of A_t, with independent N(0, 1/r) entries.
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L. automatic has one factor C/(‖G_i‖ + 0.01), so that no C has to be
            chosen well.

    Example:
        >>> schedule = Schedule(
        ...     sampling_rate=1024 / 50_000, steps=1000, dims=(2000,), rank_one=True
        ... )
        >>> round(NoisyProjection(rank=16).noise_multiplier(1.0, 1e-4, schedule), 3)
        0.2

    Source: lora-privacy, Algorithm 3 and Theorem 5, with the exact mixture for their bound.
    """

    word: ClassVar[str] = "noisy-projection"
    name: ClassVar[str] = "noisy projection (M2)"
    full: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    noise_kind: ClassVar[NoiseKind] = "projected"

    rank: Count = 16

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the composed mixture at the narrowest layer, rounded up."""
        work = ProjectedSteps(
            dim=min(schedule.dims),
            rank=self.rank,
            steps=schedule.steps,
            sampling_rate=schedule.sampling_rate,
            difference_rank=schedule.difference_rank,
            neighbours=schedule.adjacency,
        )
        return noisy_projection_steps(work, noise_multiplier)


@value
class LoRAFA(Method):
    """Low-rank adaptation with A frozen and no noise: nothing is certified, ε = ∞.

    Args:
        rank: Rows r of A, the rank of the adapter.

    Source: lora-privacy, Algorithm 1 and Proposition 2.
    """

    word: ClassVar[str] = "lora-fa"
    name: ClassVar[str] = "LoRA-FA without noise"
    noise_kind: ClassVar[NoiseKind] = "none"

    rank: Count = 16

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Raise: a noiseless matrix projection is not private at any ε and δ < 1."""
        raise ValueError(
            "method: expected one that adds noise, for LoRA-FA without it is private at no ε "
            f"(lora-privacy, Proposition 2), got {noise_multiplier:g} over {schedule.steps} steps"
        )


AnyMethod: TypeAlias = DPSGD | DPLoRAFA | NoisyProjection | WithoutClipping | LoRAFA


# One run is accounted when it is prepared, stated, stored and read: its curve is composed once.
_composed_once = lru_cache(maxsize=4)(subsampled_gaussian)


def _gaussian_steps(noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
    # T Gaussian mechanisms of deviation s on Poisson samples, composed and rounded up
    asked = (schedule.sampling_rate, noise_multiplier, schedule.steps, schedule.adjacency)
    return (
        _composed_once(*asked)
        if isinstance(noise_multiplier, float)
        else subsampled_gaussian(*asked)
    )
