"""Any stored release, read back, worked out again and held against the attacks on it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit._ground.files import read_bytes, spelled
from tacit.documents import loads, read
from tacit.releases.contradiction import refuted
from tacit.releases.kinds import kind_named
from tacit.releases.proof import PROOF, check_proof, proof_of
from tacit.releases.release import Release
from tacit.releases.stores import RowDetails, certified, is_store, open_store, read_store

# Pages that hold the JSON of a release, and where it stands in them.
PAGES = (".html", ".htm")
OPENED = re.compile(r'<script type="application/json" id="tacit-(?:certificate|release)">')
CLOSED = "</script>"


@dataclass(frozen=True, eq=False)
class Read:
    """A release that was read, and what of it could not be worked out again.

    Attributes:
        release: what was released.
        unchecked: why what it claims is not worked out again, as the end of a sentence; empty
            where it was.
        proof: what a checker would read of it; None where there is none.
        removed: whether the file has no proof, though one follows from what it says.
    """

    release: Release[Any]
    unchecked: str = ""
    proof: Mapping[str, Any] | None = None
    removed: bool = False


def load(source: Any) -> Release[Any]:
    """Return a release given as an object, its dictionary, or the path of its file.

    What the file lets one work out again is worked out again, whatever workflow made it.

    Args:
        source: a ``Release``, its ``to_dict()``, the path of its JSON, of a certificate or a
            report that holds it, or of a file of rows with its certificate (``.safetensors``,
            ``.parquet``, or ``.npy`` beside ``.npy.json``), whose rows are held against their
            digest.

    Returns:
        What was released, its guarantees, attacks, use and details.

    Raises:
        ValueError: the file is missing or not strict JSON, it is no release, a field is missing or
            out of range, its parts contradict each other, the rows beside it are others, or a
            stored attack did better than a stored guarantee allows.

    Example:
        >>> load({"format": "other"})
        Traceback (most recent call last):
        ValueError: release: expected a document of format 'tacit.release', got 'other'
    """
    release = read_checked(source).release
    wrong = None if isinstance(source, Release) else refuted(release)
    if wrong is not None:
        raise ValueError(f"release: the file contradicts itself: {wrong}")
    return release


def read_checked(source: Any, *, content: Any = None) -> Read:
    """Return what ``load`` does, of a release too whose attacks refute its guarantees.

    Args:
        source: as for ``load``.
        content: what ``read_release`` gave of that path already: a pipe is read once.

    Raises:
        ValueError: as ``load``.
    """
    if isinstance(source, Release):
        proof = proof_of(source)
        return Read(source, proof=None if proof is None else proof.to_dict())
    place = Path(spelled("release", source)) if isinstance(source, (str, os.PathLike)) else None
    if content is None:
        content = source if place is None else read_release(place)
    if not isinstance(content, Mapping):
        raise ValueError(f"release: expected a release of tacit, got {type(content).__name__}")
    release = Release.from_dict(content)
    kind = kind_named(release.kind)
    try:
        unchecked = kind.recompute(release)
        if place is not None and is_store(place):
            if kind.rows is None:
                raise ValueError(f"no file of rows has a release of kind {kind.name!r}")
            unchecked = "; ".join(filter(None, (unchecked, kind.rows(release, place))))
        if PROOF in content:
            check_proof(content[PROOF], release)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"release: the file contradicts itself: {error}") from None
    stated = content.get(PROOF)
    removed = stated is None and proof_of(release) is not None
    return Read(release, unchecked, stated, removed)


def load_rows(path: str | os.PathLike[str]) -> Release[Any]:
    """Return the release in a file of rows with the rows themselves among its details.

    Args:
        path: what ``save_rows`` wrote, or ``prepare_codes(..., out=...)``.

    Raises:
        ValueError: as ``load``, or the file holds what was worked out of rows, not the rows.
    """
    place = Path(spelled("release", path))
    if not is_store(place):
        raise ValueError(f"release: expected a file of rows, got {place}")
    release, found = read_checked(place).release, open_store(place)
    details = release.details
    if found.certificate.decoded or not isinstance(details, RowDetails):
        raise ValueError(f"release: expected the rows that were released, got others in {place}")
    rows = np.concatenate(list(found.rows.blocks()))
    return replace(release, details=details.filled(rows, found.parts))


def read_release(path: str | os.PathLike[str]) -> Any:
    """Return the dictionary of a release in a file: JSON, a page, or a file of rows.

    Raises:
        ValueError: no such file, it holds no release, or its rows are not those it describes.
    """
    place = Path(spelled("release", path))
    if place.suffix.lower() in PAGES:
        return _embedded(place)
    return read_store(place) if is_store(place) else certified(read("release", path))


def _embedded(place: Path) -> Any:
    """Return the JSON inside a certificate or a report: what its words say is not read."""
    text = read_bytes("release", place).decode("utf-8", "replace")
    # openings alone are sought: what closes them would be sought from each to the end
    found = [text[one.end() :].partition(CLOSED) for one in islice(OPENED.finditer(text), 2)]
    if len(found) != 1 or not found[0][1]:
        raise ValueError(
            f"release: expected a page with the JSON of one release, got "
            f"{'more' if len(found) > 1 else 'none'} in {place}"
        )
    return loads(found[0][0], name="release", source=str(place))
