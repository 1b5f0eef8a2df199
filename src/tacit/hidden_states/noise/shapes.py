"""Shapes of Gaussian noise as values: where a design puts it, at a KL budget K = ½ tr(FΣ)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    as_float,
    in_interval,
    integer,
    matrix,
    non_negative,
    positive,
)
from tacit.design import (
    Design,
    average,
    ball,
    complement,
    generalized_eigen,
    isotropic,
    power,
    worst_case,
)
from tacit.hidden_states.spelling import SpelledValue, read_one

if TYPE_CHECKING:
    from tacit.hidden_states.geometry.estimation import Geometry

# of the mean variance, in every direction: the last one to be left bare is worth so much
FLOOR = 1e-2
# beyond it no F in double precision has powers that are finite
LARGEST_POWER = 1000.0


@dataclass(frozen=True, eq=False)
class Given:
    """What a design is made from: F and S, K in nats, and differences (m, d) of an adjacency."""

    geometry: Geometry
    budget: float
    differences: Any


@dataclass(frozen=True)
class NoiseShape(SpelledValue, ABC):
    """Where noise goes, whatever its size.

    Attributes:
        said: its words, where they are not its name.
    """

    said: ClassVar[str] = ""

    @property
    def words(self) -> str:
        """What is added, as a sentence goes on after "the state with"."""
        return self.said or self.name

    def refusal(self, geometry: Geometry) -> str | None:
        """Say why this geometry allows no such design, None where it does."""
        return None

    @abstractmethod
    def make(self, given: Given) -> Design:
        """Return the design at about K nats; ``design`` scales it to exactly K."""

    def design(self, geometry: Geometry, kl_budget: float, *, differences: Any = None) -> Design:
        """Return the design that spends exactly K nats by the quadratic prediction ``½ tr(FΣ)``.

        Args:
            geometry: F and S of the layer.
            kl_budget: K in nats, > 0.
            differences: (m, d), for the shape that is least in the worst case over this list.

        Raises:
            ValueError: a design that this F does not allow, or that costs nothing under it.
        """
        budget = positive("kl_budget", kl_budget)
        if reason := self.refusal(geometry):
            raise ValueError(f"mechanisms: {reason}")
        made = self.make(Given(geometry, budget, differences))
        return _spending(made, geometry.dense_fisher, budget)


@dataclass(frozen=True)
class IsotropicNoise(NoiseShape):
    """The same variance in every direction."""

    word = "isotropic"
    said = "noise alike in all directions"

    def make(self, given: Given) -> Design:
        # Σ = σ²I with ½ σ² tr F = K
        return isotropic(given.geometry.dense_fisher, given.budget)


@dataclass(frozen=True)
class InverseFisher(NoiseShape):
    """Σ ∝ F⁻¹, or diag(F)⁻¹, F with its ridge."""

    diagonal: bool = False

    word = "inverse-fisher"
    aliases: ClassVar = {"inverse-fisher-diagonal": {"diagonal": True}}

    @property
    def words(self) -> str:
        return f"noise by the inverse {'diagonal ' * self.diagonal}Fisher information"

    def make(self, given: Given) -> Design:
        # optimal over an ellipsoid of differences (hidden-state, Thm 13; among diagonals, Thm 15)
        ridged = given.geometry.ridged_fisher
        return ball(np.diagonal(ridged) if self.diagonal else ridged, given.budget)


@dataclass(frozen=True)
class Power(NoiseShape):
    """Σ ∝ diag(F)^−α, F with its ridge."""

    alpha: float

    word = "power"

    def __post_init__(self) -> None:
        in_interval("alpha", self.alpha, -LARGEST_POWER, LARGEST_POWER)

    def make(self, given: Given) -> Design:
        # 0 < α < 1 between the isotropic shape and the diagonal inverse
        return power(np.diagonal(given.geometry.ridged_fisher), self.alpha, given.budget)


@dataclass(frozen=True)
class GeneralizedEigen(NoiseShape):
    """Noise in k directions alone, those of most spread for their cost: bare in all others."""

    directions: int

    word = "generalized-eigen"

    def __post_init__(self) -> None:
        integer("directions", self.directions, minimum=1)

    def refusal(self, geometry: Geometry) -> str | None:
        """As ``NoiseShape``: k is below d."""
        if self.directions < geometry.width:
            return None
        return f"expected fewer than {geometry.width} directions, got {self.name}"

    def make(self, given: Given) -> Design:
        # directions v of largest vᵀSv/vᵀFv: the spread that is hidden per nat that is spent
        return generalized_eigen(
            given.geometry.ridged_fisher, given.geometry.spread, given.budget, self.directions
        )


@dataclass(frozen=True)
class MahalanobisOptimal(NoiseShape):
    """Least mean Mahalanobis signal tr(SΣ⁻¹), with a floor relative to the mean variance."""

    floor: float = FLOOR

    word = "mahalanobis-optimal"
    aliases: ClassVar = {"mahalanobis-bare": {"floor": 0.0}}

    def __post_init__(self) -> None:
        non_negative("floor", self.floor)

    @property
    def words(self) -> str:
        return "Mahalanobis-optimal noise" if self.floor else self.name

    def make(self, given: Given) -> Design:
        fisher = given.geometry.dense_fisher
        # a share of the mean eigenvalue of F, as the geometry has it
        ridge = given.geometry.ridge * float(np.trace(fisher)) / given.geometry.width
        # min tr(SΣ⁻¹) with ½ tr(FΣ) = K: Σ = F^(−½)(F^½SF^½)^½F^(−½) up to its size
        return average(fisher, given.geometry.spread, given.budget, ridge=ridge, floor=self.floor)


@dataclass(frozen=True)
class ComplementNoise(NoiseShape):
    """Noise outside the k directions of most Fisher information; the geometry's own k if None."""

    directions: int | None = None

    word = "complement"
    whiten: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.directions is not None:
            integer("directions", self.directions, minimum=1)

    def refusal(self, geometry: Geometry) -> str | None:
        """As ``NoiseShape``: F is not zero outside k directions, where noise would cost nothing."""
        kept = self._kept(geometry)
        if geometry.fisher_rank > kept:
            return None
        return (
            f"{self.name} needs a Fisher information of rank above {kept}, "
            f"got rank {geometry.fisher_rank}"
        )

    def make(self, given: Given) -> Design:
        kept = self._kept(given.geometry)
        return complement(given.geometry.dense_fisher, kept, given.budget, whiten=self.whiten)

    def _kept(self, geometry: Geometry) -> int:
        return geometry.rank if self.directions is None else self.directions


