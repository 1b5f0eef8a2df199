"""The Gram matrix of per-example gradients, added up parameter by parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.linalg import blas
from torch import Tensor

from tacit._ground.checks import Array
from tacit.gradients.uses import (
    Contributions,
    DenseGradients,
    EmbeddingFactors,
    LinearFactors,
    among_seen,
    at_least_single,
)

# Columns of J that are formed and multiplied at a time, and the most that ever are.
COLUMNS_TOGETHER = 2**13
COLUMNS_AT_MOST = 2**15


class Gramian:
    """The sum of J Jᵀ over columns of J, kept in double precision.

    Products of single-precision columns are taken some thousand columns at a time in single
    precision, and their sum in double.
    """

    def __init__(self, count: int) -> None:
        self.total: Array = np.zeros((count, count))
        self._waiting: list[Tensor] = []
        self._width = 0

    def add(self, columns: Tensor) -> None:
        """Add J Jᵀ for some columns (B, n) of J."""
        if columns.shape[1] == 0:
            return
        # narrow blocks wait, since a product of few columns is all overhead
        if columns.shape[1] < COLUMNS_TOGETHER // 4:
            self._waiting.append(columns)
            self._width += columns.shape[1]
            if self._width >= COLUMNS_TOGETHER:
                self._flush()
            return
        # bounded memory, and sums of few terms in single precision
        for part in torch.split(columns, COLUMNS_AT_MOST, dim=1):
            self.total += _outer(part)

    def add_matrix(self, products: Tensor) -> None:
        """Add products J Jᵀ themselves, (B, B)."""
        self.total += products.double().cpu().numpy()

    def _flush(self) -> None:
        if self._waiting:
            # blocks of one precision are one product
            kinds = {part.dtype for part in self._waiting}
            for kind in kinds:
                alike = [part for part in self._waiting if part.dtype == kind]
                self.total += _outer(torch.cat(alike, dim=1))
        self._waiting, self._width = [], 0

    def result(self) -> Array:
        """Return the whole sum, symmetric."""
        self._flush()
        # rounding differs on both sides of the diagonal; their mean is symmetric
        whole: Array = (self.total + self.total.T) / 2
        return whole


def _outer(columns: Tensor) -> Array:
    """Return J Jᵀ, (B, B), by the triangle alone where BLAS is at hand."""
    columns = at_least_single(columns.detach())
    if columns.is_cuda:
        products: Array = (columns @ columns.T).double().cpu().numpy()
        return products
    # syrk forms one triangle: half the work of J Jᵀ
    rows = columns.contiguous().numpy()
    multiply = blas.dsyrk if rows.dtype == np.float64 else blas.ssyrk
    lower: Array = multiply(1.0, rows.T, trans=1, lower=1).astype(np.float64)
    # the other triangle is its mirror image
    whole: Array = lower + np.tril(lower, -1).T
    return whole


def gram_matrix(batches: Sequence[Mapping[str, Contributions]], sizes: Sequence[int]) -> Array:
    """Return ⟨g_i, g_j⟩ of all examples, with the cross terms of uses and of micro-batches.

    Args:
        batches: the contributions by parameter, one mapping per micro-batch.
        sizes: number of examples of each micro-batch.
    """
    total = Gramian(sum(sizes))
    # parameters in the order of their first use
    names = dict.fromkeys(name for batch in batches for name in batch)
    # ⟨g_i, g_j⟩ = Σ over parameters
    for name in names:
        _add_parameter(total, [batch.get(name, ()) for batch in batches], sizes)
    return total.result()


def _add_parameter(total: Gramian, batches: list[Contributions], sizes: Sequence[int]) -> None:
    """Add one parameter's part, a block of its rows at a time."""
    # one use of a linear layer at one position: (a aᵀ)∘(g gᵀ) without forming J
    only = batches[0][0] if len(batches) == 1 and len(batches[0]) == 1 else None
    if isinstance(only, LinearFactors):
        products = only.gram()
        if products is not None:
            total.add_matrix(products)
            return
    uses = [use for batch in batches for use in batch]
    # a table of which few rows occur: the others add nothing
    lookups = [[use for use in batch if isinstance(use, EmbeddingFactors)] for batch in batches]
    if sum(map(len, lookups)) == len(uses):
        batches, count = among_seen(lookups)
        uses = [use for batch in batches for use in batch]
    else:
        count = uses[0].shape[0] if uses[0].shape else 1
    # columns of J in one row of the parameter
    width = math.prod(uses[0].shape) // max(count, 1)
    # as many rows at a time as fit the block
    step = max(1, COLUMNS_TOGETHER // max(width, 1))
    if all(isinstance(use, DenseGradients) for use in uses):
        step = max(1, COLUMNS_AT_MOST // max(width, 1))
    # groups of a convolution are formed whole
    together = math.lcm(*(use.granularity for use in uses))
    step = max(step // together, 1) * together
    for start in range(0, count, step):
        stop = min(start + step, count)
        total.add(_columns(batches, sizes, start, stop))


def _columns(batches: list[Contributions], sizes: Sequence[int], start: int, stop: int) -> Tensor:
    """Return J for some of a parameter's rows, all uses summed and micro-batches stacked."""
    blocks: list[Tensor | None] = []
    for batch in batches:
        # the uses of one micro-batch, summed
        block: Tensor | None = None
        for use in sorted(batch, key=lambda use: isinstance(use, EmbeddingFactors)):
            if block is not None and isinstance(use, EmbeddingFactors):
                block = use.add_to(block, start, stop)
            else:
                found = use.rows(start, stop)
                # what is kept is not added to
                alone = len(batch) == 1 or not isinstance(use, DenseGradients)
                block = (found if alone else found.clone()) if block is None else block + found
        blocks.append(block)
    # a parameter that a micro-batch does not use has gradient 0 there
    some = next(block for block in blocks if block is not None)
    filled = [
        some.new_zeros(size, some.shape[1]) if block is None else block
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return filled[0] if len(filled) == 1 else torch.cat(filled)
