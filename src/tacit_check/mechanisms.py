"""From a node to what is known of it: its curves, and what any guess can gain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from flint import arb, fmpq

from tacit_check import allocation, boxes, elementary, projections, reading
from tacit_check.balls import Number, rational_up, require
from tacit_check.curves import Pair, Parts
from tacit_check.reading import Fields, anything, count, decimal, fields, listed, within

# Of a tree: how deep and how large; releases together; bits of an exact factor of all of them.
MOST_LEVELS, MOST_NODES, MOST_COUNT, MOST_BITS = 64, 4096, 10**12, 1 << 20
# Variance that is given up where whole noise in many coordinates is bounded by a continuous one.
SMOOTHING = 16


@dataclass(frozen=True)
class Known:
    """What is known of a release.

    Attributes:
        choices: (count, pair) of independent releases about the same record, of every mechanism
            that it may be; none where there is no pair of inputs.
        factor: what it multiplies the chance of any guess by.
        nats: an upper bound of the information, of what has no factor.
        cells: (n, N, whether n was counted) of a function with n values of one of N equally likely
            candidates.
        unknown: why no claim about it can be checked; empty where some can.
    """

    choices: tuple[Parts, ...] = ()
    factor: fmpq | None = None
    nats: arb | None = None
    cells: tuple[int, int, bool] | None = None
    unknown: str = ""


class Node(NamedTuple):
    """A kind of node.

    Attributes:
        make: what is known of it, told the reader and its fields.
        needed: the fields that it needs.
        optional: those that it may have.
        about: the adjacencies that it speaks of; all where it is empty.
    """

    make: Callable[..., Known | Pair]
    needed: Fields
    optional: Fields = reading.NONE
    about: tuple[str, ...] = ()


class Reader:
    """Reads a tree, counting its nodes, and keeps what it was told.

    Args:
        proof: whose mechanism is read.
        measured: what the holder's data gave, by digest.
    """

    def __init__(self, proof: reading.Proof, measured: Mapping[str, Any] | None = None) -> None:
        self.adjacency = proof.adjacency
        self.measured, self.used = measured or {}, {""}
        self.left, self.level = MOST_NODES, 0
        # what is taken as given, the theorems that are used, and what is true up to something
        self.given = dict.fromkeys(proof.given)
        self.theorems, self.notes = dict[str, None](), dict[str, None]()

    def read(self, node: Any) -> Known:
        """Return what is known of a node."""
        self.left -= 1
        fine = self.left >= 0 and self.level < MOST_LEVELS
        require(fine, f"mechanism: more than {MOST_NODES} nodes or {MOST_LEVELS} levels")
        kind, rest = reading.kind_of(node, "mechanism", KINDS)
        make, needed, optional, about = KINDS[kind]
        found = fields(rest, kind, needed, optional)
        fine = not about or self.adjacency in about
        require(fine, f"{kind}: not a statement about {self.adjacency!r}")
        # what moves nothing tells nothing; of noise in the norm of which it moves, (Δ/σ)², exactly
        still = "of" not in found and 0 in (found.get("sensitivity"), found.get("rate"))
        if "noise" in found:
            found["square"] = (found.pop("sensitivity") / found.pop("noise")) ** 2
        self.level += 1
        known = elementary.NOTHING if still else make(self, **found)
        self.level -= 1
        self.theorems[THEOREMS.get(kind, "")] = None
        return guessed(known) if isinstance(known, Pair) else known

    def single(self, node: Any) -> Pair:
        """Return the curves of a node that is one release."""
        found = self.read(node)
        known = [part for parts in found.choices for part in parts]
        require(not found.unknown and [one for one, _ in known] == [1], "of: expected one release")
        return known[0][1]

    def told(self, name: str, *kinds: str, given: str) -> Any:
        """Return what the holder's data gave of a node; None where it is given, as none did."""
        kind, value = self.measured.get(name, (None, None))
        self.used.add(name)
        require(kind in (None, *kinds), f"{' or '.join(kinds)}: the data is about {kind}")
        if kind is None:
            self.given[f"{given} (--data)"] = None
        return value


