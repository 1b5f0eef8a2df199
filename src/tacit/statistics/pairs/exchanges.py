"""The worst groups exchange rows with the groups of their members' neighbours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from tacit._ground.checks import Array
from tacit.statistics.pairs.pairing import Indices

NEIGHBOURS = 12
WORST_GROUPS = 400
MOST_ROUNDS = 4000
# An exchange has to shorten the longer of two groups by more than rounding could.
LEAST_GAIN = 1e-9


def exchange(
    members: Indices, features: Array, search: Array, report: Callable[[str, int, int], object]
) -> None:
    """Let the worst groups exchange rows until none gains; ``members``, (P, k), is changed.

    Args:
        members: the groups.
        features: (N, f) coordinates in which distances count.
        search: (N, s) coordinates in which neighbours are looked up.
        report: told how many rounds there were.
    """
    groups = _Groups(members, features, search)
    for number in range(MOST_ROUNDS):
        report(f"exchanging among the worst, round {number + 1}", members.size, members.size)
        if not groups.round():
            return


class _Groups:
    """Groups that are improved in place, worst first."""

    def __init__(self, members: Indices, features: Array, search: Array) -> None:
        self.members, self.features = members, features
        count, self.size = members.shape
        self.group_of = np.full(len(features), -1, dtype=np.intp)
        self.group_of[members] = np.arange(count)[:, None]
        inside = self.group_of >= 0
        self._rows = np.flatnonzero(inside)
        self._search = search
        self._tree = cKDTree(search[self._rows], balanced_tree=False, compact_nodes=False)
        self._reach = min(NEIGHBOURS + 1, self._rows.size)
        self._known: npt.NDArray[np.int32] = np.full(
            (len(features), self._reach), -1, dtype=np.int32
        )
        self.spans = self._spans(np.arange(count))

    def _spans(self, groups: Indices) -> Array:
        """Return the largest squared distance within each group."""
        rows = self.features[self.members[groups]]
        spans = np.zeros(len(groups))
        for first in range(self.size):
            for second in range(first + 1, self.size):
                gap = rows[:, first] - rows[:, second]
                np.maximum(spans, np.einsum("ij,ij->i", gap, gap), out=spans)
        return spans

    def round(self) -> int:
        """Let each of the worst groups exchange one row; return how many did."""
        some = min(WORST_GROUPS, len(self.members))
        worst = np.argpartition(-self.spans, some - 1)[:some]
        worst = worst[np.argsort(-self.spans[worst], kind="stable")]
        self._look_up(np.unique(self.members[worst]))
        return sum(self._improve(int(group)) for group in worst)

    def _look_up(self, rows: Indices) -> None:
        """Find the neighbours of rows that were not asked for before."""
        new = rows[self._known[rows, 0] < 0]
        if new.size:
            found = self._tree.query(self._search[new], k=self._reach)[1]
            self._known[new] = self._rows[found.reshape(new.size, self._reach)]

    def _improve(self, group: int) -> bool:
        """Make the exchange of one row of the group that leaves the shorter longest group."""
        own = self.members[group]
        span = self.spans[group]
        if span == 0.0:
            return False
        # Every row x of the group may go; it is exchanged with a neighbour c of the others.
        leaving, coming = [], []
        for place in range(self.size):
            near = self._known[np.delete(own, place)].ravel()
            coming.append(near)
            leaving.append(np.full(near.size, place))
        entering, places = np.concatenate(coming), np.concatenate(leaving)
        groups = self.group_of[entering]
        other = (groups != group) & (self.spans[groups] < span)
        entering, places, groups = entering[other], places[other], groups[other]
        if not entering.size:
            return False
        longest = np.maximum(
            self._with(own, places, entering),
            self._with_at(self.members[groups], entering, own[places]),
        )
        best = int(longest.argmin())
        if not longest[best] < span * (1.0 - LEAST_GAIN):
            return False
        taken, place, partner = int(entering[best]), int(places[best]), int(groups[best])
        given = int(own[place])
        self.members[partner, self.members[partner] == taken] = given
        self.members[group, place] = taken
        self.group_of[taken], self.group_of[given] = group, partner
        self.spans[[group, partner]] = self._spans(np.array([group, partner]))
        return True

    def _with(self, own: Indices, places: Indices, entering: Indices) -> Array:
        """Return the span of the group when the row at each place is another."""
        kept = np.stack([np.delete(own, place) for place in range(self.size)])[places]
        return self._span_of(kept, entering)

    def _with_at(self, groups: Indices, leaving: Indices, entering: Indices) -> Array:
        """Return the span of each group (c, k) when the row that leaves is another."""
        kept = groups[groups != leaving[:, None]].reshape(len(groups), self.size - 1)
        return self._span_of(kept, entering)

    def _span_of(self, kept: Indices, entering: Indices) -> Array:
        rows, new = self.features[kept], self.features[entering]
        gaps = rows - new[:, None]
        spans = np.einsum("ijk,ijk->ij", gaps, gaps).max(axis=1)
        for first in range(self.size - 1):
            for second in range(first + 1, self.size - 1):
                gap = rows[:, first] - rows[:, second]
                np.maximum(spans, np.einsum("ij,ij->i", gap, gap), out=spans)
        return np.asarray(spans)
