"""Gaussian noise over listed differences: Rényi bounds, budgets a round and what T rounds give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, array, choice, in_interval, integer, vector
from tacit._ground.numbers import EPS
from tacit._ground.reprs import short_repr
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.gaussian import gaussian_shift
from tacit.covariance import Covariance
from tacit.covariance.coercion import gaussian_covariance
from tacit.divergences import NamedKind, check_named_kind, shift_distance, shift_divergence
from tacit.guarantees import ApproximateDP, Indistinguishability, RenyiDP
from tacit.guarantees.base import Evidence, texts

# How far weights may be from a sum of 1: what adding a few thousand shares of it rounds, and more.
WEIGHT_TOLERANCE = 1e-9
# Units in the last place: of a square, a product and a sum of them; of what is divided into shares
# and must not come out as more; of a mere product.
UNITS, SHARE_UNITS, PRODUCT_UNITS = 8, 32, 4
# A squared distance of what is not zero, at least.
LEAST = 2.0**-1000
# The largest order of a divergence.
LARGEST_ORDER = 1e300
Route: TypeAlias = Literal["exact", "renyi"]
ASSUMPTIONS = (
    "each round adds N(0, Σ) with Σ chosen from the input and the rounds before it, and its "
    "difference to the reference is within the round's distance whatever those were",
    "randomness other than the noise is drawn without looking at the data",
)


def renyi_over_adjacency(
    differences: ArrayLike, covariance: Covariance | ArrayLike, orders: Sequence[float] | Array
) -> RenyiDP:
    """Return the Rényi guarantee, rounded up, of Gaussian noise over an adjacency set.

    ε(α) = (α/2) max_Δ Δᵀ Σ⁻¹ Δ, for every pair whose difference is listed; inf where Σ does not
    cover a difference. One release of N(h, Σ) is covered; T releases add up.

    Args:
        differences: Differences Δ of neighbours, shape (m, d), or one of shape (d,).
        covariance: Covariance Σ of the noise: a `Covariance` or a (d, d) array.
        orders: Orders α > 1, increasing, shape (k,).

    Returns:
        The guarantee, rounded up.

    Raises:
        ValueError: Shapes do not agree, an entry is not finite, Σ is not symmetric positive
            semidefinite, or the orders are not increasing numbers > 1.

    Example:
        >>> bound = renyi_over_adjacency([[3.0, 0.0], [0.0, 1.0]], [[9.0, 0.0], [0.0, 4.0]], [2, 4])
        >>> [round(epsilon, 9) for epsilon in bound.epsilons]
        [1.0, 2.0]

    Source: hidden-state, Eq. 23.
    """
    rows = np.atleast_2d(array("differences", differences, ndim=(1, 2)))
    alphas = vector("orders", orders)
    noise = gaussian_covariance("covariance", covariance)
    if rows.shape[1] != noise.dim:
        raise ValueError(f"differences: expected {noise.dim} columns, got shape {rows.shape}")
    # a zero difference is covered by any noise
    moved = rows[np.any(rows != 0, axis=1)]
    # what is lost to underflow on the way to a distance is far below the least that is told
    farthest = max(float(np.max(noise.mahalanobis(moved))), LEAST) if moved.size else 0.0
    # of the distance, as the covariance knows it, and of the product
    slack = (1 + noise.rounding) * (1 + UNITS * EPS)
    evidence: Evidence = "theorem" if math.isinf(farthest) or farthest == 0 else "numerical"
    square = farthest * slack if farthest else 0.0
    return RenyiDP(
        orders=tuple(float(alpha) for alpha in alphas),
        epsilons=tuple(float(alpha) / 2 * square for alpha in alphas),
        adjacency=f"inputs whose releases differ by one of {rows.shape[0]} listed differences",
        evidence=evidence,
        assumptions=("neighbours differ by one of the listed differences, up to sign",),
        source="hidden-state, Eq. 23",
    )


def per_round_budgets(
    epsilon: float | Array | Sequence[float],
    delta: float | Array | Sequence[float],
    rounds: int,
    *,
    shares: Array | Sequence[float] | None = None,
    route: Route = "exact",
) -> Array:
    """Largest squared distances, rounded down, that keep T rounds (ε_i, δ_i)-close to references.

    T Gaussian shifts with z_tᵀ Σ_t⁻¹ z_t <= g_t compose to no more than one shift of squared
    distance G = Σ g_t: every round is dominated by N(0, 1) against N(√g_t, 1), whatever the rounds
    before it, and a product of these is a Gaussian shift of squared distance Σ g_t. So G_i is the
    largest with Φ(√G/2 − ε/√G) − e^ε Φ(−√G/2 − ε/√G) <= δ, and g_ti = share_t G_i.

    ``route="renyi"`` is the published one: D_α = αG/2 adds over the rounds and
    ε = G/2 + √(2G ln(1/δ)), so G = (√(2 ln(1/δ) + 2ε) − √(2 ln(1/δ)))². It is never larger.

    Args:
        epsilon: ε > 0 in nats, a number or one for each reference, shape (m,).
        delta: δ in (0, 1), a number or shape (m,).
        rounds: T >= 1.
        shares: Share of each round, shape (T,), > 0 with sum 1; equal when left out.
        route: ``"exact"`` or ``"renyi"``.

    Returns:
        Squared distances g, shape (T, m): row t is the ``budgets`` of `tacit.design.worst_case` in
        round t. Rounded down, so that `account_rounds` of them is within (ε, δ).

    Raises:
        ValueError: An argument is outside its range, or shapes do not fit.

    Example:
        >>> per_round_budgets(1.0, 1e-5, rounds=100).shape
        (100, 1)
        >>> exact = per_round_budgets([1.0, 4.0], 1e-5, rounds=2)
        >>> bool((exact > per_round_budgets([1.0, 4.0], 1e-5, rounds=2, route="renyi")).all())
        True

    Source: dsi, Theorem 3.4 and Algorithm 2; Dong, Roth and Su (2022), Corollary 3.3; Zhu, Dong
    and Wang (2022), Theorem 10.
    """
    losses, failures = _targets(epsilon, delta)
    count = integer("rounds", rounds, minimum=1)
    way = choice("route", route, get_args(Route))
    weights = np.full(count, 1 / count) if shares is None else vector("shares", shares, size=count)
    _check_weights("shares", weights)
    if way == "exact":
        # √G is the largest distance at which the hockey stick is δ, rounded down by
        # `shift_distance`
        pairs = zip(losses.tolist(), failures.tolist(), strict=True)
        distances = np.array([shift_distance(("hockey-stick", e), d) for e, d in pairs])
        totals = distances * distances
    else:
        doubt = -2 * np.log(failures)
        # √(a + 2ε) − √a = 2ε/(√(a + 2ε) + √a) without cancellation
        totals = (2 * losses / (np.sqrt(doubt + 2 * losses) + np.sqrt(doubt))) ** 2
    # g_ti = w_t G_i, rounded down: Σ_t g_ti stays within G_i, which is what composes;
    # the shares may sum to a little more than 1, and so may the rounded products
    spare = (1 - SHARE_UNITS * EPS) / max(math.fsum(weights.tolist()), 1.0)
    return np.asarray(weights[:, None] * totals * spare)


def account_rounds(
    squared_distances: Array | Sequence[Sequence[float]],
    references: Sequence[str] | None = None,
) -> RoundAccount:
    """Account for T adaptive rounds of Gaussian noise beside m references.

    Args:
        squared_distances: z_tiᵀ Σ_t⁻¹ z_ti >= 0 of each round and reference, shape (T, m).
        references: m names; ``"reference 0"`` and so on when left out.

    Returns:
        The account, from which guarantees are read.

    Raises:
        ValueError: A distance is negative or not finite, or names do not fit.

    Example:
        >>> account = account_rounds([[0.01, 0.04]] * 25, ["without Ada", "without Bob"])
        >>> account.approximate("without Ada", delta=1e-5).epsilon < 2.0
        True
        >>> account.indistinguishability("kl").bounds[1] <= 0.5 * (1 + 1e-12)
        True

    Source: dsi, Theorem 3.4, Corollary C.1 and Appendix D.
    """
    squared = array("squared_distances", squared_distances, ndim=2)
    if (squared < 0).any():
        raise ValueError(f"squared_distances: expected numbers >= 0, got {float(squared.min())!r}")
    count = squared.shape[1]
    named = [f"reference {i}" for i in range(count)] if references is None else references
    names = texts("references", named)
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"references: expected {count} distinct names, got {names!r}")
    # Gaussian shifts chosen one after the other compose to a shift of squared length Σ g, rounded
    # up
    totals = [_sum_up(column) for column in squared.T.tolist()]
    return RoundAccount(names, squared.shape[0], tuple(totals))


@short_repr
@dataclass(frozen=True)
class RoundAccount:
    """What T adaptive rounds tell apart from each reference, built by `account_rounds`.

    Args:
        references: Names of the m references.
        rounds: T.
        squared: G_i = Σ_t g_ti, one for each reference, rounded up.
    """

    references: tuple[str, ...]
    rounds: int
    squared: tuple[float, ...]

    def profile(self, reference: str) -> PrivacyProfile:
        """Return the exact privacy profile beside one reference: a Gaussian shift by √G."""
        return gaussian_shift(self._distance(reference))

    def approximate(self, reference: str, *, delta: float) -> ApproximateDP:
        """Return (ε, δ) beside one reference, from the exact profile.

        Args:
            reference: Its name.
            delta: δ in (0, 1).

        Raises:
            ValueError: The name is unknown or ``delta`` outside (0, 1).
        """
        failure = in_interval("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
        return ApproximateDP(
            epsilon=self.profile(reference).epsilon(failure),
            delta=failure,
            adjacency=_pair(reference),
            evidence="numerical",
            assumptions=ASSUMPTIONS,
            source="dsi, Theorem 3.4; Dong, Roth and Su (2022), Corollary 3.3",
        )

    def renyi(self, reference: str, orders: Array | Sequence[float]) -> RenyiDP:
        """Return the Rényi curve α G/2 beside one reference, the sum of the rounds' curves.

        Args:
            reference: Its name.
            orders: Orders α > 1, increasing.

        Raises:
            ValueError: The name is unknown or the orders are not increasing numbers > 1.
        """
        alphas = vector("orders", orders)
        distance = self._distance(reference)
        return RenyiDP(
            orders=tuple(alphas.tolist()),
            epsilons=tuple((alphas / 2 * distance**2 * (1 + UNITS * EPS)).tolist()),
            adjacency=_pair(reference),
            evidence="theorem",
            assumptions=ASSUMPTIONS,
            source="dsi, Theorem 3.4",
        )

    def indistinguishability(self, divergence: NamedKind) -> Indistinguishability:
        """Return the divergence beside every reference: exact for Gaussian shifts that are tight.

        Args:
            divergence: A named kind of `tacit.divergences`, such as ``"kl"`` (adds over rounds).

        Raises:
            ValueError: ``divergence`` is unknown.
        """
        kind = check_named_kind("divergence", divergence)
        distances = np.array([self._distance(name) for name in self.references])
        return self._indistinguishable(
            self.references,
            kind,
            shift_divergence(kind, distances).tolist(),
            "dsi, Theorem 3.4 and Corollary C.1",
        )

    def alpha_divergences(self, order: float) -> Array:
        """Return E_Q (dP/dQ)^α = exp(α(α−1)G/2) of each reference, rounded up: Π over the rounds.

        Args:
            order: α > 1.

        Returns:
            Upper bounds, shape (m,); inf where they overflow.

        Raises:
            ValueError: ``order`` is not a finite number > 1.
        """
        alpha = in_interval("order", order, 1.0, LARGEST_ORDER, open_low=True)
        exponents = alpha * (alpha - 1) * np.array(self.squared) / 2
        with np.errstate(over="ignore"):
            return np.exp(exponents * (1 + UNITS * EPS)) * (1 + PRODUCT_UNITS * EPS)

    def group(
        self, weights: dict[str, float], divergence: NamedKind, *, name: str
    ) -> Indistinguishability:
        """Return the divergence from the mixture Σ w_i F(R_i) of a group of references.

        ‖Σ w_i z_i‖ <= Σ w_i ‖z_i‖ in each round's Σ⁻¹ norm, and over the rounds by Minkowski's
        inequality, so H((Σ w_i √G_i)²). That is never more than the published H(Σ w_i² · Σ G_i).

        Args:
            weights: w_i > 0 of each member of the group by its name, with sum 1.
            divergence: A named kind of `tacit.divergences`.
            name: What to call the group.

        Raises:
            ValueError: A name is unknown, or the weights are not positive with sum 1.

        Source: dsi, Lemma 3.5.
        """
        kind = check_named_kind("divergence", divergence)
        if not isinstance(weights, dict) or not weights:
            raise ValueError(f"weights: expected a weight for each member, got {weights!r}")
        shares = vector("weights", list(weights.values()))
        _check_weights("weights", shares)
        distances = np.array([self._distance(member) for member in weights])
        # the distance to a mixture is at most the mean of the distances, of weights that may sum to
        # a little less than 1
        total = math.fsum((shares * distances).tolist()) * (1 + UNITS * EPS)
        total /= min(math.fsum(shares.tolist()), 1.0)
        value = float(shift_divergence(kind, total))
        return self._indistinguishable((name,), kind, [value], "dsi, Lemma 3.5")

    def _indistinguishable(
        self, references: tuple[str, ...], kind: NamedKind, bounds: list[float], source: str
    ) -> Indistinguishability:
        return Indistinguishability(
            references=references,
            divergence=kind,
            bounds=tuple(bounds),
            evidence="theorem",
            assumptions=ASSUMPTIONS,
            source=source,
        )

    def _distance(self, reference: str) -> float:
        """Return √G of one reference, rounded up."""
        if reference not in self.references:
            listed = ", ".join(repr(name) for name in self.references[:4])
            raise ValueError(f"reference: expected one of {listed}, got {reference!r}")
        squared = self.squared[self.references.index(reference)]
        return math.nextafter(math.sqrt(squared), math.inf) if squared else 0.0


def _pair(reference: str) -> str:
    return f"the input and the reference {reference!r}"


def _targets(epsilon: Any, delta: Any) -> tuple[Array, Array]:
    """Return ε and δ exactly as given, as long as each other, or refuse them."""
    losses = np.atleast_1d(array("epsilon", epsilon, ndim=(0, 1)))
    failures = np.atleast_1d(array("delta", delta, ndim=(0, 1)))
    if (losses <= 0).any():
        raise ValueError(f"epsilon: expected numbers > 0, got {float(losses.min())!r}")
    outside = (failures <= 0) | (failures >= 1)
    if outside.any():
        raise ValueError(f"delta: expected numbers in (0, 1), got {float(failures[outside][0])!r}")
    if losses.size != failures.size and 1 not in (losses.size, failures.size):
        raise ValueError(f"delta: expected {losses.size} entries, got {failures.size}")
    first, second = np.broadcast_arrays(losses, failures)
    return first, second


def _check_weights(name: str, weights: Array) -> None:
    low = float(weights.min())
    if low <= 0:
        raise ValueError(f"{name}: expected numbers > 0, got {low!r}")
    total = math.fsum(weights.tolist())
    if abs(total - 1) > WEIGHT_TOLERANCE:
        raise ValueError(f"{name}: expected a sum of 1, got {total!r}")


def _sum_up(values: list[float]) -> float:
    """Return a sum of numbers >= 0, rounded up; a single one is itself."""
    if math.isinf(sum(values)):
        return math.inf
    total = math.fsum(values)
    return math.nextafter(total, math.inf) if len(values) > 1 and total > 0 else total
