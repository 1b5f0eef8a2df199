"""A bound on success as a line, and what attackers reached as points with intervals."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from markupsafe import Markup

from tacit.guarantees.one_line import question
from tacit.measured import Interval
from tacit.pages import drawing as draw
from tacit.pages.drawing import WIDE, Scale
from tacit.pages.words import plus_minus
from tacit.text import percent, share_nearest, share_up

# Pixels that a character of a label takes at most, on average.
CHARACTER = 7.2


@dataclass(frozen=True, kw_only=True)
class SuccessPlot:
    """What is drawn: the bound, guessing blind, and one row per measurement.

    Attributes:
        task: what is guessed, as in "<task> guessed right".
        bound: largest success that the guarantee allows.
        prior: success of guessing blind.
        void: whether the guarantee is void.
        rows: (label, what was measured).
    """

    task: str
    bound: float
    prior: float
    void: bool
    rows: tuple[tuple[str, Interval], ...]


def success_figure(plot: SuccessPlot, *, width: int) -> Markup:
    """Draw the success bound as a line beside the measured attacks as points with intervals."""
    narrow = width < WIDE
    promise = "void: would be at most" if plot.void else "guaranteed: at most"
    left = 12 if narrow else 196
    top, step = 58, 66 if narrow else 44
    bottom = top + max(step * len(plot.rows), 30)
    scale = Scale(*_range(plot), left, width - 16)
    blind, limit = scale(plot.prior), scale(plot.bound)
    parts = [
        draw.rect("excluded", limit, top - 8, width - 16 - limit, bottom - top + 8),
        draw.line("axis", left, bottom, width - 16, bottom),
        *_percent_ticks(scale, bottom, 4 if narrow else 6),
        draw.line("blind", blind, top - 8, blind, bottom),
        draw.line("bound", limit, top - 32, limit, bottom),
        _label(f"{promise} {share_up(plot.bound)}", limit, 18, "bound-text", width, left),
        _label(
            f"guessing blind {share_nearest(plot.prior)}", blind, 42, "quiet", width, left, limit
        ),
    ]
    for index, (name, measured) in enumerate(plot.rows):
        y = top + step * index + (46 if narrow else 20)
        parts += _measurement(scale, y, measured.value, (measured.low, measured.high))
        spread = plus_minus(measured)
        if narrow:
            parts.append(draw.text(name, left, y - 28, "measured-text"))
            parts.append(draw.text(spread, left, y - 12, "quiet"))
        else:
            # an interval too long for the margin stands on a line of its own
            cut = len(spread) * CHARACTER > left - 16
            said = spread.replace(" [", "\n[").splitlines() if cut else [spread]
            for line, words in enumerate([name, *said]):
                height = y + 5 - 8 * len(said) + 16 * line
                kind = "quiet" if line else "measured-text"
                parts.append(draw.text(words, left - 16, height, kind, "end"))
    below = textwrap.wrap(f"{question(plot.task)}: guessed right", int((width - 28) / CHARACTER))
    for index, words in enumerate(below):
        parts.append(draw.text(words, width - 16, bottom + 38 + 16 * index, "quiet", "end"))
    title = f"Success of guessing {plot.task}: bound {share_up(plot.bound)}" + "".join(
        f"; {name} measured {percent(measured.value)}" for name, measured in plot.rows
    )
    return draw.svg(width, bottom + 32 + 16 * len(below), title, parts)


def _range(plot: SuccessPlot) -> tuple[float, float]:
    ends = [end for _, measured in plot.rows for end in (measured.low, measured.high)]
    values = [plot.prior, plot.bound, *ends]
    low, high = min(values), max(values)
    pad = max(0.12 * (high - low), 0.004)
    return max(low - pad, 0.0), min(high + pad, 1.0 + 0.25 * pad)


def _percent_ticks(scale: Scale, y: float, count: int) -> list[Markup]:
    span = scale.high - scale.low
    power = 10.0 ** math.floor(math.log10(span / count))
    # at most ``count`` steps, more where fewer than three marks would be left
    steps = [power * factor for factor in (0.5, 1, 2, 5, 10)]
    place = next(index for index, one in enumerate(steps) if one >= span / count)
    step = steps[place if span / steps[place] >= 2.5 or place == 0 else place - 1]
    digits = max(0, -math.floor(math.log10(step * 100) + 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    parts = []
    for index in range(first, math.floor(min(scale.high, 1.0) / step + 1e-9) + 1):
        x = scale(index * step)
        parts.append(draw.line("axis", x, y, x, y + 5))
        parts.append(draw.text(f"{index * step * 100:.{digits}f}%", x, y + 20, "tick", "middle"))
    return parts


def _measurement(
    scale: Scale, y: float, success: float, interval: tuple[float, float]
) -> list[Markup]:
    low, high = scale(interval[0]), scale(interval[1])
    return [
        draw.line("measured", low, y, high, y),
        draw.line("measured", low, y - 5, low, y + 5),
        draw.line("measured", high, y - 5, high, y + 5),
        draw.circle("measured-point", scale(success), y, 5),
    ]


def _label(
    text: str, x: float, y: float, kind: str, width: int, left: float, line: float | None = None
) -> Markup:
    """Return a label beside x, on a side with room and without the line at ``line``."""
    room_right = min(width - 16, math.inf if line is None or line < x else line) - x
    room_right = room_right > CHARACTER * len(text)
    room_left = x - 4 > CHARACTER * len(text)
    if not room_right and not room_left:
        return draw.text(text, width - 16, y, kind, "end")
    if room_right and (x < (left + width) / 2 or not room_left):
        return draw.text(text, x + 6, y, kind)
    return draw.text(text, x - 6, y, kind, "end")
