"""RMIA: how many points of the population an example beats in how much its model likes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy import special

from tacit._ground.checks import Array, choice, in_interval, matrix, positive, vector
from tacit.attacks.membership.roc import truth_values

VARIANTS = ("online", "offline")
# How far a log-probability may be above zero by rounding.
ABOVE_ONE = 1e-6


def rmia(
    target_scores: ArrayLike,
    shadow_scores: ArrayLike,
    shadow_memberships: ArrayLike,
    *,
    population_scores: ArrayLike,
    population_shadow_scores: ArrayLike,
    variant: str = "online",
    gamma: float = 2.0,
    slope: float = 0.3,
) -> Array:
    """Score examples by the share of population points that they dominate under the target model.

    For the target model θ and shadow models θ', with ``LR(x) = P(x|θ)/P(x)``:

    ``score(x) = P_z[LR(x) >= γ LR(z)]``, ``P(z) = mean_θ' P(z|θ')``, and

    * online: ``P(x) = ½ (mean over θ' that saw x + mean over θ' that did not)``;
    * offline, from the latter alone: ``P(x) = ½ ((1 + a) mean_out P(x|θ') + 1 − a)``.

    Args:
        target_scores: (N,) in nats, ln P(x|θ) of each example under the attacked model, such as
            the log-probability of its label: minus its loss; none above zero.
        shadow_scores: (M, N), the same under M shadow models.
        shadow_memberships: (M, N) truth values, whether shadow model m saw example n.
        population_scores: (Z,), the same of points z of the population under the attacked model,
            which saw none of them; neither did the shadow models.
        population_shadow_scores: (M, Z), the same under the shadow models.
        variant: ``"online"`` needs a shadow model in and one out of every example,
            ``"offline"`` one out.
        gamma: γ > 0.
        slope: a in [0, 1], offline: ``mean_in P = a mean_out P + 1 − a`` is taken to hold.

    Returns:
        (N,) shares of the population, higher for members.

    Raises:
        ValueError: a bad argument, or an example with too few shadow models (it is named).

    Example:
        >>> shadows = np.log([[0.5, 0.9], [0.5, 0.8], [0.2, 0.9], [0.1, 0.9]])
        >>> saw = [[True, False], [True, True], [False, True], [False, False]]
        >>> population = np.log([0.2, 0.6, 0.9])
        >>> rmia(
        ...     np.log([0.5, 0.8]), shadows, saw, population_scores=population,
        ...     population_shadow_scores=np.tile(population, (4, 1)), gamma=1.2,
        ... )
        array([1., 0.])

    Source: Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks" (2024),
    Eq. 3 and Algorithm 1, Eq. 10 for the line in a.
    """
    choice("variant", variant, VARIANTS)
    level = positive("gamma", gamma)
    rise = in_interval("slope", slope, 0.0, 1.0)
    target = _log_probabilities("target_scores", vector("target_scores", target_scores))
    shadows = _shadows("shadow_scores", shadow_scores, target.size)
    inside = truth_values("shadow_memberships", shadow_memberships, shadows.shape)
    seen = _log_probabilities("population_scores", vector("population_scores", population_scores))
    others = _shadows("population_shadow_scores", population_shadow_scores, seen.size)
    if len(others) != len(shadows):
        raise ValueError(
            f"population_shadow_scores: expected {len(shadows)} rows, one per shadow model, got "
            f"{len(others)}"
        )
    out = _log_mean(shadows, ~inside, "out")
    if variant == "online":
        usual = np.logaddexp(out, _log_mean(shadows, inside, "in")) - np.log(2.0)
    else:
        # ln ½((1 + a) e^out + 1 − a), by logarithms: e^out underflows where a model is sure
        with np.errstate(divide="ignore"):
            usual = np.logaddexp(out + np.log1p(rise), np.log1p(-rise)) - np.log(2.0)
    # ln P(z): no point of the population was seen, so that all shadow models are its "out"
    everywhere = special.logsumexp(others, axis=0) - np.log(len(others))
    population = np.sort(seen - everywhere)
    # LR(x) >= γ LR(z) by logarithms, counted among the sorted ratios
    beaten = np.searchsorted(population, target - usual - np.log(level), side="right")
    shares: Array = beaten / seen.size
    return shares


def _log_probabilities(name: str, values: Array) -> Array:
    if values.size and values.max() > ABOVE_ONE:
        raise ValueError(f"{name}: expected log-probabilities, none above 0, got {values.max():g}")
    return values


def _shadows(name: str, values: Any, count: int) -> Array:
    """Return (M, count)."""
    shadows = matrix(name, values)
    if shadows.shape[1] != count:
        raise ValueError(
            f"{name}: expected shape (M, {count}), one score per shadow model and point, got "
            f"{shadows.shape}"
        )
    return _log_probabilities(name, shadows)


def _log_mean(shadows: Array, chosen: npt.NDArray[np.bool_], side: str) -> Array:
    """Return ln of the mean probability (N,) over the chosen shadow models."""
    counts = chosen.sum(axis=0)
    if counts.min() < 1:
        example = int(counts.argmin())
        raise ValueError(
            f"shadow_memberships: expected a shadow model with every example {side}, got none for "
            f"example {example}"
        )
    # a mean of probabilities and not of logarithms: −∞ leaves a model out
    sums = special.logsumexp(np.where(chosen, shadows, -np.inf), axis=0)
    mean: Array = sums - np.log(counts)
    return mean
