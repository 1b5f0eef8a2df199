"""What heads a sealed store: everything it declares, in the clear and bound to its key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit import codec
from tacit._ground.checks import integer
from tacit.documents import Envelope, dumps, loads
from tacit.stores.settings import StoreSettings

ENVELOPE = Envelope("tacit.sealed-store", 1)


@dataclass(frozen=True, kw_only=True)
class StoreHeader:
    """The header of a store.

    Attributes:
        store: random name of the store under its key, in hexadecimal.
        codebook: SHA-256 of the codebook.
        sizes: cells of every part of a code.
        width: d, numbers in a vector.
        settings: what was declared.
        check: what the right key gives, in hexadecimal.
        generation: writes so far; a document's version is the one that it came with.
        added: documents ever added.
        sealings: messages sealed under this key.
    """

    store: str
    codebook: str
    sizes: tuple[int, ...]
    width: int
    settings: StoreSettings
    check: str = ""
    generation: int = 0
    added: int = 0
    sealings: int = 0

    def __post_init__(self) -> None:
        integer("width", self.width, minimum=1)
        if not self.sizes:
            raise ValueError("sizes: expected the cells of one part or more, got none")
        for size in self.sizes:
            integer("sizes", size, minimum=1, maximum=None)
        for name in ("generation", "added", "sealings"):
            integer(name, getattr(self, name), minimum=0)

    @property
    def declared(self) -> bytes:
        """What the keys of the store depend on: all that does not count."""
        bare = replace(self, store="", check="", generation=0, added=0, sealings=0)
        return dumps(codec.write(StoreHeader, bare), sort_keys=True).encode()

    def text(self) -> str:
        """Return it as strict JSON."""
        return dumps(ENVELOPE.closed(codec.write(StoreHeader, self)))

    @staticmethod
    def read(document: str) -> StoreHeader:
        """Return the header that ``text`` gave.

        Raises:
            ValueError: it is none.
        """
        content: Any = loads(document, name="store")
        found: StoreHeader = codec.read(StoreHeader, ENVELOPE.fields("store", content), "store")
        return found
