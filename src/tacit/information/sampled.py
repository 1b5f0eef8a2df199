"""Information of a secret that can only be sampled: outputs are given, or drawn as needed.

From above on fresh releases against a mixture of others and one broad law, from below by naming an
output among others. Both are means of values with a known bound on one side, and hold with a
confidence at the number of samples used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    positive,
    vector,
)
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, Diagonal
from tacit.covariance.coercion import gaussian_covariance
from tacit.covariance.whitening import whiten
from tacit.information.bounds import (
    InformationBracket,
    least,
    lowered_by,
    raised_by,
    whitening_slack,
)
from tacit.information.concentration import (
    MOST_VALUES,
    mean_lower_bound,
    mean_upper_bound,
    pilot_size,
)
from tacit.information.finite.likelihood import FiniteSecret, posterior
from tacit.linalg import eigh_psd

Sampler: TypeAlias = Callable[[int, np.random.Generator], Any]


# Values that a confidence bound needs beside its pilot.
FEWEST_VALUES = 20
# Releases that are drawn where nobody says how many.
DEFAULT_SAMPLES = 20_000
# Outputs in the mixture that fresh releases are held against.
DEFAULT_CONTEXT = 1_000
# Spreads τ² of the broad law, in units of R²; the best is taken.
SPREADS = np.geomspace(1e-4, 1e4, 161)
# Halvings of the water level; any level gives a bound.
BISECTIONS = 200
# Units in the last place of a distance that is held against a radius.
RADIUS_UNITS = 8.0
# How many roundings of an exponent a log ratio is raised by: of each of its two sides, twice.
RATIO_ERRORS = 4.0
# Relative, more than a sum of a few hundred logarithms rounds.
CEILING_SLACK = 1e-9
# Which statement a bound comes from, or why there is none.
LEAVE_ONE_OUT = "upper bound: fresh releases against a mixture over a context, by betting"
UNBOUNDED = "estimate only: no bound on the outputs (radius) or no noise in some direction"
WATER_FILLING = "upper bound: capacity of outputs within the radius, by water-filling"
# Outputs among which one is named, where they are drawn as needed, and so many groups of them; of M

# given the groups are of M^0.4.
DEFAULT_GROUP, DEFAULT_GROUPS, GROUP_POWER = 100, 500, 0.4
CONTRASTIVE = "lower bound: naming the output among others (InfoNCE), by betting; at most ln K"


def read_outputs(
    outputs: Any, count: int | None, columns: int, source: np.random.Generator
) -> Array:
    """Return outputs (M, d) exactly: the ones given, or ``count`` of ``outputs(count, generator)``.

    Raises:
        ValueError: not a matrix of d columns, or not as many rows as were asked for.
    """
    if not callable(outputs):
        return matrix("outputs", outputs, columns=columns)
    if count is None:
        raise ValueError("count: expected the number of outputs to draw, got None")
    found = matrix("outputs", outputs(count, source), columns=columns)
    if len(found) != count:
        raise ValueError(f"outputs: expected {count} rows from the sampler, got {len(found)}")
    return found


def leave_one_out(
    outputs: Any | Sampler,
    covariance: Covariance,
    *,
    radius: float | None = None,
    centre: ArrayLike | None = None,
    context: int | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y) from above for a secret that is sampled, Y = output of X + N(0, Σ).

    For every fixed density q and fresh (x, y), with p̄ the density of Y,

        ``E ln p(y | x)/q(y) = I + D(p̄ ‖ q) >= I``.

    Here q is the mixture over K other outputs and one broad law,
    ``(K q₁ + N(c, Σ + τ² I))/(K + 1)``. Where every output is within R of c the logarithm is at
    most ``ln(K + 1) + ½ logdet(I + τ² Σ⁻¹) + R²/(2τ²)`` at every y, so the mean over fresh
    releases has an upper confidence bound. The excess D(p̄ ‖ q) is about I/K where I is small.

    Without a radius no finite upper bound exists: an output of probability below 1/samples, far
    from the others, is not seen and may carry any number of nats. Then ``upper`` is inf.

    Args:
        outputs: (M, d) independent outputs of secrets from their law, or
            ``sampler(count, generator)`` that draws (count, d) of them.
        covariance: Σ of the noise, of dimension d; a singular one leaves ``upper`` at inf.
        radius: R > 0, every output the law can give is within R of ``centre``, in the outputs'
            units. An assumption; it is checked on the outputs at hand.
        centre: (d,); None for the origin.
        context: K >= 1, outputs in the mixture; None for half of those given, or for 1,000.
        samples: fresh releases; None for 20,000 or one for each output left. Where fewer outputs
            are left, each gets several draws of noise and counts once.
        confidence: of the upper bound, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` with ``lower = 0``; for a lower bound see ``contrastive``.

    Raises:
        ValueError: a bad argument, an output outside the radius, or too few outputs.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> signs = lambda count, source: source.choice([-1.0, 1.0], size=(count, 1))
        >>> bound = leave_one_out(signs, Isotropic(1.0, 1), radius=1.0, rng=0)
        >>> 0.33683 < bound.upper < 0.37  # two points at ±1 carry 0.33683 nats
        True

    Source: residual-pac, Eq. 10 with KL: every independent P_W gives an upper bound.
    """
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    covariance = gaussian_covariance("covariance", covariance)
    reach = None if radius is None else positive("radius", radius)
    middle = np.zeros(covariance.dim) if centre is None else vector("centre", centre)
    if middle.size != covariance.dim:
        raise ValueError(f"centre: expected {covariance.dim} entries, got {middle.size}")
    size = None if context is None else integer("context", context, minimum=1, maximum=MOST_VALUES)
    fresh = (
        None
        if samples is None
        else integer("samples", samples, minimum=FEWEST_VALUES, maximum=MOST_VALUES)
    )
    source = generator(rng)
    # as many as the mixture and the fresh releases need
    if callable(outputs):
        size = DEFAULT_CONTEXT if size is None else size
        wanted = size + (DEFAULT_SAMPLES if fresh is None else fresh)
    else:
        wanted = None
    values = read_outputs(outputs, wanted, covariance.dim, source)
    # half for the mixture q, which must be fixed before a fresh output is seen; half are fresh
    size = len(values) // 2 if size is None else size
    if len(values) - size < FEWEST_VALUES or size < 1:
        raise ValueError(
            f"outputs: expected at least {FEWEST_VALUES} more than the context of {size}, "
            f"got {len(values)}"
        )
    if reach is not None:
        _check_radius(values, middle, reach)
    # outputs are few: each gets several draws of noise, whose mean counts once
    count = max(DEFAULT_SAMPLES if fresh is None else fresh, len(values) - size)
    if fresh is not None and fresh < len(values) - size:
        values, count = values[: size + fresh], fresh
    return _bound(values, size, count, covariance, reach, middle, level, source)


