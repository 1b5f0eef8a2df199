"""Logits of a pool of inputs from a callable, a torch module or an array, in float64."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, array
from tacit.compute import progress_bar

ROWS_PER_BATCH = 1024

Predictor: TypeAlias = Callable[[Any], Any]


def pool_rows(pool: Any) -> npt.NDArray[Any]:
    """Return the inputs as an array of at least two rows."""
    try:
        rows = np.asarray(pool)
    except (ValueError, TypeError, RuntimeError):
        raise ValueError(
            "pool: expected an array of inputs, got rows of different lengths or no rows"
        ) from None
    if rows.ndim == 0 or len(rows) < 2:
        raise ValueError(f"pool: expected at least 2 inputs, got shape {rows.shape}")
    return rows


def pool_logits(predict: Any, rows: npt.NDArray[Any], progress: bool | None) -> Array:
    """Return (n, c) float64 logits of the pool, zeros with one sign.

    Args:
        predict: a callable on batches, a torch module, or the (n, c) logits themselves.
        rows: the n inputs, from ``pool_rows``.
        progress: whether to show a bar on a terminal; None and True do.

    Raises:
        ValueError: other than finite logits, or not one row per input.
    """
    if _is_torch_module(predict):
        logits = _in_batches(_module_predictor(predict), rows, progress)
    elif callable(predict):
        logits = _in_batches(predict, rows, progress)
    else:
        logits = array("predict", predict, ndim=2)
    if len(logits) != len(rows):
        raise ValueError(
            f"predict: expected one row of logits for each of the {len(rows)} inputs of the pool, "
            f"got {len(logits)}"
        )
    return logits + 0.0


def _in_batches(predict: Predictor, rows: npt.NDArray[Any], progress: bool | None) -> Array:
    parts: list[Array] = []
    with progress_bar(len(rows), "computing logits", shown=progress is not False) as advance:
        for start in range(0, len(rows), ROWS_PER_BATCH):
            batch = rows[start : start + ROWS_PER_BATCH]
            part = array("predict", predict(batch), ndim=2)
            if len(part) != len(batch) or (parts and part.shape[1] != parts[0].shape[1]):
                columns = parts[0].shape[1] if parts else "c"
                raise ValueError(
                    f"predict: expected logits of shape ({len(batch)}, {columns}) for a batch of "
                    f"{len(batch)} inputs, got {part.shape}"
                )
            parts.append(part)
            advance(len(batch))
    return np.concatenate(parts)


def _is_torch_module(predict: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(predict, torch.nn.Module)


def _module_predictor(module: Any) -> Predictor:
    """Return a predictor on arrays: evaluation mode, no gradients, the module's own precision."""
    import torch

    def predict(batch: npt.NDArray[Any]) -> Any:
        first = next(iter(module.parameters()), torch.zeros(()))
        given = torch.as_tensor(batch)
        precision = first.dtype if given.is_floating_point() else given.dtype
        modes = [(part, part.training) for part in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                return module(given.to(first.device, precision)).double().cpu().numpy()
        finally:
            for part, training in modes:
                part.training = training

    return predict
