"""The index of a dock: made of the records, and kept up with them before every search."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tacit._ground.lazy import install_with
from tacit.specifications import Specification, SpecificationSpace
from tacit_dock.records import LISTED, Filters, Learnware
from tacit_dock.search.kept import KeptSpace
from tacit_dock.search.quantised import Quantised, is_available
from tacit_dock.search.vectors import FoundRow, Vectors, VectorStore
from tacit_dock.settings import IndexKind
from tacit_dock.store import DockStore
from tacit_dock.texts import json_text

LENGTH = 8
# From this many rows and numbers on, bits are compared first: fewer numbers are read as quickly.
MANY, MANY_NUMBERS = 20_000, 1 << 23
MOST_SUMMARIES = 10_000
# A content that could not be read may come back with its disk.
AGAIN_SECONDS = 60.0
# Contents of rows that were kept are read afterwards, in so large a share of a core.
CHECKED_TOGETHER, CHECKED_SHARE = 32, 0.2
# So many rows are written to the disk at a time.
WRITTEN_TOGETHER = 2048
# Room on the disk that is left to others.
SPARE_BYTES = 256 << 20
Changed = list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Match:
    """What a search found.

    Attributes:
        compared: how many learnwares.
        found: the most similar first.
        exact: whether every one was compared exactly, or the best of a quantised comparison.
    """

    compared: int
    found: tuple[FoundRow, ...]
    exact: bool


@dataclass(frozen=True)
class OnDisk:
    """Whose first so many rows are on the disk, in which files."""

    vectors: VectorStore
    made: str
    rows: int


@dataclass(frozen=True)
class Summary:
    """What a list tells of a learnware, and the same as JSON, which many answers hold."""

    told: Mapping[str, Any]
    text: str

    @classmethod
    def of(cls, held: Learnware) -> Summary:
        """Return what a list tells of a learnware."""
        told = held.summary()
        return cls(told, json_text(told))


class Index:
    """Vectors of the listed learnwares of a store, a space at a time.

    Args:
        store: whose records it is made of.
        kind: how it searches; ``"auto"`` compares exactly up to 20,000 learnwares or 2²³ numbers of
            a space.
        unreadable: told the id and the error of a content that cannot be read; it is left out, and
            tried again every minute.
    """

    def __init__(
        self,
        store: DockStore,
        kind: IndexKind = "auto",
        unreadable: Callable[[str, str], None] | None = None,
    ) -> None:
        self._store, self._unreadable = store, unreadable or (lambda *_: None)
        self._quantises = kind != "exact" and is_available()
        self._many = MANY if kind == "auto" else 1
        if kind == "quantised" and not self._quantises:
            raise ValueError(f"index: 'quantised' needs faiss: {install_with('dock')}")
        self._quantised: dict[str, Quantised] = {}
        self._seen = 0
        self._spaces: dict[str, VectorStore] = {}
        self._space_of: dict[str, str] = {}
        # what could not be read, and when it is tried again
        self._damaged: dict[str, tuple[str, str]] = {}
        self._again = 0.0
        # revision of every row, and space and revision of those that were kept and not read since
        self._revision_of: dict[str, str] = {}
        self._unchecked: dict[str, tuple[str, str]] = {}
        self._on_disk: dict[str, OnDisk] = {}
        self._stopped = threading.Event()
        self._summaries: dict[str, Summary] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Take over what has changed in the store, by this process or another."""
        newest = self._store.newest_change()
        late = bool(self._damaged) and time.monotonic() > self._again
        if newest == self._seen and not late:
            return
        with self._lock:
            if late:
                self._again = time.monotonic() + AGAIN_SECONDS
                for identifier, (space, revision) in list(self._damaged.items()):
                    self._take(identifier, space, revision)
            newest, changed = self._store.changes(self._seen)
            if not self._seen:
                changed = self._restored(changed)
            for identifier, status, space, revision in changed:
                self._forget(identifier)
                if status == LISTED:
                    self._take(identifier, space, revision)
            for space, vectors in list(self._spaces.items()):
                if not len(vectors):
                    del self._spaces[space]
                    self._quantised.pop(space, None)
                elif vectors.sparse:
                    self._spaces[space] = vectors.compacted()
                    self._quantised.pop(space, None)
            self._seen = newest

    def holds(self, space: SpecificationSpace) -> bool:
        """Whether a listed learnware is of a space."""
        self.refresh()
        return space.digest in self._spaces

    def search(self, query: Specification, count: int, filters: Filters) -> Match:
        """Return the most similar learnwares of the query's space.

        Args:
            query: a specification of a task or a model.
            count: how many at most.
            filters: what the search is narrowed to.
        """
        self.refresh()
        space = query.space.digest
        vectors = self._spaces.get(space)
        if vectors is None:
            return Match(0, (), True)
        allowed = self._store.matching(filters, space) if filters else None
        if allowed is None and self._is_large(vectors):
            quantised = self._quantised_of(space, vectors)
            return Match(len(vectors), tuple(quantised.search(query.vector, count)), False)
        row = query.vector[np.newaxis]
        compared = len(vectors) if allowed is None else len(allowed)
        return Match(compared, tuple(vectors.exact(row, count, allowed)[0]), True)

    def summaries(self, identifiers: Iterable[str]) -> dict[str, Summary]:
        """Return what a list tells of those of these ids that are listed, by id.

        As of the last `refresh`, or later: what changes is forgotten there.
        """
        wanted, seen = tuple(identifiers), self._seen
        known = {name: held for name in wanted if (held := self._summaries.get(name)) is not None}
        missing = [name for name in wanted if name not in known]
        if not missing:
            return known
        named = self._store.named(missing).items()
        read = {name: Summary.of(held) for name, held in named}
        with self._lock:
            # what was read before a change that was taken over meanwhile is not kept
            if self._seen == seen:
                if len(self._summaries) + len(read) > MOST_SUMMARIES:
                    self._summaries.clear()
                self._summaries.update(read)
        return {**known, **read}

    def status(self) -> dict[str, Any]:
        """Return how many vectors are held, their bytes and the contents that could not be read."""
        held, codes = list(self._spaces.values()), list(self._quantised.values())
        return {
            "learnwares": sum(map(len, held)),
            "spaces": len(held),
            "bytes": sum(one.nbytes for one in held) + sum(one.nbytes for one in codes),
            "unreadable": len(self._damaged),
            "unchecked": len(self._unchecked),
        }

    def keep(self) -> int:
        """Write the rows and bits of large spaces that are not on the disk; return how many.

        Raises:
            OSError: the disk does not take them.
            FullError: there is no room for them.
        """
        written = 0
        for space, vectors in list(self._spaces.items()):
            if not self._is_large(vectors):
                continue
            quantised = self._quantised_of(space, vectors)
            kept = self._kept(space, quantised)
            with kept.alone() as alone:
                if alone and not self._stopped.is_set():
                    written += self._write(kept, space, quantised)
        return written

    def check(self) -> int:
        """Read every content whose row was kept, and return how many were not what it said.

        A content that is damaged is left out from then on. Most of a core is left to others.
        """
        wrong = 0
        while self._unchecked and not self._stopped.is_set():
            began = time.thread_time()
            for identifier, (space, revision) in list(
                islice(self._unchecked.items(), CHECKED_TOGETHER)
            ):
                wrong += not self._holds_true(identifier, space, revision)
                self._unchecked.pop(identifier, None)
            self._stopped.wait((time.thread_time() - began) * (1.0 / CHECKED_SHARE - 1.0))
        if wrong:
            # the next start takes over neither those rows nor what is in their place
            self.keep()
        return wrong

    def stop(self) -> None:
        """Have `keep` and `check` end soon."""
        self._stopped.set()

    def _is_large(self, vectors: VectorStore) -> bool:
        if self._many == 1:
            return self._quantises
        numbers = len(vectors) * vectors.width
        return self._quantises and len(vectors) >= self._many and numbers >= MANY_NUMBERS

    def _quantised_of(self, space: str, vectors: VectorStore) -> Quantised:
        with self._lock:
            found = self._quantised.get(space)
            # rows that were stored anew need bits of their own
            if found is None or found.vectors is not vectors:
                found = self._quantised[space] = Quantised(vectors)
            return found

    def _kept(self, space: str, quantised: Quantised) -> KeptSpace:
        return KeptSpace.of(self._store.blobs.folder.parent, space, quantised.form)

    def _restored(self, changed: Changed) -> Changed:
        """Take over the rows that were kept of listed learnwares; return what is left to read."""
        large: dict[str, int] = {}
        for told in self._store.spaces() if self._quantises else ():
            shapes: Any = told["shapes"]
            large[str(told["digest"])] = sum(rows * columns for rows, columns in shapes)
        listed: dict[str, dict[str, str]] = {space: {} for space in large}
        for identifier, status, space, revision in changed:
            if status == LISTED and space in large:
                listed[space][revision] = identifier
        for space, mine in listed.items():
            if len(mine) >= self._many:
                self._restore(space, large[space], mine)
        return [one for one in changed if one[0] not in self._space_of]

    def _restore(self, space: str, width: int, listed: Mapping[str, str]) -> None:
        """Take over what was kept of a space; ``listed`` are ids by their revision."""
        found = self._kept(space, Quantised(VectorStore(width))).read()
        if found is None:
            return
        # of one revision twice the later row is right
        places = {name: at for at, name in enumerate(found.revisions) if name in listed}
        ids: list[str | None] = [None] * len(found.revisions)
        for revision, at in places.items():
            ids[at] = listed[revision]
        vectors = VectorStore.of(ids, found.rows)
        quantised = Quantised(vectors)
        try:
            quantised.take(found.bits, found.centres)
        except ValueError:
            # files that are damaged are written anew
            self._on_disk[space] = OnDisk(VectorStore(width), found.made, 0)
            return
        self._spaces[space], self._quantised[space] = vectors, quantised
        self._on_disk[space] = OnDisk(vectors, found.made, vectors.rows)
        for revision in places:
            identifier = listed[revision]
            self._space_of[identifier], self._revision_of[identifier] = space, revision
            self._unchecked[identifier] = (space, revision)

    def _write(self, kept: KeptSpace, space: str, quantised: Quantised) -> int:
        """Write the rows that are not on the disk, which nobody else does meanwhile."""
        vectors, end, there = quantised.vectors, quantised.made(), kept.count
        held = self._on_disk.get(space)
        if there and (held is None or held.made != kept.made):
            # another server's, which are as good
            return 0
        begun = held is not None and there > 0 and held.vectors is vectors
        start = there if begun else 0
        self._store.blobs.check_room((end - start) * kept.row_bytes + SPARE_BYTES)
        made = kept.made if begun else kept.begin(quantised.centres())
        for first in range(start, end, WRITTEN_TOGETHER):
            if self._stopped.is_set():
                end = first
                break
            last = min(first + WRITTEN_TOGETHER, end)
            names = [self._revision_of.get(name or "", "") for name in vectors.ids(first, last)]
            kept.append(names, vectors.rows_between(first, last), quantised.bits(first, last))
        self._on_disk[space] = OnDisk(vectors, made, end)
        # what was withdrawn while it was written
        self.refresh()
        kept.erase(at for at, name in enumerate(vectors.ids(0, end)) if name is None)
        return end - start

    def _holds_true(self, identifier: str, space: str, revision: str) -> bool:
        """Whether a row that was kept is that of its content; else it is read anew, or left out."""
        row: Vectors | None = None
        with suppress(OSError, ValueError):
            row = vector_of(self._store.blobs.read(revision))
        with self._lock:
            if self._revision_of.get(identifier) != revision:
                return True
            held = self._spaces[space].row_of(identifier)
            if row is not None and held is not None and np.array_equal(row, held):
                return True
            self._forget(identifier)
            self._take(identifier, space, revision)
        return False

    def _forget(self, identifier: str) -> None:
        space = self._space_of.pop(identifier, None)
        self._damaged.pop(identifier, None)
        self._revision_of.pop(identifier, None)
        self._unchecked.pop(identifier, None)
        self._summaries.pop(identifier, None)
        if space is not None:
            self._spaces[space].remove(identifier)

    def _take(self, identifier: str, space: str, revision: str) -> None:
        try:
            row = vector_of(self._store.blobs.read(revision))
            held = self._spaces.get(space)
            if held is None:
                held = self._spaces[space] = VectorStore(row.size)
            held.add(identifier, row)
            self._space_of[identifier], self._revision_of[identifier] = space, revision
            self._damaged.pop(identifier, None)
        except (OSError, ValueError) as error:
            if not self._damaged:
                self._again = time.monotonic() + AGAIN_SECONDS
            self._damaged[identifier] = (space, revision)
            self._unreadable(identifier, type(error).__name__)


def vector_of(content: bytes) -> Vectors:
    """Return the vector of a specification's file whose digest was checked, as its class does."""
    start = LENGTH + int.from_bytes(content[:LENGTH], "little")
    joined = np.frombuffer(content, dtype="<f4", offset=start).astype(float)
    joined /= max(float(np.abs(joined).max()), np.finfo(float).tiny)
    return np.asarray(joined / max(float(np.linalg.norm(joined)), 1.0), dtype=np.float32)


def nearest_space(space: SpecificationSpace, present: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the fields in which a space differs from the most similar one that is there."""
    names = ("backbone", "layers", "shapes", "factor", "subspace", "output")
    asked = {name: json.loads(json.dumps(getattr(space, name))) for name in names}
    differing = [tuple(n for n in names if asked[n] != held[n]) for held in present]
    return min(differing, key=len, default=())
