"""Exact success of telling swaps apart under the noise of a release; pools that are hard."""

import itertools
from fractions import Fraction

import numpy as np
from scipy.special import ndtr

from tacit.covariance import Diagonal

from .exact import exact_distances


def exact_success(parts, swaps):
    """Φ(‖z‖/2) of every swap z under independent noise on parts of the sums.

    Squared distances add; they are exact, or computed with hundreds of digits.
    """
    total = np.zeros(len(swaps))
    for chosen, law in parts:
        moved = np.asarray(swaps)[:, chosen]
        measured = _diagonal if isinstance(law, Diagonal) else exact_distances
        total += measured(law, moved)
    return ndtr(0.5 * np.sqrt(total))


def _diagonal(covariance, rows):
    variances = [Fraction(entry) for entry in covariance.variances.tolist()]
    return np.array(
        [
            float(sum(Fraction(z) ** 2 / v for z, v in zip(row, variances, strict=True)))
            for row in rows.tolist()
        ]
    )


def pool(rng, rows, columns):
    """Rows of a law that changes from pool to pool: heavy tails, scales, copies, categories."""
    kind = rng.integers(6)
    if kind == 0:
        values = rng.standard_t(1.2, (rows, columns))
    elif kind == 1:
        values = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-6, 6, columns)
    elif kind == 2:
        values = np.repeat(rng.normal(size=(-(-rows // 2), columns)), 2, axis=0)[:rows]
        values = values + 1e-9 * rng.normal(size=values.shape)
    elif kind == 3:
        values = rng.integers(0, 3, (rows, columns)).astype(float)
    elif kind == 4:
        values = rng.lognormal(0.0, 3.0, (rows, columns))
    else:
        values = rng.normal(size=(rows, columns))
        values[0] *= 1e6
    return values


def every_draw(pairing):
    """Every way the coins can fall, as places in the groups and as rows."""
    places = range(pairing.group_size)
    for fallen in itertools.product(places, repeat=len(pairing)):
        yield fallen, pairing.members[np.arange(len(pairing)), list(fallen)]
