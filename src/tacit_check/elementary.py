"""Mechanisms with a closed curve: Gaussian, Laplace, whole noise, responses, tables, samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, Number, half_square_tail, largest, require, whole
from tacit_check.curves import Curve, Height, Pair, highest, rising, turned

# A pair, and Σ over outcomes of the largest probability.
Guessed = tuple[Pair, Number]
# The first curve has the record and the second has not.
ADDED = "with against without"
# Rows of a table against each other: pairs times entries that are looked at.
MOST_ENTRIES, MOST_WORK = 4096, 1 << 20
# Rows of which every two are composed by themselves.
MOST_ORDERED = 3
# Terms of a discrete Gaussian that are summed one by one; whole Rényi orders of a sample.
MOST_TERMS, MOST_ORDER = 20_000, 1024
# How near a root is found, in how many turns; below every root.
NEAR, MOST_TURNS, LOWEST = arb(2) ** -150, 100, arb(-(2**24))


def moved(
    place: Height, beyond: Height, shift: arb | int, *, steps: bool = False, **known: Any
) -> Pair:
    """Symmetric noise moved, P(N > x) = beyond(x) from 0 on, whose L > ε where x > place(ε)."""

    def tail(x: arb) -> arb:
        # P(N > x) = 1 − P(N > −x), and of whole numbers 1 − P(N > −x − 1)
        return beyond(x) if x >= 0 else ONE - beyond(-x - steps)

    return Pair((rising(place, lambda x: (tail(x - shift), tail(x)), steps=steps, **known),))


# Two equal laws.
STILL: dict[str, Any] = {"most": fmpq(0), "gaussian": fmpq(0), "renyi": lambda _: ZERO}
NOTHING = moved(lambda epsilon: epsilon, half_square_tail, 0, **STILL)


def gaussian(square: Number) -> Pair:
    """N(μ, 1) against N(0, 1), by μ²: the loss at x is μx − μ²/2."""
    if square == 0:
        return NOTHING
    mu = arb(square).sqrt()
    return moved(
        lambda epsilon: epsilon / mu + mu * HALF,
        half_square_tail,
        mu,
        gaussian=square,
        # D_α = α μ²/2
        renyi=lambda order: arb(order * (order - 1) * square / 2),
    )


def laplace(sensitivity: fmpq, scale: fmpq) -> Pair:
    """Noise e^{−|x|}/2 moved by L: the loss is L on one side, −L on the other, 2x − L between."""
    loss = arb(sensitivity / scale)

    def renyi(order: fmpq) -> arb:
        # Mironov (2017), Proposition 6: ln(α e^{(α−1)L} + (α − 1) e^{−αL}) − ln(2α − 1)
        up, down = arb(order - 1), arb(order)
        value = down * (up * loss).exp() + up * (-down * loss).exp()
        return (value / arb(2 * order - 1)).log()

    return moved(
        lambda epsilon: (epsilon + loss) * HALF,
        lambda x: (-x).exp() * HALF,
        loss,
        most=sensitivity / scale,
        renyi=renyi,
    )


def discrete_laplace(sensitivity: int, scale: fmpq) -> Pair:
    """Noise ∝ a^|k|, a = e^{−1/b}, moved by a whole Δ; the loss at k between is (2k − Δ)/b."""
    rate = ONE / arb(scale)
    return moved(
        lambda epsilon: (epsilon / rate + sensitivity) * HALF,
        # P(k > x) = a^{x + 1}/(1 + a)
        lambda x: (-rate * (x + 1)).exp() / (ONE + (-rate).exp()),
        sensitivity,
        steps=True,
        most=sensitivity / scale,
    )


def discrete_gaussian(sensitivity: int, variance: fmpq) -> Pair:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by a whole Δ: summed term by term."""
    # Σ_{k >= m} e^{−k²/2s²} over |k| <= 20 s; what lies beyond is below e^{−200}, said as a ball
    reach = int(20 * float(variance) ** 0.5) + 30
    twice = ONE / arb(2 * variance)
    weights = [(-(twice * (k * k))).exp() for k in range(reach + 1)]
    # beyond the last: below a geometric series of ratio e^{−reach/s²}
    ratio = (-(twice * 2 * reach)).exp()
    rest = ZERO.union(weights[-1] * ratio / (ONE - ratio))
    # sums[k] = Σ over j >= k
    sums = list(accumulate(reversed(weights), initial=rest))[::-1]
    total = 2 * sums[0] - weights[0]
    return moved(
        # L(k) = (2kΔ − Δ²)/2s² > ε: k > s² ε/Δ + Δ/2
        lambda epsilon: epsilon * arb(variance) / sensitivity + arb(fmpq(sensitivity, 2)),
        lambda x: sums[min(whole(x), reach) + 1] / total,
        sensitivity,
        steps=True,
    )


