"""A worst-case problem as it is asked: differences, budgets and cost, checked and in one unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit._ground.checks import Array, array, check_psd, symmetric, vector
from tacit.covariance import Isotropic
from tacit.covariance.span import row_norms
from tacit.design.base import Design
from tacit.design.listed.references import Cost

# Variances of noise for lengths beyond these, in units of their budgets, are no doubles any more.
LONGEST, SHORTEST = 1e152, 1e-152


@dataclass(frozen=True, eq=False)
class Problem:
    """Differences z_i with budgets g_i under a cost F.

    Attributes:
        rows: (m, d) differences as they came, or None when only their Gram matrix is known.
        given_gram: (m, m) z_iᵀ F z_j, or None.
        cost: F, None when ``rows`` is.
        limits: (m,) budgets g > 0.
    """

    rows: Array | None
    given_gram: Array | None
    cost: Cost | None
    limits: Array

    @property
    def count(self) -> int:
        """Number m of differences."""
        return int(self.limits.size)

    @cached_property
    def roots(self) -> Array:
        """Roots √g_i of the budgets."""
        roots: Array = np.sqrt(self.limits)
        return roots

    @cached_property
    def unit(self) -> float:
        """Power of two near the longest entry of z_i/√g_i."""
        if self.rows is not None:
            return common_unit(np.abs(self.rows).max(axis=1), self.roots)
        assert self.given_gram is not None
        return common_unit(np.sqrt(np.diagonal(self.given_gram)), self.roots)

    @cached_property
    def scaled(self) -> Array | None:
        """Rows z_i/√g_i in the unit, or None."""
        if self.rows is None:
            return None
        unit = self.unit
        return self.rows / self.roots[:, None] / unit

    @cached_property
    def moving(self) -> Any:
        """Which differences are not zero, (m,) of bool."""
        if self.rows is not None:
            return self.rows.any(axis=1)
        assert self.given_gram is not None
        return np.diagonal(self.given_gram) > 0

    def gram_matrix(self) -> Array:
        """Return the Gram matrix of z_i/√g_i in the unit, (m, m)."""
        return self._gram

    @cached_property
    def _gram(self) -> Array:
        if self.given_gram is not None:
            scales = self.roots * self.unit
            return self.given_gram / scales[:, None] / scales
        assert self.scaled is not None
        assert self.cost is not None
        return self.cost.gram(self.scaled)

    def cost_lengths(self) -> Array:
        """Return the cost norms of z_i/√g_i in the unit, (m,)."""
        if self.scaled is None or self.cost is None:
            lengths: Array = np.sqrt(np.diagonal(self._gram))
            return lengths
        return row_norms(self.cost.weigh(self.scaled))

    def cost_floor(self) -> Array:
        """Return the squared cost norm up to which a row is free: rounding of its own length."""
        if self.scaled is None or self.cost is None:
            return np.zeros(self.count)
        return self.cost.rounding(self.scaled)

    def nothing_to_hide(self) -> Design:
        """Return the design for differences that are all zero."""
        dim = self.count if self.rows is None else self.rows.shape[1]
        return Design(
            Isotropic(0.0, dim),
            0.0,
            0.0,
            "worst-case",
            np.zeros(self.count),
            0,
            constraint_factor=np.zeros((self.count, dim)),
        )


def read_problem(differences: Any, budgets: Any, cost: Any, gram: Any) -> Problem:
    """Return the problem that the arguments of ``worst_case`` state, checked."""
    if differences is None and gram is None:
        raise ValueError("differences: expected an (m, d) array, got None without a gram")
    rows = None if differences is None else checked_differences(differences)
    given = None if gram is None else _checked_gram(gram, None if rows is None else rows.shape[0])
    if rows is None and cost is not None:
        raise ValueError("cost: expected None when only gram is given, since gram contains it")
    metric = None if rows is None else Cost(cost, rows.shape[1])
    count = rows.shape[0] if rows is not None else given.shape[0] if given is not None else 0
    limits = checked_budgets(budgets, count)
    return Problem(rows, given, metric, limits)


def common_unit(lengths: Array, roots: Array) -> float:
    """Return a power of two near the longest z_i/√g_i, refusing what no double can hold.

    Raises:
        ValueError: noise for some difference would overflow or vanish.
    """
    with np.errstate(over="ignore", under="ignore"):
        relative = lengths / roots
    bad = (relative > LONGEST) | ((relative < SHORTEST) & (lengths > 0.0))
    if bad.any():
        where = int(np.argmax(bad))
        raise ValueError(
            f"differences: expected lengths between {SHORTEST:g} and {LONGEST:g} over the root of "
            f"their budgets, got {float(relative[where]):.3g} at row {where}"
        )
    return power_of_two(float(relative.max(initial=0.0)))


def finite_cost(cost: float) -> float:
    """Return what noise costs, refusing what no double can hold."""
    if not math.isfinite(cost):
        raise ValueError("cost: expected noise whose cost is a double, got more than 1.8e308")
    return cost


def power_of_two(length: float) -> float:
    """Return the power of two next above a length, 1 for none."""
    return float(np.ldexp(1.0, int(np.frexp(length)[1]))) if length > 0.0 else 1.0


def checked_budgets(budgets: Any, count: int) -> Array:
    """Return one budget > 0 a difference."""
    limits = array("budgets", budgets, ndim=(0, 1))
    if limits.ndim == 0:
        limits = np.full(count, float(limits))
    limits = vector("budgets", limits, size=count)
    if (limits <= 0).any():
        where = int(np.argmin(limits))
        raise ValueError(f"budgets: expected numbers > 0, got {float(limits[where])!r} at {where}")
    return limits


def checked_differences(differences: Any) -> Array:
    """Return differences as a finite (m, d) matrix; a vector is one difference."""
    given = array("differences", differences, ndim=(1, 2))
    return given[None, :] if given.ndim == 1 else given


def _checked_gram(gram: Any, rows: int | None) -> Array:
    """Return a Gram matrix given by the caller, checked symmetric PSD."""
    result = symmetric("gram", gram, size=rows)
    if (np.diagonal(result) < 0).any():
        raise ValueError("gram: expected a non-negative diagonal, got a negative entry")
    check_psd("gram", np.linalg.eigvalsh(result))
    return result
