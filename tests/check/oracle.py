"""What mechanisms give, at 50 digits, by definitions: sums of max(p − e^ε q, 0) and quadrature."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from mpmath import mp, mpf

mp.dps = 50
Curve = Callable[[Any], Any]
Node = dict[str, Any]


def tail(x: Any) -> Any:
    """P(N(0, 1) > x)."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def events(own: Callable[[Any], Any], other: Callable[[Any], Any], ratio: Callable[[Any], Any]):
    """H of tails P(X > x), Q(X > x) whose likelihood ratio increases in x: at the crossing."""

    def height(epsilon: Any) -> Any:
        low, high = mpf(-400), mpf(400)
        for _ in range(220):
            middle = (low + high) / 2
            low, high = (middle, high) if ratio(middle) < mp.exp(epsilon) else (low, middle)
        return max(own(high) - mp.exp(epsilon) * other(high), 1 - mp.exp(epsilon), mpf(0))

    return height


def both(one: Curve, other: Curve) -> Curve:
    """The worse of two orders."""
    return lambda epsilon: max(one(epsilon), other(epsilon))


def reverse(one: Curve) -> Curve:
    """H of (Q, P) from that of (P, Q)."""
    return lambda epsilon: 1 - mp.exp(epsilon) + mp.exp(epsilon) * one(-epsilon)


def outcomes(rows: list[list[Any]]) -> Curve:
    """Every two rows of probabilities."""

    def height(epsilon: Any) -> Any:
        scale = mp.exp(epsilon)
        return max(
            mp.fsum(max(p - scale * q, mpf(0)) for p, q in zip(one, other, strict=True))
            for one in rows
            for other in rows
        )

    return height


def mixture(weights: list[Any], places: list[Any]) -> Curve:
    """Σ w N(place, 1) against N(0, 1) in both orders."""

    def ratio(x: Any) -> Any:
        pairs = zip(weights, places, strict=True)
        return mp.fsum(w * mp.exp(a * x - a * a / 2) for w, a in pairs)

    def own(x: Any) -> Any:
        return mp.fsum(w * tail(x - a) for w, a in zip(weights, places, strict=True))

    one = events(own, tail, ratio)
    return both(one, reverse(one))


def gaussian(node: Node) -> Curve:
    mu = mpf(node["sensitivity"]) / mpf(node["noise"])
    return mixture([mpf(1)], [mu])


def laplace(node: Node) -> Curve:
    loss = mpf(node["sensitivity"]) / mpf(node["scale"])

    def height(epsilon: Any) -> Any:
        # ∫ max(p − e^ε q, 0) by the place t where the loss 2t − L is ε
        place = (loss + epsilon) / 2
        if place >= loss:
            return mpf(0)
        if place <= 0:
            return 1 - mp.exp(epsilon)
        return 1 - mp.exp(place - loss) / 2 - mp.exp(epsilon) * mp.exp(-place) / 2

    return height


def whole(weight: Callable[[int], Any], shift: int, reach: int) -> Curve:
    total = mp.fsum(weight(abs(k)) for k in range(-reach, reach + 1))
    points = range(-reach, reach + shift + 1)
    return outcomes(
        [
            [weight(abs(k - shift)) / total for k in points],
            [weight(abs(k)) / total for k in points],
        ]
    )


def discrete_gaussian(node: Node) -> Curve:
    variance = mpf(node["variance"])
    reach = int(18 * mp.sqrt(variance)) + 20
    return whole(lambda k: mp.exp(-mpf(k * k) / (2 * variance)), int(node["sensitivity"]), reach)


def discrete_laplace(node: Node) -> Curve:
    scale = mpf(node["scale"])
    reach = int(130 * scale) + 20
    return whole(lambda k: mp.exp(-mpf(k) / scale), int(node["sensitivity"]), reach)


def response_rows(node: Node) -> list[list[Any]]:
    answers = int(node["categories"])
    if "truth" in node:
        truth = mpf(node["truth"])
    else:
        truth = mp.exp(mpf(node["epsilon"])) / (mp.exp(mpf(node["epsilon"])) + answers - 1)
    rest = (1 - truth) / (answers - 1)
    return [[truth, rest, rest * (answers - 2)], [rest, truth, rest * (answers - 2)]]


def table_rows(node: Node) -> list[list[Any]]:
    rows = [[mpf(weight) for weight in row] for row in node["rows"]]
    return [[weight / mp.fsum(row) for weight in row] for row in rows]


def exponential(node: Node) -> Curve:
    width = mpf(node["range"])

    def height(epsilon: Any) -> Any:
        # two outcomes with losses t and t − η: the worst t by its stationary point
        t = min(max((epsilon + width) / 2, mpf(0)), width)
        share = (1 - mp.exp(t - width)) / (mp.exp(t) - mp.exp(t - width))
        rows = [[share * mp.exp(t), 1 - share * mp.exp(t)], [share, 1 - share]]
        return outcomes(rows)(epsilon)

    return height