@dataclass(frozen=True)
class FisherComplement(ComplementNoise):
    """The complement with noise by the inverse Fisher information inside it."""

    word = "fisher-complement"
    whiten = True


@dataclass(frozen=True)
class WorstCase(NoiseShape):
    """Least in the worst case over a list of differences, with a floor as above."""

    floor: float = FLOOR

    word = "worst-case"
    said = "worst-case noise"

    def __post_init__(self) -> None:
        non_negative("floor", self.floor)

    def make(self, given: Given) -> Design:
        rows = matrix("differences", given.differences, columns=given.geometry.width)
        if not rows.any():
            raise ValueError("differences: expected one that is not zero, got none")
        # min tr(FΣ) with zᵢᵀΣ⁻¹zᵢ ≤ 1: the shape is what matters, ``design`` gives it its size
        design = worst_case(rows, 1.0, cost=given.geometry.ridged_fisher)
        covariance = design.covariance
        if self.floor > 0.0:
            # a listed span leaves other directions bare; the floor hides them a little too
            covariance = covariance.with_floor(self.floor * covariance.trace() / covariance.dim)
            note = f"floor of {self.floor:g} of the mean variance in every direction"
        else:
            note = "outside the span of the listed differences there may be no noise at all"
        return replace(design, covariance=covariance, gap=math.nan, notes=(*design.notes, note))


SHAPES: tuple[type[NoiseShape], ...] = (
    IsotropicNoise,
    InverseFisher,
    MahalanobisOptimal,
    ComplementNoise,
    FisherComplement,
    WorstCase,
    Power,
    GeneralizedEigen,
)


def read_shape(text: object) -> NoiseShape:
    """Return the shape that a word names.

    Example:
        >>> read_shape("power(0.5)"), read_shape("inverse-fisher-diagonal")
        (Power(alpha=0.5), InverseFisher(diagonal=True))
    """
    return read_one("mechanisms", text, SHAPES)


