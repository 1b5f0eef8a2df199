"""Balls in bins: an average A of t likelihood ratios, spread on a lattice with its mean kept."""

from itertools import accumulate

from flint import arb, fmpq

from tacit_check.balls import ONE, floors, largest
from tacit_check.curves import Curve, Pair
from tacit_check.elementary import ADDED, gaussian
from tacit_check.laws import DENSE, Lattice, Law, nodes

# Points of a lattice, of little noise and of more; the δ that it is built for, and what one ratio
# may have beyond it; the largest distance at which equal steps hold both the bulk and the tail of
# a ratio.
MANY, FEW, LEAST, BEYOND, FARTHEST = 1 << 17, 1 << 15, fmpq(1, 1 << 34), 2.0**-44, 2
MOST_STEPS = 10**8


def random_allocation(square: fmpq, steps: int) -> Pair | str:
    """(1/t) Σ N(d e_i, I) against N(0, I) and the other order, by d²; why not where d is too large.

    With A = (1/t) Σ e^{d z_i − d²/2} under N(0, I): H = E max(A − γ, 0) and E max(1 − γA, 0). Both
    are convex in A: moving mass apart with its mean kept makes neither smaller.
    """
    if steps == 1:
        return gaussian(square)
    if square > FARTHEST * FARTHEST or steps > MOST_STEPS:
        return "random-allocation: less noise or more steps than a lattice holds"
    lattice = Averages(MANY if 2 * square >= 1 else FEW, steps, LEAST)
    total = lattice.power(lattice.ratio(gaussian(square).curves[0]), steps)
    return Pair(_curves(lattice, total, square), ADDED)


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

    def ratio(self, curve: Curve) -> Law:
        """Return the law of one likelihood ratio X = e^{dz − d²/2}.

        By E max(X − k, 0) = H(ln k) of a shift by d, a convex function of k.
        """
        power = 1
        while not curve.at(arb(2).log() * power) <= BEYOND:
            power += 1
        step = power - self.size.bit_length() + 2
        # connect the dots from E X = 1 at 0: slopes from −1 to nothing
        points = nodes(0, self.size // 2, self.size // DENSE)[1:]
        places = [arb(2) ** step * point for point in points]
        excess = [ONE, *(curve.at(place.log()) for place in places[1:])]
        masses = self.dots(points, places, excess, -ONE, [ONE] * len(points))
        return Law(step, 0, masses, excess[-1])


def _curves(lattice: Lattice, total: Law, square: fmpq) -> tuple[Curve, Curve]:
    # in a step that is known it is a shift; and A is at least the geometric mean, which is e^{−h}
    # times the ratio of a shift by d/√t
    steps = lattice.count
    plain, near = gaussian(square).curves[0], gaussian(square / steps).curves[0]
    lift = arb(square * (steps - 1) / (2 * steps))
    # Σ p_j and Σ j p_j/t up to a point: each value of a curve is two of these
    scale, unit = arb(2) ** lattice.bits, arb(2) ** total.step / steps
    counts = [0, *accumulate(total.masses)]
    moments = [0, *accumulate(place * mass for place, mass in enumerate(total.masses))]

    def beside(level: arb, above: bool) -> arb:
        # Σ p_j |jw/t − a|/2^bits over points on one side of a level a, the largest over events
        places = [min(max(one + 1, 0), len(counts) - 1) for one in floors(level / unit)]
        mean, mass = (moments[-1], counts[-1]) if above else (0, 0)
        gains = (unit * (mean - moments[at]) - level * (mass - counts[at]) for at in places)
        return largest(gains) / scale

    def forward(epsilon: arb) -> arb:
        # E max(A − γ, 0)
        excess = beside(epsilon.exp(), above=True) + arb(total.beyond) / steps
        return excess.min(plain.at(epsilon))

    def backward(epsilon: arb) -> arb:
        # E max(1 − γA, 0)
        return (epsilon.exp() * beside((-epsilon).exp(), above=False)).min(near.at(epsilon - lift))

    return Curve(forward, attained=False), Curve(backward, attained=False)
