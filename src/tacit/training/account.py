"""The promise beside references, what it grants each of them a round, and what each has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array, positive
from tacit._ground.numbers import EPS
from tacit._ground.values import Count, value
from tacit.accounting import per_round_budgets
from tacit.training.references import References


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


@value
class Beside:
    """The model hardly differs from what each safe reference gives with the noise of this run.

    Args:
        references: What is safe; a workflow that names its own takes none.
        epsilon: ε of the whole run beside each reference, with delta; in Python also one for each,
            in their order, or by the name of a source where a workflow says so.
        delta: δ, with epsilon.
        mu: μ of a Gaussian shift instead of both, for all or one for each.
        participations: In how many rounds any one reference takes part at most; in all of them
            when left out.

    Example:
        >>> promise = Beside(references=References.leave_out(["Ada", "Bob"]), mu=1.0)
        >>> promise.budgets(4).a_round.round(9).tolist()
        [0.25, 0.25]
        >>> Beside(epsilon=1.0)
        Traceback (most recent call last):
        ValueError: epsilon, delta, mu: expected epsilon with delta, or mu alone, got epsilon=1.0, \
delta=None, mu=None

    Source: dsi, Definition 1.2.
    """

    references: References | None = None
    epsilon: Any = None
    delta: Any = None
    mu: Any = None
    participations: Count | None = None

    def _together(self) -> None:
        if self.references is not None and not isinstance(self.references, References):
            found = type(self.references).__name__
            raise ValueError(f"references: expected tacit.training.References, got {found}")
        if (self.mu is None) == (self.epsilon is None) or (self.epsilon is None) != (
            self.delta is None
        ):
            raise ValueError(
                "epsilon, delta, mu: expected epsilon with delta, or mu alone, got "
                f"epsilon={self.epsilon!r}, delta={self.delta!r}, mu={self.mu!r}"
            )

    @property
    def largest_delta(self) -> float | None:
        """The largest δ, at which ε is told; None where the budget is a μ."""
        return None if self.delta is None else float(np.max(np.asarray(self.delta, dtype=float)))

    def budgets(self, rounds: int) -> Budgets:
        """Divide every reference's budget by the rounds in which it may take part.

        Args:
            rounds: T, of the whole run.

        Raises:
            ValueError: no references, or a budget that is out of range.

        Source: dsi, Theorem 3.4; Dong, Roth and Su (2022), Corollary 3.3.
        """
        if self.references is None:
            raise ValueError("references: expected tacit.training.References, got None")
        count = len(self.references)
        times = rounds if self.participations is None else self.participations
        # μ is asked for, or (ε, δ) whose largest μ is worked out
        if self.mu is not None:
            distances = _each("mu", self.mu, count)
            # each value once: there may be thousands of references of one budget
            for number in np.unique(distances).tolist():
                positive("mu", number)
            # the square of what was asked for, rounded down
            squared = distances**2 * (1 - 2 * EPS)
        else:
            # (ε_i, δ_i) of every reference
            epsilons, deltas = (
                _each("epsilon", self.epsilon, count),
                _each("delta", self.delta, count),
            )
            # the largest μ² that is (ε, δ), once for each pair that occurs
            pairs, place = np.unique(np.stack([epsilons, deltas]), axis=1, return_inverse=True)
            squared = np.asarray(per_round_budgets(pairs[0], pairs[1], rounds=1)[0][place.ravel()])
        # g = μ²/K, so that K rounds compose to μ² at most
        return Budgets(squared, squared / times * (1 - 4 * EPS), times)


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


def _each(name: str, values: Any, count: int) -> Array:
    found = np.atleast_1d(array(name, values, ndim=(0, 1)))
    if found.size not in (1, count):
        raise ValueError(f"{name}: expected a number or {count} of them, got {found.size}")
    # one for all, or one for each
    return np.broadcast_to(found, (count,)).astype(np.float64)


class ParticipationAccount:
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
        # K' of K rounds cost K'/K of μ², for g is the same in all of them
        shares = self._taken / self.budgets.participations
        # rounded up
        return np.asarray(shares * self.budgets.squared * (1 + 4 * EPS))

    @property
    def left(self) -> Array:
        """μ² that each reference has left, (m,), rounded down."""
        # rounded down, never below nothing
        return np.maximum(self.budgets.squared - self.spent, 0.0)

    def check(self, indices: npt.NDArray[np.intp]) -> Array:
        """Return the budgets of a round for the references that take part in it.

        Raises:
            ReferenceSpentError: one of them has nothing left.
        """
        # whoever took part K times has nothing left, whatever rounding says
        spent = indices[self._taken[indices] >= self.budgets.participations]
        if spent.size:
            raise ReferenceSpentError(self.names[int(spent[0])], self.budgets.participations)
        return self.budgets.a_round[indices]

    def count(self, indices: npt.NDArray[np.intp]) -> None:
        """Count a round for the references that take part in it."""
        self._taken[indices] += 1
