"""Tables 5 and 6 of the dsi paper as printed: accuracies and successes in per cent, δ = 1e-5."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """One row: attack success with the paper's noise, and with isotropic noise of its accuracy."""

    sources: int
    epsilon: float
    accuracy: float
    optimal: float
    isotropic: float
    isotropic_epsilon: float


TABLES: dict[str, tuple[Printed, ...]] = {
    "low-frequency": (
        Printed(10, 8, 75.6, 13.9, 25.6, 2019),
        Printed(10, 4, 65.5, 2.0, 20.2, 575),
        Printed(20, 8, 79.1, 8.4, 16.2, 1661),
        Printed(20, 4, 70.9, 5.3, 11.5, 479),
        Printed(40, 8, 78.4, 6.4, 7.3, 627),
        Printed(40, 4, 73.6, 6.6, 7.2, 312),
        Printed(80, 8, 79.5, 8.9, 8.2, 350),
        Printed(80, 4, 74.1, 6.1, 7.7, 114),
    ),
    "blended": (
        Printed(10, 8, 73.9, 15.7, 9.9, 2019),
        Printed(10, 4, 57.5, 0.1, 9.8, 350),
        Printed(20, 8, 77.9, 7.7, 8.8, 1661),
        Printed(20, 4, 67.1, 1.1, 2.4, 241),
        Printed(40, 8, 78.8, 7.1, 4.1, 627),
        Printed(40, 4, 73.5, 12.3, 5.1, 312),
        Printed(80, 8, 79.3, 3.4, 3.9, 350),
    ),
}
NUMBERS = {"low-frequency": 5, "blended": 6}


def printed(trigger: str, sources: int, epsilon: float) -> Printed | None:
    """Return a printed row, None where the paper has none."""
    found = [r for r in TABLES[trigger] if (r.sources, r.epsilon) == (sources, epsilon)]
    return found[0] if found else None
