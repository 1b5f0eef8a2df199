"""Groups of rows that are alike: the swaps that noise has to cover are then short.

Median splits give first groups; then the worst of them exchange rows with the groups of their
members' neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from tacit._ground.checks import Array, matrix
from tacit._ground.threads import one_thread
from tacit.compute import progress_reports
from tacit.statistics.pairs.pairing import Indices, Pairing, check_sizes, without

# Distance of two categories in standard deviations of a number: each is off by 1/√2.
CATEGORY_WEIGHT = 2.0**-0.5
MOST_CATEGORIES = 1000
LEAF_ROWS = 512
ROWS_TOGETHER = 2**15
NEIGHBOURS = 12
# Neighbours in more coordinates are looked for among all rows, so many of them in a bundle.
TREE_COLUMNS, BUNDLE = 8, 16
# Squares of larger numbers, and their sums, are no doubles.
HUGE = 1e150
WORST_GROUPS = 400
MOST_ROUNDS = 4000
# A round takes about a millisecond: so many of them are told together.
ROUNDS_TOLD = 8
ENTRIES_PER_CHUNK = 2_000_000
# An exchange has to shorten the longer of two groups by more than rounding could.
LEAST_GAIN = 1e-9


def nearest(
    rows: Any,
    *,
    group_size: int = 2,
    categories: Sequence[int] = (),
    scaled: bool = True,
    search: Any = None,
    progress: bool | None = None,
) -> Pairing:
    """Return groups of rows that are alike, the worst of them improved until none gains.

    Median splits leave leaves of about 512 rows; in each, the row farthest from all others takes
    its nearest free partner first. Then, round by round, each of the 400 worst groups exchanges a
    row with the group of a neighbour of its members, where that shortens the longer of the two.

    Args:
        rows: (N, p) numbers.
        group_size: k, rows in a group, >= 2.
        categories: columns whose numbers are codes of categories: two different ones are as far
            apart as one standard deviation of a number.
        scaled: divide each number by its standard deviation; False takes distances as they are.
        search: (N, s) coordinates in which neighbours are looked up, where the rows have many
            more columns than directions; the rows themselves when None.
        progress: whether to show a bar; None and True do.

    Returns:
        The ``Pairing``; the N mod k rows farthest from the middle are in no group.

    Raises:
        ValueError: fewer rows than a group needs, entries that are not finite, or a column with
            more than 1,000 categories.

    Example:
        >>> pairing = nearest([[0.0], [5.0], [0.1], [5.2]])
        >>> sorted(sorted(pair) for pair in pairing.members.tolist())
        [[0, 2], [1, 3]]
    """
    values = matrix("rows", rows)
    size, count = check_sizes(len(values), group_size)
    features = _features(values, categories) if scaled else _squarable(values)
    looked_up = features if search is None else _squarable(matrix("search", search))
    if len(looked_up) != len(values):
        raise ValueError(f"search: expected {len(values)} rows, got {len(looked_up)}")
    kept = without(len(values), _farthest(features, len(values) - count * size))
    with one_thread(), progress_reports("pairing", shown=progress is not False) as report:
        members = first_groups(features, kept, size, report)
        exchange(members, features, looked_up, report)
    return Pairing(members, len(values), "nearest")


def _squarable(numbers: Array) -> Array:
    """Return numbers, over a power of two where their squares would overflow: the order stays."""
    largest = float(np.abs(numbers).max(initial=0.0))
    # exact but for what is then lost beside the largest: an infinite distance orders nothing
    return numbers if largest < HUGE else np.ldexp(numbers, -math.frexp(largest)[1])


def _features(values: Array, categories: Sequence[int]) -> Array:
    """Return numbers in units of their standard deviation, and a column for each category."""
    chosen = sorted({int(column) for column in categories})
    if chosen and not 0 <= chosen[0] <= chosen[-1] < values.shape[1]:
        raise ValueError(
            f"categories: expected columns 0 to {values.shape[1] - 1}, got {list(categories)}"
        )
    numbers = _squarable(np.delete(values, chosen, axis=1))
    # numbers in units of their deviations about the median, so that no unit outweighs another
    middle = np.median(numbers, axis=0)
    spread = _spreads(numbers)
    parts = [(numbers - middle) / spread]
    for column in chosen:
        codes, places = np.unique(values[:, column], return_inverse=True)
        if codes.size > MOST_CATEGORIES:
            raise ValueError(
                f"categories: expected at most {MOST_CATEGORIES} in a column, got {codes.size} "
                f"in column {column}"
            )
        # one column a category: two different ones are √2 · 2^−½ = 1 apart
        shown = np.zeros((len(values), codes.size))
        shown[np.arange(len(values)), places] = CATEGORY_WEIGHT
        parts.append(shown)
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _spreads(numbers: Array) -> Array:
    """Return standard deviations, 1 where there is none; huge numbers do not overflow."""
    largest = np.abs(numbers).max(axis=0, initial=0.0)
    # divided by the largest first, so that squares of 1e200 stay finite
    unit = np.where(largest > 0.0, largest, 1.0)
    spreads = unit * (numbers / unit).std(axis=0)
    return np.where(spreads > 0.0, spreads, 1.0)


def _farthest(features: Array, count: int) -> Indices:
    """Return the rows farthest from the middle: left out, they make no pair worse."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    gaps = features - np.median(features, axis=0)
    lengths = np.einsum("ij,ij->i", gaps, gaps)
    return np.argsort(-lengths, kind="stable")[:count]