def response(categories: int, truth: fmpq | None = None, epsilon: fmpq | None = None) -> Guessed:
    """The truth of k answers with probability p, or e^ε/(e^ε + k − 1), any other alike.

    Returns:
        Its pair, and Σ over answers of the largest probability.
    """
    require((truth is None) != (epsilon is None), "response: expected truth or epsilon")
    share = ONE / (ONE + (categories - 1) * arb(-(epsilon or fmpq(0))).exp())
    right: Number = share if truth is None else truth
    other = (1 - right) / (categories - 1)
    # of an answer, another, and the rest
    rest = other * (categories - 2)
    curve = finite([right, other, rest], [other, right, rest])
    curve = curve if epsilon is None else replace(curve, most=epsilon)
    return Pair((curve,)), categories * (right if truth is None else max(right, other))


def finite(own: Sequence[Any], other: Sequence[Any]) -> Curve:
    """The curve of two laws on a few outcomes, H = Σ max(p − e^ε q, 0); exact of fractions."""
    both = [(arb(p), arb(q)) for p, q in zip(own, other, strict=True)]
    # a probability that may be 0 is not taken for it
    losses = [(p / q).log() if q > 0 else arb.pos_inf() for p, q in both if not p <= 0]

    def exact(gamma: fmpq) -> fmpq:
        gains = (p - gamma * q for p, q in zip(own, other, strict=True))
        return sum((max(gain, fmpq(0)) for gain in gains), fmpq(0))

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # any event serves: that of the outcomes that are surely likelier
        scale = epsilon.exp()
        above = [(p, q) for p, q in both if p > scale * q]
        return sum((p for p, _ in above), ZERO), sum((q for _, q in above), ZERO)

    def height(epsilon: arb) -> arb:
        scale = epsilon.exp()
        return sum(((p - scale * q).max(ZERO) for p, q in both), ZERO)

    def renyi(order: fmpq) -> arb | None:
        # ln Σ p^α q^{1−α}
        power, some = arb(order), [(p, q) for p, q in both if not p.is_zero()]
        if not all(p > 0 and q > 0 for p, q in some):
            return None
        return sum((p**power * q ** (ONE - power) for p, q in some), ZERO).log()

    most, exactly = largest([ZERO, *losses]), all(isinstance(one, fmpq) for one in own)
    bounded = most if most.is_finite() else None
    known = exact if exactly else None
    return Curve(height, tails=tails, most=bounded, exact=known, renyi=renyi)


