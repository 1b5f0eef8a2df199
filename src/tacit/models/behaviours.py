"""What a model does next, for many prompts: their output distributions, compactly held."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import integer

ROWS_TOGETHER = 4096
SMALLEST = 1e-30


class Behaviours:
    """n distributions over V tokens, read a block at a time as float32 probabilities.

    Dense rows keep log-probabilities in the precision given; ``Behaviours.top`` keeps the k
    likeliest tokens and spreads the rest of the mass evenly over the others.

    Args:
        log_probs: (n, V) logarithms of probabilities, or logits: each row is normalised.

    Raises:
        ValueError: not a matrix of floating-point numbers, or NaN in it.

    Example:
        >>> rows = Behaviours(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        >>> rows.probabilities(slice(1, 2))
        tensor([[0.8808, 0.1192]])
    """

    def __init__(self, log_probs: ArrayLike) -> None:
        self._dense: Tensor | None = as_matrix("behaviours", log_probs)
        self._tokens = self._top = torch.empty(0)
        self.count, self.vocabulary = self._dense.shape
        for start in range(0, self.count, ROWS_TOGETHER):
            if bool(torch.isnan(self._dense[start : start + ROWS_TOGETHER]).any()):
                raise ValueError(f"behaviours: expected numbers, got NaN in rows from {start} on")

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, value: Any) -> Behaviours:
        """Return ``value`` when it is one already."""
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def top(cls, log_probs: ArrayLike, kept: int) -> Behaviours:
        """Keep the ``kept`` likeliest tokens of each row and the mass of the others.

        Raises:
            ValueError: ``kept`` is not in 1 … V − 1.

        Example:
            >>> Behaviours.top(torch.tensor([[3.0, 1.0, 0.0]]), 1).probabilities(slice(0, 1))
            tensor([[0.8438, 0.0781, 0.0781]])
        """
        whole = cls(log_probs)
        size = integer("kept", kept, minimum=1, maximum=whole.vocabulary - 1)
        parts = [
            whole.probabilities(slice(start, start + ROWS_TOGETHER)).topk(size, dim=1)
            for start in range(0, whole.count, ROWS_TOGETHER)
        ]
        whole._tokens = torch.cat([part.indices for part in parts])
        whole._top = torch.cat([part.values for part in parts])
        whole._dense = None
        return whole

    def probabilities(self, rows: slice | Tensor) -> Tensor:
        """Return rows as probabilities, (b, V) of float32."""
        if self._dense is not None:
            return torch.softmax(self._dense[rows].float(), dim=1)
        tokens, top = self._tokens[rows], self._top[rows]
        rest = (1.0 - top.sum(dim=1, keepdim=True)).clamp_min(SMALLEST)
        spread = rest / (self.vocabulary - top.shape[1])
        return spread.expand(-1, self.vocabulary).clone().scatter_(1, tokens, top)

    def argmax(self) -> Tensor:
        """Return the likeliest token of every row, (n,)."""
        if self._dense is None:
            return self._tokens[:, 0].clone()
        return self._likeliest.clone()

    @cached_property
    def _likeliest(self) -> Tensor:
        assert self._dense is not None
        return self._dense.argmax(dim=1)

    def select(self, rows: Tensor) -> Behaviours:
        """Return some rows."""
        chosen = object.__new__(Behaviours)
        chosen.count, chosen.vocabulary = len(rows), self.vocabulary
        chosen._dense = None if self._dense is None else self._dense[rows]
        chosen._tokens, chosen._top = self._tokens, self._top
        if self._dense is None:
            chosen._tokens, chosen._top = self._tokens[rows], self._top[rows]
        return chosen


def as_matrix(name: str, value: Any) -> Tensor:
    """Return a tensor (n, d) of floating-point numbers, neither copied nor converted if it is."""
    if not isinstance(value, Tensor):
        try:
            array = np.asarray(value)
        except ValueError:
            raise ValueError(f"{name}: expected a matrix of numbers, got ragged rows") from None
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{name}: expected a matrix of numbers, got {array.dtype}")
        value = torch.from_numpy(np.array(array))
        value = value if value.is_floating_point() else value.float()
    if not value.is_floating_point() or value.ndim != 2 or value.numel() == 0:
        raise ValueError(
            f"{name}: expected numbers of shape (n, d), got {value.dtype} of shape "
            f"{tuple(value.shape)}"
        )
    found: Tensor = value.detach().cpu()
    return found


def as_states(name: str, value: Any, *, width: int | None = None) -> Tensor:
    """Return finite states (n, d) in float32."""
    rows = as_matrix(name, value).float()
    if width is not None and rows.shape[1] != width:
        raise ValueError(f"{name}: expected {width} columns, got shape {tuple(rows.shape)}")
    if not bool(torch.isfinite(rows).all()):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    return rows


def logarithms(probabilities: Tensor) -> Tensor:
    """Return ln max(p, 10⁻³⁰)."""
    return probabilities.clamp_min(SMALLEST).log()
