"""Losses that a backward pass of per-example gradients can start from."""

from __future__ import annotations

from torch import Tensor


def one_per_example(losses: Tensor) -> None:
    """Refuse losses that are not one number per example.

    Args:
        losses: (B,), B >= 1, that depend on what is trained.

    Raises:
        ValueError: they are anything else, such as their mean.

    Example:
        >>> import torch
        >>> one_per_example(torch.tensor(1.0))
        Traceback (most recent call last):
            ...
        ValueError: losses: expected one loss per example, shape (B,), got shape ()
    """
    if not isinstance(losses, Tensor):
        raise ValueError(f"losses: expected a tensor of shape (B,), got {type(losses).__name__}")
    if losses.ndim != 1 or losses.shape[0] == 0:
        raise ValueError(
            f"losses: expected one loss per example, shape (B,), got shape {tuple(losses.shape)}"
        )
    if not losses.requires_grad:
        raise ValueError("losses: expected losses that depend on a layer, got none that does")
