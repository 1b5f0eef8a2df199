"""What a release hides, how well, and what it does not, as rows of tables and lines."""

from __future__ import annotations

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
from tacit.releases import Release
from tacit.text import number_up, share_nearest, share_up

NOT_HIDDEN = "not hidden"
DELTAS = ((1e-3, "10⁻³"), (1e-6, "10⁻⁶"), (1e-9, "10⁻⁹"))


def strength_rows(release: Release[Any]) -> list[tuple[str, str]]:
    """Return what the guarantees come to: (what, how much)."""
    rows = [
        (f"success of guessing {held.task}", f"at most {share_up(held.success)}, blind "
         f"{share_nearest(held.prior)}")
        for held in release.guarantees
        if isinstance(held, SuccessBound)
    ]  # fmt: skip
    for held in release.guarantees:
        if isinstance(held, GaussianDP):
            rows.append((f"Gaussian differential privacy ({held.adjacency})",
                         f"μ = {number_up(held.mu)}"))  # fmt: skip
            rows += [
                (f"differential privacy that follows at δ = {label}",
                 f"ε = {number_up(epsilon_at(held, delta))}")
                for delta, label in DELTAS
            ]  # fmt: skip
        elif isinstance(held, ApproximateDP):
            rows.append((f"differential privacy ({held.adjacency}) at δ = {number_up(held.delta)}",
                         f"ε = {number_up(held.epsilon)}"))  # fmt: skip
        elif isinstance(held, InformationBound):
            rows.append((f"information about {held.secret}",
                         f"at most {number_up(held.nats)} nats"))  # fmt: skip
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
