"""Distances of a retrieval attack as values: what an attacker ranks candidates by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import RandomSource, choice, non_negative
from tacit._ground.reprs import short_repr
from tacit.attacks.retrieval.problem import RetrievalProblem, held_out_problem
from tacit.attacks.retrieval.result import reciprocal_ranks
from tacit.attacks.retrieval.space import AttackSpace, complement, euclidean, noise_space, weighted
from tacit.covariance import Covariance
from tacit.covariance import Isotropic as IsotropicNoise
from tacit.covariance.coercion import as_covariance

FLOORS = (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """``d²(z, c) = (z − h_c)ᵀ M (z − h_c)`` with some M.

    Attributes:
        name: the metric in results.
    """

    name: ClassVar[str]

    @property
    def noise(self) -> Covariance | None:
        """Σ, where it is a likelihood that a prior may weigh."""
        return None

    @property
    def prior(self) -> ArrayLike | None:
        """(N,) probabilities of the candidates up to a factor, None where equally likely."""
        return None

    @abstractmethod
    def space(self, problem: RetrievalProblem, rng: RandomSource) -> tuple[AttackSpace, float]:
        """Return the coordinates in which the distance is plain, and the floor τ chosen."""


@dataclass(frozen=True, eq=False)
class Euclidean(Metric):
    """M = I."""

    name = "euclidean"

    def space(self, problem: RetrievalProblem, rng: RandomSource) -> tuple[AttackSpace, float]:
        return euclidean(problem.centre), 0.0


@short_repr
@dataclass(frozen=True, eq=False)
class Complement(Metric):
    """M the projector on what ``basis`` (k, d) does not span."""

    basis: ArrayLike

    name = "complement"

    def space(self, problem: RetrievalProblem, rng: RandomSource) -> tuple[AttackSpace, float]:
        return complement(problem.centre, self.basis), 0.0


@short_repr
@dataclass(frozen=True, eq=False)
class Weighted(Metric):
    """M = diag(w), (d,) of them, each >= 0."""

    coordinate_weights: ArrayLike

    name = "weighted"

    def space(self, problem: RetrievalProblem, rng: RandomSource) -> tuple[AttackSpace, float]:
        return weighted(problem.centre, self.coordinate_weights), 0.0


@short_repr
@dataclass(frozen=True, eq=False)
class Mahalanobis(Metric):
    """M = (Σ + τ I)⁻¹, Bayes-optimal at τ = 0.

    Attributes:
        covariance: Σ, or an array of variances (d,) or of shape (d, d).
        floor: τ >= 0; ``"tuned"`` takes the best of a grid on held-out noisy states; None is 0.
        held_out: (queries, truth) of noisy states other than those attacked; drawn afresh from the
            bank and Σ when None, which the attacker can do.
        weights: (N,) probabilities > 0 of the candidates, up to a factor: ranks by the posterior.
            Draw the truth from the same law.
    """

    covariance: Covariance
    floor: str | float | None = "tuned"
    held_out: tuple[Any, Any] | None = None
    weights: ArrayLike | None = None

    name = "mahalanobis"

    def __post_init__(self) -> None:
        found = as_covariance("covariance", self.covariance)
        if not isinstance(found, Covariance):
            raise ValueError(f"covariance: expected a Covariance, got {type(found).__name__}")
        object.__setattr__(self, "covariance", found)

    @property
    def noise(self) -> Covariance:
        """Σ."""
        return self.covariance

    @property
    def prior(self) -> ArrayLike | None:
        return self.weights

    def space(self, problem: RetrievalProblem, rng: RandomSource) -> tuple[AttackSpace, float]:
        covariance, floor = self.covariance, self.floor
        if floor is None or not isinstance(floor, str):
            tau = 0.0 if floor is None else non_negative("floor", floor)
            if self.held_out is not None:
                raise ValueError("held_out: expected only beside floor 'tuned'")
            return noise_space(problem.centre, covariance, tau), tau
        choice("floor", floor, ("tuned",))
        # A multiple of the identity ranks the same whatever is added, unless a prior weighs in.
        if isinstance(covariance, IsotropicNoise) or covariance.rank == 0:
            return noise_space(problem.centre, covariance, 0.0), 0.0
        other = held_out_problem(problem, covariance, self.held_out, rng)
        unit = covariance.trace() / covariance.dim
        # The first of equals: at floor 0 the score is the likelihood itself.
        grid = [share * unit for share in FLOORS]
        gains = [
            reciprocal_ranks(other.standing(noise_space(problem.centre, covariance, tau))).mean()
            for tau in grid
        ]
        tau = grid[int(np.argmax(gains))]
        return noise_space(problem.centre, covariance, tau), tau
