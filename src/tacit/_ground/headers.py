"""Headers of safetensors that have the same bytes in every process."""

from __future__ import annotations

import json


def in_order(content: bytes) -> bytes:
    """Return a file of safetensors with its metadata in the order of their names.

    The library writes them in the order of a table whose hashes differ from process to process, so
    that two files of the same content would differ, and their digests with them.

    Args:
        content: what ``safetensors`` wrote.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    held = {"__metadata__": dict(sorted(header.pop("__metadata__", {}).items()))}
    text = json.dumps({**held, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]
