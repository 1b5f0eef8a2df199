"""The two figures of a report, drawn as SVG whose colours are the page's CSS classes."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from tacit._ground.checks import Array
from tacit.measured import Interval
from tacit.report import drawing as draw
from tacit.report.drawing import WIDE, Scale
from tacit.report.statistic.record import ReleaseRecord
from tacit.report.success import SuccessPlot

MOST_POINTS = 90


def success_plot(release: ReleaseRecord, bound: float) -> SuccessPlot:
    """Return the figure of guessing membership: the bound beside the measured attack."""
    attack = release.attack
    measured = (
        ()
        if attack is None
        else (
            ("attack, all rows", _interval(attack.success, attack.interval)),
            ("attack, worst row", _interval(attack.worst_success, attack.worst_interval)),
        )
    )
    return SuccessPlot(
        task="membership",
        bound=bound,
        prior=release.prior,
        void=release.reproducible,
        rows=measured,
    )


def _interval(value: float, ends: tuple[float, float]) -> Interval:
    return Interval(value=value, low=ends[0], high=ends[1])


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
