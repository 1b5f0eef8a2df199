"""Opening a session: its promise, its budget, and what is drawn once."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.random import fair_choices, uniform_index
from tacit.releases.publication import allowed_nats
from tacit.statistics.candidates import draw_family, subset_rate
from tacit.statistics.pairs import Pairing, nearest
from tacit.statistics.promises import Declared, refuse
from tacit.statistics.rows.workflow import chosen_pairing, group_size
from tacit.statistics.sessions.asked import ByPairs, OfTable, Promise
from tacit.statistics.sessions.draws import OfDraw
from tacit.statistics.sessions.kept import Kept
from tacit.statistics.strength import Strength
from tacit.statistics.sums.statistic import Columns

FAMILY_SEED_BITS = 128


@dataclass(frozen=True, eq=False)
class Found:
    """What opening a session gives.

    Attributes:
        promise: how queries are answered.
        budget: μ, or nats.
        declared: what must be the same when the session is taken up again.
        members: (P, k) groups.
        bounds: of the posterior weights.
        sides: rows of every group, of which one is drawn; candidates where there are no groups.
    """

    promise: Promise
    budget: float
    declared: dict[str, Any]
    members: Any
    bounds: Array
    sides: int

    def drawn(self, rng: np.random.Generator | None) -> Any:
        """Draw the secret."""
        if self.sides == 0:
            return np.empty(0, dtype=np.int64)
        if len(self.members):
            return fair_choices(len(self.members), self.sides, rng).astype(np.int64)
        return np.array([uniform_index(self.sides, rng)], dtype=np.int64)

    def check(self, stored: Kept) -> None:
        """Refuse a file that does not hold what this promise keeps.

        Raises:
            ValueError: it does not; the message names the field.
        """
        groups, weights = len(self.members), self.bounds.shape[1]
        count = groups or min(self.sides, 1)
        drawn, bounds = stored.drawn, stored.bounds
        if drawn.shape != (count,) or ((drawn < 0) | (drawn >= self.sides)).any():
            raise ValueError(
                f"session.drawn: expected {count} numbers from 0 to {self.sides - 1}, got others"
                if count
                else "session.drawn: expected none, as all rows of a table are used, got some"
            )
        if len(stored.members) != groups:
            raise ValueError(
                f"session.members: expected {groups} groups, got {len(stored.members)}"
            )
        ordered = bounds.shape == (2, weights) and bool((bounds[0] <= bounds[1]).all())
        if not (ordered and np.isfinite(bounds).all()):
            raise ValueError(
                f"session.bounds: expected (2, {weights}) ends of weights in order, got others"
            )


@dataclass(frozen=True, eq=False)
class Opening:
    """The arguments of a session, checked as far as all promises share them."""

    rows: Array
    columns: tuple[str, ...]
    declared: Declared
    strength: Strength
    mi_budget: float | None
    pairs: Any
    sampling_rate: float
    simulations: int
    cost: Any
    source: np.random.Generator
    workers: int | None
    progress: bool | None

    def by_pairs(self, stored: Kept | None) -> Found:
        """Choose the groups, once."""
        if stored is None:
            size = group_size(self.sampling_rate)
            pairing = chosen_pairing(self.pairs, self.rows, self.columns, size, self.source)
            if pairing is None:
                pairing = nearest(self.rows, group_size=size, progress=self.progress)
        else:
            method = stored.declared.get("pairing", "")
            pairing = Pairing(stored.members.astype(np.intp), len(self.rows), str(method))
        budget = self.strength.mu_for(1.0 / pairing.group_size)
        promise = ByPairs(self.rows, self.columns, pairing, self.declared, self.cost, self.progress)
        asked = "nearest" if self.pairs is None else self.pairs
        said = {
            "budget": budget,
            "group_size": pairing.group_size,
            "pairing": pairing.method,
            "pairs": asked if isinstance(asked, str) else "given",
            "sampling_rate": float(self.sampling_rate),
        }
        members = pairing.members.astype(np.int64)
        return Found(promise, budget, said, members, np.empty((2, 0)), pairing.group_size)

    def of_table(self, stored: Kept | None) -> Found:
        """Take the bounds; nothing is drawn."""
        del stored
        known, budget = self.declared, self.strength.mu_for(0.5)
        promise = OfTable(self.rows, self.columns, known, self.cost)
        said = {
            "budget": budget,
            "adjacency": known.adjacency,
            "bounds": {self.columns[place]: list(pair) for place, pair in known.bounds.items()},
            "levels": {self.columns[place]: list(held) for place, held in known.levels.items()},
        }
        nobody = np.empty((0, 0), dtype=np.int64)
        return Found(promise, budget, said, nobody, np.empty((2, 0)), 0)

    def of_draw(self, stored: Kept | None) -> Found:
        """Declare the subsets; their seed is as public as they are."""
        for name in ("mu", "epsilon", "delta", "rho"):
            refuse(name, getattr(self.strength, name), "draw")
        count = integer("simulations", self.simulations, minimum=2)
        rate = subset_rate(
            len(self.rows),
            in_interval(
                "sampling_rate", self.sampling_rate, 0.0, 1.0, open_low=True, open_high=True
            ),
            count,
        )
        prior = max(float(rate), 1.0 - float(rate))
        budget = allowed_nats(self.mi_budget, self.strength.success, prior)
        seed = (
            secrets.randbits(FAMILY_SEED_BITS)
            if stored is None
            else int(str(stored.declared.get("family", "0")), 16)
        )
        family = draw_family(len(self.rows), rate, count, np.random.default_rng(seed))
        columns = Columns(self.columns, self.rows, words=self.declared.words)
        promise = OfDraw(self.rows, columns, family, self.cost, self.workers, self.progress)
        said = {
            "budget": budget,
            "family": f"{seed:x}",
            "subsets": hashlib.sha256(family.packed.tobytes()).hexdigest(),
        }
        nobody = np.empty((0, 0), dtype=np.int64)
        return Found(promise, budget, said, nobody, np.zeros((2, len(family))), len(family))
