"""A sealed store as it is opened: whose key and codebook, what it holds, each document whole."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec
from tacit.releases import Release
from tacit.releases.verification import refuse_false
from tacit.stores import sealing
from tacit.stores.backends.base import Backend, ChangedError, ClearColumns, State
from tacit.stores.documents import Document
from tacit.stores.header import StoreHeader
from tacit.stores.heading import Heading, digest_of
from tacit.stores.ranking import CodeRanking
from tacit.stores.release import SealedRows, release_of
from tacit.stores.sealing import STORE_BYTES, VERSION_BYTES, FetchedRows, Seals
from tacit.stores.settings import StoreSettings

Found = TypeVar("Found")
CHANGED = "store: a document is not what was sealed under its handle, version and code"

# documents that are opened or sealed anew at once
TOGETHER = 1024
# times that it is looked again when another process writes meanwhile
TRIES = 5


def bound_heading(header: StoreHeader) -> tuple[bytes, ...]:
    """Return what the seal of a heading is bound to: its place, and the write that it came with."""
    version = header.generation.to_bytes(VERSION_BYTES, "little")
    return bytes(sealing.HANDLE_BYTES), version, b"counts"


class StoreReading:
    """What reads a sealed store: its header, what stands in the clear, documents by their ids."""

    def __init__(
        self,
        codec: Codec,
        key: bytes | None,
        backend: Backend,
        settings: StoreSettings | None = None,
        *,
        fine: Codec | None = None,
    ) -> None:
        for name, given in (("codec", codec), *([] if fine is None else [("fine", fine)])):
            if not isinstance(given, Codec):
                raise ValueError(f"{name}: expected a codebook, got {type(given).__name__}")
        if fine is not None and fine.width != codec.width:
            raise ValueError(
                f"fine: expected a codebook of {codec.width} numbers, got {fine.width}"
            )
        if not isinstance(backend, Backend):
            raise ValueError(f"backend: expected a Backend, got {type(backend).__name__}")
        if key is not None:
            sealing.check_key("key", key)
        if settings is not None and not isinstance(settings, StoreSettings):
            raise ValueError(f"settings: expected StoreSettings, got {type(settings).__name__}")
        self.codec, self.fine, self.backend, self._key = codec, fine, backend, key
        self._settings, self._digest = settings, codec.digest
        self._seals: Seals | None = None
        self._heading = self._empty()
        self._header: StoreHeader | None = None
        self._token: object = None
        self._columns = ClearColumns.joined([], codec.sizes)
        # by finer codes, and by clear ones
        self._rankings: dict[bool, CodeRanking] = {}
        self._known: dict[bytes, int] | None = None
        backend.prepare(codec, (settings or StoreSettings()).metric)
        self._refresh()

    def _empty(self) -> Heading:
        """Return what heads a store of nothing."""
        fine = self.fine
        return Heading(fine=None if fine is None else np.zeros((0, len(fine.sizes)), np.int64))

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

    def certificate(self) -> Release[SealedRows]:
        """Return what the files tell about a document and a person, with what the host sees.

        Needs no key. ``tacit.gate`` reads it as it reads any release.

        Raises:
            ValueError: nothing has been added yet.
        """
        self._refresh()
        if self._header is None:
            raise ValueError("store: expected a store with at least one document, got an empty one")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read what another process, or this one, has written since."""
        for attempt in range(TRIES):
            token = self.backend.token()
            if token is None and self._header is not None:
                raise ValueError("store: it was there when it was opened, and is missing now")
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
            self._heading = self._unsealed(state, header, seals)
            self._seals = seals
        self.backend.prepare(self.codec, header.settings.metric)
        columns, fine = self.backend.columns(header.sizes), self._heading.fine
        named = digest_of(columns.handles, columns.versions)
        if fine is not None and self._key is not None and self._heading.rows != named:
            # written to between the two looks, or by who has no key
            raise ChangedError("store: its documents differ from those of its fine codes")
        self._columns = columns
        self._header, self._settings = header, header.settings
        self._rankings, self._known = {}, None

    def _unsealed(self, state: State, header: StoreHeader, seals: Seals) -> Heading:
        plain = seals.open(state.counts, *bound_heading(header))
        if plain is None:
            raise ValueError("store: what heads it is not what was sealed")
        return Heading.unpacked(plain, header.added, self.fine)

    def _again(self, found: Callable[[], Found]) -> Found:
        """Return what is found, looking again where another process has written meanwhile."""
        for _ in range(TRIES):
            self._refresh()
            try:
                return found()
            except ChangedError:
                self._token = None
        raise ValueError("store: it was changed at every look; search again")

    def _required(self, action: str) -> Seals:
        if self._key is None:
            raise ValueError(f"key: expected 32 bytes to {action}, got None")
        self._refresh()
        if self._seals is None and self._header is None:
            # of no store yet: what it gives is never kept
            return Seals(self._key, bytes(STORE_BYTES), b"")
        assert self._seals is not None
        return self._seals

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

    def _document(self, plain: bytes) -> Document:
        return Document.unpacked(sealing.unpadded(plain)[4 * self.codec.width :])

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
