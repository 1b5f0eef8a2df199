"""Random projections and sketches: one integral of a closed curve, in balls."""

from __future__ import annotations

from collections.abc import Callable

from flint import acb, arb, ctx, fmpq

from tacit_check.balls import HALF, ONE, ZERO, RefusedFileError, half_square_tail, largest
from tacit_check.curves import Curve, Pair, from_tails
from tacit_check.elementary import gaussian, nothing

# Bits of an integral: its ball is as wide as this, and says so; what its ends may leave out.
BITS, LEFT_OUT = 96, 2.0**-110
# Columns times dimensions of a sketch, and dimensions where both ends occur.
MOST_COORDINATES, MOST_SPLITS = 20_000, 32


def integral(integrand: Callable[[acb, bool], acb], low: arb, high: arb, least: int = -BITS) -> arb:
    """Return ∫ f over an interval as a ball, f real there."""
    before = ctx.prec
    ctx.prec = BITS + 32
    try:
        found = acb.integral(
            integrand, acb(low), acb(high), abs_tol=arb(2) ** least, rel_tol=arb(2) ** -50
        )
    finally:
        ctx.prec = before
    if not found.real.is_finite():
        raise RefusedFileError("an integral that no ball holds")
    return arb(found.real)


def projected(dim: int, rank: int, exact: fmpq, one: bool) -> Pair:
    """E over X ~ Beta(r/2, (d − r)/2) of a Gaussian at squared distance X μ²."""
    if rank >= dim or exact == 0:
        return gaussian(exact)
    share = Share(dim, rank, arb(exact).sqrt())
    if one:
        return Pair((Curve(share.mixed, costly=True),))
    # Σ w_j X_j is below X in convex order: a convex function above the curve
    return Pair((Curve(share.any_spectrum, attained=False, costly=True),))


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
        # outside of low and high lies a mass of at most 2^−110 each, where H is from 0 to 1
        self.low, short = _quantile(self.below), _quantile(self.above)
        # the angle of X = 1 − x, without what cancels
        self.end = arb.pi() * HALF - short.sqrt().asin()
        outside = self.below(self.low) + self.above(short)
        self.unseen = ZERO.union(outside.max(ZERO) + LEFT_OUT)

    def below(self, x: arb, more: int = 0) -> arb:
        """Return P(X < x), and with ``more`` = 1 that of X weighted by itself."""
        return x.beta_lower(self.own + more, self.rest, regularized=1)

    def above(self, x: arb) -> arb:
        """Return P(1 − X < x)."""
        return x.beta_lower(self.rest, self.own, regularized=1)

    def mixed(self, epsilon: arb, most: arb | None = None) -> arb:
        """Return E H(ε; X μ²) over X below ``most``."""
        if not epsilon > 0:
            # H(ε) = 1 − e^ε + e^ε H(−ε) of a symmetric pair; |H'| <= 1 about 0
            if epsilon < 0 and most is None:
                return -epsilon.expm1() + epsilon.exp() * self.mixed(-epsilon)
            if not epsilon.is_zero():
                return ZERO.union(ONE)
        # below μ = ε/14 the curve is less than Φ(−13), and that is less than 2^−120
        nearest = epsilon / 14 / self.length
        low = arb(self.low.max(nearest * nearest).lower())
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

        start, end = low.sqrt().asin(), self.end
        if most is not None and most < ONE:
            end = -((-most.sqrt().asin()).max(-end))
        if not end > start:
            return self.unseen
        found = integral(integrand, start, end)
        return found * HALF + self.unseen

    def any_spectrum(self, epsilon: arb) -> arb:
        """Return an upper bound for every spectrum: E of a convex function above the curve.

        δ(w) = H(ε; w) is convex up to w₀ = 2√(1 + ε²) − 2 and concave from there on, its slope
        φ(√w/2 − ε/√w)/(2√w). A tangent at w₁ >= w₀ lies above it from w₀ on, and the larger of
        both is convex: E of the curve up to where they cross, and of the tangent beyond.
        """
        if epsilon < 0:
            return -epsilon.expm1() + epsilon.exp() * self.any_spectrum(-epsilon)
        square = self.length * self.length
        bend = 2 * (ONE + epsilon * epsilon).sqrt() - 2
        mean = square * self.own / (self.own + self.rest)
        points = [bend.max(mean * factor / 4) for factor in (4, 5, 7, 12)]
        return -largest(-self._tangent(epsilon, point, square) for point in points).min(ONE)

    def _tangent(self, epsilon: arb, point: arb, square: arb) -> arb:
        point = arb(point.upper())
        if not point > 0:
            return ONE
        height, slope = _of_square(epsilon, point)
        # the tangent at 0 against the curve there, which is max(0, 1 − e^ε)
        start = height - slope * point - (-epsilon.expm1()).max(ZERO)
        if start >= 0:
            # above at 0, so above the convex part: E of the line alone
            share = square * self.own / (self.own + self.rest)
            return height + slope * (share - point)
        if not start < 0:
            return ONE
        # where they cross, by bisection: up to low the curve is above, from high on the line
        low, high = ZERO, point
        for _ in range(60):
            middle = arb(((low + high) * HALF).mid())
            gap = _of_square(epsilon, middle)[0] - height - slope * (middle - point)
            low, high = (middle, high) if gap > 0 else (low, middle) if gap < 0 else (low, high)
        first, last = (low / square).min(ONE), (high / square).min(ONE)
        rising = self.mixed(epsilon, first)
        # E (c + s X μ²) over X > x, and a sliver between both at most 1
        beyond = ONE - self.below(last)
        mean = self.own / (self.own + self.rest) * (ONE - self.below(last, 1))
        line = (height - slope * point) * beyond + slope * square * mean
        return rising + line + (self.below(last) - self.below(first))


