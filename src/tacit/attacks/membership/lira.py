"""LiRA: a Gaussian for the score of an example under models that saw it and models that did not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, choice
from tacit._ground.numbers import EPS
from tacit.attacks.membership.roc import truth_values

VARIANTS = ("online", "offline")
VARIANCES = ("per-example", "global")


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
    mean_in, variance_in = _fit(shadows, inside, "in", shared=shared)
    ratios = np.log(variance_out / variance_in) + (target - mean_out) ** 2 / variance_out
    ratios = 0.5 * (ratios - (target - mean_in) ** 2 / variance_in)
    online: Array = ratios.sum(axis=1)
    return online


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
