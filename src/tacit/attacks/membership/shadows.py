"""LiRA on released numbers: an attacker who has simulated releases, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, in_interval, integer, matrix
from tacit.attacks.membership.declared import MembershipAttack, best_attack
from tacit.attacks.membership.lira import lira
from tacit.attacks.membership.roc import truth_values

# Shadows to learn from, and releases to attack, at least.
FEWEST = 4
FARTHEST = 1e9
NAME = "LiRA, from simulated releases alone"
# Ridge of the pooled covariance, relative to its trace: directions that never vary.
RIDGE = 1e-9


def shadow_attack(
    releases: ArrayLike, inside: ArrayLike, *, shadows: int, confidence: float = 0.95
) -> MembershipAttack:
    """Guess which rows are in from a release, having seen releases with and without each of them.

    For row i the score of a release y is ``wᵢᵀ y``, ``wᵢ = S⁻¹ (m_in − m_out)`` of the shadow
    releases, S their covariance; LiRA fits a Gaussian to the scores with the row in and one to
    those with it out, and guesses the likelier. The same attacker for every mechanism.

    Args:
        releases: (M, d) simulated releases, noise included.
        inside: (M, n) which of n rows each has in; every row is in, and out, of two shadows.
        shadows: how many of them, the first ones, the attacker learns from; it is measured on the
            others, at least 4.
        confidence: coverage of the intervals, in (0, 1).

    Returns:
        The attack.

    Raises:
        ValueError: a bad argument, or releases that are all the same.

    Example:
        >>> source = np.random.default_rng(0)
        >>> inside = source.random((400, 2)) < 0.5
        >>> releases = inside * 4.0 + source.normal(size=(400, 2))
        >>> shadow_attack(releases, inside, shadows=200).success > 0.9
        True

    Source: Carlini et al., "Membership inference attacks from first principles" (2022), Alg. 1.
    """
    seen = matrix("releases", releases)
    if len(seen) < 2 * FEWEST:
        raise ValueError(
            f"releases: expected at least {2 * FEWEST}, {FEWEST} to learn from and {FEWEST} to "
            f"attack, got {len(seen)}"
        )
    if np.ndim(inside) != 2 or np.shape(inside)[-1] == 0:
        raise ValueError(
            f"inside: expected shape ({len(seen)}, n), one column a row, got {np.shape(inside)}"
        )
    count = integer("shadows", shadows, minimum=FEWEST, maximum=len(seen) - FEWEST)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    members = truth_values("inside", inside, (len(seen), np.shape(inside)[-1]))
    present = members[:count].sum(axis=0)
    if present.min() < 2 or present.max() > count - 2:
        row = int(np.argmax((present < 2) | (present > count - 2)))
        raise ValueError(
            f"inside: expected every row in two of {count} shadows, and out of two, row {row} is "
            f"in {present[row]}"
        )
    prior = float(max(members[:count].mean(), 1.0 - members[:count].mean()))
    units = _in_units(seen, count)
    scores = units @ _directions(units[:count], members[:count])
    shadow_scores, targets = scores[:count], scores[count:]
    ratios = np.stack([lira(target, shadow_scores, members[:count]) for target in targets])
    right = (ratios > 0.0) == members[count:]
    return best_attack({NAME: right}, prior, level)


def _in_units(releases: Array, count: int) -> Array:
    """Return the releases in units in which squares of the first ``count`` are of size 1."""
    # halves: a difference of two of the largest doubles is one
    centred = releases / 2.0 - releases[0] / 2.0
    largest = np.abs(centred[:count]).max(axis=0)
    if not largest.any():
        raise ValueError("releases: expected some that differ, got the same ones")
    with np.errstate(over="ignore"):
        units = centred / np.where(largest > 0.0, largest, 1.0)
    # one that is farther than this from all that were learnt from is as far as can be
    return np.asarray(np.where(largest > 0.0, np.clip(units, -FARTHEST, FARTHEST), 0.0))


def _directions(units: Array, members: Any) -> Array:
    """Return (d, n): S⁻¹ (m_in − m_out) for every row."""
    centred = units - units.mean(axis=0)
    scales = centred.std(axis=0)
    live = scales > 0.0
    scaled = centred[:, live] / scales[live]
    pooled = scaled.T @ scaled / len(scaled)
    weights = members / members.sum(axis=0) - ~members / (~members).sum(axis=0)
    ridge = RIDGE * np.trace(pooled) * np.eye(len(pooled))
    solved = scipy_linalg.solve(pooled + ridge, scaled.T @ weights, assume_a="pos")
    directions = np.zeros((units.shape[1], members.shape[1]))
    directions[live] = solved / scales[live, None]
    return directions
