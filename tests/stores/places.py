"""Stores to test: a codebook on public rows, documents whose exact bytes are known, every place."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tacit.hidden_states import ProductCodebook, ProductFit
from tacit.stores import (
    Backend,
    DatabaseBackend,
    Document,
    FaissBackend,
    FolderBackend,
    LanceBackend,
    SealedStore,
)

WIDTH, COUNT = 8, 60
KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
PLACES: dict[str, Callable[[Path], Backend]] = {
    "folder": lambda folder: FolderBackend(folder / "notes"),
    "faiss": lambda folder: FaissBackend(folder / "notes"),
    "sqlite": lambda folder: DatabaseBackend(folder / "notes.sqlite"),
    "lance": lambda folder: LanceBackend(folder / "notes"),
}


def vectors(count: int = COUNT, seed: int = 1) -> Any:
    rows = np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def book() -> ProductCodebook:
    how = ProductFit(parts=2, size=8)
    return ProductCodebook.fit(vectors(400, 0), how, rng=0, progress=False)


def documents(count: int = COUNT, first: int = 0) -> list[Document]:
    return [
        Document(id=f"id-{n}", text=f"the secret text number {n:05d}", metadata={"page": n})
        for n in range(first, first + count)
    ]


def filled(backend: Backend, key: bytes = KEY) -> SealedStore:
    store = SealedStore(book(), key, backend)
    store.add(documents(), vectors())
    return store


def forms(row: Any, document: Document) -> Iterator[bytes]:
    """Bytes in which a vector or a text would stand on a disk: any of them alone tells."""
    for kind in ("<f4", "<f2", "<f8"):
        raw = np.asarray(row, kind).tobytes()
        # any two numbers one after the other, and their base64 at each of its three phases
        yield raw[: 2 * np.dtype(kind).itemsize]
        for phase in range(3):
            yield base64.b64encode(raw[phase : phase + 3 * ((len(raw) - phase) // 3)])[:16]
    yield document.text.encode()
    yield base64.b64encode(document.text.encode())[:20]
    yield document.id.encode() + b'"'


def on_disk(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file())
