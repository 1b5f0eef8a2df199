"""The composition and group bounds of the reference paper (dsi), as printed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit._ground.checks import Array, vector
from tacit.divergences import Kind, shift_divergence

# How far the weights of a group may be from a sum of 1.
WEIGHT_TOLERANCE = 1e-9


def dsi_theorem_3_4(divergences: Array | Sequence[float]) -> float:
    """Claim for adaptive rounds under the α-divergence E_Q (dP/dQ)^α, α > 1: the product.

    Args:
        divergences: γ_t >= 1 of each round, shape (T,).

    Returns:
        Π γ_t, attained when every round's noise is tight.

    Raises:
        ValueError: A value is below 1, which no α-divergence with α > 1 is (f(t) = t^α, f(1) = 1).

    Example:
        >>> dsi_theorem_3_4([1.5, 2.0])
        3.0

    Source: dsi, Theorem 3.4.
    """
    values = vector("divergences", divergences)
    if (values < 1).any():
        raise ValueError(
            f"divergences: expected at least 1 = f(1) with f(t) = t^alpha, alpha > 1, "
            f"got {float(values.min())!r}"
        )
    # E_Q ∏ L_t^α: independent rounds multiply
    return float(math.prod(values.tolist()))


def dsi_corollary_c_1(divergences: Array | Sequence[float]) -> float:
    """Claim for adaptive rounds under the Kullback-Leibler divergence: the sum.

    Args:
        divergences: γ_t >= 0 of each round in nats, shape (T,).

    Returns:
        Σ γ_t, attained when every round's noise is tight.

    Raises:
        ValueError: A value is negative.

    Example:
        >>> dsi_corollary_c_1([0.25, 0.5])
        0.75

    Source: dsi, Corollary C.1.
    """
    values = vector("divergences", divergences)
    if (values < 0).any():
        raise ValueError(f"divergences: expected numbers >= 0, got {float(values.min())!r}")
    # D_KL of a product of laws is the sum
    return math.fsum(values.tolist())


def dsi_lemma_3_5(
    kind: Kind, budgets: Array | Sequence[float], weights: Array | Sequence[float]
) -> float:
    """Claim for the mixture Σ w_i F(R_i) of a group of references: H_f(Σ w_i² · Σ g_i).

    `RoundAccount.group` gives the smaller H_f((Σ w_i √g_i)²), by the triangle inequality.

    Args:
        kind: A divergence, as in `tacit.divergences.shift_divergence`.
        budgets: Squared distances g_i >= 0 of the group's references, shape (k,).
        weights: w_i >= 0 of the group, shape (k,), summing to 1.

    Returns:
        The claimed divergence.

    Raises:
        ValueError: A value is negative, or the weights of the group do not sum to 1, where the
            lemma is unsound as printed (it asks for that of all m references only): the proof
            replaces Σ w_i F(R_i) − F(U) by Σ w_i (F(R_i) − F(U)).

    Example:
        >>> dsi_lemma_3_5("kl", [1.0, 1.0], [0.5, 0.5]) <= 0.5 * (1 + 1e-12)
        True

    Source: dsi, Lemma 3.5.
    """
    squared = vector("budgets", budgets)
    shares = vector("weights", weights, size=squared.size)
    for name, values in (("budgets", squared), ("weights", shares)):
        if (values < 0).any():
            raise ValueError(f"{name}: expected numbers >= 0, got {float(values.min())!r}")
    total = math.fsum(shares.tolist())
    if abs(total - 1) > WEIGHT_TOLERANCE:
        raise ValueError(
            f"weights: expected a sum of 1 over the group, got {total!r}; with weight 0.5 on one "
            "reference R = U the lemma claims 0 for F(U)/2 against F(U)"
        )
    # H_f at squared distance Σ w² · Σ g, as printed
    squares = math.fsum((shares * shares).tolist())
    return float(shift_divergence(kind, math.sqrt(squares * math.fsum(squared.tolist()))))
