"""Prompts in disjoint sets: cut from a stream of tokens, or whole as they were given."""

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
from tacit.models.padding import PADDING

Tokens = npt.NDArray[np.int64]

WINDOWS_TOGETHER = 1 << 18


@short_repr
@dataclass(frozen=True, eq=False)
class Prefixes:
    """Sets of prompts, each (n, T): no prompt stands in two of them, but in what is released.

    Shorter prompts are padded with −1 on the left, as far as the longest of their set.

    Attributes:
        bank: the prompts an attacker chooses among.
        calibration: public prompts, from which the defender and the consumer learn.
        held_out: what use is measured on: prompts like those of the bank, which nothing is fitted
            on and no attacker looks for.
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

    @classmethod
    def of_prompts(
        cls,
        prompts: Any,
        public: Any,
        *,
        bank: int,
        calibration: int,
        held_out: int,
        rng: RandomSource = None,
    ) -> Prefixes:
        """Divide whole prompts, as many as there are and at most as many as asked for.

        A prompt counts once. Of the user's own at most a fifth are held out, at random, and those
        that are among the public ones are left out: nothing is to be found out about them. The
        public ones are drawn as they were given, so that what is fitted on them, and its digest,
        is the same whatever the user's prompts are.

        Args:
            prompts: the user's own, (n, T), padded with −1 on the left.
            public: others, (m, T'), on which everything is fitted.
            bank: at most so many secrets.
            calibration: at most so many public prompts.
            held_out: at most so many to measure use on; 0 keeps the order of the bank.
            rng: source of the division.

        Raises:
            ValueError: too few are left to divide.

        Example:
            >>> own, public = torch.arange(20).reshape(10, 2), torch.arange(14, 54).reshape(20, 2)
            >>> sets = Prefixes.of_prompts(own, public, bank=9, calibration=9, held_out=9, rng=0)
            >>> [len(part) for part in (sets.bank, sets.calibration, sets.held_out)]
            [6, 9, 1]
        """
        own, others = padded_integers("prompts", prompts), padded_integers("public", public)
        source = generator(rng)
        chosen = public_prompts(others, calibration, source)
        width = max(own.shape[1], others.shape[1])
        own, others = (np.pad(rows, ((0, 0), (width - rows.shape[1], 0)), constant_values=PADDING)
                       for rows in (own, others))  # fmt: skip
        own = distinct_prompts(own)
        own = own[~np.isin(_keys(own), _keys(others))]
        if len(own) == 0:
            raise ValueError("prompts: expected some that are not among the public, got none")
        aside = min(integer("held_out", held_out, minimum=0), len(own) // 5)
        kept = min(integer("bank", bank, minimum=1), len(own) - aside)
        if held_out and aside == 0:
            raise ValueError(
                f"prompts: expected at least 5 different ones, to hold some out, got {len(own)}"
            )
        order = source.permutation(len(own)) if aside else np.arange(len(own))
        return cls(
            _narrowed(own[order[aside : aside + kept]]), chosen, _narrowed(own[order[:aside]])
        )

    @classmethod
    def released(
        cls,
        prompts: Any,
        public: Any,
        *,
        bank: int,
        calibration: int,
        rng: RandomSource = None,
    ) -> Prefixes:
        """Take the first prompts to release, each in its place, and public ones to fit on.

        Nothing is left out, put together or moved, whatever a prompt is.

        Args:
            prompts: the user's own, (n, T), padded with −1 on the left.
            public: others, (m, T'), on which everything is fitted.
            bank: at most so many secrets.
            calibration: at most so many public prompts.
            rng: source of the public ones' draw.

        Example:
            >>> sets = Prefixes.released([[1, 2], [1, 2]], [[1, 2], [3, 4]], bank=9, calibration=9)
            >>> len(sets.bank), len(sets.calibration)
            (2, 2)
        """
        own = padded_integers("prompts", prompts)[: integer("bank", bank, minimum=1)]
        chosen = public_prompts(public, calibration, generator(rng))
        return cls(_narrowed(own), chosen, _narrowed(own[:0]))


def public_prompts(public: Any, count: int, source: np.random.Generator) -> Tensor:
    """Draw at most so many different prompts of those that are public, (m', T).

    Example:
        >>> len(public_prompts([[1], [2], [1]], 5, np.random.default_rng(0)))
        2
    """
    others = distinct_prompts(padded_integers("public", public))
    fitted = min(integer("calibration", count, minimum=1), len(others))
    return _narrowed(others[source.permutation(len(others))[:fitted]])


def _narrowed(rows: Tokens) -> Tensor:
    """Return prompts without the columns that pad all of them."""
    real = (rows != PADDING).any(axis=0)
    start = int(real.argmax()) if real.any() else 0
    return torch.from_numpy(np.ascontiguousarray(rows[:, start:]))


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


def shared_sequences(bank: Any, public: Any, *, length: int = 8) -> tuple[float, float]:
    """Return how much of the prompts of a bank stands word for word in public prompts.

    Args:
        bank: tokens (n, T), padded with −1 on the left.
        public: tokens (m, T').
        length: tokens of a sequence; a shorter prompt is one sequence.

    Returns:
        The share of the bank's sequences of ``length`` consecutive tokens that occur in a public
        prompt, and the share of its prompts that hold such a sequence.

    Example:
        >>> shared_sequences([[1, 2, 3], [7, 8, 9]], [[0, 1, 2]], length=2)
        (0.25, 0.5)
    """
    size = integer("length", length, minimum=1)
    secrets, others = padded_integers("bank", bank), padded_integers("public", public)
    lengths = np.minimum((secrets != PADDING).sum(axis=1), size)
    count, hits, touched = 0, 0, 0
    for part in np.unique(lengths):
        rows = secrets[lengths == part]
        known = _sequences(others, int(part))[0] if others.shape[1] >= part else others[:0]
        sequences, owners = _sequences(rows, int(part))
        found = np.isin(_keys(sequences), _keys(known)) if len(known) else np.zeros(0, dtype=bool)
        count, hits = count + len(sequences), hits + int(found.sum())
        touched += len(np.unique(owners[: len(found)][found]))
    return hits / count, touched / len(secrets)


def standing_in(prompts: Any, stream: Any) -> npt.NDArray[np.bool_]:
    """Return whether each prompt stands word for word in a stream of tokens, (n,).

    Args:
        prompts: tokens (n, T), padded with −1 on the left.
        stream: tokens (S,).

    Example:
        >>> standing_in([[1, 2], [2, 1], [-1, 3]], [0, 1, 2, 3]).tolist()
        [True, False, True]
    """
    rows, tokens = padded_integers("prompts", prompts), _integers("stream", stream, ndim=1)
    lengths = (rows != PADDING).sum(axis=1)
    found = np.zeros(len(rows), dtype=bool)
    for length in np.unique(lengths[(lengths > 0) & (lengths <= len(tokens))]):
        own = np.flatnonzero(lengths == length)
        keys = _keys(rows[own, rows.shape[1] - length :])
        windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
        # the first token alone rules most windows out
        starts = np.flatnonzero(np.isin(windows[:, 0], rows[own, rows.shape[1] - length]))
        for part in np.array_split(starts, len(starts) // WINDOWS_TOGETHER + 1):
            found[own] |= np.isin(keys, _keys(windows[part]))
    return found


def _sequences(rows: Tokens, length: int) -> tuple[Tokens, Tokens]:
    """Return every run of ``length`` tokens without padding, and the row it stands in."""
    runs = np.lib.stride_tricks.sliding_window_view(rows, length, axis=1)
    whole = (runs != PADDING).all(axis=2)
    return np.ascontiguousarray(runs[whole]), np.nonzero(whole)[0]


def distinct_prompts(rows: Tokens) -> Tokens:
    """Return the prompts in order, each once."""
    first = np.unique(_keys(rows), return_index=True)[1]
    return np.ascontiguousarray(rows[np.sort(first)])


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


def padded_integers(name: str, value: Any) -> Tokens:
    """Return tokens (n, T), −1 where padded."""
    return _integers(name, value, ndim=2, least=PADDING)


def _integers(name: str, value: Any, *, ndim: int, least: int = 0) -> Tokens:
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(f"{name}: expected integers, got {type(value).__name__}") from None
    if found.dtype.kind not in "iu" or found.ndim != ndim or found.size == 0:
        shape = "(S,)" if ndim == 1 else "(n, T)"
        raise ValueError(
            f"{name}: expected integers of shape {shape}, got {found.dtype} of shape {found.shape}"
        )
    if int(found.min()) < least:
        raise ValueError(f"{name}: expected integers >= {least}, got {int(found.min())}")
    return found.astype(np.int64)
