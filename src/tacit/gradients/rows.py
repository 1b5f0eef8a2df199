"""Squared norms and weighted sums of rows of float32, as exact as clipping needs them."""

from __future__ import annotations

import torch
from torch import Tensor

# Rows and columns of a copy in float64: rows so long that they are read at the speed of memory.
BLOCK = 16, 2**15
# Squares that are added up in float32, and what their sum may be off by, as a share.
SINGLE, ROUNDED = 128, 2.0**-16
# Rows of so many entries are added up in float32: by their length alone, whoever else is there.
LONG = 2**12


def squares(rows: Tensor) -> Tensor:
    """Return ‖r_i‖² of rows (B, p) in float64, off by a share of ``ROUNDED`` of it at most.

    Squares of long rows of float32 are added up in float32, so few at a time that their rounding is
    known; a row in which they leave its range is read again in float64.
    """
    if rows.dtype != torch.float32 or rows.device.type != "cpu" or rows.shape[1] < LONG:
        return exact_squares(rows)
    whole = rows.shape[1] - rows.shape[1] % SINGLE
    # n squares and n sums, a root and its square are off by (n + 4) 2⁻²⁴ of the sum at most
    parts = rows[:, :whole].reshape(len(rows), -1, SINGLE)
    lengths: Tensor = torch.linalg.vector_norm(parts, dim=2)
    found: Tensor = lengths.double().square_().sum(dim=1)
    found += exact_squares(rows[:, whole:])
    # a square below 2⁻¹²⁶ may be lost: less than a share of 2⁻²⁶ of what is larger than this
    sure = found.isfinite() & (found > rows.shape[1] * 2.0**-100)
    if not bool(sure.all()):
        found[~sure] = exact_squares(rows[~sure])
    return found


def exact_squares(rows: Tensor) -> Tensor:
    """Return ‖r_i‖² of rows (B, p) in float64, in which no gradient of float32 overflows."""
    # the norm first: squares of entries may overflow where it does not
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return lengths.square()


def weighted(rows: Tensor, coefficients: Tensor) -> Tensor:
    """Return Σ_i c_i r_i of rows (B, p) in float64, without a copy of all of them in float64."""
    if rows.dtype == torch.float64 or rows.device.type != "cpu" or len(rows) == 0:
        return coefficients @ rows.double()
    many, width = BLOCK
    size = min(many, len(rows)), min(width, rows.shape[1])
    copy = rows.new_empty(size, dtype=torch.float64)
    total = rows.new_empty(rows.shape[1], dtype=torch.float64)
    for start in range(0, rows.shape[1], width):
        sums = total[start : start + width]
        for first in range(0, len(rows), many):
            some = rows[first : first + many, start : start + width]
            held = copy[: some.shape[0], : some.shape[1]].copy_(some)
            # with 0 before it what stands in the place of the sum is not read
            before = 1.0 if first else 0.0
            torch.addmv(sums, held.T, coefficients[first : first + many], beta=before, out=sums)
    return total


def divided(values: Tensor, by: float, dtype: torch.dtype) -> Tensor:
    """Return values of float64 over a number, in float64, as another type.

    Args:
        values: of any shape.
        by: the number.
        dtype: of what is returned.
    """
    step = BLOCK[1]
    if values.numel() <= step or values.device.type != "cpu":
        return values.div(by).to(dtype)
    made = torch.empty_like(values, dtype=dtype, memory_format=torch.contiguous_format)
    flat, into = values.reshape(-1), made.view(-1)
    # a quotient in float64 that stays in the cache of a core, and what it is rounded to
    for start in range(0, len(flat), step):
        part = slice(start, start + step)
        into[part].copy_(flat[part] / by)
    return made
