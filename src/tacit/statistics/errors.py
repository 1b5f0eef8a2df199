"""Errors as they are told: deviations of which ±1.96 hold 95%, and digits that may be published."""

from __future__ import annotations

import math

import numpy as np

from tacit._ground.checks import Array
from tacit.statistics.queries.statistic import NORMAL_95

# Of intervals, and the share of the normal law within one deviation.
LEVEL, NORMAL_68_SHARE = 0.95, 0.6826894921370859


def deviations(gaps: Array) -> Array:
    """Return deviations (d,) of which ±1.96 hold 95% of errors (n, d), and ±1 hold 68%."""
    # the ⌈q (n + 1)⌉-th smallest |error| is exceeded by one more with probability 1 − q at most
    sizes = np.sort(np.abs(gaps), axis=0)
    count = len(sizes)
    ends = [
        sizes[min(math.ceil(share * (count + 1)), count) - 1] for share in (NORMAL_68_SHARE, LEVEL)
    ]
    # a normal error has both ends in this ratio; a heavier one has the wider
    return np.asarray(np.maximum(ends[0], ends[1] / NORMAL_95))


def two_digits_up(values: Array) -> Array:
    """Return non-negative numbers rounded up to two significant digits."""
    with np.errstate(divide="ignore"):
        exponents = np.where(values > 0.0, np.floor(np.log10(values)) - 1.0, 0.0)
    units = 10.0**exponents
    # a hair below: what has two digits already stays
    return np.asarray(np.ceil(values / units * (1.0 - 1e-12)) * units)
