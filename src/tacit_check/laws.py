"""Laws on a lattice, in whole numbers over 2^bits, and of sums: a side of every rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from flint import arb, fmpq, fmpz, fmpz_poly

from tacit_check.balls import ONE, ZERO, floors, integer_down, integer_up, largest
from tacit_check.curves import Curve, Parts

Balls = Sequence[arb]
# Nodes where a curve is evaluated: this share of a lattice near the middle, fewer outwards.
DENSE = 32
# Beyond it a loss is said to be infinite or lowest: its square root of a mass is nothing.
FARTHEST = 2.0**12
# Of δ: what may be cut at the ends; bits beside those that N T roundings and 1/δ take.
CUT, SPARE = 2**-16, 40


@dataclass(frozen=True)
class Law:
    """Masses at j 2^step, j = first, first + 1, …, in units of 2^−bits.

    Attributes:
        step: exponent of the lattice.
        first: index of the first point.
        masses: whole numbers; they may sum to more than 1 (an upper law) or less (a lower law).
        beyond: what lies above every point: the mass of an infinite loss, or a mean.
    """

    step: int
    first: int
    masses: list[int]
    beyond: Any = 0


class Lattice:
    """Sums of independent numbers: an upper bound of every convex and rising function of them.

    Args:
        size: points that a law may have.
        count: numbers that are summed.
        least: the least δ that is asked for.
    """

    def __init__(self, size: int, count: int, least: fmpq) -> None:
        digits = size.bit_length() + count.bit_length() + int(1 / least).bit_length()
        self.size, self.count, self.bits = size, count, digits + SPARE
        # left to what is beyond the lattice; what one sum may cut at either end
        self.mass = arb(least) * arb(CUT)
        self.cut = integer_down(self.mass, self.bits) // size

    def together(self, parts: Parts, way: int) -> Law:
        """Return the law of independent releases in one of their orders."""
        curves = ((pair.curves[way % len(pair.curves)], many) for many, pair in parts)
        return reduce(self.add, (self.power(self.of(one, many), many) for one, many in curves))

    def power(self, one: Law, count: int) -> Law:
        """Return the law of a sum of ``count`` alike, by binary powers."""
        powers: list[Law] = []
        while count:
            powers += [one] * (count % 2)
            count //= 2
            # what is cut or rounded of one of n alike sums is so n times
            one = self.add(one, one, count) if count else one
        # the finer ones first: what is made coarser is few sums
        return reduce(self.add, powers)

    def add(self, one: Law, other: Law, copies: int = 1) -> Law:
        """Return the law of a sum, of which the whole holds so many independent copies."""
        # the finer one is made coarser
        while one.step < other.step:
            one = self.coarser(one, copies)
        while other.step < one.step:
            other = self.coarser(other, copies)
        # exact in whole numbers, then each rounded to the safe side
        product = fmpz_poly(one.masses) * fmpz_poly(other.masses)
        masses: list[Any] = self.shortened(product).coeffs() or [0]
        law = Law(one.step, one.first + other.first, masses, self.joined(one.beyond, other.beyond))
        law = self.trimmed(law, self.cut // copies)
        while len(law.masses) > self.size:
            law = self.coarser(law, copies)
        return law

    def of(self, curve: Curve, _: int) -> Law:
        """Connect the dots of H at lattice points: a law whose curve is nowhere lower.

        Between nodes γ_j = e^{s_j} the curve is convex in γ, so its chord lies above; from γ = 0,
        where H is 1, too. The chords are the curve of masses p_j = γ_j times what slopes differ by,
        and what is left at the last node on an infinite loss.

        Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Section 4.
        """
        step, low, high = fitted(curve, self.mass / self.count, self.size)
        # of an integral as many as the root of what a lattice has, which is twice at four times
        points = nodes(low, high, math.isqrt(2 * self.size) if curve.costly else self.size // DENSE)
        places = [arb(2) ** step * point for point in points]
        levels, heights = [place.exp() for place in places], list(map(curve.at, places))
        masses = self.dots(points, levels, heights, (heights[0] - ONE) / levels[0], levels)
        return Law(step, points[0], masses, max(0, integer_up(heights[-1], self.bits)))

    def dots(
        self, points: list[int], levels: Balls, heights: Balls, before: arb, weights: Balls
    ) -> list[int]:
        """Return masses, rounded up: weights times what slopes differ by, a slope before all."""
        pairs = zip(pairwise(heights), pairwise(levels), strict=True)
        slopes = [before, *((b - a) / (y - x) for (a, b), (x, y) in pairs), ZERO]
        masses = [0] * (points[-1] - points[0] + 1)
        for point, weight, (one, other) in zip(points, weights, pairwise(slopes), strict=True):
            masses[point - points[0]] = max(0, integer_up(weight * (other - one), self.bits))
        return masses

    def rounded(self, product: int) -> int:
        """Return a product of two masses in units, rounded up."""
        return -((-product) >> self.bits)

    def shortened(self, products: fmpz_poly) -> fmpz_poly:
        """Return products of two masses in units, none negative, each rounded up.

        ``//`` leaves what is smaller than the divisor at 0 and is the floor of all else: the floor
        of what is not negative.
        """
        return (products + fmpz_poly([2**self.bits - 1] * len(products))) // fmpz(2**self.bits)

    def joined(self, one: Any, other: Any) -> Any:
        """Return the mass beyond of a sum: 1 − (1 − a)(1 − b), at most."""
        return one + other - (one * other >> self.bits)

    def trimmed(self, law: Law, cut: int) -> Law:
        """Cut a mass at either end: at the top it goes beyond, at the bottom up to what is kept."""
        low, high, above, below = ends(law.masses, cut)
        kept = law.masses[low:high]
        kept[0] += below
        return Law(law.step, law.first + low, kept, law.beyond + above)

    def coarser(self, law: Law, _: int) -> Law:
        """Return a law on every second point: what lies at odd points moves to either side."""
        down, up = self.shares(law.step)
        first = law.first // 2
        found = [0] * ((law.first + len(law.masses)) // 2 - first + 1)
        for point, mass in enumerate(law.masses, law.first):
            if point % 2 == 0:
                found[point // 2 - first] += mass
            elif mass:
                found[point // 2 - first] += self.rounded(mass * down)
                found[point // 2 + 1 - first] += self.rounded(mass * up)
        return Law(law.step + 1, first, found, law.beyond)

    def shares(self, step: int) -> tuple[int, int]:
        """Return what of a mass at s goes to s − h and to s + h.

        u/(1 + u) and 1/(1 + u), u = e^{−h}, keep the mean of e^{−L}, in which (1 − e^{ε − L})+ is
        convex.
        """
        unit = (-(arb(2) ** step)).exp()
        share = ONE / (ONE + unit)
        return integer_up(unit * share, self.bits), integer_up(share, self.bits)

    def height(self, law: Law, epsilon: arb) -> arb:
        """Return Σ p_j (1 − e^{ε − s_j})+ of a law of losses, and the mass beyond, a ball."""
        unit = arb(2) ** law.step
        shrink, place = (-unit).exp(), epsilon / unit

        def event(first: int) -> arb:
            # Σ p_j (1 − e^{ε − s_j}) of j >= first, by Horner in e^{−h}
            start, total = max(0, first - law.first), ZERO
            for mass in reversed(law.masses[start:]):
                total = total * shrink + mass
            gain = (epsilon - unit * (law.first + start)).exp() * total
            return arb(sum(law.masses[start:])) - gain

        # the largest of all events is that of the points above ε: of those that its ball leaves
        # open
        events = [event(one + 1) for one in floors(place)]
        return (largest(events) + arb(law.beyond)) / arb(2) ** self.bits


def ends(masses: list[int], cut: int) -> tuple[int, int, int, int]:
    """Return the range that is left, and the masses above and below it, each at most a cut."""
    low, high, above, below = 0, len(masses), 0, 0
    while high > 1 and above + masses[high - 1] <= cut:
        high -= 1
        above += masses[high]
    while low < high - 1 and below + masses[low] <= cut:
        below += masses[low]
        low += 1
    return low, high, above, below


def fitted(curve: Curve, mass: arb, size: int) -> tuple[int, float, float]:
    """Return the exponent of a lattice that holds one release in half of the points, and its ends.

    What gives itself away lies beyond every lattice, and 1 − e^ε is what all pairs reach where P is
    never that much rarer: between the ends lies all of a curve but a mass. Good for a choice only.
    """

    def above(place: arb) -> arb:
        return curve.tails(place)[0] if curve.tails else curve.at(place)

    def below(place: arb) -> arb:
        return ONE - above(place) if curve.tails else curve.at(place) + place.expm1()

    infinite = above(arb(FARTHEST))
    low, high = _edge(below, mass, -1.0), _edge(lambda place: above(place) - infinite, mass, 1.0)
    step = max(-60, math.frexp(max(high - low, 2.0**-40) * 2.0 / size)[1])
    return step, low / 2.0**step, high / 2.0**step


def _edge(missing: Callable[[arb], arb], mass: arb, sign: float) -> float:
    # doubled until beyond, then halved six times between
    far = 2.0**-30
    while far <= FARTHEST and not missing(arb(sign * far)) <= mass:
        far *= 2.0
    near, far = far / 2.0, min(far, FARTHEST)
    for _ in range(6):
        middle = (near + far) / 2.0
        near, far = (near, middle) if missing(arb(sign * middle)) <= mass else (middle, far)
    return sign * far


def nodes(low: float, high: float, dense: int) -> list[int]:
    """Return lattice points from low to high: all near 0, every 2nd, 4th … farther out."""

    def outwards(end: int) -> list[int]:
        # the gap doubles with the distance: chords are long where little happens
        points, place = [], 0
        while place < end:
            place += 1 << (place // dense).bit_length()
            points.append(place)
        return points

    ways = [outwards(max(1, math.ceil(end))) for end in (-low, high)]
    return [-one for one in reversed(ways[0])] + [0] + ways[1]
