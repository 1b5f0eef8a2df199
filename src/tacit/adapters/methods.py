"""Ways of training low-rank adapters: what is clipped, which noise, what that certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tacit._ground.checks import choice, in_interval, integer, positive
from tacit.accounting import (
    PrivacyProfile,
    ProjectedSteps,
    gaussian,
    least_noise,
    noisy_projection,
    noisy_projection_steps,
    subsampled_gaussian,
)
from tacit.adapters.schedule import Schedule

if TYPE_CHECKING:
    from torch import Tensor

# Draws independent N(0, 1) values of a shape.
Normal: TypeAlias = "Callable[[tuple[int, ...]], Tensor]"
CLIPPINGS = ("joint", "layers")
# From this multiplier on the noise is first tried.
FIRST_NOISE = 1.0


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """What a step publishes of the per-example gradients of a batch.

    Attributes:
        name: what it is called.
        full: whether gradients are of W (out, in); else of B (out, rank).
        fresh: whether A is drawn anew every step.
        noise: ``"independent"`` in every entry, ``"projected"`` by A, or ``"none"``.
    """

    name: ClassVar[str]
    full: ClassVar[bool] = False
    fresh: ClassVar[bool] = False
    noise: ClassVar[str]

    @property
    def noise_scale(self) -> float:
        """The norm that the noise multiplier multiplies."""
        return 1.0

    @abstractmethod
    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return what a run certifies.

        Args:
            noise_multiplier: standard deviation of the noise over ``noise_scale``.
            schedule: of the run.

        Raises:
            ValueError: an argument is outside its range, or no profile holds.
        """

    def noise_multiplier(self, epsilon: float, delta: float, schedule: Schedule) -> float:
        """Return the smallest multiplier that is (ε, δ)-differentially private.

        Args:
            epsilon: ε > 0 in nats.
            delta: δ in (0, 1).
            schedule: of the run.

        Raises:
            ValueError: an argument is outside its range, or no noise is enough.
        """
        positive("epsilon", epsilon)
        in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
        return least_noise(
            lambda multiplier: self.profile(multiplier, schedule),
            epsilon=epsilon,
            delta=delta,
            start=FIRST_NOISE,
        )

    def step(self, total: Tensor, projection: Tensor | None, std: float, normal: Normal) -> Tensor:
        """Return the noisy sum of gradients of one layer as a simulation has it.

        Args:
            total: (…, out, in) for full gradients, else (…, out, rank).
            projection: A, (…, rank, in); None where noise is independent.
            std: standard deviation of the noise, in the units of the gradients.
            normal: draws the noise.

        Returns:
            Of the shape of ``total``.
        """
        if self.noise == "none":
            return total
        value, noise = self._parts(total, projection, std, normal)
        return self._back(value + noise, projection)

    def publish(
        self, total: Tensor, projection: Tensor | None, std: float, normal: Normal
    ) -> Tensor:
        """Return what is published of the sum of gradients of one layer: float64, on a grid.

        Args:
            total: as of ``step``, float64.
            projection: as there.
            std: as there.
            normal: as there.
        """
        from tacit.training.publication import publish_tensor

        if self.noise == "none":
            return total
        value, noise = self._parts(total, projection, std, normal)
        spread: Any = std
        if projection is not None and self.noise == "projected":
            # E Aᵀ has deviation s ‖a_j‖ in column j
            spread = std * projection.double().norm(dim=-1)
        return self._back(publish_tensor(value, noise, spread), projection)

    def _parts(
        self, total: Tensor, projection: Tensor | None, std: float, normal: Normal
    ) -> tuple[Tensor, Tensor]:
        """Return what is summed and its noise, in the coordinates that are published."""
        if projection is None or self.noise == "independent":
            return total, std * normal(tuple(total.shape)).to(total)
        noise = projected_noise(total.shape, projection, std, normal)
        return (total @ projection.mT if self.full else total), noise

    def _back(self, seen: Tensor, projection: Tensor | None) -> Tensor:
        """Return the step that published coordinates make: post-processing."""
        if projection is None or self.noise == "independent" or not self.full:
            return seen
        return seen @ projection


