"""Balls in bins: an average A of t likelihood ratios, spread on a lattice with its mean kept."""

from __future__ import annotations

from itertools import accumulate, pairwise

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, half_square_tail, integer_up, whole
from tacit_check.curves import Curve, Pair
from tacit_check.elementary import ADDED, gaussian, nothing
from tacit_check.laws import DENSE, Lattice, Law, nodes

# Points of a lattice, of little noise and of more; bits of a mass; what one ratio may have beyond
# the lattice; the largest distance at which equal steps hold both the bulk and the tail of a ratio.
MANY, FEW, BITS, BEYOND, FARTHEST = 1 << 17, 1 << 15, 160, 2.0**-44, 2
MOST_STEPS = 10**8


def random_allocation(exact: fmpq, steps: int) -> Pair | None:
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
    lattice = Averages(MANY if 2 * exact >= 1 else FEW, BITS, 1 << (BITS - 50))
    total = lattice.power(lattice.ratio(arb(exact).sqrt()), steps)
    return Pair(_curves(total, exact, steps), ADDED)


class Averages(Lattice):
    """Sums of numbers from 0 on; beyond every point lies the mean E max(value − last point, 0)."""

    def joined(self, one: arb, other: arb) -> arb:
        """Return the mean beyond of a sum: what either has beyond its last point adds up."""
        return one + other

    def trimmed(self, law: Law, cut: int) -> Law:
        """Cut the top where little is left: its excess joins the mean beyond."""
        masses, weight, excess = list(law.masses), 0, 0
        while len(masses) > 1 and excess + weight + masses[-1] <= cut:
            # one step lower, everything above it exceeds by one step more
            weight += masses.pop()
            excess += weight
        masses[-1] += weight
        beyond = arb(2) ** (law.step - self.bits) * excess
        return Law(law.step, 0, masses, law.beyond + beyond)

    def shares(self, _: int) -> tuple[int, int]:
        """Return halves: the mean is kept."""
        return 1 << (self.bits - 1), 1 << (self.bits - 1)

    def ratio(self, distance: arb) -> Law:
        """Return the law of one likelihood ratio X = e^{dz − d²/2}.

        By C(k) = E max(X − k, 0) = Φ(d₁) − k Φ(d₂), a convex function.
        """

        def excess(value: arb) -> arb:
            if not value > 0:
                return ONE
            middle = value.log() / distance
            near = half_square_tail(middle - distance * HALF)
            return near - value * half_square_tail(middle + distance * HALF)

        power = 1
        while not excess(arb(2) ** power) <= BEYOND:
            power += 1
        step = power - self.size.bit_length() + 2
        # connect the dots of C: slopes from −1 below 0 to nothing, p_j is what they differ by
        points = nodes(0, self.size // 2, self.size // DENSE)[1:]
        unit, masses = arb(2) ** step, [0] * (points[-1] + 1)
        calls = [excess(unit * point) for point in points]
        before = -ONE
        for place, (one, other) in enumerate(pairwise(points)):
            slope = (calls[place + 1] - calls[place]) / (unit * (other - one))
            masses[one] = max(0, integer_up(slope - before, self.bits))
            before = slope
        masses[-1] = max(0, integer_up(-before, self.bits))
        return Law(step, 0, masses, calls[-1])


def _curves(total: Law, exact: fmpq, steps: int) -> tuple[Curve, Curve]:
    # in a step that is known it is a shift; and A is at least the geometric mean, which is e^{−h}
    # times the ratio of a shift by d/√t
    plain, near = gaussian(exact).curves[0], gaussian(exact / steps).curves[0]
    lift = arb(exact * (steps - 1) / (2 * steps))
    # Σ p_j and Σ j p_j/t from either end: each value of a curve is two of these
    scale, unit = arb(2) ** BITS, arb(2) ** total.step / steps
    counts = [0, *accumulate(total.masses)]
    moments = [0, *accumulate(place * mass for place, mass in enumerate(total.masses))]

    def places(level: arb) -> set[int]:
        # the points where A crosses a level: of neighbours the larger value counts
        first = [whole(end.floor()) + 1 for end in ((level / unit).lower(), (level / unit).upper())]
        return {min(max(place, 0), len(total.masses)) for place in first}

    def forward(epsilon: arb) -> arb:
        # E max(A − γ, 0): Σ_{j >= J} p_j (jw/t − γ), the largest over J
        gamma, best = epsilon.exp(), ZERO
        for place in places(gamma):
            gain = unit * (moments[-1] - moments[place]) - gamma * (counts[-1] - counts[place])
            best = best.max(gain / scale)
        return (best + arb(total.beyond) / steps).min(plain.at(epsilon))

    def backward(epsilon: arb) -> arb:
        # E max(1 − γA, 0)
        gamma, best = epsilon.exp(), ZERO
        for place in places((-epsilon).exp()):
            best = best.max((counts[place] - gamma * unit * moments[place]) / scale)
        return best.min(near.at(epsilon - lift))

    return Curve(forward, attained=False), Curve(backward, attained=False)
