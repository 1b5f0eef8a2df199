"""Balls in bins: an average A of t likelihood ratios, spread on a lattice with its mean kept."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, half_square_tail, integer_up, whole
from tacit_check.curves import Both, Curve
from tacit_check.elementary import ADDED, gaussian, nothing
from tacit_check.laws import convolved, repeated

# Points of a lattice, of little noise and of more; bits of a mass; what one ratio may have beyond
# the lattice; the largest distance at which equal steps hold both the bulk and the tail of a ratio.
MANY, FEW, BITS, BEYOND, FARTHEST = 1 << 17, 1 << 15, 160, 2.0**-44, 2
MOST_STEPS = 10**8


def random_allocation(exact: fmpq, steps: int) -> Both | None:
    """(1/t) Σ N(d e_i, I) against N(0, I) and the other order, by d²; None where d is too large.

    With A = (1/t) Σ e^{d z_i − d²/2} under N(0, I): H = E max(A − γ, 0) and E max(1 − γA, 0). Both
    are convex in A: moving mass apart with its mean kept makes neither smaller.
    """
    if exact == 0:
        return nothing()
    if steps == 1:
        return gaussian(exact)
    if exact > FARTHEST * FARTHEST or steps > MOST_STEPS:
        return None
    total = repeated(
        _ratio(arb(exact).sqrt(), MANY if 2 * exact >= 1 else FEW),
        steps,
        lambda one, other, _: one.plus(other),
    )
    return Both(_curves(total, exact, steps), order=ADDED, theorems=(SOURCE,))


SOURCE = "Feldman and Shenfeld (2025), Section 3: the pair of balls in bins; convex order"


@dataclass(frozen=True)
class Spread:
    """Masses, over 2^BITS, at multiples of 2^step from 0 on, and a mean that lies beyond.

    Attributes:
        step: exponent of the lattice.
        masses: whole numbers.
        beyond: E max(value − last point, 0), a ball.
        most: points it may have.
    """

    step: int
    masses: list[int]
    beyond: arb
    most: int

    def plus(self, other: Spread) -> Spread:
        """Return the law of the sum of two independent values, on a lattice that holds it."""
        one = self
        while one.step < other.step:
            one = one.coarser()
        while other.step < one.step:
            other = other.coarser()
        masses = convolved(one.masses, other.masses, BITS)
        # Σ of a sum beyond: what either has beyond its last point is a mean, which adds up
        total = Spread(one.step, masses, one.beyond + other.beyond, one.most)
        while len(total.masses) > self.most:
            shorter = total.trimmed()
            total = shorter if len(shorter.masses) <= self.most else shorter.coarser()
        return total

    def trimmed(self) -> Spread:
        """Cut the top where little is left: its excess joins the mean beyond."""
        masses, unit = self.masses, arb(2) ** self.step
        last, weight, excess = len(masses) - 1, 0, 0
        limit = 1 << (BITS - 50)
        while last > self.most // 2 and excess + weight + masses[last] <= limit:
            # one step lower, everything above it exceeds by one step more
            weight += masses[last]
            excess += weight
            last -= 1
        kept = masses[: last + 1]
        kept[-1] += weight
        return Spread(self.step, kept, self.beyond + unit * excess / arb(2) ** BITS, self.most)

    def coarser(self) -> Spread:
        """Return every second point: an odd one gives half of its mass to either side."""
        masses = self.masses
        found = [0] * (len(masses) // 2 + 1)
        for place, mass in enumerate(masses):
            if place % 2 == 0:
                found[place // 2] += mass
            else:
                half = -(-mass // 2)
                found[place // 2] += half
                found[place // 2 + 1] += half
        return Spread(self.step + 1, found, self.beyond, self.most)


def _ratio(distance: arb, most: int) -> Spread:
    # p_j = (C_{j+1} − 2 C_j + C_{j−1})/w by C(k) = E max(X − k, 0) = Φ(d₁) − k Φ(d₂), X lognormal
    def excess(value: arb) -> arb:
        if not value > 0:
            return ONE
        middle = value.log() / distance
        near = half_square_tail(middle - distance * HALF)
        return near - value * half_square_tail(middle + distance * HALF)

    far, power = arb(2), 1
    while not excess(far) <= BEYOND:
        power += 1
        far = far * 2
    step = power - most.bit_length() + 2
    unit, points = arb(2) ** step, most // 2
    calls = [excess(unit * place) for place in range(points + 1)]
    masses = [ONE + (calls[1] - calls[0]) / unit]
    for place in range(1, points):
        masses.append((calls[place + 1] - 2 * calls[place] + calls[place - 1]) / unit)
    masses.append((calls[-2] - calls[-1]) / unit)
    return Spread(step, [max(0, integer_up(mass, BITS)) for mass in masses], calls[-1], most)


def _curves(total: Spread, exact: fmpq, steps: int) -> tuple[Curve, Curve]:
    # in a step that is known it is a shift; and A is at least the geometric mean, which is e^{−h}
    # times the ratio of a shift by d/√t
    plain, near = gaussian(exact).curves[0], gaussian(exact / steps).curves[0]
    lift = arb(exact * (steps - 1) / (2 * steps))
    # Σ p_j and Σ j p_j from either end: each value of a curve is two of these
    scale, unit = arb(2) ** BITS, arb(2) ** total.step
    counts = [0, *accumulate(total.masses)]
    moments = [0, *accumulate(place * mass for place, mass in enumerate(total.masses))]
    every, mean = counts[-1], moments[-1]
    beyond = total.beyond / steps

    def places(level: arb) -> set[int]:
        # the points where Aγ crosses 1: of neighbours the larger value counts
        found = level * steps / unit
        first = [whole(end.floor()) + 1 for end in (found.lower(), found.upper())]
        return {min(max(place, 0), len(total.masses)) for place in first}

    def forward(epsilon: arb) -> arb:
        # E max(A − γ, 0): Σ_{j >= J} p_j (jw/t − γ), the largest over J
        gamma = epsilon.exp()
        best = ZERO
        for place in places(gamma):
            gain = unit * (mean - moments[place]) / steps - gamma * (every - counts[place])
            best = best.max(gain / scale)
        return (best + beyond).min(plain.at(epsilon))

    def backward(epsilon: arb) -> arb:
        # E max(1 − γA, 0)
        gamma = epsilon.exp()
        best = ZERO
        for place in places((-epsilon).exp()):
            best = best.max((counts[place] - gamma * unit * moments[place] / steps) / scale)
        return best.min(near.at(epsilon - lift))

    return Curve(forward, attained=False), Curve(backward, attained=False)
