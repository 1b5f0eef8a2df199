"""Exact vectors in files of any kind: live, deleted, in logs and old versions, however spelled."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

# how vectors are written: numbers one after the other, and the base64 of these
FORMS = {
    **{"float32": "<f4", "float16": "<f2", "float64": "<f8"},
    **{"float32, bytes swapped": ">f4", "float16, bytes swapped": ">f2"},
    "float64, bytes swapped": ">f8",
}
# numbers of a row that are looked for as text, from the front and from the back
TEXT_NUMBERS = 4
# bytes by which a vector is looked for, and by which it is recognised: 8 floats, of which no two
# vectors have all alike by chance; from the front and from the back, as pages may cut it
KEY_BYTES, SEEN_BYTES = 8, 32
COLUMN_ROWS = SEEN_BYTES // 4
# rows that are looked for in one pass over the files: what is looked for of more takes a gigabyte
ROWS_TOGETHER = 2**16
# bytes of a file that are read at once; blocks overlap by what is recognised
BLOCK_BYTES = 2**24
# of a first look: keys whose hash no vector has are passed over without a search
HASH_BITS = 22
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Vectors that were found in a file.

    Attributes:
        file: below the path that was looked at.
        form: how they are spelled.
        vectors: how many different ones.
    """

    file: str
    form: str
    vectors: int


@dataclass(frozen=True, eq=False)
class _Needles:
    """What is looked for, in the order of the keys."""

    form: str
    keys: npt.NDArray[np.uint64]
    seen: list[bytes]
    owners: npt.NDArray[np.intp]
    hashes: npt.NDArray[np.bool_]


def find_vectors(path: Path, vectors: npt.NDArray[np.float32]) -> tuple[Trace, ...]:
    """Return in which files below a path how many of these vectors stand, in any usual spelling.

    Every byte of every file is looked at, whatever the file is: for floats of three widths in both
    orders of bytes, their base64, lists of numbers as text with commas between or pickled, and
    columns in the order of the rows that are given. What is compressed, encrypted, rounded or
    scaled to whole numbers is not found.

    Args:
        path: a file, with the logs of SQLite beside it, or a folder.
        vectors: (n, d), whose rows are looked for.
    """
    # a database of SQLite has its newest or its former rows in a log beside it
    alone = [Path(f"{path}{end}") for end in ("", "-wal", "-journal")]
    places = [one for one in (sorted(path.rglob("*")) if path.is_dir() else alone) if one.is_file()]
    owners: dict[Path, dict[str, set[int]]] = {place: {} for place in places}
    for start in range(0, len(vectors), ROWS_TOGETHER):
        # with the rows after them that a run of a column goes on with
        sought = list(_sought(vectors[start : start + ROWS_TOGETHER + COLUMN_ROWS - 1]))
        for place in places:
            for block in _blocks(place):
                for form, held in _owners(block, sought).items():
                    owners[place].setdefault(form, set()).update(start + one for one in held)
    return tuple(
        Trace(
            file=str(place.relative_to(path)) if path.is_dir() else place.name,
            form=form,
            vectors=len(held),
        )
        for place, forms in owners.items()
        for form, held in forms.items()
        if held
    )


