"""Whether this machine multiplies faster in half precision."""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import Tensor

WIDTH, REPEATS = 256, 5


@cache
def half_precision_is_faster() -> bool:
    """Time a product in bfloat16 beside the same one in float32.

    The product is small: processors without bfloat16 emulate it hundreds of times slower.
    """
    rows = torch.ones(WIDTH, WIDTH)
    short = rows.bfloat16()

    def seconds(factor: Tensor) -> float:
        start = time.perf_counter()
        torch.mm(factor, factor)
        return time.perf_counter() - start

    return min(seconds(short) for _ in range(REPEATS)) < min(seconds(rows) for _ in range(REPEATS))
