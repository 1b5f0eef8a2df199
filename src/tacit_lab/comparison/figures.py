"""Errors and attacks of several promises: one row each, one figure."""

from __future__ import annotations

import math

from markupsafe import Markup

from tacit.pages import WIDE, Scale
from tacit.pages import drawing as draw
from tacit.releases.release import Attack
from tacit.text import percent, share_up, significant_up
from tacit_lab.comparison.result import Comparison, PromiseResult

# The end of the axis of errors, and what stands for no noise.
LEAST_NOISE, NO_NOISE = 1e-4, "none"


def comparison_figure(found: Comparison, *, width: int) -> Markup:
    """Draw noise and total error (logarithmic axis) and what attackers reached beside the bound."""
    narrow = width < WIDE
    count = len(found.results)
    top = 52
    step = 62 if narrow else 52
    noise, success = _scales(found, width)
    bottom = top + step * count
    second = bottom + 90 if narrow else top
    parts = _frame(noise, "error, in units of the table's sampling error", bottom)
    parts += _noise_ticks(noise, bottom)
    parts += _frame(success, "membership guessed right", second + step * count)
    parts += _success_ticks(success, second + step * count)
    limit = success(found.success)
    parts += [
        draw.rect("excluded", limit, second - 8, success.end - limit, step * count + 8),
        draw.line("bound", limit, second - 20, limit, second + step * count),
        draw.text(f"at most {share_up(found.success)}", limit - 6, second - 12, "bound-text",
                  "end"),
        draw.line("blind", noise(0.0), top - 8, noise(0.0), bottom),
        draw.text("equal", noise(0.0) + 5, top - 12, "quiet"),
    ]  # fmt: skip
    for index, result in enumerate(found.results):
        middle = top + step * index + step / 2
        if narrow:
            label = f"{result.name}: {_size(result)}"
            parts.append(draw.text(label, noise.start, middle - 12, "bound-text"))
        else:
            parts.append(draw.text(result.name, noise.start - 14, middle + 4, "tick", "end"))
        parts += _noise(result, noise, middle + (6 if narrow else 0), labelled=not narrow)
        place = second + step * index + step / 2
        if narrow:
            parts.append(draw.text(result.name, success.start, place - 16, "tick"))
        parts += _attacks(result.attacks, success, place + (4 if narrow else 0))
    title = "Promises compared: " + "; ".join(
        f"{one.name}: total error {significant_up(one.total, 3)} and noise "
        f"{significant_up(one.noise, 3)} of the sampling error of the table, "
        + ", ".join(f"{attack.name} {percent(attack.success.value)}" for attack in one.attacks)
        for one in found.results
    )
    height = second + step * count + 48
    return draw.svg(width, height, title, parts)


def _scales(found: Comparison, width: int) -> tuple[Scale, Scale]:
    levels = [1.0, *(max(size, LEAST_NOISE) for one in found.results for size in _sizes(one))]
    low, high = draw.decades(min(levels), max(levels))
    ends = [
        end
        for one in found.results
        for attack in one.attacks
        for held in (attack.success, attack.worst or attack.success)
        for end in (held.low, held.high)
    ]
    least, most = min([0.5, *ends]), max([found.success, *ends])
    pad = max(0.1 * (most - least), 0.004)
    across = (max(least - pad, 0.0), min(most + pad, 1.0))
    if width < WIDE:
        return Scale(low, high, 14, width - 14), Scale(*across, 14, width - 14)
    return Scale(low, high, 160, 416), Scale(*across, 456, width - 12)


def _frame(scale: Scale, label: str, bottom: float) -> list[Markup]:
    return [
        draw.line("axis", scale.start, bottom, scale.end, bottom),
        draw.text(label, scale.end, bottom + 40, "quiet", "end"),
    ]


def _noise_ticks(scale: Scale, y: float) -> list[Markup]:
    parts = []
    for power in range(math.ceil(scale.low), math.floor(scale.high) + 1):
        x = scale(power)
        parts.append(draw.line("axis", x, y, x, y + 5))
        parts.append(draw.text(f"{10.0**power:g}", x, y + 20, "tick", "middle"))
    return parts


def _success_ticks(scale: Scale, y: float) -> list[Markup]:
    span = scale.high - scale.low
    step = next(size for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if span / size <= 6)
    parts = []
    for index in range(math.ceil(scale.low / step), math.floor(scale.high / step + 1e-9) + 1):
        x = scale(index * step)
        parts.append(draw.line("axis", x, y, x, y + 5))
        parts.append(draw.text(f"{index * step * 100:.0f}%", x, y + 20, "tick", "middle"))
    return parts


def _sizes(result: PromiseResult) -> tuple[float, float]:
    return result.noise, result.total


def _size(result: PromiseResult) -> str:
    noise = significant_up(result.noise, 3) if result.noise > 0.0 else NO_NOISE
    return f"{noise}, total {significant_up(result.total, 3)}"


def _noise(result: PromiseResult, scale: Scale, y: float, *, labelled: bool) -> list[Markup]:
    x, end = (scale(math.log10(max(size, LEAST_NOISE))) for size in _sizes(result))
    parts = [draw.line("grid", scale.start, y, scale.end, y)]
    if result.noise > 0.0:
        parts.append(draw.circle("noise-point", x, y, 5))
    if result.total > 0.0:
        parts.append(draw.line("measured", end, y - 6, end, y + 6))
    if labelled:
        near, anchor = (x + 10, "start") if x + 120 < scale.end else (x - 10, "end")
        parts.append(draw.text(_size(result), near, y - 8, "bound-text", anchor))
    return parts


def _attacks(attacks: tuple[Attack, ...], scale: Scale, y: float) -> list[Markup]:
    parts = []
    for index, attack in enumerate(attacks):
        height = y - 8 + 16 * index
        low, high = (scale(end) for end in (attack.success.low, attack.success.high))
        parts.append(draw.line("measured", low, height, high, height))
        kind = "measured-open" if attack.name.startswith("LiRA") else "measured-point"
        parts.append(draw.circle(kind, scale(attack.success.value), height, 4.5))
    return parts