def table(rows: Sequence[Sequence[fmpq]]) -> Guessed:
    """Every two rows of a finite mechanism, weights outcome by outcome.

    Returns:
        Its pair, and Σ over outcomes of the largest probability.
    """
    fine = len(rows) > 1 and all(min(row) >= 0 and max(row) > 0 for row in rows)
    require(fine, "rows: expected two or more of weights, none below 0, one above")
    few = len(rows) ** 2 * len(rows[0]) <= MOST_WORK
    require(few, "table: more pairs of rows than a checker compares")
    laws = [[weight / sum(row, fmpq(0)) for weight in row] for row in rows]
    curves = [finite(one, other) for one in laws for other in laws if one is not other]
    factor = sum((max(column) for column in zip(*laws, strict=True)), fmpq(0))
    every = Pair(tuple(curves), f"two of {len(laws)} rows")
    return every if len(laws) <= MOST_ORDERED else Pair((highest(curves),)), factor


def exponential(range: fmpq) -> Pair:
    """A loss within an interval of length η: H = (1 − e^{(ε − η)/2})²/(1 − e^{−η}) at |ε| <= η."""
    width = arb(range)
    scale = -(-width).expm1()

    def height(epsilon: arb) -> arb:
        if epsilon < -width:
            return -epsilon.expm1()
        part = -((epsilon - width) * HALF).expm1()
        return part * part / scale

    # errors of two coins whose log-odds are η apart: Φ⁻¹ of the logistic law is steepest at 0, so
    # no two lie farther apart in it than ±η/2 do, by μ = 2 Φ⁻¹(1/(1 + e^{−η/2}))
    mu = (width / 4).tanh().erfinv() * arb(8).sqrt()
    # attained for one release at every ε, by a pair that depends on ε
    return Pair((Curve(height, most=range, under=mu * mu if mu.is_finite() else None),))


def failing(chance: arb) -> Pair:
    """A release that gives itself away with probability δ and says nothing otherwise."""
    rest = ONE - chance
    return Pair((replace(finite([chance, rest, ZERO], [ZERO, rest, chance]), fails=chance),))


