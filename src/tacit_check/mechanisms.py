"""From a node to what is known of it: its curves, and what any guess can gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from flint import arb, fmpq

from tacit_check import allocation, boxes, elementary, projections
from tacit_check.balls import ONE, RefusedFileError, half_square_tail, rational_up
from tacit_check.composing import Parts
from tacit_check.curves import Pair
from tacit_check.reading import (
    Fields,
    Proof,
    anything,
    count,
    decimal,
    digest,
    fields,
    kind_of,
    listed,
    rows,
    within,
    word,
)

# Of a tree: how deep and how large; releases together; bits of an exact factor of all of them.
MOST_LEVELS, MOST_NODES, MOST_COUNT, MOST_BITS = 64, 4096, 10**12, 1 << 20


@dataclass(frozen=True)
class Known:
    """What is known of a release.

    Attributes:
        choices: (count, pair) of independent releases about the same record, of every mechanism
            that it may be; none where there is no pair of inputs.
        factor: what it multiplies the chance of any guess by.
        nats: an upper bound of the information, a number.
        cells: (n, N, whether n was counted) of a function with n values of one of N equally likely
            candidates.
        unknown: why no claim about it can be checked; empty where some can.
    """

    choices: tuple[Parts, ...] = ()
    factor: fmpq | None = None
    nats: arb | None = None
    cells: tuple[int, int, bool] | None = None
    unknown: str = ""


class Reader:
    """Reads a tree, counting its nodes, and keeps what it was told.

    Args:
        proof: whose mechanism is read.
        measured: what the holder's data gave, by digest.
    """

    def __init__(self, proof: Proof, measured: Mapping[str, Any] | None = None) -> None:
        self.adjacency = proof.adjacency
        self.measured = measured or {}
        self.left, self.level = MOST_NODES, 0
        # what is taken as given, the theorems that are used, and what is true up to something
        self.given = dict.fromkeys(proof.given)
        self.theorems: dict[str, None] = {}
        self.notes: dict[str, None] = {}

    def read(self, node: Any) -> Known:
        """Return what is known of a node."""
        self.left -= 1
        if self.left < 0 or self.level >= MOST_LEVELS:
            raise RefusedFileError(
                f"mechanism: more than {MOST_NODES} nodes or {MOST_LEVELS} levels"
            )
        kind, rest = kind_of(node, "mechanism", FIELDS)
        needed, optional, about = FIELDS[kind]
        found = fields(rest, kind, needed, optional)
        if about and self.adjacency not in about:
            raise RefusedFileError(f"{kind}: not a statement about {self.adjacency!r}")
        self.level += 1
        known = MAKERS[kind](self, **found)
        self.level -= 1
        self.theorems[THEOREMS.get(kind, "")] = None
        return guessed((((1, known),),)) if isinstance(known, Pair) else known

    def single(self, node: Any) -> Pair:
        """Return the curves of a node that is one release."""
        found = self.read(node)
        if (
            found.unknown
            or len(found.choices) != 1
            or [many for many, _ in found.choices[0]] != [1]
        ):
            raise RefusedFileError("of: expected one release")
        return found.choices[0][0][1]

    def data(self, name: str, *kinds: str) -> Any:
        """Return what the holder's data gave of a node; None where it is another file's."""
        kind, value = self.measured.get(name, (None, None))
        if kind is not None and kind not in kinds:
            raise RefusedFileError(f"{' or '.join(kinds)}: the data is about {kind}")
        return value

    def believe(self, sentence: str) -> None:
        """Take something as given that the holder's data would show."""
        self.given[f"{sentence} (--data)"] = None


def guessed(choices: tuple[Parts, ...], factor: fmpq | None = None) -> Known:
    """Return what is known of parts; ``factor``: Σ over outcomes of the largest probability."""
    return Known(choices, factor=factor, nats=None if factor is None else arb(factor).log())


