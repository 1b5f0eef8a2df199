"""What a defence stores of states, what its owner makes of that, and who attacks it.

A fitted defence is a trial of a sweep, and for an inverter a release that it learns to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array, generator, integer
from tacit.attacks.alignment.alignment import Alignment
from tacit.attacks.alignment.pairs import align_pairs
from tacit.attacks.alignment.population import align_population
from tacit.attacks.inversion.learned.released import MappedChannel, StateRelease
from tacit.hidden_states.audit.attackers import Attacker
from tacit.hidden_states.audit.guessers import Observed
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import Trial
from tacit.hidden_states.audit.points import AttackPoint
from tacit.hidden_states.codebooks.product import ProductCodebook

# pairs that attackers of a rotation know, besides as many as a state has numbers
PAIRS = (0, 32)


@dataclass(frozen=True, eq=False)
class StoredGame:
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
    def of(cls, alignment: Alignment) -> StoredGame:
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

    def games(self, public: Array, stored: Array, pairs: Sequence[int]) -> tuple[StoredGame, ...]:
        """Return the attackers: who knows the defence computes what candidates would leave.

        Args:
            public: states of prompts that attackers hold, (m, d).
            stored: all that attackers see of the others, (n, k).
            pairs: of how many public prompts what was stored of them is known.
        """
        return (StoredGame("knows the defence", self.store, lambda rows: rows),)


class Reduced(Stored):
    """``y = W (h − μ)``, read as ``μ + W⁺ y``.

    Args:
        mean: μ, (d,).
        rows: W, (k, d), of full rank.
    """

    def __init__(self, mean: Array, rows: Array) -> None:
        self.mean, self.rows, self.size = mean, rows, len(rows)
        # W⁺, by which the owner gets the nearest state in the rows' span
        self.back = np.linalg.pinv(rows).T

    def store(self, states: Array) -> Array:
        return rounded((states - self.mean) @ self.rows.T)

    def rebuild(self, stored: Array) -> Array:
        found: Array = self.mean + stored @ self.back
        return found


class ProductCentroids(Stored):
    """The centroids of a product code, which are one-to-one with its codes.

    Args:
        book: the codebook.
    """

    def __init__(self, book: ProductCodebook) -> None:
        self.book, self.size = book, len(book.parts)

    def store(self, states: Array) -> Array:
        rows: Array = self.book.decode(self.book.assign(rounded(states))).double().numpy()
        return rows

    def rebuild(self, stored: Array) -> Array:
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
        # QR of Gaussians is uniform once the diagonal of R is positive (Mezzadri 2007)
        return cls(found * np.sign(np.diag(upper)))

    def store(self, states: Array) -> Array:
        return rounded(states @ self.rotation.T)

    def rebuild(self, stored: Array) -> Array:
        found: Array = stored @ self.rotation
        return found

    def games(self, public: Array, stored: Array, pairs: Sequence[int]) -> tuple[StoredGame, ...]:
        """As ``Stored``: who knows pairs, and who lays a population and the store together."""
        # Q from pairs by orthogonal Procrustes; none known leaves it blind
        known = [
            align_pairs(public[:count], self.store(public[:count]))
            if count
            else Alignment.blind(self.size)
            for count in pairs
        ]
        # second moments of a population need more rows than numbers
        if min(len(public), len(stored)) > self.size:
            known.append(align_population(public, stored))
        return tuple(StoredGame.of(each) for each in known)


def rounded(values: Array) -> Array:
    """Return numbers as float32 keeps them."""
    found: Array = values.astype(np.float32).astype(np.float64)
    return found


class DefenceTrial(Trial):
    """The bank of one layer, stored.

    Args:
        laboratory: the layer.
        stored: the defence, fitted on calibration prompts.
    """

    def __init__(self, laboratory: Laboratory, stored: Stored) -> None:
        self.laboratory, self.stored, self.rank = laboratory, stored, stored.size
        self.public = numbers(laboratory.calibration)
        self.states = [numbers(laboratory.bank)] + [
            numbers(read.states[laboratory.layer]) for read in laboratory.earlier
        ]
        # one secret for all positions, as the store has it
        self.released = [stored.store(rows) for rows in self.states]
        # d pairs determine Q
        width = self.public.shape[1]
        pairs = sorted({min(count, len(self.public)) for count in (*PAIRS, width)})
        self.games = stored.games(self.public, self.released[0], pairs)

    def read(self, reading: str) -> Tensor:
        """Return the states that the owner rebuilds."""
        given = self.laboratory.measured
        return torch.from_numpy(self.stored.rebuild(self.stored.store(numbers(given)))).to(given)

    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return what every attacker of the defence reaches, whoever was named."""
        return tuple(self._reached(game) for game in self.games)

    def _reached(self, game: StoredGame) -> AttackPoint:
        # positions side by side: squared distances add up
        bank = np.hstack([game.of_states(rows) for rows in self.states])
        released = np.hstack([game.of_releases(rows) for rows in self.released])
        return self.laboratory.retrieval(game.name, bank, released)

    def observed(self) -> Observed:
        """Return the last position as it is seen by whoever knows most pairs."""
        width = min(self.public.shape[1], len(self.public))
        game = self.stored.games(self.public, self.released[0][:1], (width,))[0]
        return Observed(
            MappedChannel(game.of_states),
            game.of_states(self.states[0]),
            game.of_releases(self.released[0]),
            game.of_releases(self.stored.store(self.public)),
        )


class StoredRelease(StateRelease):
    """What an attacker makes of a stored state, who simulates it with what it knows.

    It learns from its own view of public states and is given its view of what was stored: the same
    numbers, where it knows enough of the defence.

    Args:
        stored: the defence, fitted.
        public: states of prompts whose stored form the attacker may know, (m, d).
        known_pairs: of how many it does, which counts against a secret alone.

    Raises:
        ValueError: more pairs than public prompts.

    Example:
        >>> states = np.random.default_rng(0).normal(size=(4, 3))
        >>> turned = StoredRelease(Rotated.draw(3, 1), states, 3)
        >>> bool(np.allclose(turned.seen(torch.from_numpy(states)), turned.draw(states), atol=1e-5))
        True
    """

    def __init__(self, stored: Stored, public: Array, known_pairs: int) -> None:
        pairs = integer("known_pairs", known_pairs, minimum=0, maximum=len(public))
        # one release is too few for a population, so that only the pairs count
        self.game = stored.games(public, stored.store(public[:1]), (pairs,))[0]
        self.stored = stored
        super().__init__(MappedChannel(self.game.of_states))

    def seen(self, states: Tensor) -> Array:
        """Return the view of what is stored of states, (n, w)."""
        return self.game.of_releases(self.stored.store(numbers(states)))

    def rebuilt(self, states: Tensor) -> Tensor:
        """Return the states that the owner goes on from, (n, d) in float32."""
        rows = self.stored.rebuild(self.stored.store(numbers(states)))
        return torch.from_numpy(rows.astype(np.float32))


def numbers(states: Tensor) -> Array:
    """Return states in double precision, (n, d)."""
    found: Array = states.double().cpu().numpy()
    return found
