"""How far a release is from the Gaussian of its moments, and what that takes off the log-det."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, in_interval, integer, matrix, non_negative
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance
from tacit.covariance.whitening import whiten
from tacit.information.bounds import InformationBracket
from tacit.information.distinct import distinct_outputs
from tacit.information.finite.deterministic import covered, gaussian_information
from tacit.information.finite.likelihood import FiniteSecret, posterior, principal_secret
from tacit.information.finite.mixture import prior_weights
from tacit.information.simulated import checked_noise

LARGEST_CONFIDENCE = math.nextafter(1.0, 0.0)
SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A lower bound on ``D_Z = KL(P_Z ‖ N(μ_Z, Σ_Z))``, Z the release, with its own moments.

    Attributes:
        nats: Lower bound >= 0; 0 is always true.
        confidence: In (0, 1]; 1 where nothing was sampled.
        samples: Draws it rests on; 0 where there were none.
        method: The statement it comes from.
        gaussian: ``½ logdet(I + S Σ⁻¹)`` of the same release in nats, rounded up; what ``improve``
            may subtract from.

    Raises:
        ValueError: a field is not what it should be.
    """

    nats: float
    confidence: float
    samples: int
    method: str
    gaussian: float

    def __post_init__(self) -> None:
        non_negative("nats", self.nats)
        non_negative("gaussian", self.gaussian, allow_inf=True)
        in_interval("confidence", self.confidence, 0.0, 1.0, open_low=True)
        integer("samples", self.samples, minimum=0)


def improve(bound: InformationBracket | float, gap: Gap) -> InformationBracket:
    """Subtract the gap from the Gaussian bound: ``I = ½ logdet(I + S Σ⁻¹) − D_Z``, exactly.

    Only the Gaussian bound, of the same release, may be improved: another upper bound may
    already be below ``I + D_Z``.

    Args:
        bound: the Gaussian bound in nats, at least ``gap.gaussian``, as ``log_det_information``
            gives it, or an ``InformationBracket`` whose upper bound is that one.
        gap: of the same outputs and noise.

    Returns:
        ``InformationBracket`` of ``bound − gap``. If both rest on samples, its confidence is
        ``1 − δ − δ'`` (union bound).

    Raises:
        ValueError: the bound is below the Gaussian bound of the release that the gap belongs to,
            or the confidences leave nothing.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> from tacit.information import gap_sliced_wasserstein
        >>> gap = gap_sliced_wasserstein([[-3.0], [3.0]], Isotropic(1.0, 1))
        >>> 0.6931 < improve(gap.gaussian, gap).upper < 1.1 < gap.gaussian
        True

    Source: residual-pac, Corollary 1, Eq. 8.
    """
    if not isinstance(gap, Gap):
        raise ValueError(f"gap: expected a Gap, got {type(gap).__name__}")
    if not isinstance(bound, InformationBracket):
        nats = non_negative("bound", bound, allow_inf=True)
        bound = InformationBracket(
            lower=0.0,
            estimate=nats,
            upper=nats,
            confidence=LARGEST_CONFIDENCE,
            samples=0,
            method="given",
            deterministic=True,
        )
    if bound.upper < gap.gaussian * (1.0 - SAME):
        raise ValueError(
            f"bound: expected the Gaussian bound of the gap's release, {gap.gaussian:.6g} nats, "
            f"got {bound.upper:.6g}; a gap may not be subtracted from a tighter bound"
        )
    deterministic = bound.deterministic and gap.confidence == 1.0
    doubt = (1.0 - gap.confidence) + (0.0 if bound.deterministic else 1.0 - bound.confidence)
    confidence = min(bound.confidence, math.nextafter(1.0 - doubt, 0.0))
    if confidence <= 0.0:
        raise ValueError(f"gap: expected confidences that leave some, got {1.0 - doubt:.6g}")
    # A given bound may be below the Gaussian one by the tolerance just allowed.
    base = max(bound.upper, gap.gaussian)
    upper = max(math.nextafter(base - gap.nats, math.inf), bound.lower)
    return InformationBracket(
        lower=bound.lower,
        estimate=min(max(bound.lower, bound.estimate - gap.nats), upper),
        upper=upper,
        confidence=confidence,
        samples=bound.samples + gap.samples,
        method=f"Gaussian information less a gap (residual-pac, Corollary 1): {gap.method}",
        deterministic=deterministic,
    )


@dataclass(frozen=True, eq=False)
class NoisySecret:
    """A finite secret in its principal axes with what rounding may have done to its gap.

    ``Σ_Z = diag(1 + w)``; the release is ``points[x] + N(0, I)``.
    """

    secret: FiniteSecret
    gaussian: float
    slack: float

    @property
    def variances(self) -> Array:
        """Return (r,) the variances 1 + w of the release."""
        return 1.0 + self.secret.eigenvalues

    def log_ratio(self, noisy: Array) -> Array:
        """Return ``r = ln p̄/g`` at (n, r) releases, rounded down."""
        found = posterior(self.secret, noisy)
        shrink = self.secret.eigenvalues / self.variances
        quadratic = 0.5 * (noisy**2) @ shrink
        half_log = 0.5 * float(np.log1p(self.secret.eigenvalues).sum())
        ratio: Array = found.log_sum - quadratic + half_log - 4.0 * found.error
        return ratio

    def gaussian_draws(self, n: int, source: np.random.Generator) -> Array:
        """Return (n, r) draws of N(0, Σ_Z)."""
        draws: Array = source.standard_normal((n, len(self.variances))) * np.sqrt(self.variances)
        return draws


def noisy_secret(outputs: Any, covariance: Covariance, weights: Any) -> NoisySecret | None:
    """Return the release in whitened axes; None where noise leaves a difference bare.

    Raises:
        ValueError: a bad argument.
    """
    covariance = checked_noise(covariance)
    points = matrix("outputs", outputs, columns=covariance.dim)
    law = None if weights is None else prior_weights(weights, len(points))
    points, priors = distinct_outputs(points, law)
    reached = covered(points, covariance)
    if reached is None:
        return None
    whitened, error = whiten(*reached)
    if error >= 0.5:
        return None
    secret = principal_secret(whitened - whitened[0], priors)
    count, size = secret.points.shape
    # The information and its Gaussian bound each move by −½ d ln(1 − ρ) at most under a relative
    # error ρ of the noise; the moments of g are off by (N + d + 8) u tr S.
    moments = size * (count + size + 8) * EPS * float(secret.eigenvalues.sum())
    slack = -0.5 * size * math.log1p(-error)
    return NoisySecret(secret, gaussian_information(secret) + slack, 2.0 * slack + moments)
