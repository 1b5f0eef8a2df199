"""A privacy profile made of upper bounds of its hockey-stick curves."""

from __future__ import annotations

from collections.abc import Sequence

from tacit._ground.checks import as_float, in_interval
from tacit.accounting.curves.amplification import ANY_NEIGHBOURS
from tacit.accounting.curves.discretisation import Curve, guarded
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.guarantees.base import Evidence, text, texts


def profile_from_curves(
    forward: Curve,
    backward: Curve | None = None,
    *,
    name: str,
    infinite_mass: float = 0.0,
    renyi: Curve | None = None,
    source: str,
    assumptions: Sequence[str],
    evidence: Evidence = "numerical",
    adjacency: str = ANY_NEIGHBOURS,
) -> PrivacyProfile:
    """Build a profile from upper bounds of its hockey-stick curves.

    Args:
        forward: Upper bound of H_{e^ε}(P‖Q) for an array of any real ε, already rounded up,
            never NaN, in [0, 1].
        backward: The same for (Q, P); None when the two are equal, in which case
            δ(−ε) = 1 − e^{−ε}(1 − δ(ε)) up to rounding.
        name: The mechanism in a few words.
        infinite_mass: Upper bound of the limit of both curves at ε = inf.
        renyi: Upper bound of the Rényi divergence of both directions at an array of orders > 1.
        source: Where the curves come from.
        assumptions: What must hold for them to be true.
        evidence: ``"theorem"`` or ``"numerical"``.
        adjacency: Which inputs P and Q come from.

    Returns:
        The profile.

    Raises:
        ValueError: A text is empty, ``infinite_mass`` is outside [0, 1], or a curve is not
            callable.

    Example:
        >>> import numpy as np
        >>> flip = profile_from_curves(
        ...     lambda e: np.maximum(0.75 - 0.25 * np.exp(e), np.maximum(1 - np.exp(e), 0)),
        ...     name="a coin that lies a quarter of the time", source="example", assumptions=(),
        ... )
        >>> round(flip.epsilon(0.0), 6)
        1.098612
    """
    for label, curve in (("forward", forward), ("backward", backward), ("renyi", renyi)):
        if not callable(curve) and (curve is not None or label == "forward"):
            raise ValueError(f"{label}: expected a function of ε, got {type(curve).__name__}")
    ahead = guarded("forward", forward)
    return PrivacyProfile(
        name=text("name", name),
        forward=ahead,
        backward=ahead if backward is None else guarded("backward", backward),
        infinite_mass=in_interval("infinite_mass", as_float("infinite_mass", infinite_mass), 0, 1),
        source=text("source", source),
        assumptions=texts("assumptions", assumptions),
        evidence=evidence,
        adjacency=text("adjacency", adjacency),
        renyi_curve=renyi,
    )