def _check_radius(values: Array, centre: Array, radius: float) -> None:
    distance = float(np.linalg.norm(values - centre, axis=1).max())
    if distance > radius * (1.0 + RADIUS_UNITS * EPS):
        raise ValueError(
            f"radius: expected at least {distance:.6g}, the distance of an output from the "
            f"centre, got {radius:.6g}"
        )


def _bound(
    values: Array,
    size: int,
    count: int,
    covariance: Covariance,
    radius: float | None,
    centre: Array,
    level: float,
    source: np.random.Generator,
) -> InformationBracket:
    unknown = InformationBracket(
        lower=0.0,
        estimate=math.inf,
        upper=math.inf,
        confidence=level,
        samples=0,
        method=UNBOUNDED,
    )
    # a direction without noise tells outputs of a bounded law apart, by any number of nats
    if covariance.rank < covariance.dim:
        return unknown
    # in units of the noise, about the mean of the context, which is independent of the fresh
    # outputs
    shift = values[:size].mean(axis=0)
    whitened, error = whiten(values - shift, covariance)
    slack = whitening_slack(covariance.dim, error)
    if math.isinf(slack):
        return unknown
    inverse = whiten(np.eye(covariance.dim), covariance)[0]
    # rows are A⁻¹e_i, Σ = A Aᵀ: the broad law adds τ² A⁻¹A⁻ᵀ = τ² WᵀW, diagonal in these axes
    precisions, axes = np.linalg.eigh(inverse.T @ inverse)
    precisions = np.maximum(precisions, 0.0)
    middle = (centre - shift) @ inverse @ axes
    law = _context_law(whitened[:size] @ axes, precisions, middle, radius, 1.0 + error)
    # ln p(y | x)/q(y) at fresh (x, y): its mean is I + D(p̄ ‖ q)
    ratios = _log_ratios(law, whitened[size:] @ axes, count, source)
    estimate = max(0.0, float(ratios.mean()))
    # no ceiling, no bound: an output that was not seen may be anywhere
    if radius is None:
        return InformationBracket(
            lower=0.0,
            estimate=estimate,
            upper=math.inf,
            confidence=level,
            samples=count,
            method=UNBOUNDED,
        )
    # the pilot chooses the bet of the upper end; a ratio above its ceiling is rounding
    first = pilot_size(len(ratios))
    clipped = np.minimum(ratios, law.ceiling)
    mean = mean_upper_bound(clipped[:first], clipped[first:], level, ceiling=law.ceiling)
    upper = raised_by(mean, slack)
    # what any law within the radius tells at most
    by_capacity = raised_by(_capacity(precisions, radius) * (1.0 + error), slack)
    if upper < 0.0:
        # below 0 it is known to be false: what holds without sampling
        upper = by_capacity
    bound = InformationBracket(
        lower=0.0,
        estimate=min(estimate, upper),
        upper=upper,
        confidence=level,
        samples=count,
        method=LEAVE_ONE_OUT,
    )
    return least(bound, by_capacity, WATER_FILLING)


