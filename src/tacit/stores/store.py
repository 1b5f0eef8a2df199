"""A store whose files hold codes in the clear and everything else sealed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground import outlet
from tacit.hidden_states.codebooks.certificates import code_type
from tacit.stores import persons, sealing
from tacit.stores.backends.base import ClearColumns, Records, State
from tacit.stores.documents import Document
from tacit.stores.header import StoreHeader
from tacit.stores.heading import Fine, Handles, Heading, Versions
from tacit.stores.opening import TOGETHER, bound_heading
from tacit.stores.sealing import STORE_BYTES, VERSION_BYTES, Seals
from tacit.stores.searching import StoreSearching
from tacit.stores.vectors import Rows, checked_rows, directed


class SealedStore(StoreSearching):
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
        fine: a codebook of more bits, fitted on public vectors too, whose codes are sealed: a
            search with the key ranks by these, and needs a shorter list. The same whenever the
            store is opened with its key.

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
        plains = self._plains(given, checked_rows("vectors", vectors, self.codec.width, len(given)))
        if not given:
            return
        self._required("add documents")
        rows = checked_rows("vectors", vectors, self.codec.width, len(given))
        rows = directed("vectors", rows, self.settings.metric)
        codes = outlet.let_out(self.codec.encode(rows))
        # what is sealed: every document, and what heads them
        with self._writing(len(given) + 1) as header:
            seals = self._required("add documents")
            handles = [seals.handle(document.id) for document in given]
            gone = self._replaced(handles, replace)
            most = self.settings.rows_per_person
            counts = persons.counted(persons.unpacked(self._heading.counts), given, most)
            records = self._sealed(seals, header, handles, codes, plains)
            told = dataclasses.replace(header, added=header.added + len(given))
            new = None if self.fine is None else self.fine.encode(rows)
            heading = self._headed(persons.packed(counts), gone, records.columns, new)
            self.backend.write(self._state(told, heading), records, gone)

    def delete(self, names: Iterable[str]) -> None:
        """Delete documents, all or none; ``compact`` then removes what the backend keeps of them.

        Raises:
            ValueError: no such document, at its position; none is deleted then.
        """
        wanted = tuple(names)
        self._required("delete documents")
        if not wanted:
            return
        with self._writing(1) as header:
            if len(set(wanted)) < len(wanted):
                raise ValueError("names: expected different ids, got one twice")
            positions = self._positions(wanted)
            heading = self._headed(self._heading.counts, positions)
            self.backend.write(self._state(header, heading), None, positions)

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
            with self._writing(0) as header:
                name, sealings = os.urandom(STORE_BYTES).hex(), len(self._columns) + 1
                bare = dataclasses.replace(header, store=name, sealings=sealings)
                seals = Seals(key, bytes.fromhex(name), bare.declared)
                told = dataclasses.replace(bare, check=seals.check.hex())
                state = self._state(told, self._under(seals, told), seals)
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

    @contextmanager
    def _writing(self, sealed: int) -> Iterator[StoreHeader]:
        """Hold the store; give the header that the next write has, of a new store if none is.

        Args:
            sealed: messages that are sealed under its key; none for another key.
        """
        self._required("write")
        with self.backend.writing():
            self._refresh()
            header = self._header or self._new()
            sealings = header.sealings + sealed
            if sealed and sealings > sealing.MOST_SEALINGS:
                raise ValueError("key: it has sealed all it may; rotate the key")
            yield dataclasses.replace(header, generation=header.generation + 1, sealings=sealings)
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

    def _state(self, header: StoreHeader, heading: Heading, seals: Seals | None = None) -> State:
        """Return what heads the store; counts are padded to what all added documents would take."""
        by = seals or self._seals
        assert by is not None
        plain = heading.packed(header.added, self.fine)
        return State(header.text(), _let_out(by.seal(plain, *bound_heading(header))))

    def _headed(
        self,
        counts: bytes,
        gone: npt.NDArray[np.intp],
        columns: ClearColumns | None = None,
        new: Fine | None = None,
    ) -> Heading:
        """Return what heads the store without documents that go, and with new ones."""
        if self._heading.fine is None:
            return Heading(counts)
        held, parts = self._columns, list[tuple[Handles, Versions, Fine]]()
        kept = np.delete(np.arange(len(held)), gone)
        parts.append((held.handles[kept], held.versions[kept], self._heading.fine[kept]))
        if columns is not None and new is not None:
            parts.append((columns.handles, columns.versions, new))
        return Heading.of(counts, parts)

    def _under(self, seals: Seals, header: StoreHeader) -> Heading:
        """Return the heading as another key orders it: by the handles that this key makes."""
        if self._heading.fine is None:
            return self._heading
        named = b"".join(seals.handle(document.id) for document in self)
        handles = np.frombuffer(named, np.uint8).reshape(-1, sealing.HANDLE_BYTES)
        versions = np.full(len(handles), header.generation, np.uint64)
        return Heading.of(self._heading.counts, [(handles, versions, self._heading.fine)])

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

    def _replaced(self, handles: list[bytes], replace: bool) -> npt.NDArray[np.intp]:
        """Return where documents of these handles stand, of which there are none unless asked."""
        known = self._places()
        found = [place for place, handle in enumerate(handles) if handle in known]
        if found and not replace:
            raise ValueError(
                f"documents[{found[0]}].id: expected one that is not there; delete it before"
            )
        return np.array([known[handles[place]] for place in found], np.intp)


def _let_out(content: bytes) -> bytes:
    """Return what is sealed, or a handle: its length is told, and passes the door beside it."""
    found: bytes = outlet.let_out(np.frombuffer(content, np.uint8)).tobytes()
    return found
