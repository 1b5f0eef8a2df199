"""Which runs a round of local steps needs: sub-groups, and in each what references keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import integer

Booleans = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class SubGroup:
    """A part of the batch, and the runs on it besides that on all of it.

    Attributes:
        examples: (n,) their indices in the batch.
        kept: (k, n) what is kept in each run, no two rows the same and none of them all.
        run: (m,) the row of ``kept`` for each reference, −1 where it keeps all.
    """

    examples: Indices
    kept: Booleans
    run: Indices


def sub_groups(membership: Booleans, groups: int) -> list[SubGroup]:
    """Split a batch into parts of nearly equal size, in its order, and list their runs.

    Args:
        membership: (m, B) which examples each reference keeps.
        groups: L, from 1 to B.

    Source: dsi, Eq. 36-37.
    """
    found = []
    for examples in np.array_split(np.arange(membership.shape[1]), groups):
        kept = membership[:, examples]
        differs = ~kept.all(axis=1)
        run = np.full(len(membership), -1, dtype=np.intp)
        rows, places = np.unique(kept[differs], axis=0, return_inverse=True)
        run[differs] = places.reshape(-1)
        found.append(SubGroup(examples=examples, kept=rows, run=run))
    return found


def checked_membership(membership: Any, size: int) -> Booleans:
    """Return which examples each reference keeps, (m, B) truth values."""
    plain = membership.detach().cpu().numpy() if hasattr(membership, "detach") else membership
    rows = np.asarray(plain)
    if rows.ndim != 2 or rows.shape[1] != size or len(rows) == 0:
        raise ValueError(
            f"membership: expected shape (references, {size}), at least one, got {rows.shape}"
        )
    if rows.dtype != np.bool_:
        raise ValueError(f"membership: expected True or False, got entries of type {rows.dtype}")
    return rows


def checked_groups(groups: Any, size: int) -> int:
    """Return the number of sub-groups, none of them empty."""
    count = integer("groups", groups, minimum=1)
    if count > size:
        raise ValueError(f"groups: expected at most one for each of {size} examples, got {count}")
    return count
