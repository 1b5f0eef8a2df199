"""Lower bounds of a composition: losses in bins, rounded to a lattice, and how far that went."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, integer_down, whole
from tacit_check.curves import Curve
from tacit_check.laws import LossLaw, convolved, height, nodes, reach, repeated, trimmed


class Rounded:
    """Sums of rounded losses, and a bound of what rounding took from or gave to them.

    A release is put in bins {s_j < L <= s_{j+1}}, which loses something and so bounds from below;
    the loss of a bin, ln(P_j/Q_j), goes to the nearest lattice point. With e the loss before less
    that after, S >= S' + Σ e and

        H(ε) >= E (1 − e^{ε + η − S'})+ − P(Σ e < −η),

    the probability by Hoeffding's inequality: at most e^{−2t²/(n w²)} at η = t − n E e for n
    independent e in an interval of length w.

    Args:
        mass: probability left to each of the inequalities.
        size: points of a lattice.
        bits: of a mass.
    """

    def __init__(self, mass: arb, size: int, bits: int) -> None:
        self.mass, self.size, self.bits = mass, size, bits
        self.shift, self.missed = ZERO, ZERO

    def settle(self, copies: int, mean: arb, width: arb) -> None:
        """Count in the errors of so many independent roundings."""
        deviation = width * (-self.mass.log() * HALF * copies).sqrt()
        self.shift += deviation - arb(mean.lower()) * copies
        self.missed += self.mass

    def of(self, curve: Curve, step: int, copies: int) -> LossLaw:
        """Return the rounded law of one release, of which there are so many."""
        assert curve.tails is not None
        unit = arb(2) ** step
        low, high = reach(curve, self.mass / copies)
        ends = math.floor(low / 2.0**step), math.ceil(high / 2.0**step)
        points = nodes(min(ends[0], -1), max(ends[1], 1))
        sums = [curve.tails(unit * point) for point in points]
        masses = [0] * (points[-1] - points[0] + 1)
        mean, errors = ZERO, [ZERO]
        for place in range(len(points) - 1):
            own, other = (a - b for a, b in zip(sums[place], sums[place + 1], strict=True))
            held = integer_down(own, self.bits)
            if held <= 0:
                continue
            # the loss of a bin is at least that of its lower end
            found = (own / other).log() / unit if other > 0 else arb(points[place])
            loss = arb(found.lower()) if found.is_finite() else arb(points[place])
            nearest = min(max(whole((loss + HALF).floor()), points[0]), points[-1])
            error = (loss - nearest) * unit
            masses[nearest - points[0]] += held
            errors.append(error)
            # E e from below: a mass that is not known goes where it harms
            mean += own * error
        # what lies above the last point is put there; below the first it is dropped: e = 0
        masses[-1] += max(0, integer_down(sums[-1][0], self.bits))
        lowest, highest = min(errors, key=_middle), max(errors, key=_middle)
        self.settle(copies, mean, (highest - lowest).max(ZERO))
        return LossLaw(step, points[0], masses, 0, self.bits, upper=False)

    def coarser(self, law: LossLaw, copies: int) -> LossLaw:
        """Round odd points by turns up and down, in every one of so many independent sums."""
        first, last = law.first // 2, (law.first + len(law.masses)) // 2 + 1
        found = [0] * (last - first + 1)
        down = up = 0
        for place, held in enumerate(law.masses):
            point = law.first + place
            if point % 4 == 1:
                found[(point - 1) // 2 - first] += held
                down += held
            elif point % 4 == 3:
                found[(point + 1) // 2 - first] += held
                up += held
            else:
                found[point // 2 - first] += held
        # e is +h where it went down and −h where up; what is missing may all be of the latter
        unit, scale = arb(2) ** law.step, arb(2) ** law.bits
        missing = max(0, (1 << law.bits) - sum(law.masses))
        self.settle(copies, unit * (down - up - missing) / scale, 2 * unit)
        return LossLaw(law.step + 1, first, found, 0, law.bits, upper=False)

    def add(self, one: LossLaw, other: LossLaw, cut: int, copies: int) -> LossLaw:
        """Return the law of the sum of two, on a lattice that holds it."""
        while one.step < other.step:
            one = self.coarser(one, copies)
        while other.step < one.step:
            other = self.coarser(other, copies)
        masses = convolved(one.masses, other.masses, self.bits, upper=False)
        law = LossLaw(one.step, one.first + other.first, masses, 0, self.bits, upper=False)
        law = trimmed(law, cut)
        while len(law.masses) > self.size:
            law = self.coarser(law, copies)
        return law

    def power(self, law: LossLaw, count: int, cut: int) -> LossLaw:
        """Return the law of a sum of ``count``."""
        return repeated(law, count, lambda a, b, alike: self.add(a, b, cut // max(1, alike), alike))


def _middle(ball: arb) -> float:
    return float(ball.mid())


def lower_bound(
    parts: Sequence[tuple[int, Curve, int]], epsilon: arb, least: fmpq, size: int
) -> arb:
    """Return a lower bound of H(ε) of releases (count, curve, step of its lattice) together."""
    total = sum(count for count, _, _ in parts)
    scarce = max(1, int(1 / least)).bit_length()
    bits = size.bit_length() + total.bit_length() + scarce + 40
    mass = arb(least) * arb(2) ** -16
    rounded = Rounded(mass, size, bits)
    cut = integer_down(mass, bits)
    law: LossLaw | None = None
    for count, curve, step in parts:
        one = rounded.power(rounded.of(curve, step, count), count, cut)
        law = one if law is None else rounded.add(law, one, cut, 1)
    assert law is not None
    found = height(law, epsilon + rounded.shift) - rounded.missed
    return arb(found.lower()).max(ZERO).min(ONE)
