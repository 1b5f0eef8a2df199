"""Text from elsewhere: what a database, a page or a terminal would stumble over is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tacit_dock.errors import RefusedError

# Control characters but tab and ends of lines, signs that turn or break what is shown, and halves
# of characters, which UTF-8 has not.
BAD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CLIMBING = re.compile(r"(^|[/\\])\.\.([/\\]|$)")
DEEPEST = 32


def json_text(content: Any) -> str:
    """Return strict JSON in ASCII: no text that a client sent can fail to be encoded."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def check_text(name: str, text: str, *, longest: int | None = None) -> str:
    """Return a text that can be stored and shown anywhere.

    Raises:
        RefusedError: it holds control characters, half characters or a path that climbs, or is
            too long (422).
    """
    if BAD.search(text):
        raise RefusedError(422, f"{name}: expected text without control characters")
    if CLIMBING.search(text):
        raise RefusedError(422, f"{name}: expected no path that leaves its folder")
    if longest is not None and len(text) > longest:
        raise RefusedError(422, f"{name}: expected at most {longest} characters, got {len(text)}")
    return text


def check_texts(name: str, value: Any, *, depth: int = DEEPEST) -> None:
    """Refuse a JSON-able value any of whose texts `check_text` refuses, or that is too deep.

    Raises:
        RefusedError: as `check_text` (422).
    """
    if depth < 0:
        raise RefusedError(422, f"{name}: expected at most {DEEPEST} levels")
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, Mapping):
        for key, held in value.items():
            check_text(name, str(key))
            check_texts(name, held, depth=depth - 1)
    elif isinstance(value, (list, tuple)):
        for held in value:
            check_texts(name, held, depth=depth - 1)


def check_file_name(name: str, given: str) -> None:
    """Refuse a file name that is a path; a name that is none is never used either.

    Raises:
        RefusedError: it holds a separator, or is a step up (422).
    """
    if re.search(r"[/\\\x00]", given) or given in (".", "..") or BAD.search(given):
        raise RefusedError(422, f"{name}: expected a plain file name, got a path")
