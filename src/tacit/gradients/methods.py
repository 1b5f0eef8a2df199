"""Methods of training privately: sums, clipped, noised, scaled, and what that certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from tacit._ground.checks import in_interval, integer, positive
from tacit._ground.values import Count, Positive, Within, value
from tacit.accounting import (
    PrivacyProfile,
    ProjectedSteps,
    gaussian,
    least_noise,
    noisy_projection,
    noisy_projection_steps,
    subsampled_gaussian,
)
from tacit.guarantees.adjacency import Adjacency

if TYPE_CHECKING:
    from torch import Tensor

# Draws independent N(0, 1) values of a shape.
Normal: TypeAlias = "Callable[[tuple[int, ...]], Tensor]"
Clipping: TypeAlias = Literal["joint", "layers", "automatic"]
# In every entry, through A, or none.
NoiseKind: TypeAlias = Literal["independent", "projected", "none"]
# From this multiplier on the noise is first tried: that of usual runs is between 0.3 and 3.
FIRST_NOISE = 1.0
# What automatic clipping adds to a norm, so that a small gradient stays smaller than others.
STABLE = 0.01
# A clipped norm is brought below C by this share, which is above what its factor, and a float32
# gradient that is multiplied by it, may be rounded by.
ROUNDING = 1e-5


@value
class Schedule:
    """What a certificate depends on beside the method.

    Args:
        sampling_rate: q in (0, 1], the probability that a record is in a step's sample.
        steps: T >= 1.
        dims: width of every trained layer's input.
        rank_one: whether a record's gradient has rank one in every layer: one vector each.
        adjacency: which data sets are neighbours: one has a record more, or one is replaced.
    """

    sampling_rate: Annotated[float, Within(0, 1, "(]")]
    steps: Count
    dims: tuple[int, ...]
    rank_one: bool = False
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def _together(self) -> None:
        # an adapter of no layer has nothing to certify
        if not self.dims:
            raise ValueError("dims: expected the width of at least one layer, got none")
        for width in self.dims:
            integer("dims", width, minimum=1)

    @property
    def difference_rank(self) -> int | None:
        """1 where a record changes a matrix of rank one and nothing else; None where unknown."""
        # of one layer that sees one vector, G = g xᵀ; of several nothing is known
        return 1 if self.rank_one and len(self.dims) == 1 else None

    @property
    def reach(self) -> float:
        """How far neighbours' sums are apart at most, in clips: a replaced record counts twice."""
        # ‖S − S'‖ <= C for one record more, and <= 2C where one takes another's place
        return 1.0 if self.adjacency is Adjacency.ADD_REMOVE else 2.0


