"""What a sample says of the information of a quotient: estimates, which certify nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import array, matrix, positive

NOT_PROVEN = (
    "an estimate from a sample, not a bound: no sample certifies a population covariance or mean"
)
OF_A_SAMPLE = (
    "of z drawn from N(μ(h), diag s(h)²): where other noise is released than these deviations, "
    "such as μ + σ η, it says nothing of the release"
)


@dataclass(frozen=True, kw_only=True)
class InformationEstimate:
    """What a formula gives for a sample, in nats; it is no guarantee and none is made of it.

    Attributes:
        nats: the value.
        sample: vectors it was worked out from.
        formula: what was worked out.
        warning: what it does not say.

    Source: hidden-state, Thm 19 and App. X.
    """

    nats: float
    sample: int
    formula: str
    warning: str

    def describe(self) -> str:
        """Say the number and what it is not."""
        return f"Estimated {self.nats:.3g} nats from {self.sample:,} vectors; {self.warning}."


def estimate_log_det(quotients: ArrayLike, *, noise_std: float) -> InformationEstimate:
    """Estimate ``½ logdet(I + Λ/σ²)`` with the covariance of a sample in the place of Λ.

    Args:
        quotients: (n, k) clean quotients, n >= 2.
        noise_std: σ > 0 of the release.

    Returns:
        The estimate. Were Λ that of the population, it would bound the information.

    Raises:
        ValueError: fewer than two vectors, or not finite.

    Example:
        >>> estimate_log_det([[1.0], [-1.0]], noise_std=1.0).nats.__round__(4)
        0.5493

    Source: hidden-state, Thm 19 (2), with n − 1 in the covariance.
    """
    rows = matrix("quotients", quotients)
    if len(rows) < 2:
        raise ValueError(f"quotients: expected at least 2 vectors, got {len(rows)}")
    deviation = positive("noise_std", noise_std)
    with np.errstate(over="ignore", invalid="ignore"):
        # in units of σ, so that Λ/σ² needs no division later
        centred = (rows - rows.mean(axis=0)) / deviation
    # the singular values of the sample lose less than its covariance does
    with np.errstate(over="ignore", invalid="ignore"):
        usable = np.isfinite((centred**2).sum())
    if not usable:
        raise ValueError("quotients: expected squares of Λ/σ² in the range of float64, got larger")
    # ½ Σ ln(1 + λ_i/σ²), λ_i = singular value²/(n − 1) of the centred rows
    values = np.linalg.svd(centred, compute_uv=False)
    return InformationEstimate(
        nats=float(0.5 * np.log1p(values**2 / (len(rows) - 1)).sum()),
        sample=len(rows),
        formula="½ logdet(I + Λ/σ²)",
        warning=NOT_PROVEN,
    )


def estimate_rate(means: ArrayLike, deviations: ArrayLike) -> InformationEstimate:
    """Estimate ``E KL(N(μ(h), diag s(h)²) ‖ N(0, I))``, the rate of a variational bottleneck.

    Its expectation is at least I(h; z) *for z drawn with these deviations*. ``μ(h) + σ η`` released
    with another σ has another information, of which this says nothing.

    Args:
        means: μ(h), (n, k).
        deviations: s(h) > 0, (n, k), or one number: those that z was drawn with.

    Returns:
        The estimate.

    Raises:
        ValueError: shapes that differ, a deviation that is not positive, or not finite.

    Example:
        >>> estimate_rate([[0.0, 2.0]], 1.0).nats
        2.0

    Source: hidden-state, App. X.1, the regulariser β KL(q(z|h) ‖ N(0, I)).
    """
    centres = matrix("means", means)
    scales = np.broadcast_to(array("deviations", deviations, ndim=(0, 2)), centres.shape)
    if scales.min() <= 0.0:
        raise ValueError(f"deviations: expected numbers > 0, got {scales.min():.6g}")
    # KL(N(μ, s²) ‖ N(0, 1)) = ½ (μ² + s² − 1) − ln s, coordinate by coordinate
    each = 0.5 * (centres**2 + scales**2 - 1.0) - np.log(scales)
    return InformationEstimate(
        nats=math.fsum(each.sum(axis=1).tolist()) / len(centres),
        sample=len(centres),
        formula="E KL(N(μ, diag s²) ‖ N(0, I))",
        warning=f"{NOT_PROVEN}; {OF_A_SAMPLE}",
    )
