"""Outputs of the query on every declared candidate, and their covariance, rounded up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit._validation import Array
from tacit.compute import parallel_map
from tacit.linalg import MACHINE_EPSILON
from tacit.statistics.candidates import CandidateFamily
from tacit.statistics.queries import Query

REPEATED_CALLS = 3
REPEAT_TOLERANCE = 1e-9
SMALLEST_SPREAD, LARGEST_SPREAD = 1e-120, 1e120


@dataclass(frozen=True)
class _Evaluation:
    """Evaluates the query on one candidate; a value, so that worker processes can be sent it."""

    query: Query
    pool: Array
    family: CandidateFamily

    def __call__(self, candidate: int) -> Array:
        rows = self.pool[self.family.members(candidate)]
        count = len(rows)
        result = self.query.function(rows)
        try:
            output = np.asarray(result, dtype=np.float64).ravel()
        except (TypeError, ValueError):
            raise ValueError(
                f"query: expected a number or an array of numbers, got {_shown(result)} "
                f"on a candidate of {count} rows"
            ) from None
        if output.size == 0:
            raise ValueError(
                f"query: expected at least one number, got none on a candidate of {count} rows"
            )
        if not np.isfinite(output).all():
            where = int(np.flatnonzero(~np.isfinite(output))[0])
            raise ValueError(
                f"query: expected finite numbers, got {output[where]} at position {where} "
                f"on a candidate of {count} rows"
            )
        return output


def simulate(
    query: Query,
    pool: Array,
    family: CandidateFamily,
    *,
    workers: int | None,
    progress: bool | None,
) -> Array:
    """Return the output of every candidate, (K, d).

    Raises:
        ValueError: the query returns something else than finite numbers, changes the number of
            them, or does not give the same numbers when it is called on the same rows again.
    """
    evaluate = _Evaluation(query, pool, family)
    _check_repeatable(evaluate, evaluate(0), 0)
    outputs = parallel_map(
        evaluate, range(len(family)), workers=workers, description="simulating", progress=progress
    )
    size = outputs[0].size
    for candidate, output in enumerate(outputs):
        if output.size != size:
            raise ValueError(
                f"query: expected {size} numbers every time, got {output.size} on a candidate of "
                f"{len(family.members(candidate))} rows"
            )
    for candidate in np.linspace(0, len(family) - 1, REPEATED_CALLS).astype(int).tolist():
        _check_repeatable(evaluate, outputs[candidate], candidate)
    return np.stack(outputs)


def output_covariance(outputs: Array) -> tuple[Array, Array, float]:
    """Return the mean (d,), the covariance S (d, d) with K in the denominator, and its slack.

    The true covariance of the K stored outputs is at most ``S + slack · diag(S)``: an entry of
    the product of K terms is off by at most ``(K + 4) 2⁻⁵² √(S_ii S_jj)``, and a matrix of such
    entries is at most d times its diagonal. About any other point than the mean the second
    moment is larger still, so the rounding of the mean is on the safe side.

    Raises:
        ValueError: the outputs spread so far, or so little, that their squares leave the range
            of double precision.
    """
    count, size = outputs.shape
    still = (outputs == outputs[0]).all(axis=0)
    spread = float(np.abs(outputs - outputs[0]).max())
    lowest = float(np.ptp(outputs[:, ~still], axis=0).min(initial=np.inf))
    if spread > LARGEST_SPREAD or lowest < SMALLEST_SPREAD:
        raise ValueError(
            f"query: expected outputs that spread over {SMALLEST_SPREAD:g} to {LARGEST_SPREAD:g}, "
            f"got {min(spread, lowest):.3g}: choose other units"
        )
    mean = np.where(still, outputs[0], outputs.mean(axis=0))
    centred = outputs - mean
    covariance = centred.T @ centred / count
    slack = size * (count + 4) * MACHINE_EPSILON
    return mean, (covariance + covariance.T) / 2.0, slack


def _check_repeatable(evaluate: _Evaluation, before: Array, candidate: int) -> None:
    again = evaluate(candidate)
    same = again.size == before.size
    if same:
        scale = np.abs(before).max(initial=0.0)
        same = bool(np.abs(again - before).max() <= REPEAT_TOLERANCE * scale)
    if not same:
        raise ValueError(
            "query: expected the same numbers for the same rows, got different ones on a second "
            f"call with the same {len(evaluate.family.members(candidate))} rows; fix the seed of "
            "the randomness inside the query"
        )


def _shown(value: object) -> str:
    return type(value).__name__ if value is not None else "None"
