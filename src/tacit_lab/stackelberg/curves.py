"""How noise changes with the budget: Priv_β, Util_β, anisotropy and directional selectivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, check_psd, integer, matrix, symmetric, vector
from tacit._ground.frozen import array_value
from tacit.covariance import Covariance, Dense
from tacit.linalg import default_tolerance, row_space

FEWEST_BUDGETS = 2


@array_value(kw_only=True)
class BudgetCurves:
    """What each nat of budget buys, one entry per budget.

    Attributes:
        mi_budgets: (n,) β in nats, increasing.
        information: (n,) nats that leak at β, as given.
        cost: (n,) V(β) = tr(F Cov B).
        priv: (n,) ``d I/dβ``: 1 where every nat of budget becomes a nat of leakage.
        util: (n,) ``−dV/dβ``: how much noise a nat of budget saves.
        anisotropy: (n,) largest over smallest eigenvalue of Cov B; inf where a direction is bare.
        task_share: (n,) share of the noise inside the task subspace; None without one.
    """

    mi_budgets: Array
    information: Array
    cost: Array
    priv: Array
    util: Array
    anisotropy: Array
    task_share: Array | None


def budget_curves(
    noises: Sequence[Any],
    mi_budgets: ArrayLike,
    information: ArrayLike,
    *,
    cost: ArrayLike | None = None,
    task: ArrayLike | None = None,
) -> BudgetCurves:
    """Return the curves of a family of noises, one per budget.

    ``Priv_β = dI/dβ`` and ``Util_β = −dV/dβ`` by differences: central inside, one-sided at the
    ends.

    Args:
        noises: one per budget: a design, a Stackelberg noise or estimate, a ``Covariance``, or a
            (d, d) matrix.
        mi_budgets: (n,), n >= 2, increasing, nats.
        information: (n,) nats that leak, such as upper bounds of ``tacit.information.mixture``, or
            estimates: the curve is worth as much as they are.
        cost: F of the noise: None (squared error), a scalar, a diagonal (d,) or (d, d).
        task: (d, k), whose columns span the directions that matter to the task; None for none.

    Returns:
        The ``BudgetCurves``.

    Raises:
        ValueError: a bad argument, or lengths that differ.

    Example:
        >>> curves = budget_curves([4.0 * np.eye(2), 2.0 * np.eye(2)], [0.5, 1.0], [0.4, 0.8])
        >>> curves.priv.tolist(), curves.util.tolist()
        ([0.8, 0.8], [8.0, 8.0])

    Source: residual-pac, Sec. 5.3 and Thm 5, Prop. 6 and Prop. 7.
    """
    levels = vector("mi_budgets", mi_budgets)
    if levels.size < FEWEST_BUDGETS or (np.diff(levels) <= 0).any():
        raise ValueError(f"mi_budgets: expected {FEWEST_BUDGETS} or more, increasing, got {levels}")
    nats = vector("information", information, size=levels.size)
    if not isinstance(noises, Sequence) or len(noises) != levels.size:
        raise ValueError(f"noises: expected a sequence of {levels.size}, one per budget")
    covariances = [covariance_of(noise) for noise in noises]
    costs = np.array([Dense(dense).weighted_trace(cost) for dense in covariances])
    shares = None
    if task is not None:
        shares = np.array([task_share(dense, task) for dense in covariances])
    return BudgetCurves(
        mi_budgets=levels,
        information=nats,
        cost=costs,
        priv=np.gradient(nats, levels),
        util=-np.gradient(costs, levels),
        anisotropy=np.array([anisotropy(dense) for dense in covariances]),
        task_share=shares,
    )


def anisotropy(noise: Any) -> float:
    """Return ``r_max/r_min``, the condition of the noise covariance; inf where it is singular.

    Args:
        noise: as in ``budget_curves``.

    Returns:
        A number >= 1.

    Raises:
        ValueError: not a noise, or no noise at all.

    Example:
        >>> anisotropy(np.diag([4.0, 1.0]))
        4.0

    Source: residual-pac, Prop. 6.
    """
    eigenvalues = np.linalg.eigvalsh(covariance_of(noise))
    if eigenvalues[-1] <= 0.0:
        raise ValueError("noise: expected some noise, got a covariance of zero")
    if eigenvalues[0] <= default_tolerance(eigenvalues.size) * eigenvalues[-1]:
        return math.inf
    return float(eigenvalues[-1] / eigenvalues[0])


def task_share(noise: Any, task: ArrayLike) -> float:
    """Return ``tr(Π Σ)/tr Σ``, the share of the noise in the task subspace.

    Isotropic noise has the share k/d for a k-dimensional subspace; less means that the noise
    spares the task.

    Args:
        noise: as in ``budget_curves``.
        task: (d, k), whose columns span the subspace.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: a bad argument, or no noise at all.

    Example:
        >>> task_share(np.diag([1.0, 3.0]), [[1.0], [0.0]])
        0.25

    Source: residual-pac, Sec. 5.2 and Prop. 7.
    """
    dense = covariance_of(noise)
    columns = matrix("task", task)
    if len(columns) != len(dense):
        raise ValueError(f"task: expected {len(dense)} rows, got shape {columns.shape}")
    total = float(np.trace(dense))
    if total <= 0.0:
        raise ValueError("noise: expected some noise, got a covariance of zero")
    if not columns.any():
        return 0.0
    basis = row_space(columns.T).basis
    inside = float(np.trace(basis @ dense @ basis.T))
    return min(max(inside / total, 0.0), 1.0)


def label_subspace(classes: int) -> Array:
    """Return a basis of ``S_lab = span{e_l − e_j}``, the directions that can change a label.

    Args:
        classes: C >= 2, number of logits.

    Returns:
        (C, C − 1), columns e_l − e_0.

    Raises:
        ValueError: ``classes`` is not an integer >= 2.

    Example:
        >>> label_subspace(3).tolist()
        [[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]]

    Source: residual-pac, Sec. 5.2.
    """
    count = integer("classes", classes, minimum=2)
    return np.vstack([-np.ones(count - 1), np.eye(count - 1)])


def covariance_of(noise: Any) -> Array:
    """Return the covariance (d, d) of a design, a noise, an estimate, a covariance or a matrix.

    Raises:
        ValueError: it is none of these, or not PSD.
    """
    held = noise if hasattr(noise, "covariance") else getattr(noise, "noise", noise)
    found = getattr(held, "covariance", held)
    if isinstance(found, Covariance):
        return found.to_dense()
    dense = symmetric("noise", found)
    check_psd("noise", np.linalg.eigvalsh(dense))
    return dense
