"""The precision of products: half where a machine has instructions for it, or none."""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch

ARM = ("arm64", "aarch64")


@cache
def half_precision_is_native() -> bool:
    """Whether the processor multiplies bfloat16 by instructions of its own.

    Others emulate it, hundreds of times slower than float32. It is read and not timed, so that what
    is computed on one machine is the same whatever else runs there.
    """
    if platform.machine().lower() in ARM:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def native_precision(wanted: str, device: torch.device) -> str:
    """Return what ``"auto"`` stands for on a device; another name as it is."""
    if wanted != "auto":
        return wanted
    native = half_precision_is_native() if device.type == "cpu" else torch.cuda.is_bf16_supported()
    return "bfloat16" if native else "float32"


def computing_in(precision: str, device: str) -> AbstractContextManager[Any]:
    """Return the context in which products are computed in bfloat16, or none."""
    if precision == "bfloat16":
        return torch.autocast(device, dtype=torch.bfloat16)
    return nullcontext()