@dataclass(frozen=True, kw_only=True)
class Clipped(Method):
    """A method that clips every record's gradient.

    Args:
        clip: C > 0, the largest Frobenius norm of a record's gradient over all layers.
        clipping: ``"joint"``: one factor min(1, C/‖G_i‖) for all layers; ``"layers"``: each of L
            layers by itself, to C/√L.
    """

    clip: float = 1.0
    clipping: str = "joint"

    def __post_init__(self) -> None:
        positive("clip", self.clip)
        choice("clipping", self.clipping, CLIPPINGS)

    @property
    def noise_scale(self) -> float:
        """C."""
        return self.clip

    def factors(self, squared_norms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what every record's gradient is multiplied with, (B,) for each layer.

        Args:
            squared_norms: (B,) ‖G_i‖²_F of each layer.

        Example:
            >>> import torch
            >>> norms = {"first": torch.tensor([9.0, 0.0]), "second": torch.tensor([16.0, 0.25])}
            >>> DPSGD(clip=1.0).factors(norms)["first"].tolist()
            [0.2, 1.0]
            >>> DPSGD(clip=2.0, clipping="layers").factors(norms)["second"].round(decimals=4)
            tensor([0.3536, 1.0000], dtype=torch.float64)

        Source: lora-privacy, Algorithm 2.
        """
        import torch

        if self.clipping == "joint":
            total = torch.stack(list(squared_norms.values())).sum(dim=0)
            shared = _factors(total, self.clip)
            return dict.fromkeys(squared_norms, shared)
        each = self.clip / len(squared_norms) ** 0.5
        return {name: _factors(values, each) for name, values in squared_norms.items()}


@dataclass(frozen=True, kw_only=True)
class DPSGD(Clipped):
    """Noise on the clipped gradients of W itself: ``Σ c_i G_i + N(0, s²C²)``.

    Example:
        >>> schedule = Schedule(sampling_rate=1024 / 50_000, steps=1000, dims=(2048,))
        >>> round(DPSGD().noise_multiplier(1.0, 1e-4, schedule), 3)
        2.219

    Source: Abadi et al. (2016), Algorithm 1.
    """

    name: ClassVar[str] = "DP-SGD"
    full: ClassVar[bool] = True
    noise: ClassVar[str] = "independent"

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples."""
        return subsampled_gaussian(schedule.sampling_rate, noise_multiplier, schedule.steps)


@dataclass(frozen=True, kw_only=True)
class DPLoRAFA(Clipped):
    """Noise on the clipped gradients of B, A fixed and public: ``Σ c_i G_i Aᵀ + N(0, s²C²)``.

    Args:
        rank: r >= 1, rows of A.
        clip: C > 0, of ‖G_i Aᵀ‖.
        clipping: as `Clipped`.

    Source: lora-privacy, Algorithm 2, with the exact account in place of the classical one.
    """

    rank: int
    name: ClassVar[str] = "DP-LoRA-FA"
    noise: ClassVar[str] = "independent"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("rank", self.rank, minimum=1)

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples."""
        return subsampled_gaussian(schedule.sampling_rate, noise_multiplier, schedule.steps)


@dataclass(frozen=True, kw_only=True)
class NoisyProjection(Clipped):
    """A fresh public A_t a step: ``(Σ c_i G_i + N(0, s²C²)) A_tᵀ A_t``, G_i of W.

    Given A_t the noise is seen on its r directions alone, and so is the record: the squared
    distance is scaled by a Beta(r/2, (d − r)/2) variable. A_t must be drawn after the gradients
    are fixed, independently of them.

    Over several layers, or where a record's gradient has any rank, the squared distance is a
    weighted mean of such variables, and the one of the narrowest layer is above it in increasing
    convex order.

    Args:
        rank: r >= 1, rows of A_t, with independent N(0, 1/r) entries.
        clip: C > 0, of ‖G_i‖.
        clipping: as `Clipped`.

    Example:
        >>> schedule = Schedule(
        ...     sampling_rate=1024 / 50_000, steps=1000, dims=(2000,), rank_one=True
        ... )
        >>> round(NoisyProjection(rank=16).noise_multiplier(1.0, 1e-4, schedule), 3)
        0.2

    Source: lora-privacy, Algorithm 3 and Theorem 5, with the exact mixture for their bound.
    """

    rank: int
    name: ClassVar[str] = "noisy projection (M2)"
    full: ClassVar[bool] = True
    fresh: ClassVar[bool] = True
    noise: ClassVar[str] = "projected"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("rank", self.rank, minimum=1)

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the composed mixture, at the narrowest layer."""
        work = ProjectedSteps(
            dim=min(schedule.dims),
            rank=self.rank,
            steps=schedule.steps,
            sampling_rate=schedule.sampling_rate,
            difference_rank=schedule.difference_rank,
        )
        return noisy_projection_steps(work, noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class WithoutClipping(Method):
    """One noise at the end, ``Σ_t G_t Aᵀ + s L E Aᵀ``, where no gradient exceeds L by itself.

    One step is the noisy projection of W's gradient, which does not depend on A. After the first
    step the gradients do depend on A, through B, and the mixture no longer holds: what is
    certified then is conditional on A, for a loss that is convex in the layer (a linear head with
    cross-entropy). Gradient descent does not drive two convex runs apart, so that a record moves
    B_T by at most T η L ‖A‖, and against noise E Aᵀ this is a distance of
    ``μ = T √(λ_max(AAᵀ)/λ_min(AAᵀ)) / s``.

    Args:
        rank: r >= 1, rows of A.
        bound: L > 0, which no record's gradient of W exceeds in Frobenius norm; a record in the
            data that does is refused.
        smoothness: largest curvature of one record's loss in W, needed for more than one step;
            ``R²/2`` for cross-entropy on inputs of norm at most R.
        condition: ``√(λ_max/λ_min)`` of AAᵀ, which ``fit`` fills in.

    Source: lora-privacy, Algorithm 4; Theorem 5 for one step; Chaudhuri, Monteleoni and Sarwate
    (2011) and Hardt, Recht and Singer (2016) for more.
    """

    rank: int
    bound: float
    smoothness: float | None = None
    condition: float | None = None
    name: ClassVar[str] = "projection without clipping"
    noise: ClassVar[str] = "projected"

    def __post_init__(self) -> None:
        integer("rank", self.rank, minimum=1)
        positive("bound", self.bound)
        if self.smoothness is not None:
            positive("smoothness", self.smoothness)
        if self.condition is not None:
            in_interval("condition", self.condition, 1.0, float("inf"), open_high=True)

    @property
    def noise_scale(self) -> float:
        """L."""
        return self.bound

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the mixture of one step, or the Gaussian of T convex ones."""
        positive("noise_multiplier", noise_multiplier)
        if schedule.sampling_rate != 1.0:
            raise ValueError(
                "sampling_rate: expected 1, every record in every step, for noise that is added "
                f"once at the end, got {schedule.sampling_rate:g}"
            )
        if schedule.steps == 1:
            return noisy_projection(
                dim=min(schedule.dims),
                rank=self.rank,
                sensitivity=1.0,
                noise_std=noise_multiplier,
                difference_rank=schedule.difference_rank,
            )
        if self.smoothness is None or self.condition is None or len(schedule.dims) != 1:
            raise ValueError(
                "steps: expected 1, or a smoothness and one layer whose loss is convex: after the "
                "first step the gradients depend on A, and the projection's account does not hold "
                f"(lora-privacy, Algorithm 4), got {schedule.steps} steps"
            )
        return gaussian(schedule.steps * self.condition, noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class LoRAFA(Method):
    """Low-rank adaptation with A frozen and no noise: nothing is certified, ε = ∞.

    Args:
        rank: r >= 1, rows of A.

    Source: lora-privacy, Algorithm 1 and Proposition 2.
    """

    rank: int
    name: ClassVar[str] = "LoRA-FA without noise"
    noise: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        integer("rank", self.rank, minimum=1)

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Raise: a noiseless matrix projection is not private at any ε and δ < 1."""
        raise ValueError(
            "method: expected one that adds noise, for LoRA-FA without it is private at no ε "
            f"(lora-privacy, Proposition 2), got {noise_multiplier:g} over {schedule.steps} steps"
        )


def projected_noise(
    shape: tuple[int, ...], projection: Tensor, std: float, normal: Normal
) -> Tensor:
    """Return s E Aᵀ, (…, out, rank), drawn in the fewer of r and d dimensions.

    ``E Aᵀ = E' chol(AAᵀ)ᵀ`` in law where A has fewer rows than columns.

    Args:
        shape: of what it is added to or made of, of which all but the last are read: (…, out, ·).
        projection: A, (…, rank, in).
        std: s.
        normal: draws E or E'.

    Source: lora-privacy, Eq. M2.
    """
    import torch

    rows, width = projection.shape[-2:]
    drawn = std * normal((*shape[:-1], min(rows, width))).to(projection)
    if rows >= width:
        return drawn @ projection.mT
    exact = projection.double()
    root: Tensor = torch.linalg.cholesky(exact @ exact.mT)
    return drawn @ root.mT.to(drawn)


def _factors(squared_norms: Tensor, clip: float) -> Tensor:
    """min(1, C/‖G‖), 1 where the gradient is zero, 0 where it is not finite."""
    import torch

    norms = squared_norms.double().sqrt()
    return torch.where(norms > clip, clip / norms, torch.ones_like(norms))
