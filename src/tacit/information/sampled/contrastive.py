"""Information of a secret that can only be sampled, bounded from below by naming it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer
from tacit.covariance import Covariance, Diagonal
from tacit.covariance.whitening import whiten
from tacit.information.bounds import InformationBracket
from tacit.information.concentration import mean_lower_bound
from tacit.information.finite.likelihood import FiniteSecret, posterior
from tacit.information.simulated import (
    FEWEST_VALUES,
    MOST_VALUES,
    Sampler,
    checked_noise,
    drawn,
    pilot_size,
)
from tacit.linalg import eigh_psd

DEFAULT_CONTEXT, DEFAULT_GROUPS, DEFAULT_SAMPLES = 100, 500, 20_000
CONTEXT_POWER = 0.4
CONTRASTIVE = "lower bound: naming the output among others (InfoNCE), by betting; at most ln K"


def contrastive(
    outputs: Any | Sampler,
    covariance: Covariance,
    *,
    context: int | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y) from below for a secret that is sampled, Y = output of X + N(0, Σ).

    With K independent outputs, y a release of the first and the exact critic ln p(y | x),

        ``I >= E ln [p(y | x₁) / (1/K Σ_k p(y | x_k))] = ln K − E H(J | y, x₁ … x_K)``,

    J the place of the released one among the K, equally likely. The right form has the same mean
    and lies in [0, ln K], so that its mean over groups of K fresh outputs has a lower confidence
    bound; within a group each place takes its turn. It can say nothing above ln K.

    Args:
        outputs: (M, d) independent outputs of secrets from their law, or
            ``sampler(count, generator)`` that draws (count, d) of them.
        covariance: Σ of the noise, of dimension d; only the directions it covers are used.
        context: K >= 2; None for about M^0.4, or for 100.
        samples: noisy releases in all, >= 20; None for 20,000.
        confidence: of the lower bound, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` with ``upper = inf``; for an upper bound see ``leave_one_out``.

    Raises:
        ValueError: a bad argument, or outputs for fewer than 20 groups.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> signs = lambda count, source: source.choice([-1.0, 1.0], size=(count, 1))
        >>> bound = contrastive(signs, Isotropic(1.0, 1), rng=0)
        >>> 0.3 < bound.lower < 0.33684  # two points at ±1 carry 0.33683 nats
        True

    Source: van den Oord, Li and Vinyals, "Representation learning with contrastive predictive
    coding" (2018), App. A.1; Poole et al., "On variational bounds of mutual information" (2019),
    Eq. 12 with the optimal critic.
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    covariance = checked_noise(covariance)
    size = None if context is None else integer("context", context, minimum=2, maximum=MOST_VALUES)
    count = (
        DEFAULT_SAMPLES
        if samples is None
        else integer("samples", samples, minimum=FEWEST_VALUES, maximum=MOST_VALUES)
    )
    source = generator(rng)
    wanted = None
    if callable(outputs):
        size = DEFAULT_CONTEXT if size is None else size
        wanted = size * max(FEWEST_VALUES, min(DEFAULT_GROUPS, count))
    values = drawn(outputs, wanted, covariance.dim, source)
    size = max(2, int(len(values) ** CONTEXT_POWER)) if size is None else size
    groups = len(values) // size
    if groups < FEWEST_VALUES:
        raise ValueError(
            f"outputs: expected at least {FEWEST_VALUES} groups of {size}, got {len(values)} rows"
        )
    shared = _shared(values, covariance)
    if shared is None:
        means, slack = np.zeros(groups), 0.0
    else:
        whitened, slack = shared
        means = _group_means(whitened, size, groups, -(-count // groups), source)
    first = pilot_size(groups)
    lower = max(0.0, mean_lower_bound(means[:first], means[first:], level) - slack)
    return InformationBracket(
        lower=lower,
        estimate=max(lower, float(means.mean())),
        upper=math.inf,
        confidence=level,
        samples=count,
        method=CONTRASTIVE,
    )


def _shared(values: Array, covariance: Covariance) -> tuple[Array, float] | None:
    """Return whitened outputs in the directions of the noise and a slack; None if there are none.

    Leaving out directions is post-processing: it lowers the information.
    """
    centred = values - values.mean(axis=0)
    noise = covariance
    if covariance.rank < covariance.dim:
        if covariance.rank == 0:
            return None
        eigenvalues, vectors = eigh_psd("covariance", covariance.to_dense())
        kept = slice(covariance.dim - covariance.rank, None)
        centred, noise = centred @ vectors[:, kept], Diagonal(eigenvalues[kept])
    whitened, error = whiten(centred, noise)
    if error >= 0.5:
        return None
    return whitened, -0.5 * noise.dim * math.log1p(-error)


def _group_means(
    whitened: Array, size: int, groups: int, draws: int, source: np.random.Generator
) -> Array:
    """Return ``ln K − H(J | y)``, rounded down, meaned over the draws of each group."""
    most = math.log(size)
    means = np.empty(groups)
    priors, none = np.full(size, -most), np.zeros(whitened.shape[1])
    for group in range(groups):
        points = whitened[group * size : (group + 1) * size]
        places = (np.arange(draws) + source.integers(size)) % size
        noisy = points[places] + source.standard_normal((draws, points.shape[1]))
        found = posterior(FiniteSecret(np.ascontiguousarray(points), priors, none), noisy)
        unsure = 2.0 * found.error * (2.0 + most)
        means[group] = float(np.clip(most - found.entropy - unsure, 0.0, None).mean())
    return means
