"""The holder's data: what a file takes as given, computed from the file that its digest names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from flint import arb, arb_mat, fmpq

from tacit_check.balls import HALF, RefusedFileError
from tacit_check.boxes import farthest, positive
from tacit_check.reading import (
    Bare,
    Fields,
    contents,
    decimal,
    fields,
    kind_of,
    listed,
    rows,
    strict,
    word,
)

MOST_NUMBERS = 1 << 20
Rows = list[list[fmpq]]


def measure(path: str) -> dict[str, Any]:
    """Return what a file of data gives, by its digest: μ², nats, or how many values occur."""
    content = contents(path)
    kind, rest = kind_of(strict(content), "data", KINDS)
    head = {"format": word("tacit-data"), "version": word(Bare("1"))}
    needed, work = KINDS[kind]
    found = fields(rest, "data", {**head, **needed})
    value = work(**{name: found[name] for name in needed})
    return {hashlib.sha256(content).hexdigest(): (kind, value)}


def _swaps(covariance: Rows, rows: Rows, pairs: Rows) -> fmpq:
    # the largest distance of x_i − x_j over the listed pairs (i, j) of rows
    found = []
    for pair in pairs:
        if len(pair) != 2 or any(one.q != 1 or not 0 <= one < len(rows) for one in pair):
            raise RefusedFileError("pairs: expected two rows each, counted from 0")
        one, other = rows[int(pair[0].p)], rows[int(pair[1].p)]
        found.append([a - b for a, b in zip(one, other, strict=True)])
    return farthest(covariance, found)


def _log_det(covariance: Rows, outputs: Rows, weights: list[fmpq]) -> arb:
    # S = Σ w xxᵀ − x̄x̄ᵀ with weights that sum to 1; ½ (ln det(Σ + S) − ln det Σ)
    if len(weights) != len(outputs) or min(weights) < 0 or max(weights) == 0:
        raise RefusedFileError("weights: expected one of each output, not negative")
    total, size = sum(weights, fmpq(0)), len(outputs[0])
    noise = positive(covariance, size)
    points = arb_mat([[arb(one) for one in row] for row in outputs])
    shares = [arb(weight / total) for weight in weights]
    mean = arb_mat([shares]) * points
    centred = points - arb_mat([[arb(1)] for _ in outputs]) * mean
    heavy = arb_mat(
        [[share * one for one in row] for share, row in zip(shares, centred.tolist(), strict=True)]
    )
    return ((noise + centred.transpose() * heavy).det().log() - noise.det().log()) * HALF


def _cells(values: list[fmpq]) -> tuple[int, int]:
    # how many values occur, and of how many candidates
    return len({(int(one.p), int(one.q)) for one in values}), len(values)


MATRIX = rows(MOST_NUMBERS)
KINDS: dict[str, tuple[Fields, Callable[..., Any]]] = {
    "differences": ({"covariance": MATRIX, "differences": MATRIX}, farthest),
    "swaps": ({"covariance": MATRIX, "rows": MATRIX, "pairs": MATRIX}, _swaps),
    "log-det": (
        {"covariance": MATRIX, "outputs": MATRIX, "weights": listed(decimal, MOST_NUMBERS)},
        _log_det,
    ),
    "cells": ({"values": listed(decimal, MOST_NUMBERS)}, _cells),
}