def square_of(sensitivity: fmpq, noise: fmpq) -> fmpq:
    """Return μ² = (Δ/σ)², exactly."""
    return (sensitivity / noise) ** 2


def _discrete_gaussian(reader: Reader, sensitivity: int, variance: fmpq, coordinates: int) -> Pair:
    few = 40 * float(variance) ** 0.5 + sensitivity < elementary.MOST_TERMS
    if sensitivity == 0 or (coordinates == 1 and few):
        return elementary.discrete_gaussian(sensitivity, variance)
    return _smoothed(reader, fmpq(sensitivity * sensitivity), variance, coordinates)


def _smoothed(reader: Reader, square: fmpq, variance: fmpq, coordinates: int) -> Pair:
    reader.theorems[SMOOTH] = None
    reader.notes[elementary.smoothing_note(coordinates)] = None
    return elementary.smoothed(square, variance)


def _response(
    _: Reader, categories: int, truth: fmpq | None = None, epsilon: fmpq | None = None
) -> Known:
    if truth is not None and epsilon is None:
        curve = elementary.fractions(*elementary.answers(truth, categories))
        most = categories * max(truth, (1 - truth) / (categories - 1))
        return guessed((((1, Pair((curve,))),),), most)
    if truth is not None or epsilon is None:
        raise RefusedFileError("response: expected truth or epsilon")
    factor = rational_up(categories * elementary.truth_of(epsilon, categories))
    return guessed((((1, elementary.response_of(epsilon, categories)),),), factor)


def _table(_: Reader, rows: list[list[fmpq]]) -> Known:
    if len(rows) < 2 or any(min(row) < 0 or max(row) == 0 for row in rows):
        raise RefusedFileError("rows: expected two or more of weights, none below 0, one above")
    laws = [[weight / sum(row, fmpq(0)) for weight in row] for row in rows]
    # Σ over outcomes of the largest probability: what any guess can gain
    factor = sum((max(column) for column in zip(*laws, strict=True)), fmpq(0))
    return guessed((((1, elementary.table(laws)),),), factor)


def _allocation(_: Reader, steps: int, **shift: fmpq) -> Known | Pair:
    found = allocation.random_allocation(square_of(**shift), steps)
    reason = "random-allocation: less noise or more steps than a lattice holds"
    return Known(unknown=reason) if found is None else found


def _sketch(_: Reader, columns: int, dim: int, lowest: fmpq, highest: fmpq) -> Known:
    choices = projections.sketch(columns, dim, lowest, highest)
    reason = "" if choices else "sketch: more dimensions or numbers than lattices are built for"
    return Known(tuple(choices), unknown=reason)


