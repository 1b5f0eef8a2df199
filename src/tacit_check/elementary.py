"""Mechanisms with a closed curve: Gaussian, Laplace, whole noise, responses, tables, samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, RefusedFileError, half_square_tail, largest, whole
from tacit_check.curves import Curve, Height, Pair, from_tails, highest, turned

# The first curve has the record and the second has not.
ADDED = "with against without"
# Rows of a table against each other: pairs times entries that are looked at.
MOST_ENTRIES, MOST_WORK = 4096, 1 << 20
# Rows of which every two are composed by themselves.
MOST_ORDERED = 3
# Terms of a discrete Gaussian that are summed one by one.
MOST_TERMS = 20_000
# Variance that is given up where whole noise in many coordinates is bounded by a continuous one.
SMOOTHING = 16
# Whole Rényi orders of a sample.
MOST_ORDER = 1024
# Half of the width of a root.
NEAR = arb(2) ** -150


def gaussian(square: fmpq) -> Pair:
    """N(μ, 1) against N(0, 1), by μ²: P(L > ε) = Φ(μ/2 − ε/μ), Q(L > ε) = Φ(−μ/2 − ε/μ)."""
    if square == 0:
        return nothing()
    mu = arb(square).sqrt()

    def tails(epsilon: arb) -> tuple[arb, arb]:
        middle = epsilon / mu
        return half_square_tail(middle - mu * HALF), half_square_tail(middle + mu * HALF)

    # D_α = α μ²/2
    def renyi(order: fmpq) -> arb:
        return arb(order * (order - 1) * square / 2)

    return Pair((from_tails(tails, gaussian=square, renyi=renyi),))


def nothing() -> Pair:
    """Two equal laws."""

    def tails(epsilon: arb) -> tuple[arb, arb]:
        return (ONE, ONE) if epsilon < 0 else (ZERO, ZERO)

    known = {"most": ZERO, "pure": fmpq(0), "gaussian": fmpq(0)}
    return Pair((from_tails(tails, renyi=lambda _: ZERO, **known),))


def laplace(exact: fmpq) -> Pair:
    """Noise e^{−|x|}/2 moved by L: the loss is L on one side, −L on the other, 2x − L between."""
    if exact == 0:
        return nothing()
    loss = arb(exact)

    def tails(epsilon: arb) -> tuple[arb, arb]:
        if epsilon >= loss:
            return ZERO, ZERO
        if epsilon < -loss:
            return ONE, ONE
        # x > t, t = (L + ε)/2 in [0, L]: P = 1 − e^{t − L}/2 and Q = e^{−t}/2
        place = (loss + epsilon) * HALF
        return ONE - (place - loss).exp() * HALF, (-place).exp() * HALF

    def renyi(order: fmpq) -> arb:
        # Mironov (2017), Proposition 6: ln(α e^{(α−1)L} + (α − 1) e^{−αL}) − ln(2α − 1)
        up, down = arb(order - 1), arb(order)
        value = down * (up * loss).exp() + up * (-down * loss).exp()
        return (value / arb(2 * order - 1)).log()

    return Pair((from_tails(tails, most=loss, pure=exact, renyi=renyi),))


def discrete_laplace(shift: int, scale: fmpq) -> Pair:
    """Noise ∝ a^|k|, a = e^{−1/b}, moved by a whole Δ; the loss at k between is (2k − Δ)/b."""
    if shift == 0:
        return nothing()
    rate = ONE / arb(scale)
    base = (-rate).exp()
    curve = _stepped(
        lambda epsilon: (epsilon / rate + shift) * HALF,
        lambda first: (_geometric(base, first - shift), _geometric(base, first)),
        arb(shift) * rate,
    )
    return Pair((replace(curve, pure=fmpq(shift) / scale),))


def _stepped(
    place: Height, above: Callable[[int], tuple[arb, arb]], most: arb | None = None
) -> Curve:
    """A pair on whole numbers whose loss, at most ``most``, exceeds ε where k > place(ε)."""

    def tails(epsilon: arb) -> tuple[arb, arb]:
        if most is not None and abs(epsilon) >= most:
            return (ZERO, ZERO) if epsilon > 0 else (ONE, ONE)
        return above(_floor(place(epsilon).mid()) + 1)

    def height(epsilon: arb) -> arb:
        # H is the largest of P − e^ε Q over all events: of those that the ball leaves open
        found, scale = place(epsilon), epsilon.exp()
        firsts = {_floor(found.lower()) + 1, _floor(found.upper()) + 1}
        return largest(own - scale * other for own, other in map(above, firsts))

    return Curve(height, tails=tails, most=most)


def _floor(number: arb) -> int:
    return whole(number.floor())


def _geometric(base: arb, first: int) -> arb:
    # P(k >= first) of the law ∝ a^|k|: a^first/(1 + a), and 1 − a^{1 − first}/(1 + a) below 1
    if first >= 1:
        return base**first / (ONE + base)
    return ONE - base ** (1 - first) / (ONE + base)


def discrete_gaussian(shift: int, variance: fmpq) -> Pair:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by a whole Δ: summed term by term."""
    return Pair((_whole(shift, variance, float(variance) ** 0.5),)) if shift else nothing()


