"""How much a statistic varies with the rows drawn, as it may be published."""

from __future__ import annotations

import numpy as np

from tacit._ground.checks import Array


def two_digits_up(values: Array) -> Array:
    """Return non-negative numbers rounded up to two significant digits."""
    with np.errstate(divide="ignore"):
        exponents = np.where(values > 0.0, np.floor(np.log10(values)) - 1.0, 0.0)
    units = 10.0**exponents
    return np.asarray(np.ceil(values / units * (1.0 - 1e-12)) * units)
