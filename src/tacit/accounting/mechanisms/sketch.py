"""Secret Gaussian sketches: centred Gaussian columns whose covariances are close."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tacit._ground.checks import Array, boolean, in_interval, integer, positive, vector
from tacit._ground.numbers import EPS
from tacit._ground.proof import Node, node
from tacit.accounting.curves.curve import TINY, Curve, curve_pair
from tacit.accounting.curves.profile import PrivacyProfile, profile_from_curves
from tacit.accounting.numerics.contour import CentredLoss, log_worst_split
from tacit.accounting.numerics.quadrature import RELATIVE_SLACK
from tacit.divergences.gaussians import log_excess

# A larger γ bounds a smaller one, whose square would be no float.
SMALLEST_GAMMA = 1e-200
# Ratios beyond it, and its inverse, leave no digits of a ratio in what it is less 1.
LARGEST_RATIO = 2.0**48
# Units in the last place: of an inverse and of a product; of a divergence of one eigenvalue; of a
# sum of many.
UNITS, RENYI_UNITS, SUM_UNITS = 4, 32, 64
NOT_PUBLISHED = "the sketching matrix stays secret, and the query does not depend on it"


def sketch(*, rank: int, dim: int, gamma: float, both_orders: bool = True) -> PrivacyProfile:
    """Return the profile of a secret Gaussian sketch under covariance stability γ.

    r columns of N(0, Σ) in k dimensions against N(0, Σ'), (1−γ) Σ' ⪯ Σ ⪯ (1+γ) Σ'. The eigenvalues
    l of Σ'^-½ Σ Σ'^-½ lie in [1−γ, 1+γ], and the loss is −½ Σ ln l + ½ Σ (l−1) χ²₁ over the r k
    coordinates. N(0, l) and N(0, 1) can be made from N(0, l') and N(0, 1) by shrinking and adding
    noise whenever l is between 1 and l' (x ↦ tx + √(1−t²) ξ, t² = (l−1)/(l'−1)), so the worst
    eigenvalues are at the two ends and

    δ(ε) = max over m = 0 … k of H_{e^ε}, m eigenvalues at 1+γ and k − m at 1−γ,

    each exact by a contour integral of the moment generating function of the loss.

    Args:
        rank: r >= 1, columns released.
        dim: k >= 1, dimension of the public subspace.
        gamma: γ in [0, 1), how far a neighbour moves the covariance.
        both_orders: Whether stability holds for (Σ, Σ') and for (Σ', Σ). If it holds in one order
            only, the eigenvalues of the reverse ratio reach 1/(1−γ), and that curve is used for
            the reverse direction.

    Returns:
        The profile; its directions differ when ``both_orders`` is False.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> round(sketch(rank=8, dim=8, gamma=0.01).epsilon(1e-5), 4)
        0.2221
        >>> sketch(rank=8, dim=8, gamma=0.01).advantage() < 0.05
        True

    Source: pave, Theorem 3.5 and Lemma 7.6 (the whole profile in place of order 2).
    """
    boolean("both_orders", both_orders)
    columns = integer("rank", rank, minimum=1)
    size = integer("dim", dim, minimum=1)
    stability = in_interval("gamma", gamma, 0.0, 1.0, open_high=True)
    if stability > 0:
        stability = max(stability, SMALLEST_GAMMA)
    forward = (stability, -stability)
    # in the other direction the ratios are inverted
    reverse = (_inverted(-stability), _inverted(stability))
    order = "in both orders" if both_orders else "in one order"
    # stable in both orders: l and 1/l are at most 1 + γ, rounded outwards
    highest = math.nextafter(1.0 + stability, math.inf)
    return _between(
        (columns, size),
        [forward] if both_orders else [forward, reverse],
        name=f"sketch of {columns} columns in {size} dimensions, γ = {stability:g}",
        assumptions=(
            f"neighbours' covariances are stable with γ = {stability:g} {order}",
            "the columns lie in one public subspace",
            NOT_PUBLISHED,
        ),
        mechanism=node(
            "sketch",
            columns=columns,
            dim=size,
            lowest=math.nextafter(1.0 / highest, 0.0),
            highest=highest,
        )
        if both_orders
        else None,
    )


def sketch_within(*, rank: int, dim: int, lowest: float, highest: float) -> PrivacyProfile:
    """Return the profile of a secret Gaussian sketch whose covariance ratios lie in an interval.

    As ``sketch``, with l_i in [lowest, highest] in place of [1 − γ, 1 + γ]: the worst are at the
    two ends, in the reverse direction at their inverses.

    Args:
        rank: r >= 1, columns released.
        dim: k >= 1, how many eigenvalues of Σ'^-½ Σ Σ'^-½ may differ from 1.
        lowest: in (0, 1].
        highest: at least 1.

    Returns:
        The profile.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> within = sketch_within(rank=4, dim=2, lowest=1 / 1.1, highest=1.1)
        >>> within.advantage() <= sketch(rank=4, dim=2, gamma=0.1).advantage()
        True

    Source: pave, Theorem 3.5 and Lemma 7.6 (the whole profile in place of order 2).
    """
    columns = integer("rank", rank, minimum=1)
    size = integer("dim", dim, minimum=1)
    low = in_interval("lowest", lowest, 0.0, 1.0, open_low=True)
    high = positive("highest", highest)
    if low < 1 / LARGEST_RATIO:
        raise ValueError(f"lowest: expected at least {1 / LARGEST_RATIO:.3g}, got {low:g}")
    if not 1.0 <= high <= LARGEST_RATIO:
        raise ValueError(
            f"highest: expected a number >= 1, at most {LARGEST_RATIO:.3g}, got {high:g}"
        )
    # an end at 1 is beside it, as a wider interval bounds a narrower one: by no more than the next
    # float, since a contour for excesses of sizes that differ more loses the smaller one
    nearest = SMALLEST_GAMMA if low == high else EPS
    up, down = max(high - 1.0, nearest), min(float(_less_one(np.array(low))), -nearest)
    forward, reverse = (up, down), (_inverted(down), _inverted(up))
    return _between(
        (columns, size),
        [forward, reverse],
        name=f"sketch of {columns} columns, {size} ratios in [{low:g}, {high:g}]",
        assumptions=(
            f"at most {size} covariance ratios of neighbours differ from 1, all in [{low:g}, "
            f"{high:g}]",
            NOT_PUBLISHED,
        ),
        mechanism=node("sketch", columns=columns, dim=size, lowest=low, highest=high),
    )


def _between(
    sizes: tuple[int, int],
    directions: Sequence[tuple[float, float]],
    *,
    name: str,
    assumptions: tuple[str, ...],
    mechanism: Node | None,
) -> PrivacyProfile:
    """Return the profile for ratios between 1 + two ends of each direction, one where both agree.

    Args:
        sizes: Columns r and ratios k.
        directions: (high, low) of the ratios less 1, forward and, where it differs, backward.
        name: As in `profile_from_curves`.
        assumptions: As in `profile_from_curves`.
        mechanism: The proof node, if there is one.
    """
    columns, size = sizes
    curves = [_worst_vertex(columns, size, ends) for ends in directions]
    ahead, back = curve_pair(curves[0], None if len(curves) == 1 else curves[1])
    profile = profile_from_curves(
        ahead,
        None if len(curves) == 1 else back,
        name=name,
        renyi=partial(_between_renyi, columns, size, tuple(directions)),
        source="pave, Theorem 3.5 and Lemma 7.6, by contour integration",
        assumptions=assumptions,
    )
    return replace(profile, mechanism=mechanism)


def _between_renyi(
    columns: int, size: int, directions: Sequence[tuple[float, float]], orders: Array
) -> Array:
    """The Rényi divergence of the worse end and direction at orders > 1, rounded up."""
    terms = [np.maximum(*(_renyi(orders, x) for x in ends)) for ends in directions]
    return np.asarray(columns * size * np.max(terms, axis=0) * (1 + UNITS * EPS))


def sketch_from_ratio(eigenvalues: Sequence[float] | Array, rank: int) -> PrivacyProfile:
    """Return the exact profile of r columns of N(0, Σ) against r columns of N(0, Σ').

    With l_i the eigenvalues of Σ'^-½ Σ Σ'^-½ the loss is Σ_i [−(r/2) ln l_i + ½ (l_i − 1) χ²_r],
    a weighted sum of chi-squares; its curve is the contour integral of its moment generating
    function. The reverse direction has the eigenvalues 1/l_i.

    Args:
        eigenvalues: l_i > 0, shape (k,).
        rank: r >= 1, columns released.

    Returns:
        The profile of this one pair.

    Raises:
        ValueError: An eigenvalue is not a number > 0 within 2⁻⁴⁸ … 2⁴⁸, or ``rank`` is not an
            integer >= 1.

    Example:
        >>> profile = sketch_from_ratio([0.9, 1.0, 1.2], rank=4)
        >>> round(profile.advantage(), 4)
        0.1122

    Source: pave, Theorem 3.5, Lemma 7.6 and Eq. 102.
    """
    ratios = vector("eigenvalues", eigenvalues)
    columns = integer("rank", rank, minimum=1)
    if not (ratios > 0).all():
        raise ValueError(f"eigenvalues: expected numbers > 0, got {float(ratios.min())!r}")
    farthest = float(np.exp(np.abs(np.log(ratios)).max()))
    if farthest > LARGEST_RATIO:
        raise ValueError(
            f"eigenvalues: expected numbers between {1 / LARGEST_RATIO:.3g} and "
            f"{LARGEST_RATIO:.3g}, got one a factor of {farthest:.3g} from 1"
        )
    excess, counts = np.unique(_less_one(ratios[ratios != 1.0]), return_counts=True)
    weights = columns * counts.astype(np.float64)
    inverse = _inverted(excess)
    forward, backward = CentredLoss(excess, weights), CentredLoss(inverse, weights)
    ahead, back = curve_pair(
        partial(_positive, forward),
        partial(_positive, backward),
    )

    return profile_from_curves(
        ahead,
        back,
        name=f"sketch of {columns} columns with {ratios.size} covariance ratios",
        renyi=partial(_laws_renyi, (excess, inverse), weights),
        source="pave, Lemma 7.6 and Eq. 102, by contour integration",
        assumptions=(
            "neighbours' covariances have these ratios, in one public subspace",
            NOT_PUBLISHED,
        ),
    )


def _less_one(ratio: Array) -> Array:
    """Return l − 1, rounded outwards, away from 0: an eigenvalue farther from 1 tells more."""
    excess = ratio - 1.0
    exact = 1.0 + excess == ratio
    return np.where(exact, excess, np.nextafter(excess, np.copysign(np.inf, excess)))


def _inverted(excess: Any) -> Any:
    """Return 1/l − 1 = −x/(1 + x) for x = l − 1, rounded away from 0."""
    return -excess / (1 + excess) * (1 + UNITS * EPS)


def _laws_renyi(laws: tuple[Array, Array], weights: Array, orders: Array) -> Array:
    """The Rényi divergence of the worse direction at orders > 1, rounded up."""
    totals = [
        np.sum([n * _renyi(orders, x) for x, n in zip(law, weights, strict=True)], axis=0)
        for law in laws
    ]
    return np.asarray(np.max(totals, axis=0) * (1 + SUM_UNITS * EPS)) + np.zeros(orders.shape)


def _worst_vertex(columns: int, dim: int, ends: tuple[float, float]) -> Curve:
    """Return the largest curve, rounded up, over how many eigenvalues are at the upper end."""
    if ends[0] == 0:
        return np.zeros_like
    return partial(_vertex, columns, dim, ends)


def _vertex(columns: int, dim: int, ends: tuple[float, float], epsilon: Array) -> Array:
    """δ of the worst split of the eigenvalues between both ends, rounded up."""
    return _delta_up(log_worst_split(*ends, columns, dim, epsilon))


def _positive(loss: CentredLoss, epsilon: Array) -> Array:
    """δ of one loss, rounded up."""
    return _delta_up(loss.log_positive(epsilon))


def _delta_up(logs: Array) -> Array:
    """δ from its logarithm, rounded up, and not to 0 where it underflows."""
    # the slack is the quadrature's, which also covers an exponential of up to 760
    with np.errstate(under="ignore"):
        value = np.exp(logs) * (1 + RELATIVE_SLACK)
    return np.where(logs > -math.inf, np.minimum(value + TINY, 1.0), 0.0)


def _renyi(orders: Array, excess: float) -> Array:
    """Return D_α(N(0, l) ‖ N(0, 1)), l = 1 + x, rounded up; inf where (α − 1)x >= 1."""
    # ½ [−ln l − ln(1 − (α − 1)x)/(α − 1)]:
    # both logarithms start with ±x, which cancels: x − ln(1 + x) and its like for −(α − 1)x remain
    shifts = (orders - 1) * excess
    finite = shifts < 1
    curved = log_excess(-np.where(finite, shifts, 0.0)) / (orders - 1)
    value = (curved + float(log_excess(np.array([excess]))[0])) / 2
    return np.where(finite, np.maximum(value, 0.0) * (1 + RENYI_UNITS * EPS), math.inf)