def smoothed(square: fmpq, variance: fmpq) -> Pair:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by √square: N(Δ, s² − 16), up to e^{±η}."""
    if variance <= SMOOTHING:
        raise RefusedFileError(f"variance: expected more than {SMOOTHING} in many coordinates")
    # a discrete Gaussian is what rounding N(z, s² − 16) at random gives, up to e^{±η}
    return gaussian(square / (variance - SMOOTHING)).bounding


def smoothing_note(coordinates: int) -> str:
    """Return what is given up by it, η = 14 · coordinates · e^{−32π²}, in words."""
    power = 0.4343 * (32 * 9.8696) - len(str(14 * coordinates))
    return f"up to a factor exp(±10^-{int(power)}) of every probability"


def _whole(shift: int, variance: fmpq, spread: float) -> Curve:
    # Σ_{k >= m} e^{−k²/2s²} over |k| <= 20 s; what lies beyond is below e^{−200}, said as a ball
    reach = int(20 * spread) + 30
    twice = ONE / arb(2 * variance)
    weights = [(-(twice * (k * k))).exp() for k in range(reach + 1)]
    # beyond the last: below a geometric series of ratio e^{−reach/s²}
    ratio = (-(twice * 2 * reach)).exp()
    beyond = ZERO.union(weights[-1] * ratio / (ONE - ratio))
    sums = [beyond]
    for weight in reversed(weights[1:]):
        sums.append(sums[-1] + weight)
    sums.reverse()
    # sums[k] = Σ over j > k
    total = weights[0] + 2 * sums[0]

    def above(first: int) -> arb:
        # P(k >= first), by symmetry for first < 1
        if first > reach:
            return beyond / total
        if first >= 1:
            return sums[first - 1] / total
        return ONE - above(1 - first)

    # L(k) = (2kΔ − Δ²)/2s² > ε: k > s² ε/Δ + Δ/2
    return _stepped(
        lambda epsilon: epsilon * arb(variance) / shift + arb(fmpq(shift, 2)),
        lambda first: (above(first - shift), above(first)),
    )


def response_of(epsilon: fmpq, categories: int) -> Pair:
    """The truth of k answers with probability e^ε/(e^ε + k − 1), any other alike."""
    curve = finite_pair(*answers(truth_of(epsilon, categories), categories))
    return Pair((replace(curve, most=arb(epsilon), pure=epsilon),))


def answers(truth: Any, categories: int) -> tuple[list[Any], list[Any]]:
    """Return the laws of (an answer, another, the rest) where either of both is the truth."""
    other = (1 - truth) / (categories - 1)
    rest = other * (categories - 2)
    return [truth, other, rest], [other, truth, rest]


def truth_of(epsilon: fmpq, categories: int) -> arb:
    """Return e^ε/(e^ε + k − 1)."""
    return ONE / (ONE + (categories - 1) * arb(-epsilon).exp())


def fractions(own: list[fmpq], other: list[fmpq]) -> Curve:
    """The curve of two laws of fractions: exact at γ = e^ε, Σ max(p − γ q, 0)."""

    def exact(gamma: fmpq) -> fmpq:
        gains = (p - gamma * q for p, q in zip(own, other, strict=True))
        return sum((gain for gain in gains if gain > 0), fmpq(0))

    return replace(finite_pair(list(map(arb, own)), list(map(arb, other))), exact=exact)


def finite_pair(own: list[arb], other: list[arb]) -> Curve:
    """The curve of two laws on a few outcomes, H = Σ max(p − e^ε q, 0)."""
    ratios = [
        (p / q).log() if q > 0 and p > 0 else arb.pos_inf() if p > 0 else arb.neg_inf()
        for p, q in zip(own, other, strict=True)
    ]
    # by falling loss: laws of so many outcomes
    order = sorted(range(len(own)), key=lambda place: -float(ratios[place].mid()))
    keys = [-float(ratios[place].mid()) for place in order]
    sums = [list(accumulate((law[place] for place in order), initial=ZERO)) for law in (own, other)]

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # how many outcomes have a loss above ε
        place = bisect_left(keys, -float(epsilon.mid()))
        return sums[0][place], sums[1][place]

    def height(epsilon: arb) -> arb:
        scale, total = epsilon.exp(), ZERO
        for p, q in zip(own, other, strict=True):
            total += (p - scale * q).max(ZERO)
        return total

    above = [ratio for ratio in ratios if not ratio < 0]
    most = largest([ZERO, *above]) if all(one.is_finite() for one in above) else None

    def renyi(order: fmpq) -> arb | None:
        # ln Σ p^α q^{1−α}
        total, power = ZERO, arb(order)
        for p, q in zip(own, other, strict=True):
            if p.is_zero():
                continue
            if not (p > 0 and q > 0):
                return None
            total += p**power * q ** (ONE - power)
        return total.log()

    return Curve(height, tails=tails, most=most, renyi=renyi)


def table(laws: list[list[fmpq]]) -> Pair:
    """Every two rows of a finite mechanism, probabilities outcome by outcome."""
    if len(laws) ** 2 * len(laws[0]) > MOST_WORK:
        raise RefusedFileError("table: more pairs of rows than a checker compares")
    curves = [fractions(one, other) for one in laws for other in laws if one is not other]
    if len(laws) > MOST_ORDERED:
        return Pair((highest(curves),))
    return Pair(tuple(curves), f"two of {len(laws)} rows")


def exponential(exact: fmpq) -> Pair:
    """A loss within an interval of length η: H = (1 − e^{(ε − η)/2})²/(1 − e^{−η}) at |ε| <= η."""
    width = arb(exact)
    scale = -(-width).expm1()

    def height(epsilon: arb) -> arb:
        if epsilon < -width:
            return -epsilon.expm1()
        part = -((epsilon - width) * HALF).expm1()
        return part * part / scale

    # attained for one release at every ε, by a pair that depends on ε
    return Pair((Curve(height, most=width, pure=exact),))


def failing(chance: arb) -> Pair:
    """A release that gives itself away with probability δ and says nothing otherwise."""

    def tails(epsilon: arb) -> tuple[arb, arb]:
        return (ONE, ONE - chance) if epsilon < 0 else (chance, ZERO)

    return Pair((replace(from_tails(tails), fails=chance),))


def key_alone(length: int, most: int, threshold: int, variance: fmpq) -> Pair:
    """A key that one unit alone has passes: of k with weight ⌊U/√k⌋, k P(X >= T − w) at most."""
    spread = arb(variance).sqrt()
    # P(X >= m) <= P(N(0, s²) >= m − 1)
    chances = [
        half_square_tail((threshold - math.isqrt(length * length // k) - 1) / spread) * k
        for k in range(1, most + 1)
    ]
    return failing(largest(chances).min(ONE)).bounding


def sampled(rate: fmpq, base: Pair) -> Pair:
    """Poisson samples: (1 − q) Q + q P against Q, and (Q, P) by duality."""
    if rate == 0:
        return nothing()
    if rate == 1:
        return base
    share, rest = arb(rate), arb(1 - rate)
    curves: list[Curve] = []
    for one in base.curves:
        most = None if one.most is None else (rest + share * one.most.exp()).log()
        # −L <= −ln(1 − q + q e^{−M}) where M bounds the loss of the other order too
        alone = one.most is not None and len(base.curves) == 1
        least = (-one.most).exp() if alone and one.most is not None else ZERO
        forward = _sampled(share, rest, one, most)
        back = turned(forward, most=-(rest + share * least).log())
        # of a Gaussian the reverse order is the smaller at every Rényi order
        curves += [forward, replace(back, renyi=forward.renyi, attained=back.attained)]
    return Pair(tuple(curves), ADDED)


def _sampled(share: arb, rest: arb, base: Curve, most: arb | None) -> Curve:
    inner = base.tails

    def renyi(order: fmpq) -> arb | None:
        # Mironov, Talwar and Zhang (2019), Theorem 5, Section 3.3, of a Gaussian at whole orders:
        # ln Σ_k C(α, k) (1 − q)^{α−k} q^k e^{k(k−1)μ²/2}, the larger of both orders
        if base.gaussian is None or order.q != 1 or order > MOST_ORDER:
            return None
        degree, total = int(order.p), ZERO
        for k in range(degree + 1):
            weight = arb.bin_uiui(degree, k) * rest ** (degree - k) * share**k
            total += weight * arb(base.gaussian * (k * (k - 1)) / 2).exp()
        return total.log()

    def place(epsilon: arb) -> arb | None:
        # q e^{ε'} = e^ε − 1 + q; none where the mixture is above e^ε Q everywhere
        held = epsilon.expm1() + share
        return (held / share).log() if held > 0 else None

    def tails(epsilon: arb) -> tuple[arb, arb]:
        assert inner is not None
        found = place(epsilon)
        if found is None:
            return ONE, ONE
        own, other = inner(found)
        return rest * other + share * own, other

    def height(epsilon: arb) -> arb:
        found = place(epsilon)
        return -epsilon.expm1() if found is None else share * base.at(found)

    kept = None if inner is None else tails
    return Curve(height, base.attained, kept, most, renyi=renyi)


def replaced(rate: fmpq, exact: fmpq) -> Pair:
    """(1 − q) N(0) + q N(d) against (1 − q) N(0) + q N(−d), equal in both orders, by d²."""
    if rate == 0 or exact == 0:
        return nothing()
    if rate == 1:
        return gaussian(4 * exact)
    share, rest = arb(rate), arb(1 - rate)
    lift = (-arb(exact) * HALF).exp() * share / rest

    def root(gamma: arb) -> arb:
        # 1 + A u = γ (1 + A/u): A u² + (1 − γ) u − γ A = 0
        half = (gamma - 1) / (2 * lift)
        found = (half * half + gamma).sqrt()
        # the root without what cancels: γ/(root − half) below 1
        return half + found if half >= 0 else gamma / (found - half)

    return Pair((_shifted([ZERO, rest, share], [share, rest, ZERO], -1, exact, root),))


def group(rate: fmpq, exact: fmpq, records: int) -> Pair:
    """Σ_j Bin(k, q)(j) N(jd, 1) against N(0, 1), and the other order, by d²."""
    if rate == 0 or exact == 0:
        return nothing()
    if rate == 1:
        return gaussian(exact * (records * records))
    square, share, rest = arb(exact), arb(rate), arb(1 - rate)
    chances = [
        arb.bin_uiui(records, j) * share**j * rest ** (records - j) for j in range(records + 1)
    ]
    # Σ_j c_j e^{−d²j²/2} u^j = e^ε
    lifts = [chance * (-square * (j * j) * HALF).exp() for j, chance in enumerate(chances)]
    none = [ONE] + [ZERO] * records
    forward = _shifted(chances, none, 0, exact, lambda gamma: _crossing(lifts, gamma))
    return Pair((forward, turned(forward, most=-rest.log() * records)), ADDED)


def _shifted(
    own: list[arb], other: list[arb], first: int, exact: fmpq, root: Callable[[arb], arb | None]
) -> Curve:
    """Σ_j p_j N(jd, 1) against Σ_j q_j N(jd, 1), j from ``first``, a likelihood ratio that grows.

    ``root`` gives u = e^{dx} where the ratio is γ; None where it is above γ everywhere.
    """
    distance = arb(exact).sqrt()

    def tails(epsilon: arb) -> tuple[arb, arb]:
        found = root(epsilon.exp())
        if found is None:
            return ONE, ONE
        x = found.log() / distance
        above = [half_square_tail(x - distance * (first + j)) for j in range(len(own))]
        return (
            sum((p * tail for p, tail in zip(own, above, strict=True) if p > 0), ZERO),
            sum((q * tail for q, tail in zip(other, above, strict=True) if q > 0), ZERO),
        )

    return from_tails(tails)


def _crossing(lifts: list[arb], level: arb) -> arb | None:
    """Enclose the u > 0 where an increasing polynomial reaches a level, by the logarithm of u."""
    if not level > lifts[0]:
        return None

    def gap(place: arb) -> arb:
        u, total = place.exp(), ZERO
        for lift in reversed(lifts):
            total = total * u + lift
        return (total / level).log()

    # gap(low) < 0 < gap(high) surely, at every turn
    low, high = arb(-1), arb(1)
    while not gap(low) < 0:
        low = low * 2
    while not gap(high) > 0:
        high = high * 2
    below, above, side = gap(low), gap(high), 0
    for _ in range(100):
        # false position; an end that stays counts half (the Illinois rule)
        middle = ((low * above - high * below) / (above - below)).mid()
        found = gap(middle)
        near, far = middle - NEAR, middle + NEAR
        if abs(found) < NEAR and gap(near) < 0 and gap(far) > 0:
            return near.union(far).exp()
        if found < 0:
            low, below, above, side = middle, found, above / (2 if side < 0 else 1), -1
        elif found > 0:
            high, above, below, side = middle, found, below / (2 if side > 0 else 1), 1
        else:
            break
    return low.union(high).exp()