def guessed(pair: Pair, factor: Number | None = None) -> Known:
    """Return what is known of one release; ``factor``: Σ over outcomes of the most probable."""
    return Known((((1, pair),),), rational_up(factor) if isinstance(factor, arb) else factor)


def _discrete_gaussian(reader: Reader, sensitivity: int, variance: fmpq, coordinates: int) -> Pair:
    few = 40 * float(variance) ** 0.5 + sensitivity < elementary.MOST_TERMS
    if coordinates == 1 and few:
        return elementary.discrete_gaussian(sensitivity, variance)
    return _smoothed(reader, fmpq(sensitivity * sensitivity), variance, coordinates)


def _smoothed(reader: Reader, square: fmpq, variance: fmpq, coordinates: int) -> Pair:
    """Noise ∝ e^{−k²/2s²} on whole numbers, moved by √square: N(Δ, s² − 16), up to e^{±η}."""
    require(variance > SMOOTHING, f"variance: expected more than {SMOOTHING} in many coordinates")
    reader.theorems[SMOOTH] = None
    # η = 14 · coordinates · e^{−32π²}, as a power of ten
    power = int(0.4343 * (32 * 9.8696) - len(str(14 * coordinates)))
    reader.notes[f"up to a factor exp(±10^-{power}) of every probability"] = None
    # a discrete Gaussian is what rounding N(z, s² − 16) at random gives, up to e^{±η}
    return elementary.gaussian(square / (variance - SMOOTHING)).bounding


def _weighted(reader: Reader, length: int, most: int, threshold: int, variance: fmpq) -> Known:
    # weights are not negative: in the place of another both squares add up; only their keys matter
    units = 2 if reader.adjacency == "replace" else 1
    moved = _smoothed(reader, fmpq(units * length * length), variance, units * most)
    sentence = "a unit gives its weights to keys that it has, chosen by these and by those found"
    reader.given[sentence] = None
    return Known((((1, moved), (1, elementary.key_alone(length, most, threshold, variance))),))


def stated(value: Any, name: str) -> str:
    """Return a number that is not negative as it is written."""
    within(0)(value, name)
    return str(value)


def _distance(reader: Reader, distance: str, digest: str = "") -> Pair:
    given = f"no difference of the holder's data is farther than {distance}"
    square = reader.told(digest, "differences", "swaps", given=given)
    if square is not None:
        return elementary.gaussian(square)
    # a smaller distance may be the true one: nothing is proved false
    return elementary.gaussian(decimal(distance, "distance") ** 2).bounding


def _log_det(reader: Reader, nats: str, digest: str = "") -> Known:
    given = f"½ ln det(I + SΣ⁻¹) of the holder's data is at most {nats} nats"
    told = reader.told(digest, "log-det", given=given)
    return Known(nats=arb(decimal(nats, "nats")) if told is None else told)


def _cells(reader: Reader, occupied: int, candidates: int, digest: str = "") -> Known:
    given = f"the function has {occupied} values on the holder's candidates"
    told = reader.told(digest, "cells", given=given)
    many, listed_there = told or (occupied, candidates)
    fine = listed_there == candidates and many <= candidates
    require(fine, "candidates: expected as many as the data holds")
    return Known(cells=(many, candidates, told is not None), nats=arb(many).log())


def _part(value: Any, name: str) -> tuple[int, Any]:
    found = fields(value, name, {"count": count(high=MOST_COUNT), "of": anything})
    return found["count"], found["of"]


