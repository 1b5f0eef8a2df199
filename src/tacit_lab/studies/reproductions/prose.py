"""Paragraphs, lists and numbers as the page prints them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise

# a part of an item of a list, on a line of its own
PART = "\n  * "


def filled(prose: str) -> str:
    """Return paragraphs and lists with lines of equal length."""
    blocks = prose.replace(PART, f"\n{PART}").replace("\n* ", "\n\n* ").split("\n\n")
    lines = [_block(block) for block in blocks if block.strip()]
    joined = lines[0]
    for before, line in pairwise(lines):
        listed = before.lstrip().startswith("* ") and line.lstrip().startswith("* ")
        joined += ("\n" if listed else "\n\n") + line
    return joined


def parts(opening: str, told: Iterable[str]) -> str:
    """Return an item of a list whose parts stand in a list of their own."""
    return "".join([opening, *(f"{PART}{part}" for part in told)])


def _block(block: str) -> str:
    indent = "  " if f"\n{block}".startswith(PART) else ""
    words = " ".join(block.split())
    return textwrap.fill(
        words,
        108,
        initial_indent=indent,
        subsequent_indent=indent + ("  " if words.startswith("* ") else ""),
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table and an empty one after it."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def rounded_up(value: float, digits: int = 4) -> str:
    """Return decimals rounded up: a bound from above."""
    scale = 10.0**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def rounded_down(value: float, digits: int = 4) -> str:
    """Return decimals rounded down: a bound from below."""
    scale = 10.0**digits
    return f"{math.floor(value * scale + 1e-9) / scale:.{digits}f}"
