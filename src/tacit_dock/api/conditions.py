"""Requests that depend on what is there, or want a part of it (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import Iterable

ANY = "*"
TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*")


def none_matches(header: str | None, tag: str) -> bool:
    """Whether ``If-None-Match`` says that what has a tag is known: the weak comparison.

    Example:
        >>> none_matches('W/"a", "b"', '"a"'), none_matches("*", '"a"'), none_matches(None, '"a"')
        (True, True, False)
    """
    if header is None:
        return False
    return header.strip() == ANY or tag in (held for _, held in _tags(header))


def matches(header: str, tags: Iterable[str]) -> bool:
    """Whether ``If-Match`` names what is there: the strong comparison, in which no weak tag is any.

    Args:
        header: as it came.
        tags: by which what is there is known.

    Example:
        >>> matches('"a", "b"', ['"b"']), matches('W/"b"', ['"b"']), matches("*", ['"b"'])
        (True, False, True)
    """
    strong = {held for weak, held in _tags(header) if not weak}
    return header.strip() == ANY or not strong.isdisjoint(tags)


def part_of(header: str | None, if_range: str | None, tag: str, size: int) -> range | None:
    """Return the bytes that ``Range`` asks for, None for all of them.

    Several parts, other units and what is malformed are not looked at, and neither is a range of
    what has changed.

    Args:
        header: ``Range`` as it came.
        if_range: ``If-Range`` as it came.
        tag: of what is there.
        size: its bytes.

    Returns:
        An empty range where no such byte is there (416).

    Example:
        >>> part_of("bytes=2-", None, '"a"', 10), part_of("bytes=-3", '"a"', '"a"', 10)
        (range(2, 10), range(7, 10))
        >>> part_of("bytes=10-", None, '"a"', 10), part_of("bytes=0-1", '"b"', '"a"', 10)
        (range(0, 0), None)
    """
    found = RANGE.fullmatch(header or "")
    if found is None or found[1] == found[2] == "" or if_range not in (None, tag):
        return None
    if not found[1]:
        start, stop = max(0, size - int(found[2])), size
    else:
        start, stop = int(found[1]), min(size, int(found[2] or size) + 1)
        if found[2] and int(found[2]) < start:
            return None
    return range(start, stop) if start < stop else range(0)


def _tags(header: str) -> list[tuple[bool, str]]:
    """Return the tags of a list, and whether each is weak; none of one that is malformed."""
    found, at = [], 0
    while at < len(header):
        held = TAG.match(header, at)
        if held is None:
            return []
        found.append((held[1] is not None, held[2]))
        at = held.end()
    return found