def _of_square(epsilon: arb, square: arb) -> tuple[arb, arb]:
    # H(ε) and its slope in μ²
    mu = square.sqrt()
    middle = mu * HALF - epsilon / mu
    height = half_square_tail(-middle) - epsilon.exp() * half_square_tail(mu - middle)
    slope = (-middle * middle * HALF).exp() / (2 * arb.pi()).sqrt() / (2 * mu)
    return height, slope


def _quantile(below: Callable[[arb], arb]) -> arb:
    # an x with a mass below it of at most LEFT_OUT, by bisection of ln x: good for a choice only
    low, high = -3000.0, 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if below(arb(middle).exp()) <= LEFT_OUT else (low, middle)
    return arb(arb(low).exp().lower())


def sketch(columns: int, dim: int, low: fmpq, high: fmpq) -> list[tuple[tuple[int, Pair], ...]]:
    """Every split of k eigenvalues into m at the upper end and k − m at the lower one.

    N(0, l) and N(0, 1) are made from N(0, l') and N(0, 1) by shrinking and adding noise where l
    lies between 1 and l': the worst eigenvalues are at the ends, and none need stay at 1. Nothing
    where there are more than a lattice is built for.
    """
    if low == 1 and high == 1:
        return [((1, nothing()),)]
    wide = low != 1 and high != 1 and dim > MOST_SPLITS
    if wide or columns * dim > MOST_COORDINATES:
        return []
    splits = [dim] if low == 1 else [0] if high == 1 else range(dim, -1, -1)
    found = []
    for m in splits:
        sizes = ((columns * m, high), (columns * (dim - m), low))
        found.append(tuple((1, _scaled(count, arb(end))) for count, end in sizes if count))
    return found


def _scaled(count: int, end: arb) -> Pair:
    # n coordinates N(0, l) against N(0, 1); in the other order the eigenvalue is 1/l
    curves = tuple(_chi_square(count, one) for one in (end, ONE / end))
    return Pair(curves, "sketch")


def _chi_square(count: int, end: arb) -> Curve:
    # L = ½ (l − 1) G − ½ n ln l, where l G is χ² under P and G under Q
    half, gain = arb(fmpq(count, 2)), (end - 1) * HALF
    rest = end.log() * half
    above = gain > 0

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # ½ (l − 1) G > ε + ½ n ln l, G = x²/l ~ χ² under P and x² ~ χ² under Q
        level = (epsilon + rest) / gain * HALF
        if level <= 0:
            return (ONE, ONE) if above else (ZERO, ZERO)
        if not level > 0:
            return ZERO.union(ONE), ZERO.union(ONE)
        places = (level, level * end)
        own, other = (gamma_tails(half, one) for one in places)
        return (own[1], other[1]) if above else (own[0], other[0])

    return from_tails(tails)


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
