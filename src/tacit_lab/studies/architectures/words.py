"""Numbers over seeds and verdicts as the page prints them."""

from __future__ import annotations

from collections.abc import Sequence

from tacit_lab.studies.reproductions.prose import table


def mean_range(values: Sequence[float], digits: int) -> str:
    """Return the mean, with the lowest and highest where there are several values."""
    mean = f"{sum(values) / len(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def verdict_table(found: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Return claims with what is printed, what was found, and the verdict."""
    return table(("claim", "printed", "found here", "verdict"), found)
