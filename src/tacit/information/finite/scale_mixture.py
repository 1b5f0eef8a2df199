"""Information of a finite secret through noise whose size is drawn too."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from tacit._ground.checks import Array
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.covariance.scale_mixture import ScaleMixture
from tacit.covariance.whitening import whiten
from tacit.information.bounds import InformationBracket, bracket_of, least, whitening_slack
from tacit.information.concentration import mean_lower_bound, pilot_size
from tacit.information.distinct import entropy
from tacit.information.finite.likelihood import (
    FiniteSecret,
    gaussian_information,
    pairwise_information,
    principal_secret,
)

ENTRIES_PER_BLOCK = 400_000
ENTROPY = "entropy of the outputs"
LOG_DET_GIVEN_SCALE = "Gaussian information given the scale, Σ_k π_k ½ logdet(I + S Σ⁻¹/s_k)"
PAIRWISE_GIVEN_SCALE = "pairwise divergences given the scale (Kolchinsky and Tracey, 2017)"
BY_ENTROPY = "entropy of the exact posterior, lower confidence bound by betting"
SMALLEST_PILOT = 50


def scale_mixture_bound(
    points: Array,
    priors: Array,
    noise: ScaleMixture,
    count: int,
    level: float,
    source: np.random.Generator,
) -> InformationBracket:
    """Return ``H(X) − E H(X | Y = y)`` between confidence bounds; every prior is positive.

    The posterior is exact: ``p(y | x_j) = Σ_k π_k N(y; x_j, s_k Σ)``. As the scale s is drawn apart
    from X, ``I(X; Y) <= I(X; Y, s) = Σ_k π_k I(X; X + N(0, s_k Σ))``: the bounds that need no
    sampling hold for each scale and are averaged. They are what is left where I is tiny.
    """
    ceiling = entropy(priors)
    if noise.base.rank < noise.dim:
        return bracket_of(ceiling, level, ENTROPY)
    whitened, error = whiten(points - points[0], noise.base)
    # a component smaller by 1 − ρ is the same mixture of s_k (1 − ρ)
    slack = whitening_slack(noise.dim, error)
    if math.isinf(slack):
        return bracket_of(ceiling, level, ENTROPY)
    centred = whitened - priors @ whitened
    found = _posterior_entropies(centred, priors, noise, count, source)
    pilot_count = pilot_size(count, SMALLEST_PILOT)
    values, unsure = found
    most = math.log(len(priors)) * (1.0 + 8.0 * EPS)
    low, high = np.clip(values - unsure, 0.0, most), np.clip(values + unsure, 0.0, most)
    upper = ceiling - mean_lower_bound(low[:pilot_count], low[pilot_count:], level) + slack
    gains = most - high
    lower = mean_lower_bound(gains[:pilot_count], gains[pilot_count:], level)
    lower = max(0.0, lower - (most - ceiling) - slack)
    lower = min(lower, ceiling)
    # an upper end below the lower, or below 0, is known to be false: no sampled end is kept
    bound = bracket_of(ceiling, level, ENTROPY)
    if lower <= upper:
        bound = InformationBracket(
            lower=lower,
            estimate=min(max(ceiling - float(values.mean()), lower), upper),
            upper=upper,
            confidence=level,
            samples=count,
            method=BY_ENTROPY,
        )
    secret = principal_secret(whitened - whitened[0], priors)
    kept = noise.probabilities > 0.0
    law = list(zip(noise.probabilities[kept], noise.scales[kept], strict=True))
    by_log_det = _mean([(p, gaussian_information(secret, s)) for p, s in law])
    bound = least(bound, by_log_det + slack, LOG_DET_GIVEN_SCALE)
    if len(priors) * len(law) <= count:
        by_pairs = _mean([(p, pairwise_information(_scaled(secret, s))) for p, s in law])
        bound = least(bound, by_pairs + slack, PAIRWISE_GIVEN_SCALE)
    return least(bound, ceiling, ENTROPY)


def _mean(terms: list[tuple[float, float]]) -> float:
    """Return ``Σ π_k I_k`` for probabilities that sum to 1, rounded up."""
    total = math.fsum(float(share) * nats for share, nats in terms)
    return total * (1.0 + (len(terms) + 8) * EPS)


def _scaled(secret: FiniteSecret, scale: float) -> FiniteSecret:
    """Return the secret in units of noise that is √s times as large."""
    return FiniteSecret(
        secret.points / math.sqrt(scale), secret.log_weights, secret.eigenvalues / scale
    )


def _posterior_entropies(
    points: Array, priors: Array, noise: ScaleMixture, count: int, source: np.random.Generator
) -> tuple[Array, Array]:
    """Return the posterior entropy at n draws, and what rounding may have changed of each."""
    secrets = source.choice(len(priors), size=count, p=priors)
    sizes = np.sqrt(noise.components(source.random(count)))
    noisy = points[secrets] + sizes[:, None] * source.standard_normal((count, points.shape[1]))
    rows = max(1, ENTRIES_PER_BLOCK // len(points))
    squared_points = (points**2).sum(axis=1)
    results = []
    with one_thread():
        for start in range(0, count, rows):
            block = noisy[start : start + rows]
            squared = (block**2).sum(axis=1)[:, None] + squared_points - 2.0 * block @ points.T
            exponents = np.log(priors) + _log_density(np.maximum(squared, 0.0), noise)
            exponents -= exponents.max(axis=1, keepdims=True)
            likelihoods = np.exp(exponents)
            total = likelihoods.sum(axis=1)
            weighted = np.einsum("ij,ij->i", likelihoods, np.maximum(exponents, -800.0))
            results.append(np.log(total) - weighted / total)
    smallest = float(noise.scales.min())
    reach = np.linalg.norm(noisy, axis=1) + 30.0 * math.sqrt(float(noise.scales.max()))
    errors = (points.shape[1] + 8) * EPS * reach**2 / smallest
    return np.concatenate(results), 2.0 * errors * (2.0 + math.log(len(points)))


def _log_density(squared: Array, noise: ScaleMixture) -> Array:
    """Return ``ln Σ_k π_k s_k^(−d/2) exp(−‖b‖²/(2 s_k))`` from squared lengths."""
    kept = noise.probabilities > 0.0
    offsets = np.log(noise.probabilities[kept]) - 0.5 * noise.dim * np.log(noise.scales[kept])
    scales = noise.scales[kept]
    if scales.size == 1:
        single: Array = offsets[0] - squared / (2.0 * scales[0])
        return single
    terms = np.stack(
        [offset - squared / (2.0 * scale) for offset, scale in zip(offsets, scales, strict=True)]
    )
    combined: Array = logsumexp(terms, axis=0)
    return combined
