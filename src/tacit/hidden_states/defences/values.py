"""Defences as mechanisms: their numbers are their names, and none of them proves anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit._ground.checks import Array, generator, integer
from tacit.hidden_states.audit.mechanisms import Mechanism
from tacit.hidden_states.audit.points import Point, Setting
from tacit.hidden_states.audit.request import SweepRequest

if TYPE_CHECKING:
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.defences.stored import DefenceTrial, Stored


@dataclass(frozen=True)
class Defence(Mechanism, ABC):
    """What is stored of a state without noise, in the hope that it hides the prompt."""

    family = "defence"
    proof = "nothing"

    @abstractmethod
    def learn(self, states: Array, seed: int) -> Stored:
        """Fit it to public states, (m, d)."""

    def readings(self, request: SweepRequest) -> Mapping[str, str]:
        """Return the state that the owner rebuilds."""
        return {"states": "A"}

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> DefenceTrial:
        """Fit it on calibration prompts and store the bank."""
        from tacit.hidden_states.defences.stored import DefenceTrial

        states = laboratory.calibration.double().cpu().numpy()
        return DefenceTrial(laboratory, self.learn(states, seed))


@dataclass(frozen=True)
class Principal(Defence):
    """The first k principal components of public states.

    Attributes:
        dimension: k, at most the numbers in a state.

    Example:
        >>> Principal.read("pca(64)"), Principal(64).name
        (Principal(dimension=64), 'pca(64)')
    """

    dimension: int
    word = "pca"

    def __post_init__(self) -> None:
        integer("dimension", self.dimension, minimum=1)

    def learn(self, states: Array, seed: int) -> Stored:
        from tacit.hidden_states.defences.stored import Reduced

        most = min(states.shape[1], len(states) - 1)
        integer("dimension", self.dimension, minimum=1, maximum=most)
        # eigenvectors of the covariance, those of most variance first
        mean = states.mean(axis=0)
        axes = np.linalg.eigh((states - mean).T @ (states - mean))[1]
        return Reduced(mean, axes[:, : -self.dimension - 1 : -1].T)

    def words(self, point: Point) -> str:
        return f"{self.dimension} principal components"


@dataclass(frozen=True)
class RandomProjection(Defence):
    """k random projections of the state less the mean of public ones, the directions public.

    Attributes:
        dimension: k, at most the numbers in a state.

    Example:
        >>> RandomProjection(64).name
        'projection(64)'
    """

    dimension: int
    word = "projection"

    def __post_init__(self) -> None:
        integer("dimension", self.dimension, minimum=1)

    def learn(self, states: Array, seed: int) -> Stored:
        from tacit.hidden_states.defences.stored import Reduced

        width = states.shape[1]
        integer("dimension", self.dimension, minimum=1, maximum=width)
        # of variance 1/k, so that lengths are kept on average (Johnson and Lindenstrauss, 1984)
        rows = generator(seed).standard_normal((self.dimension, width)) / np.sqrt(self.dimension)
        return Reduced(states.mean(axis=0), rows)

    def words(self, point: Point) -> str:
        return f"{self.dimension} random projections"


@dataclass(frozen=True)
class Product(Defence):
    """The product code of the state: the nearest of some centroids of each of m parts.

    Attributes:
        parts: m, which divides the numbers in a state.
        centroids: of a part, at most as many as there are public states.

    Example:
        >>> Product(16).name, Product(8, 16).name
        ('product(16)', 'product(8,16)')
    """

    parts: int
    centroids: int = 256
    word = "product"

    def __post_init__(self) -> None:
        integer("parts", self.parts, minimum=1)
        integer("centroids", self.centroids, minimum=1)

    def learn(self, states: Array, seed: int) -> Stored:
        from tacit.hidden_states.codebooks.methods import ProductFit
        from tacit.hidden_states.codebooks.product import ProductCodebook
        from tacit.hidden_states.defences.stored import ProductCentroids, rounded

        size = integer("centroids", self.centroids, minimum=1, maximum=len(states))
        how = ProductFit(parts=self.parts, size=size, least_cell=1)
        book = ProductCodebook.fit(rounded(states), how, rng=seed, progress=False)
        return ProductCentroids(book)

    def words(self, point: Point) -> str:
        return f"a product code of {self.parts} parts with {self.centroids} centroids each"


@dataclass(frozen=True)
class Rotation(Defence):
    """The state turned by a secret orthogonal matrix, one for the whole store.

    Example:
        >>> Rotation().name
        'rotation'
    """

    word = "rotation"

    def learn(self, states: Array, seed: int) -> Stored:
        """As ``Defence``: the key has nothing to do with the states."""
        from tacit.hidden_states.defences.stored import Rotated

        return Rotated.draw(states.shape[1], seed)

    def words(self, point: Point) -> str:
        return "the state turned by a secret rotation"


DEFENCES: tuple[type[Defence], ...] = (Principal, RandomProjection, Product, Rotation)


def read_defence(text: str) -> Defence | None:
    """Return the defence that a word names, None for another word.

    Raises:
        ValueError: its own word with numbers that are none, or out of range.
    """
    return next((found for kind in DEFENCES if (found := kind.read(text)) is not None), None)
