"""What the page of a draw shows of its own: where the noise goes, and how the bound follows."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from tacit._ground.checks import Array
from tacit.guarantees import InformationBound
from tacit.pages import NARROW, WIDE, Scale, Section, Sections, figure, joined, paragraph, table
from tacit.pages import drawing as draw
from tacit.releases.release import Release
from tacit.statistics import page
from tacit.statistics.draws.release import DrawDetails
from tacit.text import chance_down, in_nats, number_up, percent, share_nearest, share_up

# Directions that a figure shows; up to so many each is a point with a rim.
MOST_POINTS, FEW_POINTS = 90, 40


def sections(release: Release[DrawDetails]) -> Sections:
    """Return the variance of noise and outputs, and the bound; of an answer what others show."""
    if release.details.design is None:
        return page.sections(release)
    return Sections(parts=(_where_noise_goes(release), _how_it_follows(release)))


def _where_noise_goes(release: Release[DrawDetails]) -> Section:
    """Return the variance of the noise along the principal directions of the outputs."""
    details = release.details
    assert details.design is not None
    title, candidates = "Where the noise goes", f"{details.candidates:,} candidate subsets"
    outputs, noise = details.principal_output_variance, details.principal_noise_variance
    if details.design.rank and outputs is not None and noise is not None:
        wide = variance_figure(outputs, noise, width=WIDE)
        narrow = variance_figure(outputs, noise, width=NARROW)
        if wide is not None and narrow is not None:
            caption = (
                "Variance along each principal direction of the output, on a logarithmic axis, in "
                "squared units of the output. Points: how much the output itself varies over the "
                f"{candidates}. Line: the variance of the noise added there."
            )
            if noise.size > MOST_POINTS:
                caption += (
                    f" Of the {noise.size} directions, {MOST_POINTS} evenly spaced ones are drawn."
                )
            return Section(title, figure(wide, narrow, caption))
    if release.information == 0.0:
        words = (
            "The output is the same for every candidate subset, so it says nothing about which "
            "rows were drawn, and no noise is added."
        )
    else:
        words = (
            f"No noise is added. Over the {candidates} the outputs have an entropy of at most "
            f"{in_nats(number_up(release.information or 0.0))}, and nobody learns more than that "
            f"from seeing one. This is within the budget of {in_nats(number_up(details.budget))}."
        )
    return Section(title, paragraph(words))


def _how_it_follows(release: Release[DrawDetails]) -> Section:
    """Return the bound as formulas, and the budget beside what is certified."""
    details, design = release.details, release.details.design
    assert design is not None
    told = next(held for held in release.guarantees if isinstance(held, InformationBound))
    bound, nats = release.membership, number_up(told.nats)
    noise = Markup(" + <var>B</var>,&ensp; <var>B</var> ~ N(0, Σ)") if design.rank else ""
    secret = Markup(
        "<var>Y</var> = <var>f</var>(<var>X</var>){},&ensp; <var>X</var> uniform on {} subsets of "
        "{} rows"
    )
    information = Markup("I(<var>X</var>; <var>Y</var>)")
    if not design.rank:
        by = Markup(
            "{} ≤ H(<var>Y</var>) ≤ {} nats,&ensp; <var>Y</var> one of finitely many outputs"
        )
    elif details.gaussian_information is None:
        by = Markup(
            "{} ≤ ½ log det(<var>I</var> + <var>S</var> Σ<sup>−1</sup>) ≤ {} nats,&ensp; "
            "<var>S</var> = Cov <var>f</var>(<var>X</var>)"
        )
    else:
        by = Markup(
            "{} = H(<var>X</var>) − E H(<var>X</var> | <var>Y</var>) ≤ {} nats, by simulated "
            "releases and their exact posterior"
        )
    success = Markup("kl(<var>p</var> ‖ {}) ≤ {}&ensp;⟹&ensp; <var>p</var> ≤ {}")
    formulas = joined(
        paragraph(secret.format(noise, f"{details.candidates:,}", f"{details.subset_rows:,}")),
        paragraph(by.format(information, nats)),
        paragraph(
            success.format(
                share_nearest(bound.prior), information, share_up(release.success(bound))
            )
        ),
    )
    always = (
        "always" if told.confidence is None else f"with probability {chance_down(told.confidence)}"
    )
    rows = [
        ("budget asked for", in_nats(number_up(details.budget))),
        ("certified", f"{nats} nats, {always}"),
    ]
    if details.gaussian_information is not None and details.noise_saved is not None:
        replaced = number_up(details.gaussian_information)
        rows.append(("Gaussian bound of the same noise, replaced", f"{replaced} nats"))
        rows.append(("noise saved by replacing it", f"{percent(details.noise_saved)} of its cost"))
    body = joined(
        Markup('<div class="formulas">{}</div>').format(formulas),
        table("budget and bounds", (), rows),
    )
    return Section("How the bound follows", body)


def variance_figure(outputs: Array, noise: Array, *, width: int) -> Markup | None:
    """Draw noise variance (line) beside output variance (points) per direction, log axis.

    None where there is nothing of which a logarithm could be drawn.

    Args:
        outputs: (d,) variances of the outputs along their principal directions.
        noise: (d,) variances of the noise along the same.
        width: of the figure.
    """
    total = noise.size
    order = np.argsort(outputs)[::-1]
    if total > MOST_POINTS:
        order = order[np.linspace(0, total - 1, MOST_POINTS).astype(int)]
    outputs, noise = outputs[order], noise[order]
    drawn = np.concatenate([outputs[outputs > 0], noise[noise > 0]])
    if drawn.size == 0 or not noise.any():
        return None
    narrow = width < WIDE
    left, right, top, bottom = (44, 14, 48, 250) if narrow else (56, 168, 16, 280)
    low, high = draw.decades(float(drawn.min()), float(drawn.max()))
    across = Scale(0.5, len(noise) + 0.5, left, width - right)
    up = Scale(low, high, bottom, top)
    # a step for each direction; what is zero lies on the floor
    heights = [up(math.log10(value) if value > 0 else low) for value in noise]
    corners = [(across(index + side), y) for index, y in enumerate(heights) for side in (0.5, 1.5)]
    steps = " ".join(f"{x},{y}" for x, y in corners)
    parts = [
        *draw.decade_ticks(up, left, width - right),
        draw.line("axis", left, bottom, width - right, bottom),
        *_direction_ticks(across, total, len(noise), bottom),
        Markup('<polyline class="bound" points="{}"/>').format(steps),
    ]
    few = len(noise) <= FEW_POINTS
    kind, radius = ("measured-point", 4.5) if few else ("measured-dot", 1.75)
    parts += [
        draw.circle(kind, across(index + 1), up(math.log10(value)), radius)
        for index, value in enumerate(outputs)
        if value > 0
    ]
    parts += _series_labels(up, outputs, noise, width - right + 12, narrow, left)
    label = "principal direction of the output, from the most to the least varying"
    parts.append(draw.text("direction" if narrow else label, left, bottom + 40, "quiet"))
    title = (
        f"Noise variance and output variance along {noise.size} principal directions, "
        f"logarithmic axis: noise from {noise.min():.3g} to {noise.max():.3g}, "
        f"output from {outputs.min():.3g} to {outputs.max():.3g}"
    )
    return draw.svg(width, bottom + 50, title, parts)


def _direction_ticks(across: Scale, total: int, shown: int, y: float) -> list[Markup]:
    parts = []
    for index in range(0, shown, max(1, math.ceil(shown / 12))):
        number = index + 1 if total == shown else round(index * (total - 1) / (shown - 1)) + 1
        x = across(index + 1)
        parts.append(draw.line("axis", x, y, x, y + 5))
        parts.append(draw.text(str(number), x, y + 20, "tick", "middle"))
    return parts


def _series_labels(
    up: Scale, outputs: Array, noise: Array, x: float, narrow: bool, left: float
) -> list[Markup]:
    if narrow:
        return [
            draw.line("bound", left, 14, left + 22, 14),
            draw.text("noise added", left + 30, 18, "bound-text"),
            draw.circle("measured-point", left + 11, 34, 4.5),
            draw.text("the output's own variance", left + 30, 38, "measured-text"),
        ]
    ends = [math.log10(v[-1]) if v[-1] > 0 else up.low for v in (noise, outputs)]
    line, point = up(ends[0]) + 4, up(ends[1]) + 4
    if abs(line - point) < 36:
        # labels that would lie on each other are moved apart
        middle = min(max((line + point) / 2, up.end + 22), up.start - 26)
        line, point = (middle - 18, middle + 18) if line <= point else (middle + 18, middle - 18)
    return [
        draw.text("noise added", x, line, "bound-text"),
        draw.text("the output's own", x, point - 7, "measured-text"),
        draw.text("variance", x, point + 9, "measured-text"),
    ]
