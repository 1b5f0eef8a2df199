"""Paragraphs, lists and numbers as the page prints them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise


def filled(prose: str) -> str:
    """Return paragraphs and lists with lines of equal length."""
    blocks = prose.replace("\n* ", "\n\n* ").split("\n\n")
    lines = [
        textwrap.fill(
            " ".join(block.split()),
            108,
            subsequent_indent="  " if block.startswith("* ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for block in (block.strip() for block in blocks)
        if block
    ]
    joined = lines[0]
    for before, line in pairwise(lines):
        listed = before.startswith("* ") and line.startswith("* ")
        joined += ("\n" if listed else "\n\n") + line
    return joined


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
