"""Independent releases about one record together: by a closed form, else on a lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from flint import arb, fmpq

from tacit_check import laws
from tacit_check.balls import ONE, ZERO, integer_down, largest
from tacit_check.curves import Both, Curve, highest
from tacit_check.elementary import failing, gaussian
from tacit_check.lower import lower_bound

# Points of a lattice: the first that shows the claim. Above the claim by more than the share beside
# them, four times the points hardly show it either; near the largest loss the first is coarse.
SIZES = ((1 << 13, 9.0), (1 << 15, 1.0), (1 << 17, 0.0))
# A lattice that shows most of several mechanisms to be no worse than claimed.
ROUGH = (1 << 10, 9.0)
# Points of a lattice that bounds from below.
MOST_LOWER = 1 << 15
# Of δ: what may be cut at the ends, and the smallest δ that a success is known to.
CUT, SMALLEST = 2**-16, fmpq(1, 10**12)
SOURCE = "Doroshenko et al. (2022), Section 4: connect the dots; sums in whole numbers"


class Composed:
    """Releases about one record.

    Args:
        parts: (count, curves) of each.
        delta: the least δ that is asked for.
        sizes: points of lattices, and shares above a claim.
    """

    def __init__(
        self,
        parts: Sequence[tuple[int, Both]],
        delta: fmpq,
        sizes: Sequence[tuple[int, float]] = SIZES,
    ) -> None:
        self.sizes = sizes
        self.parts = merged(parts)
        self.least = min(delta, fmpq(1, 10**4))
        self.theorems: tuple[str, ...] = ()
        self._laws: dict[tuple[int, int], laws.LossLaw] = {}

    @cached_property
    def attained(self) -> bool:
        """Whether some pair of inputs attains what is computed."""
        return all(curve.attained for _, both in self.parts for curve in both.curves)

    @cached_property
    def gaussian(self) -> fmpq | None:
        """μ² of all together, where all are Gaussian."""
        if len(self.parts) != 1 or self.parts[0][0] != 1:
            return None
        curves = self.parts[0][1].curves
        return curves[0].gaussian if len(curves) == 1 else None

    @cached_property
    def pure(self) -> fmpq | None:
        """The largest loss of all together, where it is an exact number."""
        total = fmpq(0)
        for count, both in self.parts:
            if len(both.curves) != 1 or both.curves[0].pure is None:
                return None
            total += both.curves[0].pure * count
        return total if self.parts else None

    @cached_property
    def most(self) -> arb | None:
        """A bound of the loss of all together in both orders."""
        total = ZERO
        for count, both in self.parts:
            bounds = [curve.most for curve in both.curves if curve.most is not None]
            if len(bounds) != len(both.curves):
                return None
            total += largest(bounds) * count
        return total

    @cached_property
    def failing(self) -> tuple[arb, Both] | None:
        """(δ, the rest) of a release that may give itself away, beside one other."""
        if len(self.parts) != 2 or any(count != 1 for count, _ in self.parts):
            return None
        (_, rest), (_, last) = self.parts
        chance = last.curves[0].fails
        return None if chance is None else (chance, rest)

    def exact(self, gamma: fmpq) -> fmpq | None:
        """Return H at γ = e^ε as a fraction, where one release has one."""
        if len(self.parts) != 1 or self.parts[0][0] != 1:
            return None
        ways = [curve.exact for curve in self.parts[0][1].curves]
        known = [way(gamma) for way in ways if way is not None]
        return max(known) if len(known) == len(ways) else None

    def moment(self, order: fmpq) -> arb | None:
        """Return ln ∫ P^α Q^{1−α} of the worse order."""
        total = ZERO
        for count, both in self.parts:
            found = [None if one.renyi is None else one.renyi(order) for one in both.curves]
            known = [one for one in found if one is not None]
            if len(known) != len(found):
                return None
            total += largest(known) * count
        return total if self.parts else None

    def delta(self, epsilon: fmpq, claimed: fmpq) -> tuple[arb, arb | None]:
        """Return an upper and a lower bound of δ at ε, sharp enough for what is claimed."""
        pure = self.pure
        if pure is not None and pure <= epsilon:
            return ZERO, ZERO
        return self.at(arb(epsilon), claimed)

    def at(self, epsilon: arb, claimed: fmpq) -> tuple[arb, arb | None]:
        """Return an upper and a lower bound of H(ε) in the worse order."""
        if len(self.parts) == 1 and self.parts[0][0] == 1:
            value = largest(curve.at(epsilon) for curve in self.parts[0][1].curves)
            return value, value if self.attained else None
        if self.failing is not None:
            # P = (1 − δ) P' + δ R, Q = (1 − δ) Q' + δ R': H = δ + (1 − δ) H', in either order
            chance, rest = self.failing
            value = chance + (ONE - chance) * largest(curve.at(epsilon) for curve in rest.curves)
            return value, value if self.attained else None
        self.theorems = (SOURCE,)
        upper, size = ONE, 0
        for size, share in self.sizes:
            upper = largest(laws.height(self.law(way, size), epsilon) for way in self.ways)
            if upper <= claimed:
                return upper, None
            if upper > arb(claimed) * (ONE + share):
                break
        return upper, self.lower(epsilon, min(size, MOST_LOWER))

    def lower(self, epsilon: arb, size: int) -> arb | None:
        """Return a lower bound of H(ε) in the worse order; None where no pair attains it."""
        if not self.attained:
            return None
        mass = arb(self.least) * arb(CUT)
        bounds = []
        for way in self.ways:
            curves = [(count, both.curves[way % len(both.curves)]) for count, both in self.parts]
            if any(curve.tails is None for _, curve in curves):
                return None
            steps = [step_of(curve, mass / count, size) for count, curve in curves]
            ready = [(*one, step) for one, step in zip(curves, steps, strict=True)]
            bounds.append(lower_bound(ready, epsilon, self.least, size))
        return largest(bounds)

    def infinite(self) -> arb:
        """Return the mass of an infinite loss, at most."""
        total = ZERO
        for count, both in self.parts:
            far = arb(2) ** 12
            total += largest(curve.at(far) for curve in both.curves) * count
        return total.min(ONE)

    @property
    def ways(self) -> range:
        """Orders that are checked: two where a curve differs."""
        return range(max(len(both.curves) for _, both in self.parts))

    def law(self, way: int, size: int) -> laws.LossLaw:
        """Return the upper law of all together in one order."""
        if (way, size) not in self._laws:
            self._laws[way, size] = self._law(way, size)
        return self._laws[way, size]

    def _law(self, way: int, size: int) -> laws.LossLaw:
        total = sum(count for count, _ in self.parts)
        # 2^−bits: N T roundings stay below δ 2^−24
        scarce = max(1, int(1 / self.least)).bit_length()
        bits = size.bit_length() + total.bit_length() + scarce + 26
        # what one release may leave beyond its lattice, and what all may cut at the ends
        mass = arb(self.least) * arb(CUT) / total
        cut = integer_down(arb(self.least) * arb(CUT), bits) // (2 * len(self.parts))
        found: laws.LossLaw | None = None
        for count, both in self.parts:
            curve = both.curves[way % len(both.curves)]
            one = laws.upper_law(curve, step_of(curve, mass, size), bits, mass, size)
            part = laws.power(one, count, cut, size)
            found = part if found is None else laws.add(found, part, cut, size)
        assert found is not None
        return found


class Worst(Composed):
    """The worst of several mechanisms, of which the file does not say which it is.

    Args:
        choices: the parts of each.
        delta: the least δ that is asked for.
    """

    def __init__(self, choices: Sequence[Sequence[tuple[int, Both]]], delta: fmpq) -> None:
        super().__init__((), delta)
        self.choices = [Composed(parts, delta, (ROUGH, *SIZES)) for parts in choices]

    def at(self, epsilon: arb, claimed: fmpq) -> tuple[arb, arb | None]:
        """Return an upper and a lower bound of the largest H(ε)."""
        self.theorems = (SOURCE,)
        upper, lower = ZERO, ZERO
        for one in self.choices:
            above, below = one.at(epsilon, claimed)
            upper = upper.max(above)
            lower = lower if below is None else lower.max(below)
            if not above <= claimed:
                # one that is not shown is enough, and those after it are not looked at
                return ONE, lower
        return upper, lower


def step_of(curve: Curve, mass: arb, size: int) -> int:
    """Return the exponent of a lattice that holds one release in half of the points."""
    low, high = laws.reach(curve, mass)
    return max(-60, math.frexp(max(high - low, 2.0**-40) * 2.0 / size)[1])


def alike(parts: Sequence[tuple[int, Both]]) -> list[tuple[int, Both]]:
    """Return parts whose orders agree: the upper envelope of both orders where they do not."""
    orders = {(both.order, len(both.curves)) for _, both in parts if len(both.curves) > 1}
    # the sampled sample of an asymmetric pair has more curves than orders: never one by one
    if len(orders) <= 1 and all(order for order, _ in orders):
        return list(parts)
    return [
        (count, both if len(both.curves) == 1 else replace(both, curves=(highest(both.curves),)))
        for count, both in parts
    ]


def failed(parts: Sequence[tuple[int, Both]]) -> list[tuple[int, Both]]:
    """Return parts with all that may give themselves away as one, the last: 1 − Π (1 − δ)."""
    kept, silent, attained = [], ONE, True
    for count, both in parts:
        curve = both.curves[0]
        if curve.fails is None:
            kept.append((count, both))
        else:
            silent, attained = silent * (ONE - curve.fails) ** count, attained and curve.attained
    if len(kept) < len(parts):
        (curve,) = failing(ONE - silent).curves
        kept.append((1, Both((replace(curve, attained=attained),))))
    return kept


def merged(parts: Sequence[tuple[int, Both]]) -> tuple[tuple[int, Both], ...]:
    """Return parts with all Gaussians as one: squares of μ add up exactly."""
    square, attained, rest = fmpq(0), True, []
    parts = failed(alike(parts))
    found = False
    for count, both in parts:
        known = both.curves[0].gaussian if len(both.curves) == 1 else None
        if known is None:
            rest.append((count, both))
        else:
            found, square = True, square + known * count
            attained = attained and both.curves[0].attained
    if not found or (square == 0 and rest):
        return tuple(rest)
    one = gaussian(square)
    curves = tuple(replace(curve, attained=attained) for curve in one.curves)
    return ((1, replace(one, curves=curves)), *rest)
