"""What a release hides, how well, and what it does not, as rows of tables and lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    SuccessBound,
)
from tacit.guarantees.leakage import factor_words
from tacit.pages.numbers import epsilon_at
from tacit.releases import Number, Release
from tacit.text import beside, percent, percent_up, significant_up

NOT_HIDDEN = "not hidden"
DELTAS = ((1e-3, "10⁻³"), (1e-6, "10⁻⁶"), (1e-9, "10⁻⁹"))


@dataclass(frozen=True)
class NumberRow:
    """One released number, as a table shows it."""

    name: str
    value: str
    noise: str
    sampling: str


def number_row(number: Number) -> NumberRow:
    """Return a number with its 95% intervals, as many digits as the noise leaves."""
    return NumberRow(
        number.name,
        beside(number.value, number.error),
        _ends(number, sampling=False) if number.error else "exact",
        "" if number.sampling is None else _ends(number, sampling=True),
    )


def _ends(number: Number, *, sampling: bool) -> str:
    low, high = number.interval(sampling=sampling)
    spread = number.half_width(sampling=sampling)
    return f"{beside(low, spread)} to {beside(high, spread)}"


def strength_rows(release: Release[Any]) -> list[tuple[str, str]]:
    """Return what the guarantees come to: (what, how much)."""
    rows = [
        (f"success of guessing {held.task}", f"at most {percent_up(held.success)}, blind "
         f"{percent(held.prior)}")
        for held in release.guarantees
        if isinstance(held, SuccessBound)
    ]  # fmt: skip
    for held in release.guarantees:
        if isinstance(held, GaussianDP):
            advantage = max(2.0 * held.success().success - 1.0, 0.0)
            rows.append(("advantage over guessing blind, of a fair coin", percent_up(advantage)))
            rows.append((f"Gaussian differential privacy ({held.adjacency})",
                         f"μ = {significant_up(held.mu, 4)}"))  # fmt: skip
            rows += [
                (f"differential privacy that follows at δ = {label}",
                 f"ε = {significant_up(epsilon_at(held, delta))}")
                for delta, label in DELTAS
            ]  # fmt: skip
        elif isinstance(held, ApproximateDP):
            rows.append((f"differential privacy ({held.adjacency}) at δ = {held.delta:g}",
                         f"ε = {significant_up(held.epsilon)}"))  # fmt: skip
        elif isinstance(held, InformationBound):
            rows.append((f"information about {held.secret}",
                         f"at most {significant_up(held.nats)} nats"))  # fmt: skip
        elif isinstance(held, MaximalLeakage):
            rows.append(("factor on any attacker's chance, for every prior",
                         f"at most {factor_words(held)}"))  # fmt: skip
    levels = {held.confidence for held in release.guarantees if held.confidence is not None}
    rows += [("holds with probability", f"{level:g}") for level in sorted(levels)]
    return rows


def assumed(release: Release[Any]) -> list[str]:
    """Return what has to hold."""
    return [text for text in release.all_assumptions if NOT_HIDDEN not in text]


def not_hidden(release: Release[Any]) -> list[str]:
    """Return what the promise does not hide."""
    found = [text for text in release.all_assumptions if NOT_HIDDEN in text]
    return [text.removeprefix(f"{NOT_HIDDEN}: ") for text in found]
