"""Laws on a lattice, in whole numbers over 2^bits, and of sums: a side of every rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flint import arb, fmpz_poly

from tacit_check.balls import ONE, ZERO, integer_up, largest, whole
from tacit_check.curves import Curve

# Nodes where a curve is evaluated: this share of a lattice near the middle, fewer outwards, and
# again this share where a curve is an integral.
DENSE, COSTLY = 32, 16
# Beyond it a loss is said to be infinite or lowest: its square root of a mass is nothing.
FARTHEST = 2.0**12


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
        bits: of the unit of masses.
        cut: mass that one sum may cut at either end.
    """

    def __init__(self, size: int, bits: int, cut: int) -> None:
        self.size, self.bits, self.cut = size, bits, cut

    def add(self, one: Law, other: Law, copies: int = 1) -> Law:
        """Return the law of a sum, of which the whole holds so many independent copies."""
        # the finer one is made coarser
        while one.step < other.step:
            one = self.coarser(one, copies)
        while other.step < one.step:
            other = self.coarser(other, copies)
        # exact in whole numbers, then each rounded to the safe side
        product = (fmpz_poly(one.masses) * fmpz_poly(other.masses)).coeffs()
        masses = [self.rounded(int(mass)) for mass in product] or [0]
        law = Law(one.step, one.first + other.first, masses, self.joined(one.beyond, other.beyond))
        law = self.trimmed(law, self.cut // copies)
        while len(law.masses) > self.size:
            law = self.coarser(law, copies)
        return law

    def power(self, one: Law, count: int) -> Law:
        """Return the law of a sum of ``count`` alike, by binary powers."""
        result, each = None, 1
        while True:
            if count // each % 2:
                result = one if result is None else self.add(result, one)
            each *= 2
            if each > count:
                break
            # what is cut or rounded of one of n alike sums is so n times
            one = self.add(one, one, count // each)
        assert result is not None
        return result

    def rounded(self, product: int) -> int:
        """Return a product of two masses in units, rounded up."""
        return -((-product) >> self.bits)

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
        own = integer_up(ONE / (ONE + unit), self.bits)
        return integer_up(unit / (ONE + unit), self.bits), own


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


def height(law: Law, epsilon: arb, bits: int) -> arb:
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

    # the largest of all events is that of the points above ε: of those that its ball leaves open
    open_to = {whole(end.floor()) + 1 for end in (place.lower(), place.upper())}
    return (largest(map(event, open_to)) + arb(law.beyond)) / arb(2) ** bits


def reach(curve: Curve, mass: arb) -> tuple[float, float]:
    """Return losses between which all lies but a mass; good for a choice only."""

    def above(epsilon: float) -> arb:
        return (curve.tails(arb(epsilon))[0] if curve.tails else curve.at(arb(epsilon))) - infinite

    def below(epsilon: float) -> arb:
        if curve.tails is not None:
            return ONE - curve.tails(arb(epsilon))[0]
        # 1 − e^ε is what all pairs reach where P is never that much rarer
        return curve.at(arb(epsilon)) + arb(epsilon).expm1()

    # what gives itself away lies beyond every lattice
    infinite = ZERO
    infinite = above(FARTHEST)
    highest = _edge(above, mass, 1.0)
    if curve.most is not None:
        highest = min(highest, float(curve.most.upper()) * (1.0 + 2.0**-40))
    return _edge(below, mass, -1.0), highest


def _edge(missing: Callable[[float], arb], mass: arb, sign: float) -> float:
    # doubled until beyond, then halved six times between
    far = 2.0**-30
    while not missing(sign * far) <= mass:
        far *= 2.0
        if far > FARTHEST:
            return sign * FARTHEST
    near = far / 2.0
    for _ in range(6):
        middle = (near + far) / 2.0
        near, far = (near, middle) if missing(sign * middle) <= mass else (middle, far)
    return sign * far


def fitted(curve: Curve, mass: arb, size: int) -> tuple[int, float, float]:
    """Return the exponent of a lattice that holds one release in half of the points, and ends."""
    low, high = reach(curve, mass)
    step = max(-60, math.frexp(max(high - low, 2.0**-40) * 2.0 / size)[1])
    return step, low / 2.0**step, high / 2.0**step


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


def upper_law(lattice: Lattice, curve: Curve, mass: arb) -> Law:
    """Connect the dots of H at lattice points: a law whose curve is nowhere lower.

    Between nodes γ_j = e^{s_j} the curve is convex in γ, so its chord lies above. The chords are
    the curve of masses ``p_j = (h_{j+1} − h_j)/(e^{g} − 1) − (h_j − h_{j−1})/(1 − e^{−g'})``, g and
    g' the gaps beside s_j, p_0 so that H(−∞) = 1, and h_n on an infinite loss; all rounded up.

    Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Section 4.
    """
    step, low, high = fitted(curve, mass, lattice.size)
    dense = lattice.size // DENSE // (COSTLY if curve.costly else 1)
    points, unit = nodes(low, high, dense), arb(2) ** step
    heights = [curve.at(unit * point) for point in points]
    masses = [0] * (points[-1] - points[0] + 1)
    # chords by gaps: e^g − 1 of the few gaps there are; from γ = 0, where H is 1
    growth: dict[int, arb] = {}
    before = heights[0] - ONE
    for place, point in enumerate(points[:-1]):
        gap = points[place + 1] - point
        if gap not in growth:
            growth[gap] = (unit * gap).expm1()
        rise = (heights[place + 1] - heights[place]) / growth[gap]
        masses[point - points[0]] = max(0, integer_up(rise - before, lattice.bits))
        before = rise * (growth[gap] + ONE)
    masses[-1] = max(0, integer_up(-before, lattice.bits))
    infinite = max(0, integer_up(heights[-1], lattice.bits))
    return Law(step, points[0], masses, infinite)
