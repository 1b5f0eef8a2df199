"""Information of a finite secret through Gaussian noise: exact likelihood, bounded both ways."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    vector,
)
from tacit.covariance import Covariance, ScaleMixture
from tacit.covariance.coercion import as_covariance
from tacit.covariance.whitening import whiten
from tacit.information.bounds import InformationBracket, least
from tacit.information.distinct import distinct_outputs, entropy
from tacit.information.finite.deterministic import (
    covered,
    gaussian_information,
    pairwise_information,
)
from tacit.information.finite.draws import Draws, best_statistic
from tacit.information.finite.likelihood import principal_secret
from tacit.information.finite.scale_mixture import ENTROPY, scale_mixture_bound

WORK = 500_000_000
FEWEST_SAMPLES, MOST_SAMPLES = 20_000, 1_000_000
PILOT_SHARE = 0.1
SMALLEST_PILOT = 50
SUM_TOLERANCE = 1e-9
LOG_DET = "Gaussian information ½ logdet(I + S Σ⁻¹) (residual-pac, Thm 1)"
PAIRWISE = "pairwise divergences of the mixture (Kolchinsky and Tracey, 2017, Eq. 10)"
LIKELIHOOD = "exact mixture likelihood, lower confidence bound by betting"


def mixture(
    outputs: ArrayLike,
    covariance: Covariance | ScaleMixture | ArrayLike,
    *,
    weights: ArrayLike | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y) for a finite secret X and Y = output of X + N(0, Σ), from both sides.

    With noise whitened to N(0, I), z_x the centred outputs, S their covariance and
    ``ℓ(y) = ln Σ_j p_j exp(y·z_j − ½‖z_j‖²)``, exactly

        ``I = ½ tr S − E ℓ(y) = H(X) − E H(X | Y = y)``.

    The upper bound is the least of ``½ tr S − LCB(E ℓ)`` (where the quadratic part of ℓ, whose
    mean is known, is taken out if that helps), ``H(X) − LCB(E H(X | y))``, and three that need no
    sampling: ``½ logdet(I + S)``, ``H(X)`` and the pairwise bound of ``pairwise_information``.
    Secrets of equal output are one from the start, so that H is the entropy of the outputs. Which
    of the sampled ones is chosen on a pilot, a tenth of the draws, that is not used again.

    Args:
        outputs: (N, d), one per secret, any units; N may be large: outputs stream in blocks.
        covariance: Σ of the noise, same units squared, or a ``ScaleMixture``. Where it leaves a
            direction bare in which outputs differ, nothing below H(X) is certified.
        weights: (N,) prior probabilities, >= 0, that sum to 1; None for equally likely.
        samples: draws in all, >= 100; None for 5·10⁸/N, within 20,000 to 1,000,000.
        confidence: of each of the two bounds, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` in nats; rounding is on the safe side of both bounds.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> bound = mixture([[-1.0], [1.0]], Isotropic(1.0, 1), rng=0)
        >>> bound.lower < 0.33683082 < bound.upper < 0.3378
        True

    Source: residual-pac, Definition 4; corrected: the likelihood is that of the mixture, not of a
    decoder or of a Gaussian.
    """
    covariance = as_covariance("covariance", covariance)
    given = matrix("outputs", outputs)
    law = None if weights is None else prior_weights(weights, len(given))
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    points, priors = distinct_outputs(given, law)
    count = _samples(samples, len(points))
    source = generator(rng)
    if not isinstance(covariance, Covariance | ScaleMixture) or covariance.dim != points.shape[1]:
        raise ValueError(
            f"covariance: expected dimension {points.shape[1]}, that of the outputs, "
            f"got {getattr(covariance, 'dim', type(covariance).__name__)}"
        )
    if len(points) == 1:
        return _exactly(0.0, level, "the same output for every secret")
    if isinstance(covariance, ScaleMixture):
        return scale_mixture_bound(points, priors, covariance, count, level, source)
    return _mixture(points, priors, covariance, count, level, source)


def _mixture(
    points: Array,
    priors: Array,
    covariance: Covariance,
    count: int,
    level: float,
    source: np.random.Generator,
) -> InformationBracket:
    ceiling = entropy(priors)
    nothing = _exactly(ceiling, level, ENTROPY)
    reached = covered(points, covariance)
    if reached is None:
        return nothing
    whitened, error = whiten(*reached)
    if error >= 0.5:
        return nothing
    secret = principal_secret(whitened - whitened[0], priors)
    # Noise smaller by the factor 1 − ρ raises the information by −½ d ln(1 − ρ) at most.
    slack = -0.5 * secret.points.shape[1] * math.log1p(-error)
    pilot_count = max(SMALLEST_PILOT, int(PILOT_SHARE * count))
    pilot = Draws.of(secret, ceiling, pilot_count, source)
    main = Draws.of(secret, ceiling, count - pilot_count, source)
    statistic = best_statistic(secret, ceiling, pilot, len(main), level)
    upper = statistic.upper_bound(pilot, main, level) + slack
    lower = min(max(0.0, main.lower_bound(pilot, level) - slack), ceiling)
    # an upper end below the lower, or below 0, is known to be false: no sampled end is kept
    bound = nothing
    if lower <= upper:
        bound = InformationBracket(
            lower=lower,
            estimate=min(max(statistic.estimate(main), lower), upper),
            upper=upper,
            confidence=level,
            samples=count,
            method=LIKELIHOOD,
        )
    bound = least(bound, gaussian_information(secret) + slack, LOG_DET)
    if len(priors) <= count:
        bound = least(bound, pairwise_information(secret) + slack, PAIRWISE)
    return least(bound, ceiling, ENTROPY)


def _exactly(nats: float, level: float, method: str) -> InformationBracket:
    return InformationBracket(
        lower=0.0,
        estimate=nats,
        upper=nats,
        confidence=level,
        samples=0,
        method=method,
        deterministic=True,
    )


def prior_weights(weights: Any, count: int) -> Array:
    """Return prior probabilities (N,) that sum to 1, equal ones for None."""
    if weights is None:
        return np.full(count, 1.0 / count)
    priors = vector("weights", weights, size=count)
    if priors.min() < 0.0 or abs(float(priors.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"weights: expected numbers >= 0 that sum to 1, got a smallest of {priors.min():.6g} "
            f"and a sum of {float(priors.sum()):.12g}"
        )
    normalised: Array = priors / priors.sum()
    return normalised


def _samples(samples: int | None, outputs: int) -> int:
    if samples is None:
        return int(min(MOST_SAMPLES, max(FEWEST_SAMPLES, WORK // outputs)))
    return integer("samples", samples, minimum=2 * SMALLEST_PILOT, maximum=100_000_000)
