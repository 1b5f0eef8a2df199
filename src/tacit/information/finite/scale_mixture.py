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
from tacit.information.bounds import (
    InformationBracket,
    bracket_of,
    least,
    lowered_by,
    raised_by,
    whitening_slack,
)
from tacit.information.concentration import mean_lower_bound, pilot_size
from tacit.information.distinct import entropy
from tacit.information.finite.likelihood import (
    FiniteSecret,
    gaussian_information,
    pairwise_information,
    principal_secret,
)

# Likelihoods that are held at once.
ENTRIES_PER_BLOCK = 400_000
# Which statement an upper bound comes from.
ENTROPY = "entropy of the outputs"
LOG_DET_GIVEN_SCALE = "Gaussian information given the scale, Σ_k π_k ½ logdet(I + S Σ⁻¹/s_k)"
PAIRWISE_GIVEN_SCALE = "pairwise divergences given the scale (Kolchinsky and Tracey, 2017)"
BY_ENTROPY = "entropy of the exact posterior, lower confidence bound by betting"
# Draws that choose the bets, at least.
SMALLEST_PILOT = 50
# An exponent is negligible below this: e⁻⁸⁰⁰ is 0 as a float, and 0 · −800 is 0 where 0 · −inf is
# not.
LEAST_EXPONENT = -800.0
# An output farther from a release than so many deviations of the widest noise has no likelihood.
NEGLIGIBLE_DISTANCE = 30.0
# Units in the last place of a logarithm or a mean, beside the number of its terms.
FEW_UNITS = 8


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
    # where a direction has no noise H(X) is all that is known
    if noise.base.rank < noise.dim:
        return bracket_of(ceiling, level, ENTROPY)
    whitened, error = whiten(points - points[0], noise.base)
    # a component smaller by 1 − ρ is the same mixture of s_k (1 − ρ)
    slack = whitening_slack(noise.dim, error)
    if math.isinf(slack):
        return bracket_of(ceiling, level, ENTROPY)
    # y = z + √s N(0, I): only differences of points count, and centred ones round least
    centred = whitened - priors @ whitened
    found = _posterior_entropies(centred, priors, noise, count, source)
    pilot_count = pilot_size(count, SMALLEST_PILOT)
    values, unsure = found
    most = math.log(len(priors)) * (1.0 + FEW_UNITS * EPS)
    # H(X | y) between its rounding, and within [0, ln N], where it lies
    low, high = np.clip(values - unsure, 0.0, most), np.clip(values + unsure, 0.0, most)
    # I = H(X) − E H(X | y): a lower confidence bound on the mean gives the upper end
    upper = raised_by(
        ceiling - mean_lower_bound(low[:pilot_count], low[pilot_count:], level), slack
    )
    # and LCB(E (ln N − H(X | y))) − (ln N − H(X)) the lower one
    gains = most - high
    lower = mean_lower_bound(gains[:pilot_count], gains[pilot_count:], level)
    lower = max(0.0, lowered_by(lower - (most - ceiling), slack))
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
    # I(X; Y) <= I(X; Y, s): the scale told as well, the information is the mean over scales
    secret = principal_secret(whitened - whitened[0], priors)
    kept = noise.probabilities > 0.0
    law = list(zip(noise.probabilities[kept], noise.scales[kept], strict=True))
    by_log_det = _mean([(p, gaussian_information(secret, s)) for p, s in law])
    bound = least(bound, raised_by(by_log_det, slack), LOG_DET_GIVEN_SCALE)
    # N² exponentials for each scale: no more than the draws cost
    if len(priors) * len(law) <= count:
        by_pairs = _mean([(p, pairwise_information(_scale(secret, s))) for p, s in law])
        bound = least(bound, raised_by(by_pairs, slack), PAIRWISE_GIVEN_SCALE)
    return least(bound, ceiling, ENTROPY)


def _mean(terms: list[tuple[float, float]]) -> float:
    """Return ``Σ π_k I_k`` for probabilities that sum to 1, rounded up."""
    total = math.fsum(float(share) * nats for share, nats in terms)
    return total * (1.0 + (len(terms) + FEW_UNITS) * EPS)


def _scale(secret: FiniteSecret, scale: float) -> FiniteSecret:
    """Return the secret in units of noise that is √s times as large, to rounding."""
    return FiniteSecret(
        secret.points / math.sqrt(scale), secret.log_weights, secret.eigenvalues / scale
    )


def _posterior_entropies(
    points: Array, priors: Array, noise: ScaleMixture, count: int, source: np.random.Generator
) -> tuple[Array, Array]:
    """Return the posterior entropy at n draws, to rounding, and what it may be off by at most."""
    secrets = source.choice(len(priors), size=count, p=priors)
    # y = z_x + √s ξ, s from its law
    sizes = np.sqrt(noise.components(source.random(count)))
    noisy = points[secrets] + sizes[:, None] * source.standard_normal((count, points.shape[1]))
    rows = max(1, ENTRIES_PER_BLOCK // len(points))
    squared_points = (points**2).sum(axis=1)
    results = []
    with one_thread():
        for start in range(0, count, rows):
            block = noisy[start : start + rows]
            # ‖y − z‖² = ‖y‖² + ‖z‖² − 2 y·z: one product of matrices; below 0 it is rounding
            squared = (block**2).sum(axis=1)[:, None] + squared_points - 2.0 * block @ points.T
            exponents = np.log(priors) + _log_density(np.maximum(squared, 0.0), noise)
            # in units of the largest likelihood: nothing overflows
            exponents -= exponents.max(axis=1, keepdims=True)
            likelihoods = np.exp(exponents)
            total = likelihoods.sum(axis=1)
            # H(X | y) = ln Σ e^t − Σ e^t t/Σ e^t
            weighted = np.einsum("ij,ij->i", likelihoods, np.maximum(exponents, LEAST_EXPONENT))
            results.append(np.log(total) - weighted / total)
    # each exponent that counts has ‖y‖, ‖z‖ <= reach: it is off by (d + 8) u reach²/s at most
    smallest = float(noise.scales.min())
    widest = math.sqrt(float(noise.scales.max()))
    reach = np.linalg.norm(noisy, axis=1) + NEGLIGIBLE_DISTANCE * widest
    errors = (points.shape[1] + FEW_UNITS) * EPS * reach**2 / smallest
    # a change of every exponent by e changes the entropy by 2e (2 + ln N)
    return np.concatenate(results), 2.0 * errors * (2.0 + math.log(len(points)))


def _log_density(squared: Array, noise: ScaleMixture) -> Array:
    """Return ``ln Σ_k π_k s_k^(−d/2) exp(−‖b‖²/(2 s_k))`` from squared lengths, to rounding."""
    kept = noise.probabilities > 0.0
    offsets = np.log(noise.probabilities[kept]) - 0.5 * noise.dim * np.log(noise.scales[kept])
    scales = noise.scales[kept]
    if scales.size == 1:
        single: Array = offsets[0] - squared / (2.0 * scales[0])
        return single
    # a log-sum-exp: each density may be too small for a float
    terms = np.stack(
        [offset - squared / (2.0 * scale) for offset, scale in zip(offsets, scales, strict=True)]
    )
    combined: Array = logsumexp(terms, axis=0)
    return combined