def first_groups(
    features: Array, rows: Indices, group_size: int, report: Callable[[str, int, int], object]
) -> Indices:
    """Return (P, k) groups of the rows, whose number is a multiple of k.

    Args:
        features: (N, f) coordinates in which distances count.
        rows: those to group.
        group_size: k.
        report: told how many of the rows are grouped.
    """
    found: list[Indices] = []
    done = 0
    for leaf, own in _leaves(features, rows, group_size):
        found.append(leaf[_group(own, group_size)])
        done += leaf.size
        report("pairing", done, rows.size)
    return np.concatenate(found)


def _leaves(features: Array, rows: Indices, group_size: int) -> Iterator[tuple[Indices, Array]]:
    """Split at the median of the widest coordinate until few enough are left together.

    Each leaf comes with its features, which lie side by side at every split.
    """
    waiting = [(rows, features[rows])]
    while waiting:
        piece, own = waiting.pop()
        if piece.size <= LEAF_ROWS + group_size:
            yield piece, own
            continue
        # a multiple of k on one side, so that no leaf but the last has rows left over
        middle = piece.size // (2 * group_size) * group_size
        order = np.argpartition(own[:, _widest(own)], middle)
        for side in (order[middle:], order[:middle]):
            waiting.append((piece[side], own[side]))


def _widest(features: Array) -> int:
    """Return the coordinate that varies most."""
    middle = features[:ROWS_TOGETHER].mean(axis=0)
    summed, squared = np.zeros_like(middle), np.zeros_like(middle)
    for start in range(0, len(features), ROWS_TOGETHER):
        # N Var = Σ g² − (Σ g)²/N with g about the mean of some rows, so that little cancels
        gaps = features[start : start + ROWS_TOGETHER] - middle
        summed += gaps.sum(axis=0)
        squared += np.einsum("ij,ij->j", gaps, gaps)
    return int(np.argmax(squared - summed**2 / len(features)))


