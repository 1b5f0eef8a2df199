"""Collections of Qdrant's client in a folder: pickles in SQLite, of which nothing is run."""

from __future__ import annotations

import io
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tacit.stores.audit.opened import OpenedStore, StoredColumns, read_only, told

STORAGE = "storage.sqlite"


class _Held:
    """In the place of every class that a pickle names: it keeps its state and does nothing."""

    def __init__(self, *_: Any) -> None:
        self.fields: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        found = state.get("__dict__") if isinstance(state, dict) else None
        self.fields = found if isinstance(found, dict) else {}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Held


def read_qdrant(path: Path, by: str | None = None) -> OpenedStore:
    """Read the collections of a folder.

    Args:
        path: it.
        by: entry of the payload that says whom a point is about.

    Raises:
        ValueError: one cannot be read.
    """
    found, clean = StoredColumns(), []
    for place in sorted((path / "collection").glob(f"*/{STORAGE}")):
        names: set[str] = set()
        try:
            with read_only(place) as connection:
                points = connection.execute("SELECT point FROM points").fetchall()
        except sqlite3.DatabaseError:
            raise ValueError(f"PATH: {place} is not a collection of Qdrant") from None
        rows = []
        for (content,) in points:
            fields = _fields(content, place)
            rows += _vectors(fields.get("vector"))
            payload = fields.get("payload") or {}
            names.update({"id", *payload})
            if _other(fields.get("vector")):
                names.add("vector, of numbers that are not read")
            if by in payload:
                found.counts[str(payload[by])] += 1
        if len({len(row) for row in rows}) == 1:
            found.vectors.append(np.array(rows, np.float32))
        found.clear.extend(f"{place.parent.name}.{name}" for name in sorted(names))
        clean.append(f'sqlite3 "{place}" VACUUM')
    return told(found, "a folder of Qdrant", "; ".join(clean), by)


def _fields(content: Any, place: Path) -> dict[str, Any]:
    try:
        held = _Reader(io.BytesIO(content)).load()
    except Exception:
        raise ValueError(f"PATH: {place} holds a point that cannot be read") from None
    # one without a state was made and never filled
    return getattr(held, "fields", {}) if isinstance(held, _Held) else {}


def _vectors(held: Any) -> list[list[float]]:
    """Return the dense vectors of a point: one, several or by names."""
    if isinstance(held, dict):
        return [row for one in held.values() for row in _vectors(one)]
    if not isinstance(held, list) or not held:
        return []
    if all(isinstance(number, float | int) for number in held):
        return [held]
    return [row for one in held for row in _vectors(one)]


def _other(held: Any) -> bool:
    """Whether there is anything but dense vectors, as sparse ones, which may say the words."""
    if isinstance(held, dict | list):
        return any(map(_other, held.values() if isinstance(held, dict) else held))
    return not isinstance(held, float | int | None)
