"""Independent releases about one record together: by a closed form, else on a lattice."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from flint import arb, fmpq

from tacit_check.balls import ONE, ZERO, Number, largest, require
from tacit_check.curves import Curve, Pair, Parts, highest
from tacit_check.elementary import failing, gaussian
from tacit_check.laws import FARTHEST, Lattice, Law
from tacit_check.lower import Gathered

# Points of a lattice: the first that shows the claim. Above the claim by more than the share beside
# them, four times the points hardly show it either; near the largest loss the first is coarse.
Sizes = tuple[tuple[int, float], ...]
SIZES: Sizes = ((1 << 13, 9.0), (1 << 15, 1.0), (1 << 17, 0.0))
# A lattice that shows most of several mechanisms to be no worse than claimed.
ROUGH = (1 << 10, 9.0)
# Points of a lattice that bounds from below, and how far above the claim it may refute it;
# mechanisms that are each put on a lattice.
MOST_LOWER, DOUBT, MOST_APART = 1 << 15, arb("1.01"), 256
# The δ that lattices are built for: balls hold no smaller one, and fewer points no larger one.
SMALLEST, LARGEST = fmpq(1, 1 << 256), fmpq(1, 10**4)
SOURCE = "Doroshenko et al. (2022), Section 4: connect the dots; sums in whole numbers"


class Composed:
    """Releases about one record.

    Args:
        parts: (count, pair) of each.
        delta: the least δ that is asked for.
        sizes: points of lattices, and shares above a claim.
    """

    def __init__(self, parts: Parts, delta: fmpq, sizes: Sizes = SIZES) -> None:
        self.sizes, self.parts = sizes, merged(parts)
        self.least = max(SMALLEST, min(delta, LARGEST))
        # two orders where a curve differs
        self.orders = range(max((len(pair.curves) for _, pair in self.parts), default=0))
        self.theorems: tuple[str, ...] = ()
        self._laws: dict[Any, list[tuple[Lattice, Law]]] = {}
        # whether some pair of inputs attains what is computed
        self.attained = all(curve.attained for _, pair in parts for curve in pair.curves)
        curves = [curve for _, pair in self.parts for curve in pair.curves]
        self.known = self.attained and all(curve.tails for curve in curves)
        # the curves of all, where they are those of one release, and μ², where all are Gaussian
        self.alone = curves if [count for count, _ in self.parts] == [1] else []
        self.gaussian = self.alone[0].gaussian if len(self.alone) == 1 else None

    def summed(self, of: Callable[[Curve], Number | None]) -> Number | None:
        """Return the sum over releases in the worse order of all; None where one is unknown."""
        found: Any = [(count, [*map(of, pair.curves)]) for count, pair in self.parts]
        if not found or any(None in known for _, known in found):
            return None
        sums = ([n * known[way % len(known)] for n, known in found] for way in self.orders)
        return largest(sum(some, fmpq(0)) for some in sums)

    @cached_property
    def pure(self) -> Number | None:
        """A bound of the loss of all together; exact where that of each is."""
        return self.summed(lambda curve: curve.most)

    def moment(self, order: fmpq) -> Number | None:
        """Return ln ∫ P^α Q^{1−α} of the worse order."""
        return self.summed(lambda one: one.renyi(order) if one.renyi else None)

    def at(self, gamma: fmpq | None, epsilon: arb, claimed: fmpq) -> tuple[Number, Number | None]:
        """Return an upper and a lower bound of H(ε), worse order, sharp enough for a claim.

        Args:
            gamma: e^ε where it is a fraction.
            epsilon: ε.
            claimed: what H is said to be at most.
        """
        closed = self.closed(gamma, epsilon)
        if closed is not None:
            return closed, closed if self.attained else None
        self.theorems = (SOURCE,)
        upper, lower, limit = ONE, None, arb(claimed)
        for size, share in self.sizes:
            upper = self.on(Lattice, size, epsilon)
            if upper <= limit:
                break
            if self.known and (upper > limit * DOUBT or size == self.sizes[-1][0]):
                lower = self.on(Gathered, min(size, MOST_LOWER), epsilon)
            if upper > limit * (ONE + share) or (lower is not None and lower > limit):
                break
        return upper, lower

    def closed(self, gamma: fmpq | None, epsilon: arb) -> Number | None:
        """Return H(ε) of one release, beside one that may give itself away; None of others."""
        ways = [curve.exact for curve in self.alone]
        if gamma is not None and ways and all(ways):
            return max(way(gamma) for way in ways if way)
        if self.pure is not None and self.pure <= epsilon:
            return fmpq(0)
        chance = self.parts[-1][1].curves[0].fails if self.parts else None
        if not self.alone and (chance is None or [one for one, _ in self.parts] != [1, 1]):
            return None
        value: arb = largest(curve.at(epsilon) for curve in self.parts[0][1].curves)
        # P = (1 − δ) P' + δ R, Q = (1 − δ) Q' + δ R': H = δ + (1 − δ) H', in either order
        return value if self.alone or chance is None else chance + (ONE - chance) * value

    def infinite(self) -> arb:
        """Return the mass of an infinite loss, at most."""
        return arb(self.summed(lambda curve: curve.at(arb(FARTHEST))) or ZERO).min(ONE)

    def on(self, side: type[Lattice], size: int, epsilon: arb) -> arb:
        """Return a bound of H(ε) of the worse order, from above or below, on so many points."""
        require(len(self.parts) <= MOST_APART, f"composition: at most {MOST_APART} different parts")
        key, total = (side, size), sum(count for count, _ in self.parts)
        if key not in self._laws:
            made = ((way, side(size, total, self.least)) for way in self.orders)
            self._laws[key] = [(one, one.together(self.parts, way)) for way, one in made]
        return largest(lattice.height(law, epsilon) for lattice, law in self._laws[key])


class Worst(Composed):
    """The worst of several mechanisms, of which the file does not say which it is.

    Args:
        choices: the parts of each.
        delta: the least δ that is asked for.
    """

    def __init__(self, choices: Sequence[Parts], delta: fmpq) -> None:
        super().__init__((), delta)
        self.choices = [Composed(parts, delta, (ROUGH, *SIZES)) for parts in choices]

    def at(self, gamma: fmpq | None, epsilon: arb, claimed: fmpq) -> tuple[Number, Number | None]:
        """Return an upper and a lower bound of the largest H(ε)."""
        self.theorems = (SOURCE,)
        upper: Number = ZERO
        lower: Number = ZERO
        for one in self.choices:
            above, below = one.at(gamma, epsilon, claimed)
            upper, lower = largest([upper, above]), largest([lower, below or ZERO])
            if not above <= claimed:
                # one that is not shown is enough, and those after it are not looked at
                return ONE, lower
        return upper, lower

    def infinite(self) -> arb:
        return largest(one.infinite() for one in self.choices)


def alike(parts: Parts) -> Parts:
    """Return parts whose orders agree: the upper envelope of both orders where they do not."""
    orders = {(pair.order, len(pair.curves)) for _, pair in parts if len(pair.curves) > 1}
    # where one order is not said, it may be either
    if len(orders) <= 1 and all(order for order, _ in orders):
        return parts
    return [(count, Pair((highest(pair.curves),))) for count, pair in parts]


def merged(parts: Parts) -> list[tuple[int, Pair]]:
    """Return parts with all Gaussians as one, the first, and all that may fail as one, the last.

    Squares of μ add up exactly, and nothing gives itself away with probability Π (1 − δ).
    """
    square: Number = fmpq(0)
    silent, rest, fails = ONE, [], False
    for count, pair in alike(parts):
        curve = pair.curves[0]
        if curve.fails is not None:
            silent, fails = silent * (ONE - curve.fails) ** count, True
        elif curve.gaussian is not None and len(pair.curves) == 1:
            square += curve.gaussian * count
        else:
            rest.append((count, pair))
    moved = [(1, gaussian(square))] if square != 0 or (parts and not rest) else []
    return moved + rest + ([(1, failing(ONE - silent))] if fails else [])
