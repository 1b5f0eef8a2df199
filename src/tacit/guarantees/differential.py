"""Guarantees that two inputs look alike: differential privacy and indistinguishability."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

from tacit._ground.checks import in_interval, non_negative, positive
from tacit._ground.numbers import rounded_up
from tacit._ground.reprs import short_repr
from tacit.conversions import epsilon_from_renyi, success_from_dp, success_from_profile
from tacit.divergences import NamedKind, check_named_kind, shift_divergence
from tacit.guarantees.base import Guarantee, items, text, texts
from tacit.guarantees.information import SuccessBound, law_of_pair
from tacit.text import in_nats, number_down, number_up

# Of an order, down, and of an ε, up: a divergence grows with the one and falls with the other.
ORDER_DIGITS = 6
# In the words of a sentence.
DIVERGENCE_NAMES = {
    "kl": "Kullback-Leibler divergence",
    "tv": "total variation distance",
    "hellinger": "squared Hellinger distance",
    "chi2": "χ² divergence",
}


@short_repr
@dataclass(frozen=True, kw_only=True)
class ApproximateDP(Guarantee):
    """(ε, δ)-differential privacy: P(M(x) ∈ A) <= e^ε P(M(x') ∈ A) + δ for neighbours x, x'.

    Args:
        epsilon: ε >= 0 in nats; inf says nothing beyond δ.
        delta: δ in [0, 1].
        adjacency: Which inputs are neighbours, such as ``"replace one record"``.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = ApproximateDP(
        ...     epsilon=1.0, delta=0.0, adjacency="replace one record",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> round(bound.success().success, 3)
        0.731

    Source: residual-pac, Definition 5.
    """

    epsilon: float
    delta: float
    adjacency: str

    number_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("epsilon", non_negative("epsilon", self.epsilon, allow_inf=True))
        self._set("delta", in_interval("delta", self.delta, 0, 1))
        text("adjacency", self.adjacency)

    def success(self, prior: float = 0.5) -> SuccessBound:
        """Bound the success of telling two neighbouring inputs apart.

        Args:
            prior: Probability of one of the two inputs, in (0, 1).

        Returns:
            The bound, whose prior success is max(prior, 1 − prior).

        Raises:
            ValueError: ``prior`` is outside (0, 1).

        Source: residual-pac, Eq. 16.
        """
        # the best test of the (ε, δ) region at this prior
        bound = success_from_dp(self.epsilon, self.delta, prior)
        return SuccessBound(
            success=bound,
            prior=max(prior, 1 - prior),
            task=f"which of two neighbouring inputs ({self.adjacency}) was used",
            law=law_of_pair(max(prior, 1 - prior)),
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; residual-pac, Eq. 16",
            confidence=self.confidence,
        )

    def _statement(self) -> str:
        # the sentence about e^ε would say nothing with an ε of ∞
        if math.isinf(self.epsilon) or self.delta >= 1.0:
            return (
                f"Nothing is bounded between neighbouring inputs ({self.adjacency}): "
                f"ε = {number_up(self.epsilon)}, δ = {number_up(self.delta)}"
            )
        return (
            f"Between neighbouring inputs ({self.adjacency}) no outcome is more than e^ε times as "
            f"likely under one as under the other, but for a probability of δ: "
            f"ε = {number_up(self.epsilon)}, δ = {number_up(self.delta)}"
        )


@short_repr
@dataclass(frozen=True, kw_only=True)
class RenyiDP(Guarantee):
    """Rényi differential privacy: D_α(M(x) ‖ M(x')) <= ε(α) for neighbours x, x', both directions.

    Args:
        orders: Orders α > 1, strictly increasing.
        epsilons: ε(α) >= 0 in nats, one for each order; inf where there is no bound.
        adjacency: Which inputs are neighbours, such as ``"add or remove one record"``.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = RenyiDP(
        ...     orders=(2.0, 8.0), epsilons=(1.0, 4.0), adjacency="add or remove one record",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> round(bound.approximate(1e-5).epsilon, 2)
        5.21

    Source: Mironov (2017), Definition 4.
    """

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]
    adjacency: str

    number_fields: ClassVar[tuple[str, ...]] = ("orders", "epsilons")

    def __post_init__(self) -> None:
        super().__post_init__()
        # increasing orders above 1: a curve, of which each point is a bound by itself
        orders = tuple(
            positive(f"orders[{i}]", order) for i, order in enumerate(items("orders", self.orders))
        )
        if not orders or orders[0] <= 1 or any(b <= a for a, b in pairwise(orders)):
            raise ValueError(f"orders: expected increasing numbers > 1, got {orders!r}")
        epsilons = _bounds("epsilons", self.epsilons)
        if len(epsilons) != len(orders):
            raise ValueError(
                f"epsilons: expected one for each of {len(orders)} orders, got {len(epsilons)}"
            )
        self._set("orders", orders)
        self._set("epsilons", epsilons)
        text("adjacency", self.adjacency)

    def approximate(self, delta: float) -> ApproximateDP:
        """Convert to (ε, δ)-differential privacy at the best order.

        Args:
            delta: δ in (0, 1).

        Returns:
            The guarantee, its ε rounded up.

        Raises:
            ValueError: ``delta`` is outside (0, 1).

        Source: Balle et al. (2020), Theorem 21.
        """
        return ApproximateDP(
            epsilon=epsilon_from_renyi(self.orders, self.epsilons, delta),
            delta=delta,
            adjacency=self.adjacency,
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; Balle et al. (2020), Theorem 21",
            confidence=self.confidence,
        )

    def _statement(self) -> str:
        curve = zip(self.orders, self.epsilons, strict=True)
        known = [(order, epsilon) for order, epsilon in curve if math.isfinite(epsilon)]
        if not known:
            return (
                f"Nothing is bounded between neighbouring inputs ({self.adjacency}): the Rényi "
                f"divergence may be infinite at each of {len(self.orders)} orders"
            )
        # three points say what a curve is like; all of them are in the file
        points = ", ".join(
            f"{in_nats(number_up(epsilon))} at order {number_down(order, ORDER_DIGITS)}"
            for order, epsilon in known[:3]
        )
        more = f" (and bounded at {len(known) - 3} more)" if len(known) > 3 else ""
        return (
            f"Between neighbouring inputs ({self.adjacency}) the Rényi divergence of the releases "
            f"is at most {points}{more}"
        )


@short_repr
@dataclass(frozen=True, kw_only=True)
class GaussianDP(Guarantee):
    """μ-Gaussian differential privacy: neighbours look as much alike as N(0, 1) and N(μ, 1).

    Whatever the test, its false negatives are at least Φ(Φ⁻¹(1 − a) − μ) at false positives a.

    Args:
        mu: μ >= 0; inf says nothing.
        adjacency: Which inputs are neighbours, such as ``"replace one record"``.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = GaussianDP(
        ...     mu=1.0, adjacency="replace one record",
        ...     evidence="theorem", assumptions=(), source="example",
        ... )
        >>> round(bound.success().success, 4), round(bound.approximate(1.0).delta, 4)
        (0.6915, 0.1269)

    Source: Dong, Roth and Su (2022), Definition 2.6.
    """

    mu: float
    adjacency: str

    number_fields: ClassVar[tuple[str, ...]] = ("mu",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("mu", non_negative("mu", self.mu, allow_inf=True))
        text("adjacency", self.adjacency)

    def approximate(self, epsilon: float) -> ApproximateDP:
        """Return the smallest δ that μ gives at ε: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

        Args:
            epsilon: ε >= 0, finite.

        Returns:
            The guarantee, its δ rounded up.

        Raises:
            ValueError: ``epsilon`` is negative or infinite.

        Source: Dong, Roth and Su (2022), Corollary 2.13.
        """
        loss = non_negative("epsilon", epsilon)
        return ApproximateDP(
            epsilon=loss,
            # δ(ε) of N(μ, 1) against N(0, 1), in closed form, rounded up
            delta=self._delta(loss),
            source=f"{self.source}; Dong, Roth and Su (2022), Corollary 2.13",
            **self._own_fields(),
        )

    def renyi(self, orders: Iterable[float]) -> RenyiDP:
        """Return the Rényi curve α μ²/2 that μ gives, rounded up.

        Args:
            orders: Orders α > 1, strictly increasing.

        Returns:
            The guarantee.

        Raises:
            ValueError: An order is not a number > 1, or they do not increase.

        Source: Dong, Roth and Su (2022), Corollary B.6.
        """
        alphas = tuple(items("orders", orders))
        return RenyiDP(
            orders=alphas,
            epsilons=tuple(gaussian_renyi(self.mu, order) for order in alphas),
            source=f"{self.source}; Dong, Roth and Su (2022), Corollary B.6",
            **self._own_fields(),
        )

    def success(self, prior: float = 0.5) -> SuccessBound:
        """Bound the success of telling two neighbouring inputs apart; Φ(μ/2) at even odds.

        Args:
            prior: Probability of one of the two inputs, in (0, 1).

        Returns:
            The bound, whose prior success is max(prior, 1 − prior).

        Raises:
            ValueError: ``prior`` is outside (0, 1).

        Source: the Neyman-Pearson lemma.
        """
        return SuccessBound(
            # by the profile: of Gaussian noise it is attained
            success=success_from_profile(self._delta, prior),
            prior=max(prior, 1 - prior),
            task=f"which of two neighbouring inputs ({self.adjacency}) was used",
            law=law_of_pair(max(prior, 1 - prior)),
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=f"{self.source}; the Neyman-Pearson lemma",
            confidence=self.confidence,
        )

    def _delta(self, epsilon: float) -> float:
        return min(shift_divergence(("hockey-stick", epsilon), self.mu), 1.0)

    def _own_fields(self) -> dict[str, Any]:
        return {
            "adjacency": self.adjacency,
            "evidence": self.evidence,
            "assumptions": self.assumptions,
            "confidence": self.confidence,
        }

    def _statement(self) -> str:
        # the success that μ gives is said once, by the bound on it
        return (
            f"Neighbouring inputs ({self.adjacency}) look at least as much alike as N(0, 1) and "
            f"N(μ, 1): μ = {number_up(self.mu)}"
        )


def gaussian_renyi(mu: float, order: float) -> float:
    """Return the Rényi divergence α μ²/2 of N(μ, 1) from N(0, 1), rounded up; μ may be inf."""
    checked = non_negative("mu", mu, allow_inf=True)
    alpha = positive("orders", order)
    if math.isinf(checked):
        return math.inf
    # α μ²/2 of fractions: the product neither overflows nor rounds twice
    return rounded_up(Fraction(alpha) * Fraction(checked) ** 2 / 2)


@short_repr
@dataclass(frozen=True, kw_only=True)
class Indistinguishability(Guarantee):
    """The release from the real input is within a divergence of each safe reference's release.

    D(M(U) ‖ M(R_i)) <= bounds[i]. Nothing is said about pairs of references.

    Args:
        references: Names of the m references, none twice.
        divergence: A named kind of `tacit.divergences`, such as ``"kl"`` or ``("renyi", 2.0)``.
        bounds: One bound >= 0 for each reference; inf where there is none.
        evidence: As in `Guarantee`.
        assumptions: As in `Guarantee`.
        source: As in `Guarantee`.
        confidence: As in `Guarantee`.

    Raises:
        ValueError: A field is not what it should be; the message names it.

    Example:
        >>> bound = Indistinguishability(
        ...     references=("without Ada", "without Bob"), divergence="kl", bounds=(0.5, 0.1),
        ...     evidence="theorem", assumptions=(), source="dsi, Theorem 3.3",
        ... )
        >>> bound.bounds
        (0.5, 0.1)

    Source: dsi, Definition 1.2.
    """

    references: tuple[str, ...]
    divergence: NamedKind
    bounds: tuple[float, ...]

    number_fields: ClassVar[tuple[str, ...]] = ("bounds",)

    def __post_init__(self) -> None:
        super().__post_init__()
        # a reference named twice would have two bounds
        references = texts("references", self.references)
        if not references or len(set(references)) != len(references):
            raise ValueError(f"references: expected distinct names, got {references!r}")
        bounds = _bounds("bounds", self.bounds)
        if len(bounds) != len(references):
            raise ValueError(
                f"bounds: expected one for each of {len(references)} references, got {len(bounds)}"
            )
        self._set("references", references)
        self._set("divergence", check_named_kind("divergence", self.divergence))
        self._set("bounds", bounds)

    def _statement(self) -> str:
        # the sentence is true of all references when it is of the farthest
        loosest = max(self.bounds)
        reference = self.references[self.bounds.index(loosest)]
        many = (
            f"each of {len(self.references)} references"
            if len(self.references) > 1
            else "its reference"
        )
        return (
            f"The release is within a {divergence_name(self.divergence)} of {number_up(loosest)} "
            f"of what {many} would have given with the same noise (loosest: {reference})"
        )


def _bounds(name: str, value: Any) -> tuple[float, ...]:
    # inf is allowed: a reference that nothing is said of
    return tuple(
        non_negative(f"{name}[{i}]", bound, allow_inf=True)
        for i, bound in enumerate(items(name, value))
    )


def divergence_name(kind: NamedKind) -> str:
    """Return a divergence in words, with its parameter."""
    if isinstance(kind, str):
        return DIVERGENCE_NAMES[kind]
    # a kind with a parameter says it
    name, parameter = kind
    if name == "renyi":
        return f"Rényi divergence of order {number_down(parameter, ORDER_DIGITS)}"
    return f"hockey-stick divergence at ε = {number_up(parameter, ORDER_DIGITS)}"