def _sought(vectors: npt.NDArray[np.float32]) -> Iterator[_Needles]:
    for form, kind in FORMS.items():
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(vectors.astype(kind))
        raw = rows.view(np.uint8).reshape(len(rows), -1)
        yield _needles(form, _ends(raw))
        coded = [_spelled(row.tobytes()) for row in raw]
        pieces = [(n, piece) for n, held in enumerate(coded) for piece in held]
        yield _needles(f"base64 of {form}", pieces)
    # a list of numbers as Python pickles it: a letter and 8 bytes each, the highest first
    turned = vectors.astype(">f8").view(np.uint8).reshape(len(vectors), -1, 8)
    marked = np.insert(turned, 0, ord("G"), axis=2).reshape(len(vectors), -1)
    yield _needles("pickled floats", _ends(marked))
    yield _needles("numbers as text", list(_written(vectors)))
    # a column store has the first numbers of all rows one after the other
    column = np.ascontiguousarray(vectors[:, 0]).view(np.uint8).tobytes()
    starts = range(0, max(0, len(column) - SEEN_BYTES + 1), 4)
    pieces = [(n // 4, column[n : n + SEEN_BYTES]) for n in starts]
    # numbers that repeat stand in files of every kind
    varied = [(n, piece) for n, piece in pieces if len(set(memoryview(piece).cast("i"))) > 4]
    yield _needles("columns of float32", varied)


def _written(vectors: npt.NDArray[np.float32]) -> Iterator[tuple[int, bytes]]:
    """Yield the text of numbers at both ends of each row, as JSON and CSV have them."""
    for place, row in enumerate(vectors):
        for part in (row[:TEXT_NUMBERS], row[-TEXT_NUMBERS:]):
            # the digits of a float64, and the fewest that tell a float32
            for digits in ([repr(n) for n in part.tolist()], [str(n) for n in part]):
                for between in (", ", ","):
                    piece = between.join(digits).encode()[:SEEN_BYTES]
                    # zeros and small whole numbers are in any file
                    if sum(piece.count(digit) for digit in b"123456789") > KEY_BYTES:
                        yield place, piece


def _ends(raw: Bytes) -> list[tuple[int, bytes]]:
    """Return the bytes at both ends of each row, but of rows that begin or end alike: of zeros."""
    size = min(SEEN_BYTES, raw.shape[1])
    found = []
    for place, row in enumerate(raw):
        for piece in (row[:size], row[len(row) - size :]):
            # zeros stand in files of every kind, and tell nothing
            if np.count_nonzero(piece[:KEY_BYTES]) > 2:
                found.append((place, piece.tobytes()))
    return found


def _spelled(content: bytes) -> list[bytes]:
    """Return the base64 of bytes that start at any of three places of a longer text."""
    found = []
    for phase in range(3):
        part = content[phase : phase + 3 * (SEEN_BYTES // 4)]
        text = base64.b64encode(part[: 3 * (len(part) // 3)])
        # of zeros it stands in files of every kind, as zeros do
        if len(text) >= KEY_BYTES and sum(map(bool, part[:KEY_BYTES])) > 2:
            found.append(text)
    return found


def _needles(form: str, pieces: list[tuple[int, bytes]]) -> _Needles:
    pieces = [(owner, piece) for owner, piece in pieces if len(piece) >= KEY_BYTES]
    joined = b"".join(piece[:KEY_BYTES] for _, piece in pieces)
    keys = np.frombuffer(joined, "<u8")
    order = np.argsort(keys, kind="stable")
    hashes = np.zeros(2**HASH_BITS, bool)
    hashes[_hashed(keys)] = True
    return _Needles(
        form,
        keys[order],
        [pieces[place][1] for place in order.tolist()],
        np.array([pieces[place][0] for place in order.tolist()], np.intp),
        hashes,
    )


def _hashed(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    # multiplication modulo 2⁶⁴; its highest bits depend on all bits of the key
    return ((keys * MULTIPLIER) >> np.uint64(64 - HASH_BITS)).astype(np.intp)


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            last = b""
            while content := stream.read(BLOCK_BYTES):
                yield last + content
                # what is cut between two blocks is whole in the second
                last = (last + content)[-(SEEN_BYTES - 1) :]
    except FileNotFoundError:
        # a file of a server that runs, gone since it was listed
        return
    except OSError as error:
        raise ValueError(f"PATH: cannot read {path} ({error.strerror})") from None


def _owners(block: bytes, sought: list[_Needles]) -> dict[str, set[int]]:
    """Return whose vectors stand in a block, by form."""
    found: dict[str, set[int]] = {needles.form: set() for needles in sought if len(needles.keys)}
    any_of = np.logical_or.reduce([needles.hashes for needles in sought])
    for phase in range(KEY_BYTES):
        count = (len(block) - phase) // KEY_BYTES
        if count <= 0:
            break
        words = np.frombuffer(block, "<u8", count, phase)
        # once for all forms: most of the time goes into this
        hashes = _hashed(words)
        some = np.flatnonzero(any_of[hashes])
        for needles in sought:
            if len(needles.keys):
                near = some[needles.hashes[hashes[some]]]
                found[needles.form].update(_recognised(block, words, phase, near, needles))
    return found


def _recognised(
    block: bytes,
    words: npt.NDArray[np.uint64],
    phase: int,
    near: npt.NDArray[np.intp],
    needles: _Needles,
) -> set[int]:
    """Return the owners of what begins at words whose hash some vector has."""
    found: set[int] = set()
    first = np.searchsorted(needles.keys, words[near])
    for at, place in zip(near.tolist(), first.tolist(), strict=True):
        key, start = words[at], phase + KEY_BYTES * at
        while place < len(needles.keys) and needles.keys[place] == key:
            if block.startswith(needles.seen[place], start):
                found.add(int(needles.owners[place]))
            place += 1
    return found
