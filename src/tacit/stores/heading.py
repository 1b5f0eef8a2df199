"""What is sealed of a store as a whole: documents counted per person, and finer codes of all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec
from tacit.hidden_states.codebooks.certificates import code_type
from tacit.stores import persons, sealing

Handles = npt.NDArray[np.uint8]
Versions = npt.NDArray[np.uint64]
Fine = npt.NDArray[Any]
DIGEST_BYTES = 32


@dataclass(frozen=True, eq=False)
class Heading:
    """What is sealed of all documents together.

    Attributes:
        counts: packed, how many documents were ever added about each person.
        fine: (n, m) finer codes, by rising handle; None in a store that has none.
        rows: digest of the handles and versions that these are of, in their order.
    """

    counts: bytes = b""
    fine: Fine | None = None
    rows: bytes = bytes(DIGEST_BYTES)

    @staticmethod
    def of(counts: bytes, parts: Sequence[tuple[Handles, Versions, Fine]]) -> Heading:
        """Return it of finer codes of several parts, put in the order of all their handles."""
        handles, versions, fine = (
            np.concatenate([part[place] for part in parts]) for place in range(3)
        )
        order = np.lexsort(handles.T[::-1])
        return Heading(counts, fine[order], digest_of(handles[order], versions[order]))

    def packed(self, added: int, codec: Codec | None) -> bytes:
        """Return it as bytes, of a length that is told by how many documents there are and were."""
        plain = sealing.padded(self.counts, persons.ENTRY_BYTES * added)
        if codec is None or self.fine is None:
            return plain
        held = np.ascontiguousarray(self.fine.astype(code_type(codec.sizes)))
        return plain + bytes.fromhex(codec.digest) + self.rows + held.tobytes()

    @staticmethod
    def unpacked(plain: bytes, added: int, codec: Codec | None) -> Heading:
        """Return what ``packed`` gave.

        Raises:
            ValueError: finer codes of another codebook than this one, of none or of a codebook.
        """
        end = sealing.LENGTH_BYTES + persons.ENTRY_BYTES * added
        counts = sealing.unpadded(plain[:end])
        start = end + DIGEST_BYTES
        digest, content = plain[end:start].hex(), plain[start + DIGEST_BYTES :]
        if digest != ("" if codec is None else codec.digest):
            made = f"with fine codes of another (SHA-256 {digest[:12]}…)" if digest else "with none"
            raise ValueError(f"fine: expected the codebook of the store, which was made {made}")
        if codec is None:
            return Heading(counts)
        held = np.frombuffer(content, code_type(codec.sizes)).reshape(-1, len(codec.sizes))
        return Heading(counts, held, plain[start : start + DIGEST_BYTES])


def digest_of(handles: Handles, versions: Versions) -> bytes:
    """Return what names documents and the writes that they came with: SHA-256 of both."""
    content = np.ascontiguousarray(handles).tobytes() + versions.astype("<u8").tobytes()
    return hashlib.sha256(content).digest()
