"""The two figures of a report, drawn as SVG whose colours are the page's CSS classes."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from tacit._ground.checks import Array
from tacit.report import drawing as draw
from tacit.report.drawing import WIDE, Scale
from tacit.report.statistic.record import AttackRecord, ReleaseRecord
from tacit.report.statistic.words import percent, percent_up

MOST_POINTS = 90


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
        draw.rect("excluded", limit, top - 8, width - 16 - limit, bottom - top + 8),
        draw.line("axis", left, bottom, width - 16, bottom),
        *_percent_ticks(scale, bottom, 4 if narrow else 6),
        draw.line("blind", blind, top - 8, blind, bottom),
        _label(f"guessing blind {percent(release.prior)}", blind, 42, "quiet", width, left),
        draw.line("bound", limit, top - 32, limit, bottom),
        _label(f"{promise} {percent_up(bound)}", limit, 18, "bound-text", width, left),
    ]
    for index, (name, success, interval) in enumerate(rows):
        y = top + step * index + (34 if narrow else 20)
        parts += _measurement(scale, y, success, interval)
        spread = f"{percent(success)} [{percent(interval[0])[:-1]}, {percent(interval[1])[:-1]}]"
        if narrow:
            parts.append(draw.text(f"{name}: {spread}", left, y - 14, "measured-text"))
        else:
            parts.append(draw.text(name, left - 16, y - 3, "measured-text", "end"))
            parts.append(draw.text(spread, left - 16, y + 13, "quiet", "end"))
    parts.append(draw.text("membership guessed right", width - 16, bottom + 38, "quiet", "end"))
    title = f"Success of guessing membership: bound {percent_up(bound)}" + "".join(
        f"; {name} measured {percent(success)}" for name, success, _ in rows
    )
    return draw.svg(width, bottom + 48, title, parts)


def variance_figure(release: ReleaseRecord, *, width: int) -> Markup | None:
    """Draw noise variance (line) beside output variance (points) per direction, log axis.

    None where there is no noise, and so no logarithm of it to draw.
    """
    if release.noiseless:
        return None
    output, noise = _thinned(release.principal_output_variance, release.principal_noise_variance)
    drawn = np.concatenate([output[output > 0], noise[noise > 0]])
    if drawn.size == 0:
        return None
    narrow = width < WIDE
    left, right, top, bottom = (44, 14, 48, 250) if narrow else (56, 168, 16, 280)
    low, high = draw.decades(float(drawn.min()), float(drawn.max()))
    across = Scale(0.5, len(noise) + 0.5, left, width - right)
    up = Scale(low, high, bottom, top)
    parts = [
        *draw.decade_ticks(up, left, width - right),
        draw.line("axis", left, bottom, width - right, bottom),
        *_direction_ticks(across, release.principal_noise_variance.size, len(noise), bottom),
        _steps(across, up, noise, low),
    ]
    kind, radius = ("measured-point", 4.5) if len(noise) <= 40 else ("measured-dot", 1.75)
    parts += [
        draw.circle(kind, across(i + 1), up(math.log10(value)), radius)
        for i, value in enumerate(output)
        if value > 0
    ]
    parts += _series_labels(up, output, noise, low, width - right + 12, narrow, left)
    label = "principal direction of the output, from the most to the least varying"
    parts.append(draw.text("direction" if narrow else label, left, bottom + 40, "quiet"))
    title = (
        f"Noise variance and output variance along {noise.size} principal directions, "
        f"logarithmic axis: noise from {noise.min():.3g} to {noise.max():.3g}, "
        f"output from {output.min():.3g} to {output.max():.3g}"
    )
    return draw.svg(width, bottom + 50, title, parts)


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


def _thinned(output: Array, noise: Array) -> tuple[Array, Array]:
    order = np.argsort(output)[::-1]
    if order.size > MOST_POINTS:
        order = order[np.linspace(0, order.size - 1, MOST_POINTS).astype(int)]
    return output[order], noise[order]


def _direction_ticks(across: Scale, total: int, shown: int, y: float) -> list[Markup]:
    every = max(1, math.ceil(shown / 12))
    parts = []
    for index in range(0, shown, every):
        number = index + 1 if total == shown else round(index * (total - 1) / (shown - 1)) + 1
        x = across(index + 1)
        parts.append(draw.line("axis", x, y, x, y + 5))
        parts.append(draw.text(str(number), x, y + 20, "tick", "middle"))
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
            draw.line("bound", left, 14, left + 22, 14),
            draw.text("noise added", left + 30, 18, "bound-text"),
            draw.circle("measured-point", left + 11, 34, 4.5),
            draw.text("the output's own variance", left + 30, 38, "measured-text"),
        ]
    ends = [math.log10(v[-1]) if v[-1] > 0 else floor for v in (noise, output)]
    line, point = up(ends[0]) + 4, up(ends[1]) + 4
    if abs(line - point) < 36:
        middle = min(max((line + point) / 2, up.end + 22), up.start - 26)
        line, point = (middle - 18, middle + 18) if line <= point else (middle + 18, middle - 18)
    return [
        draw.text("noise added", x, line, "bound-text"),
        draw.text("the output's own", x, point - 7, "measured-text"),
        draw.text("variance", x, point + 9, "measured-text"),
    ]


def _label(text: str, x: float, y: float, kind: str, width: int, left: float) -> Markup:
    room_right = width - 16 - x > 7.2 * len(text)
    room_left = x - 4 > 7.2 * len(text)
    if room_right and (x < (left + width) / 2 or not room_left):
        return draw.text(text, x + 6, y, kind)
    return draw.text(text, x - 6, y, kind, "end")
