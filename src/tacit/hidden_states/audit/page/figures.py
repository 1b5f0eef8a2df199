"""The figures of an audit of hidden states, as SVG whose colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from textwrap import shorten

from markupsafe import Markup

from tacit._ground.checks import Array
from tacit.guarantees import MaximalLeakage
from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.audit.release import Audit
from tacit.pages import WIDE, Scale
from tacit.pages import drawing as draw
from tacit.text import percent, superscript

MOST_DOTS = 128
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
MARKS = ("hollow", "point")
LABEL_WIDTH, LABEL_HEIGHT, MARK_WIDTH = 34.0, 10.0, 20.0
# of a label in a narrow figure, beyond which it is cut at a comma or a word
MOST_LETTERS = 34
# radius around the recommended release
RING = 10.0
# pixels that a bold letter of the key takes
LETTER = 8
# decades of candidates between two numbers under an axis
APART = 0.35


def map_figure(audit: Audit, *, width: int) -> Markup:
    """Draw attack success over agreement under the protocol asked for, the empty middle shaded."""
    narrow = width < WIDE
    left, right, top, bottom = 46, 18, 20, 300 if narrow else 380
    across, up = Scale(0, 1, left, width - right), Scale(0, 1, bottom, top)
    middle = (across(0.5), up(0.5))
    parts = [
        draw.rect("excluded", middle[0], middle[1], width - right - middle[0], bottom - middle[1]),
        # noise reaches the corner on the left, never the one on the right
        draw.text("the empty middle", width - right - 8, middle[1] + 18, "quiet", "end"),
    ]
    for tick in TICKS:
        parts += [
            draw.line("grid", left, up(tick), width - right, up(tick)),
            draw.text(f"{tick:.0%}", left - 8, up(tick) + 4, "tick", "end"),
            draw.text(f"{tick:.0%}", across(tick), bottom + 20, "tick", "middle"),
        ]
    parts.append(draw.line("axis", left, bottom, width - right, bottom))
    protocol = audit.wish.protocol
    read = [point for point in audit.points if point.protocol == protocol]
    for point in read:
        if point.bound is None:
            parts += _measured_mark(point, across, up)
    chosen = audit.recommendation.point
    ring = None
    if chosen in read and chosen is not None:
        height = chosen.best_attack.top1.value if chosen.bound is None else chosen.bound
        ring = (across(chosen.agreement.value), up(height))
        parts.append(draw.circle("chosen", *ring, RING))
    bounded = [point for point in read if point.bound is not None]
    parts += _bound_marks(sorted(bounded, key=lambda p: p.agreement.value), across, up, ring)
    key = _key(left, bottom + 62, narrow, audit, ring is not None)
    parts += key
    label = (
        "prompts whose next token stays"
        if narrow
        else ("share of prompts whose next token stays the same")
    )
    parts.append(draw.text(label, left, bottom + 40, "quiet"))
    parts.append(draw.text("attack names the prompt", left, top - 6, "quiet"))
    title = (
        f"Attack success over agreement of {len(read)} releases, protocol {protocol}; "
        f"{sum(point.in_middle for point in read)} in the empty middle"
    )
    rows = len(key) if narrow else math.ceil(len(key) / 3)
    return draw.svg(width, bottom + 54 + 20 * rows, title, parts)


def _measured_mark(point: Point, across: Scale, up: Scale) -> list[Markup]:
    attack, agreement = point.best_attack.top1, point.agreement
    x, y = across(agreement.value), up(attack.value)
    kind = "measured-hollow" if point.reading == "raw" else "measured-point"
    return [
        draw.line("measured", across(agreement.low), y, across(agreement.high), y),
        draw.line("measured", x, up(attack.low), x, up(attack.high)),
        draw.circle(kind, x, y, 4.5),
    ]


def _bound_marks(
    bounded: list[Point], across: Scale, up: Scale, ring: tuple[float, float] | None
) -> list[Markup]:
    """Draw bounds as short lines, as wide as the agreement's interval; name the best of a mark."""
    parts: list[Markup] = []
    # centre, height and half-width of what no name may cover; the upper edge of the ring is one
    taken: list[tuple[float, float, float]] = []
    if ring is not None:
        taken.append((ring[0], ring[1] - RING + 4, LABEL_WIDTH / 2))
    for point in bounded:
        assert point.bound is not None
        low, high = across(point.agreement.low), across(point.agreement.high)
        centre, y = across(point.agreement.value), up(point.bound)
        parts.append(draw.line("bound", min(low, centre - 5), y, max(high, centre + 5), y))
        taken.append((centre, y - 3, MARK_WIDTH))
    # ascending agreement: the last of each mark is its best
    named = {mechanism_of(point).mark(point): point for point in bounded}
    for name, point in named.items():
        centre, y = across(point.agreement.value), up(point.bound or 0.0)
        height = next(
            (
                y - lift
                for lift in (8, 22, 36, 50)
                if all(
                    abs(x - centre) > wide or abs(other - (y - lift)) > LABEL_HEIGHT
                    for x, other, wide in taken
                    if (x, other) != (centre, y - 3)
                )
            ),
            y - 8,
        )
        taken.append((centre, height - 4, LABEL_WIDTH))
        parts.append(draw.text(name, centre, height, "bound-text", "middle"))
    return parts


