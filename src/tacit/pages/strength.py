"""What a release hides, how well, and what it does not, as rows of tables and lines."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.guarantees.leakage import factor_words
from tacit.guarantees.one_line import TOLD_DELTA, one_line
from tacit.pages.numbers import epsilon_at
from tacit.pages.parts import table
from tacit.releases import Release
from tacit.text import chance_down, in_nats, number_down, number_up, share_nearest, share_up

NOT_HIDDEN = "not hidden"
# Of a Rényi curve the δ of its title is told among them.
TOLD = (1e-3, TOLD_DELTA, 1e-6, 1e-9)
DELTAS = (1e-3, 1e-6, 1e-9)


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
            rows += [_follows(delta, epsilon_at(held, delta)) for delta in DELTAS]
        elif isinstance(held, RenyiDP):
            least = min(zip(held.epsilons, held.orders, strict=True))
            rows.append((f"Rényi differential privacy ({held.adjacency}), of order "
                         f"{number_down(least[1], 6)}", in_nats(number_up(least[0]))))  # fmt: skip
            rows += [_follows(delta, held.approximate(delta).epsilon) for delta in TOLD]
        elif isinstance(held, ApproximateDP):
            rows.append((f"differential privacy ({held.adjacency}) at δ = {number_up(held.delta)}",
                         f"ε = {number_up(held.epsilon)}"))  # fmt: skip
        elif isinstance(held, InformationBound):
            rows.append((f"information about {held.secret}",
                         f"at most {in_nats(number_up(held.nats))}"))  # fmt: skip
        elif isinstance(held, MaximalLeakage):
            rows.append((f"factor on anyone's chance of guessing anything about {held.secret}",
                         f"at most {factor_words(held)}"))  # fmt: skip
        elif not isinstance(held, SuccessBound):
            line = one_line(held)
            rows.append((line.words, f"at most {line.number}"))
    levels = {held.confidence for held in release.guarantees if held.confidence is not None}
    rows += [("holds with probability", chance_down(level)) for level in sorted(levels)]
    return rows


def strength_table(release: Release[Any]) -> Markup:
    """Return them as a table; nothing where there are none."""
    rows = strength_rows(release)
    return table("strength of the promise", (), rows, "strength") if rows else Markup("")


def _follows(delta: float, epsilon: float) -> tuple[str, str]:
    """Return the row of an (ε, δ) that another promise implies."""
    return (
        f"differential privacy that follows at δ = {number_up(delta)}",
        f"ε = {number_up(epsilon)}",
    )


def assumed(release: Release[Any]) -> list[str]:
    """Return what has to hold."""
    return [text for text in release.all_assumptions if NOT_HIDDEN not in text]


def not_hidden(release: Release[Any]) -> list[str]:
    """Return what the promise does not hide."""
    found = [text for text in release.all_assumptions if NOT_HIDDEN in text]
    return [
        text.removeprefix(f"{NOT_HIDDEN}: ").removesuffix(f" is {NOT_HIDDEN}").removesuffix(",")
        for text in found
    ]
