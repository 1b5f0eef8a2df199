"""The rows that the hidden-state paper published, and what they say when counted again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

FIGURES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
)
# its names of the mechanisms that are measured here too
NAMES = {
    "isotropic": "isotropic",
    "inverse-fisher-diagonal": "fisher_diag_inv",
    "mahalanobis-optimal": "mahalanobis_opt",
}


@dataclass(frozen=True)
class Published:
    """A row of its sweep."""

    model: str
    layer: int
    mechanism: str
    sigma: float
    kl: float
    agreement: float
    attack: float


def rows(mechanism: str | None = None, sigma: float | None = None) -> list[Published]:
    """Return the rows of its sweep, of one mechanism and one σ where given."""
    found = [
        Published(point["model"], point["layer"], name, level, *values)
        for point in FIGURES["sweep"]
        for name, curve in point["curves"].items()
        for level, values in zip(FIGURES["sigmas"], curve, strict=True)
    ]
    return [
        row
        for row in found
        if (mechanism is None or row.mechanism == mechanism)
        and (sigma is None or row.sigma == sigma)
    ]


def inside(agreement: float = 0.5, attack: float = 0.5) -> list[Published]:
    """Return the rows that agree at least so often under an attack of at most so much."""
    return [row for row in rows() if row.agreement >= agreement and row.attack <= attack]


def at_equal_kl(mechanism: str) -> list[tuple[str, int, float, float, float]]:
    """Return (model, layer, KL, its attack, isotropic's there) where measured KL overlap.

    Each row of the mechanism stands beside isotropic noise of the same KL, interpolated between
    two rows of the same layer, linearly; rows that isotropic noise does not reach are left out.
    """
    found = []
    for point in FIGURES["sweep"]:
        isotropic = sorted(point["curves"]["isotropic"])
        for kl, _, attack in point["curves"][mechanism]:
            for left, right in pairwise(isotropic):
                if left[0] <= kl <= right[0] and left[0] < right[0]:
                    share = (kl - left[0]) / (right[0] - left[0])
                    other = (1 - share) * left[2] + share * right[2]
                    found.append((point["model"], point["layer"], kl, attack, other))
                    break
    return found


def best_exponents(kind: str) -> list[float]:
    """Return the exponent with the least ``"signal"`` or ``"attack"`` at each of its points."""
    exponents = FIGURES["exponents"]
    return [exponents[min(range(len(exponents)), key=entry[kind].__getitem__)]
            for entry in FIGURES["power"]]  # fmt: skip


def gains(name: str) -> tuple[float, float]:
    """Return the least and largest ``"mahalanobis_gain"`` or ``"euclidean_gain"``."""
    values = [point[name] for point in FIGURES["sweep"]]
    return min(values), max(values)


def winners(epsilon: float) -> dict[str, int]:
    """Return at how many models each mechanism has the least attack at a matched ε, ties shared."""
    models = sorted({entry[0] for entry in FIGURES["matched"]})
    count: dict[str, int] = {}
    for model in models:
        own = {e[1]: e[4] for e in FIGURES["matched"] if e[0] == model and e[2] == epsilon}
        for name, attack in own.items():
            count[name] = count.get(name, 0) + (attack == min(own.values()))
    return count
