"""LiRA: a normal law of a score with and without an example, from releases that are simulated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import Array, array, choice, in_interval, integer, matrix
from tacit._ground.numbers import EPS
from tacit.attacks.membership.declared import MembershipAttack, best_attack
from tacit.attacks.membership.roc import truth_values

VARIANTS = ("online", "offline")
VARIANCES = ("per-example", "global")
# Shadows to learn from, and releases to attack, at least.
FEWEST = 4
FARTHEST = 1e9
NAME = "LiRA, from simulated releases alone"
# Ridge of the pooled covariance, relative to its trace: directions that never vary.
RIDGE = 1e-9


def lira(
    target_scores: ArrayLike,
    shadow_scores: ArrayLike,
    shadow_memberships: ArrayLike,
    *,
    variant: str = "online",
    variance: str = "per-example",
) -> Array:
    """Score examples by how much likelier the target model's score is if it saw them.

    Online, with a Gaussian fitted to the scores of shadow models that saw the example and one to
    those that did not: ``Σ_q ln N(t_q; μ_in, σ²_in) − ln N(t_q; μ_out, σ²_out)``. Offline, from
    the models that did not see it: ``q^-½ Σ_q (t_q − μ_out)/σ_out``, which orders examples as the
    one-sided ``1 − P(N(μ_out, σ²_out) > t)`` does and does not saturate. The q queries of an
    example are taken as independent.

    Args:
        target_scores: (N,) or (N, q), score of each example under the attacked model, such as the
            log odds of its label; near-Gaussian scores, higher for members.
        shadow_scores: (M, N) or (M, N, q), the same under M shadow models.
        shadow_memberships: (M, N) truth values, whether shadow model m saw example n.
        variant: ``"online"`` or ``"offline"``.
        variance: ``"per-example"`` needs two shadow models in and two out of every example (two
            out, offline); ``"global"`` pools the squared deviations from each example's own mean
            over all examples, and needs one. An example whose scores do not vary takes the pooled
            variance.

    Returns:
        (N,) scores, higher for members.

    Raises:
        ValueError: a bad argument, an example with too few shadow models (it is named), or
            scores that vary for no example, to which no Gaussian can be fitted.

    Example:
        >>> shadows = [[0.0, 3.1], [0.2, 2.9], [1.0, 1.9], [1.2, 2.1]]
        >>> saw = [[False, True], [False, True], [True, False], [True, False]]
        >>> scores = lira([1.1, 2.0], shadows, saw)
        >>> bool(scores[0] > 0 > scores[1])
        True

    Source: Carlini et al., "Membership inference attacks from first principles" (2022), Alg. 1
    (online), Eq. 4 (offline), Sec. VI.
    """
    choice("variant", variant, VARIANTS)
    choice("variance", variance, VARIANCES)
    target, shadows, inside = _checked(target_scores, shadow_scores, shadow_memberships)
    shared = variance == "global"
    mean_out, variance_out = _fit(shadows, ~inside, "out", shared=shared)
    if variant == "offline":
        deviations = (target - mean_out) / np.sqrt(variance_out)
        offline: Array = deviations.sum(axis=1) / np.sqrt(target.shape[1])
        return offline
    fits = _fit(shadows, inside, "in", shared=shared), (mean_out, variance_out)
    online: Array = _log_ratios(target, *fits).sum(axis=1)
    return online


def _log_ratios(scores: Array, inside: tuple[Array, Array], outside: tuple[Array, Array]) -> Array:
    """Return ln N(t; μ_in, σ²_in) − ln N(t; μ_out, σ²_out) of every score, from (μ, σ²) of both."""
    (mean_in, variance_in), (mean_out, variance_out) = inside, outside
    ratios = np.log(variance_out / variance_in) + (scores - mean_out) ** 2 / variance_out
    logs: Array = 0.5 * (ratios - (scores - mean_in) ** 2 / variance_in)
    return logs


def _checked(
    target_scores: Any, shadow_scores: Any, shadow_memberships: Any
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return (N, q), (M, N, q) and (M, N), in units in which no score exceeds one."""
    target = array("target_scores", target_scores, ndim=(1, 2))
    shadows = array("shadow_scores", shadow_scores, ndim=(2, 3))
    if shadows.shape[1:] != target.shape:
        raise ValueError(
            f"shadow_scores: expected shape (M, {', '.join(map(str, target.shape))}), one score "
            f"per shadow model and target score, got {shadows.shape}"
        )
    inside = truth_values("shadow_memberships", shadow_memberships, shadows.shape[:2])
    if target.ndim == 1:
        target, shadows = target[:, None], shadows[:, :, None]
    # The ratio of densities has no units; squares of scores near 1e200 would overflow.
    scale = np.maximum(np.abs(target).max(axis=0), np.abs(shadows).max(axis=(0, 1)))
    scale = np.where(scale > 0.0, scale, 1.0)
    return target / scale, shadows / scale, inside


