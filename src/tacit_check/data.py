"""The holder's data: what a file takes as given, computed from the file that its digest names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flint import arb, arb_mat, fmpq

from tacit_check.balls import HALF, RefusedFileError
from tacit_check.boxes import farthest, positive
from tacit_check.reading import contents, items, numbers, only, strict

FORMAT, READS = "tacit-data", "1"
MOST_ROWS, MOST_NUMBERS = 100_000, 1 << 20


def measure(path: str) -> dict[str, Any]:
    """Return what a file of data gives, by its digest: μ², nats, or how many values occur."""
    content = contents(path)
    node = strict(content)
    if not isinstance(node, dict) or node.get("format") != FORMAT or node.get("version") != READS:
        raise RefusedFileError(f"data: expected format {FORMAT!r}, version {READS}")
    kind = node.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RefusedFileError("data: expected kind differences, swaps, log-det or cells")
    names, work = KINDS[kind]
    only(node, "data", ("format", "version", "kind", *names))
    return {hashlib.sha256(content).hexdigest(): (kind, work(node))}


def _matrix(node: Mapping[str, Any], name: str) -> list[list[fmpq]]:
    rows = items(node, name, lambda row: numbers(row, name, MOST_ROWS), MOST_ROWS)
    if len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > MOST_NUMBERS:
        raise RefusedFileError(f"{name}: expected rows of one length")
    return rows


def _differences(node: Mapping[str, Any]) -> fmpq:
    # max zᵀ Σ⁻¹ z over the listed z
    return _farthest(node, _matrix(node, "differences"))


def _swaps(node: Mapping[str, Any]) -> fmpq:
    # the same of x_i − x_j over the listed pairs (i, j) of rows
    rows = _matrix(node, "rows")
    pairs = _matrix(node, "pairs")
    found = []
    for pair in pairs:
        if len(pair) != 2 or any(one.q != 1 or not 0 <= one < len(rows) for one in pair):
            raise RefusedFileError("pairs: expected two rows each, counted from 0")
        one, other = rows[int(pair[0].p)], rows[int(pair[1].p)]
        found.append([a - b for a, b in zip(one, other, strict=True)])
    return _farthest(node, found)


def _farthest(node: Mapping[str, Any], points: Sequence[Sequence[fmpq]]) -> fmpq:
    covariance = _square(node, len(points[0]))
    return farthest(covariance, points)


def _square(node: Mapping[str, Any], size: int) -> list[list[fmpq]]:
    covariance = _matrix(node, "covariance")
    if len(covariance) != size or len(covariance[0]) != size:
        raise RefusedFileError("covariance: expected a square of the size of the data")
    return covariance


def _log_det(node: Mapping[str, Any]) -> arb:
    # S = Σ w (x − x̄)(x − x̄)ᵀ with weights that sum to 1; ½ (ln det(Σ + S) − ln det Σ)
    outputs, weights = _matrix(node, "outputs"), numbers(node["weights"], "weights", MOST_ROWS)
    size, total = len(outputs[0]), sum(weights, fmpq(0))
    covariance = _square(node, size)
    if len(weights) != len(outputs) or min(weights) < 0 or total == 0:
        raise RefusedFileError("weights: expected one of each output, not negative")
    shares = [arb(weight / total) for weight in weights]
    points = [[arb(one) for one in row] for row in outputs]
    mean = [
        sum((w * row[i] for w, row in zip(shares, points, strict=True)), arb(0))
        for i in range(size)
    ]
    centred = [[row[i] - mean[i] for i in range(size)] for row in points]
    flat = arb_mat(len(points), size, [one for row in centred for one in row])
    heavy = arb_mat(
        len(points), size, [w * one for w, row in zip(shares, centred, strict=True) for one in row]
    )
    noise = arb_mat(size, size, [arb(one) for row in covariance for one in row])
    symmetric = all(covariance[i][j] == covariance[j][i] for i in range(size) for j in range(i))
    if not symmetric or not positive(noise):
        raise RefusedFileError("covariance: not shown to be positive definite")
    return ((noise + flat.transpose() * heavy).det().log() - noise.det().log()) * HALF


def _cells(node: Mapping[str, Any]) -> tuple[int, int]:
    # how many values occur, and of how many candidates
    values = numbers(node["values"], "values", MOST_NUMBERS)
    return len({(int(one.p), int(one.q)) for one in values}), len(values)


KINDS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]] = {
    "differences": (("covariance", "differences"), _differences),
    "swaps": (("covariance", "rows", "pairs"), _swaps),
    "log-det": (("covariance", "outputs", "weights"), _log_det),
    "cells": (("values",), _cells),
}
