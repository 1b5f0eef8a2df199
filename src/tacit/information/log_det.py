"""The Gaussian information ½ logdet(I + S Σ⁻¹), rounded up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, check_psd, integer, non_negative, positive, symmetric
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal, Factored, Isotropic
from tacit.covariance.coercion import as_covariance
from tacit.covariance.whitening import strained
from tacit.guarantees import InformationBound

# Units in the last place for each row: a Cholesky factorisation has a backward error of (d + 1)
# half units of the trace (Higham, Thm 10.3), two solves and an eigensolver of 7 d half units of the
# norm (Thm 9.4, without growth of pivots); both are covered twice.
ROUNDING_UNITS = 8.0
# Relative rounding, in units: of a quotient of variances, of a sum of logarithms, of the formula
# of clipped vectors (four operations, three logarithms), each with twice what its steps may lose.
QUOTIENT_UNITS, SUM_UNITS, CLIPPED_UNITS = 2, 4, 16
# From this ratio on R/σ stands for √(1 + (R/σ)²): its square is still a float.
SQUARED = 1e150
# A share of the eigenvalues: where rounding may take more of them nothing is said.
MOST_LOST = 0.5


def log_det_information(output_covariance: ArrayLike, covariance: Covariance | ArrayLike) -> float:
    """Bound the information that Gaussian noise lets through: ``½ logdet(I + S Σ⁻¹)``, rounded up.

    Args:
        output_covariance: S, the covariance of the output: (d, d), (d,) for a diagonal one, or a
            ``Covariance``; units of the output squared.
        covariance: Σ, the covariance of the noise.

    Returns:
        Nats, never below the exact value of the formula for the two matrices given; inf where
        the noise leaves a direction bare and S is not zero.

    Raises:
        ValueError: S is not finite, not PSD, or of another dimension than Σ.

    Example:
        >>> information = log_det_information([3.0], Isotropic(1.0, 1))
        >>> 0.0 <= information - math.log(2.0) < 1e-14
        True

    Source: residual-pac, Thm 1, Eq. 2.
    """
    covariance = as_covariance("covariance", covariance)
    checked = output_matrix("output_covariance", output_covariance)
    if checked.shape[0] != covariance.dim:
        raise ValueError(
            f"output_covariance: expected dimension {covariance.dim}, that of the noise, "
            f"got shape {checked.shape}"
        )
    # no output, nothing told: also where the noise is 0, which is no quotient
    if not checked.any():
        return 0.0
    return information_of_ratios(signal_to_noise(checked, covariance))


def output_matrix(name: str, value: Any) -> Array:
    """Return an output covariance exactly: a PSD matrix (d, d), or variances (d,)."""
    if isinstance(value, (Isotropic, Diagonal)):
        return value.diagonal()
    raw = value.to_dense() if isinstance(value, Covariance) else value
    checked = array(name, raw, ndim=(1, 2))
    if checked.ndim == 1:
        if (checked < 0).any():
            raise ValueError(f"{name}: expected variances >= 0, got {checked.min():.6g}")
        return checked
    checked = symmetric(name, checked)
    check_psd(name, scipy_linalg.eigvalsh(checked))
    return checked


def signal_to_noise(output_covariance: Array, covariance: Covariance) -> Array:
    """Return upper bounds on the eigenvalues of S Σ⁻¹, inf where Σ is singular."""
    computed: Factored | None = None
    # a diagonal Σ has its quotients S_ii/σ_i² at once; 0/0 is 0: what does not vary tells nothing
    if isinstance(covariance, (Isotropic, Diagonal)):
        variances = covariance.diagonal()
        if output_covariance.ndim == 1:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(output_covariance == 0, 0.0, output_covariance / variances)
            return _up(ratios, QUOTIENT_UNITS)
        # a full S against a bare coordinate: not told apart from the case where it varies there
        if (variances == 0).any():
            return np.full(covariance.dim, np.inf)
        # A with A Aᵀ ⪯ Σ: less noise lets more through, so rounding of A must only take away
        factor = np.diag(np.sqrt(variances))
    elif isinstance(covariance, Factored) and covariance.rows.shape[0] == covariance.dim:
        factor, computed = covariance.factor, covariance
    elif covariance.rank < covariance.dim:
        return np.full(covariance.dim, np.inf)
    else:
        factor = _lower_factor(covariance)
    # the eigenvalues of S Σ⁻¹ are those of A⁻¹ S A⁻ᵀ, which is symmetric
    dense = np.diag(output_covariance) if output_covariance.ndim == 1 else output_covariance
    return _whitened_eigenvalues(dense, factor, computed)


def information_of_ratios(ratios: Array) -> float:
    """Return ``½ Σ ln(1 + w)``, rounded up."""
    if np.isinf(ratios).any():
        return math.inf
    # one logarithm each, correct where w is tiny, and a sum that rounds once
    total = 0.5 * math.fsum(np.log1p(ratios).tolist())
    return float(_up(np.asarray(total), SUM_UNITS))


def _lower_factor(covariance: Covariance) -> Array:
    """Return A with A Aᵀ ⪯ Σ although Cholesky rounds."""
    dense = covariance.to_dense()
    # C = D⁻¹ Σ D⁻¹ has ones on its diagonal: units of the coordinates cost no digits
    scales = np.sqrt(np.diagonal(dense))
    correlation = dense / np.outer(scales, scales)
    # ‖L Lᵀ − C‖ <= (d + 1) u tr C, and tr C = d (Higham, Thm 10.3): C less the slack is factored,
    # so that L Lᵀ lies below C
    slack = ROUNDING_UNITS * covariance.dim * (covariance.dim + 1) * EPS
    # and Σ itself was computed
    slack *= 1.0 + strained(covariance, 1.0, square=False)
    shifted = correlation - slack * np.eye(covariance.dim)
    try:
        lower = scipy_linalg.cholesky(shifted, lower=True)
    except scipy_linalg.LinAlgError:
        # noise that rounding may swallow counts as none
        return np.zeros_like(dense)
    factor: Array = scales[:, None] * lower
    return factor


def _whitened_eigenvalues(
    output_covariance: Array, factor: Array, computed: Factored | None
) -> Array:
    """Return upper bounds on the eigenvalues of A⁻¹ S A⁻ᵀ, A exact or computed from rows."""
    size = factor.shape[0]
    lengths = np.linalg.norm(factor, axis=1)
    if (lengths == 0.0).any():
        return np.full(size, np.inf)
    rows = factor / lengths[:, None]
    # A = Λ R with rows of length 1: A⁻¹ S A⁻ᵀ = R⁻¹ (Λ⁻¹ S Λ⁻¹) R⁻ᵀ, where units have cancelled
    scaled = output_covariance / lengths[:, None] / lengths[None, :]
    # κ(R), by which a solve loses digits: each side of S once
    singular = scipy_linalg.svdvals(rows)
    condition = singular[0] / singular[-1] if singular[-1] > 0.0 else math.inf
    relative = ROUNDING_UNITS * size * EPS * condition**2
    if computed is not None:
        relative *= 1.0 + strained(computed, condition, square=True)
    if not relative < MOST_LOST:
        return np.full(size, np.inf)
    # W = R⁻¹ S R⁻ᵀ by two solves, no inverse; exactly it is symmetric
    half = scipy_linalg.solve(rows, scaled)
    whitened = scipy_linalg.solve(rows, half.T)
    eigenvalues = scipy_linalg.eigvalsh((whitened + whitened.T) / 2.0)
    # backward error of the two solves and of the eigensolver: <= c d u κ² ‖W‖, which moves no
    # eigenvalue by more (Weyl)
    slack = relative * float(np.abs(eigenvalues).max())
    bounds: Array = np.maximum(eigenvalues, 0.0) + slack
    return bounds


def _up(values: Array, units: float) -> Array:
    """Return values raised by a few units in the last place, an upper bound."""
    raised: Array = values * (1.0 + units * EPS)
    return raised


def clipped_information(
    dimension: int, *, radius: float, noise_std: float, secret: str = "the secret"
) -> InformationBound:
    """Bound what N(0, σ²I) lets through of a vector ‖q‖ <= R: ``(k/2) ln(1 + R²/(kσ²))`` nats.

    At a given second moment a Gaussian has the largest entropy, so
    ``I <= ½ logdet(I + E[qqᵀ]/σ²)``, and ``tr E[qqᵀ] <= R²`` makes that largest where all
    directions share it. Nothing about the law of q is estimated: clipping makes R hold.

    Args:
        dimension: k >= 1, numbers in q.
        radius: R >= 0; longer vectors are clipped before the noise.
        noise_std: σ > 0, in units of q.
        secret: What q is computed from.

    Returns:
        The guarantee, rounded up; it holds for every law of the secret.

    Raises:
        ValueError: A number out of range.

    Example:
        >>> bound = clipped_information(16, radius=4.0, noise_std=1.0, secret="the prompt")
        >>> round(bound.nats, 4)
        5.5452

    Source: Cover and Thomas (2006), Theorem 9.1.1 and Section 9.4; in place of the population
    covariance Λ of hidden-state, Thm 19, which no sample certifies.
    """
    size = integer("dimension", dimension, minimum=1, maximum=10**6)
    reach, noise = non_negative("radius", radius), positive("noise_std", noise_std)
    return InformationBound(
        nats=_even_shares_up(size, reach, noise),
        secret=secret,
        evidence="theorem",
        assumptions=(
            f"the vector is clipped to length {reach:g} before the noise, whatever the secret is",
            "the coins of the release are independent of all else",
            "one release about the secret; those of further ones add up",
        ),
        source="Cover and Thomas (2006), Theorem 9.1.1: (k/2) ln(1 + R²/(kσ²))",
    )


def _even_shares_up(size: int, radius: float, noise_std: float) -> float:
    """Return (k/2) ln(1 + R²/(kσ²)), rounded up."""
    if radius == 0.0:
        return 0.0
    # the quotient upwards: its square needs no slack of its own
    ratio = math.nextafter(radius / noise_std, math.inf)
    if ratio < SQUARED:
        nats = size / 2.0 * math.log1p(ratio * ratio / size)
    else:
        # without the 1, which is far below the ratio: ln R − ln σ − ½ ln k cannot overflow
        nats = size * (math.log(radius) - math.log(noise_std) - 0.5 * math.log(size))
    return math.nextafter(nats * (1.0 + CLIPPED_UNITS * EPS), math.inf)