def designs_at_budget(
    geometry: Geometry,
    kl_budget: float,
    *,
    rank: int | None = None,
    exponent: float = 0.5,
    floor: float = 1e-2,
    differences: ArrayLike | None = None,
) -> dict[str, Design]:
    """Return each design that spends exactly K nats by the quadratic prediction ``½ tr(FΣ)``.

    Designs that invert F use the geometry's ridge and are rescaled to K under F itself. Those
    without full rank hide nothing from an attacker who knows Σ (hidden-state, Prop. 9): they are
    here to be compared.

    Args:
        geometry: F and S of the layer.
        kl_budget: K in nats, > 0.
        rank: k of the complement and generalised-eigen designs; the geometry's own by default.
        exponent: α of the diagonal family ``diag(F)^-α``.
        floor: variance added in every direction by the floored designs, relative to the mean.
        differences: (m, d), for the design that is least in the worst case over this list.

    Returns:
        Designs by name: ``isotropic``, ``complement``, ``fisher-complement``,
        ``generalized-eigen(1)``, ``generalized-eigen(k)``, ``mahalanobis-bare``,
        ``mahalanobis-optimal`` (floored), ``inverse-fisher``, ``inverse-fisher-diagonal``,
        ``power(α)``, and ``worst-case`` (floored) with differences. The complement designs are
        left out where F has no more than k directions, outside of which noise costs nothing.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.hidden_states import measure_geometry
        >>> from tacit.models import load
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = load(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> from tacit.hidden_states import GeometryFit
        >>> prompts = torch.arange(48).reshape(8, 6)
        >>> found = measure_geometry(model, 1, prompts, GeometryFit(rank=4), rng=0)
        >>> designs = designs_at_budget(found, kl_budget=0.1)
        >>> len(designs), {round(design.cost, 9) for design in designs.values()}
        (10, {0.1})

    Source: hidden-state, Sec. 4–6, App. Q.10, Q.11, S.
    """
    from tacit.hidden_states.geometry.estimation import Geometry

    if not isinstance(geometry, Geometry):
        raise ValueError(f"geometry: expected a Geometry, got {type(geometry).__name__}")
    budget, width = positive("kl_budget", kl_budget), geometry.width
    kept = geometry.rank if rank is None else integer("rank", rank, minimum=1, maximum=width - 1)
    alpha, eta = as_float("exponent", exponent), non_negative("floor", floor)
    shapes: dict[str, NoiseShape] = {
        "isotropic": IsotropicNoise(),
        "generalized-eigen(1)": GeneralizedEigen(1),
        f"generalized-eigen({kept})": GeneralizedEigen(kept),
        "mahalanobis-bare": MahalanobisOptimal(0.0),
        "mahalanobis-optimal": MahalanobisOptimal(eta),
        "inverse-fisher": InverseFisher(),
        "inverse-fisher-diagonal": InverseFisher(diagonal=True),
        f"power({alpha:g})": Power(alpha),
        "complement": ComplementNoise(kept),
        "fisher-complement": FisherComplement(kept),
    }
    if differences is not None:
        shapes["worst-case"] = WorstCase(eta)
    return {
        name: shape.design(geometry, budget, differences=differences)
        for name, shape in shapes.items()
        if shape.refusal(geometry) is None
    }


class Designs:
    """The Gaussian designs of one layer, each computed once and scaled to what is asked.

    Args:
        geometry: F and S of the layer.
        differences: (m, d), the adjacency set, all of which the worst case covers.
    """

    def __init__(self, geometry: Geometry, differences: Any) -> None:
        self._geometry, self._differences = geometry, differences
        self._found: dict[NoiseShape, Design] = {}

    def at(self, shape: NoiseShape | str, kl_budget: float) -> Design:
        """Return the design of a shape, or of the shape that a word names, at K nats.

        Raises:
            ValueError: an unknown name, or a design that this F does not allow.

        Source: hidden-state, Sec. 4–6, App. Q and S.
        """
        budget = positive("kl_budget", kl_budget)
        asked = shape if isinstance(shape, NoiseShape) else read_shape(shape)
        # every shape is linear in K, so that one design serves all budgets
        if asked not in self._found:
            self._found[asked] = asked.design(self._geometry, 1.0, differences=self._differences)
        return scaled_design(self._found[asked], budget)


def scaled_design(design: Design, factor: float) -> Design:
    """Return the design with c Σ in the place of Σ."""
    # tr(F cΣ) = c tr(FΣ); ratios of multipliers were those of another budget
    return replace(
        design,
        covariance=design.covariance.scaled(factor),
        cost=design.cost * factor,
        constraint_factor=None,
        multiplier_ratios=None,
    )


def _spending(design: Design, fisher: Array, budget: float) -> Design:
    """Rescale Σ so that ½ tr(FΣ) is the budget under F without its ridge."""
    # K = ½ tr(FΣ); what was designed under F with its ridge costs another number under F itself
    used = 0.5 * design.covariance.weighted_trace(fisher)
    if used <= 0.0:
        raise ValueError(f"geometry: the {design.method} design costs nothing under F, got 0 nats")
    if np.isclose(used, budget, rtol=1e-12, atol=0.0):
        return design
    if design.method != "worst-case":
        note = f"rescaled by {budget / used:.6g} to cost {budget:g} nats under F without its ridge"
        design = replace(design, notes=(*design.notes, note))
    return replace(
        design,
        covariance=design.covariance.scaled(budget / used),
        cost=budget,
        constraint_factor=None,
        multiplier_ratios=None,
    )
