"""What is sealed of a store as a whole: documents counted per person, and finer codes of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec
from tacit.hidden_states.codebooks.certificates import code_type
from tacit.stores import persons, sealing

Handles = npt.NDArray[np.uint8]
Fine = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Heading:
    """What is sealed of all documents together.

    Attributes:
        counts: packed, how many documents were ever added about each person.
        fine: (n, m) finer codes, by rising handle; None in a store that has none.
    """

    counts: bytes = b""
    fine: Fine | None = None

    def packed(self, added: int, codec: Codec | None) -> bytes:
        """Return it as bytes, of a length that is told by how many documents there are and were."""
        plain = sealing.padded(self.counts, persons.ENTRY_BYTES * added)
        if codec is None or self.fine is None:
            return plain
        held = np.ascontiguousarray(self.fine.astype(code_type(codec.sizes)))
        return plain + bytes.fromhex(codec.digest) + held.tobytes()

    @staticmethod
    def unpacked(plain: bytes, added: int, codec: Codec | None) -> Heading:
        """Return what ``packed`` gave.

        Raises:
            ValueError: finer codes of another codebook than this one, of none or of a codebook.
        """
        end = sealing.LENGTH_BYTES + persons.ENTRY_BYTES * added
        counts = sealing.unpadded(plain[:end])
        digest, content = plain[end : end + 32].hex(), plain[end + 32 :]
        if digest != ("" if codec is None else codec.digest):
            made = f"with fine codes of another (SHA-256 {digest[:12]}…)" if digest else "with none"
            raise ValueError(f"fine: expected the codebook of the store, which was made {made}")
        if codec is None:
            return Heading(counts)
        held = np.frombuffer(content, code_type(codec.sizes)).reshape(-1, len(codec.sizes))
        return Heading(counts, held)


def merged(parts: Sequence[tuple[Handles, Fine]]) -> Fine:
    """Return codes of several parts in the order of all their handles."""
    handles = np.concatenate([part for part, _ in parts])
    found: Fine = np.concatenate([codes for _, codes in parts])[np.lexsort(handles.T[::-1])]
    return found
