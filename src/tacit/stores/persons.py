"""How many documents were ever added about each person: counted, sealed, never less again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tacit.stores.documents import Document

TAG_BYTES, COUNT_BYTES = 16, 4
ENTRY_BYTES = TAG_BYTES + COUNT_BYTES

Counts = dict[bytes, int]


def counted(counts: Mapping[bytes, int], documents: Sequence[Document], most: int) -> Counts:
    """Return the counts with these documents added.

    Raises:
        ValueError: more than ``most`` about one person; the message says at which position.
    """
    found = dict(counts)
    for place, document in enumerate(documents):
        if document.person is None:
            continue
        tag = hashlib.sha256(document.person.encode("utf-8", "surrogatepass")).digest()[:TAG_BYTES]
        found[tag] = found.get(tag, 0) + 1
        if found[tag] > most:
            raise ValueError(
                f"documents[{place}].person: expected at most {most} documents about one person, "
                f"as rows_per_person declares, got {found[tag]} with those that were ever added"
            )
    return found


def packed(counts: Mapping[bytes, int]) -> bytes:
    """Return counts as bytes, in the order of the tags."""
    return b"".join(
        tag + count.to_bytes(COUNT_BYTES, "little") for tag, count in sorted(counts.items())
    )


def unpacked(content: bytes) -> Counts:
    """Return the counts of bytes that ``packed`` gave."""
    return {
        content[at : at + TAG_BYTES]: int.from_bytes(
            content[at + TAG_BYTES : at + ENTRY_BYTES], "little"
        )
        for at in range(0, len(content), ENTRY_BYTES)
    }