class Captured(Protocol):
    """The per-example gradients of some records, by layer, such as ``LinearHooks``."""

    @property
    def squared_norms(self) -> Mapping[str, Tensor]:
        """(B,) ‖G_i‖² in float64, no less than those of what ``sums`` adds."""

    def sums(self, coefficients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return Σ_i c_i G_i by layer, in float64."""


class StepLayer(NamedTuple):
    """What a step needs of one layer beside its gradients.

    Attributes:
        zeros: what a sum of gradients starts from, in float64.
        projection: gives A, (rank, in), in float64, drawn now where it is fresh; None without one.
        normal: draws N(0, 1) values.
        scaling: s of s B A.
    """

    zeros: Tensor
    projection: Callable[[], Tensor] | None
    normal: Normal
    scaling: float = 1.0


class ClippedSums(NamedTuple):
    """Sums of what every record may add at most, by layer, and how many records were shortened."""

    totals: dict[str, Tensor]
    records: int
    shortened: int


class Method(ABC):
    """What a step publishes of the per-example gradients of a batch.

    Attributes:
        name: what it is called.
        full: whether gradients are of W (out, in); else of B (out, rank).
        fresh: whether A is drawn anew every step.
        noise: ``"independent"`` in every entry, ``"projected"`` by A, or ``"none"``.
    """

    # its part of a command's help
    panel: ClassVar[str] = "Method"
    name: ClassVar[str]
    full: ClassVar[bool] = False
    fresh: ClassVar[bool] = False
    noise: ClassVar[NoiseKind]

    # One step is three lines; what each of them does stands below it.
    def update(
        self,
        batches: Iterable[Captured],
        layers: Mapping[str, StepLayer],
        std: float,
        expected: float,
    ) -> tuple[dict[str, Tensor], ClippedSums]:
        """Return the direction of one step by layer: sums, clipped, noised, scaled.

        Args:
            batches: the gradients of the records of the step's sample, some at a time.
            layers: what is trained.
            std: s C, standard deviation of the noise.
            expected: q n, records expected in a step, a public number.
        """
        # S = Σ_i c_i G_i with ‖c_i G_i‖ <= C: the one step that sees records
        sums = self.clipped(batches, layers)
        # S + s C E, on the grid of the noise: all that ever leaves a step
        noisy = {name: self.noised(sums.totals[name], one, std) for name, one in layers.items()}
        # a mean over the records that are expected, never over those that came
        return {name: total / expected for name, total in noisy.items()}, sums

    def clipped(self, batches: Iterable[Captured], layers: Mapping[str, StepLayer]) -> ClippedSums:
        """Return ``Σ_i c_i G_i`` over a batch, each record's part no longer than C."""
        totals, records, shortened = {n: one.zeros.clone() for n, one in layers.items()}, 0, 0
        for captured in batches:
            # c_i from the norms of what is summed, rounding included: they bound what is added
            factors = self.factors(captured.squared_norms)
            # of every record the least factor of all layers: below 1 where any layer was clipped
            least = min_over(factors.values())
            records, shortened = records + len(least), shortened + int((least < 1.0).sum())
            # in float64, so that adding up micro-batches loses nothing that a record's part has
            for name, total in captured.sums(self.lowered(factors)).items():
                totals[name] += total
        return ClippedSums(totals, records, shortened)

    def noised(self, total: Tensor, layer: StepLayer, std: float) -> Tensor:
        """Return the sum of one layer with its noise, published."""
        # A is drawn after the gradients are fixed, and independently of them
        projection = None if layer.projection is None else layer.projection()
        return self.publish(total, projection, std, layer.normal)

    @property
    def noise_scale(self) -> float:
        """The norm that the noise multiplier multiplies."""
        return 1.0

    def factors(self, squared_norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what every record's gradient is multiplied with, (B,) for each layer: 1."""
        import torch

        return {name: torch.ones_like(norms) for name, norms in squared_norms.items()}

    def lowered(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return factors a little lower where rounding must not carry a norm above C."""
        return factors

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
        """Return the smallest multiplier that is (ε, δ)-differentially private, rounded up.

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
        # a noiseless sum has no law to draw from
        if self.noise == "none":
            return total
        # S (or S Aᵀ) and its noise apart, so that their sum is one addition
        value, noise = self._parts(total, projection, std, normal)
        # S + E is simulated and never released: no grid is needed
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
        from tacit.gradients.publication import publish_tensor

        if self.noise == "none":
            return total
        value, noise = self._parts(total, projection, std, normal)
        # the deviation of every entry, which sets the grid that the sum is rounded to
        spread: Any = std
        if projection is not None and self.noise == "projected":
            # E Aᵀ has deviation s ‖a_j‖ in column j
            spread = std * projection.double().norm(dim=-1)
        # what comes after the rounded sum is post-processing
        return self._back(publish_tensor(value, noise, spread), projection)

    def _parts(
        self, total: Tensor, projection: Tensor | None, std: float, normal: Normal
    ) -> tuple[Tensor, Tensor]:
        """Return what is summed and its noise, in the coordinates that are published."""
        # E of independent entries, in the coordinates of the sum itself
        if projection is None or self.noise == "independent":
            return total, std * normal(tuple(total.shape)).to(total)
        # E Aᵀ: of the noise on W only what A shows of it is drawn
        noise = projected_noise(total.shape, projection, std, normal)
        # S Aᵀ: gradients of W are seen through A, those of B are already
        return (total @ projection.mT if self.full else total), noise

    def _back(self, seen: Tensor, projection: Tensor | None) -> Tensor:
        """Return the step that published coordinates make: post-processing."""
        if projection is None or self.noise == "independent" or not self.full:
            return seen
        # (S Aᵀ + E Aᵀ) A: the step of W that r published columns make
        return seen @ projection


@value
class ClippedMethod(Method):
    """A method that clips every record's gradient.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint: one factor min(1, C/‖G_i‖) for all layers; layers: each of L layers by
            itself, to C/√L; automatic: one factor C/(‖G_i‖ + 0.01), no C to choose well.
    """

    clip: Positive = 1.0
    clipping: Clipping = "joint"

    @property
    def noise_scale(self) -> float:
        """C."""
        return self.clip

    def factors(self, squared_norms: Mapping[str, Tensor]) -> dict[str, Tensor]:
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

        Source: lora-privacy, Algorithm 2; He et al. (2023) for layers, Bu et al. (2023) for
            automatic clipping.
        """
        import torch

        def shortening(squares: Tensor, clip: float) -> Tensor:
            # min(1, C/‖G‖): 1 where the gradient is zero, 0 where it is not finite
            norms = squares.double().sqrt()
            return torch.where(norms > clip, clip / norms, torch.ones_like(norms))

        if self.clipping != "layers":
            # ‖G_i‖² = Σ_l ‖G_il‖²: one factor for all layers keeps a record's direction
            total = torch.stack(list(squared_norms.values())).sum(dim=0)
            if self.clipping == "automatic":
                # C ‖G‖/(‖G‖ + γ) < C; 0 where the gradient is not finite
                return dict.fromkeys(squared_norms, self.clip / (total.double().sqrt() + STABLE))
            return dict.fromkeys(squared_norms, shortening(total, self.clip))
        # Σ_l (C/√L)² = C²
        each = self.clip / len(squared_norms) ** 0.5
        return {name: shortening(squares, each) for name, squares in squared_norms.items()}

    def lowered(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return factors below those that bring norms to C, by more than rounding."""
        # (1 − 10⁻⁵) C at most: rounding of c_i and of c_i G_i carries no record above C
        return {name: held * (1 - ROUNDING) for name, held in factors.items()}


@value
class DPSGD(ClippedMethod):
    """Noise on the clipped gradients of W itself: ``Σ c_i G_i + N(0, s²C²)``.

    Args:
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint: one factor min(1, C/‖G_i‖) for all layers; layers: each of L layers by
            itself, to C/√L; automatic: one factor C/(‖G_i‖ + 0.01), no C to choose well.

    Example:
        >>> schedule = Schedule(sampling_rate=1024 / 50_000, steps=1000, dims=(2048,))
        >>> round(DPSGD().noise_multiplier(1.0, 1e-4, schedule), 3)
        2.219

    Source: Abadi et al. (2016), Algorithm 1.
    """

    word: ClassVar[str] = "dp-sgd"
    name: ClassVar[str] = "DP-SGD"
    full: ClassVar[bool] = True
    noise: ClassVar[NoiseKind] = "independent"

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples, rounded up."""
        return _gaussian_steps(noise_multiplier, schedule)


@value
class DPLoRAFA(ClippedMethod):
    """Noise on the clipped gradients of B, A fixed and public: ``Σ c_i G_i Aᵀ + N(0, s²C²)``.

    Args:
        rank: Rows r of A, the rank of the adapter.
        clip: Largest Frobenius norm C of a record's gradient of B, over all layers.
        clipping: joint: one factor min(1, C/‖G_i‖) for all layers; layers: each of L layers by
            itself, to C/√L; automatic: one factor C/(‖G_i‖ + 0.01), no C to choose well.

    Source: lora-privacy, Algorithm 2, with the exact account in place of the classical one.
    """

    word: ClassVar[str] = "dp-lora-fa"
    name: ClassVar[str] = "DP-LoRA-FA"
    noise: ClassVar[NoiseKind] = "independent"

    rank: Count = 16

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Return the profile of the Gaussian mechanism on Poisson samples, rounded up."""
        return _gaussian_steps(noise_multiplier, schedule)


@value
class NoisyProjection(ClippedMethod):
    """A fresh public A_t a step: ``(Σ c_i G_i + N(0, s²C²)) A_tᵀ A_t``, G_i of W.

    Given A_t the noise is seen on its r directions alone, and so is the record: the squared
    distance is scaled by a Beta(r/2, (d − r)/2) variable. A_t must be drawn after the gradients
    are fixed, independently of them.

    Over several layers, or where a record's gradient has any rank, the squared distance is a
    weighted mean of such variables, and the one of the narrowest layer is above it in increasing
    convex order.

    Args:
        rank: Rows r of A_t, with independent N(0, 1/r) entries.
        clip: Largest Frobenius norm C of a record's gradient, over all layers.
        clipping: joint: one factor min(1, C/‖G_i‖) for all layers; layers: each of L layers by
            itself, to C/√L; automatic: one factor C/(‖G_i‖ + 0.01), no C to choose well.

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
    noise: ClassVar[NoiseKind] = "projected"

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
class WithoutClipping(Method):
    """One noise at the end, ``Σ_t G_t Aᵀ + s L E Aᵀ``, where no gradient exceeds L by itself.

    One step is the noisy projection of W's gradient, which does not depend on A. After the first
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
        condition: ``√(λ_max/λ_min)`` of AAᵀ, which ``fit`` fills in.

    Source: lora-privacy, Algorithm 4; Theorem 5 for one step; Chaudhuri, Monteleoni and Sarwate
    (2011) and Hardt, Recht and Singer (2016) for more.
    """

    name: ClassVar[str] = "projection without clipping"
    noise: ClassVar[NoiseKind] = "projected"

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
        del std
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
        if schedule.steps == 1:
            # a replaced record moves the sum by the difference of two gradients, of any rank
            alone = schedule.adjacency is Adjacency.ADD_REMOVE
            # one step: the mixture over A of Gaussian shifts, rounded up
            return noisy_projection(
                dim=min(schedule.dims),
                rank=self.rank,
                sensitivity=schedule.reach,
                noise_std=noise_multiplier,
                difference_rank=schedule.difference_rank if alone else None,
            )
        if self.smoothness is None or self.condition is None or len(schedule.dims) != 1:
            raise ValueError(
                "steps: expected 1, or a smoothness and one layer whose loss is convex: after the "
                "first step the gradients depend on A, and the projection's account does not hold "
                f"(lora-privacy, Algorithm 4), got {schedule.steps} steps"
            )
        # μ = reach T √(λ_max/λ_min) / s, conditional on A: convex steps do not drive two runs apart
        return gaussian(schedule.reach * schedule.steps * self.condition, noise_multiplier)


@value
class LoRAFA(Method):
    """Low-rank adaptation with A frozen and no noise: nothing is certified, ε = ∞.

    Args:
        rank: Rows r of A, the rank of the adapter.

    Source: lora-privacy, Algorithm 1 and Proposition 2.
    """

    word: ClassVar[str] = "lora-fa"
    name: ClassVar[str] = "LoRA-FA without noise"
    noise: ClassVar[NoiseKind] = "none"

    rank: Count = 16

    def profile(self, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
        """Raise: a noiseless matrix projection is not private at any ε and δ < 1."""
        raise ValueError(
            "method: expected one that adds noise, for LoRA-FA without it is private at no ε "
            f"(lora-privacy, Proposition 2), got {noise_multiplier:g} over {schedule.steps} steps"
        )


AnyMethod: TypeAlias = DPSGD | DPLoRAFA | NoisyProjection | WithoutClipping | LoRAFA


def min_over(values: Iterable[Tensor]) -> Tensor:
    """Return the least of several tensors, entry by entry."""
    import torch

    return torch.stack(list(values)).amin(dim=0)


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

    # r and d: E is drawn in the fewer of them
    rows, width = projection.shape[-2:]
    # s E or s E', independent entries
    drawn = std * normal((*shape[:-1], min(rows, width))).to(projection)
    if rows >= width:
        # r >= d: E Aᵀ as it stands
        return drawn @ projection.mT
    # in float64: the covariance of what is drawn is A Aᵀ to 2⁻⁵³ of its condition
    exact = projection.double()
    root: Tensor = torch.linalg.cholesky(exact @ exact.mT)
    # E' Lᵀ with L Lᵀ = A Aᵀ has the covariance of E Aᵀ
    return drawn @ root.mT.to(drawn)


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
