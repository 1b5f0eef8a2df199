"""Lower bounds of a composition: losses in bins, gathered on a lattice, and how far that went."""

from collections.abc import Iterable
from itertools import pairwise

from flint import arb, fmpz, fmpz_poly

from tacit_check.balls import HALF, ONE, ZERO, integer_down
from tacit_check.curves import Curve
from tacit_check.laws import Lattice, Law, ends, fitted, nodes

# Bins about the middle of a law.
DENSE = 1024


class Gathered(Lattice):
    """Sums of losses that are gathered in bins, and a bound of what gathering gave to them.

    A bin loses something and so bounds from below; its loss ln(P_j/Q_j) is near its middle, a
    lattice point, and goes there. With e the loss before less that after, S = S' + Σ e and

        H(ε) >= E (1 − e^{ε + η − S'})+ − P(Σ e < −η).

    For n independent e in an interval of length w the probability is 0 at η = −n min e, and by
    Hoeffding's inequality at most e^{−2t²/(n w²)} at η = t − n E e: of each ``mass`` here.
    """

    # Σ η, and the probabilities together
    shift, missed = ZERO, ZERO

    def gathered(self, step: int, cells: Iterable[tuple[int, arb]], copies: int) -> Law:
        """Put masses at losses, in units of 2^step, on whole ones, in so many independent sums."""
        found: dict[int, int] = {}
        # what is dropped has e = 0
        least = most = mean = ZERO
        for held, loss in cells:
            point = integer_down(loss + HALF, 0)
            found[point] = found.get(point, 0) + held
            error = loss - point
            least, most, mean = least.min(error), most.max(error), mean + error * held
        unit = arb(2) ** step
        surely = -unit * least * copies
        width = unit * (most - least)
        likely = width * (-self.mass.log() * HALF * copies).sqrt()
        likely -= unit * mean / arb(2) ** self.bits * copies
        if likely < surely:
            self.missed += self.mass
        self.shift += likely if likely < surely else surely
        first = min(found, default=0)
        masses = [found.get(point, 0) for point in range(first, max(found, default=0) + 1)]
        return Law(step, first, masses)

    def of(self, curve: Curve, copies: int) -> Law:
        """Return the gathered law of one release, of which there are so many."""
        assert curve.tails is not None
        step, low, high = fitted(curve, self.mass / copies, self.size)
        unit, cells = arb(2) ** step, []
        # every bin is an even number of points long: a lattice point is its middle
        points = [2 * point for point in nodes(low / 2, high / 2, DENSE)]
        sums = [curve.tails(unit * point) for point in points]
        for place, (above, below) in enumerate(pairwise(sums)):
            own, other = above[0] - below[0], above[1] - below[1]
            held = integer_down(own, self.bits)
            if held > self.cut // copies:
                loss = (own / other).log() / unit if other > 0 else arb.nan()
                # at least that of its lower end, and where nothing else is known that
                cells.append((held, loss if loss.is_finite() else arb(points[place])))
        # what lies above the last point falls there
        cells.append((max(0, integer_down(sums[-1][0], self.bits)), arb(points[-1])))
        return self.gathered(step, cells, copies)

    def coarser(self, law: Law, copies: int) -> Law:
        """Gather the points 4k − 1, 4k and 4k + 1 at their common loss; 4k + 2 stays."""
        unit, cells = arb(2) ** law.step, []
        grow, held = unit.exp(), dict(enumerate(law.masses, law.first))
        for point in range(law.first // 2 * 2, law.first + len(law.masses) + 1, 2):
            near = [held.get(point + one, 0) for one in (-1, 0, 1)]
            left, own, right = near if point % 4 == 0 else (0, near[1], 0)
            total = left + own + right
            if total > self.cut // copies:
                # Σ p_j e^{−s_j} is kept
                mean = left * grow + own + right / grow
                cells.append((total, (arb(point) - (mean / total).log() / unit) / 2))
        return self.gathered(law.step + 1, cells, copies)

    def rounded(self, product: int) -> int:
        """Return a product of two masses in units, rounded down."""
        return product >> self.bits

    def shortened(self, products: fmpz_poly) -> fmpz_poly:
        """Return products of two masses in units, none negative, each rounded down."""
        return products // (fmpz(1) << self.bits)

    def trimmed(self, law: Law, cut: int) -> Law:
        """Drop a mass at either end."""
        low, high, *_ = ends(law.masses, cut)
        return Law(law.step, law.first + low, law.masses[low:high])

    def height(self, law: Law, epsilon: arb) -> arb:
        """Return a lower bound of H(ε) of what is gathered in a law."""
        found = super().height(law, arb((epsilon + self.shift).upper())) - self.missed
        return arb(found.lower()).max(ZERO).min(ONE)