def _thresholds(reader: Reader, counts: int, threshold: fmpq, of: Any) -> Known:
    base = reader.single(of)
    # P(noise > g), g = τ − 1, of the noise on one count
    gap, scale = threshold - 1, decimal(of.get("noise", of.get("scale")), "noise")
    if of["kind"] == "gaussian":
        chance = half_square_tail(arb(gap / scale))
    elif of["kind"] == "laplace" and gap >= 0:
        chance = (-arb(gap / scale)).exp() / 2
    elif of["kind"] == "discrete-laplace" and gap >= 0:
        shrink = (-ONE / arb(scale)).exp()
        chance = shrink ** (int(gap.p // gap.q) + 1) / (ONE + shrink)
    else:
        raise RefusedFileError("thresholds: expected gaussian, laplace or discrete-laplace noise")
    return Known((((counts, base), (counts, elementary.failing(chance))),))


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
    square = reader.data(digest, "differences", "swaps")
    if square is not None:
        return elementary.gaussian(square)
    reader.believe(f"no difference of the holder's data is farther than {distance}")
    # a smaller distance may be the true one: nothing is proved false
    return elementary.gaussian(decimal(distance, "distance") ** 2).bounding


def _log_det(reader: Reader, nats: str, digest: str = "") -> Known:
    told = reader.data(digest, "log-det")
    if told is None:
        reader.believe(f"½ ln det(I + SΣ⁻¹) of the holder's data is at most {nats} nats")
        told = arb(decimal(nats, "nats"))
    return Known(nats=told)


def _cells(reader: Reader, occupied: int, candidates: int, digest: str = "") -> Known:
    told = reader.data(digest, "cells")
    if told is None:
        reader.believe(f"the function has {occupied} values on the holder's candidates")
    many, listed_there = (occupied, candidates) if told is None else told
    if listed_there != candidates or many > candidates:
        raise RefusedFileError("candidates: expected as many as the data holds")
    return Known(cells=(many, candidates, told is not None), nats=arb(many).log())


def _part(value: Any, name: str) -> tuple[int, Any]:
    found = fields(value, name, {"count": count(high=MOST_COUNT), "of": anything})
    return found["count"], found["of"]


def _composition(reader: Reader, parts: list[tuple[int, Any]]) -> Known:
    found = [(times, reader.read(of)) for times, of in parts]
    together: list[tuple[int, Pair]] = []
    factor: fmpq | None = fmpq(1)
    for times, one in found:
        if one.unknown or len(one.choices) > 1:
            return Known(unknown=one.unknown or "its worst case is known of one release alone")
        if one.nats is not None and one.factor is None:
            raise RefusedFileError("composition: information about a declared law does not add up")
        together += [(times * many, known) for choice in one.choices for many, known in choice]
        # Π factor^T; none where it has more digits than are worth it
        if factor is None or one.factor is None or one.factor.height_bits() * times > MOST_BITS:
            factor = None
        else:
            factor *= one.factor**times
    if sum(times for times, _ in together) > MOST_COUNT:
        raise RefusedFileError(f"composition: expected at most {MOST_COUNT} releases")
    # a part without a pair, as a code is, may tell any two inputs apart: the whole has none either
    paired = all(one.choices for _, one in found)
    return guessed((together,) if paired else (), factor)


ADD, REPLACE, INPUTS = ("add-remove",), ("replace",), ("inputs",)
RATE, NOT_NEGATIVE, POSITIVE = within(0, 1), within(0), within(0, above=True)
SHIFT: Fields = {"sensitivity": NOT_NEGATIVE, "noise": POSITIVE}
MOVED, SIZE, MANY = count(0, 10**30), count(high=10**7), count(high=10**5)
HOLDER: Fields = {"digest": digest}
SIZES: Fields = {"dim": SIZE, "rank": SIZE}
BOXES = listed(boxes.part, boxes.MOST_PARTS)
COUNTED: Fields = {"length": count(high=10**15), "most": count(high=10**4)}
HEAVY: Fields = {"threshold": count(high=10**18), "variance": within(16, above=True)}
WITHIN: Fields = {"lowest": within(0, 1, above=True), "highest": within(1)}
LEAKAGE = "Issa, Wagner and Kamath (2020), Theorem 1: maximal leakage"
DISTANCE = "Balle and Wang (2018), Theorem 8; zᵀ Σ⁻¹ z of every difference, in balls"
SMOOTH = "Micciancio and Peikert (2013), Lemma 3.1: whole noise by rounding a continuous one"
# kind: the fields it needs, those it may have, and the adjacencies it speaks of.
FIELDS: dict[str, tuple[Fields, Fields, tuple[str, ...]]] = {
    "gaussian": (SHIFT, {}, ()),
    "laplace": ({"sensitivity": NOT_NEGATIVE, "scale": POSITIVE}, {}, ()),
    "discrete-laplace": ({"sensitivity": MOVED, "scale": POSITIVE}, {}, ()),
    "discrete-gaussian": (
        {"sensitivity": MOVED, "variance": POSITIVE, "coordinates": count()},
        {},
        (),
    ),
    "response": ({"categories": count(2)}, {"truth": RATE, "epsilon": within(0, 10_000)}, ()),
    "table": ({"rows": rows(elementary.MOST_ENTRIES)}, {}, ()),
    "exponential": ({"range": within(0, 10_000, above=True)}, {}, ()),
    "poisson-sampled": ({"rate": RATE, "of": anything}, {}, ADD),
    "replaced": ({"rate": RATE, **SHIFT}, {}, REPLACE),
    "groups": ({"rate": RATE, **SHIFT, "records": count(high=512)}, {}, ADD),
    "random-allocation": ({**SHIFT, "steps": count()}, {}, ADD),
    "projection": ({**SIZES, **SHIFT, "spectrum": word("one", "any")}, {}, ()),
    "column": ({**SIZES, "alignment": within(-1, 1)}, {}, ()),
    "sketch": ({"columns": MANY, "dim": MANY, **WITHIN}, {}, ()),
    "code": ({"sizes": listed(count(), MOST_NODES)}, {}, ()),
    "thresholds": ({"counts": count(), "threshold": decimal, "of": anything}, {}, ADD),
    "weighted-keys": ({**COUNTED, **HEAVY}, {}, ADD + REPLACE),
    "differences": ({"distance": stated}, HOLDER, INPUTS),
    "swaps": ({"distance": stated}, HOLDER, INPUTS),
    "boxes": ({"covariance": rows(boxes.MOST_SIZE**2), "parts": BOXES}, {}, ADD + REPLACE),
    "log-det": ({"nats": stated}, HOLDER, ()),
    "cells": ({"occupied": count(), "candidates": count(2)}, HOLDER, ()),
    "composition": ({"parts": listed(_part, MOST_NODES)}, {}, ()),
}
# What makes it, told the reader and its fields.
MAKERS: dict[str, Callable[..., Known | Pair]] = {
    "gaussian": lambda _, **shift: elementary.gaussian(square_of(**shift)),
    "laplace": lambda _, sensitivity, scale: elementary.laplace(sensitivity / scale),
    "discrete-laplace": lambda _, sensitivity, scale: elementary.discrete_laplace(
        sensitivity, scale
    ),
    "discrete-gaussian": _discrete_gaussian,
    "response": _response,
    "table": _table,
    "exponential": lambda _, range: elementary.exponential(range),
    "poisson-sampled": lambda reader, rate, of: elementary.sampled(rate, reader.single(of)),
    "replaced": lambda _, rate, **shift: elementary.replaced(rate, square_of(**shift)),
    "groups": lambda _, rate, records, **shift: elementary.group(rate, square_of(**shift), records),
    "random-allocation": _allocation,
    "projection": lambda _, dim, rank, spectrum, **shift: projections.projected(
        dim, rank, square_of(**shift), spectrum == "one"
    ),
    "column": lambda _, **__: Known(unknown="column: its integral is not in this checker"),
    "sketch": _sketch,
    # as many values as there are outcomes
    "code": lambda _, sizes: guessed((), fmpq(prod(sizes))),
    "thresholds": _thresholds,
    "weighted-keys": _weighted,
    "differences": _distance,
    "swaps": _distance,
    "boxes": lambda reader, **sums: elementary.gaussian(boxes.distance(reader.adjacency, **sums)),
    "log-det": _log_det,
    "cells": _cells,
    "composition": _composition,
}
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
    "thresholds": "a key of one record alone is shown with probability P(1 + noise > τ) <= δ",
    "weighted-keys": "Canonne, Kamath and Steinke (2020), Proposition 25: the tail of whole noise",
    "differences": DISTANCE,
    "swaps": DISTANCE,
    "boxes": "Balle and Wang (2018), Theorem 8; a convex function is largest in a corner of a box",
    "log-det": "residual-pac, Theorem 1: I(X; Y) <= ½ ln det(I + SΣ⁻¹)",
    "cells": "Bayes' rule for a function: Σ over its values of the largest prior",
}
