"""Random projections and sketches: one integral of a closed curve, in balls."""

from collections.abc import Callable
from functools import cache
from typing import Any

from flint import acb, arb, ctx, fmpq

from tacit_check.balls import HALF, ONE, ZERO, half_square_tail, largest, require
from tacit_check.curves import Curve, Pair, Parts, rising
from tacit_check.elementary import NOTHING, gaussian

# Bits of an integral: its ball is as wide as this, and says so. Columns times dimensions of a
# sketch, and dimensions where both ends occur; what an integral leaves out.
BITS, MOST_COORDINATES, MOST_SPLITS, UNSEEN = 96, 20_000, 32, ZERO.union(arb(2) ** -120)


def integral(integrand: Callable[[acb, bool], acb], low: arb, high: arb, least: int = -BITS) -> arb:
    """Return ∫ f over an interval as a ball, f real there."""
    tolerance: dict[str, Any] = {"abs_tol": arb(2) ** least, "rel_tol": arb(2) ** -50}
    with ctx.workprec(BITS + 32):
        found = acb.integral(integrand, acb(low), acb(high), **tolerance)
    require(found.real.is_finite(), "an integral that no ball holds")
    return arb(found.real)


def projected(dim: int, rank: int, square: fmpq, spectrum: str) -> Pair:
    """E over X ~ Beta(r/2, (d − r)/2) of a Gaussian at squared distance X μ²."""
    if rank >= dim:
        return gaussian(square)
    share = Share(dim, rank, arb(square).sqrt())
    # Σ w_j X_j is below X in convex order: a convex function above the curve
    one = spectrum == "one"
    made = share.mixed if one else share.any_spectrum
    known = cache(made)

    def height(epsilon: arb) -> arb:
        if epsilon < 0:
            # H(ε) = 1 − e^ε + e^ε H(−ε) of a symmetric pair
            return epsilon.exp() * height(-epsilon) - epsilon.expm1()
        return (known if epsilon.is_exact() else made)(epsilon)

    return Pair((Curve(height, attained=one, costly=True),))


class Share:
    """Gaussians at squared distances X μ², X ~ Beta(r/2, (d − r)/2).

    Args:
        dim: d.
        rank: r < d.
        length: μ > 0.
    """

    def __init__(self, dim: int, rank: int, length: arb) -> None:
        self.dim, self.rank, self.length = dim, rank, length
        self.own, self.rest = arb(fmpq(rank, 2)), arb(fmpq(dim - rank, 2))
        beta = self.own.lgamma() + self.rest.lgamma() - (self.own + self.rest).lgamma()
        self.scale = (arb(2).log() - beta).exp()

    def below(self, x: arb, more: int = 0) -> arb:
        """Return P(X < x), and with ``more`` = 1 that of X weighted by itself."""
        return x.beta_lower(self.own + more, self.rest, regularized=1)

    def mixed(self, epsilon: arb, most: arb = ONE) -> arb:
        """Return E H(ε; X μ²) over X below ``most``, of ε from 0 on."""
        if not epsilon >= 0:
            # |H'| = e^ε Q(L > ε) <= 1
            return self.mixed(ZERO) + epsilon.union(-epsilon)
        # where μ/2 − ε/μ <= −13, below μ = √(13² + 2ε) − 13, the curve is less than Φ(−13), and
        # that is less than 2^−120
        start = (2 * epsilon / ((2 * epsilon + 169).sqrt() + 13) / self.length).min(ONE).asin()
        shift, length, growth = acb(epsilon), acb(self.length), acb(epsilon.exp())
        root, scale = acb(2).sqrt(), acb(self.scale)

        def integrand(theta: acb, _: bool) -> acb:
            # X = sin² θ has the density 2 sin^{r−1} θ cos^{d−r−1} θ/B: entire, and so is
            # Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) but where sin θ = 0
            sine, cosine = theta.sin(), theta.cos()
            near = sine * length / 2
            far = acb(0) if epsilon.is_zero() else shift / (near * 2)
            curve = ((far - near) / root).erfc() - growth * ((far + near) / root).erfc()
            share = scale * sine ** (self.rank - 1) * cosine ** (self.dim - self.rank - 1)
            return share * curve

        end = most.sqrt().asin()
        if end <= start:
            return UNSEEN
        # few bits first, and as many as there are of what is smaller than these
        found = integral(integrand, start, end, -64)
        small = found.rel_accuracy_bits() < 16
        return UNSEEN + (integral(integrand, start, end) if small else found) * HALF

    def any_spectrum(self, epsilon: arb) -> arb:
        """Return an upper bound for every spectrum: E of a convex function above the curve.

        δ(w) = H(ε; w) is convex up to w₀ = 2√(1 + ε²) − 2 and concave from there on. A tangent at
        w₁ >= w₀ lies above it from w₀ on. Where the curve is above the tangent at some c, or c = 0,
        so are the curve up to c and beyond it the parallel of the tangent through the higher of
        both: a convex function, of which the expectation is taken.
        """
        square = self.length * self.length
        bend = 2 * (ONE + epsilon * epsilon).sqrt() - 2
        mean = square * self.own / (self.own + self.rest)
        points = [bend.max(mean * factor / 4) for factor in (4, 5, 7, 12)]
        return -largest(-self._tangent(epsilon, point, square) for point in points).min(ONE)

    def _tangent(self, epsilon: arb, point: arb, square: arb) -> arb:
        point = arb(point.upper())
        if not point > 0:
            return ONE

        def height(place: arb) -> arb:
            # H(ε) at μ² = w
            mu = place.sqrt()
            near, far = mu * HALF, epsilon / mu
            return half_square_tail(far - near) - epsilon.exp() * half_square_tail(far + near)

        # dδ/dw = φ(√w/2 − ε/√w)/(2√w)
        mu = point.sqrt()
        middle = mu * HALF - epsilon / mu
        slope = (-middle * middle * HALF).exp() / (2 * arb.pi()).sqrt() / (2 * mu)
        start = height(point) - slope * point
        # the last place known where the curve is above the tangent, by bisection
        low, high = ZERO, point
        for _ in range(60):
            place = arb(((low + high) * HALF).mid())
            above = height(place) > start + slope * place
            low, high = (place, high) if above else (low, place)
        level = height(low) if low > 0 else start.max(ZERO)
        # E (level + slope (X μ² − c)) over X > c/μ²
        share = (low / square).min(ONE)
        mean = square * self.own / (self.own + self.rest) * (ONE - self.below(share, 1))
        beyond = (level - slope * low) * (ONE - self.below(share)) + slope * mean
        return beyond + (self.mixed(epsilon, share) if low > 0 else ZERO)


