"""Privacy profiles for others to read: `dp_accounting` distributions and figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.axes import new_axes
from tacit._ground.lazy import install_with
from tacit._ground.numbers import EPS
from tacit.accounting.curves.composition import STEP, UPPER_TAIL, lattice_step
from tacit.accounting.curves.discretisation import ComposedPart, LossMasses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from matplotlib.axes import Axes
BOUND_COLOUR = "#0072B2"
# Where a figure of δ ends, and ε below which it is drawn, at so many points.
SMALLEST_DELTA, FIGURE_POINTS = 1e-12, 400
# What is beyond every ε is taken to be reached so much above it, relatively and in last places.
ABOVE_LIMIT, LIMIT_UNITS = 1e-6, 4


def to_dp_accounting(part: ComposedPart) -> PrivacyLossDistribution:
    """Return the pessimistic distribution of both directions on one lattice, rounded up.

    Raises:
        ImportError: ``dp_accounting`` is not installed.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution
        from dp_accounting.pld.pld_pmf import DensePLDPmf
    except ModuleNotFoundError as error:
        raise ImportError(
            f"to_dp_accounting needs dp_accounting: {install_with('exchange')}"
        ) from error

    # a step that both libraries compose quickly; losses between its points go up to the next
    both = part, part.reversed
    step = max(lattice_step(both, UPPER_TAIL), STEP)
    # equal directions are one distribution there
    found = [one.on(step, UPPER_TAIL) for one in both[: 1 if part.symmetric else 2]]
    laws = [
        DensePLDPmf(step, m.first, _within(m.masses, m), _within(m.infinite, m), True)
        for m in found
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*laws)


def _within(value: Any, masses: LossMasses) -> Any:
    """Return masses raised by their own rounding: what is handed over is an upper bound."""
    return value * (1 + masses.rounding)


def draw(
    name: str,
    delta: Callable[[Any], Any],
    epsilon: Callable[[float], float],
    axes: Axes | None,
) -> Axes:
    """Draw δ against ε until it is small or stays where it is."""
    # to where δ is small, or no longer falls: an infinite loss keeps it up
    limit = max(SMALLEST_DELTA, float(delta(math.inf)) * (1 + ABOVE_LIMIT) + LIMIT_UNITS * EPS)
    reach = epsilon(min(limit, 1.0))
    # a profile without a finite ε there is drawn up to 1 nat
    points = np.linspace(0.0, reach if 0 < reach < math.inf else 1.0, FIGURE_POINTS)
    if axes is None:
        axes = new_axes(6.4, 4.0)
    axes.semilogy(points, np.maximum(delta(points), SMALLEST_DELTA), color=BOUND_COLOUR)
    axes.set_xlabel("ε (nats)")
    axes.set_ylabel("δ(ε), log scale: upper bound")
    axes.set_title(name, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0.0)
    return axes
