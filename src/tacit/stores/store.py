"""A store whose files hold codes in the clear and everything else sealed."""

from __future__ import annotations

import dataclasses
import hmac
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tacit._ground import outlet
from tacit._ground.checks import integer
from tacit.hidden_states import Codec
from tacit.hidden_states.codebooks.certificates import code_type
from tacit.releases import Release
from tacit.releases.verification import refuse_false
from tacit.stores import persons, sealing
from tacit.stores.backends.base import Backend, ChangedError, ClearColumns, Records, State
from tacit.stores.documents import CodeTopics, Document, Hit
from tacit.stores.header import StoreHeader
from tacit.stores.ranking import CodeRanking, largest
from tacit.stores.release import SealedRows, release_of
from tacit.stores.sealing import STORE_BYTES, VERSION_BYTES, FetchedRows, Seals
from tacit.stores.settings import StoreSettings

Rows = npt.NDArray[np.float32]
Found = TypeVar("Found")
Where = Callable[[Document], bool]
CHANGED = "store: a document is not what was sealed under its handle, version and code"

# documents that are sealed anew at once, when the key is rotated
TOGETHER = 1024
# times that a search looks again when another process writes meanwhile
TRIES = 5
# of a shortlist, however small the store: k hits are the best of ten times as many at least
LEAST_SHORTLIST = 10
COUNTS = bytes(sealing.HANDLE_BYTES), b"counts"


