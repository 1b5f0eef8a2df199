"""Hockey-stick curves: H(ε) = P(L > ε) − e^ε Q(L > ε) of a pair (P, Q) with loss L = ln dP/dQ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint import arb, fmpq

from tacit_check.balls import ONE, ZERO, largest

# (P(L > ε), Q(L > ε)) at a real ε.
Tails = Callable[[arb], tuple[arb, arb]]
Height = Callable[[arb], arb]
Moment = Callable[[fmpq], arb | None]


@dataclass(frozen=True)
class Curve:
    """One order of a pair, or an upper bound of it.

    Attributes:
        height: H(ε) as a ball; of an upper bound, only its upper end says something.
        attained: whether some pair of inputs has this curve, so that lower ends say something too.
        tails: (P(L > ε), Q(L > ε)), where they are known; both orders follow from them.
        most: L <= most surely; None where L is not bounded.
        pure: the same as an exact number, where it is one.
        gaussian: μ² exactly, where it is the curve of N(μ, 1) against N(0, 1).
        exact: H at γ = e^ε as a fraction, where probabilities are fractions.
        fails: δ, where it is the curve of a release that gives itself away with probability δ and
            says nothing otherwise.
        renyi: ln ∫ P^α Q^{1−α} at an order α > 1 as a ball; None where no closed form is known.
        costly: whether H is an integral, to be evaluated at fewer points.
    """

    height: Height
    attained: bool = True
    tails: Tails | None = None
    most: arb | None = None
    pure: fmpq | None = None
    gaussian: fmpq | None = None
    exact: Callable[[fmpq], fmpq] | None = None
    renyi: Moment | None = None
    fails: arb | None = None
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
    def bounding(self) -> Pair:
        """The same as upper bounds: nothing is proved false by them."""
        return replace(self, curves=tuple(replace(one, attained=False) for one in self.curves))


def from_tails(tails: Tails, **known: Any) -> Curve:
    """Return the curve of a pair by its tails, and what else is known of it."""

    def height(epsilon: arb) -> arb:
        # H(ε) = P(L > ε) − e^ε Q(L > ε): exact, in balls of enough bits for what cancels
        own, other = tails(epsilon)
        return own - epsilon.exp() * other

    return Curve(height, tails=tails, **known)


def turned(curve: Curve, *, most: arb | None = None) -> Curve:
    """Return the curve of (Q, P) from that of (P, Q): H'(ε) = 1 − e^ε + e^ε H(−ε)."""
    known = curve.tails

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # L' = −L: Q(L < −ε) = 1 − Q(L >= −ε), and what ties weigh cancels in H
        assert known is not None
        own, other = known(-epsilon)
        return ONE - other, ONE - own

    def height(epsilon: arb) -> arb:
        return -epsilon.expm1() + epsilon.exp() * curve.at(-epsilon)

    if known is not None:
        return from_tails(tails, attained=curve.attained, most=most)
    return Curve(height, attained=curve.attained, most=most)


def highest(curves: Sequence[Curve]) -> Curve:
    """Return the upper envelope: a curve that dominates each, and is one pair's at every ε."""
    known = [curve.most for curve in curves if curve.most is not None]
    return Curve(
        lambda epsilon: largest(curve.at(epsilon) for curve in curves),
        attained=all(curve.attained for curve in curves),
        most=largest(known) if len(known) == len(curves) else None,
        costly=any(curve.costly for curve in curves),
    )
