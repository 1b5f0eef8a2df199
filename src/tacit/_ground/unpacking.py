"""Compressed content, unpacked as far as an honest file goes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

# What may always be unpacked, and beyond that how many times its size: texts and numbers shrink to
# a twentieth, a file that is made to fill a memory to a thousandth and less.
MOST_BYTES, MOST_TIMES = 1 << 30, 100
PART = 1 << 20


class ExpandedError(ValueError):
    """It expands to more than an honest file does."""


def check_expanded(size: int, packed: int, label: str) -> None:
    """Refuse what expands to more than an honest file does.

    Args:
        size: bytes that it expands to.
        packed: bytes that it has.
        label: what a refusal calls it, after the name of the argument.

    Raises:
        ExpandedError: it is more than 1 GiB and more than a hundred times its size.
    """
    if size > max(MOST_BYTES, MOST_TIMES * packed):
        raise ExpandedError(
            f"{label} expands to more than {MOST_TIMES} times its size: if you trust it, give what "
            "it holds"
        )


def unpacked(opened: Callable[[io.BytesIO], Any], content: bytes, label: str) -> bytes:
    """Return what a compressed content expands to.

    Args:
        opened: such as ``gzip.open``.
        content: of the file.
        label: what a refusal calls it, after the name of the argument.

    Raises:
        ExpandedError: it expands to more than 1 GiB and more than a hundred times its size.

    Example:
        >>> import gzip
        >>> unpacked(gzip.open, gzip.compress(b"a,b"), "data: it")
        b'a,b'
    """
    whole = io.BytesIO()
    with opened(io.BytesIO(content)) as stream:
        while part := stream.read(PART):
            whole.write(part)
            check_expanded(whole.tell(), len(content), label)
    return whole.getvalue()
