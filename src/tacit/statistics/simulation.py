"""Outputs of a query on simulated draws of the pool, and how much they vary."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, masked, plain
from tacit.compute import parallel_map
from tacit.statistics.errors import two_digits_up
from tacit.statistics.queries.statistic import Query
from tacit.statistics.user_code import QueryWarning, query_error, silence, warning_words

# Candidates on which a query is called twice, and how far it may differ: sums in another order do.
REPEATED_CALLS, REPEAT_TOLERANCE = 3, 1e-9
# Kinds of NumPy entries that are real numbers, Python's own among objects.
REAL_KINDS = "fiubO"
# Halves of a pool on which the spread of a query is measured: it is off by 5%.
HALVES = 200


class Units(Protocol):
    """What is drawn: rows, or persons with all of theirs."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, chosen: Any, /) -> Array:
        """Return the rows of some of them."""


class CandidateSubsets(Protocol):
    """Subsets of the pool on which a query is run."""

    def __len__(self) -> int:
        """Return how many there are."""

    def members(self, candidate: int) -> npt.NDArray[np.intp]:
        """Return the rows of one of them."""


@dataclass(frozen=True)
class _Evaluation:
    """Evaluates the query on one candidate; a value, so that worker processes can be sent it."""

    query: Query
    pool: Units
    family: CandidateSubsets

    def __call__(self, candidate: int) -> tuple[Array, str]:
        """Return the numbers, and what the caller's own code warned of, if anything."""
        rows = self.pool[self.family.members(candidate)]
        result, warned = self._call(rows)
        return self._check_output(result, len(rows)), warned

    @staticmethod
    def _check_output(result: Any, count: int) -> Array:
        output = _numbers(result)
        if output is None:
            raise ValueError(
                f"query: expected a number or an array of numbers, got {_spell(result)} "
                f"on a candidate of {count} rows"
            )
        if output.size == 0:
            raise ValueError(
                f"query: expected at least one number, got none on a candidate of {count} rows"
            )
        if not np.isfinite(output).all():
            flat = output.ravel()
            where = int(np.flatnonzero(~np.isfinite(flat))[0])
            raise ValueError(
                f"query: expected finite numbers, got {flat[where]} at position {where} "
                f"on a candidate of {count} rows"
            )
        return output

    def _call(self, rows: Array) -> tuple[Any, str]:
        if not self.query.imported:
            return self.query.function(rows), ""
        try:
            with warnings.catch_warnings(record=True) as found:
                result = self.query.function(rows)
            return result, warning_words(found[0]) if found else ""
        except (Exception, SystemExit) as error:
            where = f" on a candidate of {len(rows)} rows"
            raise query_error(self.query.description, error, where) from error


def _numbers(result: Any) -> Array | None:
    """Return real numbers as float64, zeros with one sign; None for anything else.

    What is published is this array: no type, no mask and no bit of a zero is left to tell.
    """
    try:
        raw = np.asarray(plain(result))
        if masked(result) or raw.dtype.kind not in REAL_KINDS:
            return None
        if raw.dtype.kind == "O" and not all(hasattr(entry, "__float__") for entry in raw.flat):
            return None
        with np.errstate(over="ignore"):
            # −0.0 + 0.0 = 0.0: one sign
            numbers: Array = np.atleast_1d(raw.astype(np.float64)) + 0.0
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers


def simulate(
    query: Query,
    pool: Units,
    family: CandidateSubsets,
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
    _check_repeatable(evaluate, evaluate(0)[0], 0)
    found = parallel_map(
        evaluate,
        range(len(family)),
        workers=workers,
        description=None if progress is False else "simulating",
    )
    outputs = [output for output, _ in found]
    warned = next((words for _, words in found if words), None)
    if warned is not None:
        sentence = f"query: {query.description} warned on simulated rows ({warned})"
        warnings.warn(sentence, QueryWarning, stacklevel=2)
    size, shape = outputs[0].size, outputs[0].shape
    for candidate, output in enumerate(outputs):
        if output.shape != shape:
            came = output.size if output.size != size else f"shape {output.shape}, not {shape},"
            raise ValueError(
                f"query: expected {size} numbers every time, got {came} on a candidate of "
                f"{len(family.members(candidate))} rows"
            )
    for candidate in np.linspace(0, len(family) - 1, REPEATED_CALLS).astype(int).tolist():
        _check_repeatable(evaluate, outputs[candidate], candidate)
    return np.stack([output.ravel() for output in outputs])


def silent_output(query: Query, pool: Units, members: Any, otherwise: Array) -> Array:
    """Return the output of the rows drawn, (d,), and let nothing else be seen of the call.

    What the caller's code prints, logs or warns of, and whether it fails, depends on the rows.

    Args:
        query: what is computed.
        pool: N rows, or persons.
        members: those drawn; secret.
        otherwise: (d,) what stands for the output where the call fails or gives no d numbers.
    """
    with silence():
        try:
            # a failure, a warning or a print would each tell something of the rows drawn
            output = _Evaluation(query, pool, _One(members))(0)[0].ravel()
        except (Exception, SystemExit):
            return otherwise
    return output if output.shape == otherwise.shape else otherwise


@dataclass(frozen=True)
class _One:
    """One subset, as a family."""

    rows: Any

    def __len__(self) -> int:
        return 1

    def members(self, candidate: int) -> Any:
        return self.rows


def _check_repeatable(evaluate: _Evaluation, before: Array, candidate: int) -> None:
    again = evaluate(candidate)[0]
    same = again.shape == before.shape
    if same:
        # sums in another order differ by rounding, and no more
        scale = np.abs(before).max(initial=0.0)
        same = bool(np.abs(again - before).max() <= REPEAT_TOLERANCE * scale)
    if not same:
        raise ValueError(
            "query: expected the same numbers for the same rows, got different ones on a second "
            f"call with the same {len(evaluate.family.members(candidate))} rows; fix the seed of "
            "the randomness inside the query"
        )


def _spell(value: object) -> str:
    if isinstance(value, int):
        return "an integer beyond the numbers within double precision"
    return type(value).__name__ if value is not None else "None"


def spread_over_halves(
    query: Query, rows: Units, source: np.random.Generator, *, workers: int | None
) -> Array:
    """Return standard deviations of a query over independent draws of half the rows, rounded up.

    Over halves of a pool, drawn without replacement, the variance is half of that for what is near
    linear in the rows. Pairs of like rows would vary less than draws from what the rows came from.

    Args:
        query: what is computed.
        rows: the pool, of rows or of persons.
        source: of the halves.
        workers: processes.
    """
    # √2 of the deviation over halves: without replacement N/2 of N have half the variance of draws
    halves = RandomHalves(len(rows), source.integers(2**63, size=HALVES).tolist())
    outputs = simulate(query, rows, halves, workers=workers, progress=False)
    return two_digits_up(math.sqrt(2.0) * outputs.std(axis=0))


@dataclass(frozen=True, eq=False)
class RandomHalves:
    """Random halves of a pool, each of a seed of its own."""

    rows: int
    seeds: Sequence[int]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.seeds)

    def members(self, candidate: int) -> npt.NDArray[np.intp]:
        """Return the rows of one of them, ascending."""
        order = np.random.default_rng(self.seeds[candidate]).permutation(self.rows)
        return np.sort(order[: self.rows // 2])