class SealedStore:
    """Documents behind codes: whoever steals the files has the codes, the holder of the key all.

    Of a document stands in the clear: its code, one of ``Π_j C_j``, and to which of B lengths it is
    padded. Whatever is in it, that is one of ``B Π_j C_j`` values. Vector, text, id, metadata and
    person are sealed. A search scores the codes, opens a shortlist of the nearest and ranks these
    by their exact vectors; all of it happens where the key is, and the host sees no query.

    Args:
        codec: a codebook fitted on public vectors, of unit norm where the metric is the cosine.
        key: 32 bytes, as ``new_key()`` gives; None to look at codes alone.
        backend: where documents are kept.
        settings: what a new store declares; None for that of the store, or the usual.

    Raises:
        ValueError: another key, codebook or settings than the store's, or something else there.

    Example:
        >>> import tempfile
        >>> from tacit.hidden_states import ProductCodebook, ProductFit
        >>> from tacit.stores import FolderBackend, new_key
        >>> public = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
        >>> public /= np.linalg.norm(public, axis=1, keepdims=True)
        >>> how = ProductFit(parts=2, size=8)
        >>> book = ProductCodebook.fit(public[:400], how, rng=0, progress=False)
        >>> store = SealedStore(book, new_key(), FolderBackend(tempfile.mkdtemp() + "/notes"))
        >>> store.add([Document(id=str(n), text=f"note {n}") for n in range(100)], public[400:])
        >>> [hit.document.text for hit in store.search(public[407], 1)]
        ['note 7']
        >>> store.certificate().guarantees[0].factor
        256.0

    Source: codes that are counted (Issa, Wagner and Kamath, 2020); AES-GCM (NIST SP 800-38D).
    """

    def __init__(
        self,
        codec: Codec,
        key: bytes | None,
        backend: Backend,
        settings: StoreSettings | None = None,
    ) -> None:
        if not isinstance(codec, Codec):
            raise ValueError(f"codec: expected a codebook, got {type(codec).__name__}")
        if not isinstance(backend, Backend):
            raise ValueError(f"backend: expected a Backend, got {type(backend).__name__}")
        if key is not None:
            sealing.check_key("key", key)
        if settings is not None and not isinstance(settings, StoreSettings):
            raise ValueError(f"settings: expected StoreSettings, got {type(settings).__name__}")
        self.codec, self.backend, self._key = codec, backend, key
        self._settings, self._digest = settings, codec.digest
        self._seals: Seals | None = None
        self._header: StoreHeader | None = None
        self._token: object = None
        self._columns = ClearColumns.joined([], codec.sizes)
        self._ranking: CodeRanking | None = None
        self._known: dict[bytes, int] | None = None
        backend.prepare(codec, (settings or StoreSettings()).metric)
        self._refresh()

    def __repr__(self) -> str:
        return f"SealedStore({self.backend!r}, {len(self._columns):,} documents)"

    def __getstate__(self) -> Any:
        if self._key is not None:
            raise ValueError("store: a pickle or a copy would hold its key; open it anew instead")
        return self.__dict__.copy()

    def __len__(self) -> int:
        self._refresh()
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        self._refresh()
        return isinstance(name, str) and len(self) > 0 and self._handle(name) in self._places()

    @property
    def settings(self) -> StoreSettings:
        """What the store declares."""
        return self._settings or StoreSettings()

    @property
    def codes(self) -> npt.NDArray[Any]:
        """Codes (n, m) that stand in the clear, in an order that says nothing."""
        self._refresh()
        return self._columns.codes.copy()

    def __iter__(self) -> Iterator[Document]:
        """Open every document, in the order of the handles, which says nothing."""
        self._required("open documents")
        size = len(self)
        for start in range(0, size, TOGETHER):
            positions = np.arange(start, min(start + TOGETHER, size))
            yield from (self._document(plain) for plain in self._opened(positions))

    def add(self, documents: Iterable[Document], vectors: Any, *, replace: bool = False) -> None:
        """Add documents, all or none.

        Args:
            documents: n, of ids that are not there yet.
            vectors: (n, d), their exact vectors.
            replace: whether documents of the same ids go in the same step.

        Raises:
            ValueError: one is refused, at its position: its id is known, it is larger than the
                largest bucket, its vector is not finite, or there are more about its person than
                declared.
        """
        given = tuple(documents)
        plains = self._plains(given, self._rows("vectors", vectors, len(given)))
        if not given:
            return
        self._required("add documents")
        rows = self._rows("vectors", vectors, len(given))
        codes = outlet.let_out(self.codec.encode(self._directed("vectors", rows)))
        with self._writing() as header:
            seals = self._required("add documents")
            handles = [seals.handle(document.id) for document in given]
            gone = self._replaced(handles, replace)
            most = self.settings.rows_per_person
            counts = persons.counted(self._counts(header), given, most)
            records = self._sealed(seals, header, handles, codes, plains)
            told = dataclasses.replace(
                header,
                added=header.added + len(given),
                sealings=header.sealings + len(given) + 1,
            )
            self.backend.write(self._state(told, counts), records, gone)

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
            shortlist: documents that are opened; the share of the settings when None, and
                10 k at least.
            where: which of those that are opened may be found; all when None. The host sees no
                filter, and so opens as many whatever it is.

        Raises:
            ValueError: no key, a query that is not finite, or a document that was changed.
        """
        count = integer("k", k, minimum=1)
        if shortlist is not None:
            integer("shortlist", shortlist, minimum=count)
        given = np.asarray(query)
        single = given.ndim == 1
        rows = self._rows("query", given[None] if single else given, None)
        rows = self._directed("query", rows)
        self._required("search")

        def found() -> tuple[tuple[Hit, ...], ...]:
            size = len(self._columns)
            usual = max(LEAST_SHORTLIST * count, math.ceil(self.settings.shortlist * size))
            opened = min(shortlist or usual, size)
            return tuple(self._found(row, count, opened, where) for row in rows)

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
        row = self._directed("query", self._rows("query", np.asarray(query)[None], None))[0]
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

    def get(self, names: Iterable[str]) -> tuple[Document, ...]:
        """Return documents by their ids.

        Raises:
            ValueError: no such document, at its position, or one that was changed.
        """
        wanted = tuple(names)
        self._required("open documents")
        if not wanted:
            return ()

        def found() -> tuple[Document, ...]:
            positions = self._positions(wanted)
            return tuple(self._document(plain) for plain in self._opened(positions))

        return self._again(found)

    def delete(self, names: Iterable[str]) -> None:
        """Delete documents, all or none; ``compact`` then removes what the backend keeps of them.

        Raises:
            ValueError: no such document, at its position; none is deleted then.
        """
        wanted = tuple(names)
        self._required("delete documents")
        if not wanted:
            return
        with self._writing() as header:
            if len(set(wanted)) < len(wanted):
                raise ValueError("names: expected different ids, got one twice")
            positions = self._positions(wanted)
            told = dataclasses.replace(header, sealings=header.sealings + 1)
            self.backend.write(self._state(told, self._counts(header)), None, positions)

    def rotate(self, key: bytes) -> None:
        """Seal every document anew under another key, in one step, with handles of its own.

        Whatever copies of the files are left, the old key opens those alone. Versions are made one:
        which documents came together is told no more.

        Args:
            key: 32 bytes, other than the present ones.

        Raises:
            ValueError: no key, the same, or a document that was changed; nothing is written then.
        """
        sealing.check_key("key", key)
        self._required("rotate the key")
        if key == self._key:
            raise ValueError("key: expected another one than the store's, got the same")
        before = self._key
        try:
            with self._writing() as header:
                counts = self._counts(header)
                name, sealings = os.urandom(STORE_BYTES).hex(), len(self._columns) + 1
                bare = dataclasses.replace(header, store=name, sealings=sealings)
                seals = Seals(key, bytes.fromhex(name), bare.declared)
                told = dataclasses.replace(bare, check=seals.check.hex())
                state = self._state(told, counts, seals)
                self.backend.overwrite(state, self._resealed(seals, told))
                self._key = key
        except BaseException:
            # nothing was written, so that the key is the one before
            self._key, self._token = before, None
            raise
        self.compact()

    def compact(self) -> None:
        """Remove what deletions and old versions left on the disk, as far as the backend can."""
        self._refresh()
        if self._header is None:
            return
        self.backend.compact()
        self._token = None
        self._refresh()

    def certificate(self) -> Release[SealedRows]:
        """Return what the files tell about a document and a person, with what the host sees.

        Needs no key. ``tacit.gate`` reads it as it reads any release.

        Raises:
            ValueError: nothing has been added yet.
        """
        self._refresh()
        if self._header is None:
            raise ValueError("store: expected one that something was added to, got an empty one")
        details = SealedRows(
            documents=len(self._columns),
            sizes=self.codec.sizes,
            settings=self.settings,
            backend=self.backend.words,
            left=self.backend.left,
        )
        release = release_of(details, self._digest)
        refuse_false(release)
        return release

    def close(self) -> None:
        """Close what the backend holds open."""
        self.backend.close()

    def __enter__(self) -> SealedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read what another process, or this one, has written since."""
        for attempt in range(TRIES):
            token = self.backend.token()
            if token is None and self._header is not None:
                raise ValueError("store: it was there, and is gone")
            if token is None or token == self._token:
                return
            try:
                self._load()
            except ChangedError as error:
                if attempt == TRIES - 1:
                    raise ValueError(str(error)) from None
                continue
            self._token = token

    def _load(self) -> None:
        state = self.backend.state()
        if state is None:
            return
        header = StoreHeader.read(state.header)
        if header.codebook != self._digest:
            raise ValueError(
                f"codec: the store was made with another codebook (SHA-256 {header.codebook[:12]}…"
                f", here {self._digest[:12]}…)"
            )
        if (header.sizes, header.width) != (self.codec.sizes, self.codec.width):
            raise ValueError("store: its header names other cells than its codebook has")
        if self._settings is not None and self._settings != header.settings:
            raise ValueError(
                f"settings: the store declares {header.settings!r}, got {self._settings!r}"
            )
        if self._key is not None:
            seals = Seals(self._key, bytes.fromhex(header.store), header.declared)
            if not hmac.compare_digest(seals.check.hex(), header.check):
                raise ValueError(
                    "key: expected the key that the store was sealed with, got another one (or "
                    "what its header declares was changed)"
                )
            self._seals = seals
        self.backend.prepare(self.codec, header.settings.metric)
        self._columns = self.backend.columns(header.sizes)
        self._header, self._settings = header, header.settings
        self._ranking, self._known = None, None

    @contextmanager
    def _writing(self) -> Iterator[StoreHeader]:
        """Hold the store; give the header that the next write has, of a new store if none is."""
        self._required("write")
        with self.backend.writing():
            self._refresh()
            header = self._header or self._new()
            if header.sealings >= sealing.MOST_SEALINGS - TOGETHER:
                raise ValueError("key: it has sealed all it may; rotate the key")
            yield dataclasses.replace(header, generation=header.generation + 1)
        self._token = None
        self._refresh()

    def _new(self) -> StoreHeader:
        assert self._key is not None
        bare = StoreHeader(
            store=os.urandom(STORE_BYTES).hex(),
            codebook=self._digest,
            sizes=self.codec.sizes,
            width=self.codec.width,
            settings=self.settings,
        )
        self._seals = Seals(self._key, bytes.fromhex(bare.store), bare.declared)
        return dataclasses.replace(bare, check=self._seals.check.hex())

    def _required(self, action: str) -> Seals:
        if self._key is None:
            raise ValueError(f"key: expected 32 bytes to {action}, got None")
        self._refresh()
        if self._seals is None and self._header is None:
            # of no store yet: what it gives is never kept
            return Seals(self._key, bytes(STORE_BYTES), b"")
        assert self._seals is not None
        return self._seals

    def _state(
        self, header: StoreHeader, counts: persons.Counts, seals: Seals | None = None
    ) -> State:
        """Return what heads the store; counts are padded to what all added documents would take."""
        by = seals or self._seals
        assert by is not None
        plain = sealing.padded(persons.packed(counts), persons.ENTRY_BYTES * header.added)
        version = header.generation.to_bytes(VERSION_BYTES, "little")
        return State(header.text(), _let_out(by.seal(plain, COUNTS[0], version, COUNTS[1])))

    def _counts(self, header: StoreHeader) -> persons.Counts:
        """Return how many documents there were about each person before this write."""
        state = self.backend.state()
        if state is None or self._header is None:
            return {}
        version = (header.generation - 1).to_bytes(VERSION_BYTES, "little")
        assert self._seals is not None
        plain = self._seals.open(state.counts, COUNTS[0], version, COUNTS[1])
        if plain is None:
            raise ValueError("store: its counts of persons are not those that were sealed")
        return persons.unpacked(sealing.unpadded(plain))

    def _plains(self, documents: Sequence[Document], rows: Rows) -> list[bytes]:
        """Return vector and document of each, padded to its bucket."""
        plains, names = [], set()
        buckets, width = self.settings.buckets, 4 * self.codec.width
        for place, document in enumerate(documents):
            if not isinstance(document, Document):
                raise ValueError(
                    f"documents[{place}]: expected a Document, got {type(document).__name__}"
                )
            if document.id in names:
                raise ValueError(f"documents[{place}].id: expected different ids, got one twice")
            names.add(document.id)
            content = document.packed()
            size = next((size for size in buckets if size >= len(content)), None)
            if size is None:
                raise ValueError(
                    f"documents[{place}]: expected at most {buckets[-1]:,} bytes, the largest "
                    f"bucket, got {len(content):,}"
                )
            vector = rows[place].astype("<f4").tobytes()
            plains.append(sealing.padded(vector + content, width + size))
        return plains

    def _sealed(
        self,
        seals: Seals,
        header: StoreHeader,
        handles: list[bytes],
        codes: Any,
        plains: list[bytes],
    ) -> Records:
        kind = code_type(self.codec.sizes)
        held = np.ascontiguousarray(codes.astype(kind))
        version = header.generation.to_bytes(VERSION_BYTES, "little")
        sealed = [
            _let_out(seals.seal(plain, handle, version, code.tobytes()))
            for plain, handle, code in zip(plains, handles, held, strict=True)
        ]
        columns = ClearColumns(
            np.frombuffer(_let_out(b"".join(handles)), np.uint8).reshape(len(handles), -1),
            np.full(len(handles), header.generation, np.uint64),
            held,
        )
        return Records(columns, sealed)

    def _resealed(self, seals: Seals, header: StoreHeader) -> Iterator[Records]:
        for start in range(0, len(self._columns), TOGETHER):
            positions = np.arange(start, min(start + TOGETHER, len(self._columns)))
            plains = self._opened(positions)
            handles = [seals.handle(self._document(plain).id) for plain in plains]
            yield self._sealed(seals, header, handles, self._columns.codes[positions], plains)

    def _opened(self, positions: npt.NDArray[np.intp]) -> list[bytes]:
        """Return what is sealed of documents, each held against its handle, version and code."""
        fetched = self._fetched(positions)
        return [self._plain(fetched, row) for row in range(len(positions))]

    def _fetched(self, positions: npt.NDArray[np.intp]) -> FetchedRows:
        columns, count = self._columns, len(positions)
        # as bytes once, and a slice of these a row: an array a row would cost more than its seal
        parts = (
            columns.handles[positions],
            columns.versions[positions].astype("<u8"),
            np.ascontiguousarray(columns.codes[positions]),
        )
        bound = np.concatenate([one.reshape(count, -1).view(np.uint8) for one in parts], axis=1)
        return FetchedRows(self.backend.fetch(positions), bound.tobytes(), bound.shape[1])

    def _plain(self, fetched: FetchedRows, row: int) -> bytes:
        assert self._seals is not None
        plain = self._seals.open(fetched.sealed[row], fetched.bound_to(row))
        if plain is None:
            raise ValueError(CHANGED)
        return plain

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

    def _document(self, plain: bytes) -> Document:
        return Document.unpacked(sealing.unpadded(plain)[4 * self.codec.width :])

    def _found(self, query: Rows, k: int, shortlist: int, where: Where | None) -> tuple[Hit, ...]:
        if not len(self._columns):
            return ()
        if self._ranking is None:
            codes = self._columns.codes.astype(np.int64)
            self._ranking = self.backend.ranking(self.codec, self.settings.metric, codes)
        # asked for by rising handle: the host does not see which was nearest
        positions = np.sort(self._ranking.nearest(query, shortlist))
        fetched = self._fetched(positions)
        places: Sequence[int] = range(len(positions))
        if where is not None:
            places = [row for row in places if where(self._document(self._plain(fetched, row)))]
        scores = self._scores(self._vectors(fetched, places), query)
        best = largest(scores, k)
        best = best[np.argsort(-scores[best], kind="stable")]
        # opened once more from what was fetched: the host does not see which were the best
        return tuple(
            Hit(self._document(self._plain(fetched, places[row])), float(scores[row]))
            for row in best.tolist()
        )

    def _scores(self, rows: Rows, query: Rows) -> Rows:
        """Return cosine, dot product or minus the squared distance of exact vectors."""
        if self.settings.metric == "euclidean":
            # the difference itself: ‖x‖² − 2⟨q, x⟩ + ‖q‖² would cancel near the query
            apart = rows - query
            found: Rows = -np.einsum("ij,ij->i", apart, apart)
            return found
        found = rows @ query
        if self.settings.metric == "cosine":
            found = found / np.sqrt(np.einsum("ij,ij->i", rows, rows))
        return found

    def _rows(self, name: str, values: Any, count: int | None) -> Rows:
        """Return finite vectors (n, d) as float32.

        Raises:
            ValueError: they are others; the message says at which position.
        """
        try:
            given = np.asarray(values)
            if given.dtype.kind not in "fiu":
                raise ValueError
            with np.errstate(over="ignore"):
                rows: Rows = np.ascontiguousarray(given, dtype=np.float32)
        except ValueError:
            raise ValueError(f"{name}: expected real numbers of shape (n, d), got others") from None
        if count == 0 and rows.size == 0:
            return rows.reshape(0, self.codec.width)
        expected = f"({'n' if count is None else count}, {self.codec.width})"
        if (
            rows.ndim != 2
            or rows.shape[1] != self.codec.width
            or len(rows) != (len(rows) if count is None else count)
        ):
            raise ValueError(f"{name}: expected shape {expected}, got {given.shape}")
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise ValueError(
                f"{name}[{int(bad.argmax())}]: expected numbers that are finite in float32"
            )
        return rows

    def _directed(self, name: str, rows: Rows) -> Rows:
        """Return vectors as they are coded: of unit norm where the metric is the cosine."""
        if self.settings.metric != "cosine":
            return rows
        norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        if not norms.all():
            place = int((norms == 0).argmax())
            raise ValueError(f"{name}[{place}]: expected a vector that is not 0, as cosine needs")
        directed: Rows = (rows / norms).astype(np.float32)
        return directed

    def _handle(self, name: str) -> bytes:
        if not isinstance(name, str):
            raise ValueError(f"names: expected text, got {type(name).__name__}")
        return self._required("find documents by id").handle(name)

    def _places(self) -> dict[bytes, int]:
        if self._known is None:
            self._known = {name: place for place, name in enumerate(self._columns.names())}
        return self._known

    def _positions(self, names: Sequence[str]) -> npt.NDArray[np.intp]:
        known = self._places()
        found = [known.get(self._handle(name), -1) for name in names]
        if -1 in found:
            raise ValueError(
                f"names[{found.index(-1)}]: expected the id of a document, got another"
            )
        return np.array(found, np.intp)

    def _replaced(self, handles: list[bytes], replace: bool) -> npt.NDArray[np.intp]:
        """Return where documents of these handles stand, of which there are none unless asked."""
        known = self._places()
        found = [place for place, handle in enumerate(handles) if handle in known]
        if found and not replace:
            raise ValueError(
                f"documents[{found[0]}].id: expected one that is not there; delete it before"
            )
        return np.array([known[handles[place]] for place in found], np.intp)

    def _again(self, found: Callable[[], Found]) -> Found:
        """Return what is found, looking again where another process has written meanwhile."""
        for _ in range(TRIES):
            self._refresh()
            try:
                return found()
            except ChangedError:
                self._token = None
        raise ValueError("store: it was changed at every look; search again")


def _let_out(content: bytes) -> bytes:
    """Return what is sealed, or a handle: its length is told, and passes the door beside it."""
    found: bytes = outlet.let_out(np.frombuffer(content, np.uint8)).tobytes()
    return found
