"""The safe references of a training run, and what tells them from the real input in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, integer
from tacit._ground.reprs import shown
from tacit.guarantees.base import texts

Kind: TypeAlias = Literal["leave-out", "subsets"]
# Membership of an example that no reference leaves out.
NOBODY = -1


@dataclass(frozen=True, eq=False)
class BatchReferences:
    """The references that differ from the real input in one batch.

    Attributes:
        indices: (k,) which references they are.
        changes: (k, B) by how much reference r changes the weight of example j: −1 where it leaves
            out what was learned from, +1 where it adds what was left out by its coin.
        inside: (B,) whether the real input has the example.
    """

    indices: npt.NDArray[np.intp]
    changes: Array
    inside: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class References:
    """Safe inputs R_1 … R_m beside the real one U, each of them named.

    Made by `leave_out` or `subsets`.

    Args:
        names: m distinct names.
        kind: ``"leave-out"`` or ``"subsets"``.

    Example:
        >>> References.leave_out(["Ada", "Bob"]).names
        ('without Ada', 'without Bob')

    Source: dsi, Definition 1.2.
    """

    names: tuple[str, ...]
    kind: Kind

    def __len__(self) -> int:
        """Return m."""
        return len(self.names)

    def __repr__(self) -> str:
        """Return the kind and how many there are."""
        return f"References({self.kind}, {len(self)})"

    @staticmethod
    def leave_out(groups: int | Sequence[str]) -> References:
        """Return R_i = U without group i: an example, a person, an artist, a source.

        Args:
            groups: names of the groups, or how many, then called ``"example 0"`` and so on.

        Raises:
            ValueError: there are none, or a name is there twice.
        """
        if isinstance(groups, (int, np.integer)):
            named = [f"example {i}" for i in range(integer("groups", groups, minimum=1))]
        else:
            named = list(texts("groups", groups))
        return References(_distinct("groups", [f"without {name}" for name in named]), "leave-out")

    @staticmethod
    def subsets(names: Sequence[str]) -> References:
        """Return R_1 … R_m, arbitrary subsets of U, by their names.

        Args:
            names: m distinct names.

        Raises:
            ValueError: there are none, or a name is there twice.
        """
        return References(_distinct("names", list(texts("names", names))), "subsets")

    def part(self, membership: Any, size: int, inside: Any = None) -> BatchReferences:
        """Return which references differ from the real input in a batch, and how.

        Args:
            membership: for groups (B,) the index of each example's group, −1 for none; for subsets
                (m, B), True where the reference has the example.
            size: B.
            inside: (B,) False for an example that its coin left out: nothing is learned from it,
                and its reference is U with it. All of U when left out.

        Raises:
            ValueError: a shape does not fit, a group is unknown or half inside.
        """
        # what the real input has of the batch
        present = np.ones(size, dtype=bool) if inside is None else _table("inside", inside, (size,))
        if self.kind == "subsets":
            if not present.all():
                raise ValueError("inside: expected all of the batch beside subsets, got less")
            # (m, B)
            kept = _table("membership", membership, (len(self), size))
            # leaving an example out takes its weight away
            changes = np.where(kept, 0.0, -1.0)
            indices = np.flatnonzero(changes.any(axis=1))
            return BatchReferences(indices, changes[indices], present)
        # (B,) whose each example is
        groups = self._groups(membership, size)
        # the references that this batch has something of
        found = np.unique(groups[groups != NOBODY])
        # (k, B)
        theirs = groups == found[:, None]
        # U with a group half in is no candidate of the certificate
        mixed = (theirs & present).any(axis=1) & (theirs & ~present).any(axis=1)
        if mixed.any():
            name = self.names[int(found[mixed][0])]
            raise ValueError(f"inside: expected all or nothing of each group, got both of {name!r}")
        # what is left out of U must be put back by some reference
        loose = ~present & (groups == NOBODY)
        if loose.any():
            raise ValueError(
                f"inside: expected a group for what is left out, got none at {int(loose.argmax())}"
            )
        # −g_j where U has it and the reference not, +g_j the other way round
        changes = np.where(theirs, np.where(present, -1.0, 1.0), 0.0)
        return BatchReferences(found.astype(np.intp), changes, present)

    def _groups(self, membership: Any, size: int) -> npt.NDArray[np.int64]:
        groups = _as_array(membership)
        if groups.dtype == bool or not np.issubdtype(groups.dtype, np.integer):
            raise ValueError(f"membership: expected integers, one group each, got {groups.dtype}")
        if groups.shape != (size,):
            raise ValueError(f"membership: expected shape ({size},), got {groups.shape}")
        low, high = (int(groups.min()), int(groups.max())) if size else (0, 0)
        if low < NOBODY or high >= len(self):
            raise ValueError(
                f"membership: expected −1 … {len(self) - 1}, got {low if low < NOBODY else high}"
            )
        return groups.astype(np.int64)


def _table(name: str, values: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    table = _as_array(values)
    if table.dtype != bool or table.shape != shape:
        raise ValueError(f"{name}: expected booleans {shape}, got {table.dtype} {table.shape}")
    return table


def _as_array(values: Any) -> npt.NDArray[Any]:
    """Return what is no array yet, a range or a tensor say, as one; object where it is none."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    elif isinstance(values, Iterable) and not isinstance(values, (np.ndarray, list, tuple)):
        values = list(values)
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        return np.asarray(None)


def _distinct(name: str, names: list[str]) -> tuple[str, ...]:
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{name}: expected distinct names, got {shown(names)}")
    return tuple(names)
