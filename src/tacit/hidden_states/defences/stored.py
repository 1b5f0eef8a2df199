"""What a defence stores of states, what its owner makes of that, and who attacks it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit._ground.checks import Array, generator
from tacit.attacks.alignment.alignment import Alignment
from tacit.attacks.alignment.pairs import align_pairs
from tacit.attacks.alignment.population import align_population
from tacit.hidden_states.codebooks.product import ProductCodebook


@dataclass(frozen=True, eq=False)
class Game:
    """An attacker: what it is told, and the space in which it compares candidates and releases.

    Attributes:
        name: what it knows, in a few words.
        of_states: from states of candidates (m, d) to (m, w).
        of_releases: from what is stored (n, k) to (n, w).
    """

    name: str
    of_states: Callable[[Array], Array]
    of_releases: Callable[[Array], Array]

    @classmethod
    def of(cls, alignment: Alignment) -> Game:
        """Return the attacker who knows so much of a rotation."""
        return cls(alignment.game, alignment.of_states, alignment.of_releases)


class Stored(ABC):
    """A defence fitted to public states.

    Attributes:
        size: k, numbers that are stored of a state.
    """

    size: int

    @abstractmethod
    def store(self, states: Array) -> Array:
        """Return what is stored of states (n, d), (n, k), rounded to float32."""

    @abstractmethod
    def rebuild(self, stored: Array) -> Array:
        """Return the states that the owner goes on from, (n, d)."""

    def games(self, public: Array, stored: Array, pairs: Sequence[int]) -> tuple[Game, ...]:
        """Return the attackers: who knows the defence computes what candidates would leave.

        Args:
            public: states of prompts that attackers hold, (m, d).
            stored: all that attackers see of the others, (n, k).
            pairs: of how many public prompts what was stored of them is known.
        """
        del public, stored, pairs
        return (Game("knows the defence", self.store, lambda rows: rows),)


class Reduced(Stored):
    """``y = W (h − μ)``, read as ``μ + W⁺ y``.

    Args:
        mean: μ, (d,).
        rows: W, (k, d), of full rank.
    """

    def __init__(self, mean: Array, rows: Array) -> None:
        self.mean, self.rows, self.size = mean, rows, len(rows)
        self.back = np.linalg.pinv(rows).T

    def store(self, states: Array) -> Array:
        """As ``Stored``."""
        return rounded((states - self.mean) @ self.rows.T)

    def rebuild(self, stored: Array) -> Array:
        """As ``Stored``."""
        found: Array = self.mean + stored @ self.back
        return found


class Coded(Stored):
    """The centroids of a product code, which are one-to-one with its codes.

    Args:
        book: the codebook.
    """

    def __init__(self, book: ProductCodebook) -> None:
        self.book, self.size = book, len(book.parts)

    def store(self, states: Array) -> Array:
        """As ``Stored``."""
        rows: Array = self.book.decode(self.book.assign(rounded(states))).double().numpy()
        return rows

    def rebuild(self, stored: Array) -> Array:
        """As ``Stored``."""
        return stored


class Rotated(Stored):
    """``y = Q h``, Q orthogonal and one for the whole store, which its owner undoes.

    Args:
        rotation: Q, (d, d).
    """

    def __init__(self, rotation: Array) -> None:
        self.rotation, self.size = rotation, len(rotation)

    @classmethod
    def draw(cls, dim: int, seed: int) -> Rotated:
        """Draw Q uniformly among the orthogonal matrices, for simulation."""
        found, upper = np.linalg.qr(generator(seed).standard_normal((dim, dim)))
        # signs of the diagonal make it uniform (Mezzadri 2007)
        return cls(found * np.sign(np.diag(upper)))

    def store(self, states: Array) -> Array:
        """As ``Stored``."""
        return rounded(states @ self.rotation.T)

    def rebuild(self, stored: Array) -> Array:
        """As ``Stored``."""
        found: Array = stored @ self.rotation
        return found

    def games(self, public: Array, stored: Array, pairs: Sequence[int]) -> tuple[Game, ...]:
        """As ``Stored``: who knows pairs, and who lays a population and the store together."""
        known = [
            align_pairs(public[:count], self.store(public[:count]))
            if count
            else Alignment.blind(self.size)
            for count in pairs
        ]
        if min(len(public), len(stored)) > self.size:
            known.append(align_population(public, stored))
        return tuple(Game.of(each) for each in known)


def rounded(values: Array) -> Array:
    """Return numbers as float32 keeps them."""
    found: Array = values.astype(np.float32).astype(np.float64)
    return found
