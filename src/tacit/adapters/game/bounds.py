"""What a privacy profile leaves to an attacker at every threshold."""

from __future__ import annotations

import numpy as np

from tacit._ground.numbers import EPS
from tacit.accounting import PrivacyProfile

LARGEST_EPSILON, EPSILONS, CELLS = 40.0, 400, 4000


def auc_from_profile(profile: PrivacyProfile) -> float:
    """Bound the AUC of every test of membership.

    With ``f(α) = max_ε max(1 − δ(ε) − e^ε α, e^−ε (1 − δ(ε) − α), 0)`` no test has a true positive
    rate above ``1 − f(α)`` at the false positive rate α, hence ``AUC <= 1 − ∫ f``. On a grid of ε
    f is no larger and still convex, so that the midpoint rule is below its integral.

    Args:
        profile: of two neighbouring data sets, with the record and without it.

    Returns:
        The bound, rounded up, at least ½.

    Example:
        >>> from tacit.accounting import gaussian
        >>> round(auc_from_profile(gaussian(1.0, 1.0)), 3)
        0.76

    Source: Dong, Roth and Su (2022), Proposition 2.12.
    """
    epsilons = LARGEST_EPSILON * np.linspace(0.0, 1.0, EPSILONS) ** 2
    kept = 1.0 - profile.delta(epsilons)
    rates = (np.arange(CELLS) + 0.5) / CELLS
    missed = np.zeros(CELLS)
    for epsilon, share in zip(epsilons, kept, strict=True):
        np.maximum(missed, share - np.exp(epsilon) * rates, out=missed)
        np.maximum(missed, np.exp(-epsilon) * (share - rates), out=missed)
    area = 1.0 - float(missed.mean()) + 8.0 * CELLS * EPS
    return min(1.0, max(0.5, area))
