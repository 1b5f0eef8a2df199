"""The declared secret of a release by pairs: groups of rows, of each of which one is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource, array, generator, integer
from tacit._ground.frozen import array_value
from tacit._ground.random import fair_choices

Indices: TypeAlias = npt.NDArray[np.intp]

SMALLEST_GROUP = 2


@array_value()
class Pairing:
    """P disjoint groups of k rows each; of every group one row is drawn, each as likely.

    It is made of the pool alone, before anything is drawn, and an attacker may know it.

    Attributes:
        members: (P, k) rows of the pool, none twice.
        pool_rows: N; the rows that are in no group are never drawn.
        method: how the groups were chosen, in a few words.

    Raises:
        ValueError: no group, a row outside 0 … N − 1, or one that is in two groups.
    """

    members: Indices
    pool_rows: int
    method: str

    def __post_init__(self) -> None:
        members = np.array(self.members)
        if members.ndim != 2 or members.shape[1] < SMALLEST_GROUP or not len(members):
            raise ValueError(
                f"members: expected (groups, {SMALLEST_GROUP} or more) rows, got shape "
                f"{members.shape}"
            )
        if members.dtype.kind not in "iu":
            raise ValueError(f"members: expected integers, got entries of type {members.dtype}")
        low, high = int(members.min()), int(members.max())
        if low < 0 or high >= self.pool_rows:
            raise ValueError(
                f"members: expected rows 0 to {self.pool_rows - 1}, got {low if low < 0 else high}"
            )
        counts = np.bincount(members.ravel(), minlength=self.pool_rows)
        if counts.max() > 1:
            raise ValueError(
                f"members: expected every row once, got row {int(counts.argmax())} "
                f"{int(counts.max())} times"
            )
        members = members.astype(np.intp)
        members.flags.writeable = False
        object.__setattr__(self, "members", members)

    def __len__(self) -> int:
        """Return P, the number of groups and of rows drawn."""
        return len(self.members)

    @property
    def group_size(self) -> int:
        """Rows in a group, k: every row in one is drawn with probability 1/k."""
        return int(self.members.shape[1])

    @property
    def left_out(self) -> Indices:
        """Rows in no group, ascending: fewer than k, and never drawn."""
        # what no group names
        inside = np.zeros(self.pool_rows, dtype=bool)
        inside[self.members] = True
        return np.flatnonzero(~inside)

    def differences(self, values: Array) -> Iterator[Array]:
        """Yield ``values[a] − values[b]``, (P, d), for every two places a, b in a group.

        Args:
            values: (N, d), one row for each of the pool.
        """
        for first in range(self.group_size):
            for second in range(first + 1, self.group_size):
                yield values[self.members[:, first]] - values[self.members[:, second]]

    def swaps(self, values: Array) -> Array:
        """Return all of ``differences`` below one another, (P k (k − 1)/2, d).

        Args:
            values: (N, d), one row for each of the pool.
        """
        return np.concatenate(list(self.differences(values)))

    def draw(self, rng: RandomSource = None) -> Indices:
        """Draw one row of every group, (P,), each as likely; from the operating system if None."""
        # k equally likely faces a group, exactly: no face is likelier by the bits it is made of
        places = fair_choices(len(self), self.group_size, rng)
        return self.members[np.arange(len(self)), places]


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
    size, count = check_sizes(rows, group_size)
    # a uniform permutation cut into pieces of k: every grouping is as likely
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
    size, count = check_sizes(len(column), group_size)
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


def check_sizes(rows: int, group_size: int) -> tuple[int, int]:
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


def choose_pairing(
    pairs: Any, rows: Array, columns: Sequence[str], size: int, source: np.random.Generator
) -> Pairing | None:
    """Return the groups that the caller asked for; None where they are to be found.

    Args:
        pairs: ``"nearest"`` (or None), ``"random"``, ``"column:NAME"``, a ``Pairing``, or rows as
            (P, k).
        rows: the pool.
        columns: names of its columns.
        size: k.
        source: of the random ones.

    Raises:
        ValueError: something else, or a pairing of another pool.
    """
    if pairs is None or (isinstance(pairs, str) and pairs == "nearest"):
        return None
    if isinstance(pairs, Pairing):
        if pairs.pool_rows != len(rows):
            raise ValueError(f"pairs: expected those of {len(rows)} rows, got {pairs.pool_rows}")
        return pairs
    if not isinstance(pairs, str):
        return given(pairs, rows=len(rows))
    if pairs == "random":
        return at_random(len(rows), group_size=size, rng=source)
    kind, _, name = pairs.partition(":")
    if kind == "column" and name in columns:
        return by_column(rows[:, list(columns).index(name)], group_size=size, name=name)
    raise ValueError(
        "pairs: expected 'nearest', 'random', 'column:NAME' of a column of the table, a Pairing "
        f"or (pairs, {size}) rows, got {pairs!r}"
    )
