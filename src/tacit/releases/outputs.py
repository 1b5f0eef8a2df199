"""The spread of the outputs that a release could have had, rounded up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS

SMALLEST_SPREAD, LARGEST_SPREAD = 1e-120, 1e120
LARGEST_SHOWN = 1e300
OUTPUTS = "query: expected outputs"


def check_spread(outputs: Array, what: str = OUTPUTS) -> npt.NDArray[np.bool_]:
    """Return which of the numbers (K, d) are the same in all outputs, (d,).

    Args:
        outputs: (K, d).
        what: how a refusal begins.

    Raises:
        ValueError: the outputs spread so far, or so little, that their squares leave the range
            of double precision.
    """
    still = (outputs == outputs[0]).all(axis=0)
    with np.errstate(over="ignore"):
        spread = float(np.abs(outputs - outputs[0]).max())
        lowest = float(np.ptp(outputs[:, ~still], axis=0).min(initial=np.inf))
    if spread > LARGEST_SPREAD or lowest < SMALLEST_SPREAD:
        beyond = spread if spread > LARGEST_SPREAD else lowest
        raise ValueError(
            f"{what} that spread over {SMALLEST_SPREAD:g} to {LARGEST_SPREAD:g}, got "
            f"{beyond:.3g}: choose other units"
        )
    return np.asarray(still)


def output_covariance(
    outputs: Array, shares: Array | None = None, what: str = OUTPUTS
) -> tuple[Array, Array, float]:
    """Return the mean (d,), the covariance S (d, d) and its slack, for K outputs.

    Each has the probability in ``shares``, (K,), and 1/K where that is None.

    The true covariance of the K stored outputs is at most ``S + slack · diag(S)``: an entry of
    the product of K terms is off by at most ``(K + 8) 2⁻⁵² √(S_ii S_jj)``, and a matrix of such
    entries is at most d times its diagonal. About any other point than the mean the second
    moment is larger still, so the rounding of the mean is on the safe side.

    Raises:
        ValueError: as ``check_spread``.
    """
    count, size = outputs.shape
    still = check_spread(outputs, what)
    middle = outputs.mean(axis=0) if shares is None else shares @ outputs
    mean = np.where(still, outputs[0], middle)
    centred = outputs - mean
    if shares is None:
        covariance = centred.T @ centred / count
    else:
        covariance = (centred * shares[:, None]).T @ centred
    slack = size * (count + 8) * EPS
    return mean, (covariance + covariance.T) / 2.0, slack


def described_covariance(outputs: Array) -> tuple[Array, Array]:
    """Return mean and covariance of outputs of any size, for display, within double precision."""
    exponents = np.frexp(np.abs(outputs).max(axis=0))[1]
    scaled = np.ldexp(outputs, -exponents)
    mean = scaled.mean(axis=0)
    centred = scaled - mean
    both = exponents[:, None] + exponents[None, :]
    with np.errstate(over="ignore", under="ignore"):
        covariance = np.ldexp(centred.T @ centred / len(outputs), both)
        shown = np.clip((covariance + covariance.T) / 2.0, -LARGEST_SHOWN, LARGEST_SHOWN)
        return np.ldexp(mean, exponents), shown
