"""Mechanisms with a closed curve: Gaussian, Laplace, whole noise, responses, tables, samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from flint import arb, fmpq

from tacit_check.balls import HALF, ONE, ZERO, RefusedFileError, half_square_tail, largest, whole
from tacit_check.curves import Both, Curve, Height, from_tails, highest, turned

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
# Records of a group.
MOST_RECORDS = 512


def gaussian(square: fmpq) -> Both:
    """N(μ, 1) against N(0, 1), by μ²: P(L > ε) = Φ(μ/2 − ε/μ), Q(L > ε) = Φ(−μ/2 − ε/μ)."""
    if square == 0:
        return nothing()
    mu = arb(square).sqrt()

    def tails(epsilon: arb) -> tuple[arb, arb]:
        middle = epsilon / mu
        return half_square_tail(middle - mu * HALF), half_square_tail(middle + mu * HALF)

    # D_α = α μ²/2
    curve = from_tails(
        tails, gaussian=square, renyi=lambda order: arb(order * (order - 1) * square / 2)
    )
    return Both((curve,), theorems=("Balle and Wang (2018), Theorem 8",))


def nothing() -> Both:
    """Two equal laws."""
    return Both((from_tails(_equal, pure=fmpq(0), gaussian=fmpq(0), renyi=lambda _: ZERO),))


def _equal(epsilon: arb) -> tuple[arb, arb]:
    return (ONE, ONE) if epsilon < 0 else (ZERO, ZERO)


def laplace(exact: fmpq) -> Both:
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

    source = "Balle, Barthe and Gaboardi (2018), Theorem 3; for vectors: the l1 worst case"
    return Both((from_tails(tails, pure=exact, renyi=renyi),), theorems=(source,))


def discrete_laplace(shift: int, scale: fmpq) -> Both:
    """Noise ∝ a^|k|, a = e^{−1/b}, moved by a whole Δ; the loss at k between is (2k − Δ)/b."""
    if shift == 0:
        return nothing()
    rate = ONE / arb(scale)
    base = (-rate).exp()
    curve = _stepped(
        lambda epsilon: (epsilon / rate + shift) * HALF,
        lambda first: (_geometric(base, first - shift), _geometric(base, first)),
        pure=fmpq(shift) / scale,
    )
    source = "Ghosh, Roughgarden and Sundararajan (2012): the two-sided geometric law"
    return Both((curve,), theorems=(source,))


def _stepped(
    place: Height, above: Callable[[int], tuple[arb, arb]], *, pure: fmpq | None = None
) -> Curve:
    """A pair on whole numbers whose loss exceeds ε where k > place(ε)."""
    most = None if pure is None else arb(pure)

    def tails(epsilon: arb) -> tuple[arb, arb]:
        if most is not None and epsilon >= most:
            return ZERO, ZERO
        if most is not None and epsilon < -most:
            return ONE, ONE
        return above(_floor(place(epsilon).mid()) + 1)

    def height(epsilon: arb) -> arb:
        # H is the largest of P − e^ε Q over all events: of those that the ball leaves open
        found, scale = place(epsilon), epsilon.exp()
        firsts = {_floor(found.lower()) + 1, _floor(found.upper()) + 1}
        return largest(own - scale * other for own, other in map(above, firsts))

    return Curve(height, tails=tails, most=most, pure=pure)


def _floor(number: arb) -> int:
    return whole(number.floor())


def _geometric(base: arb, first: int) -> arb:
    # P(k >= first) of the law ∝ a^|k|: a^first/(1 + a), and 1 − a^{1 − first}/(1 + a) below 1
    if first >= 1:
        return base**first / (ONE + base)
    return ONE - base ** (1 - first) / (ONE + base)


def discrete_gaussian(shift: int, variance: fmpq, coordinates: int) -> Both:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by Δ in Euclidean norm."""
    if shift == 0:
        return nothing()
    spread = float(variance) ** 0.5
    if coordinates == 1 and 40 * spread + shift < MOST_TERMS:
        return Both((_whole(shift, variance, spread),), theorems=(WHOLE,))
    if variance <= SMOOTHING:
        raise RefusedFileError(
            "discrete-gaussian: expected a variance above 16 in many coordinates"
        )
    return smoothed(fmpq(shift * shift), variance, coordinates)


