"""The worst groups exchange rows with the groups of their members' neighbours."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from tacit._ground.checks import Array
from tacit.statistics.pairs.pairing import Indices

NEIGHBOURS = 12
WORST_GROUPS = 400
MOST_ROUNDS = 4000
ENTRIES_PER_CHUNK = 2_000_000
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
        worst = worst[self.spans[worst] > 0.0]
        self._look_up(np.unique(self.members[worst]))
        each = self.size * self.size * (self.size - 1) * self._reach * self.features.shape[1]
        step = max(1, ENTRIES_PER_CHUNK // each)
        touched: set[int] = set()
        for start in range(0, len(worst), step):
            groups = worst[start : start + step]
            for group, exchange in zip(groups.tolist(), self._best(groups), strict=True):
                # what was found for a group that has changed since is for the next round
                if exchange is not None and touched.isdisjoint((group, exchange[2])):
                    self._make(group, *exchange)
                    touched |= {group, exchange[2]}
        return len(touched) // 2

    def _look_up(self, rows: Indices) -> None:
        """Find the neighbours of rows that were not asked for before."""
        new = rows[self._known[rows, 0] < 0]
        if new.size:
            found = self._tree.query(self._search[new], k=self._reach)[1]
            self._known[new] = self._rows[found.reshape(new.size, self._reach)]

    def _best(self, groups: Indices) -> list[tuple[int, int, int] | None]:
        """Return for each group the exchange of one row that leaves the shorter longest group.

        Every row x of a group may go; it is exchanged with a neighbour c of the others. Returned
        are the place of x, c, and the group that c comes from; None where nothing gains.
        """
        own, spans = self.members[groups], self.spans[groups]
        kept = np.stack([np.delete(own, place, axis=1) for place in range(self.size)], axis=1)
        entering = self._known[kept].reshape(len(groups), self.size, -1).astype(np.intp)
        partners = self.group_of[entering]
        allowed = (partners != groups[:, None, None]) & (
            self.spans[partners] < spans[:, None, None]
        )
        kept = kept[:, :, None]
        nobody = np.zeros(kept.shape, dtype=bool)
        here = self._span_with(kept, entering, nobody)
        others = self.members[partners]
        leaving = np.broadcast_to(own[:, :, None], entering.shape)
        there = self._span_with(others, leaving, others == entering[..., None])
        longest = np.where(allowed, np.maximum(here, there), np.inf).reshape(len(groups), -1)
        best = longest.argmin(axis=1)
        index = np.arange(len(groups))
        gains = longest[index, best] < spans * (1.0 - LEAST_GAIN)
        places, columns = np.divmod(best, entering.shape[2])
        taken, given = entering[index, places, columns], partners[index, places, columns]
        return [(int(places[i]), int(taken[i]), int(given[i])) if gains[i] else None for i in index]

    def _make(self, group: int, place: int, taken: int, partner: int) -> None:
        given = int(self.members[group, place])
        self.members[partner, self.members[partner] == taken] = given
        self.members[group, place] = taken
        self.group_of[taken], self.group_of[given] = group, partner
        self.spans[[group, partner]] = self._spans(np.array([group, partner]))

    def _span_with(self, rows: Indices, new: Indices, without: npt.NDArray[np.bool_]) -> Array:
        """Return the span (…) of groups of rows (…, j), but those without, and one that is new."""
        members = self.features[rows]
        gaps = members - self.features[new][..., None, :]
        squared = np.einsum("...jk,...jk->...j", gaps, gaps)
        spans: Array = np.where(without, 0.0, squared).max(axis=-1)
        for first, second in combinations(range(rows.shape[-1]), 2):
            gap = members[..., first, :] - members[..., second, :]
            apart = np.einsum("...k,...k->...", gap, gap)
            absent = without[..., first] | without[..., second]
            spans = np.maximum(spans, np.where(absent, 0.0, apart))
        return spans