def _key(left: float, y: float, narrow: bool, audit: Audit, ringed: bool) -> list[Markup]:
    """Explain the marks that are drawn."""
    hollow, full = (draw.circle(f"measured-{kind}", left + 8, y - 4, 4.5) for kind in MARKS)
    read = [point for point in audit.points if point.protocol == audit.wish.protocol]
    noisy = [point for point in read if point.bound is None]
    entries = []
    if any(point.reading == "raw" for point in noisy):
        entries.append((hollow, "noise, read as it comes", "measured"))
    if any(point.reading != "raw" for point in noisy):
        alone = audit.wish.protocol == "B"
        entries.append((full, "noise, decoded alone" if alone else "noise, denoised", "measured"))
    if len(noisy) < len(read):
        bound = draw.line("bound", left, y - 4, left + 16, y - 4)
        entries.append((bound, "bound, prompts equally likely", "bound"))
    if ringed:
        entries.append((draw.circle("chosen", left + 8, y - 4, RING - 2), "recommended", "chosen"))
    parts: list[Markup] = []
    over = 0
    for index, (mark, label, kind) in enumerate(entries):
        # in a row each stands where the one before it ends
        row, column = divmod(index, 1 if narrow else 3)
        over, down = over if column else 0, 20 * row
        shift = Markup('<g transform="translate({} {})">{}{}</g>')
        parts.append(shift.format(over, down, mark, draw.text(label, left + 24, y, f"{kind}-text")))
        over += 38 + LETTER * len(label)
    return parts


