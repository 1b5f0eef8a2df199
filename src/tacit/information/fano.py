"""Fano's inequality: what an accuracy that was reached says about the information leaked."""

from __future__ import annotations

import math

from scipy.special import entr

from tacit._validation import in_interval, integer
from tacit.linalg import MACHINE_EPSILON

ENTROPY_TOLERANCE = 1e-12


def fano_information(accuracy: float, classes: int, label_entropy: float) -> float:
    """Fewest nats a release must leak if someone names its label with this accuracy.

    ``I(X; Y) >= I(L; Y) >= H(L) − h(e) − e ln(C − 1)``, e = 1 − accuracy, h the entropy of a coin,
    for a label L that is a function of the secret X. The right side grows with the accuracy from
    1/C on and is at most zero there, so a lower bound on the accuracy gives a lower bound.

    Args:
        accuracy: probability of naming the label from the release, or a lower bound on it.
        classes: C >= 2, number of labels that can occur or be guessed.
        label_entropy: H(L) in nats, in [0, ln C].

    Returns:
        Nats, rounded down; 0 at an accuracy of 1/C or less.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> round(fano_information(0.87, 4, math.log(4.0)), 3)
        0.857

    Source: Fano's inequality (Cover and Thomas, Thm 2.10.1), with the error term kept.
    """
    reached = in_interval("accuracy", accuracy, 0.0, 1.0)
    count = integer("classes", classes, minimum=2, maximum=2**53)
    limit = math.log(count)
    uncertainty = in_interval(
        "label_entropy", label_entropy, 0.0, limit * (1.0 + ENTROPY_TOLERANCE)
    )
    if reached * count <= 1.0:
        return 0.0
    error = 1.0 - reached
    lost = float(entr(error)) + float(entr(reached)) + error * math.log(count - 1)
    return max(0.0, uncertainty - lost - 8.0 * MACHINE_EPSILON * (1.0 + limit))
