"""A table as a classification problem: scaled numbers, one-hot categories, a small network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.files import atomic_stream
from tacit._ground.headers import in_order

if TYPE_CHECKING:
    from tacit.statistics import DataTable

SEED = 0
# Share of the largest number below which a spread is rounding.
LEVEL = 1e-9
# Of the head of a file, beside what inputs and outputs mean.
HEAD_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TableProblem:
    """A model, what it learns from, and what it is held against.

    Attributes:
        model: not trained yet.
        data: (inputs, classes) of the rows to learn from.
        sources: the source of each of them.
        roster: every source, those declared that have no row too.
        held_out: (inputs, classes) of the others.
        classes: what the outputs mean.
        features: what the inputs mean: its name, what is taken off and what it is divided by.
        undeclared: the columns whose scales or levels were found in the rows.
        remarks: what the holder of a release should know.
    """

    model: torch.nn.Module
    data: tuple[torch.Tensor, torch.Tensor]
    sources: tuple[str, ...]
    roster: tuple[str, ...]
    held_out: tuple[torch.Tensor, torch.Tensor]
    classes: tuple[str, ...]
    features: tuple[tuple[str, float, float], ...]
    undeclared: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def most_bytes(self) -> int:
        """Bytes that the file of the model takes at most, its heads included."""
        numbers: int = sum(
            one.numel() * one.element_size() for one in self.model.state_dict().values()
        )
        return numbers + len(json.dumps([self.features, self.classes])) + HEAD_BYTES

    @staticmethod
    def loss(model: torch.nn.Module, inputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return −ln p of each row's class."""
        return torch.nn.functional.cross_entropy(model(inputs), classes, reduction="none")

    @staticmethod
    def optimizer(
        rate: float,
    ) -> Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]:
        """Return what makes plain gradient descent: momentum would carry the noise on."""
        return lambda parameters: torch.optim.SGD(parameters, lr=rate)

    def save(self, path: Path) -> None:
        """Write the parameters as safetensors, with what inputs and outputs mean."""
        from safetensors.torch import save

        meaning = {"features": json.dumps(self.features), "classes": json.dumps(self.classes)}
        with atomic_stream("--out", path) as stream:
            stream.write(in_order(save(self.model.state_dict(), metadata=meaning)))