@dataclass(frozen=True, eq=False)
class _ContextLaw:
    """``q = (K q₁ + N(c, I + τ²G))/(K + 1)`` in axes where G is diagonal.

    Attributes:
        secret: the K outputs of the context, equally likely.
        variances: (d,) ``1 + τ² g``; None without the broad law.
        centre: (d,) c.
        ceiling: ``ln p(y | x)/q(y)`` is at most this, for every y and every x within the radius.
    """

    secret: FiniteSecret
    variances: Array | None
    centre: Array
    ceiling: float


def _context_law(
    points: Array, precisions: Array, centre: Array, radius: float | None, inflation: float
) -> _ContextLaw:
    """Return q of the context, its ceiling rounded up, at the spread that makes it least."""
    # posterior() gives ln q₁(y)/n(y); eigenvalues play no part in it
    size = len(points)
    secret = FiniteSecret(
        np.ascontiguousarray(points), np.full(size, -math.log(size)), np.zeros(points.shape[1])
    )
    if radius is None:
        return _ContextLaw(secret, None, centre, math.inf)
    # ln p(y|x)/N(y; c, I + τ²G) <= ½ logdet(I + τ²G) + max over ε of −½‖ε‖² + ½ (v + ε)ᵀ(I + D)⁻¹(v
    # + ε), the latter ½ vᵀD⁻¹v, at most R²/(2τ²); D = τ²G, and 1 + ρ pays for whitening
    spreads = radius**2 * SPREADS
    ceilings = (
        0.5 * np.log1p(precisions[:, None] * spreads).sum(axis=0)
        + 0.5 * inflation * radius**2 / spreads
    )
    # the share 1/(K + 1) of the broad law in q costs ln(K + 1)
    best = int(ceilings.argmin())
    ceiling = (math.log(size + 1.0) + float(ceilings[best])) * (1.0 + CEILING_SLACK)
    return _ContextLaw(secret, 1.0 + spreads[best] * precisions, centre, ceiling)


