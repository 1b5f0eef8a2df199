"""The holder's data: what a file takes as given, computed from the file that its digest names."""

import hashlib
from collections.abc import Callable
from operator import sub
from typing import Any

from flint import arb, arb_mat, fmpq

from tacit_check import reading
from tacit_check.balls import HALF, require
from tacit_check.boxes import Rows, farthest, positive

MOST_NUMBERS = 1 << 20


def measure(path: str) -> dict[str, Any]:
    """Return what a file of data gives, by its digest: μ², nats, or how many values occur."""
    content = reading.contents(path)
    kind, rest = reading.kind_of(reading.strict(content), "data", KINDS)
    needed, work = KINDS[kind]
    found = reading.fields(rest, "data", {**HEAD, **needed})
    value = work(**{name: found[name] for name in needed})
    return {hashlib.sha256(content).hexdigest(): (kind, value)}


def _swaps(covariance: Rows, rows: Rows, pairs: list[list[int]]) -> arb:
    # the largest distance of x_i − x_j over the listed pairs (i, j) of rows
    fine = all(one < len(rows) for pair in pairs for one in pair)
    require(fine, "pairs: expected two rows each, counted from 0")
    return farthest(covariance, [list(map(sub, rows[one], rows[other])) for one, other in pairs])


def _log_det(covariance: Rows, outputs: Rows, weights: list[fmpq]) -> arb:
    # S = Σ w xxᵀ − x̄x̄ᵀ with weights that sum to 1; ½ (ln det(Σ + S) − ln det Σ)
    fine = len(weights) == len(outputs) and min(weights) >= 0 and max(weights) > 0
    require(fine, "weights: expected one of each output, not negative")
    noise, total = positive(covariance, len(outputs[0])), sum(weights, fmpq(0))
    shares = [weight / total for weight in weights]
    heavy = [[share * one for one in row] for share, row in zip(shares, outputs, strict=True)]
    # of what cancels 40 digits more are held than anything is said in
    points, mean = arb_mat(outputs), arb_mat([shares]) * arb_mat(outputs)
    spread = points.transpose() * arb_mat(heavy) - mean.transpose() * mean
    return ((noise + spread).det().log() - noise.det().log()) * HALF


def _cells(values: list[fmpq]) -> tuple[int, int]:
    # how many values occur, and of how many candidates
    return len({(int(one.p), int(one.q)) for one in values}), len(values)


MATRIX = reading.rows(MOST_NUMBERS)
TWO = reading.listed(reading.listed(reading.count(0), 2, least=2), MOST_NUMBERS)
NUMBERS = reading.listed(reading.decimal, MOST_NUMBERS)
HEAD = {"format": reading.word("tacit-data"), "version": reading.word(reading.Bare("1"))}
KINDS: dict[str, tuple[reading.Fields, Callable[..., Any]]] = {
    "differences": ({"covariance": MATRIX, "differences": MATRIX}, farthest),
    "swaps": ({"covariance": MATRIX, "rows": MATRIX, "pairs": TWO}, _swaps),
    "log-det": ({"covariance": MATRIX, "outputs": MATRIX, "weights": NUMBERS}, _log_det),
    "cells": ({"values": NUMBERS}, _cells),
}
