"""Collections of Qdrant's client in a folder: pickles in SQLite, of which nothing is run."""

from __future__ import annotations

import io
import pickle
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.stores.audit.opened import OpenedStore, Rows, StoredColumns, StoredTables, told

STORAGE = "storage.sqlite"
# Parts of a point, of each of its bytes: a part is a byte at least, and some may stand twice.
MOST_TIMES = 8


class _Held:
    """In the place of every class that a pickle names: it keeps its state and does nothing."""

    def __init__(self, *_: Any) -> None:
        self.fields: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        found = state.get("__dict__") if isinstance(state, dict) else None
        self.fields = found if isinstance(found, dict) else {}


class _Reader(pickle._Unpickler):
    """Reads a point, and takes no more time and memory than its bytes do.

    In Python: C's remembers what it read in a list, as long as a number in the file says. Texts
    alone are looked up, and what else is a key stands as its kind: numbers may be made whose places
    in a table are one, and sets of sets are compared as often as there are ways through them.
    """

    def find_class(self, module: str, name: str) -> Any:
        return _Held


def _mapped(held: Any, items: Sequence[Any]) -> Any:
    for key, value in zip(items[::2], items[1::2], strict=True):
        held[key if isinstance(key, str) else type(key).__name__] = value
    return held


def _set_item(reader: Any) -> None:
    *rest, key, value = reader.stack[-3:]
    del reader.stack[-2:]
    _mapped(rest[0], (key, value))


def _set_items(reader: Any) -> None:
    items = reader.pop_mark()
    _mapped(reader.stack[-1], items)


def _dictionary(reader: Any) -> None:
    items = reader.pop_mark()
    reader.append(_mapped({}, items))


def _added(reader: Any) -> None:
    # what stands in a set is left out
    reader.pop_mark()


def _frozen_set(reader: Any) -> None:
    reader.pop_mark()
    reader.append(frozenset())


_Reader.dispatch = {
    **pickle._Unpickler.dispatch,
    pickle.SETITEM[0]: _set_item,
    pickle.SETITEMS[0]: _set_items,
    pickle.DICT[0]: _dictionary,
    pickle.FROZENSET[0]: _frozen_set,
    pickle.ADDITEMS[0]: _added,
}
# as many zeros as a number in the file says
del _Reader.dispatch[pickle.BYTEARRAY8[0]]


@dataclass(frozen=True)
class _Point:
    """What is read of a point: its dense vectors, names of its fields, and whom it is about."""

    rows: list[Rows]
    names: set[str]
    person: str | None


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
            columns, held = StoredTables(place).read("points")
            points = [row[columns.index("point")] for row in held]
        except (sqlite3.DatabaseError, ValueError):
            raise ValueError(f"PATH: {place} is not a collection of Qdrant") from None
        rows: list[Rows] = []
        for content in points:
            try:
                point = _point(content, by)
            except Exception:  # whatever a made-up point holds, it is one that cannot be read
                raise ValueError(f"PATH: {place} holds a point that cannot be read") from None
            rows += point.rows
            names |= point.names
            if point.person is not None:
                found.counts[point.person] += 1
        if len({len(row) for row in rows}) == 1:
            found.vectors.append(np.stack(rows))
        found.clear.extend(f"{place.parent.name}.{name}" for name in sorted(names))
        clean.append(f'sqlite3 "{place}" VACUUM')
    return told(found, "a folder of Qdrant", "; ".join(clean), by)


def _point(content: bytes, by: str | None) -> _Point:
    held = _Reader(io.BytesIO(content)).load()
    # one without a state was made and never filled
    fields = getattr(held, "fields", {}) if isinstance(held, _Held) else {}
    payload = fields.get("payload") or {}
    rows, other = _vectors(fields.get("vector"), MOST_TIMES * len(content))
    names = {"id", *payload}
    if other:
        names.add("vector, of numbers that are not read")
    person = payload.get(by)
    plain = person is None or isinstance(person, str | float | int)
    told = str(person) if plain else type(person).__name__
    return _Point(rows, names, told if by in payload else None)


def _vectors(held: Any, most: int) -> tuple[list[Rows], bool]:
    """Return the dense vectors of a point: one, several or by names.

    Args:
        held: what is kept of them.
        most: how many parts are looked at: one that is named twice is two.

    Returns:
        The vectors, and whether there is anything else, as sparse ones, which may say the words.
    """
    rows, other, waiting = [], False, [held]
    while waiting:
        one = waiting.pop()
        many = len(one) if isinstance(one, dict | list) else 0
        most -= 1 + many
        if most < 0:
            raise ValueError("vector: expected each of its parts once")
        if isinstance(one, list) and many and all(isinstance(part, float | int) for part in one):
            rows.append(np.array(one, np.float32))
        elif isinstance(one, dict | list):
            waiting.extend(reversed(one if isinstance(one, list) else list(one.values())))
        else:
            other = other or not isinstance(one, float | int | None)
    return rows, other