def key_alone(length: int, most: int, threshold: int, variance: fmpq) -> Pair:
    """A key that one unit alone has passes: of k with weight ⌊U/√k⌋, k P(X >= T − w) at most."""
    spread = arb(variance).sqrt()
    # P(X >= m) <= P(N(0, s²) >= m − 1)
    weights = ((k, math.isqrt(length * length // k)) for k in range(1, most + 1))
    chances = (half_square_tail((threshold - one - 1) / spread) * k for k, one in weights)
    return failing(largest(chances).min(ONE)).bounding


def sampled(rate: fmpq, base: Pair) -> Pair:
    """Poisson samples: (1 − q) Q + q P against Q, and (Q, P) by duality."""
    if rate in (0, 1):
        return base if rate else NOTHING
    share, rest = arb(rate), arb(1 - rate)
    # a pair that is known to have the record first; else, as what others are in a sample may turn
    # it round from one release to the next, the envelope of both orders
    one = highest(base.curves[:1] if base.order == ADDED else base.curves)
    most = None if one.most is None else arb(one.most)
    # −L <= −ln(1 − q + q e^{−M}) where M bounds the loss of the other order too
    least = ZERO if most is None or base.order == ADDED else (-most).exp()
    most = None if most is None else (rest + share * most.exp()).log()
    forward = _sampled(share, one, most)
    back = turned(forward, -(rest + share * least).log())
    # of a Gaussian the reverse order is the smaller at every Rényi order
    return Pair((forward, replace(back, renyi=forward.renyi)), ADDED)


def _sampled(share: arb, base: Curve, most: arb | None) -> Curve:
    rest, inner = ONE - share, base.tails

    def renyi(order: fmpq) -> arb | None:
        # Mironov, Talwar and Zhang (2019), Theorem 5, Section 3.3, of a Gaussian at whole orders:
        # ln Σ_k C(α, k) (1 − q)^{α−k} q^k e^{k(k−1)μ²/2}, the larger of both orders
        if base.gaussian is None or order.q != 1 or order > MOST_ORDER:
            return None
        weights = _binomial(int(order.p), share)
        powers = (arb(base.gaussian * (k * (k - 1)) / 2).exp() for k in range(len(weights)))
        return sum((a * b for a, b in zip(weights, powers, strict=True)), ZERO).log()

    def place(epsilon: arb) -> arb:
        # q e^{ε'} = e^ε − 1 + q; far below where the mixture is above e^ε Q everywhere
        held = epsilon.expm1() + share
        return (held / share).log() if held > 0 else LOWEST

    def tails(epsilon: arb) -> tuple[arb, arb]:
        assert inner is not None
        own, other = inner(place(epsilon))
        return rest * other + share * own, other

    known: dict[str, Any] = {"tails": tails if inner else None, "most": most, "renyi": renyi}
    known |= {"attained": base.attained, "costly": base.costly}
    return Curve(lambda one: share * base.at(place(one)), **known)


def _binomial(count: int, share: arb) -> list[arb]:
    # C(n, k) q^k (1 − q)^{n−k}
    rest = ONE - share
    return [arb.bin_uiui(count, k) * share**k * rest ** (count - k) for k in range(count + 1)]


def replaced(rate: fmpq, square: fmpq) -> Pair:
    """(1 − q) N(0) + q N(d) against (1 − q) N(0) + q N(−d), equal in both orders, by d²."""
    if rate == 1:
        return gaussian(4 * square)
    share, rest = arb(rate), arb(1 - rate)
    lift = (-arb(square) * HALF).exp() * share / rest

    def root(gamma: arb) -> arb:
        # 1 + A u = γ (1 + A/u): A u² + (1 − γ) u − γ A = 0
        half = (gamma - 1) / (2 * lift)
        found = (half * half + gamma).sqrt()
        # the root without what cancels: γ/(root − half) below 1
        return (half + found if half >= 0 else gamma / (found - half)).log()

    return Pair((_shifted({0: rest, 1: share}, {-1: share, 0: rest}, square, root),))


def group(rate: fmpq, square: fmpq, records: int) -> Pair:
    """Σ_j Bin(k, q)(j) N(jd, 1) against N(0, 1), and the other order, by d²."""
    if rate == 1:
        return gaussian(square * (records * records))
    chances = dict(enumerate(_binomial(records, arb(rate))))
    # Σ_j c_j e^{−d²j²/2} u^j = e^ε, in logarithms
    none, *lifts = (chance.log() - arb(square * (j * j) / 2) for j, chance in chances.items())

    def root(gamma: arb) -> arb:
        if not gamma > none.exp():
            return LOWEST
        level = (gamma - none.exp()).log()
        # S(x) = ln Σ_{j >= 1} c_j e^{jx} is convex with a slope from 1 to k: from where one term
        # alone reaches the level Newton's steps fall to the root, and x is off by S(x) − level at
        # most
        x = -largest((lift - level) / j for j, lift in enumerate(lifts, 1))
        for _ in range(MOST_TURNS):
            terms = [(lift + x * j).exp() for j, lift in enumerate(lifts, 1)]
            total = sum(terms, ZERO)
            gap = total.log() - level
            if abs(gap) < NEAR:
                return x + gap.union(-gap)
            x = (x - gap * total / sum((term * j for j, term in enumerate(terms, 1)), ZERO)).mid()
        return LOWEST.union(-LOWEST)

    forward = _shifted(chances, {0: ONE}, square, root)
    return Pair((forward, turned(forward, -arb(1 - rate).log() * records)), ADDED)


def _shifted(own: Mapping[int, arb], other: Mapping[int, arb], square: fmpq, root: Height) -> Curve:
    """Σ_j p_j N(jd, 1) against Σ_j q_j N(jd, 1), where ``root`` gives dx of the ratio γ."""
    distance = arb(square).sqrt()

    def tail(law: Mapping[int, arb], x: arb) -> arb:
        return sum((p * half_square_tail(x - distance * j) for j, p in law.items()), ZERO)

    return rising(lambda one: root(one.exp()) / distance, lambda x: (tail(own, x), tail(other, x)))
