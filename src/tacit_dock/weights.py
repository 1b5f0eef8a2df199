"""The file of a model, held against the format it must have; nothing in it is ever run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tacit.documents import loads
from tacit_dock.errors import RefusedError
from tacit_dock.texts import check_texts

LENGTH = 8
LONGEST_HEADER, MOST_TENSORS = 4 << 20, 20_000
# bits of a number
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
}
OTHERS = {
    b"PK\x03\x04": "a zip file, as torch.save writes it",
    b"\x1f\x8b": "a gzip file",
    b"\x93NUMPY": "a NumPy file",
    b"\x89HDF": "an HDF5 file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstandard file",
    b"GGUF": "a GGUF file",
}
PICKLE, NEWEST_PICKLE = 0x80, 6


def check_format(name: str, start: bytes) -> None:
    """Refuse what is known to be another format by its first bytes.

    Raises:
        RefusedError: it is a pickle, an archive or another store of arrays (415).
    """
    pickled = len(start) > 1 and start[0] == PICKLE and start[1] <= NEWEST_PICKLE
    # a header of safetensors begins with a brace behind its length
    if pickled and start[LENGTH : LENGTH + 1] != b"{":
        raise RefusedError(415, f"{name}: expected a safetensors file, got a pickle")
    for sign, what in OTHERS.items():
        if start.startswith(sign) and start[LENGTH : LENGTH + 1] != b"{":
            raise RefusedError(415, f"{name}: expected a safetensors file, got {what}")


def check_weights(path: Path, *, name: str = "model") -> None:
    """Hold a file against the safetensors format: every byte belongs to one named tensor.

    Args:
        path: of the file.
        name: what the refusal calls it.

    Raises:
        RefusedError: it is another format (415), or truncated, longer than it says or malformed
            (422).
    """
    size = path.stat().st_size
    with open(path, "rb") as stream:
        start = stream.read(LENGTH + 1)
        check_format(name, start)
        length = int.from_bytes(start[:LENGTH], "little")
        if size <= LENGTH or not 2 <= length <= min(LONGEST_HEADER, size - LENGTH):
            raise RefusedError(422, f"{name}: expected a safetensors file, got part of one or none")
        stream.seek(LENGTH)
        text = stream.read(length)
    try:
        header = loads(text, name=name, source="its header")
    except ValueError as error:
        raise RefusedError(422, str(error)) from None
    if not isinstance(header, dict):
        raise RefusedError(422, f"{name}: expected a header of names and tensors")
    if len(header) > MOST_TENSORS:
        raise RefusedError(422, f"{name}: expected at most {MOST_TENSORS} tensors")
    check_texts(name, header)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise RefusedError(422, f"{name}: expected metadata of text")
    spans = sorted(_span(name, label, entry) for label, entry in header.items())
    end = 0
    for first, last in spans:
        if first != end:
            raise RefusedError(422, f"{name}: expected tensors that fill the file without overlap")
        end = last
    if end != size - LENGTH - length:
        raise RefusedError(
            422, f"{name}: expected {end} bytes of tensors, got {size - LENGTH - length}"
        )


def _span(name: str, label: str, entry: Any) -> tuple[int, int]:
    """Return where a tensor is, checked against its shape and type."""
    if label.startswith("/") or "\\" in label:
        raise RefusedError(422, f"{name}: expected names of tensors that are no paths")
    try:
        shape, (first, last), bits = entry["shape"], entry["data_offsets"], BITS[entry["dtype"]]
        whole = [_natural(side) for side in (*shape, first, last)]
    except (KeyError, TypeError, ValueError):
        raise RefusedError(422, f"{name}: expected every tensor with shape and place") from None
    sides, (begin, end) = whole[:-2], whole[-2:]
    if len(sides) > 64 or (end - begin) * 8 != math.prod(sides) * bits:
        raise RefusedError(422, f"{name}: expected every tensor as long as its shape says")
    return begin, end


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise ValueError
    return value
