"""Laws of a loss on a lattice, in whole numbers over 2^bits, and of sums of losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flint import arb, fmpq, fmpz_poly

from tacit_check.balls import ONE, ZERO, integer_up, whole
from tacit_check.curves import Curve

# Nodes where a curve is evaluated: this share of a lattice near the middle, fewer outwards.
DENSE = 32
# Beyond it a loss is said to be infinite or lowest: its square root of a mass is nothing.
FARTHEST = 2.0**12


Law = TypeVar("Law")


@dataclass(frozen=True)
class LossLaw:
    """Masses of P on losses j 2^step, j = first, first + 1, …, in units of 2^−bits.

    Attributes:
        step: exponent of the lattice.
        first: index of the first point.
        masses: whole numbers; they may sum to more than 1 (an upper law) or less (a lower law).
        infinite: mass of an infinite loss.
        bits: of the unit.
        upper: whether every rounding goes up.
    """

    step: int
    first: int
    masses: list[int]
    infinite: int
    bits: int
    upper: bool = True


def reach(curve: Curve, mass: arb) -> tuple[float, float]:
    """Return losses between which all lies but a mass; good for a choice only."""

    def above(epsilon: float) -> arb:
        if curve.tails is not None:
            return curve.tails(arb(epsilon))[0]
        return curve.at(arb(epsilon))

    def below(epsilon: float) -> arb:
        if curve.tails is not None:
            return ONE - curve.tails(arb(epsilon))[0]
        # 1 − e^ε is what all pairs reach where P is never that much rarer
        return curve.at(arb(epsilon)) + arb(epsilon).expm1()

    # what gives itself away lies beyond every lattice
    infinite = above(FARTHEST)
    highest = _edge(lambda epsilon: above(epsilon) - infinite, mass, 1.0)
    if curve.most is not None:
        highest = min(highest, float(curve.most.upper()) * (1.0 + 2.0**-40))
    return _edge(below, mass, -1.0), highest


def _edge(missing: Callable[[float], arb], mass: arb, sign: float) -> float:
    # doubled until beyond, then halved eight times between
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


def nodes(low: int, high: int, dense: int = 256) -> list[int]:
    """Return lattice points from low to high: all near 0, every 2nd, 4th … farther out."""

    def outwards(end: int) -> list[int]:
        # the gap doubles with the distance: chords are long where little happens
        points, place = [], 0
        while place < end:
            place += 1 << max(0, (place // dense).bit_length())
            points.append(min(place, end))
        return points

    return [-one for one in reversed(outwards(-low))] + [0] + outwards(high)


def upper_law(curve: Curve, step: int, bits: int, mass: arb, size: int) -> LossLaw:
    """Connect the dots of H at lattice points: a law whose curve is nowhere lower.

    Between nodes γ_j = e^{s_j} the curve is convex in γ, so its chord lies above. The chords are
    the curve of masses ``p_j = (h_{j+1} − h_j)/(e^{g} − 1) − (h_j − h_{j−1})/(1 − e^{−g'})``, g and
    g' the gaps beside s_j, p_0 so that H(−∞) = 1, and h_n on an infinite loss; all rounded up.

    Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Section 4.
    """
    low, high = reach(curve, mass)
    unit = 2.0**step
    ends = min(int(low // unit), -1), max(int(-(-high // unit)), 1)
    points = nodes(*ends, size // DENSE)
    heights = [curve.at(arb(point) * arb(2) ** step) for point in points]
    masses = [0] * (points[-1] - points[0] + 1)
    # chords by gaps: 1/(e^g − 1) of the few gaps there are
    growth: dict[int, arb] = {}
    rises: list[arb] = []
    for left, right in zip(range(len(points)), range(1, len(points)), strict=False):
        gap = points[right] - points[left]
        if gap not in growth:
            growth[gap] = (arb(gap) * arb(2) ** step).expm1()
        rises.append((heights[right] - heights[left]) / growth[gap])
    for place, point in enumerate(points):
        after = rises[place] if place < len(rises) else ZERO
        if place == 0:
            # the chord from γ = 0, where H is 1
            held = after + ONE - heights[0]
        else:
            gap = point - points[place - 1]
            held = after - rises[place - 1] * (growth[gap] + ONE)
        masses[point - points[0]] = max(0, integer_up(held, bits))
    return LossLaw(step, points[0], masses, max(0, integer_up(heights[-1], bits)), bits)


def up(number: int, bits: int) -> int:
    """Return number/2^bits, rounded up."""
    return -((-number) >> bits)


def convolved(one: list[int], other: list[int], bits: int, *, upper: bool = True) -> list[int]:
    """Return the masses of a sum: exact in whole numbers, then each rounded to the safe side."""
    masses = (int(mass) for mass in (fmpz_poly(one) * fmpz_poly(other)).coeffs())
    return [up(mass, bits) if upper else mass >> bits for mass in masses]


def repeated(one: Law, count: int, add: Callable[[Law, Law, int], Law]) -> Law:
    """Return the law of a sum of ``count``, by binary powers.

    Args:
        one: the law of a single one.
        count: T >= 1.
        add: of two laws the law of the sum, told how many such sums the whole holds.
    """
    result, each = None, 1
    while True:
        if count // each % 2:
            result = one if result is None else add(result, one, 1)
        each *= 2
        if each > count:
            break
        one = add(one, one, count // each)
    assert result is not None
    return result


def add(one: LossLaw, other: LossLaw, cut: int, most: int) -> LossLaw:
    """Return the law of the sum of two independent losses, both on one lattice in the end."""
    # the finer one is made coarser
    while one.step < other.step:
        one = coarser(one)
    while other.step < one.step:
        other = coarser(other)
    masses = convolved(one.masses, other.masses, one.bits)
    # 1 − (1 − a)(1 − b), at most
    infinite = one.infinite + other.infinite - (one.infinite * other.infinite >> one.bits)
    law = trimmed(LossLaw(one.step, one.first + other.first, masses, infinite, one.bits), cut)
    while len(law.masses) > most:
        law = coarser(law)
    return law


def power(law: LossLaw, count: int, cut: int, most: int) -> LossLaw:
    """Return the law of a sum, which may cut a mass at either end and have so many points."""
    # what is cut of one of n alike sums is cut n times: every stage has the same share
    stages = 2 * count.bit_length()
    return repeated(law, count, lambda a, b, alike: add(a, b, cut // (alike * stages), most))


def trimmed(law: LossLaw, cut: int) -> LossLaw:
    """Cut up to a mass at either end: at the top to infinity, at the bottom up to what is kept."""
    masses = law.masses
    high, above = len(masses), 0
    while high > 1 and above + masses[high - 1] <= cut:
        high -= 1
        above += masses[high]
    low, below = 0, 0
    while low < high - 1 and below + masses[low] <= cut:
        below += masses[low]
        low += 1
    kept = masses[low:high]
    if law.upper:
        kept[0] += below
        return LossLaw(law.step, law.first + low, kept, law.infinite + above, law.bits)
    # a loss of a lower law may fall: the top to the last point kept, the bottom to nothing
    kept[-1] += above
    return LossLaw(law.step, law.first + low, kept, law.infinite, law.bits, upper=False)


def coarser(law: LossLaw) -> LossLaw:
    """Return an upper law on every second point: odd points spread, P and Q kept.

    A mass p at s becomes p u/(1 + u) at s − h and p/(1 + u) at s + h, u = e^{−h}: the mean of
    e^{−L} is kept, and (1 − e^{ε − L})+ is convex in it.
    """
    unit = (-(arb(2) ** law.step)).exp()
    share = integer_up(ONE / (ONE + unit), law.bits)
    rest = integer_up(unit / (ONE + unit), law.bits)
    odd = law.first % 2
    first = (law.first - odd) // 2
    last = (law.first + len(law.masses)) // 2
    found = [0] * (last - first + 1)
    for place, mass in enumerate(law.masses):
        point = law.first + place
        if point % 2 == 0:
            found[point // 2 - first] += mass
        elif mass:
            found[(point - 1) // 2 - first] += up(mass * rest, law.bits)
            found[(point + 1) // 2 - first] += up(mass * share, law.bits)
    return LossLaw(law.step + 1, first, found, law.infinite, law.bits)


def height(law: LossLaw, epsilon: arb) -> arb:
    """Return Σ p_j (1 − e^{ε − s_j})+ and the infinite mass, a ball."""
    unit = arb(2) ** law.step
    # the first point above ε: one more does not matter, for it counts max(·, 0)
    start = max(0, whole((epsilon / unit).mid().floor()) - law.first)
    if start >= len(law.masses):
        return arb(fmpq(law.infinite, 1 << law.bits))
    # Horner in e^{−h}: Σ p_j e^{−(s_j − s_start)}, in balls rounded to what counts
    shrink, total, mass_above = (-unit).exp(), ZERO, 0
    for mass in reversed(law.masses[start + 2 :]):
        total = total * shrink + mass
        mass_above += mass
    total = total * shrink * shrink
    place = arb(law.first + start) * unit
    value = mass_above - (epsilon - place).exp() * total
    for extra in (0, 1):
        if start + extra < len(law.masses):
            gain = -(epsilon - place - unit * extra).expm1()
            value += law.masses[start + extra] * gain.max(ZERO)
    return (value + law.infinite) / arb(2) ** law.bits
