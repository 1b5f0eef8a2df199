"""Robust aggregation of the sources' gradients, and what it gives without each of them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, boolean, in_interval

# Degrees from the mean direction beyond which a source's gradient is turned back.
ANGLE = 90.0
# A gradient this near to opposite, as the sine of the angle left, has no side to turn to.
OPPOSITE = 1e-9


def robust_aggregate(
    gradients: ArrayLike, *, angle: float | None = ANGLE, clip: bool = True
) -> tuple[Array, Array]:
    """Return the robust mean of m gradients, and by how much each of them moves it.

    Gradients are clipped to their median norm s̄, ``g' = g min{1, s̄/‖g‖}``; each is replaced by
    the nearest vector of its norm within the cone of the angle θ̄ about the mean direction u of
    the clipped, ``‖g'‖ (cos θ̄ u + sin θ̄ v)``, v the direction of its part orthogonal to u; their
    mean is the aggregate F(U). Difference i is ``F(R_i) − F(U)``, F(R_i) of all but gradient i: its
    own median, its own mean direction.

    The paper prints ‖g‖/s̄ and an angle ≥ θ̄; both would let outliers through and are read the
    other way round.

    Args:
        gradients: (m, p), m >= 2, one for each source.
        angle: θ̄ in (0, 180] degrees; None for no cone.
        clip: whether norms are clipped.

    Returns:
        The aggregate, (p,), and the differences, (m, p).

    Raises:
        ValueError: fewer than two gradients, one that is not finite, or a bad angle.

    Example:
        >>> aggregate, differences = robust_aggregate([[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
        >>> aggregate.round(4).tolist(), (aggregate + differences[2]).tolist()
        ([0.569, 0.569], [0.5, 0.5])

    Source: dsi, App. F.3 and Eq. 38.
    """
    rows = _rows(gradients, least=2)
    # weights of F = Σ w_j g_j follow from inner products: p never enters again
    gram, count = rows @ rows.T, len(rows)
    everyone = np.arange(count)
    whole = _weights(gram, everyone, angle, clip)
    # F(R_i): all but gradient i, with a median and a mean direction of their own
    without = [_weights(gram, np.delete(everyone, one), angle, clip) for one in range(count)]
    return whole @ rows, (np.stack(without) - whole) @ rows


def robust_mean(gradients: ArrayLike, *, angle: float | None = ANGLE, clip: bool = True) -> Array:
    """Return the aggregate of `robust_aggregate` alone, (p,), of one gradient or more.

    Args:
        gradients: (m, p), m >= 1.
        angle: θ̄ in (0, 180] degrees; None for no cone.
        clip: whether norms are clipped.
    """
    rows = _rows(gradients, least=1)
    return _weights(rows @ rows.T, np.arange(len(rows)), angle, clip) @ rows


def _rows(gradients: ArrayLike, *, least: int) -> Array:
    rows = array("gradients", gradients, ndim=2)
    if len(rows) < least:
        raise ValueError(f"gradients: expected at least {least} sources, got {len(rows)}")
    return rows


def _weights(gram: Array, kept: npt.NDArray[np.intp], angle: float | None, clip: bool) -> Array:
    """Return the weights w of ``F = Σ w_j g_j``, zero for those left out, from inner products."""
    if angle is not None:
        in_interval("angle", angle, 0.0, 180.0, open_low=True)
    # ⟨g_i, g_j⟩ of those that are kept
    inner = gram[np.ix_(kept, kept)]
    norms = np.sqrt(np.maximum(np.diagonal(inner), 0.0))
    scales = np.ones(kept.size)
    if boolean("clip", clip):
        # g' = g min{1, s̄/‖g‖}
        limit = float(np.median(norms))
        scales = np.divide(limit, norms, out=scales, where=norms > limit)
    weights = np.zeros(len(gram))
    weights[kept] = scales / kept.size if angle is None else _turn(inner, norms, scales, angle)
    return weights


def _turn(inner: Array, norms: Array, scales: Array, angle: float) -> Array:
    """Return the weights of the mean of clipped gradients, each turned into the cone."""
    # weights of the mean of the clipped gradients
    mean = scales / scales.size
    # ⟨g_j, mean⟩
    projected = inner @ mean
    # ‖mean‖
    length = math.sqrt(max(float(mean @ projected), 0.0))
    if length == 0.0:
        # no mean direction, no cone
        return mean
    # ‖g'_j‖
    lengths = scales * norms
    # ⟨g'_j, u⟩, u the mean direction
    along = scales * projected / length
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    # an angle beyond θ̄
    outside = along < cosine * lengths
    # ‖g'_j − ⟨g'_j, u⟩ u‖
    across = np.sqrt(np.maximum(lengths**2 - along**2, 0.0))
    sided = outside & (across > OPPOSITE * lengths)
    # g'' = a g' + b u; exactly opposite every side is as near, and their mean has a = 0
    own = np.where(outside, 0.0, 1.0)
    own[sided] = sine * lengths[sided] / across[sided]
    # b: what of cos θ̄ ‖g'‖ the part a g' does not bring
    beside = np.where(outside, cosine * lengths - np.where(sided, own * along, 0.0), 0.0)
    # Σ_j (a_j g'_j + b_j u)/m as weights of the g_j
    found: Array = own * scales / scales.size + beside.mean() / length * mean
    return found
