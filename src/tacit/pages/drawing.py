"""What the figures are drawn with: SVG whose colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tacit.text import superscript

WIDE, NARROW = 720, 360


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of ``value``."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)


def decades(smallest: float, largest: float) -> tuple[float, float]:
    """Return the logarithms of an axis that holds both values, with room at its ends."""
    low, high = math.log10(smallest), math.log10(largest)
    pad = max(0.06 * (high - low), 0.15)
    return low - pad, high + pad


def decade_ticks(up: Scale, left: float, right: float) -> list[Markup]:
    """Draw a grid line and a power of ten for every decade, fewer where there are many."""
    first, last = math.ceil(up.low), math.floor(up.high)
    every = max(1, math.ceil((last - first + 1) / 7))
    parts = []
    for power in range(first, last + 1, every):
        y = up(power)
        parts.append(line("grid", left, y, right, y))
        parts.append(text(f"10{superscript(power)}", left - 8, y + 4, "tick", "end"))
    if last < first:
        middle = (up.low + up.high) / 2
        label = f"{10**middle:.2g}"
        parts.append(line("grid", left, up(middle), right, up(middle)))
        parts.append(text(label, left - 8, up(middle) + 4, "tick", "end"))
    return parts


def text(words: str, x: float, y: float, kind: str, anchor: str = "start") -> Markup:
    """Draw a piece of text."""
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, words
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Draw a line."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    """Draw a rectangle."""
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        kind, x, y, max(round(width, 2), 0), height
    )


def circle(kind: str, x: float, y: float, radius: float) -> Markup:
    """Draw a circle."""
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(kind, x, y, radius)


def svg(width: int, height: float, title: str, parts: Sequence[Markup]) -> Markup:
    """Return the parts as one figure, with its title for who cannot see it."""
    opening = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}">'
    ).format(width, height, title)
    body = Markup("").join(parts)
    return (
        opening + Markup("<title>") + escape(title) + Markup("</title>") + body + Markup("</svg>")
    )
