"""Axes of matplotlib, which an extra brings: pages draw their own figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._ground.lazy import install_with

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def new_axes(width: float, height: float) -> Axes:
    """Return the axes of a figure of its own, in inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ImportError(f"a figure needs matplotlib: {install_with('plot')}") from None
    return Figure(figsize=(width, height), layout="constrained").add_subplot()
