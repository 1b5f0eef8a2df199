"""Prompts cut from a stream of tokens: distinct, without overlap, in disjoint sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.reprs import short_repr

Tokens = npt.NDArray[np.int64]


@short_repr
@dataclass(frozen=True, eq=False)
class Prefixes:
    """Disjoint sets of prompts, each (n, T): no prompt stands in two of them.

    Attributes:
        bank: the prompts an attacker chooses among.
        calibration: public prompts, from which the defender and the consumer learn.
        held_out: what is measured on and tuned on nothing.
    """

    bank: Tensor
    calibration: Tensor
    held_out: Tensor

    @classmethod
    def draw(
        cls,
        stream: Any,
        *,
        bank: int,
        calibration: int,
        held_out: int,
        length: int,
        rng: RandomSource = None,
    ) -> Prefixes:
        """Draw the three sets from one stream of tokens.

        Raises:
            ValueError: the stream has fewer distinct windows than the three sizes together.

        Example:
            >>> sets = Prefixes.draw(range(90), bank=4, calibration=3, held_out=2, length=9, rng=0)
            >>> [len(part) for part in (sets.bank, sets.calibration, sets.held_out)]
            [4, 3, 2]
        """
        sizes = [
            integer(name, size, minimum=1)
            for name, size in (("bank", bank), ("calibration", calibration), ("held_out", held_out))
        ]
        windows = _windows(stream, length)
        if len(windows) < sum(sizes):
            raise ValueError(
                f"bank, calibration, held_out: expected at most {len(windows):,} together, the "
                f"distinct windows of {length} tokens that the text holds, got {sum(sizes):,}: "
                "fewer of them, or more text"
            )
        return cls(
            *split(sample_prefixes(stream, count=sum(sizes), length=length, rng=rng), *sizes)
        )


def sample_prefixes(
    stream: Any, *, count: int, length: int, rng: RandomSource = None, exclude: Any = None
) -> Tensor:
    """Draw ``count`` distinct windows of ``length`` tokens from a stream, no two overlapping.

    Windows start at multiples of ``length``, so that two calls on one stream, the second with
    the first's result as ``exclude``, share no stretch of the text.

    Args:
        stream: integers >= 0, (S,).
        count: prompts to draw, n.
        length: tokens of each, T.
        rng: source of the choice.
        exclude: prompts that may not be drawn, (m, T), or a sequence of such sets.

    Returns:
        Distinct prompts in random order, (n, T) of int64.

    Raises:
        ValueError: the stream has fewer distinct windows than asked for.

    Example:
        >>> sample_prefixes([5, 6, 7, 8, 5, 6], count=2, length=2, rng=0).sort(dim=0).values
        tensor([[5, 6],
                [7, 8]])
    """
    tokens = _integers("stream", stream, ndim=1)
    wanted = integer("count", count, minimum=1)
    size = integer("length", length, minimum=1)
    windows = _windows(tokens, size)
    barred = _excluded(exclude, size)
    if len(barred):
        keys, unwanted = _keys(windows), _keys(barred)
        windows = windows[~np.isin(keys, unwanted)]
    if len(windows) < wanted:
        raise ValueError(
            f"count: expected at most {len(windows)}, the distinct windows of {size} tokens that "
            f"{len(tokens)} tokens hold"
            + (" outside exclude" if len(barred) else "")
            + f", got {wanted}"
        )
    chosen = generator(rng).choice(len(windows), wanted, replace=False)
    return torch.from_numpy(np.ascontiguousarray(windows[chosen]))


def _windows(stream: Any, length: int) -> Tokens:
    """The distinct windows of a stream, which start at multiples of ``length``."""
    tokens, size = _integers("stream", stream, ndim=1), integer("length", length, minimum=1)
    return np.unique(tokens[: len(tokens) // size * size].reshape(-1, size), axis=0)


def split(tokens: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Cut distinct prompts (n, T) into consecutive disjoint sets of the sizes given.

    Raises:
        ValueError: the sizes ask for more than n, or a prompt occurs twice.

    Example:
        >>> bank, rest = split(torch.tensor([[1, 2], [3, 4], [5, 6]]), 1, 2)
        >>> rest
        tensor([[3, 4],
                [5, 6]])
    """
    rows = _integers("tokens", tokens, ndim=2)
    counts = [integer("sizes", size, minimum=1) for size in sizes]
    if sum(counts) > len(rows):
        raise ValueError(f"sizes: expected a sum of at most {len(rows)}, got {sum(counts)}")
    distinct = len(np.unique(rows, axis=0))
    if distinct < len(rows):
        raise ValueError(f"tokens: expected distinct prompts, got {distinct} among {len(rows)}")
    return torch.split(torch.from_numpy(rows[: sum(counts)]), counts)


def _keys(rows: Tokens) -> npt.NDArray[np.void]:
    """One comparable value per row."""
    whole = np.ascontiguousarray(rows)
    return whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1])))[:, 0]


def _excluded(exclude: Any, length: int) -> Tokens:
    if exclude is None:
        return np.empty((0, length), dtype=np.int64)
    many = isinstance(exclude, Sequence) and all(np.ndim(part) == 2 for part in exclude)
    parts = [_integers("exclude", part, ndim=2) for part in (exclude if many else [exclude])]
    for part in parts:
        if part.shape[1] != length:
            raise ValueError(f"exclude: expected {length} columns, got shape {part.shape}")
    return np.concatenate(parts) if parts else np.empty((0, length), dtype=np.int64)


def _integers(name: str, value: Any, *, ndim: int) -> Tokens:
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(f"{name}: expected integers, got {type(value).__name__}") from None
    if found.dtype.kind not in "iu" or found.ndim != ndim or found.size == 0:
        shape = "(S,)" if ndim == 1 else "(n, T)"
        raise ValueError(
            f"{name}: expected integers of shape {shape}, got {found.dtype} of shape {found.shape}"
        )
    if int(found.min()) < 0:
        raise ValueError(f"{name}: expected integers >= 0, got {int(found.min())}")
    return found.astype(np.int64)
