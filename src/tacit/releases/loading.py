"""Any stored release, read back in the form that all of them have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tacit.documents import loads, read
from tacit.releases.form import Form, Release, stated

LARGEST_HEADER = 2**27
BYTES_TOGETHER = 2**24


def load(source: Any) -> Form:
    """Return the form of a release given as an object, its dictionary, or the path of its JSON.

    Args:
        source: a ``Release``, the dictionary of one, or the path of its JSON or of a safetensors
            file that holds it, whose rows are held against their digest.

    Returns:
        What was released, its guarantees, attacks and use, whatever workflow made it.

    Raises:
        ValueError: the file is missing or not strict JSON, it is no release, a field is missing or
            out of range, or the rows beside it are others.

    Example:
        >>> load({"format": "other"})
        Traceback (most recent call last):
        ValueError: release: expected a release of tacit, with its form, got format 'other'
    """
    if isinstance(source, Form):
        return source
    if isinstance(source, Release):
        return source.form
    content = read_release(source) if isinstance(source, (str, Path)) else source
    if not isinstance(content, Mapping):
        raise ValueError(f"release: expected a release of tacit, got {type(content).__name__}")
    if "form" not in content:
        found = content.get("format", content.get("kind"))
        raise ValueError(
            f"release: expected a release of tacit, with its form, got format {found!r}"
        )
    form = Form.from_dict(content["form"])
    _check_agreement(content, form)
    provenance = content.get("provenance")
    return stated(form, provenance) if isinstance(provenance, Mapping) else form


def _check_agreement(content: Mapping[str, Any], form: Form) -> None:
    """Refuse a file whose details say something else than its form."""
    stated = content["form"]["guarantees"]
    if content.get("guarantees", stated) != stated:
        raise ValueError("release: the file contradicts itself, 'guarantees' are not its form's")
    for name, value in content.items():
        if isinstance(value, Mapping) and "evidence" in value and value not in stated:
            raise ValueError(f"release: the file contradicts itself, {name!r} is not in its form")
    if content.get("reproducible", form.reproducible) != form.reproducible:
        raise ValueError("release: the file contradicts itself about 'reproducible'")


def read_release(path: str | Path) -> Any:
    """Return the dictionary of a release in a file: JSON, or the header of safetensors.

    Raises:
        ValueError: no such file, it holds no release, or its rows are not those it describes.
    """
    if Path(path).suffix == ".safetensors":
        return _read_tensors(Path(path))
    return read("release", path)


def _read_tensors(path: Path) -> Any:
    """Return the description in the header of a safetensors file, of the rows that are in it."""
    name = os.fspath(path)
    if not path.is_file():
        raise ValueError(f"release: no such file: {name}")
    try:
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = loads(stream.read(min(size, LARGEST_HEADER)))
            content = loads(header["__metadata__"]["tacit"])
            start, end = header[content["tensor"]]["data_offsets"]
            stream.seek(8 + size + start)
            found = _digest(stream, end - start)
        expected = content.get("decoded", content["digest"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"release: {name} holds no release of tacit") from None
    if found != expected:
        raise ValueError(f"release: the rows in {name} are not those that were certified (SHA-256)")
    return content


def _digest(stream: BinaryIO, size: int) -> str:
    found = hashlib.sha256()
    while size > 0:
        part = stream.read(min(size, BYTES_TOGETHER))
        if not part:
            break
        found.update(part)
        size -= len(part)
    return found.hexdigest()
