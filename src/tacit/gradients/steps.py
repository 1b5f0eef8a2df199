"""A step of private training: sums, clipped, noised, scaled, and what that certifies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from tacit._ground.checks import in_interval, integer, positive
from tacit._ground.values import Count, Within, value
from tacit.accounting import PrivacyProfile, least_noise
from tacit.guarantees.adjacency import Adjacency

if TYPE_CHECKING:
    from torch import Tensor

# Draws independent N(0, 1) values of a shape.
Normal: TypeAlias = "Callable[[tuple[int, ...]], Tensor]"
# In every entry, through A, or none.
NoiseKind: TypeAlias = Literal["independent", "projected", "none"]
# From this multiplier on the noise is first tried: that of usual runs is between 0.3 and 3.
FIRST_NOISE = 1.0


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
        noise_kind: ``"independent"`` in every entry, ``"projected"`` by A, or ``"none"``.
    """

    # its part of a command's help
    panel: ClassVar[str] = "Method"
    name: ClassVar[str]
    full: ClassVar[bool] = False
    fresh: ClassVar[bool] = False
    noise_kind: ClassVar[NoiseKind]

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
        projection = None if layer.projection is None else layer.projection().to(total.device)
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
        if self.noise_kind == "none":
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
            total: as of ``step``, float64; it may be written over.
            projection: as there.
            std: as there.
            normal: as there.
        """
        from tacit.gradients.publication import publish_drawn, publish_tensor

        if self.noise_kind == "none":
            return total
        if projection is None or self.noise_kind == "independent":
            # independent entries, in the coordinates of the sum itself
            return publish_drawn(total, std, normal)
        value, noise = self._parts(total, projection, std, normal)
        # E Aᵀ has deviation s ‖a_j‖ in column j, which sets the grid that the sum is rounded to
        spread = std * projection.double().norm(dim=-1)
        # what comes after the rounded sum is post-processing
        return self._back(publish_tensor(value, noise, spread), projection)

    def _parts(
        self, total: Tensor, projection: Tensor | None, std: float, normal: Normal
    ) -> tuple[Tensor, Tensor]:
        """Return what is summed and its noise, in the coordinates that are published."""
        # E of independent entries, in the coordinates of the sum itself
        if projection is None or self.noise_kind == "independent":
            return total, std * normal(tuple(total.shape)).to(total)
        # E Aᵀ: of the noise on W only what A shows of it is drawn
        noise = projected_noise(total.shape, projection, std, normal)
        # S Aᵀ: gradients of W are seen through A, those of B are already
        return (total @ projection.mT if self.full else total), noise

    def _back(self, seen: Tensor, projection: Tensor | None) -> Tensor:
        """Return the step that published coordinates make: post-processing."""
        if projection is None or self.noise_kind == "independent" or not self.full:
            return seen
        # (S Aᵀ + E Aᵀ) A: the step of W that r published columns make
        return seen @ projection


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
