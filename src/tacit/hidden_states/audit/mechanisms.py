"""The mechanisms of a sweep by name: Gaussian designs at a KL budget, and codebooks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tacit._ground.checks import choice, positive
from tacit.design import Design
from tacit.hidden_states.geometry.estimation import Geometry
from tacit.hidden_states.noise.designs import designs_at_budget

GAUSSIANS = (
    "isotropic",
    "inverse-fisher",
    "inverse-fisher-diagonal",
    "mahalanobis-optimal",
    "mahalanobis-bare",
    "complement",
    "fisher-complement",
    "worst-case",
)
# Nats that a changed likeliest token costs in the codebook that guards decisions.
DECISION_COST = 4.0
# name: metric, codewords and decision cost of the codebook
CODEBOOKS = {
    "codebook-euclidean": ("euclidean", "centroid", 0.0),
    "codebook-fisher": ("fisher", "trained", 0.0),
    "codebook-behaviour": ("behaviour", "trained", 0.0),
    "codebook-decision": ("behaviour", "trained", DECISION_COST),
    "argmax": ("argmax", "trained", 0.0),
}
_POWER = re.compile(r"power\(([0-9]{1,3}(?:\.[0-9]{1,6})?)\)")
_EIGEN = re.compile(r"generalized-eigen\(([1-9][0-9]{0,5})\)")
WORST_CASE_DIFFERENCES = 128


def check_mechanism(name: object) -> str:
    """Return the name of a mechanism when there is one.

    Names with a parameter are ``power(0.5)``, the exponent α of diag(F)^−α, and
    ``generalized-eigen(1)``, the number of directions.

    Example:
        >>> check_mechanism("power(0.5)")
        'power(0.5)'
    """
    if isinstance(name, str) and (_POWER.fullmatch(name) or _EIGEN.fullmatch(name)):
        return name
    known = (*GAUSSIANS, "power(α)", "generalized-eigen(k)", *CODEBOOKS)
    found = choice("mechanisms", name, known)
    if found.endswith((")",)):
        raise ValueError(
            f"mechanisms: expected a number in the place of {found[-2]}, got {found!r}"
        )
    return found


def is_gaussian(name: str) -> bool:
    """Whether a checked name is a Gaussian design's."""
    return name not in CODEBOOKS


class Designs:
    """The Gaussian designs of one layer, each computed once and scaled to what is asked.

    Args:
        geometry: F and S of the layer.
        differences: (m, d), the adjacency set, of which ``"worst-case"`` takes the first 128.
    """

    def __init__(self, geometry: Geometry, differences: Any) -> None:
        self._geometry, self._differences = geometry, differences[:WORST_CASE_DIFFERENCES]
        self._found: dict[str, Design] = {}

    def named(self, name: str, kl_budget: float) -> Design:
        """Return one design of ``designs_at_budget`` by its name, at K = ½ tr(FΣ) nats.

        Raises:
            ValueError: an unknown name, or a design that this F does not allow.

        Source: hidden-state, Sec. 4–6, App. Q and S.
        """
        budget = positive("kl_budget", kl_budget)
        key, options = self._options(check_mechanism(name))
        if key not in self._found:
            self._found.update(designs_at_budget(self._geometry, 1.0, **options))
        if key not in self._found:
            raise ValueError(
                f"mechanisms: {name} needs a Fisher information of rank above "
                f"{self._geometry.rank}, got rank {self._geometry.fisher_rank}"
            )
        return scaled_design(self._found[key], budget)

    def _options(self, name: str) -> tuple[str, dict[str, Any]]:
        if exponent := _POWER.fullmatch(name):
            alpha = float(exponent[1])
            return f"power({alpha:g})", {"exponent": alpha}
        if directions := _EIGEN.fullmatch(name):
            if int(directions[1]) >= self._geometry.width:
                raise ValueError(
                    f"mechanisms: expected fewer than {self._geometry.width} directions, got {name}"
                )
            return name, {"rank": int(directions[1])}
        return name, {"differences": self._differences} if name == "worst-case" else {}


def scaled_design(design: Design, factor: float) -> Design:
    """Return the design with c Σ in the place of Σ."""
    return replace(
        design,
        covariance=design.covariance.scaled(factor),
        cost=design.cost * factor,
        constraint_factor=None,
        multiplier_ratios=None,
    )
