"""Privacy profiles for others to read: `dp_accounting` distributions and figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.numbers import EPS
from tacit.accounting.curves.composition import STEP, UPPER_TAIL, ComposedPart, lattice_step
from tacit.accounting.curves.discretisation import LossMasses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from matplotlib.figure import Figure

BOUND_COLOUR = "#0072B2"
SMALLEST_DELTA = 1e-12
FIGURE_POINTS = 400


def to_dp_accounting(parts: tuple[ComposedPart, ComposedPart]) -> PrivacyLossDistribution:
    """Return the pessimistic distribution of both directions on one lattice."""
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    step = max(lattice_step(parts, UPPER_TAIL), STEP)
    symmetric = parts[0].forward is parts[0].backward
    found = [part.on(step, UPPER_TAIL) for part in parts[: 1 if symmetric else 2]]
    laws = [
        DensePLDPmf(step, m.first, _within(m.masses, m), _within(m.infinite, m), True)
        for m in found
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*laws)


def _within(value: Any, masses: LossMasses) -> Any:
    return value * (1 + masses.rounding)


def draw(
    name: str,
    delta: Callable[[Any], Any],
    epsilon: Callable[[float], float],
    path: str | Path | None,
) -> Figure:
    """Draw δ against ε until it is small or stays where it is."""
    from matplotlib.figure import Figure

    limit = max(SMALLEST_DELTA, float(delta(math.inf)) * (1 + 1e-6) + 4 * EPS)
    reach = epsilon(min(limit, 1.0))
    points = np.linspace(0.0, reach if 0 < reach < math.inf else 1.0, FIGURE_POINTS)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(points, np.maximum(delta(points), SMALLEST_DELTA), color=BOUND_COLOUR)
    axes.set_xlabel("ε (nats)")
    axes.set_ylabel("δ(ε), log scale: upper bound")
    axes.set_title(name, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0.0)
    if path is not None:
        figure.savefig(path)
    return figure
