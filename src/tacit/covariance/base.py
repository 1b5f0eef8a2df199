"""What every covariance of released noise can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    generator,
    integer,
    non_negative,
    symmetric,
    vector,
)
from tacit._ground.numbers import EPS
from tacit._ground.random import standard_normal
from tacit.codec import leaf
from tacit.covariance.publication import Normals, publish
from tacit.linalg import default_tolerance, eigh_psd

# Units in the last place for each term of a distance: a product, a sum, and what a variance is off.
ROUNDING_UNITS = 8.0


class Covariance(ABC):
    """Covariance Σ of Gaussian noise N(0, Σ) in ``dim`` dimensions.

    Along a direction that Σ does not cover, ``mahalanobis`` is infinite.
    """

    kind: ClassVar[str]

    if TYPE_CHECKING:
        # A real property here would become the default of the dataclass field of ``Isotropic``.
        @property
        def dim(self) -> int:
            """Dimension d of the noise."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of directions that receive noise."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Return ρ, rounded up, with ``zᵀ Σ⁻¹ z <= (1 + ρ) mahalanobis(z)`` whatever was lost.

        It speaks of the directions that ``rank`` counts; a part of z below the rounding of the
        noise in every coordinate is not seen.
        """

    @abstractmethod
    def trace(self) -> float:
        """Return tr Σ, the expected squared norm of the noise, to rounding."""

    @abstractmethod
    def _draw(self, n: int, normals: Normals) -> Array:
        """Return n noise vectors, (n, d), to rounding, made of N(0, 1) values of ``normals``."""

    @abstractmethod
    def _sizes(self) -> tuple[Array, Array]:
        """Return the deviation drawn of each coordinate and the norm of its terms, to rounding."""

    @abstractmethod
    def scaled(self, c: float) -> Covariance:
        """Return c Σ, c > 0."""

    @abstractmethod
    def with_floor(self, eta: float) -> Covariance:
        """Return Σ + η I (hidden-state, Prop. 10)."""

    @abstractmethod
    def to_dense(self) -> Array:
        """Return Σ as a (d, d) array, to rounding."""

    @abstractmethod
    def _squared_distance(self, rows: Array) -> Array:
        """Return zᵀ Σ⁻¹ z for each row, to rounding, inf outside the range."""

    @abstractmethod
    def _dense_weighted_trace(self, cost: Array) -> float:
        """Return tr(F Σ) for a (d, d) cost, to rounding."""

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the variances of the d coordinates, to rounding."""

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return the constructor's arguments, JSON-able."""

    def sample(self, n: int, rng: RandomSource = None) -> Array:
        """Draw n noise vectors, (n, d), to rounding, for simulation; ``release`` publishes.

        The low bits of a sum ``value + sample(1)[0]`` tell values apart that the noise hides.
        """
        count = integer("n", n, minimum=1)
        source = None if rng is None else generator(rng)
        return self._draw(count, partial(standard_normal, rng=source))

    def release(self, value: ArrayLike, *, rng: RandomSource = None) -> Array:
        """Return the exact ``value + N(0, Σ)`` to publish, on a grid of 2⁻²⁰ of its deviation.

        The sum is exact before it is rounded, on a grid that depends on Σ alone, so it is
        post-processing of the real sum; a coordinate without noise is published as it is.

        Args:
            value: (d,), or (n, d) for independent noise on every row.
            rng: None draws from the operating system. A seed or generator can be repeated by
                whoever knows it, which voids the guarantee.

        Returns:
            What to publish, of the shape of ``value``.

        Raises:
            ValueError: a value of another dimension or not finite, or noise whose deviations are
                not within 2⁻¹⁰⁰⁰ … 2¹⁰⁰⁰.

        Example:
            >>> from tacit.covariance import Diagonal
            >>> released = Diagonal([4.0, 0.0]).release([0.1, 0.1])
            >>> float(released[0] * 2**19).is_integer(), float(released[1])
            (True, 0.1)
        """
        return publish(self, value, rng)

    def mahalanobis(self, z: ArrayLike) -> Any:
        """Return the squared distance zᵀ Σ⁻¹ z, to rounding, infinite outside the range of Σ.

        Args:
            z: (d,) or (n, d).

        Returns:
            float for a vector, (n,) for rows.

        Raises:
            ValueError: wrong shape or a non-finite entry.
        """
        rows = array("z", z, ndim=(1, 2))
        if rows.shape[-1] != self.dim:
            raise ValueError(f"z: expected {self.dim} columns, got shape {rows.shape}")
        # row by row: one difference is a list of one
        listed = np.atleast_2d(rows)
        distances = self._squared_distance(listed)
        if self.rank < self.dim:
            # a direction without noise may be askew and rounded; a coordinate without noise is
            # exact
            bare = self._sizes()[0] == 0.0
            distances = np.where(listed[:, bare].any(axis=1), np.inf, distances)
        return float(distances[0]) if rows.ndim == 1 else distances

    def weighted_trace(self, cost: ArrayLike | None = None) -> float:
        """Return tr(F Σ), to rounding, for a cost F: None (I), a scalar, a diagonal or (d, d)."""
        if cost is None:
            return self.trace()
        # tr(cF), Σ F_ii Σ_ii and ⟨F, Σ⟩: no product of matrices
        weights = array("cost", cost, ndim=(0, 1, 2))
        if weights.ndim == 0:
            return non_negative("cost", cost) * self.trace()
        if weights.ndim == 1:
            return float(vector("cost", cost, size=self.dim) @ self.diagonal())
        return self._dense_weighted_trace(symmetric("cost", cost, size=self.dim))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``covariance_from_dict`` reads back exactly."""
        return {"type": self.kind, **self._fields()}

    @staticmethod
    def from_dict(description: Any) -> Covariance:
        """Return the covariance that ``to_dict`` described."""
        from tacit.covariance import covariance_from_dict

        return covariance_from_dict(description)

    def __eq__(self, other: object) -> bool:
        """Whether type and parameters are the same, bit for bit."""
        if not isinstance(other, Covariance):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.dim))


def relative_rounding(terms: int, largest: float, least: float) -> float:
    """Return ρ = 8 n 2⁻⁵² κ, κ = ``largest``/``least`` of the variances: an upper bound."""
    # a term is off by some units of itself, and the least variance by as many of the largest
    return ROUNDING_UNITS * terms * EPS * (largest / least)


def kept_spectrum(name: str, dense: Array) -> tuple[Array, Array]:
    """Return the eigenpairs, to rounding, that lie above the rounding level of the largest."""
    eigenvalues, vectors = eigh_psd(name, dense)
    # what an eigensolver leaves of a null space is at most d ε of the largest
    keep = eigenvalues > default_tolerance(eigenvalues.size) * eigenvalues[-1]
    return eigenvalues[keep], vectors[:, keep]


leaf(Covariance, Covariance.from_dict)
