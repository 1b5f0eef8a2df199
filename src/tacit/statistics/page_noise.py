"""Noise beside the sampling error of every released number, as SVG in the page's colours."""

from __future__ import annotations

import math

from markupsafe import Markup

from tacit.releases.form import Number
from tacit.report import drawing as draw
from tacit.report.drawing import WIDE, Scale
from tacit.text import significant

MOST_NUMBERS = 24


def noise_figure(numbers: tuple[Number, ...], *, width: int) -> Markup | None:
    """Draw the noise of every number in units of its sampling error.

    None where no number has both.
    """
    ratios = noise_ratios(numbers)[:MOST_NUMBERS]
    if not ratios:
        return None
    narrow = width < WIDE
    left, right = (14, 14) if narrow else (196, 24)
    top, step = 44, 40 if narrow else 26
    bottom = top + step * len(ratios)
    most = 1.08 * max(1.0, *(ratio for _, ratio in ratios))
    scale = Scale(0.0, most, left, width - right)
    equal = scale(1.0)
    parts = [
        draw.line("axis", left, bottom, width - right, bottom),
        draw.line("blind", equal, top - 12, equal, bottom),
        draw.text("as large as the sampling error", equal - 6, top - 18, "quiet", "end")
        if equal > width / 2
        else draw.text("as large as the sampling error", equal + 6, top - 18, "quiet"),
    ]
    for value in _ticks(most):
        x = scale(value)
        parts.append(draw.line("axis", x, bottom, x, bottom + 5))
        parts.append(draw.text(f"{value:g}", x, bottom + 20, "tick", "middle"))
    for index, (name, ratio) in enumerate(ratios):
        y = top + step * index + (26 if narrow else 12)
        x = scale(ratio)
        parts.append(draw.line("grid", left, y, width - right, y))
        parts.append(draw.line("bound", left, y, x, y))
        label = f"{_short(name)}: {significant(ratio, 2)}"
        if narrow:
            parts.append(draw.text(label, left, y - 7, "bound-text"))
        else:
            parts.append(draw.text(label, left - 12, y + 4, "bound-text", "end"))
    words = "noise in units of the sampling error"
    parts.append(draw.text(words, width - right, bottom + 40, "quiet", "end"))
    title = "Noise in units of the sampling error: " + "; ".join(
        f"{name} {significant(ratio, 2)}" for name, ratio in ratios
    )
    return draw.svg(width, bottom + 50, title, parts)


def noise_ratios(numbers: tuple[Number, ...]) -> list[tuple[str, float]]:
    """Return the noise of every number in units of its sampling error, where both are known."""
    return [(one.name, one.error / one.sampling) for one in numbers if one.sampling and one.error]


def _ticks(most: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(most))
    step = next(size * power for size in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (size * power) <= 6)
    return [round(index * step, 12) for index in range(math.floor(most / step) + 1)]


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:18]}…"
