"""Hockey-stick curves: H(ε) = P(L > ε) − e^ε Q(L > ε) of a pair (P, Q) with loss L = ln dP/dQ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from flint import arb, fmpq

from tacit_check.balls import ONE, ZERO, Number, floors, largest

# (P(L > ε), Q(L > ε)) at a real ε.
Tails = Callable[[arb], tuple[arb, arb]]
Height = Callable[[arb], arb]


@dataclass(frozen=True)
class Curve:
    """One order of a pair, or an upper bound of it.

    Attributes:
        height: H(ε) as a ball; of an upper bound, only its upper end says something.
        attained: whether some pair of inputs has this curve, so that lower ends say something too.
        tails: (P(L > ε), Q(L > ε)), where they are known; both orders follow from them.
        most: L <= most surely, a fraction where it is one; None where L is not bounded.
        gaussian: μ², where it is the curve of N(μ, 1) against N(0, 1).
        under: μ² of a Gaussian curve that lies above it everywhere, where one is known.
        exact: H at γ = e^ε as a fraction, where probabilities are fractions.
        fails: δ, where it is the curve of a release that gives itself away with probability δ and
            says nothing otherwise.
        renyi: ln ∫ P^α Q^{1−α} at an order α > 1 as a ball; None where no closed form is known.
        costly: whether H is an integral, to be evaluated at fewer points.
    """

    height: Height
    attained: bool = True
    tails: Tails | None = None
    most: Number | None = None
    gaussian: Number | None = None
    under: Number | None = None
    exact: Callable[[fmpq], fmpq] | None = None
    fails: arb | None = None
    renyi: Callable[[fmpq], arb | None] | None = None
    costly: bool = False

    def at(self, epsilon: arb) -> arb:
        """Return H(ε), no less than max(0, 1 − e^ε) and no more than 1, which every pair obeys."""
        # no loss exceeds ε: exactly 0, where a difference of balls would straddle it
        if self.most is not None and epsilon >= self.most:
            return ZERO
        return self.height(epsilon).max(-epsilon.expm1()).max(ZERO).min(ONE)


@dataclass(frozen=True)
class Pair:
    """The curves of (P, Q) and of (Q, P); one of them where they are equal.

    Attributes:
        curves: one or two; of a table one of every two rows.
        order: which inputs the first curve has first, so that orders of several releases agree;
            empty where one curve serves both.
    """

    curves: tuple[Curve, ...]
    order: str = ""

    @property
    def bounding(self) -> Self:
        """The same as upper bounds: nothing is proved false by them."""
        return replace(self, curves=tuple(replace(one, attained=False) for one in self.curves))


# (count, pair) of releases about one record.
Parts = Sequence[tuple[int, Pair]]


def rising(
    place: Height, above: Tails, *, steps: bool = False, most: Number | None = None, **known: Any
) -> Curve:
    """Return the curve of a pair on a line whose loss rises.

    Args:
        place: the loss exceeds ε where x > place(ε).
        above: (P(X > x), Q(X > x)).
        steps: whether x is a whole number.
        most: the loss is within ± this.
        known: what else is known of the curve.
    """

    def events(epsilon: arb) -> list[tuple[arb, arb]]:
        if most is not None and abs(epsilon) >= most:
            return [(ZERO, ZERO) if epsilon > 0 else (ONE, ONE)]
        found = place(epsilon)
        # of whole numbers those that the ball leaves open
        return [above(x) for x in (map(arb, floors(found)) if steps else [found])]

    def height(epsilon: arb) -> arb:
        # H(ε) = P(L > ε) − e^ε Q(L > ε), the largest over events: exact, in balls of enough bits
        # for what cancels
        scale = epsilon.exp()
        return largest(own - scale * other for own, other in events(epsilon))

    return Curve(height, tails=lambda epsilon: events(epsilon)[0], most=most, **known)


def turned(curve: Curve, most: Number) -> Curve:
    """Return the curve of (Q, P) from that of (P, Q): H'(ε) = 1 − e^ε + e^ε H(−ε)."""
    known = curve.tails

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # L' = −L: Q(L < −ε) = 1 − Q(L >= −ε), and what ties weigh cancels in H
        assert known is not None
        own, other = known(-epsilon)
        return ONE - other, ONE - own

    def height(epsilon: arb) -> arb:
        return -epsilon.expm1() + epsilon.exp() * curve.at(-epsilon)

    return Curve(height, curve.attained, tails if known else None, most)


def highest(curves: Sequence[Curve]) -> Curve:
    """Return the upper envelope: a curve that dominates each, and is one pair's at every ε."""
    if len(curves) == 1:
        return curves[0]
    known = [arb(curve.most) for curve in curves if curve.most is not None]
    return Curve(
        lambda epsilon: largest(curve.at(epsilon) for curve in curves),
        attained=all(curve.attained for curve in curves),
        most=largest(known) if len(known) == len(curves) else None,
        costly=any(curve.costly for curve in curves),
    )
