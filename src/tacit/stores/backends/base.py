"""What a place for sealed documents does, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec
from tacit.hidden_states.codebooks.certificates import Codes, code_type
from tacit.stores.ranking import CodeRanking
from tacit.stores.sealing import HANDLE_BYTES, Sealed


class ChangedError(Exception):
    """Another process changed the store between two looks at it; its text says what is gone."""


@dataclass(frozen=True)
class State:
    """What heads a store in its place.

    Attributes:
        header: JSON.
        counts: sealed, how many documents there are about each person.
    """

    header: str
    counts: bytes = b""


@dataclass(frozen=True, eq=False)
class ClearColumns:
    """What stands in the clear of n documents, in the order of their handles, which is none.

    Attributes:
        handles: (n, 16) bytes.
        versions: (n,).
        codes: (n, m).
    """

    handles: npt.NDArray[np.uint8]
    versions: npt.NDArray[np.uint64]
    codes: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.handles)

    def ordered(self) -> tuple[ClearColumns, npt.NDArray[np.intp]]:
        """Return them by rising handle, and where each row was."""
        order = np.lexsort(self.handles.T[::-1])
        return ClearColumns(self.handles[order], self.versions[order], self.codes[order]), order

    def names(self) -> list[bytes]:
        """Return the handles, each as bytes."""
        flat = np.ascontiguousarray(self.handles).tobytes()
        return [flat[at : at + HANDLE_BYTES] for at in range(0, len(flat), HANDLE_BYTES)]

    @staticmethod
    def joined(parts: Sequence[ClearColumns], sizes: tuple[int, ...]) -> ClearColumns:
        """Return several as one, in the order given."""
        empty = ClearColumns(
            np.empty((0, HANDLE_BYTES), np.uint8),
            np.empty(0, np.uint64),
            np.empty((0, len(sizes)), code_type(sizes)),
        )
        found = [empty, *parts]
        return ClearColumns(
            np.concatenate([part.handles for part in found]),
            np.concatenate([part.versions for part in found]),
            np.concatenate([part.codes for part in found]),
        )


@dataclass(frozen=True, eq=False)
class Records:
    """Documents to be written: what stands in the clear, and what is sealed of each."""

    columns: ClearColumns
    sealed: Sequence[Sealed]


class Backend(ABC):
    """A place that keeps a header, and of every document a handle, a version, a code and bytes.

    A write is whole or not there. Positions are those of the columns that were read last.

    Attributes:
        words: what it is, on a certificate.
        left: what it keeps of sealed bytes that were deleted, until what is done.
    """

    words: ClassVar[str]
    left: ClassVar[str]

    @abstractmethod
    def state(self) -> State | None:
        """Return what heads the store; None where there is none yet.

        Raises:
            ValueError: there is something else.
        """

    @abstractmethod
    def token(self) -> object:
        """Return what is another one after every write."""

    @abstractmethod
    def columns(self, sizes: tuple[int, ...]) -> ClearColumns:
        """Read what stands in the clear, by rising handle.

        Raises:
            ValueError: it is not what was written.
        """

    @abstractmethod
    def fetch(self, positions: npt.NDArray[np.intp]) -> Sequence[Sealed]:
        """Return the sealed bytes of documents.

        Raises:
            ChangedError: one is gone.
            ValueError: they cannot be read.
        """

    @abstractmethod
    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store, so that nobody else writes what was not read here."""

    @abstractmethod
    def write(self, state: State, put: Records | None, remove: npt.NDArray[np.intp]) -> None:
        """Write documents, remove others and put the header, in one step."""

    @abstractmethod
    def overwrite(self, state: State, records: Iterable[Records]) -> None:
        """Put documents in the place of all that there are, in one step."""

    @abstractmethod
    def compact(self) -> None:
        """Remove what deletions and old versions left on the disk."""

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Give up what is held open."""

    def ranking(self, codec: Codec, metric: str, codes: Codes) -> CodeRanking:
        """Return what finds the codes nearest to a query."""
        return CodeRanking(codec, metric, codes)

    def prepare(self, codec: Codec, metric: str) -> None:  # noqa: B027 - most need nothing
        """Take what it needs of the codebook."""


def check_codes(codes: Any, sizes: tuple[int, ...]) -> Any:
    """Return codes (n, m) of the type that holds them.

    Raises:
        ValueError: one is outside the codebook.
    """
    if codes.ndim != 2 or codes.shape[1] != len(sizes) or codes.dtype.kind != "u":
        raise ValueError("store: its codes are not of the shape that its header declares")
    if len(codes) and (codes >= np.array(sizes)).any():
        raise ValueError("store: it holds a code that the codebook does not have")
    return codes.astype(code_type(sizes))


def columns_of(
    handles: Sequence[bytes],
    versions: Sequence[int],
    codes: Sequence[bytes],
    sizes: tuple[int, ...],
) -> ClearColumns:
    """Return columns of values as a database has them.

    Raises:
        ValueError: they are of other lengths than those that are written.
    """
    kind = code_type(sizes)
    size = kind.itemsize * len(sizes)
    if any(len(one) != HANDLE_BYTES for one in handles) or any(len(one) != size for one in codes):
        raise ValueError("store: it holds handles or codes of another length")
    found = np.frombuffer(b"".join(codes), kind).reshape(len(codes), len(sizes))
    return ClearColumns(
        np.frombuffer(b"".join(handles), np.uint8).reshape(-1, HANDLE_BYTES),
        np.array(versions, np.uint64),
        check_codes(found, sizes),
    )
