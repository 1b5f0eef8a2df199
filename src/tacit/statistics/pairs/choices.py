"""Groups that are not searched for: at random, along a column, or named by the caller."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource, array, generator, integer
from tacit.statistics.pairs.pairing import Indices, Pairing


def at_random(rows: int, *, group_size: int = 2, rng: RandomSource = None) -> Pairing:
    """Return groups chosen uniformly, whatever the rows say.

    Args:
        rows: N, rows of the pool, at least ``group_size``.
        group_size: k, rows in a group, >= 2.
        rng: seed or generator; the operating system's when None.

    Returns:
        The ``Pairing``; N mod k rows, chosen at random, are in no group.

    Raises:
        ValueError: fewer rows than a group needs.

    Example:
        >>> pairing = at_random(7, rng=1)
        >>> len(pairing), pairing.left_out.size
        (3, 1)
    """
    size, count = checked_sizes(rows, group_size)
    order = generator(rng).permutation(rows)
    return Pairing(order[: count * size].reshape(count, size), rows, "at random")


def by_column(values: Any, *, group_size: int = 2, name: str | None = None) -> Pairing:
    """Return groups of rows that follow each other in a column, such as a household or a time.

    The rows are sorted (equal values stay in their order) and cut after every k-th, so that equal
    values share groups as far as their number allows.

    Args:
        values: (N,) numbers or texts.
        group_size: k, rows in a group, >= 2.
        name: what the column is called.

    Returns:
        The ``Pairing``; the last N mod k rows in that order are in no group.

    Raises:
        ValueError: fewer rows than a group needs, or not one value for each row.

    Example:
        >>> by_column(["b", "a", "b", "a"]).members.tolist()
        [[1, 3], [0, 2]]
    """
    column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"values: expected one for each row, got shape {column.shape}")
    if column.dtype.kind in "fc" and not np.isfinite(column).all():
        raise ValueError("values: expected finite numbers or texts, got NaN or infinite ones")
    size, count = checked_sizes(len(column), group_size)
    try:
        order = np.argsort(column, kind="stable")
    except TypeError:
        raise ValueError("values: expected entries that can be sorted, got mixed types") from None
    label = "a column" if name is None else f"column {name}"
    return Pairing(order[: count * size].reshape(count, size), len(column), f"along {label}")


def given(members: Any, *, rows: int) -> Pairing:
    """Return the groups that the caller names; they must not depend on what is drawn.

    Args:
        members: (P, k) rows of the pool, none twice.
        rows: N, rows of the pool.

    Returns:
        The ``Pairing``; rows that are not named are never drawn.

    Raises:
        ValueError: a row out of range or in two groups.

    Example:
        >>> given([[0, 3], [1, 2]], rows=5).left_out.tolist()
        [4]
    """
    named = array("members", members, ndim=2)
    if (named != np.rint(named)).any():
        raise ValueError("members: expected integers, got a fraction")
    return Pairing(named.astype(np.intp), integer("rows", rows, minimum=1), "as given")


def checked_sizes(rows: int, group_size: int) -> tuple[int, int]:
    """Return the size of a group and how many there are room for."""
    size = integer("group_size", group_size, minimum=2)
    count = integer("rows", rows, minimum=0) // size
    if count == 0:
        raise ValueError(f"rows: expected at least {size}, one group of them, got {rows}")
    return size, count


def without(rows: int, left_out: Indices) -> Indices:
    """Return 0 … ``rows`` − 1 without some of them."""
    kept = np.ones(rows, dtype=bool)
    kept[left_out] = False
    return np.flatnonzero(kept)
