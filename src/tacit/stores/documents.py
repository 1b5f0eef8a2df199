"""What is kept, and what a search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.frozen import array_value
from tacit.documents import dumps, loads


@dataclass(frozen=True, kw_only=True)
class Document:
    """A text with its id; all of it is sealed, the id and the metadata too.

    Attributes:
        id: what it is deleted by.
        text: of any length that fits the largest bucket.
        metadata: strict JSON of the caller's.
        person: whom it is about; the document is about nobody else's when None.

    Example:
        >>> Document(id="7", text="a letter").metadata
        {}
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    person: str | None = None

    def __post_init__(self) -> None:
        # the value itself is somebody's: no message repeats it
        for name in ("id", "text"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name}: expected text, got {type(getattr(self, name)).__name__}")
        if not self.id:
            raise ValueError("id: expected text, got an empty one")
        if self.person is not None and (not isinstance(self.person, str) or not self.person):
            raise ValueError("person: expected text that is not empty, or None")
        if not isinstance(self.metadata, Mapping):
            raise ValueError(f"metadata: expected a mapping, got {type(self.metadata).__name__}")

    def packed(self) -> bytes:
        """Return it as UTF-8 JSON."""
        held = [self.id, self.text, dict(self.metadata), self.person]
        try:
            # lone surrogates have no UTF-8: they are kept as JSON escapes
            return dumps(held, name="metadata", ascii_only=True).encode()
        except ValueError:
            raise ValueError("metadata: expected values that strict JSON holds") from None

    @classmethod
    def unpacked(cls, content: bytes) -> Document:
        """Return the document of JSON that ``packed`` gave."""
        name, text, metadata, person = loads(content, name="document")
        return cls(id=name, text=text, metadata=metadata, person=person)


def person_of(named: Any) -> str | None:
    """Return whom a document is about, as the metadata of a program name one person.

    7 and 7.0 are one person, for a column with gaps turns whole numbers into the other.

    Example:
        >>> person_of("ann"), person_of(7.0), person_of(None)
        ('ann', '7', None)

    Raises:
        ValueError: something else, such as a list of several: a document of these would count for
            none of them.
    """
    if named is None or isinstance(named, str):
        return named
    if isinstance(named, int | float) and not isinstance(named, bool) and named % 1 == 0:
        return str(int(named))
    raise ValueError(
        f"person: expected text or a whole number that names one person, got {type(named).__name__}"
    )


@dataclass(frozen=True)
class Hit:
    """A document that a search found, with its exact score.

    Attributes:
        document: opened.
        score: cosine or dot product of the exact vectors, or minus their squared distance.
    """

    document: Document
    score: float


@array_value()
class CodeTopics:
    """What a search without the key finds: codes that occur, the nearest first.

    Attributes:
        codes: (k, m) distinct codes.
        scores: (k,) of the vectors that stand for them.
        documents: (k,) how many documents have each.
    """

    codes: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    documents: npt.NDArray[np.int64]
