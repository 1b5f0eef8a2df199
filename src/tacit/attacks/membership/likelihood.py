"""The likelihood-ratio attacker: two hypotheses about a noisy release, each a known mixture."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, matrix
from tacit.attacks.membership.mixtures import in_noise_units, log_density, prior_weights
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance


def likelihood_ratio(
    releases: ArrayLike,
    inside: ArrayLike,
    outside: ArrayLike,
    covariance: Covariance | ArrayLike,
    *,
    inside_weights: ArrayLike | None = None,
    outside_weights: ArrayLike | None = None,
) -> Array:
    """Score releases by the exact likelihood ratio of "in" against "out".

    ``ln Σ_j u_j φ_Σ(y − a_j) − ln Σ_j v_j φ_Σ(y − b_j)``: by Neyman and Pearson no attacker has
    a higher true positive rate at any false positive rate.

    Args:
        releases: (n, d) noisy outputs y.
        inside: (k, d) clean outputs a_j when the record is in.
        outside: (m, d) clean outputs b_j when it is out.
        covariance: Σ of the noise, of full rank.
        inside_weights: (k,) probabilities u of the ``inside`` outputs, up to a factor; uniform
            when None.
        outside_weights: (m,) the same for ``outside``.

    Returns:
        (n,) log likelihood ratios in nats, higher for "in".

    Raises:
        ValueError: a bad argument, another number of columns, or a singular Σ.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> likelihood_ratio([[0.5], [2.0]], [[1.0]], [[0.0]], Isotropic(1.0, 1)).tolist()
        [0.0, 1.5]

    Source: Neyman and Pearson (1933); residual-pac, App. B.
    """
    covariance = as_covariance("covariance", covariance)
    seen = matrix("releases", releases)
    members = matrix("inside", inside, columns=seen.shape[1])
    others = matrix("outside", outside, columns=seen.shape[1])
    member_weights = prior_weights("inside_weights", inside_weights, len(members))
    other_weights = prior_weights("outside_weights", outside_weights, len(others))
    rows = np.concatenate([seen, members[member_weights > 0.0], others[other_weights > 0.0]])
    clean = in_noise_units(rows - others.mean(axis=0), covariance)
    first = len(seen) + int((member_weights > 0.0).sum())
    here = clean[: len(seen)]
    with np.errstate(invalid="ignore"):
        scores = log_density(here, clean[len(seen) : first], member_weights[member_weights > 0.0])
        scores -= log_density(here, clean[first:], other_weights[other_weights > 0.0])
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(
            f"releases: expected rows whose squared distance to the candidates double precision "
            f"can hold, got row {row} beyond it"
        )
    return scores
