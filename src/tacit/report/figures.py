"""The two figures of a report, drawn as SVG whose colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from tacit._validation import Array
from tacit.report.record import AttackRecord, ReleaseRecord
from tacit.report.words import percent, percent_up, superscript

WIDE, NARROW = 720, 360
MOST_POINTS = 90


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


def success_figure(release: ReleaseRecord, bound: float, *, width: int) -> Markup:
    """Draw the success bound as a line beside the measured attack as points with intervals."""
    narrow = width < WIDE
    rows = [] if release.attack is None else _attack_rows(release.attack)
    promise = "void: would be at most" if release.reproducible else "guaranteed: at most"
    left = 12 if narrow else 196
    top, step = 58, 56 if narrow else 44
    bottom = top + max(step * len(rows), 30)
    scale = Scale(*_success_range(release, bound), left, width - 16)
    blind, limit = scale(release.prior), scale(bound)
    parts = [
        _rect("excluded", limit, top - 8, width - 16 - limit, bottom - top + 8),
        _line("axis", left, bottom, width - 16, bottom),
        *_percent_ticks(scale, bottom, 4 if narrow else 6),
        _line("blind", blind, top - 8, blind, bottom),
        _label(f"guessing blind {percent(release.prior)}", blind, 42, "quiet", width, left),
        _line("bound", limit, top - 32, limit, bottom),
        _label(f"{promise} {percent_up(bound)}", limit, 18, "bound-text", width, left),
    ]
    for index, (name, success, interval) in enumerate(rows):
        y = top + step * index + (34 if narrow else 20)
        parts += _measurement(scale, y, success, interval)
        spread = f"{percent(success)} [{percent(interval[0])[:-1]}, {percent(interval[1])[:-1]}]"
        if narrow:
            parts.append(_text(f"{name}: {spread}", left, y - 14, "measured-text"))
        else:
            parts.append(_text(name, left - 16, y - 3, "measured-text", "end"))
            parts.append(_text(spread, left - 16, y + 13, "quiet", "end"))
    parts.append(_text("membership guessed right", width - 16, bottom + 38, "quiet", "end"))
    title = f"Success of guessing membership: bound {percent_up(bound)}" + "".join(
        f"; {name} measured {percent(success)}" for name, success, _ in rows
    )
    return _svg(width, bottom + 48, title, parts)


def variance_figure(release: ReleaseRecord, *, width: int) -> Markup | None:
    """Draw noise variance (line) beside output variance (points) per direction, log axis.

    None when nothing is above zero, so that there is no logarithm to draw.
    """
    output, noise = _thinned(release.principal_output_variance, release.principal_noise_variance)
    drawn = np.concatenate([output[output > 0], noise[noise > 0]])
    if drawn.size == 0:
        return None
    narrow = width < WIDE
    left, right, top, bottom = (44, 14, 48, 250) if narrow else (56, 168, 16, 280)
    low, high = _decades(float(drawn.min()), float(drawn.max()))
    across = Scale(0.5, len(noise) + 0.5, left, width - right)
    up = Scale(low, high, bottom, top)
    parts = [
        *_decade_ticks(up, left, width - right),
        _line("axis", left, bottom, width - right, bottom),
        *_direction_ticks(across, release.principal_noise_variance.size, len(noise), bottom),
        _steps(across, up, noise, low),
    ]
    kind, radius = ("measured-point", 4.5) if len(noise) <= 40 else ("measured-dot", 1.75)
    parts += [
        _circle(kind, across(i + 1), up(math.log10(value)), radius)
        for i, value in enumerate(output)
        if value > 0
    ]
    parts += _series_labels(up, output, noise, low, width - right + 12, narrow, left)
    label = "principal direction of the output, from the most to the least varying"
    parts.append(_text("direction" if narrow else label, left, bottom + 40, "quiet"))
    title = (
        f"Noise variance and output variance along {noise.size} principal directions, "
        f"logarithmic axis: noise from {noise.min():.3g} to {noise.max():.3g}, "
        f"output from {output.min():.3g} to {output.max():.3g}"
    )
    return _svg(width, bottom + 50, title, parts)


def _attack_rows(attack: AttackRecord) -> list[tuple[str, float, tuple[float, float]]]:
    return [
        ("attack, all rows", attack.success, attack.interval),
        ("attack, worst row", attack.worst_success, attack.worst_interval),
    ]


def _success_range(release: ReleaseRecord, bound: float) -> tuple[float, float]:
    values = [release.prior, bound]
    if release.attack is not None:
        values += [*release.attack.interval, *release.attack.worst_interval]
    low, high = min(values), max(values)
    pad = max(0.12 * (high - low), 0.004)
    return max(low - pad, 0.0), min(high + pad, 1.0 + 0.25 * pad)


def _percent_ticks(scale: Scale, y: float, count: int) -> list[Markup]:
    span = scale.high - scale.low
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    digits = max(0, -math.floor(math.log10(step * 100) + 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    parts = []
    for index in range(first, math.floor(min(scale.high, 1.0) / step + 1e-9) + 1):
        x = scale(index * step)
        parts.append(_line("axis", x, y, x, y + 5))
        parts.append(_text(f"{index * step * 100:.{digits}f}%", x, y + 20, "tick", "middle"))
    return parts


def _measurement(
    scale: Scale, y: float, success: float, interval: tuple[float, float]
) -> list[Markup]:
    low, high = scale(interval[0]), scale(interval[1])
    return [
        _line("measured", low, y, high, y),
        _line("measured", low, y - 5, low, y + 5),
        _line("measured", high, y - 5, high, y + 5),
        _circle("measured-point", scale(success), y, 5),
    ]


def _thinned(output: Array, noise: Array) -> tuple[Array, Array]:
    order = np.argsort(output)[::-1]
    if order.size > MOST_POINTS:
        order = order[np.linspace(0, order.size - 1, MOST_POINTS).astype(int)]
    return output[order], noise[order]


def _decades(smallest: float, largest: float) -> tuple[float, float]:
    low, high = math.log10(smallest), math.log10(largest)
    pad = max(0.06 * (high - low), 0.15)
    return low - pad, high + pad


def _decade_ticks(up: Scale, left: float, right: float) -> list[Markup]:
    first, last = math.ceil(up.low), math.floor(up.high)
    every = max(1, math.ceil((last - first + 1) / 7))
    parts = []
    for power in range(first, last + 1, every):
        y = up(power)
        parts.append(_line("grid", left, y, right, y))
        parts.append(_text(f"10{superscript(power)}", left - 8, y + 4, "tick", "end"))
    if last < first:
        middle = (up.low + up.high) / 2
        label = f"{10**middle:.2g}"
        parts.append(_line("grid", left, up(middle), right, up(middle)))
        parts.append(_text(label, left - 8, up(middle) + 4, "tick", "end"))
    return parts


def _direction_ticks(across: Scale, total: int, shown: int, y: float) -> list[Markup]:
    every = max(1, math.ceil(shown / 12))
    parts = []
    for index in range(0, shown, every):
        number = index + 1 if total == shown else round(index * (total - 1) / (shown - 1)) + 1
        x = across(index + 1)
        parts.append(_line("axis", x, y, x, y + 5))
        parts.append(_text(str(number), x, y + 20, "tick", "middle"))
    return parts


def _steps(across: Scale, up: Scale, noise: Array, floor: float) -> Markup:
    heights = [math.log10(value) if value > 0 else floor for value in noise]
    points = []
    for index, height in enumerate(heights):
        y = up(height)
        points += [f"{across(index + 0.5)},{y}", f"{across(index + 1.5)},{y}"]
    return Markup('<polyline class="bound" points="{}"/>').format(" ".join(points))


def _series_labels(
    up: Scale, output: Array, noise: Array, floor: float, x: float, narrow: bool, left: float
) -> list[Markup]:
    if narrow:
        return [
            _line("bound", left, 14, left + 22, 14),
            _text("noise added", left + 30, 18, "bound-text"),
            _circle("measured-point", left + 11, 34, 4.5),
            _text("the output's own variance", left + 30, 38, "measured-text"),
        ]
    ends = [math.log10(v[-1]) if v[-1] > 0 else floor for v in (noise, output)]
    line, point = up(ends[0]) + 4, up(ends[1]) + 4
    if abs(line - point) < 36:
        middle = min(max((line + point) / 2, up.end + 22), up.start - 26)
        line, point = (middle - 18, middle + 18) if line <= point else (middle + 18, middle - 18)
    return [
        _text("noise added", x, line, "bound-text"),
        _text("the output's own", x, point - 7, "measured-text"),
        _text("variance", x, point + 9, "measured-text"),
    ]


def _label(text: str, x: float, y: float, kind: str, width: int, left: float) -> Markup:
    room_right = width - 16 - x > 7.2 * len(text)
    room_left = x - 4 > 7.2 * len(text)
    if room_right and (x < (left + width) / 2 or not room_left):
        return _text(text, x + 6, y, kind)
    return _text(text, x - 6, y, kind, "end")


def _text(text: str, x: float, y: float, kind: str, anchor: str = "start") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, text
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        kind, x, y, max(round(width, 2), 0), height
    )


def _circle(kind: str, x: float, y: float, radius: float) -> Markup:
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(kind, x, y, radius)


def _svg(width: int, height: float, title: str, parts: Sequence[Markup]) -> Markup:
    opening = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}">'
    ).format(width, height, title)
    body = Markup("").join(parts)
    return (
        opening + Markup("<title>") + escape(title) + Markup("</title>") + body + Markup("</svg>")
    )