def _composition(reader: Reader, parts: list[tuple[int, Any]]) -> Known:
    found = [(times, reader.read(of)) for times, of in parts]
    for _, one in found:
        if one.unknown or one.choices[1:]:
            return Known(unknown=one.unknown or "its worst case is known of one release alone")
    declared = any(one.nats is not None for _, one in found)
    require(not declared, "composition: information about a declared law does not add up")
    known = [(times, parts) for times, one in found for parts in one.choices]
    together = [(times * many, pair) for times, parts in known for many, pair in parts]
    few = sum(times for times, _ in together) <= MOST_COUNT
    require(few, f"composition: expected at most {MOST_COUNT} releases")
    # Π factor^T; none where it has more digits than are worth it
    factors = [(times, one.factor) for times, one in found if one.factor is not None]
    digits = sum(times * factor.height_bits() for times, factor in factors)
    short = len(factors) == len(found) and digits <= MOST_BITS
    factor = prod((one**times for times, one in factors), start=fmpq(1)) if short else None
    # a part without a pair, as a code is, may tell any two inputs apart: the whole has none either
    return Known((together,) if all(one.choices for _, one in found) else (), factor)


def plain(make: Callable[..., Any]) -> Callable[..., Known | Pair]:
    """Return what makes a node by its fields alone.

    ``make`` returns a pair, and what any guess can gain; or all that it may be; or why it is none.
    """

    def made(_: Reader, **found: Any) -> Known:
        known = make(**found)
        if isinstance(known, str):
            return Known(unknown=known)
        if isinstance(known, list):
            return Known(tuple(known))
        return guessed(known) if isinstance(known, Pair) else guessed(*known)

    return made


def _boxes(reader: Reader, **sums: Any) -> Pair:
    return elementary.gaussian(boxes.distance(reader.adjacency, **sums))


def _sampled(reader: Reader, rate: fmpq, of: Any) -> Pair:
    return elementary.sampled(rate, reader.single(of))


