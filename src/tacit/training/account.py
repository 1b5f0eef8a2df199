"""What every reference has left: μ² adds over the rounds in which it takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array, integer, positive
from tacit._ground.numbers import EPS
from tacit.accounting import per_round_budgets


class ReferenceSpentError(ValueError):
    """A reference would take part in more rounds than its budget was divided by.

    Attributes:
        reference: its name.
    """

    def __init__(self, reference: str, participations: int) -> None:
        super().__init__(
            f"reference {reference!r}: its budget was for {participations:,} rounds and is spent; "
            "nothing was drawn. Leave its examples out of further batches"
        )
        self.reference = reference


@dataclass(frozen=True, eq=False)
class Budgets:
    """How far the training may be told apart from each reference.

    Attributes:
        squared: (m,) μ² of the whole run.
        a_round: (m,) g = μ²/K, largest squared distance in one round, rounded down.
        participations: K, in how many rounds a reference takes part at most.
    """

    squared: Array
    a_round: Array
    participations: int

    @property
    def mu(self) -> Array:
        """Distances μ of the whole run, (m,), rounded up."""
        return np.nextafter(np.sqrt(self.squared), np.inf)


def budgets(
    count: int,
    participations: int,
    *,
    epsilon: Any = None,
    delta: Any = None,
    mu: Any = None,
) -> Budgets:
    """Divide every reference's budget by the rounds in which it may take part.

    Args:
        count: m.
        participations: K >= 1.
        epsilon: ε > 0, a number or (m,), beside ``delta`` in (0, 1).
        delta: δ.
        mu: instead of both, μ > 0 of a Gaussian shift, a number or (m,).

    Raises:
        ValueError: neither or both ways are given, or one is out of range.

    Source: dsi, Theorem 3.4; Dong, Roth and Su (2022), Corollary 3.3.
    """
    rounds = integer("participations", participations, minimum=1)
    if (mu is None) == (epsilon is None) or (epsilon is None) != (delta is None):
        raise ValueError(
            "epsilon, delta, mu: expected epsilon with delta, or mu alone, got "
            f"epsilon={epsilon!r}, delta={delta!r}, mu={mu!r}"
        )
    if mu is not None:
        distances = _each("mu", mu, count)
        for value in np.unique(distances).tolist():
            positive("mu", value)
        squared = distances**2 * (1 - 2 * EPS)
    else:
        squared = _squared(_each("epsilon", epsilon, count), _each("delta", delta, count))
    return Budgets(squared, squared / rounds * (1 - 4 * EPS), rounds)


def _squared(epsilons: Array, deltas: Array) -> Array:
    pairs, place = np.unique(np.stack([epsilons, deltas]), axis=1, return_inverse=True)
    return np.asarray(per_round_budgets(pairs[0], pairs[1], rounds=1)[0][place.ravel()])


def _each(name: str, values: Any, count: int) -> Array:
    found = np.atleast_1d(array(name, values, ndim=(0, 1)))
    if found.size not in (1, count):
        raise ValueError(f"{name}: expected a number or {count} of them, got {found.size}")
    return np.broadcast_to(found, (count,)).astype(np.float64)


class Account:
    """In how many rounds each reference took part, and a refusal before one too many.

    Args:
        names: of the m references.
        budgets: what they may spend.
        taken: (m,) rounds already counted.
    """

    def __init__(
        self, names: Sequence[str], budgets: Budgets, taken: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.names, self.budgets = names, budgets
        self._taken = np.zeros(len(names), dtype=np.int64) if taken is None else taken

    @property
    def taken(self) -> npt.NDArray[np.int64]:
        """Rounds in which each reference took part, (m,)."""
        return self._taken.copy()

    @property
    def spent(self) -> Array:
        """μ² that each reference spent, (m,), rounded up."""
        shares = self._taken / self.budgets.participations
        return np.asarray(shares * self.budgets.squared * (1 + 4 * EPS))

    def check(self, indices: npt.NDArray[np.intp]) -> Array:
        """Return the budgets of a round for the references that take part in it.

        Raises:
            ReferenceSpentError: one of them has nothing left.
        """
        spent = indices[self._taken[indices] >= self.budgets.participations]
        if spent.size:
            raise ReferenceSpentError(self.names[int(spent[0])], self.budgets.participations)
        return self.budgets.a_round[indices]

    def count(self, indices: npt.NDArray[np.intp]) -> None:
        """Count a round for the references that take part in it."""
        self._taken[indices] += 1
