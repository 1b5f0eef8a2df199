"""The secret as its outputs tell it: equal outputs are one value, with their weights together."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, vector
from tacit._ground.numbers import EPS

# Of an entropy: each term loses a few units, of a logarithm, a quotient and two products.
ROUNDING_UNITS = 32.0
# How far probabilities may be from a sum of 1 before they are divided by it.
SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class EqualRows:
    """Which rows of a matrix are the same when they are published, zeros having one sign.

    Attributes:
        first: (m,) the first row of each value, ascending.
        members: (N,) the number of the value of each row, 0 … m − 1.
        counts: (m,) how many rows have it.
    """

    first: npt.NDArray[np.intp]
    members: npt.NDArray[np.intp]
    counts: npt.NDArray[np.intp]

    def __len__(self) -> int:
        """Return m."""
        return len(self.first)

    @staticmethod
    def of(rows: Array) -> EqualRows:
        """Compare the rows (N, d) bit by bit, in the order in which they come."""
        # −0.0 + 0.0 is 0.0, and nothing else changes: what is published the same compares the same
        values = np.ascontiguousarray(rows + 0.0, dtype=np.float64)
        # a row is one word of its bits: one sort of words instead of a sort by every column
        kind = np.dtype(np.int64) if rows.shape[1] == 1 else np.dtype((np.void, values.strides[0]))
        _, first, members, counts = np.unique(
            values.view(kind).ravel(), return_index=True, return_inverse=True, return_counts=True
        )
        # np.unique sorts by bits: values are numbered again by the row where each comes first
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        return EqualRows(first[order], place[members.ravel()], counts[order])

    def weights(self, priors: Array | None) -> Array:
        """Return the probability of each value, to rounding; None is equally likely rows."""
        if priors is None:
            shares: Array = self.counts / len(self.members)
            return shares
        if len(self) == len(self.members):
            return priors
        # fsum rounds once for each value, however many rows share it
        groups = np.split(
            priors[np.argsort(self.members, kind="stable")], np.cumsum(self.counts)[:-1]
        )
        return np.array([math.fsum(group.tolist()) for group in groups])


def probabilities(name: str, value: Any, size: int | None) -> Array:
    """Return numbers >= 0 that sum to 1, divided by what they sum to, to rounding.

    Raises:
        ValueError: they are not ``size`` of these.
    """
    found = vector(name, value, size=size)
    if found.min() < 0.0 or abs(float(found.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"{name}: expected numbers >= 0 that sum to 1, got a smallest of {found.min():.6g} "
            f"and a sum of {float(found.sum()):.12g}"
        )
    # p/Σp: a sum that is off by 1e-9 must not become a probability
    normalised: Array = found / found.sum()
    return normalised


def distinct_outputs(outputs: Array, weights: Any) -> tuple[Array, Array]:
    """Return the outputs that can occur, exactly, each once, (m, d), and their probabilities, (m,).

    With Z the output of the secret X, X – Z – Y is a Markov chain and Z a function of X, so
    ``I(X; Y) = I(Z; Y) <= H(Z)`` for any noise and for none.

    Raises:
        ValueError: ``weights`` are neither None nor one probability for each output.
    """
    points, priors = outputs + 0.0, None
    if weights is not None:
        priors = probabilities("weights", weights, len(points))
        # what never happens tells nothing, and ln 0 is not needed below
        kept = priors > 0.0
        points, priors = points[kept], priors[kept]
    equal = EqualRows.of(points)
    return points[equal.first], equal.weights(priors)


def entropy(priors: Array) -> float:
    """Return ``−Σ p ln p`` nats for p proportional to positive numbers (m,), rounded up.

    Every term keeps its relative accuracy: the largest p by ``−p ln(1 − q)``, q the others' sum,
    and any other is at most ½. Their sum is exact but for its last rounding.
    """
    if priors.size == 1:
        return 0.0
    # ln of a p near 1 has few digits: −p ln p = −(1 − q) ln(1 − q), q the sum of the others
    largest = int(priors.argmax())
    total = math.fsum(priors.tolist())
    others = np.delete(priors, largest) / total
    rest = math.fsum(others.tolist())
    terms = [-(1.0 - rest) * math.log1p(-rest), *(-others * np.log(others)).tolist()]
    # a term that is not a normal number is off by less than the smallest of these
    smallest = priors.size * sys.float_info.min
    # every term is >= 0 and off by ROUNDING_UNITS at most, so their sum is too
    return math.fsum(terms) * (1.0 + ROUNDING_UNITS * EPS) + smallest
