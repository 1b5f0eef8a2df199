"""A table as a classification problem: scaled numbers, one-hot categories, a small network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import Array, in_interval, integer
from tacit._ground.files import atomic_stream
from tacit.statistics import Table

SEED = 0
# Share of the largest number below which a spread is rounding.
LEVEL = 1e-9


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A model, what it learns from, and what it is held against.

    Attributes:
        model: not trained yet.
        data: (inputs, classes) of the rows to learn from.
        sources: the source of each of them.
        held_out: (inputs, classes) of the others.
        classes: what the outputs mean.
        features: what the inputs mean: its name, what is taken off and what it is divided by.
        notes: what the reader of a release should know.
    """

    model: torch.nn.Module
    data: tuple[torch.Tensor, torch.Tensor]
    sources: tuple[str, ...]
    held_out: tuple[torch.Tensor, torch.Tensor]
    classes: tuple[str, ...]
    features: tuple[tuple[str, float, float], ...]
    notes: tuple[str, ...]

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


def problem_of(table: Table, source: str, label: str, *, hidden: int, held_out: float) -> Problem:
    """Return the problem of predicting a column from all others but the source's.

    Scales are those of the held-out rows, which nothing is learned from: what the references leave
    out does not move them.

    Raises:
        ValueError: a column is missing or no category, a class or source is missing among the rows
            to learn from, or a share leaves too few rows.
    """
    for flag, name in (("--source", source), ("--label", label)):
        if name not in table.columns:
            raise ValueError(f"{flag}: expected one of the columns, got {name!r}")
    if source == label:
        raise ValueError(f"--label: expected another column than --source, got {label!r} twice")
    share = in_interval("--held-out", held_out, 0.0, 1.0, open_low=True, open_high=True)
    units = integer("--hidden", hidden, minimum=0)
    rows = np.asarray(table)
    order = np.random.default_rng(SEED).permutation(len(rows))
    apart = round(share * len(rows))
    if not 2 <= apart <= len(rows) - 2:
        raise ValueError(f"--held-out: expected 2 rows or more on both sides, got {apart} apart")
    known, learned = np.sort(order[:apart]), np.sort(order[apart:])
    _check_seen(table, rows, learned, (source, label))
    inputs, features = _inputs(table, rows, known, {source, label})
    codes = rows[:, table.columns.index(label)].astype(np.int64)
    classes = table.categories[label].levels
    if len(classes) < 2:
        raise ValueError("--label: expected at least 2 classes, got 1")
    whose = rows[learned, table.columns.index(source)].astype(np.int64)
    torch.manual_seed(SEED)
    width = inputs.shape[1]
    model: torch.nn.Module = torch.nn.Linear(width, len(classes))
    if units:
        model = torch.nn.Sequential(
            torch.nn.Linear(width, units), torch.nn.Tanh(), torch.nn.Linear(units, len(classes))
        )
    levels = table.categories[source].levels
    return Problem(
        model=model,
        data=(torch.from_numpy(inputs[learned]), torch.from_numpy(codes[learned])),
        sources=tuple(levels[code] for code in whose.tolist()),
        held_out=(torch.from_numpy(inputs[known]), torch.from_numpy(codes[known])),
        classes=tuple(classes),
        features=features,
        notes=(
            f"Scales come from {apart:,} rows that nothing was learned from, drawn without looking "
            "at them; those rows, the classes and the categories are taken as known to everybody.",
        ),
    )


def _check_seen(table: Table, rows: Array, learned: Any, names: tuple[str, ...]) -> None:
    for flag, name in zip(("--source", "--label"), names, strict=True):
        codes = rows[:, table.columns.index(name)]
        gone = np.setdiff1d(codes, codes[learned]).size
        if gone:
            raise ValueError(
                f"{flag}: expected every one among the rows to learn from, got none of {gone}; "
                "hold out less, or leave out what is so rare"
            )


def _inputs(
    table: Table, rows: Array, known: Any, left_out: set[str]
) -> tuple[np.ndarray[Any, np.dtype[np.float32]], tuple[tuple[str, float, float], ...]]:
    parts, features = [], []
    for place, name in enumerate(table.columns):
        if name in left_out:
            continue
        column = rows[:, place]
        if name in table.categories:
            levels = table.categories[name].levels
            parts.append(np.eye(len(levels))[column.astype(np.int64)])
            features += [(f"{name}={level}", 0.0, 1.0) for level in levels]
            continue
        mean, spread = float(column[known].mean()), float(column[known].std())
        if spread <= LEVEL * float(np.abs(column[known]).max()):
            spread = 1.0  # the same in all of them, but for rounding
        parts.append(((column - mean) / spread)[:, None])
        features.append((name, mean, spread))
    if not parts:
        raise ValueError("DATA: expected a column beside --source and --label, got none")
    return np.concatenate(parts, axis=1).astype(np.float32), tuple(features)


def save_model(path: Path, problem: Problem) -> None:
    """Write the parameters as safetensors, with what inputs and outputs mean."""
    import json

    from safetensors.torch import save

    from tacit._ground.headers import in_order

    meaning = {"features": json.dumps(problem.features), "classes": json.dumps(problem.classes)}
    with atomic_stream("--save", path) as stream:
        stream.write(in_order(save(problem.model.state_dict(), metadata=meaning)))
