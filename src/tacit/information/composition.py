"""Information of several releases of one secret: added up, or bounded together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer, matrix
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Isotropic
from tacit.covariance.whitening import whiten
from tacit.information.bounds import (
    LARGEST_CONFIDENCE,
    InformationBracket,
    least,
    lowered_by,
    whitening_slack,
)
from tacit.information.concentration import MOST_VALUES, confidence_share
from tacit.information.distinct import distinct_outputs, entropy
from tacit.information.finite.likelihood import within_noise
from tacit.information.finite.mixture import mixture
from tacit.information.finite.scale_mixture import ENTROPY

# Draws asked for at least: a tenth of them chooses the bet.
LEAST_SAMPLES = 100
# Units in the last place that a sum may be off by, which rounds once, and one addition more.
SUM_UNITS = 2.0
ADDITIVE = "sum over releases (residual-pac, Sec. 5.4)"
JOINT = "all releases together"


def compose_additive(bounds: Iterable[InformationBracket]) -> InformationBracket:
    """Add up the information of releases whose noise is fresh each time.

    Given X the releases Y₁ … Y_T are independent, so ``max_t I(X; Y_t) <= I(X; Y₁ … Y_T) <=
    Σ_t I(X; Y_t)``. Each upper bound may fail with its own probability δ_t; together they hold with
    ``1 − Σ δ_t`` (union bound), those that need no sampling apart; so do the lower bounds.

    Args:
        bounds: one per release of the same secret, in any order.

    Returns:
        ``InformationBracket`` with the sum as ``upper`` and the largest ``lower``.

    Raises:
        ValueError: no bound, not a bound, or ``Σ δ_t >= 1``.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> one = mixture([[-1.0], [1.0]], Isotropic(1.0, 1), confidence=0.999, rng=0)
        >>> both = compose_additive([one, one])
        >>> 2 * one.upper <= both.upper < 2 * one.upper + 1e-15, round(both.confidence, 6)
        (True, 0.998)

    Source: residual-pac, Sec. 5.4; it assumes fresh noise, independent from release to release.
    """
    if not isinstance(bounds, Iterable):
        raise ValueError(f"bounds: expected InformationBounds, got {type(bounds).__name__}")
    parts = list(bounds)
    for part in parts:
        if not isinstance(part, InformationBracket):
            raise ValueError(f"bounds: expected InformationBounds, got {type(part).__name__}")
    if not parts:
        raise ValueError("bounds: expected at least one InformationBracket, got none")
    # union bound over the statements that are used: upper bounds that were sampled, and lower
    # bounds that say anything
    above = math.fsum(1.0 - part.confidence for part in parts if not part.deterministic)
    below = math.fsum(1.0 - part.confidence for part in parts if part.lower > 0.0)
    # 1 − max is a confidence: rounded down
    confidence = min(LARGEST_CONFIDENCE, math.nextafter(1.0 - max(above, below), 0.0))
    if confidence <= 0.0:
        raise ValueError(
            f"bounds: expected probabilities of failure that add up to less than 1, "
            f"got {max(above, below):.6g}"
        )
    # I(X; Y₁ … Y_T) <= Σ I(X; Y_t): fsum rounds to nearest once, and the sum is raised by more
    upper = _sum_up(math.fsum(part.upper for part in parts))
    # no release tells less than what it alone is known to tell
    lower = min(max(part.lower for part in parts), upper)
    estimate = math.fsum(part.estimate for part in parts)
    return InformationBracket(
        lower=lower,
        estimate=min(max(estimate, lower), upper),
        upper=upper,
        confidence=confidence,
        samples=sum(part.samples for part in parts),
        method=ADDITIVE,
        deterministic=all(part.deterministic for part in parts),
    )


def compose_joint(
    releases: Sequence[tuple[Any, Covariance]],
    *,
    weights: ArrayLike | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y₁ … Y_T) for releases of one finite secret: never above the sum.

    With fresh noise the releases together are one release, the stacked outputs with block-diagonal
    noise: each is whitened, the whitened outputs are stacked, and ``mixture`` bounds them. The
    bound on each release apart is computed too, and the least of the joint one and the sum is
    returned: half of ``1 − confidence`` goes to the joint bound, the rest to the others.

    Args:
        releases: ``(outputs (N, d_t), covariance_t)`` for each release; row x of every ``outputs``
            belongs to the same secret x.
        weights: (N,) prior probabilities; None for equally likely.
        samples: draws for each of the T + 1 bounds, as in ``mixture``.
        confidence: of each side of the result, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` of all releases together.

    Raises:
        ValueError: a bad argument, or releases of different numbers of secrets.

    Example:
        >>> signs = [[-1.0], [1.0]]
        >>> both = compose_joint([(signs, Isotropic(1.0, 1)), (signs, Isotropic(1.0, 1))], rng=0)
        >>> 0.5 < both.upper < 0.51  # one release carries 0.33683, two of them 0.50009 together
        True

    Source: residual-pac, Sec. 5.4; its joint decoder is replaced by the exact likelihood.
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    if samples is not None:
        integer("samples", samples, minimum=LEAST_SAMPLES, maximum=MOST_VALUES)
    pairs = _check(releases)
    pairs, priors = _distinct(pairs, weights)
    source = generator(rng)
    # δ = 1 − confidence: δ/2 for the joint bound, δ/(2T) for each release by itself
    half = confidence_share(level, 0.5)
    parts = [
        mixture(
            outputs,
            noise,
            weights=priors,
            samples=samples,
            confidence=confidence_share(level, 0.5 / len(pairs)),
            rng=source,
        )
        for outputs, noise in pairs
    ]
    added = compose_additive(parts)
    # the releases are one: outputs side by side, each in units of its noise, the noises independent
    whitened, error, size = [], 0.0, 0
    for outputs, noise in pairs:
        reached = within_noise(outputs, noise)
        rows, rounding = (outputs, math.inf) if reached is None else whiten(*reached)
        whitened.append(rows)
        # every block of the noise is off by a factor 1 − ρ at most: the worst ρ stands for all
        error = max(error, rounding)
        size += rows.shape[1]
    slack = whitening_slack(size, error)
    # a release without noise in a direction that counts: the joint law is not computed
    if math.isinf(slack):
        return least(_with_level(added, level), entropy(priors), ENTROPY)
    together = mixture(
        np.concatenate(whitened, axis=1),
        Isotropic(1.0, size),
        weights=priors,
        samples=samples,
        confidence=half,
        rng=source,
    )
    return _least(together, added, slack, level)


def _check(releases: Any) -> list[tuple[Array, Covariance]]:
    """Return the releases exactly as they are, or raise the error that names what is wrong."""
    if not isinstance(releases, Sequence) or isinstance(releases, (str, bytes)) or not releases:
        raise ValueError("releases: expected a list of (outputs, covariance), one at least")
    pairs: list[tuple[Array, Covariance]] = []
    for place, release in enumerate(releases):
        if not isinstance(release, Sequence) or len(release) != 2:
            raise ValueError(f"releases[{place}]: expected (outputs, covariance)")
        outputs, noise = release
        if not isinstance(noise, Covariance):
            raise ValueError(
                f"releases[{place}]: expected a Covariance, got {type(noise).__name__}"
            )
        rows = matrix(f"releases[{place}]", outputs, columns=noise.dim)
        if pairs and len(rows) != len(pairs[0][0]):
            raise ValueError(
                f"releases[{place}]: expected {len(pairs[0][0])} outputs, one per secret, "
                f"got {len(rows)}"
            )
        pairs.append((rows, noise))
    return pairs


def _distinct(
    pairs: list[tuple[Array, Covariance]], weights: Any
) -> tuple[list[tuple[Array, Covariance]], Array]:
    """Merge secrets that are exactly equal in every release; return releases and priors."""
    # a secret is its row over all releases: equal rows are one secret, their weights added
    stacked = np.concatenate([outputs for outputs, _ in pairs], axis=1)
    points, priors = distinct_outputs(stacked, weights)
    edges = np.cumsum([noise.dim for _, noise in pairs])[:-1]
    apart = np.split(points, edges, axis=1)
    return [(rows, noise) for rows, (_, noise) in zip(apart, pairs, strict=True)], priors


def _least(
    together: InformationBracket, added: InformationBracket, slack: float, level: float
) -> InformationBracket:
    """Return the tighter of the two on each side; all their statements hold at once."""
    # all bounds are true at once with probability ``level``: the least upper and the largest lower
    # bound are, too; whitening moves the joint one by the slack at most
    upper = min(_sum_up(together.upper + slack), added.upper)
    lower = min(max(lowered_by(together.lower, slack), added.lower, 0.0), upper)
    joint = upper < added.upper
    return InformationBracket(
        lower=lower,
        estimate=min(max(together.estimate, lower), upper),
        upper=upper,
        confidence=level,
        samples=together.samples + added.samples,
        method=f"{JOINT}: {together.method}" if joint else ADDITIVE,
        deterministic=together.deterministic if joint else added.deterministic,
    )


def _with_level(bound: InformationBracket, level: float) -> InformationBracket:
    """Return the same bounds at the confidence of the whole, if theirs is not less."""
    return InformationBracket(**{**vars(bound), "confidence": min(level, bound.confidence)})


def _sum_up(value: float) -> float:
    """Return an upper bound on a sum that has been rounded to nearest."""
    return value * (1.0 + SUM_UNITS * EPS)
