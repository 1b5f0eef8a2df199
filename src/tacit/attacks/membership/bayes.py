"""The Bayes-optimal attacker on a finite secret, for any task that is a function of the secret."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg
from scipy.special import ndtr

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    positive,
)
from tacit._ground.numbers import EPS
from tacit.attacks.intervals import proportion_interval
from tacit.attacks.membership.mixtures import (
    ENTRIES_PER_CHUNK,
    LabelledMixture,
    labelled_mixture,
    success_without_noise,
)
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance
from tacit.covariance.whitening import whiten

# Sums of the same terms in another order differ by less.
TIE_TOLERANCE = 1e-12
TRIALS_PER_BLOCK = 100_000
MOST_TRIALS = 1_000_000_000
# In standard deviations beyond the outermost output: 1e-19 of the mass of each lies farther.
TAIL = 9.0
STEEPEST_SLOPE = 1.0 / math.sqrt(2.0 * math.pi * math.e)
LARGEST_REFINEMENT = 1_000_000
# Within it the ends of all cells are exact in double precision.
LARGEST_SPAN = 2.0**20
# |P(A | x) − P(A | x')| <= ‖x − x'‖/√(2π) for noise N(0, I).
SUCCESS_PER_DISTANCE = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, kw_only=True)
class BayesAttack:
    """How often the best possible attacker guessed right: a measurement, never a guarantee.

    Attributes:
        trials: simulated releases, each with a fresh secret and fresh noise.
        success: fraction of right guesses.
        interval: exact (low, high) for the expected success.
        confidence: coverage of the interval.
        prior: success of guessing blind, the largest prior probability of a label.
        classes: number of labels that can occur.
    """

    trials: int
    success: float
    interval: tuple[float, float]
    confidence: float
    prior: float
    classes: int


def bayes(
    outputs: ArrayLike,
    covariance: Covariance | ArrayLike | None,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    trials: int = 2000,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> BayesAttack:
    """Guess a label of the secret from simulated releases, by the exact posterior.

    A trial draws j with probability w_j and releases ``y = x_j + N(0, Σ)``; the attacker guesses
    ``argmax_l Σ_{j: labels_j = l} w_j exp(−½ ‖y − x_j‖²_Σ⁻¹)``. No attacker has a higher expected
    success. Success is of hard guesses; ties are broken by lot.

    Args:
        outputs: (N, d), the clean output x_j of every value of the secret.
        covariance: Σ of the noise, of full rank; None for outputs that are seen as they are.
        labels: (N,) numbers or strings, what is guessed: membership of one record, a class, or
            ``range(N)`` for the secret itself.
        weights: (N,) prior probabilities, up to a factor; uniform when None.
        trials: simulated releases.
        confidence: coverage of the interval, in (0, 1).
        rng: seed or generator of the simulation; the operating system's when None.

    Returns:
        The attack, with an exact binomial interval.

    Raises:
        ValueError: a bad argument, or a singular Σ.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> attack = bayes([[-1.0], [1.0]], Isotropic(1.0, 1), [0, 1], trials=10_000, rng=0)
        >>> attack.interval[0] < 0.8413 < attack.interval[1]
        True

    Source: residual-pac, Def. 1 (posterior success), attained by the maximum of the posterior.
    """
    covariance = as_covariance("covariance", covariance)
    values = matrix("outputs", outputs)
    count = integer("trials", trials, minimum=1, maximum=MOST_TRIALS)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    mixture = labelled_mixture(values, covariance, labels, weights)
    source = generator(rng)
    hits = sum(
        _hits(mixture, min(TRIALS_PER_BLOCK, count - start), source)
        for start in range(0, count, TRIALS_PER_BLOCK)
    )
    return BayesAttack(
        trials=count,
        success=hits / count,
        interval=proportion_interval(hits, count, level),
        confidence=level,
        prior=float(min(1.0, mixture.masses.max())),
        classes=len(mixture.starts),
    )


def _hits(mixture: LabelledMixture, count: int, source: np.random.Generator) -> int:
    """Return how many of some simulated releases are guessed right."""
    # of candidates, and white noise in the coordinates in which Σ is I
    secrets = source.choice(len(mixture.weights), size=count, p=mixture.weights)
    seen = mixture.clean[secrets] + source.standard_normal((count, mixture.clean.shape[1]))
    hits = 0
    for part, masses in mixture.posterior_masses(seen):
        # A tie is a tie although the sums round differently.
        tied = masses >= (1.0 - TIE_TOLERANCE) * masses.max(axis=1, keepdims=True)
        guess = np.where(tied, source.random(tied.shape), -1.0).argmax(axis=1)
        hits += int((guess == mixture.labels[secrets[part]]).sum())
    return hits


def bayes_success(
    outputs: ArrayLike,
    covariance: Covariance | ArrayLike | None,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    tolerance: float = 1e-6,
) -> tuple[float, float]:
    """Enclose the success of the best possible attacker, for outputs on one line.

    ``∫ max_l p_l(y) dy`` with ``p_l = Σ_{j: labels_j = l} w_j φ(y − x_j)`` in noise units. Over a
    cell of width h, ``max_l ∫ p_l`` is below the integral by ``Σ_l min(∫ p_l, K_l h²/8)`` at most,
    K_l the Lipschitz constant of ``p_l − p_best``, and by nothing from a label whose deficit
    exceeds ``K_l h²/2``. Cells are halved until the sum is within the tolerance.

    Args:
        outputs: (N, d), on one line; d = 1, or collinear once the noise is white.
        covariance: Σ of the noise, of full rank; None for no noise, on a line or not.
        labels: (N,) as for ``bayes``.
        weights: (N,) prior probabilities, up to a factor; uniform when None.
        tolerance: largest distance between the ends, where a million cells reach it.

    Returns:
        (low, high), which enclose the expected success of ``bayes``.

    Raises:
        ValueError: a bad argument, outputs that span a plane or spread over more than a million
            standard deviations of the noise: measure these with ``bayes``.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> low, high = bayes_success([[-1.0], [1.0]], Isotropic(1.0, 1), [0, 1])
        >>> low <= 0.84134474607 <= high and high - low < 1e-6
        True

    Source: residual-pac, Def. 1.
    """
    covariance = as_covariance("covariance", covariance)
    values = matrix("outputs", outputs)
    wanted = positive("tolerance", tolerance)
    if covariance is None:
        exact = success_without_noise(values, labels, weights)
        rounding = 4.0 * len(values) * EPS
        return max(0.0, exact - rounding), min(1.0, exact + rounding)
    mixture = labelled_mixture(values, covariance, labels, weights)
    # the line, and how far any output lies from it: so much may the success change, and it is paid
    # for in the ends
    centred = mixture.clean - mixture.clean.mean(axis=0)
    axis = scipy_linalg.svd(centred, full_matrices=False)[2][0]
    line = centred @ axis
    off_line = float(np.linalg.norm(centred - np.outer(line, axis), axis=1).max())
    span = float(np.abs(line).max())
    if span > LARGEST_SPAN:
        raise ValueError(
            f"outputs: expected rows within {LARGEST_SPAN:.0f} standard deviations of the noise, "
            f"got {span:.3g}: they do not overlap, measure these with bayes"
        )
    rounding = values.shape[1] * (whiten(values, covariance)[1] + 8.0 * EPS * span)
    slack = SUCCESS_PER_DISTANCE * off_line + rounding
    if slack > 0.5 * wanted:
        raise ValueError(
            "outputs: expected rows on one line in units of the noise, got one at distance "
            f"{off_line:.3g} from it: measure these with bayes"
        )
    low, high = _enclosed(line, mixture, wanted - slack)
    return max(0.0, low - slack), min(1.0, high + slack)


def _enclosed(line: Array, mixture: LabelledMixture, tolerance: float) -> tuple[float, float]:
    """Refine cells around the points until lower and upper sums agree."""
    starts = np.unique(np.floor(line[:, None] + np.arange(-TAIL, TAIL + 1.0)))
    low, missing = _cell_sums(starts, np.ones(starts.size), line, mixture)
    widths = np.ones(starts.size)
    while missing.sum() > tolerance and starts.size < LARGEST_REFINEMENT:
        split = missing > tolerance / (2.0 * starts.size)
        half = 0.5 * widths[split]
        fresh = np.concatenate([starts[split], starts[split] + half])
        fresh_widths = np.concatenate([half, half])
        fresh_low, fresh_missing = _cell_sums(fresh, fresh_widths, line, mixture)
        starts = np.concatenate([starts[~split], fresh])
        widths = np.concatenate([widths[~split], fresh_widths])
        low = np.concatenate([low[~split], fresh_low])
        missing = np.concatenate([missing[~split], fresh_missing])
    reached = math.fsum(low.tolist())
    # Beyond the cells lies 2 Φ(−8) at most, of every point.
    tails = 2.0 * float(ndtr(1.0 - TAIL))
    rounding = 4.0 * (len(line) + starts.size) * EPS
    return reached - rounding, reached + math.fsum(missing.tolist()) + tails + rounding


def _cell_sums(
    starts: Array, widths: Array, line: Array, mixture: LabelledMixture
) -> tuple[Array, Array]:
    """Return ``max_l ∫ p_l`` over each cell, and how far ``∫ max_l p_l`` may be above it."""
    best, missing = np.empty(starts.size), np.empty(starts.size)
    rows = max(1, ENTRIES_PER_CHUNK // line.size)
    for start in range(0, starts.size, rows):
        part = slice(start, start + rows)
        left, width = starts[part, None], widths[part, None]
        mass = _interval_mass(left - line, left + width - line) * mixture.weights
        cells = np.add.reduceat(mass, mixture.starts, axis=1)
        winner = cells.argmax(axis=1)
        best[part] = cells.max(axis=1)
        slope = STEEPEST_SLOPE * (mixture.masses + mixture.masses[winner, None])
        deficit = best[part, None] - cells
        possible = np.where(
            deficit > 0.5 * slope * width**2, 0.0, np.minimum(cells, slope * width**2 / 8.0)
        )
        possible[np.arange(len(winner)), winner] = 0.0
        missing[part] = possible.sum(axis=1)
    return best, missing


def _interval_mass(low: Array, high: Array) -> Array:
    """Return Φ(high) − Φ(low), from the tail that does not cancel."""
    flip = low > 0.0
    mass: Array = np.where(flip, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return mass
