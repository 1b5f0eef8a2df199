"""DP-SGD whose noise of one step takes back some of that of the steps before."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tacit._ground.values import value
from tacit.design.streams.choosing import AnyStepNoise, Banded
from tacit.gradients.methods import DPSGD

if TYPE_CHECKING:
    from tacit.accounting import PrivacyProfile
    from tacit.gradients.steps import Schedule

BANDED = Banded()


@value
class CorrelatedDPSGD(DPSGD):
    """DP-SGD with noise ``s C F⁻¹Z`` on the clipped sums of all steps, tied together by a factor F.

    What is told of all steps is ``F G + s C Z``, for gradients that may follow from what was told
    before: the account is that of one Gaussian release, at the sensitivity of F. It goes with a law
    of which steps a record is in: `FixedOrder`, or `CyclicPoisson` for bands.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint cuts all layers by one factor min(1, C/‖G_i‖). layers cuts each of L layers
            by itself, to C/√L. automatic has one factor C/(‖G_i‖ + 0.01), so that no C has to be
            chosen well.
        noise: Banded(…) or Buffered(…): how the noise of steps is tied together.

    Example:
        >>> CorrelatedDPSGD(clip=1.0, noise=Banded(bands=8)).noise.bands
        8

    Source: Denisov et al. (2022), Theorem 2.1, for gradients that follow from what was told;
        Choquette-Choo et al. (2023).
    """

    word: ClassVar[str] = "correlated-dp-sgd"
    name: ClassVar[str] = "DP-SGD with correlated noise"

    noise: AnyStepNoise = BANDED

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        raise ValueError(
            "method: expected independent noise, got CorrelatedDPSGD, whose account follows "
            "from which steps a record may be in: tacit.training.prepare_private has it"
        )
