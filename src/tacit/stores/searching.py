"""Search of a sealed store: codes are scored, a shortlist is opened and ranked by exact vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from tacit._ground.checks import integer
from tacit.stores import sealing
from tacit.stores.documents import CodeTopics, Document, Hit
from tacit.stores.opening import CHANGED, StoreReading
from tacit.stores.ranking import CodeRanking, largest
from tacit.stores.sealing import FetchedRows
from tacit.stores.vectors import Rows, checked_rows, directed, exact_scores

Where = Callable[[Document], bool]

# of a shortlist, however small the store: k hits are the best of ten times as many at least
LEAST_SHORTLIST = 10
# of what is fetched by clear codes, the share that is opened: the nearest by finer ones
OPENED = 0.1


class StoreSearching(StoreReading):
    """Where documents of an opened store are found by what they are like."""

    @overload
    def search(
        self,
        query: Sequence[float] | Rows,
        k: int = 10,
        *,
        shortlist: int | None = None,
        where: Where | None = None,
    ) -> tuple[Hit, ...]: ...

    @overload
    def search(
        self, query: Any, k: int = 10, *, shortlist: int | None = None, where: Where | None = None
    ) -> Any: ...

    def search(
        self, query: Any, k: int = 10, *, shortlist: int | None = None, where: Where | None = None
    ) -> Any:
        """Return the k documents nearest to a query among a shortlist by code, the nearest first.

        Args:
            query: (d,), or (q, d) for as many lists.
            k: hits of a query.
            shortlist: documents that are fetched; the share of the settings when None, and
                10 k at least. All are opened, or the nearest tenth by finer codes where clear
                codes say what is fetched (10 k at least; all for a filter).
            where: which of those that are opened may be found; all when None. The host sees no
                filter: as many are fetched whatever it is.

        Raises:
            ValueError: no key, a query that is not finite, or a document that was changed.
        """
        count = integer("k", k, minimum=1)
        if shortlist is not None:
            integer("shortlist", shortlist, minimum=count)
        given = np.asarray(query)
        single = given.ndim == 1
        rows = checked_rows("query", given[None] if single else given, self.codec.width, None)
        rows = directed("query", rows, self.settings.metric)
        self._required("search")

        def found() -> tuple[tuple[Hit, ...], ...]:
            size = len(self._columns)
            usual = max(LEAST_SHORTLIST * count, math.ceil(self.settings.shortlist * size))
            fetched = min(shortlist or usual, size)
            return tuple(self._found(row, count, fetched, where) for row in rows)

        hits = self._again(found)
        return hits[0] if single else hits

    def topics(self, query: Any, count: int = 10) -> CodeTopics:
        """Return the codes nearest to a query that occur, for which no key is needed.

        That is what a thief of the files can search.

        Args:
            query: (d,).
            count: codes at most.

        Raises:
            ValueError: a query that is not finite.
        """
        most = integer("count", count, minimum=1)
        rows = checked_rows("query", np.asarray(query)[None], self.codec.width, None)
        row = directed("query", rows, self.settings.metric)[0]
        self._refresh()
        if not len(self._columns):
            empty = np.empty((0, len(self.codec.sizes)), np.int64)
            return CodeTopics(empty, np.empty(0, np.float32), np.empty(0, np.int64))
        codes, documents = np.unique(
            self._columns.codes.astype(np.int64), axis=0, return_counts=True
        )
        scores = CodeRanking(self.codec, self.settings.metric, codes).scores(row)
        chosen = largest(scores, most)
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        return CodeTopics(codes[chosen], scores[chosen], documents[chosen])

    def _found(self, query: Rows, k: int, shortlist: int, where: Where | None) -> tuple[Hit, ...]:
        if not len(self._columns):
            return ()
        clear = self.fine is None or self.settings.fetched_by == "clear"
        first = self._ranked(fine=not clear)
        # asked for by rising handle: the host does not see which was nearest
        positions = np.sort(first.nearest(query, shortlist))
        fetched = self._fetched(positions)
        places: Sequence[int] = range(len(positions))
        if where is not None:
            places = [row for row in places if where(self._document(self._plain(fetched, row)))]
        elif clear and self.fine is not None:
            fetched.touch()
            most = max(LEAST_SHORTLIST * k, math.ceil(OPENED * len(positions)))
            best = self._ranked(fine=True).nearest(query, most, positions)
            places = np.searchsorted(positions, np.sort(best)).tolist()
        scores = exact_scores(self._vectors(fetched, places), query, self.settings.metric)
        best = largest(scores, k)
        best = best[np.argsort(-scores[best], kind="stable")]
        # opened once more from what was fetched: the host does not see which were the best
        return tuple(
            Hit(self._document(self._plain(fetched, places[row])), float(scores[row]))
            for row in best.tolist()
        )

    def _ranked(self, *, fine: bool) -> CodeRanking:
        """Return what ranks by the finer codes, or by those in the clear."""
        if fine not in self._rankings:
            metric, held = self.settings.metric, self._heading.fine
            if fine:
                assert self.fine is not None
                assert held is not None
                found = CodeRanking(self.fine, metric, held.astype(np.int64))
            else:
                codes = self._columns.codes.astype(np.int64)
                found = self.backend.ranking(self.codec, metric, codes)
            self._rankings[fine] = found
        return self._rankings[fine]

    def _vectors(self, fetched: FetchedRows, places: Sequence[int]) -> Rows:
        """Return the exact vectors of documents, whose other bytes are not kept."""
        assert self._seals is not None
        size, first = 4 * self.codec.width, sealing.LENGTH_BYTES
        rows = np.empty((len(places), self.codec.width), "<f4")
        out = memoryview(rows.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        # of each of the few lengths: sealed, opened, and where the vector stands in it
        buffers: dict[int, tuple[bytearray, bytearray, memoryview]] = {}
        for place, row in enumerate(places):
            sealed = fetched.sealed[row]
            if len(sealed) not in buffers:
                new = bytearray(max(0, len(sealed) - sealing.OVERHEAD))
                vector = memoryview(new)[first : first + size]
                buffers[len(sealed)] = bytearray(len(sealed)), new, vector
            held, opened, vector = buffers[len(sealed)]
            # copied first: its host may write to a file that is mapped while it is opened
            held[:] = sealed
            if len(vector) < size or not self._seals.open_into(opened, held, fetched.bound_to(row)):
                raise ValueError(CHANGED)
            out[size * place : size * place + size] = vector
        return rows