def sampled(node: Node) -> Curve:
    rate, inner = mpf(node["rate"]), node["of"]
    if inner["kind"] == "gaussian":
        mu = mpf(inner["sensitivity"]) / mpf(inner["noise"])
        return mixture([1 - rate, rate], [mpf(0), mu])
    if inner["kind"] == "response":
        own, other = response_rows(inner)
        mixed = [(1 - rate) * q + rate * p for p, q in zip(own, other, strict=True)]
        return outcomes([mixed, other])
    loss = mpf(inner["sensitivity"]) / mpf(inner["scale"])

    def log_ratio(x: Any) -> Any:
        return mp.log(1 - rate + rate * mp.exp(min(max(2 * x - loss, -loss), loss)))

    def own(x: Any) -> Any:
        return (1 - rate) * laplace_tail(x) + rate * laplace_tail(x - loss)

    def forward(epsilon: Any) -> Any:
        if log_ratio(loss) <= epsilon:
            return mpf(0)
        return events(own, laplace_tail, lambda x: mp.exp(log_ratio(x)))(epsilon)

    def backward(epsilon: Any) -> Any:
        if -log_ratio(mpf(0)) <= epsilon:
            return mpf(0)
        return reverse(forward)(epsilon)

    return both(forward, backward)


def laplace_tail(x: Any) -> Any:
    return mp.exp(-x) / 2 if x >= 0 else 1 - mp.exp(x) / 2


def replaced(node: Node) -> Curve:
    rate, d = mpf(node["rate"]), mpf(node["sensitivity"]) / mpf(node["noise"])

    def density(x: Any, sign: int) -> Any:
        return 1 - rate + rate * mp.exp(sign * d * x - d * d / 2)

    return events(
        lambda x: (1 - rate) * tail(x) + rate * tail(x - d),
        lambda x: (1 - rate) * tail(x) + rate * tail(x + d),
        lambda x: density(x, 1) / density(x, -1),
    )


def groups(node: Node) -> Curve:
    rate, records = mpf(node["rate"]), int(node["records"])
    d = mpf(node["sensitivity"]) / mpf(node["noise"])
    chances = [
        mp.binomial(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)
    ]
    return mixture(chances, [d * j for j in range(records + 1)])


def projection(node: Node) -> Curve:
    dim, rank = int(node["dim"]), int(node["rank"])
    length = mpf(node["sensitivity"]) / mpf(node["noise"])
    if rank >= dim:
        return mixture([mpf(1)], [length])

    def height(epsilon: Any) -> Any:
        def weighted(theta: Any) -> Any:
            mu = length * mp.sin(theta)
            share = mp.sin(theta) ** (rank - 1) * mp.cos(theta) ** (dim - rank - 1)
            return share * (
                tail(epsilon / mu - mu / 2) - mp.exp(epsilon) * tail(epsilon / mu + mu / 2)
            )

        # the density over its integral: around its mode, in pieces
        mode = mp.atan(mp.sqrt(mpf(rank) / (dim - rank)))
        pieces = [mpf(0), mode / 2, mode, (mode + mp.pi / 2) / 2, mp.pi / 2]
        scale = 2 / mp.beta(mpf(rank) / 2, mpf(dim - rank) / 2)
        with mp.workdps(30):
            return scale * mp.quad(weighted, pieces)

    return height


def composed(node: Node) -> Curve:
    """Compositions with a form: of Gaussians, and of answers with two categories."""
    parts = [(int(part["count"]), part["of"]) for part in node["parts"]]
    if all(inner["kind"] == "gaussian" for _, inner in parts):
        ratios = [(n, mpf(i["sensitivity"]) / mpf(i["noise"])) for n, i in parts]
        return mixture([mpf(1)], [mp.sqrt(mp.fsum(n * mu * mu for n, mu in ratios))])
    laws = []
    for count, inner in parts:
        rows = table_rows(inner) if inner["kind"] == "table" else response_rows(inner)
        assert len(rows) == 2
        laws += [rows] * count
    # all sequences of outcomes, those of equal probabilities together
    joint: dict[tuple[Any, Any], int] = {(mpf(1), mpf(1)): 1}
    for own, other in laws:
        step: dict[tuple[Any, Any], int] = {}
        for ((p, q), many), (a, b) in product(joint.items(), zip(own, other, strict=True)):
            # equal products in another order differ in their last digits alone
            key = (mp.mpf(mp.nstr(p * a, 45)), mp.mpf(mp.nstr(q * b, 45)))
            step[key] = step.get(key, 0) + many
        joint = step
    both_ways = [[p * n for (p, _), n in joint.items()], [q * n for (_, q), n in joint.items()]]
    return outcomes(both_ways)


CURVES: dict[str, Callable[[Node], Curve]] = {
    "gaussian": gaussian,
    "laplace": laplace,
    "discrete-gaussian": discrete_gaussian,
    "discrete-laplace": discrete_laplace,
    "response": lambda node: outcomes(response_rows(node)),
    "table": lambda node: outcomes(table_rows(node)),
    "exponential": exponential,
    "poisson-sampled": sampled,
    "replaced": replaced,
    "groups": groups,
    "projection": projection,
    "composition": composed,
}


def curve(node: Node) -> Curve:
    """H of a mechanism in the worse order."""
    return CURVES[node["kind"]](node)


def decimal(value: Any, digits: int, *, up: bool) -> str:
    """A number in so many significant digits, rounded up or down."""
    if value == 0:
        return "0"
    exponent = int(mp.floor(mp.log10(abs(value)))) - digits + 1
    scaled = value / mpf(10) ** exponent
    whole_number = int(mp.ceil(scaled) if up else mp.floor(scaled))
    return f"{whole_number}e{exponent}"


def epsilon_of(height: Curve, delta: Any, *, most: Any = 200) -> Any:
    """The least ε >= 0 at which H is δ."""
    low, high = mpf(0), mpf(1)
    if height(low) <= delta:
        return mpf(0)
    while height(high) > delta:
        high *= 2
        if high > most:
            raise ValueError("no such ε")
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if height(middle) > delta else (low, middle)
    return high
