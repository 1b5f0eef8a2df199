"""The figure of ``tacit account``: δ(ε), solid, and the published bound beside it, dashed."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.files import write_bytes_atomic

if TYPE_CHECKING:
    from tacit.cli.account.mechanisms import Accounted

PUBLISHED_COLOUR = "#6E6E6E"
# Points of the published bound, evenly in ln δ from the least drawn to one half.
CLAIM_POINTS, LEAST_DELTA, LARGEST_DELTA = 24, 1e-12, 0.5
# A published bound may widen the figure so many times.
WIDER = 12
RESOLUTION = 160


def write_figure(found: Accounted, path: Path) -> None:
    """Draw in memory, then replace the file."""
    axes = found.profile.plot()
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.set_title(f"{found.mechanism.word}, {found.title}", loc="left")
    right, least = axes.get_xlim()[1], axes.get_ylim()[0]
    _label(axes, axes.lines[0], "this profile")
    claims = _claims(found, max(least, LEAST_DELTA))
    if claims:
        epsilons, deltas = (np.array(values) for values in zip(*claims, strict=True))
        dashed = axes.plot(epsilons, deltas, "o--", color=PUBLISHED_COLOUR, markersize=4)[0]
        dashed.set(markerfacecolor="none", linewidth=1.0)
        _label(axes, dashed, "published bound")
        axes.set_xlim(0.0, max(right, min(float(epsilons.max()), WIDER * right)))
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lower().removeprefix("."), dpi=RESOLUTION)
    write_bytes_atomic("--plot", path, buffer.getvalue())


def _claims(found: Accounted, least: float) -> list[tuple[float, float]]:
    """Return the published (ε, δ) that are finite and not refused."""
    points = []
    for delta in np.geomspace(least, LARGEST_DELTA, CLAIM_POINTS).tolist():
        claim = found.claim(delta)
        if claim is not None and not isinstance(claim, str) and math.isfinite(claim.epsilon):
            points.append((claim.epsilon, delta))
    return points


def _label(axes: Any, drawn: Any, text: str) -> None:
    # at the middle of the line, a little above it
    x, y = drawn.get_xdata(), drawn.get_ydata()
    middle = len(x) // 2
    axes.annotate(
        text,
        (float(x[middle]), float(y[middle])),
        xytext=(6, 6),
        textcoords="offset points",
        color=drawn.get_color(),
    )