def _fit(
    shadows: Array, chosen: npt.NDArray[np.bool_], side: str, *, shared: bool
) -> tuple[Array, Array]:
    """Return mean and variance (N, q) of the chosen shadow models' scores of every example."""
    counts = chosen.sum(axis=0)
    needed = 1 if shared else 2
    if counts.min() < needed:
        example = int(counts.argmin())
        raise ValueError(
            f"shadow_memberships: expected at least {needed} shadow models with every example "
            f"{side}, got {counts[example]} for example {example}"
        )
    weights = chosen[:, :, None]
    mean = np.where(weights, shadows, 0.0).sum(axis=0) / counts[:, None]
    deviations = np.where(weights, shadows - mean, 0.0)
    squares = (deviations**2).sum(axis=0)
    level = 4.0 * EPS * np.where(weights, np.abs(shadows), 0.0).max(axis=0)
    squares = np.where(squares > counts[:, None] * level**2, squares, 0.0)
    pooled = squares.sum(axis=0) / max(1, int((counts - 1).sum()))
    if (pooled == 0.0).any():
        raise ValueError(
            f"shadow_scores: expected scores that vary between shadow models with an example "
            f"{side}, got the same ones for every example: no Gaussian can be fitted"
        )
    if shared:
        return mean, np.broadcast_to(pooled, mean.shape)
    own = squares / (counts - 1)[:, None]
    return mean, np.where(own > 0.0, own, pooled)


def shadow_attack(
    releases: ArrayLike, inside: ArrayLike, *, shadows: int, confidence: float = 0.95
) -> MembershipAttack:
    """Guess which rows are in from a release, having seen releases with and without each of them.

    For row i the score of a release y is ``wᵢᵀ y``, ``wᵢ = S⁻¹ (m_in − m_out)`` of the shadow
    releases, S their covariance; LiRA fits a Gaussian to the scores with the row in and one to
    those with it out, and guesses the likelier, weighed by the share q of shadows that a row is in,
    the mean of all rows. The same attacker for every mechanism.

    Args:
        releases: (M, d) simulated releases, noise included.
        inside: (M, n) which of n rows each has in, every row as likely as the others; every row is
            in, and out, of two shadows.
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
    rate = float(members[:count].mean())
    units = _in_units(seen, count)
    scores = units @ _directions(units[:count], members[:count])
    # a ratio of densities has no units: none above one, so that no square overflows
    scores /= np.abs(scores).max() or 1.0
    learnt, saw = scores[:count, :, None], members[:count]
    # of the releases learnt from, once for all that are attacked
    inner, outer = _fit(learnt, saw, "in", shared=False), _fit(learnt, ~saw, "out", shared=False)
    ratios = _log_ratios(scores[count:, :, None], inner, outer)[:, :, 0]
    # in where q N(s; in) > (1 − q) N(s; out): of a rate far from one half the prior decides most
    right = (ratios + math.log(rate / (1.0 - rate)) > 0.0) == members[count:]
    return best_attack({NAME: right}, max(rate, 1.0 - rate), level)


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