def problem_of(
    table: DataTable,
    source: str,
    label: str,
    *,
    hidden: int,
    held_out: float,
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> TableProblem:
    """Return the problem of predicting a column from all others but the source's.

    Numbers are scaled by their declared bounds; without bounds by the held-out rows, which nothing
    is learned from: a model with such scales says what those rows are like.

    Args:
        table: the rows.
        source: column that says whose a row is.
        label: column that is predicted.
        hidden: units of a hidden layer, 0 for none.
        held_out: share of the rows that nothing is learned from.
        bounds: (low, high) of columns of numbers; a number outside counts as the nearer bound.

    Raises:
        ValueError: a column is missing or no category, a class or source is missing among the rows
            to learn from, or a share leaves too few rows.
    """
    for flag, name in (("--source", source), ("--label", label)):
        if name not in table.columns:
            raise ValueError(f"{flag}: expected one of the columns, got {name!r}")
    if source == label:
        raise ValueError(f"--label: expected another column than --source, got {label!r} twice")
    share = in_interval("--held-out-share", held_out, 0.0, 1.0, open_low=True, open_high=True)
    units = integer("--hidden", hidden, minimum=0)
    rows = np.asarray(table)
    # which rows are held out does not depend on them
    order = np.random.default_rng(SEED).permutation(len(rows))
    apart = round(share * len(rows))
    if not 2 <= apart <= len(rows) - 2:
        raise ValueError(
            f"--held-out-share: expected 2 rows or more on both sides, got {apart} apart"
        )
    # in the order of the table
    known, learned = np.sort(order[:apart]), np.sort(order[apart:])
    # a source that occurs in held-out rows alone would be told by its absence
    _check_seen(table, rows, learned, (source, label))
    scales = _scales(table, rows, known, {source, label}, bounds or {})
    inputs, features = _inputs(table, rows, scales, bounds or {})
    # classes 0, 1, …
    codes = rows[:, table.columns.index(label)].astype(np.int64)
    classes = table.categories[label].levels
    if len(classes) < 2:
        raise ValueError("--label: expected at least 2 classes, got 1")
    whose = rows[learned, table.columns.index(source)].astype(np.int64)
    # the start is the same for every table
    torch.manual_seed(SEED)
    width = inputs.shape[1]
    model: torch.nn.Module = torch.nn.Linear(width, len(classes))
    if units:
        model = torch.nn.Sequential(
            torch.nn.Linear(width, units), torch.nn.Tanh(), torch.nn.Linear(units, len(classes))
        )
    levels = table.categories[source].levels
    return TableProblem(
        model=model,
        data=(torch.from_numpy(inputs[learned]), torch.from_numpy(codes[learned])),
        sources=tuple(levels[code] for code in whose.tolist()),
        roster=tuple(levels),
        held_out=(torch.from_numpy(inputs[known]), torch.from_numpy(codes[known])),
        classes=tuple(classes),
        features=features,
        undeclared=_undeclared(table, bounds or {}),
        remarks=(
            f"{apart:,} rows that nothing was learned from were drawn without looking at them. "
            "They are taken as known to everybody, and so are the classes, the categories and the "
            "scales where none were declared.",
        ),
    )


def _undeclared(table: DataTable, bounds: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        name
        for name in table.columns
        if not (table.categories[name].declared if name in table.categories else name in bounds)
    )


def _check_seen(table: DataTable, rows: Array, learned: Any, names: tuple[str, ...]) -> None:
    for flag, name in zip(("--source", "--label"), names, strict=True):
        if table.categories[name].declared:
            continue  # whether one is there is for nobody to see
        # levels that were read from the rows
        codes = rows[:, table.columns.index(name)]
        gone = np.setdiff1d(codes, codes[learned]).size
        if gone:
            raise ValueError(
                f"{flag}: expected every one among the rows to learn from, got none of {gone}; "
                "hold out less, or leave out what is so rare"
            )


def _scales(
    table: DataTable,
    rows: Array,
    known: Any,
    left_out: set[str],
    bounds: Mapping[str, tuple[float, float]],
) -> dict[str, tuple[float, float] | None]:
    """Return the centre and the unit of every input that is a number, None for a category."""
    # a bound of a category or of no column is a mistake
    unknown = sorted(set(bounds) - set(table.columns) | set(bounds) & {*table.categories})
    if unknown:
        raise ValueError(f"--bounds: expected columns of numbers, got {unknown[0]!r}")
    found: dict[str, tuple[float, float] | None] = {}
    for place, name in enumerate(table.columns):
        if name in left_out:
            continue
        if name in table.categories:
            found[name] = None
        elif name in bounds:
            low, high = bounds[name]
            if not low < high < np.inf:
                raise ValueError(f"--bounds: expected LOW below HIGH, got {low:g}:{high:g}")
            # declared: −1 … 1, whatever the rows are like
            found[name] = ((low + high) / 2, (high - low) / 2)
        else:
            column = rows[known, place]
            spread = float(column.std())
            # the same in all of them, but for rounding
            constant = spread <= LEVEL * float(np.abs(column).max())
            found[name] = (float(column.mean()), 1.0 if constant else spread)
    if not found:
        raise ValueError("DATA: expected a column beside --source and --label, got none")
    return found


def _inputs(
    table: DataTable, rows: Array, scales: Mapping[str, tuple[float, float] | None], bounded: Any
) -> tuple[np.ndarray[Any, np.dtype[np.float32]], tuple[tuple[str, float, float], ...]]:
    parts, features = [], []
    for name, scale in scales.items():
        column = rows[:, table.columns.index(name)]
        if scale is None:
            # one input for every level
            levels = table.categories[name].levels
            parts.append(np.eye(len(levels))[column.astype(np.int64)])
            features += [(f"{name}={level}", 0.0, 1.0) for level in levels]
            continue
        centre, unit = scale
        # numbers in units of their scale, within declared bounds
        units = (column - centre) / unit
        parts.append((np.clip(units, -1.0, 1.0) if name in bounded else units)[:, None])
        features.append((name, centre, unit))
    return np.concatenate(parts, axis=1).astype(np.float32), tuple(features)