def sketch(columns: int, dim: int, lowest: fmpq, highest: fmpq) -> list[Parts] | str:
    """Every split of k eigenvalues into m at the upper end and k − m at the lower one.

    N(0, l) and N(0, 1) are made from N(0, l') and N(0, 1) by shrinking and adding noise where l
    lies between 1 and l': the worst eigenvalues are at the ends, and none need stay at 1. Why not
    where there are more than a lattice is built for.
    """
    if lowest == 1 and highest == 1:
        return [((1, NOTHING),)]
    wide = lowest != 1 and highest != 1 and dim > MOST_SPLITS
    if wide or columns * dim > MOST_COORDINATES:
        return "sketch: more dimensions or numbers than lattices are built for"
    splits = [dim] if lowest == 1 else [0] if highest == 1 else range(dim, -1, -1)
    ends = ([(columns * m, highest), (columns * (dim - m), lowest)] for m in splits)
    # which inputs come first is not said: one that shrinks may be one that grows, turned round
    return [tuple((1, _scaled(n, arb(end), highest == 1)) for n, end in each if n) for each in ends]


def _scaled(count: int, end: arb, shrinking: bool) -> Pair:
    # n coordinates N(0, l) against N(0, 1); in the other order the eigenvalue is 1/l
    curves = tuple(_chi_square(count, one) for one in (end, ONE / end))
    return Pair(curves, "sketch, shrinking" if shrinking else "sketch")


def _chi_square(count: int, end: arb) -> Curve:
    # L = ½ (l − 1) G − ½ n ln l, where l G is χ² under P and G under Q
    half, gain = arb(fmpq(count, 2)), (end - 1) * HALF
    rest, side = end.log() * half, int(gain > 0)

    def above(level: arb) -> tuple[arb, arb]:
        # L > ε where G/2, a Gamma number, is above a level, or below it where l < 1
        if not level > 0:
            either = arb(side) if level <= 0 else ZERO.union(ONE)
            return either, either
        return gamma_tails(half, level)[side], gamma_tails(half, level * end)[side]

    return rising(lambda epsilon: (epsilon + rest) / gain * HALF, above)


def gamma_tails(shape: arb, x: arb) -> tuple[arb, arb]:
    """Return P(G < x) and P(G > x) of a Gamma law, the smaller with its digits."""
    if x >= shape:
        upper = x.gamma_upper(shape, regularized=1)
        return ONE - upper, upper
    # x^s e^{−x}/Γ(s + 1) (1 + x/(s + 1) + x²/(s + 1)(s + 2) + …), every term above 0
    term, total, place = ONE, ONE, shape + 1
    while not term <= total * arb(2) ** -ctx.prec:
        term = term * x / place
        total, place = total + term, place + 1
    # what is left is below a geometric series
    ratio = x / place
    total += ZERO.union(term * ratio / (ONE - ratio))
    lower = (shape * x.log() - x - (shape + 1).lgamma()).exp() * total
    return lower, ONE - lower
