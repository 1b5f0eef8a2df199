"""Coins that are simulated: the subsets of the pool that they draw, and flips of one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.releases.outputs import check_spread
from tacit.statistics.pairs.pairing import Indices, Pairing
from tacit.statistics.queries.statistic import Query
from tacit.statistics.simulation import Units, simulate


@dataclass(frozen=True, eq=False)
class Flips:
    """Subsets of the pool: each of m draws as it fell, and with every coin flipped once.

    Attributes:
        pairing: pairs.
        fallen: (m, P) zeros and ones.
    """

    pairing: Pairing
    fallen: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Return m (P + 1)."""
        return len(self.fallen) * (len(self.pairing) + 1)

    def members(self, candidate: int) -> Indices:
        """Return the rows, pair by pair: the draw itself first, then with pair i flipped."""
        # P + 1 candidates a draw: as it fell, then one coin turned at a time
        draw, flipped = divmod(candidate, len(self.pairing) + 1)
        places = self.fallen[draw].astype(np.intp)
        if flipped:
            places[flipped - 1] = 1 - places[flipped - 1]
        return np.asarray(self.pairing.members[np.arange(len(self.pairing)), places])


@dataclass(frozen=True, eq=False)
class Halves:
    """Subsets of the pool: K/2 draws and their complements, so that every row is in half of them.

    Attributes:
        pairing: pairs.
        fallen: (K, P) zeros and ones.
    """

    pairing: Pairing
    fallen: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Return K."""
        return len(self.fallen)

    def members(self, candidate: int) -> Indices:
        """Return the rows, pair by pair."""
        places = self.fallen[candidate].astype(np.intp)
        return np.asarray(self.pairing.members[np.arange(len(self.pairing)), places])


def throw_coins(count: int, pairs: int, source: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Throw (count, P) fair coins for a simulation."""
    return source.integers(0, 2, size=(count, pairs), dtype=np.uint8)


def swaps_of(
    query: Query,
    rows: Units,
    pairing: Pairing,
    draws: int,
    source: np.random.Generator,
    *,
    workers: int | None,
    progress: bool | None,
) -> tuple[Array, Array]:
    """Return outputs (m, d) of m draws, and by how much each flip moves them, (m, P, d).

    Raises:
        ValueError: outputs whose squares leave the range of double precision.
    """
    flips = Flips(pairing, throw_coins(draws, len(pairing), source))
    outputs = simulate(query, rows, flips, workers=workers, progress=progress)
    check_spread(outputs)
    # z_i = f(flipped at i) − f(as it fell), for every pair of every draw
    found = outputs.reshape(draws, len(pairing) + 1, -1)
    return found[:, 0], found[:, 1:] - found[:, :1]
