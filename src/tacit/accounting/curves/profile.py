"""Privacy profiles: δ(ε) of a pair of output laws, with what can be done to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tacit._ground.checks import Array, as_float, in_interval, integer, text, texts, vector
from tacit._ground.numbers import EPS, rounded_up
from tacit._ground.proof import Node, composed, node
from tacit.accounting.curves.alike import alike
from tacit.accounting.curves.composed import Composition, gathered, repeated
from tacit.accounting.curves.curve import (
    LARGEST_LOSS,
    Curve,
    guard,
    larger,
    replaced_curve,
    smallest_epsilon,
    subsampled_curves,
    subsampled_renyi,
)
from tacit.accounting.curves.discretisation import ComposedPart
from tacit.conversions import success_from_profile
from tacit.guarantees.adjacency import Adjacency, Neighbours
from tacit.guarantees.one_line import one_line

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from matplotlib.axes import Axes

    from tacit.guarantees import ApproximateDP, Evidence, SuccessBound

# What a profile says of its neighbours where its parameters alone decide.
ANY_NEIGHBOURS = "any two that the assumptions allow"
FIXED = "the profiles composed were fixed in advance, not chosen after seeing a release"
SAMPLED = "every record is sampled independently, and which were sampled stays secret"
THREE_WAYS = "the curve bounds every pair among the record, its replacement, and neither"
TWO_CURVES = (
    "the curve bounds the record against its replacement, and the second curve either of them "
    "against neither"
)
# How losses that are added were added.
NO_CURVES: dict[str, Any] = {
    "forward": None, "backward": None, "renyi_curve": None, "composition": None,
}  # fmt: skip
# δ at which a notebook is told ε.
TOLD_DELTAS = (1e-5, 1e-6)
SQUARES = "Dong, Roth and Su (2022), Corollary 3.3"
DISCRETE = "pessimistic discretisation, Doroshenko et al. (2022)"
# Units in the last place: of one product; of a sum over parts; of a logarithm and its exponential.
PRODUCT_UNITS, SUM_UNITS, MASS_UNITS = 4, 8, 16


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """The privacy profile δ(ε) = H_{e^ε}(P‖Q) = sup_A P(A) − e^ε Q(A), and the same for (Q, P).

    Values are built by the functions of `tacit.accounting`, or by `profile_from_curves`. Every δ
    and ε reported is an upper bound, for the worse of the two directions.

    Args:
        name: The mechanism in a few words.
        forward: Upper bound of H_{e^ε}(P‖Q) at any real ε, vectorised.
        backward: The same for (Q, P); the same object when the two are equal.
        infinite_mass: Upper bound of the limit of δ(ε) as ε grows.
        source: Where the curves come from.
        assumptions: What must hold for them to be true, one sentence each.
        evidence: ``"theorem"`` or ``"numerical"``.
        adjacency: Which inputs P and Q come from.
        renyi_curve: Upper bound of the Rényi divergence of both directions at each order, or None.
        composition: What a composed profile is made of; None for others.
        mechanism: The proof node of what it is the profile of; None where there is no such node.
    """

    name: str
    forward: Curve = field(repr=False)
    backward: Curve = field(repr=False)
    infinite_mass: float
    source: str = field(repr=False)
    assumptions: tuple[str, ...] = field(repr=False)
    evidence: Evidence
    adjacency: str
    renyi_curve: Curve | None = field(default=None, repr=False)
    composition: Composition | None = field(default=None, repr=False)
    mechanism: Node | None = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrivacyProfile):
            return False
        # a proof node says the mechanism and all its numbers, and so the curves
        of = replace if self.mechanism is None else partial(replace, **NO_CURVES)
        return alike(of(self), of(other))

    def __hash__(self) -> int:
        return hash((self.name, self.adjacency, self.infinite_mass))

    def _repr_html_(self) -> str:
        # two points of the curve and the game, then what must hold
        finite = [delta for delta in TOLD_DELTAS if math.isfinite(self.epsilon(delta))]
        told = [self.guarantee(delta=delta) for delta in finite]
        points = "".join(f"<li>{escape(one_line(one).text)}</li>" for one in told)
        held = "".join(f"<li>{escape(one)}</li>" for one in self.assumptions)
        return (
            f"<div><p><b>{escape(self.name)}</b> <small>({escape(self.adjacency)})</small></p>"
            f"<ul>{points}<li>{escape(self.success().describe())}</li></ul>"
            f"<details><summary>What must hold ({len(self.assumptions)})</summary><ul>{held}</ul>"
            "</details></div>"
        )

    @property
    def symmetric(self) -> bool:
        """Whether the two directions have the same curve."""
        return self.forward is self.backward

    @overload
    def delta(self, epsilon: float) -> float: ...
    @overload
    def delta(self, epsilon: Array | Sequence[float]) -> Array: ...
    def delta(self, epsilon: float | Array | Sequence[float]) -> float | Array:
        """Return δ(ε) = max(H_{e^ε}(P‖Q), H_{e^ε}(Q‖P)), rounded up.

        Args:
            epsilon: ε in nats, any real number or inf; a number or an array.

        Returns:
            δ in [0, 1], of the shape of ``epsilon``.

        Raises:
            ValueError: ``epsilon`` is not a number.

        Example:
            >>> from tacit.accounting import gaussian
            >>> round(gaussian(1.0, 1.0).delta(1.0), 6)
            0.126937
        """
        try:
            points = np.asarray(epsilon, dtype=np.float64)
        except (TypeError, ValueError):
            found = type(epsilon).__name__
            raise ValueError(f"epsilon: expected numbers, got {found}") from None
        if np.isnan(points).any():
            raise ValueError("epsilon: expected numbers, got NaN")
        values = self._worse(points.ravel()).reshape(points.shape)
        return float(values) if points.ndim == 0 else values

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε >= 0 with δ(ε) <= ``delta``, as the upper end of its bracket.

        Args:
            delta: δ in [0, 1].

        Returns:
            ε in nats with ``profile.delta(ε) <= delta``; inf when there is none.

        Raises:
            ValueError: ``delta`` is outside [0, 1].

        Example:
            >>> from tacit.accounting import gaussian
            >>> round(gaussian(1.0, 1.0).epsilon(1e-5), 4)
            4.3772
        """
        target = in_interval("delta", delta, 0.0, 1.0)
        if target == 0.0 and self.composition is not None:
            # a sum has no loss above the sum of the largest, which is added exactly: a lattice has
            each = [(part.count, smallest_epsilon(part.worse, 0.0)) for part in self.parts(1)]
            if any(math.isinf(most) for _, most in each):
                return math.inf
            total = sum((count * Fraction(most) for count, most in each), Fraction(0))
            return rounded_up(total)
        return smallest_epsilon(self._worse, target)

    def advantage(self) -> float:
        """Return the total variation distance δ(0), rounded up: true less false positives.

        Example:
            >>> from tacit.accounting import gaussian
            >>> round(gaussian(1.0, 1.0).advantage(), 6)
            0.382925
        """
        return self.delta(0.0)

    def success(self, prior: float = 0.5) -> SuccessBound:
        """Bound the success of telling P from Q: (1 − p) + p δ(ln((1 − p)/p)), for p and 1 − p.

        Args:
            prior: Probability p of one of the two inputs, in (0, 1).

        Returns:
            The bound, exact for this profile, rounded up.

        Raises:
            ValueError: ``prior`` is outside (0, 1).

        Example:
            >>> from tacit.accounting import gaussian
            >>> round(gaussian(1.0, 1.0).success().success, 4)
            0.6915
        """
        # the best test succeeds with (1 − p) + p δ(ln((1 − p)/p)); with P and Q exchanged at 1 − p:
        # the larger of both counts
        from tacit.guarantees.information import SuccessBound, law_of_pair

        chance = in_interval("prior", prior, 0.0, 1.0, open_low=True, open_high=True)
        return SuccessBound(
            success=success_from_profile(self.delta, chance),
            prior=max(chance, 1 - chance),
            task=f"which of two neighbouring inputs ({self.adjacency}) was used",
            law=law_of_pair(max(chance, 1 - chance)),
            evidence=self.evidence,
            assumptions=self.assumptions,
            source=self.source,
        )

    def renyi(self, orders: Array | Sequence[float]) -> Array:
        """Return upper bounds of the Rényi divergence, the larger of the two directions.

        Args:
            orders: Orders α > 1, shape (k,).

        Returns:
            Divergences in nats, shape (k,); inf where nothing is known.

        Raises:
            ValueError: An order is not a finite number > 1.

        Example:
            >>> from tacit.accounting import gaussian
            >>> gaussian(1.0, 1.0).renyi([2.0, 4.0]).round(6).tolist()
            [1.0, 2.0]
        """
        alphas = vector("orders", orders)
        if not (alphas > 1).all():
            raise ValueError(f"orders: expected numbers > 1, got {float(alphas.min())!r}")
        # a curve that bounds δ alone bounds no moment of the loss
        if self.renyi_curve is None:
            return np.full(alphas.shape, math.inf)
        return np.asarray(self.renyi_curve(alphas), dtype=np.float64)

    def guarantee(
        self, *, delta: float | None = None, epsilon: float | None = None
    ) -> ApproximateDP:
        """Return the (ε, δ) guarantee at a given δ or at a given ε.

        Args:
            delta: δ in [0, 1]; or
            epsilon: ε >= 0 in nats.

        Returns:
            The guarantee; its evidence is numerical unless ε is given and the profile's is not.

        Raises:
            ValueError: Not exactly one of the two is given, it is out of range, or no finite ε
                reaches δ.

        Example:
            >>> from tacit.accounting import gaussian
            >>> gaussian(1.0, 1.0).guarantee(delta=1e-5).evidence
            'numerical'
        """
        from tacit.guarantees import ApproximateDP

        if (delta is None) == (epsilon is None):
            raise ValueError("delta, epsilon: expected exactly one of the two")
        # an ε that was searched for is a number computed; a δ at a given ε is what the curve says
        evidence: Evidence = "numerical"
        if delta is not None:
            loss, failure = self.epsilon(delta), float(delta)
            # a loss that is infinite with probability p_∞ leaves δ >= p_∞ at every ε
            if math.isinf(loss):
                least = max(self.infinite_mass, self.delta(LARGEST_LOSS))
                raise ValueError(
                    f"delta: expected more than {least:.6g}, below which no epsilon is finite "
                    f"(infinite mass {self.infinite_mass:.6g}), got {failure!r}"
                )
        else:
            loss = in_interval("epsilon", epsilon, 0.0, math.inf)
            failure, evidence = self.delta(loss), self.evidence
        return ApproximateDP(
            epsilon=loss,
            delta=failure,
            adjacency=self.adjacency,
            evidence=evidence,
            assumptions=self.assumptions,
            source=self.source,
        )

    def compose(self, other: PrivacyProfile) -> PrivacyProfile:
        """Return the profile of both releases together, both profiles fixed in advance.

        Pessimistic discretisation of the two losses and their convolution; the result can be
        composed again. Where neither adjacency says which of two different curves is of the input
        that comes first, that input may be first in one release and second in the other.

        Args:
            other: A profile for the same neighbours.

        Raises:
            ValueError: ``other`` is not a profile, or its adjacency is another one.

        Example:
            >>> from tacit.accounting import gaussian
            >>> both = gaussian(1.0, 1.0).compose(gaussian(1.0, 2.0))
            >>> round(both.delta(1.0), 6)  # a shift by (1 + 1/4)^½
            0.170087
        """
        if not isinstance(other, PrivacyProfile):
            raise ValueError(f"other: expected a PrivacyProfile, got {type(other).__name__}")
        # two profiles of different neighbours have no neighbours in common to be a profile of
        names = [p.adjacency for p in (self, other) if p.adjacency != ANY_NEIGHBOURS]
        if len(set(names)) > 1:
            raise ValueError(f"other: expected adjacency {names[0]!r}, got {names[1]!r}")
        parts = ((self, 1), (other, 1))
        return _compose(parts, f"{self.name}, then {other.name}", [*names, ANY_NEIGHBOURS][0])

    def __mul__(self, count: int) -> PrivacyProfile:
        """Return the profile of ``count`` releases; each may use the ones before it.

        Args:
            count: Number of releases >= 1.

        Raises:
            ValueError: ``count`` is not an integer >= 1.

        Example:
            >>> from tacit.accounting import gaussian
            >>> round((gaussian(1.0, 10.0) * 100).delta(1.0), 5)  # a shift by √100/10
            0.12694
        """
        times = integer("count", count, minimum=1)
        if times == 1:
            return self
        return _compose(((self, times),), f"{times} × {self.name}", self.adjacency)

    __rmul__ = __mul__

    def poisson_subsample(
        self,
        sampling_rate: float,
        *,
        neighbours: Neighbours | None = None,
        without: PrivacyProfile | None = None,
    ) -> PrivacyProfile:
        """Return the profile when every record enters the release with probability q.

        ``"add-remove"``: P is the law with the record and Q without it. The sampled law
        (1 − q)Q + qP against Q, exactly, in both directions. Where the profile's adjacency does not
        say which of two different curves has the record first, both are the larger one.
        ``"replace"``: q δ(ln(1 + (e^ε − 1)/q)) for ε >= 0 in both directions; sound where δ bounds
        every pair among the record, its replacement, and neither. ``without`` makes it tighter
        where a record is closer to none than to another: the least over s in [0, 1] of
        q[s δ_without(ln((γ − 1)(1 − q)/(qs))) + (1 − s) δ(ln(γ/(1 − s)))] with γ = e^ε.

        Args:
            sampling_rate: q in [0, 1].
            neighbours: ``"add-remove"`` or ``"replace"``; the default is the one the profile's
                adjacency names, and ``"add-remove"`` where it names none.
            without: For ``"replace"``, a profile that bounds any record against no record.

        Raises:
            ValueError: ``sampling_rate`` is outside [0, 1], ``neighbours`` is unknown, or it
                contradicts an adjacency, or ``without`` is given for ``"add-remove"``.

        Example:
            >>> from tacit.accounting import gaussian
            >>> round(gaussian(1.0, 1.0).poisson_subsample(0.1).delta(0.5), 6)
            0.002033

        Source: Balle, Barthe and Gaboardi (2018), Theorem 2; Zhu, Dong and Wang (2022),
        Theorem 11; docs/explanation/sampling.md.
        """
        rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
        relation = self._relation(neighbours)
        forward, backward = self.forward, self.backward
        if self.adjacency == ANY_NEIGHBOURS:
            # either input may be the one with the record
            forward = backward = larger(forward, backward)
        if without is not None:
            _check_without(without, relation)
            if 0.0 < rate < 1.0:
                near, far = larger(without.forward, without.backward), larger(forward, backward)
                forward = backward = replaced_curve(near, far, rate)
        # at q = 1 nothing is sampled, but for a replacement that the two directions tell apart
        sampled = rate < 1.0 or (relation is Adjacency.REPLACE and not self.symmetric)
        if sampled and (without is None or rate == 0.0):
            forward, backward = subsampled_curves(forward, backward, rate, relation)
        bounded = (THREE_WAYS if without is None else TWO_CURVES,)
        return replace(
            self,
            name=f"{self.name}, sampled at rate {rate:g}",
            forward=forward,
            backward=backward,
            # the record must be sampled before it can give itself away
            infinite_mass=min(rate * self.infinite_mass * (1 + PRODUCT_UNITS * EPS), 1.0),
            source=f"{self.source}; Balle, Barthe and Gaboardi (2018), Theorem 2",
            assumptions=(
                *self.assumptions,
                SAMPLED,
                *(bounded if relation is Adjacency.REPLACE else ()),
            ),
            adjacency=(relation.sentence() if self.adjacency == ANY_NEIGHBOURS else self.adjacency),
            renyi_curve=subsampled_renyi(self.renyi_curve, rate),
            composition=None,
            mechanism=None if relation is Adjacency.REPLACE else _sampled_node(self, rate),
        )

    def _relation(self, neighbours: Neighbours | None) -> Adjacency:
        """Return which neighbours are meant, where the profile's own do not contradict."""
        own = Adjacency.of(self.adjacency)
        if neighbours is None:
            return own or Adjacency.ADD_REMOVE
        relation = Adjacency.read("neighbours", neighbours)
        if own is not None and own is not relation:
            raise ValueError(
                f"neighbours: expected {own.value!r}, as the profile is for inputs that "
                f"{self.adjacency}, got {relation.value!r}"
            )
        return relation

    def to_dp_accounting(self) -> PrivacyLossDistribution:
        """Return a pessimistic `dp_accounting` privacy loss distribution, to compose there.

        Compose here, with ``*`` and `compose`, where the number must hold: distributions of that
        library have been seen below the truth (`docs/how-to/accounting.md`).

        Raises:
            ImportError: ``dp_accounting`` is not installed: the extra `exchange` has it.
            ValueError: The losses need a lattice coarser than that library can hold.

        Example:
            >>> from tacit.accounting import gaussian
            >>> profile = gaussian(1.0, 1.0)
            >>> bool(profile.to_dp_accounting().get_delta_for_epsilon(1.0) >= profile.delta(1.0))
            True
        """
        from tacit.accounting.exchange.interchange import to_dp_accounting

        return to_dp_accounting(ComposedPart(self.forward, self.backward, 1))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw δ against ε on a logarithmic axis, a solid line since it is a bound.

        Args:
            ax: matplotlib axes; of a figure of its own when left out.

        Raises:
            ImportError: matplotlib is not installed.

        Example:
            >>> from tacit.accounting import gaussian
            >>> gaussian(1.0, 1.0).plot().get_xlabel()
            'ε (nats)'
        """
        from tacit.accounting.exchange.interchange import draw

        return draw(self.name, self.delta, self.epsilon, ax)

    def parts(self, count: int) -> tuple[ComposedPart, ...]:
        """Return ``count`` such releases for a composition: those it is composed of, if it is."""
        if self.composition is not None:
            return repeated(self.composition.parts, count)
        return (ComposedPart(self.forward, self.backward, count),)

    def _worse(self, points: Array) -> Array:
        """The larger of both directions at each ε, rounded up as the curves are."""
        return np.minimum(ComposedPart(self.forward, self.backward, 1).worse(points), 1.0)


def profile_from_curves(
    forward: Curve,
    backward: Curve | None = None,
    *,
    name: str,
    infinite_mass: float = 0.0,
    renyi: Curve | None = None,
    source: str,
    assumptions: Sequence[str],
    adjacency: str = ANY_NEIGHBOURS,
) -> PrivacyProfile:
    """Build a profile from upper bounds of its hockey-stick curves; its evidence is numerical.

    ``dataclasses.replace(profile, evidence="theorem")`` says that the curves are closed forms, and
    ``mechanism=`` there from which proof node a checker works them out.

    Args:
        forward: Upper bound of H_{e^ε}(P‖Q) for an array of any real ε, already rounded up,
            never NaN, in [0, 1].
        backward: The same for (Q, P); None when the two are equal, in which case
            δ(−ε) = 1 − e^{−ε}(1 − δ(ε)) up to rounding.
        name: The mechanism in a few words.
        infinite_mass: Upper bound of the limit of both curves at ε = inf.
        renyi: Upper bound of the Rényi divergence of both directions at an array of orders > 1.
        source: Where the curves come from.
        assumptions: What must hold for them to be true.
        adjacency: Which inputs P and Q come from.

    Returns:
        The profile.

    Raises:
        ValueError: A text is empty, ``infinite_mass`` is outside [0, 1], or a curve is not
            callable.

    Example:
        >>> import numpy as np
        >>> flip = profile_from_curves(
        ...     lambda e: np.maximum(0.75 - 0.25 * np.exp(e), np.maximum(1 - np.exp(e), 0)),
        ...     name="a coin that lies a quarter of the time", source="example", assumptions=(),
        ... )
        >>> round(flip.epsilon(0.0), 6)
        1.098612
    """
    for label, curve in (("forward", forward), ("backward", backward), ("renyi", renyi)):
        if not callable(curve) and (curve is not None or label == "forward"):
            raise ValueError(f"{label}: expected a function of ε, got {type(curve).__name__}")
    # from outside: a curve's values are checked at every call
    ahead = guard("forward", forward)
    return PrivacyProfile(
        name=text("name", name),
        forward=ahead,
        backward=ahead if backward is None else guard("backward", backward),
        infinite_mass=in_interval("infinite_mass", as_float("infinite_mass", infinite_mass), 0, 1),
        source=text("source", source),
        assumptions=texts("assumptions", assumptions),
        evidence="numerical",
        adjacency=text("adjacency", adjacency),
        renyi_curve=renyi,
    )


def _compose(
    parts: Sequence[tuple[PrivacyProfile, int]], name: str, adjacency: str
) -> PrivacyProfile:
    """Return the profile of every release of ``parts``, their profiles fixed in advance.

    A mechanism may use the releases before it; which profile it has may not depend on them. For
    that there are filters, on Rényi curves and on μ, in `tacit.ledger`.
    """
    # each loss as often as it occurs, those that have a closed form together
    gathering = gathered(_aligned(parts, adjacency))
    together = Composition(gathering)
    forward, backward = together.curves
    # what the parts' divergences are sums of, and so is theirs
    divergences = [pair for profile, count in parts for pair in _addends(profile, count)]

    # no release gives itself away with probability Π (1 − p_∞)
    finite = math.fsum(n * math.log1p(-p.infinite_mass) for p, n in parts if p.infinite_mass < 1)
    lost = any(profile.infinite_mass == 1 for profile, _ in parts)
    known = together.closed and all(profile.evidence == "theorem" for profile, _ in parts)
    sources = [*(p.source for p, _ in parts), SQUARES if together.closed else DISCRETE]
    return replace(
        parts[0][0],
        name=name,
        forward=forward,
        backward=backward,
        infinite_mass=1.0 if lost else min(abs(math.expm1(finite)) * (1 + MASS_UNITS * EPS), 1.0),
        source="; ".join(dict.fromkeys("; ".join(sources).split("; "))),
        assumptions=tuple(dict.fromkeys([*(a for p, _ in parts for a in p.assumptions), FIXED])),
        evidence="theorem" if known else "numerical",
        adjacency=adjacency,
        renyi_curve=(
            None
            if any(profile.renyi_curve is None for profile, _ in parts)
            else partial(_added, tuple(divergences))
        ),
        composition=together,
        mechanism=composed([(profile.mechanism, count) for profile, count in parts]),
    )


def _aligned(parts: Sequence[tuple[PrivacyProfile, int]], adjacency: str) -> list[ComposedPart]:
    """Return all losses, P being the same input in each: the larger curve where that is not said.

    One loss alone, however often, has one order. Another beside it may have the other one.
    """
    found = [(profile, part) for profile, count in parts for part in profile.parts(count)]
    kinds = {(part.forward, part.backward) for _, part in found if not part.symmetric}
    aligned = []
    for profile, part in found:
        # of neighbours with a name P is the one with the record, unless either may be replaced
        unsaid = profile.adjacency in (ANY_NEIGHBOURS, Adjacency.REPLACE.sentence())
        if unsaid and (len(kinds) > 1 or profile.adjacency != adjacency):
            both = larger(part.forward, part.backward)
            part = replace(part, forward=both, backward=both)
        aligned.append(part)
    return aligned


def _addends(profile: PrivacyProfile, count: int) -> list[tuple[Curve, int]]:
    """Return the Rényi curves whose sum is exactly that of so many releases, with how often."""
    curve = profile.renyi_curve
    if curve is None:
        return []
    if isinstance(curve, partial) and curve.func is _added:
        return [(inner, times * count) for inner, times in curve.args[0]]
    return [(curve, count)]


def _added(curves: Sequence[tuple[Curve, int]], orders: Array) -> Array:
    """The Rényi divergence of independent pairs together, rounded up."""
    # of products of independent pairs the divergences add up
    total: Any = sum(count * curve(orders) for curve, count in curves)
    return np.asarray(total * (1 + SUM_UNITS * EPS))


def _sampled_node(profile: PrivacyProfile, rate: float) -> Node | None:
    """Return the proof node of a release whose records are sampled, where it is one release."""
    inner = profile.mechanism
    if inner is None or inner["kind"] in ("composition", "poisson-sampled"):
        return None
    return {**node("poisson-sampled", rate=rate), "of": inner}


def _check_without(without: Any, relation: Adjacency) -> None:
    """Refuse a second curve that is not of a record against none, for a replacement."""
    if not isinstance(without, PrivacyProfile):
        raise ValueError(f"without: expected a PrivacyProfile, got {type(without).__name__}")
    if relation is not Adjacency.REPLACE:
        raise ValueError(f"without: expected it with neighbours 'replace', got {relation.value!r}")
    if without.adjacency not in (ANY_NEIGHBOURS, Adjacency.ADD_REMOVE.sentence()):
        raise ValueError(
            f"without: expected a profile of a record against none, got one for inputs that "
            f"{without.adjacency}"
        )