def spectrum_figure(audit: Audit, *, width: int) -> Markup | None:
    """Draw the spectra of F and S as shares of their traces; logarithmic axis."""
    series = [
        ("fisher-dot", "Fisher information", _shares(audit.fisher_spectrum)),
        ("spread-dot", "differences of prompts", _shares(audit.spread_spectrum)),
    ]
    drawn = [value for _, _, values in series for value in values if value > 0]
    if not drawn:
        return None
    left, right, top, bottom = 56, 18, 50, 250
    low, high = draw.decades(max(min(drawn), 1e-9), max(drawn))
    size = max(len(values) for _, _, values in series)
    across, up = Scale(0.5, size + 0.5, left, width - right), Scale(low, high, bottom, top)
    parts = [
        *draw.decade_ticks(up, left, width - right),
        draw.line("axis", left, bottom, width - right, bottom),
    ]
    for row, (kind, label, values) in enumerate(series):
        parts += [
            draw.circle(kind, across(index + 1), up(math.log10(values[index])), 2.0)
            for index in _thinned(len(values))
            if math.log10(max(values[index], 1e-300)) >= low
        ]
        parts += [
            draw.circle(kind, left + 6, 14 + 18 * row, 4.0),
            draw.text(label, left + 18, 18 + 18 * row, f"{kind}-text"),
        ]
    for tick in {1, size // 4, size // 2, 3 * size // 4, size} - {0}:
        parts.append(draw.text(str(tick), across(tick), bottom + 20, "tick", "middle"))
    parts.append(
        draw.text("direction, from the largest share to the least", left, bottom + 40, "quiet")
    )
    title = "Spectra of the Fisher information and of prompt differences, logarithmic axis"
    return draw.svg(width, bottom + 50, title, parts)


def curve_figure(audit: Audit, shown: Iterable[tuple[str, Point]], *, width: int) -> Markup:
    """Draw attack success over the number of candidates; logarithmic horizontal axis."""
    left, right, top, bottom = 46, 18, 20, 250
    largest = max(point.bank for point in audit.points)
    across = Scale(math.log10(2), math.log10(max(largest, 3)), left, width - right)
    up = Scale(0, 1, bottom, top)
    parts = []
    for tick in TICKS:
        parts.append(draw.line("grid", left, up(tick), width - right, up(tick)))
        parts.append(draw.text(f"{tick:.0%}", left - 8, up(tick) + 4, "tick", "end"))
    # the powers of ten, and both ends, which leave room for what they say
    ends = {2, max(largest, 3)}
    powers = (10**power for power in range(1, math.floor(math.log10(largest)) + 1))
    inner = {one for one in powers if min(abs(math.log10(one / end)) for end in ends) > APART}
    for size in sorted(ends | inner):
        parts.append(
            draw.text(f"{size:,}", across(math.log10(size)), bottom + 20, "tick", "middle")
        )
    listed = list(shown)
    for row, (label, point) in enumerate(listed):
        kind = "bound" if point.bound is not None else "measured"
        dash = " dotted" if mechanism_of(point).control else ""
        marks = [
            (across(math.log10(size)), up(success))
            for size, success in point.best_attack.candidates
            if size >= 2
        ]
        path = " ".join(f"{x},{y}" for x, y in marks)
        parts.append(
            Markup('<polyline class="{}" points="{}"/>').format(f"curve {kind}{dash}", path)
        )
        if kind == "measured":
            parts += [draw.circle("measured-point", x, y, 3.5) for x, y in marks]
        y = bottom + 62 + 20 * row
        parts.append(draw.line(f"curve {kind}{dash}", left, y - 4, left + 20, y - 4))
        shown_label = label if width >= WIDE else label.partition(":")[0]
        if width < WIDE and len(shown_label) > MOST_LETTERS:
            shown_label = shown_label.partition(", ")[0]
            shown_label = shorten(shown_label, MOST_LETTERS, placeholder=" …")
        parts.append(draw.text(shown_label, left + 28, y, f"{kind}-text"))
    parts.append(draw.line("axis", left, bottom, width - right, bottom))
    parts.append(draw.text("candidates the attacker chooses among", left, bottom + 40, "quiet"))
    title = "Attack success over the number of candidates, logarithmic horizontal axis"
    return draw.svg(width, bottom + 50 + 20 * len(listed), title, parts)


def candidates_figure(leakage: MaximalLeakage, *, width: int) -> Markup:
    """Draw the largest success over the number of candidates that the factor allows, and blind."""
    left, right, top, bottom = 62, 18, 20, 220
    # one decade beyond the number of candidates at which the factor begins to say something
    decades = min(max(math.ceil(leakage.nats / math.log(10)) + 2, 4), 12)
    sizes = [max(2, round(10 ** (step / 4))) for step in range(1, 4 * decades + 1)]
    found = leakage.success_by_candidates(sizes)
    across = Scale(math.log10(2), decades, left, width - right)
    up = Scale(-decades, 0, bottom, top)
    parts = [draw.line("axis", left, bottom, width - right, bottom)]
    for power in range(0, decades + 1, 1 if decades <= 6 else 2):
        y = up(-power)
        parts.append(draw.line("grid", left, y, width - right, y))
        share = percent(10.0**-power, max(power - 2, 0))
        parts.append(draw.text(share, left - 8, y + 4, "tick", "end"))
        if power:
            x, label = across(power), f"10{superscript(power)}"
            parts.append(draw.text(label, x, bottom + 20, "tick", "middle"))
    for kind, values in (
        ("bound", [success for _, success in found]),
        ("blind", [1 / size for size in sizes]),
    ):
        path = " ".join(
            f"{across(math.log10(size))},{up(math.log10(value))}"
            for size, value in zip(sizes, values, strict=True)
        )
        parts.append(Markup('<polyline class="curve {}" points="{}"/>').format(kind, path))
    times = "one code" if leakage.releases == 1 else f"{leakage.releases} codes"
    for row, (kind, label) in enumerate(
        (("bound", f"at most, with {times}"), ("blind", "guessing blind"))
    ):
        y = bottom + 62 + 20 * row
        parts.append(draw.line(f"curve {kind}", left, y - 4, left + 20, y - 4))
        text_kind = "bound-text" if kind == "bound" else "quiet"
        parts.append(draw.text(label, left + 28, y, text_kind))
    parts.append(draw.text("N, candidates equally likely", left, bottom + 40, "quiet"))
    title = "Largest success at naming the prompt over the number of candidates, logarithmic axes"
    return draw.svg(width, bottom + 92, title, parts)


def _shares(spectrum: Array) -> list[float]:
    """Return the shares of a trace, largest first; all 0 where the trace is."""
    held = spectrum.tolist()
    total = sum(held)
    return [value / total if total > 0 else 0.0 for value in held]


def _thinned(count: int) -> list[int]:
    if count <= MOST_DOTS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_DOTS - 1)) for i in range(MOST_DOTS)})
