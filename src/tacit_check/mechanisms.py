"""From a node to what is known of it: its curves, and what any guess can gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

from flint import arb, fmpq

from tacit_check import allocation, elementary, projections
from tacit_check.balls import ONE, RefusedFileError, half_square_tail
from tacit_check.boxes import distance as box_distance
from tacit_check.boxes import rational_up
from tacit_check.curves import Both
from tacit_check.reading import Proof, count, items, number, numbers, only

MOST_LEVELS, MOST_NODES, MOST_COUNT, MOST_BITS = 64, 4096, 10**12, 1 << 20
Node: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """What is known of a release.

    Attributes:
        parts: (count, curves) of independent releases about the same record; none where there is no
            pair of inputs.
        factor: what it multiplies the chance of any guess by.
        nats: an upper bound of the information, a number.
        cells: (n, N) of a function with n values of one of N equally likely candidates.
        given: what is taken as given, beside the sentences of the file.
        theorems: used for it.
        notes: what is true up to something.
        unknown: why no claim about it can be checked; empty where some can.
        choices: parts of every mechanism that it may be, where the worst of several counts.
    """

    parts: tuple[tuple[int, Both], ...] = ()
    factor: fmpq | None = None
    nats: arb | None = None
    cells: tuple[int, int] | None = None
    given: tuple[str, ...] = ()
    theorems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: str = ""
    choices: tuple[tuple[tuple[int, Both], ...], ...] = ()

    @property
    def paired(self) -> bool:
        """Whether there is a pair of inputs that is told apart best."""
        return bool(self.parts or self.choices)


Maker = Callable[[Node, "Reader"], Known]


class Reader:
    """Reads a tree, counting its nodes.

    Args:
        proof: whose mechanism is read.
        measured: what the holder's data gave, by digest.
    """

    def __init__(self, proof: Proof, measured: Mapping[str, Any] | None = None) -> None:
        self.adjacency = proof.adjacency
        self.measured = measured or {}
        self.left, self.level = MOST_NODES, 0

    def read(self, node: Any) -> Known:
        """Return what is known of a node."""
        self.left -= 1
        if self.left < 0 or self.level >= MOST_LEVELS:
            raise RefusedFileError(
                f"mechanism: more than {MOST_NODES} nodes or {MOST_LEVELS} levels"
            )
        kind = node.get("kind") if isinstance(node, dict) else None
        if not isinstance(kind, str) or kind not in MAKERS:
            raise RefusedFileError(f"mechanism: no kind {str(kind)[:40]!r}")
        needed, optional, adjacency, maker = MAKERS[kind]
        only(node, kind, ("kind", *needed), optional)
        if adjacency and self.adjacency not in adjacency:
            raise RefusedFileError(f"{kind}: not a statement about {self.adjacency!r}")
        self.level += 1
        found = maker(node, self)
        self.level -= 1
        return found

    def measure(self, node: Node) -> Any:
        """Return what the holder's data gave of a node; None where it is another file's."""
        kind, value = self.measured.get(_digest(node), (node["kind"], None))
        if kind != node["kind"]:
            raise RefusedFileError(f"{node['kind']}: the data is about {kind}")
        return value

    def single(self, node: Node) -> Both:
        """Return the curves of a node that is one release."""
        found = self.read(node["of"])
        if found.unknown or len(found.parts) != 1 or found.parts[0][0] != 1:
            raise RefusedFileError(f"{node['kind']}: expected one release in it")
        return found.parts[0][1]


def pair(curves: Both) -> Known:
    """Return one release of known curves."""
    notes = (curves.note,) if curves.note else ()
    return Known(((1, curves),), theorems=curves.theorems, notes=notes)


def ratio(node: Node, noise: str) -> fmpq:
    """Return Δ/σ exactly."""
    return number(node, "sensitivity", low=0) / number(node, noise, low=0, above=True)


def _gaussian(node: Node, _: Reader) -> Known:
    return pair(elementary.gaussian(ratio(node, "noise") ** 2))


def _laplace(node: Node, _: Reader) -> Known:
    return pair(elementary.laplace(ratio(node, "scale")))


def _discrete_gaussian(node: Node, _: Reader) -> Known:
    shift = count(node, "sensitivity", low=0, high=10**30)
    variance = number(node, "variance", low=0, above=True)
    return pair(elementary.discrete_gaussian(shift, variance, count(node, "coordinates")))


def _discrete_laplace(node: Node, _: Reader) -> Known:
    shift = count(node, "sensitivity", low=0, high=10**30)
    return pair(elementary.discrete_laplace(shift, number(node, "scale", low=0, above=True)))


def _response(node: Node, _: Reader) -> Known:
    answers = count(node, "categories", low=2)
    if ("truth" in node) == ("epsilon" in node):
        raise RefusedFileError("response: expected truth or epsilon")
    if "truth" in node:
        truth = number(node, "truth", low=0, high=1)
        found = pair(elementary.response(truth, answers))
        return _guessed(found, answers * max(truth, (1 - truth) / (answers - 1)))
    epsilon = number(node, "epsilon", low=0, high=10_000)
    truth_ball = ONE / (ONE + (answers - 1) * arb(-epsilon).exp())
    return _guessed(pair(elementary.told(epsilon, answers)), rational_up(answers * truth_ball))


def _guessed(found: Known, factor: fmpq) -> Known:
    """Return a mechanism with Σ over its outcomes of the largest probability, rounded up."""
    theorems = (*found.theorems, "Issa, Wagner and Kamath (2020), Theorem 1")
    return replace(found, factor=factor, nats=arb(factor).log(), theorems=theorems)


def _table(node: Node, _: Reader) -> Known:
    rows = items(node, "rows", weights, elementary.MOST_ENTRIES)
    if len(rows) < 2 or len({len(row) for row in rows}) != 1:
        raise RefusedFileError("rows: expected two or more of one length")
    if len(rows) * len(rows[0]) > elementary.MOST_ENTRIES:
        raise RefusedFileError(f"rows: expected at most {elementary.MOST_ENTRIES} entries")
    # Σ over outcomes of the largest probability: what any guess can gain
    laws = [[weight / sum(row, fmpq(0)) for weight in row] for row in rows]
    factor = sum((max(column) for column in zip(*laws, strict=True)), fmpq(0))
    return _guessed(pair(elementary.table(rows)), factor)


def weights(row: Any) -> list[fmpq]:
    """Return non-negative numbers of which one is not 0."""
    values = numbers(row, "rows", elementary.MOST_ENTRIES)
    if min(values) < 0 or max(values) == 0:
        raise RefusedFileError(
            "rows: expected weights that are not negative, and one that is not 0"
        )
    return values


def _exponential(node: Node, _: Reader) -> Known:
    return pair(elementary.exponential(number(node, "range", low=0, high=10_000, above=True)))


def _sampled(node: Node, reader: Reader) -> Known:
    return pair(elementary.sampled(number(node, "rate", low=0, high=1), reader.single(node)))


def _replaced(node: Node, _: Reader) -> Known:
    rate = number(node, "rate", low=0, high=1)
    return pair(elementary.replaced(rate, ratio(node, "noise") ** 2))


def _groups(node: Node, _: Reader) -> Known:
    rate, records = number(node, "rate", low=0, high=1), count(node, "records")
    return pair(elementary.group(rate, ratio(node, "noise") ** 2, records))


def _allocation(node: Node, _: Reader) -> Known:
    curves = allocation.random_allocation(ratio(node, "noise") ** 2, count(node, "steps"))
    if curves is None:
        return Known(unknown="random-allocation: less noise or more steps than a lattice holds")
    return pair(curves)


def _projection(node: Node, _: Reader) -> Known:
    sizes = count(node, "dim", high=10**7), count(node, "rank", high=10**7)
    if node["spectrum"] not in ("one", "any"):
        raise RefusedFileError("spectrum: expected one or any")
    square = ratio(node, "noise") ** 2
    return pair(projections.projected(*sizes, square, node["spectrum"] == "one"))


def _column(node: Node, _: Reader) -> Known:
    count(node, "dim", low=2, high=10**7), count(node, "rank", high=10**7)
    number(node, "alignment", low=-1, high=1)
    return Known(unknown="column: its integral is not in this checker")


def _sketch(node: Node, _: Reader) -> Known:
    sizes = count(node, "columns", high=10**5), count(node, "dim", high=10**5)
    low = number(node, "lowest", low=0, high=1, above=True)
    choices = projections.sketch(*sizes, low, number(node, "highest", low=1))
    if not choices:
        return Known(unknown="sketch: more dimensions or numbers than lattices are built for")
    first = choices[0][0][1]
    if len(choices) == 1:
        return pair(first)
    return Known(choices=tuple(map(tuple, choices)), theorems=first.theorems)


def _code(node: Node, _: Reader) -> Known:
    sizes = items(node, "sizes", lambda one: count({"sizes": one}, "sizes"), MOST_NODES)
    factor = fmpq(prod(sizes))
    source = "Issa, Wagner and Kamath (2020), Theorem 1: as many values as there are outcomes"
    return Known(factor=factor, nats=arb(factor).log(), theorems=(source,))


def _thresholds(node: Node, reader: Reader) -> Known:
    keys = count(node, "counts")
    chance = _above(node["of"], number(node, "threshold") - 1)
    base = reader.single(node)
    parts = ((keys, base), (keys, elementary.failing(chance)))
    source = "a key of one record alone is shown with probability P(1 + noise > τ) <= δ"
    return Known(parts, theorems=(*base.theorems, source))


def _weighted(node: Node, reader: Reader) -> Known:
    length, most = count(node, "length", high=10**15), count(node, "most", high=10**4)
    threshold = count(node, "threshold", high=10**18)
    variance = number(node, "variance", low=elementary.SMOOTHING, above=True)
    # weights are not negative: in the place of another both squares add up; only their keys matter
    units = 2 if reader.adjacency == "replace" else 1
    moved = elementary.smoothed(fmpq(units * length * length), variance, units * most)
    alone = elementary.key_alone(length, most, threshold, variance)
    sentence = "a unit gives its weights to keys that it has, chosen by these and by those found"
    theorems = (*moved.theorems, *alone.theorems)
    return Known(
        ((1, moved), (1, alone)), given=(sentence,), theorems=theorems, notes=(moved.note,)
    )


def _above(node: Any, gap: fmpq) -> arb:
    # P(noise > τ − 1) of the noise on one count
    kind = node.get("kind") if isinstance(node, dict) else None
    if kind == "gaussian":
        return half_square_tail(arb(gap / number(node, "noise", low=0, above=True)))
    if kind == "laplace" and gap >= 0:
        return (-arb(gap / number(node, "scale", low=0, above=True))).exp() / 2
    if kind == "discrete-laplace" and gap >= 0:
        base = (-ONE / arb(number(node, "scale", low=0, above=True))).exp()
        return base ** (int(gap.p // gap.q) + 1) / (ONE + base)
    raise RefusedFileError("thresholds: expected gaussian, laplace or discrete-laplace noise")


def _distance(node: Node, reader: Reader) -> Known:
    square = reader.measure(node)
    if square is not None:
        found = pair(elementary.gaussian(square))
        return replace(found, theorems=(*found.theorems, "zᵀ Σ⁻¹ z of every difference, in balls"))
    mu = number(node, "distance", low=0)
    known = pair(elementary.gaussian(mu**2))
    sentence = f"no difference of the holder's data is farther than {node['distance']} (--data)"
    # a smaller distance may be the true one: nothing is proved false
    curves = Both(tuple(replace(one, attained=False) for one in known.parts[0][1].curves))
    return replace(known, parts=((1, curves),), given=(sentence,))


def _digest(node: Node) -> str:
    # a file that is published names no data of its holder
    if "digest" not in node:
        return ""
    digest = node["digest"]
    if type(digest) is not str or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise RefusedFileError("digest: expected 64 hexadecimal digits")
    return digest


def _boxes(node: Node, reader: Reader) -> Known:
    square, source = box_distance(node, reader.adjacency)
    found = pair(elementary.gaussian(square))
    return replace(found, theorems=(*found.theorems, source))


def _log_det(node: Node, reader: Reader) -> Known:
    told = reader.measure(node)
    source = "residual-pac, Theorem 1: I(X; Y) <= ½ ln det(I + SΣ⁻¹)"
    if told is not None:
        return Known(nats=told, theorems=(source,))
    sentence = f"½ ln det(I + SΣ⁻¹) of the holder's data is at most {node['nats']} nats (--data)"
    nats = arb(number(node, "nats", low=0))
    return Known(nats=nats, given=(sentence,), theorems=(source,))


def _cells(node: Node, reader: Reader) -> Known:
    candidates, told = count(node, "candidates", low=2), reader.measure(node)
    given: tuple[str, ...] = ()
    if told is not None:
        occupied, listed = told
        if listed != candidates:
            raise RefusedFileError("candidates: expected as many as the data holds")
    else:
        occupied = count(node, "occupied", high=candidates)
        given = (f"the function has {occupied} values on the holder's candidates (--data)",)
    source = "Bayes' rule for a function: Σ over its values of the largest prior"
    return Known(
        cells=(occupied, candidates), nats=arb(occupied).log(), given=given, theorems=(source,)
    )


def _composition(node: Node, reader: Reader) -> Known:
    parts: list[tuple[int, Both]] = []
    found: list[Known] = []
    unknown = ""
    for part in items(node, "parts", lambda one: one, MOST_NODES):
        if not isinstance(part, dict):
            raise RefusedFileError("parts: expected objects")
        only(part, "parts", ("count", "of"))
        times, one = count(part, "count", high=MOST_COUNT), reader.read(part["of"])
        unknown = one.unknown or unknown
        if one.choices:
            unknown = f"{part['of']['kind']}: its worst case is known of one release alone"
        if one.cells is not None or (one.nats is not None and one.factor is None):
            raise RefusedFileError("composition: information about a declared law does not add up")
        parts += [(times * inner, curves) for inner, curves in one.parts]
        found.append(one)
        if sum(inner for inner, _ in parts) > MOST_COUNT:
            raise RefusedFileError(f"composition: expected at most {MOST_COUNT} releases")
    if unknown:
        return Known(unknown=unknown)
    factor = _product([int(part["count"]) for part in node["parts"]], found)
    # a part without a pair, as a code is, may tell any two inputs apart: the whole has none either
    paired = all(one.parts for one in found)
    return Known(
        tuple(parts) if paired else (),
        factor=factor,
        nats=None if factor is None else arb(factor).log(),
        given=tuple(dict.fromkeys(line for one in found for line in one.given)),
        theorems=tuple(dict.fromkeys(line for one in found for line in one.theorems)),
        notes=tuple(dict.fromkeys(line for one in found for line in one.notes)),
    )


def _product(times: list[int], found: list[Known]) -> fmpq | None:
    # Π factor^T; none where it has more digits than are worth it
    factor = fmpq(1)
    for many, one in zip(times, found, strict=True):
        if one.factor is None or one.factor.height_bits() * many > MOST_BITS:
            return None
        factor *= one.factor**many
    return factor


ADD, REPLACE = ("add-remove",), ("replace",)
# kind: the names it needs, those it may have, the adjacencies it speaks of, and what reads it.
MAKERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Maker]] = {
    "gaussian": (("sensitivity", "noise"), (), (), _gaussian),
    "laplace": (("sensitivity", "scale"), (), (), _laplace),
    "discrete-gaussian": (("sensitivity", "variance", "coordinates"), (), (), _discrete_gaussian),
    "discrete-laplace": (("sensitivity", "scale"), (), (), _discrete_laplace),
    "response": (("categories",), ("truth", "epsilon"), (), _response),
    "table": (("rows",), (), (), _table),
    "exponential": (("range",), (), (), _exponential),
    "poisson-sampled": (("rate", "of"), (), ADD, _sampled),
    "replaced": (("rate", "sensitivity", "noise"), (), REPLACE, _replaced),
    "groups": (("rate", "sensitivity", "noise", "records"), (), ADD, _groups),
    "random-allocation": (("sensitivity", "noise", "steps"), (), ADD, _allocation),
    "projection": (("dim", "rank", "sensitivity", "noise", "spectrum"), (), (), _projection),
    "column": (("dim", "rank", "alignment"), (), (), _column),
    "sketch": (("columns", "dim", "lowest", "highest"), (), (), _sketch),
    "code": (("sizes",), (), (), _code),
    "thresholds": (("counts", "threshold", "of"), (), ADD, _thresholds),
    "weighted-keys": (("length", "most", "threshold", "variance"), (), ADD + REPLACE, _weighted),
    "differences": (("distance",), ("digest",), ("inputs",), _distance),
    "swaps": (("distance",), ("digest",), ("inputs",), _distance),
    "boxes": (("covariance", "parts"), (), ADD + REPLACE, _boxes),
    "log-det": (("nats",), ("digest",), (), _log_det),
    "cells": (("occupied", "candidates"), ("digest",), (), _cells),
    "composition": (("parts",), (), (), _composition),
}
