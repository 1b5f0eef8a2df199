"""Independent releases about one record together: by a closed form, else on a lattice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from flint import arb, fmpq

from tacit_check import laws
from tacit_check.balls import ONE, ZERO, Number, integer_down, largest
from tacit_check.curves import Curve, Pair, highest
from tacit_check.elementary import failing, gaussian
from tacit_check.lower import lower_bound

# (count, pair) of releases about one record.
Parts: TypeAlias = Sequence[tuple[int, Pair]]

# Points of a lattice: the first that shows the claim. Above the claim by more than the share beside
# them, four times the points hardly show it either; near the largest loss the first is coarse.
SIZES = ((1 << 13, 9.0), (1 << 15, 1.0), (1 << 17, 0.0))
# A lattice that shows most of several mechanisms to be no worse than claimed.
ROUGH = (1 << 10, 9.0)
# Points of a lattice that bounds from below, and how far above the claim it may refute it.
MOST_LOWER, DOUBT = 1 << 15, arb("1.01")
# Of δ: what may be cut at the ends, and the smallest δ that a success is known to.
CUT, SMALLEST = 2**-16, fmpq(1, 10**12)
SOURCE = "Doroshenko et al. (2022), Section 4: connect the dots; sums in whole numbers"


class Composed:
    """Releases about one record.

    Args:
        parts: (count, pair) of each.
        delta: the least δ that is asked for.
        sizes: points of lattices, and shares above a claim.
    """

    def __init__(
        self, parts: Parts, delta: fmpq, sizes: Sequence[tuple[int, float]] = SIZES
    ) -> None:
        self.sizes, self.parts = sizes, merged(parts)
        self.least = min(delta, fmpq(1, 10**4))
        self.theorems: tuple[str, ...] = ()
        self._laws: dict[tuple[int, int], tuple[laws.Law, int]] = {}

    @cached_property
    def alone(self) -> Pair | None:
        """The pair of all together, where it is that of one release."""
        return self.parts[0][1] if len(self.parts) == 1 and self.parts[0][0] == 1 else None

    @cached_property
    def attained(self) -> bool:
        """Whether some pair of inputs attains what is computed."""
        return all(curve.attained for _, pair in self.parts for curve in pair.curves)

    @cached_property
    def gaussian(self) -> fmpq | None:
        """μ² of all together, where all are Gaussian."""
        curves = self.alone.curves if self.alone else ()
        return curves[0].gaussian if len(curves) == 1 else None

    def summed(self, of: Callable[[Curve], Any]) -> Any:
        """Return the sum over releases of the larger in both orders; None where one is unknown."""
        total = None
        for count, pair in self.parts:
            found = [of(curve) for curve in pair.curves]
            if any(one is None for one in found):
                return None
            each = largest(found) * count
            total = each if total is None else total + each
        return total

    @cached_property
    def pure(self) -> Number | None:
        """A bound of the loss of all together; exact where that of each is."""
        exact: fmpq | None = self.summed(lambda curve: curve.pure)
        most: arb | None = self.summed(lambda curve: curve.most) if exact is None else None
        return most if exact is None else exact

    def exact(self, gamma: fmpq) -> fmpq | None:
        """Return H at γ = e^ε as a fraction, where one release has one."""
        ways = [curve.exact for curve in self.alone.curves] if self.alone else [None]
        known = [way(gamma) for way in ways if way is not None]
        return max(known) if len(known) == len(ways) else None

    def moment(self, order: fmpq) -> arb | None:
        """Return ln ∫ P^α Q^{1−α} of the worse order."""
        found: arb | None = self.summed(lambda one: one.renyi(order) if one.renyi else None)
        return found

    def at(self, epsilon: arb, claimed: fmpq) -> tuple[arb, arb | None]:
        """Return an upper and a lower bound of H(ε), worse order, sharp enough for a claim."""
        closed = self.closed(epsilon)
        if closed is not None:
            return closed, closed if self.attained else None
        self.theorems = (SOURCE,)
        upper, lower, limit = ONE, None, arb(claimed)
        for size, share in self.sizes:
            found = (self.law(way, size) for way in self.ways)
            upper = largest(laws.height(law, epsilon, bits) for law, bits in found)
            if upper <= limit:
                break
            if upper > limit * DOUBT or size == self.sizes[-1][0]:
                lower = self.lower(epsilon, min(size, MOST_LOWER))
            if upper > limit * (ONE + share) or (lower is not None and lower > limit):
                break
        return upper, lower

    def closed(self, epsilon: arb) -> arb | None:
        """Return H(ε) of one release, beside one that may give itself away; None of others."""
        chance = self.parts[-1][1].curves[0].fails if self.parts else None
        if not self.alone and (chance is None or len(self.parts) > 2 or self.parts[0][0] > 1):
            return None
        value = largest(curve.at(epsilon) for curve in self.parts[0][1].curves)
        # P = (1 − δ) P' + δ R, Q = (1 − δ) Q' + δ R': H = δ + (1 − δ) H', in either order
        return value if self.alone or chance is None else chance + (ONE - chance) * value

    def lower(self, epsilon: arb, size: int) -> arb | None:
        """Return a lower bound of H(ε) in the worse order; None where no pair attains it."""
        if not all(one.attained and one.tails for _, pair in self.parts for one in pair.curves):
            return None
        ways = [
            [(count, pair.curves[way % len(pair.curves)]) for count, pair in self.parts]
            for way in self.ways
        ]
        return largest(lower_bound(way, epsilon, self.least, size) for way in ways)

    def infinite(self) -> arb:
        """Return the mass of an infinite loss, at most."""
        return arb(self.summed(lambda curve: curve.at(arb(laws.FARTHEST)))).min(ONE)

    @property
    def ways(self) -> range:
        """Orders that are checked: two where a curve differs."""
        return range(max(len(pair.curves) for _, pair in self.parts))

    def law(self, way: int, size: int) -> tuple[laws.Law, int]:
        """Return the upper law of all together in one order, and its bits."""
        if (way, size) not in self._laws:
            total = sum(count for count, _ in self.parts)
            # 2^−bits: N T roundings stay below δ 2^−24
            bits = size.bit_length() + total.bit_length() + int(1 / self.least).bit_length() + 26
            # what one release may leave beyond its lattice, and what all may cut at the ends
            mass = arb(self.least) * arb(CUT)
            stages = sum(2 * count.bit_length() + 1 for count, _ in self.parts)
            lattice = laws.Lattice(size, bits, integer_down(mass, bits) // (2 * stages))
            found: laws.Law | None = None
            for count, pair in self.parts:
                curve = pair.curves[way % len(pair.curves)]
                one = laws.upper_law(lattice, curve, mass / total)
                one = lattice.power(one, count)
                found = one if found is None else lattice.add(found, one)
            assert found is not None
            self._laws[way, size] = found, bits
        return self._laws[way, size]


class Worst(Composed):
    """The worst of several mechanisms, of which the file does not say which it is.

    Args:
        choices: the parts of each.
        delta: the least δ that is asked for.
    """

    def __init__(self, choices: Sequence[Parts], delta: fmpq) -> None:
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

    def infinite(self) -> arb:
        """Return the mass of an infinite loss, at most."""
        return largest(one.infinite() for one in self.choices)


def alike(parts: Parts) -> Parts:
    """Return parts whose orders agree: the upper envelope of both orders where they do not."""
    orders = {(pair.order, len(pair.curves)) for _, pair in parts if len(pair.curves) > 1}
    # the sampled sample of an asymmetric pair has more curves than orders: never one by one
    if len(orders) <= 1 and all(order for order, _ in orders):
        return parts
    return [
        (count, pair if len(pair.curves) == 1 else Pair((highest(pair.curves),)))
        for count, pair in parts
    ]


def merged(parts: Parts) -> list[tuple[int, Pair]]:
    """Return parts with all Gaussians as one, the first, and all that may fail as one, the last.

    Squares of μ add up exactly, and nothing gives itself away with probability Π (1 − δ).
    """
    square, silent, rest = fmpq(0), ONE, []
    moved, failed = [], []
    for count, pair in alike(parts):
        curve = pair.curves[0]
        if curve.fails is not None:
            silent *= (ONE - curve.fails) ** count
            failed.append(curve.attained)
        elif curve.gaussian is not None and len(pair.curves) == 1:
            square += curve.gaussian * count
            moved.append(curve.attained)
        else:
            rest.append((count, pair))
    if moved and (square > 0 or not rest):
        rest.insert(0, (1, gaussian(square) if all(moved) else gaussian(square).bounding))
    if failed:
        shown = failing(ONE - silent)
        rest.append((1, shown if all(failed) else shown.bounding))
    return rest
