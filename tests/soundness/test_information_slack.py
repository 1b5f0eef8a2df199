"""What rounding may have taken of an information is added upwards and taken off downwards."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import log, mp, mpf

from tacit.information.bounds import lowered_by, raised_by, whitening_slack

ERRORS = np.random.default_rng(0).uniform(size=300) ** 8 / 2.0


@pytest.mark.parametrize("dim", [1, 3, 768])
def test_slack_of_whitening_covers_the_logarithm(dim):
    """−½ d ln(1 − ρ), by more digits than a double has."""
    with mp.workdps(120):
        for error in ERRORS:
            exact = -mpf(dim) / 2 * log(1 - mpf(float(error)))
            assert exact <= mpf(whitening_slack(dim, float(error))) <= exact * (1 + mpf(2) ** -48)
    assert math.isinf(whitening_slack(dim, 0.5))


@pytest.mark.parametrize("seed", range(3))
def test_sums_with_slack_lie_on_their_sides(seed):
    """A sum of doubles that is rounded to nearest lies below the real one half of the time."""
    source = np.random.default_rng(seed)
    for nats, slack in source.uniform(size=(300, 2)) * [1.0, 1e-9]:
        exact = Fraction(nats) + Fraction(slack), Fraction(nats) - Fraction(slack)
        assert exact[0] <= Fraction(raised_by(nats, slack)) <= exact[0] * (1 + Fraction(2) ** -51)
        assert exact[1] * (1 - Fraction(2) ** -51) <= Fraction(lowered_by(nats, slack)) <= exact[1]
    assert raised_by(0.3, 0.0) == lowered_by(0.3, 0.0) == 0.3
