"""Membership attacks on a noisy release whose secret is one of finitely many declared subsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg
from scipy.spatial.distance import cdist

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
)
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.attacks.membership.mixtures import in_noise_units, told_apart
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance

# Log odds that are held at once: 32 MB.
ENTRIES_PER_CHUNK = 4_000_000
BAYES = "Bayes likelihood ratio over the declared candidates"
LIRA = "Gaussian likelihood ratio (LiRA)"
EXACT = "exact posterior over the declared candidates, whose output is seen"

Scores: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, kw_only=True)
class MembershipAttack:
    """How often an attacker guessed membership right: a measurement, never a guarantee.

    Attributes:
        name: the attack.
        trials: simulated releases, each with a fresh secret and fresh noise.
        success: fraction of right guesses, in or out, over all attacked rows and trials.
        interval: (low, high) for ``success``; one trial counts as one observation, because the
            guesses within it depend on each other.
        confidence: coverage of both intervals, after choosing the stronger of the attacks run.
        worst_success: fraction of right guesses on the row most exposed; the row is chosen on the
            first half of the trials, the fraction is of the second half.
        worst_interval: exact (low, high) for ``worst_success``.
        worst_record: index of that row.
        prior: success of guessing blind, max(q, 1 − q).
        compared: (attack, success) of every attack run on the same trials.
    """

    name: str
    trials: int
    success: float
    interval: tuple[float, float]
    confidence: float
    worst_success: float
    worst_interval: tuple[float, float]
    worst_record: int
    prior: float
    compared: tuple[tuple[str, float], ...] = ()

    def with_record(self, record: int) -> MembershipAttack:
        """Return the same attack with the worst row under another number."""
        return replace(self, worst_record=record)


def membership_attack(
    outputs: ArrayLike,
    memberships: ArrayLike,
    covariance: Covariance | ArrayLike | None,
    *,
    trials: int = 2000,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> MembershipAttack:
    """Guess, row by row, who was in: the attacker knows the candidates, their outputs and Σ.

    A trial draws a candidate j uniformly and releases ``y = x_j + N(0, Σ)``. Two attackers see y:

    * Bayes: ``P(j | y) ∝ exp(−½ ‖y − x_j‖²_Σ⁻¹)``, hence ``P(row i in | y)``; guesses the likelier.
      No attacker has a higher expected success;
    * LiRA: one Gaussian of y for row i in, one for out, with independent components in the
      principal axes of the whitened outputs, weighed by the prior.

    Where there is no noise the candidates of the output seen are equally likely, and the attacker
    guesses by counting them.

    Args:
        outputs: (K, d), the output of every candidate.
        memberships: (K, N) of truth values, row i of candidate k in or out. Every column has the
            same mean q, strictly between 0 and 1.
        covariance: Σ, which must cover every direction; None for no noise at all.
        trials: simulated releases, >= 4.
        confidence: coverage of the intervals, in (0, 1).
        rng: seed or generator of the simulation; the operating system's when None.

    Returns:
        The attack with the higher success. Its intervals hold at ``confidence`` although it was
        chosen: each of k attacks' are computed at failure (1 − confidence)/k.

    Raises:
        ValueError: a bad argument, columns with different means, or a singular Σ.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> attack = membership_attack(
        ...     [[-9.0], [9.0]], [[True, False], [False, True]], Isotropic(1.0, 1), trials=50, rng=0
        ... )
        >>> attack.success
        1.0

    Source: residual-pac, App. B and S.2 (the attack of Carlini et al. 2022).
    """
    covariance = as_covariance("covariance", covariance)
    values = matrix("outputs", outputs)
    inside = _balanced(memberships, len(values))
    count = integer("trials", trials, minimum=4)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    rate = float(inside[:, 0].mean())
    # in noise units about the middle, where squares of a common offset cost no digits
    placed, noise = told_apart(values, covariance)
    clean = in_noise_units(placed - placed.mean(axis=0), noise)
    secrets = source.integers(len(values), size=count)
    seen = clean[secrets] + source.standard_normal((count, clean.shape[1]))
    indicator = inside.astype(np.float64)
    attackers = (
        {EXACT: _bayes(clean, indicator)}
        if covariance is None
        else {BAYES: _bayes(clean, indicator), LIRA: _gaussian_fit(clean, indicator, rate)}
    )
    results = {
        name: _run(scores, seen, inside[secrets], rate, source)
        for name, scores in attackers.items()
    }
    return best_attack(results, max(rate, 1.0 - rate), level)


def best_attack(results: Mapping[str, Any], prior: float, level: float) -> MembershipAttack:
    """Return the attack that is right most often, with intervals that hold though it was chosen.

    Args:
        results: (trials, rows) of right guesses, by attacker; the worst row is chosen on the first
            half of the trials and measured on the others.
        prior: success of guessing blind.
        level: confidence of the intervals, in (0, 1).
    """
    name = max(results, key=lambda attack: float(results[attack].mean()))
    right = results[name]
    # the best of k is reported: each interval at failure γ/k, so that all hold at once
    each = 1.0 - (1.0 - level) / len(results)
    count, half = len(right), len(right) // 2
    # chosen on one half and measured on the other: the largest of many shares is too large by luck
    record = int(right[:half].mean(axis=0).argmax())
    hits = int(right[half:, record].sum())
    return MembershipAttack(
        name=name,
        trials=count,
        success=float(right.mean()),
        interval=mean_interval(right.mean(axis=1), each),
        confidence=level,
        worst_success=hits / (count - half),
        worst_interval=proportion_interval(hits, count - half, each),
        worst_record=record,
        prior=prior,
        compared=tuple((attack, float(r.mean())) for attack, r in results.items()),
    )


def _balanced(memberships: Any, candidates: int) -> Any:
    inside = np.asarray(memberships, dtype=bool)
    if inside.ndim != 2 or len(inside) != candidates or inside.shape[1] == 0:
        raise ValueError(
            f"memberships: expected {candidates} rows, one per output, got shape {inside.shape}"
        )
    counts = inside.sum(axis=0)
    if counts.min() != counts.max() or counts[0] in (0, candidates):
        raise ValueError(
            "memberships: expected every row in the same share of candidates, strictly between "
            f"0 and 1, got {counts.min()} to {counts.max()} of {candidates}"
        )
    return inside


def _bayes(clean: Array, indicator: Array) -> Scores:
    """Return the log odds of membership under the exact posterior over candidates."""

    def scores(seen: Array) -> Array:
        # P(in | y) − P(out | y) up to one factor a row: its sign is that of the log odds
        squared = cdist(seen, clean, "sqeuclidean")
        posterior = np.exp(-0.5 * (squared - squared.min(axis=1, keepdims=True)))
        total = posterior.sum(axis=1, keepdims=True)
        odds: Array = 2.0 * (posterior @ indicator) - total
        # A tie is a tie although the two sums round differently.
        odds[np.abs(odds) <= 1e-12 * total] = 0.0
        return odds

    return scores


def _gaussian_fit(clean: Array, indicator: Array, rate: float) -> Scores:
    """Return the log odds of membership under one Gaussian for in and one for out per row."""
    # principal axes of the outputs: components there are taken as independent
    axes = scipy_linalg.svd(clean, full_matrices=False)[2]
    principal = clean @ axes.T
    first, second = indicator.T @ principal, indicator.T @ principal**2

    def moments(sums: Array, squares: Array, share: float) -> tuple[Array, Array]:
        # variance of the clean outputs, plus 1 of the noise
        mean = sums / (share * len(clean))
        variance = squares / (share * len(clean)) - mean**2
        return mean, np.maximum(variance, 0.0) + 1.0

    mean_in, variance_in = moments(first, second, rate)
    mean_out, variance_out = moments(
        principal.sum(axis=0) - first, (principal**2).sum(axis=0) - second, 1.0 - rate
    )
    # ln q N(y; in) − ln (1 − q) N(y; out), multiplied out: a quadratic in y with these coefficients
    offset = np.log(rate / (1.0 - rate)) + 0.5 * (
        np.log(variance_out)
        - np.log(variance_in)
        + mean_out**2 / variance_out
        - mean_in**2 / variance_in
    ).sum(axis=1)
    linear = (mean_in / variance_in - mean_out / variance_out).T
    quadratic = 0.5 * (1.0 / variance_out - 1.0 / variance_in).T

    def scores(seen: Array) -> Array:
        projected = seen @ axes.T
        odds: Array = projected**2 @ quadratic + projected @ linear + offset
        return odds

    return scores


def _run(scores: Scores, seen: Array, truth: Any, rate: float, source: np.random.Generator) -> Any:
    """Return (trials, N): whether each guess was right; ties go to the prior, or by lot."""
    right = np.empty(truth.shape, dtype=bool)
    rows = max(1, ENTRIES_PER_CHUNK // truth.shape[1])
    for start in range(0, len(seen), rows):
        part = slice(start, start + rows)
        odds = scores(seen[part])
        tie = source.random(odds.shape) < 0.5 if rate == 0.5 else np.full(odds.shape, rate > 0.5)
        guess = np.where(odds == 0.0, tie, odds > 0.0)
        right[part] = guess == truth[part]
    return right
