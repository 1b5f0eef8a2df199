"""Files of tensors whose bytes are the same for the same content."""

from __future__ import annotations

import json
import struct

# Data begin at a multiple of this many bytes.
ALIGNMENT = 8


def in_order(content: bytes) -> bytes:
    """Return a safetensors file with the keys of its metadata in order.

    The library keeps metadata in a table ordered by hashes of a random seed, and tensors in an
    order of their own; offsets count from behind the header, so that it may change its length.
    """
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]