def _group(features: Array, group_size: int) -> Indices:
    """Give the row that is farthest from all others its nearest free ones, and so on."""
    count = len(features)
    squared = squared_distances(features, features)
    np.fill_diagonal(squared, np.inf)
    # rows far from all others choose first: late ones find a near partner anyway
    hardest_first = np.argsort(-squared.min(axis=1), kind="stable").tolist()
    # 0 where a row is free, ∞ where it is in a group: added to its distances
    taken = np.zeros(count)
    distances = np.empty(count)
    groups = np.empty((count // group_size, group_size), dtype=np.intp)
    wanted, number = group_size - 1, 0
    for row in hardest_first:
        if taken[row]:
            continue
        taken[row] = np.inf
        np.add(squared[row], taken, out=distances)
        nearest = (
            [int(distances.argmin())]
            if wanted == 1
            else np.argpartition(distances, wanted - 1)[:wanted]
        )
        taken[nearest] = np.inf
        groups[number, 0], groups[number, 1:] = row, nearest
        number += 1
    return groups


def squared_distances(first: Array, second: Array) -> Array:
    """Return ‖a − b‖² for all pairs of rows, (m, n), never negative."""
    # ‖a‖² + ‖b‖² − 2 aᵀb as one product, of (−2a, ‖a‖², 1) and (b, 1, ‖b‖²): good for a choice, as
    # rounding may cancel
    left = np.empty((len(first), first.shape[1] + 2))
    right = np.empty((len(second), second.shape[1] + 2))
    np.multiply(first, -2.0, out=left[:, :-2])
    np.einsum("ij,ij->i", first, first, out=left[:, -2])
    left[:, -1] = 1.0
    right[:, :-2] = second
    right[:, -2] = 1.0
    np.einsum("ij,ij->i", second, second, out=right[:, -1])
    squared: Array = left @ right.T
    return np.maximum(squared, 0.0, out=squared)


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
        if number % ROUNDS_TOLD == 0:
            report(f"exchanging among the worst, round {number + 1}", members.size, members.size)
        if not groups.round():
            return


def _in_tree(tree: cKDTree, points: Array, k: int) -> Indices:
    found: Indices = tree.query(points, k=k)[1].reshape(len(points), k)
    return found


class Flat:
    """The nearest of some rows by the distances of all: a tree in many coordinates sees as many."""

    def __init__(self, rows: Array) -> None:
        self._middle = rows.mean(axis=0)
        self._bundles = -(-len(rows) // BUNDLE)
        # (b, ‖b‖²) about the mean, so that little cancels; what fills the last bundles is at ∞
        self._right = np.zeros((BUNDLE * self._bundles, rows.shape[1] + 1))
        near = np.subtract(rows, self._middle, out=self._right[: len(rows), :-1])
        self._right[len(rows) :, -1] = np.inf
        np.einsum("ij,ij->i", near, near, out=self._right[: len(rows), -1])

    def query(self, points: Array, k: int) -> Indices:
        """Return the places of the k rows nearest to each point, (n, k), the nearest first."""
        found = np.empty((len(points), k), dtype=np.intp)
        left = np.concatenate([-2.0 * (points - self._middle), np.ones((len(points), 1))], axis=1)
        together = max(1, ENTRIES_PER_CHUNK // len(self._right))
        for start in range(0, len(points), together):
            # ‖b‖² − 2 aᵀb, which orders as ‖a − b‖² does; good for a choice, as it is rounded
            squared = left[start : start + together] @ self._right.T
            # the k nearest lie in the k bundles whose own nearest are nearest
            least = squared.reshape(-1, BUNDLE, self._bundles).min(axis=1)
            some = min(k, self._bundles)
            bundles = np.argpartition(least, some - 1, axis=1)[:, :some]
            rows = (bundles[:, :, None] + self._bundles * np.arange(BUNDLE)).reshape(len(least), -1)
            order = np.argsort(np.take_along_axis(squared, rows, axis=1), axis=1)[:, :k]
            found[start : start + together] = np.take_along_axis(rows, order, axis=1)
        return found


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
        own = search[self._rows]
        # an unbalanced tree is built several times faster, and asked a few thousand times
        self._nearest: Callable[[Array, int], Indices] = (
            Flat(own).query
            if own.shape[1] > TREE_COLUMNS
            else partial(_in_tree, cKDTree(own, balanced_tree=False, compact_nodes=False))
        )
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
        # the largest span sets the noise: the worst groups alone are worth an exchange
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
            self._known[new] = self._rows[self._nearest(self._search[new], self._reach)]

    def _best(self, groups: Indices) -> list[tuple[int, int, int] | None]:
        """Return for each group the exchange of one row that leaves the shorter longest group.

        Every row x of a group may go; it is exchanged with a neighbour c of the others. Returned
        are the place of x, c, and the group that c comes from; None where nothing gains.
        """
        own, spans = self.members[groups], self.spans[groups]
        # for every place x of a group: the rows that stay, and neighbours c of theirs to enter
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
