"""Caps on the rows of a person and on the groups they are in: which stay depends on no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit.statistics.tables.table import Category

Places = npt.NDArray[np.intp]
Kept = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Caps:
    """How many rows of a person are read at most, and in how many groups.

    A person's groups, and then their rows, are numbered in the order of what they hold; the first
    by a digest of whose they are and of that number stay. So the choice looks random, is the same
    wherever the rows are in which a person is called the same, and depends on no other person:
    without one of them every other person's rows are what they were.

    Attributes:
        rows: of a person, at most; None for all.
        groups: that a person is in, at most; None for all.
    """

    rows: int | None
    groups: int | None

    def words(self, unit: str) -> str:
        """Say what is read of a person."""
        rows, groups = (
            f"{most or 0:,} {one}{'s' * (most != 1)}"
            for most, one in ((self.rows, "row"), (self.groups, "group"))
        )
        read = "rows" if self.rows is None else rows
        read += "" if self.groups is None else f" in {groups}"
        return (
            f"no more of one {unit} is read than {read}: which stay depends on the rows of that "
            f"{unit} alone"
        )

    def kept(
        self, persons: Places, names: Sequence[str], numbers: Sequence[Array], keys: Sequence[Array]
    ) -> Kept:
        """Return which rows stay, (n,).

        Args:
            persons: (n,) place of the person of every row.
            names: of the persons, by place.
            numbers: (n,) of each column that is computed of.
            keys: (n,) of each that is grouped by, in the order of its words; NaN for no group.
        """
        stays = np.ones(len(persons), dtype=bool)
        if self.groups is not None:
            inside = np.flatnonzero(~np.isnan(np.array(keys)).any(axis=0))
            own = [one[inside] for one in keys]
            ranks = _numbered(persons[inside], own, alike=True)
            stays[inside] = _first(persons[inside], names, ranks, self.groups)
        if self.rows is not None:
            left = np.flatnonzero(stays)
            columns = [*(one[left] for one in numbers), *(one[left] for one in keys)]
            ranks = _numbered(persons[left], columns, alike=False)
            stays[left] = _first(persons[left], names, ranks, self.rows)
        return stays


def _numbered(persons: Places, columns: Sequence[Array], *, alike: bool) -> Places:
    """Return numbers 1, 2, … of the rows of each person in the order of columns, (n,).

    Nothing comes last; rows that are ``alike`` have one number.
    """
    if not len(persons):
        return np.zeros(0, dtype=np.intp)
    levels = [np.nan_to_num(one, nan=np.inf) for one in columns]
    # the last is sorted by first
    order = np.lexsort((*levels[::-1], persons))
    new = np.diff(persons[order], prepend=-1) != 0
    steps = np.ones(len(order), dtype=np.intp)
    if alike:
        changed = new.copy()
        for one in levels:
            changed[1:] |= one[order][1:] != one[order][:-1]
        steps = changed.astype(np.intp)
    total = np.cumsum(steps)
    starts = np.maximum.accumulate(np.where(new, total - steps, 0))
    found = np.empty(len(order), dtype=np.intp)
    found[order] = total - starts
    return found


def _first(
    persons: Places, names: Sequence[str], ranks: Places, most: int
) -> npt.NDArray[np.bool_]:
    """Return which rows have one of the first numbers of their person, by the digests of these."""
    # one number for a person and a rank
    width = int(ranks.max(initial=0)) + 1
    pairs, places = np.unique(persons * width + ranks, return_inverse=True)
    who, number = np.divmod(pairs, width)
    digests = np.array(
        [
            # it hides nothing, and is there where MD5 is barred from what does
            md5(f"{names[one]} {rank}".encode(), usedforsecurity=False).hexdigest()
            for one, rank in zip(who.tolist(), number.tolist(), strict=True)
        ],
        dtype="S32",
    )
    order = np.lexsort((number, digests, who))
    own = np.empty(len(order), dtype=np.intp)
    own[order] = _numbered(who[order], [np.arange(len(order), dtype=float)], alike=False)
    return np.asarray(own[places.reshape(-1)] <= most)


def caps_of(promise: Any, *, grouped: bool) -> Caps | None:
    """Return the caps that a promise asks for; None for none.

    Raises:
        ValueError: of groups, where a query has none.
    """
    rows, groups = getattr(promise, "max_rows", None), getattr(promise, "max_groups", None)
    if groups is not None and not grouped:
        raise ValueError(
            "max_groups: expected a query by groups, outside a session, got another query"
        )
    return None if rows is None and groups is None else Caps(rows, groups)


def in_order(values: Array, levels: tuple[float, ...] | None, kind: Category | None) -> Array:
    """Return a column as its rows are put in order: words by their bytes; NaN where no level."""
    found = values if levels is None else np.where(np.isin(values, levels), values, np.nan)
    if kind is None or not len(kind.levels):
        return found
    coded = [one.encode() for one in kind.levels]
    ranks = np.empty(len(coded))
    ranks[sorted(range(len(coded)), key=coded.__getitem__)] = np.arange(len(coded))
    # what is no code is NaN already
    places = np.nan_to_num(found).astype(np.intp)
    return np.where(np.isnan(found), np.nan, ranks[places])
