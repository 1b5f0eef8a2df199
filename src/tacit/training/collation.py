"""Whether the rows of a batch follow each from its own record, whatever puts them together."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.gradients.batches import tensors_in

# Between a row among others and alone: a share of the largest number in it.
SAME = 1e-4


class CheckedCollation:
    """Puts records together as asked, and holds a row of some batches against its record alone.

    The 1st, 2nd, 4th, 8th … batch, each by another row. What draws, such as masks of words, is not
    held, for alone it would draw other numbers. Whole numbers, which may count rows, tell of the
    order alone; so does a row that is shorter alone, as texts are that are padded to the longest.

    Args:
        collate: puts records together.
        in_order: whether rows have to stand in the order of their records.
    """

    def __init__(self, collate: Callable[[Any], Any], *, in_order: bool) -> None:
        self._collate, self._in_order, self._seen = collate, in_order, 0

    def __call__(self, records: Sequence[Any]) -> Any:
        """Return a batch.

        Raises:
            ValueError: a row of it is another than that of its record alone, or stands elsewhere.
        """
        count = len(records)
        self._seen += count > 1
        if count < 2 or self._seen & (self._seen - 1):
            return self._collate(records)
        place, states = self._seen % count, _states()
        try:
            # before the batch is made, which may take a record apart
            twice = [[copy.deepcopy(records[place])] for _ in range(2)]
        except Exception:  # a record may be anything
            return self._collate(records)
        batch = self._collate(records)
        if _states() == states:
            self._compare(batch, twice, place, count)
        return batch

    def _compare(self, batch: Any, twice: list[list[Any]], place: int, count: int) -> None:
        """Refuse a row that its record alone has not."""
        try:
            first, second = (list(tensors_in(self._collate(one))) for one in twice)
            pairs = list(zip(tensors_in(batch), first, second, strict=True))
        except Exception:  # what no single record passes through is not held
            return
        rows = [
            (many, one[0])
            for many, one, again in pairs
            # with a generator of its own it draws other numbers
            if self._is_row(one, many, count) and one.shape == again.shape and _close(one, again)
        ]
        if all(_holds(many[place], row) for many, row in rows):
            return
        elsewhere = [
            {index for index, held in enumerate(many) if _holds(held, row)} for many, row in rows
        ]
        if not all(
            held
            for held, (many, row) in zip(elsewhere, rows, strict=True)
            if row.is_floating_point() and row.shape == many.shape[1:]
        ):
            raise ValueError(
                "collate_fn: expected rows of a batch that follow each from its own record, got "
                "one that is another where its record stands alone; scale by what is public, not "
                "by a mean or a size of the batch"
            )
        if self._in_order and set.intersection(*elsewhere):
            raise ValueError(
                "collate_fn: expected the rows of a batch in the order of its records, which are "
                "added up by person, got them in another"
            )

    def _is_row(self, one: Tensor, many: Tensor, count: int) -> bool:
        """Whether a tensor of one record alone is of the kind of a row of so many."""
        if one.shape[:1] != (1,) or many.ndim != one.ndim or len(many) != count:
            return False
        if one.shape[1:] == many.shape[1:]:
            return True
        return self._in_order and all(a <= b for a, b in zip(one.shape, many.shape, strict=True))


def _states() -> tuple[Any, ...]:
    """Return the states of the generators that are usually drawn from."""
    words: Any = np.random.get_state()  # noqa: NPY002
    drawn = torch.get_rng_state().numpy().tobytes()
    return (drawn, words[1].tobytes(), words[2], random.getstate())


def _holds(many: Tensor, row: Tensor) -> bool:
    """Whether a row of a batch is that of a record alone, or that and padding on one side."""
    if many.shape == row.shape:
        return _close(many, row)
    ends = zip(many.shape, row.shape, strict=True)
    last = tuple(slice(whole - size, whole) for whole, size in ends)
    return _close(many[tuple(map(slice, row.shape))], row) or _close(many[last], row)


def _close(first: Tensor, second: Tensor) -> bool:
    if not second.is_floating_point():
        return torch.equal(first, second)
    largest = float(second.abs().nan_to_num().max()) if second.numel() else 0.0
    return torch.allclose(first, second, rtol=0.0, atol=SAME * largest + 1e-12, equal_nan=True)
