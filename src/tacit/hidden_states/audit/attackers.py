"""Attackers of noisy states as values: each ranks the bank by a distance chosen knowing Σ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit._ground.checks import Array
from tacit.attacks.retrieval import metrics
from tacit.attacks.retrieval.metrics import Metric
from tacit.hidden_states.spelling import SpelledValue, read_one

if TYPE_CHECKING:
    from tacit.covariance import Covariance
    from tacit.hidden_states.audit.laboratory import Laboratory

# Of the mean variance, which coordinates without noise are weighted by: they tell everything.
BARE = 1e-6


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What an attacker of one release knows.

    Attributes:
        laboratory: the layer.
        covariance: Σ.
        held_out: (h, d) noisy states of the rows it may tune itself on.
    """

    laboratory: Laboratory
    covariance: Covariance
    held_out: Array


@dataclass(frozen=True)
class Attacker(SpelledValue, ABC):
    """One retrieval attacker, who holds the bank and knows Σ."""

    @abstractmethod
    def metric(self, knowledge: Knowledge) -> Metric:
        """Return the distance it ranks candidates by."""


@dataclass(frozen=True)
class EuclideanAttacker(Attacker):
    """Distance of states, which forgets Σ."""

    word = "euclidean"

    def metric(self, knowledge: Knowledge) -> Metric:
        return metrics.Euclidean()


@dataclass(frozen=True)
class ComplementAttacker(Attacker):
    """Distance outside the k noisiest directions, k of the geometry."""

    word = "complement"

    def metric(self, knowledge: Knowledge) -> Metric:
        # ascending eigenvalues of Σ: the last k directions are the noisiest
        _, vectors = np.linalg.eigh(knowledge.covariance.to_dense())
        return metrics.Complement(vectors[:, -knowledge.laboratory.geometry.rank :].T)


@dataclass(frozen=True)
class WeightedAttacker(Attacker):
    """Distance with each coordinate divided by its variance."""

    word = "weighted"

    def metric(self, knowledge: Knowledge) -> Metric:
        # (x − y)ᵀ diag(Σ)⁻¹ (x − y), finite where a coordinate is bare
        variances = knowledge.covariance.diagonal()
        return metrics.Weighted(1.0 / (variances + BARE * variances.mean()))


@dataclass(frozen=True)
class MahalanobisAttacker(Attacker):
    """Distance by Σ⁻¹ with a floor tuned on held-out releases: the strongest."""

    word = "mahalanobis"

    def metric(self, knowledge: Knowledge) -> Metric:
        # on noisy releases of other rows than those attacked: a floor tuned on these would flatter
        tuning = np.arange(knowledge.laboratory.tuned.start, knowledge.laboratory.tuned.stop)
        return metrics.Mahalanobis(knowledge.covariance, held_out=(knowledge.held_out, tuning))


ATTACKERS: tuple[type[Attacker], ...] = (
    EuclideanAttacker,
    ComplementAttacker,
    WeightedAttacker,
    MahalanobisAttacker,
)
USUAL: tuple[Attacker, ...] = (EuclideanAttacker(), MahalanobisAttacker())


def read_attacker(attacker: Attacker | str) -> Attacker:
    """Return the attacker that a word names, or the value given.

    Example:
        >>> read_attacker("mahalanobis")
        MahalanobisAttacker()
    """
    return (
        attacker if isinstance(attacker, Attacker) else read_one("attackers", attacker, ATTACKERS)
    )