def smoothed(square: fmpq, variance: fmpq, coordinates: int) -> Both:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by √square: N(Δ, s² − 16), up to e^{±η}."""
    # a discrete Gaussian is what rounding N(z, s² − 16) at random gives, up to e^{±η}
    smooth = gaussian(square / (variance - SMOOTHING))
    power = 0.4343 * (32 * 9.8696) - len(str(14 * coordinates))
    note = f"up to a factor exp(±10^-{int(power)}) of every probability"
    return bounding(smooth, SMOOTH, note)


def bounding(both: Both, theorem: str, note: str = "") -> Both:
    """Return curves as upper bounds."""
    curves = tuple(replace(one, attained=False) for one in both.curves)
    return Both(curves, note=note, theorems=(theorem,))


WHOLE = "Canonne, Kamath and Steinke (2020), Definition 1: summed term by term"
TAIL = "Canonne, Kamath and Steinke (2020), Proposition 25: the tail of whole noise"
SMOOTH = (
    "Micciancio and Peikert (2013), Lemma 3.1: a discrete Gaussian by rounding a continuous one"
)


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


def response(truth: fmpq, categories: int) -> Both:
    """The truth with probability p, any other of k answers with r = (1 − p)/(k − 1)."""
    other = (1 - truth) / (categories - 1)
    rest = other * (categories - 2)
    return Both((fractions([truth, other, rest], [other, truth, rest]),), theorems=(RESPONSE,))


RESPONSE = "Kairouz, Oh and Viswanath (2016), Section 3"


def told(epsilon: fmpq, categories: int) -> Both:
    """The same with p = e^ε/(e^ε + k − 1)."""
    truth = ONE / (ONE + (categories - 1) * arb(-epsilon).exp())
    other = (ONE - truth) / (categories - 1)
    rest = other * (categories - 2)
    curve = finite_pair([truth, other, rest], [other, truth, rest])
    return Both((replace(curve, most=arb(epsilon), pure=epsilon),), theorems=(RESPONSE,))


def fractions(own: list[fmpq], other: list[fmpq]) -> Curve:
    """The curve of two laws of fractions: exact at γ = e^ε, Σ max(p − γ q, 0)."""
    curve = finite_pair([arb(one) for one in own], [arb(one) for one in other])

    def exact(gamma: fmpq) -> fmpq:
        gains = (p - gamma * q for p, q in zip(own, other, strict=True))
        return sum((gain for gain in gains if gain > 0), fmpq(0))

    return replace(curve, exact=exact)


def finite_pair(own: list[arb], other: list[arb]) -> Curve:
    """The curve of two laws on a few outcomes, H = Σ max(p − e^ε q, 0)."""
    ratios: list[arb] = [
        (p / q).log() if q > 0 and p > 0 else arb.pos_inf() if p > 0 else arb.neg_inf()
        for p, q in zip(own, other, strict=True)
    ]
    order = sorted(range(len(own)), key=lambda place: -_key(ratios[place]))
    sums = [(ZERO, ZERO)]
    for place in order:
        sums.append((sums[-1][0] + own[place], sums[-1][1] + other[place]))
    keys = [-_key(ratios[place]) for place in order]

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # how many outcomes have a loss above ε
        return sums[bisect_left(keys, -float(epsilon.mid()))]

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


def _key(ratio: arb) -> float:
    return float(ratio.mid()) if ratio.is_finite() else float("inf") if ratio > 0 else -float("inf")


def table(rows: list[list[fmpq]]) -> Both:
    """Every two rows of a finite mechanism."""
    if len(rows) ** 2 * len(rows[0]) > MOST_WORK:
        raise RefusedFileError("table: more pairs of rows than a checker compares")
    laws = [[weight / sum(row, fmpq(0)) for weight in row] for row in rows]
    curves = [fractions(one, other) for one in laws for other in laws if one is not other]
    theorems = ("the definition, outcome by outcome",)
    if len(rows) > MOST_ORDERED:
        return Both((highest(curves),), theorems=theorems)
    return Both(tuple(curves), order=f"two of {len(rows)} rows", theorems=theorems)


def exponential(exact: fmpq) -> Both:
    """A loss within an interval of length η: H = (1 − e^{(ε − η)/2})²/(1 − e^{−η}) at |ε| <= η."""
    width = arb(exact)
    scale = -(-width).expm1()

    def height(epsilon: arb) -> arb:
        if epsilon < -width:
            return -epsilon.expm1()
        part = -((epsilon - width) * HALF).expm1()
        return part * part / scale

    source = "Dong, Durfee and Rogers (2020): mechanisms of bounded range"
    # attained for one release at every ε, by a pair that depends on ε
    return Both((Curve(height, most=width, pure=exact),), theorems=(source,))


def failing(chance: arb) -> Both:
    """A release that gives itself away with probability δ and says nothing otherwise."""

    def tails(epsilon: arb) -> tuple[arb, arb]:
        return (ONE, ONE - chance) if epsilon < 0 else (chance, ZERO)

    return Both((replace(from_tails(tails), fails=chance),))


def key_alone(length: int, most: int, threshold: int, variance: fmpq) -> Both:
    """A key that one unit alone has passes: of k with weight ⌊U/√k⌋, k P(X >= T − w) at most."""
    spread = arb(variance).sqrt()
    # P(X >= m) <= P(N(0, s²) >= m − 1)
    chances = [
        half_square_tail((threshold - math.isqrt(length * length // k) - 1) / spread) * k
        for k in range(1, most + 1)
    ]
    return bounding(failing(largest(chances).min(ONE)), TAIL)


def sampled(rate: fmpq, base: Both) -> Both:
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
    source = "Zhu, Dong and Wang (2022), Theorem 11; Balle, Barthe and Gaboardi (2018), Theorem 2"
    return Both(tuple(curves), base.note, ADDED, (*base.theorems, source))


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


def replaced(rate: fmpq, exact: fmpq) -> Both:
    """(1 − q) N(0) + q N(d) against (1 − q) N(0) + q N(−d), equal in both orders, by d²."""
    if rate == 0 or exact == 0:
        return nothing()
    if rate == 1:
        return gaussian(4 * exact)
    square, share, rest = arb(exact), arb(rate), arb(1 - rate)
    distance = square.sqrt()
    lift = (-square * HALF).exp() * share / rest

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # 1 + A u = γ (1 + A/u), u = e^{dx}: A u² + (1 − γ) u − γ A = 0
        gamma = epsilon.exp()
        half = (gamma - 1) / (2 * lift)
        root = (half * half + gamma).sqrt()
        # the root without what cancels: γ/(root − half) below 1
        ratio = half + root if half >= 0 else gamma / (root - half)
        x = ratio.log() / distance
        middle = rest * half_square_tail(x)
        return (
            middle + share * half_square_tail(x - distance),
            middle + share * half_square_tail(x + distance),
        )

    source = "the pair of opposite shifts: Tacit, docs/explanation/sampling.md"
    return Both((from_tails(tails),), theorems=(source,))


def group(rate: fmpq, exact: fmpq, records: int) -> Both:
    """Σ_j Bin(k, q)(j) N(jd, 1) against N(0, 1), and the other order, by d²."""
    if rate == 0 or exact == 0:
        return nothing()
    if records > MOST_RECORDS:
        raise RefusedFileError(f"groups: expected at most {MOST_RECORDS} records")
    if rate == 1:
        return gaussian(exact * (records * records))
    square, share, rest = arb(exact), arb(rate), arb(1 - rate)
    distance = square.sqrt()
    chances = [
        arb.bin_uiui(records, j) * share**j * rest ** (records - j) for j in range(records + 1)
    ]
    lifts = [chance * (-square * (j * j) * HALF).exp() for j, chance in enumerate(chances)]

    def tails(epsilon: arb) -> tuple[arb, arb]:
        # Σ_j c_j e^{−d²j²/2} u^j = e^ε at u = e^{dx}, enclosed by bisection and Newton
        found = _crossing(lifts, epsilon.exp())
        if found is None:
            return ONE, ONE
        x = found.log() / distance
        own = sum((c * half_square_tail(x - distance * j) for j, c in enumerate(chances)), ZERO)
        return own, half_square_tail(x)

    forward = from_tails(tails)
    source = "Choquette-Choo, Ganesh, Steinke and Thakurta (2024), Lemma 4.5 and Theorem 4.7"
    curves = (forward, turned(forward, most=-rest.log() * records))
    return Both(curves, order=ADDED, theorems=(source,))


def _crossing(lifts: list[arb], level: arb) -> arb | None:
    """Enclose the u > 0 where an increasing polynomial reaches a level."""
    if not level > lifts[0]:
        return None

    def value(u: arb) -> arb:
        total = ZERO
        for lift in reversed(lifts):
            total = total * u + lift
        return total

    # by the logarithm of u: value(low) < level < value(high) surely, at every turn
    low, high = arb(-1), arb(1)
    while not value(low.exp()) < level:
        low = low * 2
    while not value(high.exp()) > level:
        high = high * 2
    for _ in range(150):
        middle = ((low + high) * HALF).mid()
        reached = value(middle.exp())
        if reached < level:
            low = middle
        elif reached > level:
            high = middle
        else:
            break
    return low.union(high).exp()