def _log_ratios(law: _ContextLaw, fresh: Array, count: int, source: np.random.Generator) -> Array:
    """Return ``ln p(y | x)/q(y)``, rounded up, one mean over its draws of noise per output."""
    total = np.zeros(len(fresh))
    rounds = -(-count // len(fresh))
    for _ in range(rounds):
        # y = x + N(0, I); ln p(y | x)/n(y) = y·x − ½‖x‖²
        noisy = fresh + source.standard_normal(fresh.shape)
        found = posterior(law.secret, noisy)
        own = np.einsum("ij,ij->i", noisy, fresh) - 0.5 * (fresh**2).sum(axis=1)
        marginal = found.log_sum
        if law.variances is not None:
            size = len(law.secret.points)
            # ln of the broad law over n(y), diagonal in these axes
            broad = 0.5 * (
                (noisy**2).sum(axis=1)
                - ((noisy - law.centre) ** 2 / law.variances).sum(axis=1)
                - float(np.log(law.variances).sum())
            )
            # ln (K q₁ + broad)/(K + 1) over n(y), as a log-sum-exp
            mixed = np.logaddexp(math.log(size) + marginal, broad)
            marginal = mixed - math.log1p(size)
        # upwards by what each exponent of the two sides may be off by
        total += own - marginal + RATIO_ERRORS * found.error
    mean: Array = total / rounds
    return mean


def _capacity(precisions: Array, radius: float) -> float:
    """Return the upper bound ``max ½ logdet(I + S Σ⁻¹)`` over tr S <= R², by its dual.

    At every water level ν > 0 ``½ Σ ln⁺(ν g) + (R² − Σ (ν − 1/g)₊)/(2ν)`` is at least the maximum.
    """
    # an axis without precision is not reached by any power
    active = precisions[precisions > 0.0]
    power = radius**2
    low, high = 0.0, power + float((1.0 / active).max(initial=0.0))
    # Σ (ν − 1/g)₊ = R² by bisection
    for _ in range(BISECTIONS):
        level = 0.5 * (low + high)
        if float(np.maximum(level - 1.0 / active, 0.0).sum()) > power:
            high = level
        else:
            low = level
    # the dual at the level found: an imperfect level only makes it larger
    filled = float(np.maximum(high - 1.0 / active, 0.0).sum())
    rate = 0.5 * float(np.log(np.maximum(high * active, 1.0)).sum())
    return (rate + abs(power - filled) / (2.0 * high)) * (1.0 + CEILING_SLACK)


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
    covariance = gaussian_covariance("covariance", covariance)
    size = None if context is None else integer("context", context, minimum=2, maximum=MOST_VALUES)
    count = (
        DEFAULT_SAMPLES
        if samples is None
        else integer("samples", samples, minimum=FEWEST_VALUES, maximum=MOST_VALUES)
    )
    source = generator(rng)
    wanted = None
    if callable(outputs):
        size = DEFAULT_GROUP if size is None else size
        wanted = size * max(FEWEST_VALUES, min(DEFAULT_GROUPS, count))
    values = read_outputs(outputs, wanted, covariance.dim, source)
    # larger groups can say more, fewer groups say it with less confidence
    size = max(2, int(len(values) ** GROUP_POWER)) if size is None else size
    groups = len(values) // size
    if groups < FEWEST_VALUES:
        raise ValueError(
            f"outputs: expected at least {FEWEST_VALUES} groups of {size}, got {len(values)} rows"
        )
    shared = _whiten_range(values, covariance)
    if shared is None:
        # no direction has noise that is known well: 0 is always true
        means, slack = np.zeros(groups), 0.0
    else:
        whitened, slack = shared
        means = _group_means(whitened, size, groups, -(-count // groups), source)
    # groups are independent; within one, draws share their outputs and count as one value
    first = pilot_size(groups)
    lower = max(0.0, lowered_by(mean_lower_bound(means[:first], means[first:], level), slack))
    return InformationBracket(
        lower=lower,
        estimate=max(lower, float(means.mean())),
        upper=math.inf,
        confidence=level,
        samples=count,
        method=CONTRASTIVE,
    )


def _whiten_range(values: Array, covariance: Covariance) -> tuple[Array, float] | None:
    """Return whitened outputs where there is noise, to rounding, and an upper bound on the slack.

    None if there is no such direction.
    Leaving out directions is post-processing: it lowers the information.
    """
    centred = values - values.mean(axis=0)
    noise = covariance
    if covariance.rank < covariance.dim:
        if covariance.rank == 0:
            return None
        # the last ``rank`` eigenvectors span the range of Σ
        eigenvalues, vectors = eigh_psd("covariance", covariance.to_dense())
        kept = slice(covariance.dim - covariance.rank, None)
        centred, noise = centred @ vectors[:, kept], Diagonal(eigenvalues[kept])
    whitened, error = whiten(centred, noise)
    slack = whitening_slack(noise.dim, error)
    return None if math.isinf(slack) else (whitened, slack)


def _group_means(
    whitened: Array, size: int, groups: int, draws: int, source: np.random.Generator
) -> Array:
    """Return ``ln K − H(J | y)``, rounded down, meaned over the draws of each group."""
    most = math.log(size)
    means = np.empty(groups)
    priors, none = np.full(size, -most), np.zeros(whitened.shape[1])
    for group in range(groups):
        points = whitened[group * size : (group + 1) * size]
        # each of the K takes its turn, from a random one on, and is released with fresh noise
        places = (np.arange(draws) + source.integers(size)) % size
        noisy = points[places] + source.standard_normal((draws, points.shape[1]))
        found = posterior(FiniteSecret(np.ascontiguousarray(points), priors, none), noisy)
        # a change of every exponent by e changes the entropy by 2e (2 + ln K): downwards
        unsure = 2.0 * found.error * (2.0 + most)
        means[group] = float(np.clip(most - found.entropy - unsure, 0.0, None).mean())
    return means