ADD, EACH, INPUTS = ("add-remove",), ("add-remove", "replace"), ("inputs",)
RATE, NOT_NEGATIVE, POSITIVE = within(0, 1), within(0), within(0, above=True)
SHIFT: Fields = {"sensitivity": NOT_NEGATIVE, "noise": POSITIVE}
SCALED: Fields = {"sensitivity": NOT_NEGATIVE, "scale": POSITIVE}
MOVED, SIZE, MANY = {"sensitivity": count(0, 10**30)}, count(high=10**7), count(high=10**5)
HOLDER, SPECTRUM = {"digest": reading.digest}, {"spectrum": reading.word("one", "any")}
SIZES, TOLD = {"dim": SIZE, "rank": SIZE}, {"truth": RATE, "epsilon": within(0, 10_000)}
SUM, EPOCH = {"rate": RATE, **SHIFT}, {**SHIFT, "steps": count()}
COUNTED: Fields = {"length": count(high=10**15), "most": count(high=10**4)}
HEAVY: Fields = {"threshold": count(high=10**18), "variance": within(16, above=True)}
WITHIN: Fields = {"lowest": within(0, 1, above=True), "highest": within(1)}
COVARIANCE, PARTS = reading.rows(boxes.MOST_SIZE**2), listed(boxes.part, boxes.MOST_PARTS)
NOISE: Fields = {"variance": POSITIVE, "coordinates": count()}
COLUMN = "column: that its alignment is the worst of all that are nearer is not proved"
FEW, CODES = count(2), {"sizes": listed(count(), MOST_NODES)}
KINDS: dict[str, Node] = {
    "gaussian": Node(plain(elementary.gaussian), SHIFT),
    "laplace": Node(plain(elementary.laplace), SCALED),
    "discrete-laplace": Node(plain(elementary.discrete_laplace), {**SCALED, **MOVED}),
    "discrete-gaussian": Node(_discrete_gaussian, {**MOVED, **NOISE}),
    "response": Node(plain(elementary.response), {"categories": FEW}, TOLD),
    "table": Node(plain(elementary.table), {"rows": reading.rows(elementary.MOST_ENTRIES)}),
    "exponential": Node(plain(elementary.exponential), {"range": within(0, 10_000, above=True)}),
    "poisson-sampled": Node(_sampled, {"rate": RATE, "of": anything}, about=ADD),
    "replaced": Node(plain(elementary.replaced), SUM, about=("replace",)),
    "groups": Node(plain(elementary.group), {**SUM, "records": count(high=512)}, about=ADD),
    "random-allocation": Node(plain(allocation.random_allocation), EPOCH, about=ADD),
    "projection": Node(plain(projections.projected), {**SIZES, **SHIFT, **SPECTRUM}),
    "column": Node(plain(lambda **_: COLUMN), {**SIZES, "alignment": within(-1, 1)}),
    "sketch": Node(plain(projections.sketch), {"columns": MANY, "dim": MANY, **WITHIN}),
    # as many values as there are outcomes
    "code": Node(lambda _, sizes: Known(factor=fmpq(prod(sizes))), CODES),
    "weighted-keys": Node(_weighted, {**COUNTED, **HEAVY}, about=EACH),
    "differences": Node(_distance, {"distance": stated}, HOLDER, INPUTS),
    "swaps": Node(_distance, {"distance": stated}, HOLDER, INPUTS),
    "boxes": Node(_boxes, {"covariance": COVARIANCE, "parts": PARTS}, about=EACH),
    "log-det": Node(_log_det, {"nats": stated}, HOLDER),
    "cells": Node(_cells, {"occupied": count(), "candidates": FEW}, HOLDER),
    "composition": Node(_composition, {"parts": listed(_part, MOST_NODES)}),
}
LEAKAGE = "Issa, Wagner and Kamath (2020), Theorem 1: maximal leakage"
DISTANCE = "Balle and Wang (2018), Theorem 8; zᵀ Σ⁻¹ z of every difference, in balls"
SMOOTH = "Micciancio and Peikert (2013), Lemma 3.1: whole noise by rounding a continuous one"
THEOREMS = {
    "gaussian": "Balle and Wang (2018), Theorem 8",
    "laplace": "Balle, Barthe and Gaboardi (2018), Theorem 3; for vectors: the l1 worst case",
    "discrete-laplace": "Ghosh, Roughgarden and Sundararajan (2012): the two-sided geometric law",
    "discrete-gaussian": "Canonne, Kamath and Steinke (2020), Definition 1",
    "response": f"Kairouz, Oh and Viswanath (2016), Section 3; {LEAKAGE}",
    "table": f"the definition, outcome by outcome; {LEAKAGE}",
    "exponential": "Dong, Durfee and Rogers (2020): mechanisms of bounded range",
    "poisson-sampled": "Zhu, Dong and Wang (2022), Theorem 11; Balle, Barthe and Gaboardi (2018), "
    "Theorem 2",
    "replaced": "the pair of opposite shifts: Tacit, docs/explanation/sampling.md",
    "groups": "Choquette-Choo, Ganesh, Steinke and Thakurta (2024), Lemma 4.5 and Theorem 4.7",
    "random-allocation": "Feldman and Shenfeld (2025), Section 3: the pair of balls in bins; "
    "convex order",
    "projection": "lora-privacy, Lemma 16: a projection captures a Beta share of a direction",
    "sketch": "shrinking and adding noise: the worst eigenvalues of a sketch are at the ends",
    "code": LEAKAGE,
    "weighted-keys": "Canonne, Kamath and Steinke (2020), Proposition 25: the tail of whole noise",
    "differences": DISTANCE,
    "swaps": DISTANCE,
    "boxes": "Balle and Wang (2018), Theorem 8; a convex function is largest in a corner of a box",
    "log-det": "residual-pac, Theorem 1: I(X; Y) <= ½ ln det(I + SΣ⁻¹)",
    "cells": "Bayes' rule for a function: Σ over its values of the largest prior",
}
