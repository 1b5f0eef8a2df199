"""One noise at the end of steps whose gradients are bounded by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from tacit._ground.checks import positive
from tacit._ground.values import Count, Positive, Within, value
from tacit.accounting import PrivacyProfile, gaussian, noisy_projection
from tacit.gradients.steps import Method, NoiseKind, Schedule, StepLayer
from tacit.guarantees.adjacency import Adjacency

if TYPE_CHECKING:
    from torch import Tensor


@value
class WithoutClipping(Method):
    """One noise at the end, ``Σ_t G_t Aᵀ + s L E Aᵀ``, where no gradient exceeds L by itself.

    One step is the noisy projection of W's gradient, which does not depend on an A that is drawn
    for it; of an A that is given, it is one Gaussian of distance 1/s. After the first
    step the gradients do depend on A, through B, and the mixture no longer holds: what is
    certified then is conditional on A, for a loss that is convex in the layer (a linear head with
    cross-entropy). Gradient descent does not drive two convex runs apart, so that a record moves
    B_T by at most T η L ‖A‖, and against noise E Aᵀ this is a distance of
    ``μ = T √(λ_max(AAᵀ)/λ_min(AAᵀ)) / s``. A record that is replaced moves it twice as far.

    Args:
        rank: Rows r of A.
        bound: L > 0, which no record's gradient of W exceeds in Frobenius norm; a record in the
            data that does is refused.
        smoothness: Largest curvature of one record's loss in W, needed for more than one step;
            ``R²/2`` for cross-entropy on inputs of norm at most R.
        condition: ``√(λ_max/λ_min)`` of AAᵀ, which ``fit`` fills in; 1 for one step with an A
            that is given.

    Source: lora-privacy, Algorithm 4; Theorem 5 for one step; Chaudhuri, Monteleoni and Sarwate
    (2011) and Hardt, Recht and Singer (2016) for more.
    """

    name: ClassVar[str] = "projection without clipping"
    noise_kind: ClassVar[NoiseKind] = "projected"

    rank: Count
    bound: Positive
    smoothness: Positive | None = None
    condition: Annotated[float, Within(1, ends="[)")] | None = None

    @property
    def noise_scale(self) -> float:
        """L."""
        return self.bound

    def factors(self, squared_norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return 1 for every record, where none is longer than L.

        Raises:
            ValueError: one is.
        """
        import torch

        # max_i ‖G_i‖ of the batch: the bound that is certified is checked and not believed
        largest = float(torch.stack(list(squared_norms.values())).sum(dim=0).max()) ** 0.5
        if largest > self.bound:
            raise ValueError(
                f"bound: expected one that no record's gradient exceeds, got {self.bound:g}; clip "
                "instead, or bound the inputs"
            )
        return super().factors(squared_norms)

    def noised(self, total: Tensor, layer: StepLayer, std: float) -> Tensor:
        """Return ``s G_t Aᵀ``, without noise: that is added once, by ``noised_once``."""
        # a method through A without one would add a full gradient
        assert layer.projection is not None
        # ∂/∂B = s G Aᵀ of s B A; nothing of it is seen before the noise at the end
        return layer.scaling * total @ layer.projection().mT

    def noised_once(self, trained: Tensor, layer: StepLayer, std: float) -> Tensor:
        """Return B_T with the noise of all steps, of which no earlier B was ever seen.

        ``B_T − (η/n) s L E Aᵀ``: a step of gradient descent on the noise alone, and B_T on the grid
        of it as a whole, for the steps before left their low bits in B.

        Args:
            trained: B_T, float64.
            layer: whose B it is.
            std: η/n times the standard deviation of the noise.
        """
        assert layer.projection is not None
        # B_T + (η/n) s L E Aᵀ, rounded as a whole
        return self.publish(trained, layer.projection(), std * layer.scaling, layer.normal)

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the mixture of one step, or the Gaussian of T convex ones, rounded up."""
        positive("noise_multiplier", noise_multiplier)
        # noise of all steps at once has no subsampled account
        if schedule.sampling_rate != 1.0:
            raise ValueError(
                "sampling_rate: expected 1, every record in every step, for noise that is added "
                f"once at the end, got {schedule.sampling_rate:g}"
            )
        if schedule.steps == 1 and self.condition is None:
            # a replaced record moves the sum by the difference of two gradients, of any rank
            added = schedule.adjacency is Adjacency.ADD_REMOVE
            # one step: the mixture over A of Gaussian shifts, rounded up
            return noisy_projection(
                dim=min(schedule.dims),
                rank=self.rank,
                sensitivity=schedule.reach,
                noise_std=noise_multiplier,
                difference_rank=schedule.difference_rank if added else None,
            )
        alone = schedule.steps == 1
        if not alone and (
            self.smoothness is None or self.condition is None or len(schedule.dims) != 1
        ):
            raise ValueError(
                "steps: expected 1, or a smoothness and one layer whose loss is convex: after the "
                "first step the gradients depend on A, and the projection's account does not hold "
                f"(lora-privacy, Algorithm 4), got {schedule.steps} steps"
            )
        # μ = reach T √(λ_max/λ_min) / s, conditional on A: convex steps drive no two runs apart;
        # of one step G Aᵀ beside E Aᵀ is the part of G that A shows beside that of E: μ = reach / s
        stretched = 1.0 if self.condition is None else self.condition
        return gaussian(schedule.reach * schedule.steps * stretched, noise_multiplier)
