"""What the page of a statistic shows of its own: what the noise costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from tacit.pages import NARROW, WIDE, Scale, Section, Sections, figure
from tacit.pages import drawing as draw
from tacit.releases.numbers import Number
from tacit.releases.release import Release
from tacit.text import significant

# Numbers that a figure shows, and letters of a label beside a bar.
MOST_NUMBERS, LABEL_LETTERS = 24, 20


def sections(release: Release[Any]) -> Sections:
    """Return the noise beside the sampling error, where both are known."""
    numbers = tuple(release.numbers or ())
    ratios = noise_ratios(numbers)
    wide, narrow = noise_figure(numbers, width=WIDE), noise_figure(numbers, width=NARROW)
    if wide is None or narrow is None:
        return Sections()
    caption = (
        "Standard deviation of the noise in every number, in units of how much that number varies "
        "over random draws of as many rows. The largest is "
        f"{significant(max(ratio for _, ratio in ratios), 2)}"
    )
    if len(ratios) > MOST_NUMBERS:
        caption += f"; the first {MOST_NUMBERS} numbers are drawn"
    return Sections(parts=(Section("What the noise costs", figure(wide, narrow, f"{caption}.")),))


def noise_figure(numbers: Sequence[Number], *, width: int) -> Markup | None:
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
    far = equal > width / 2
    parts = [
        draw.line("axis", left, bottom, width - right, bottom),
        draw.line("blind", equal, top - 12, equal, bottom),
        draw.text(
            "as large as the sampling error",
            equal - 6 if far else equal + 6,
            top - 18,
            "quiet",
            "end" if far else "start",
        ),
    ]
    # at most six ticks, at 1, 2 or 5 times a power of ten
    power = 10.0 ** math.floor(math.log10(most))
    tick = next(size * power for size in (0.1, 0.2, 0.5, 1.0, 2.0) if most / (size * power) <= 6)
    for index in range(math.floor(most / tick) + 1):
        value = round(index * tick, 12)
        x = scale(value)
        parts.append(draw.line("axis", x, bottom, x, bottom + 5))
        parts.append(draw.text(f"{value:g}", x, bottom + 20, "tick", "middle"))
    for index, (name, ratio) in enumerate(ratios):
        y = top + step * index + (26 if narrow else 12)
        parts.append(draw.line("grid", left, y, width - right, y))
        parts.append(draw.line("bound", left, y, scale(ratio), y))
        short = name if len(name) <= LABEL_LETTERS else f"{name[: LABEL_LETTERS - 2]}…"
        label = f"{short}: {significant(ratio, 2)}"
        x, height, anchor = (left, y - 7, "start") if narrow else (left - 12, y + 4, "end")
        parts.append(draw.text(label, x, height, "bound-text", anchor))
    words = "noise in units of the sampling error"
    parts.append(draw.text(words, width - right, bottom + 40, "quiet", "end"))
    title = "Noise in units of the sampling error: " + "; ".join(
        f"{name} {significant(ratio, 2)}" for name, ratio in ratios
    )
    return draw.svg(width, bottom + 50, title, parts)


def noise_ratios(numbers: Sequence[Number]) -> list[tuple[str, float]]:
    """Return the noise of every number in units of its sampling error, where both are known."""
    return [(one.name, one.error / one.sampling) for one in numbers if one.sampling and one.error]
