"""The one way out for noised sums of tensors: float64, on the grid of the noise, then anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground import outlet
from tacit.covariance.publication import publish_sum


def publish_tensor(value: Tensor, noise: Tensor, deviations: Any) -> Tensor:
    """Return ``value + noise`` in float64 on the grid that the noise alone sets.

    An optimizer, a parameter of float32 or a file sees the sum afterwards, so that all of it is
    post-processing: low bits of the sum, which name what was summed, are gone.

    Args:
        value: a sum of clipped gradients or the like, of any shape.
        noise: of its shape.
        deviations: standard deviation of each entry of the noise, or what broadcasts to that.
    """
    # float64 before the sum: its rounding is that of the grid and no finer
    clean = np.ascontiguousarray(value.detach().double().cpu().numpy())
    drawn = np.ascontiguousarray(noise.detach().double().cpu().numpy())
    # one deviation, or one for each entry
    spread = deviations.cpu().numpy() if isinstance(deviations, Tensor) else deviations
    # round((value + noise)/h) h with h a power of two set by the noise alone; NumPy makes a row of
    # a single number
    made = torch.from_numpy(publish_sum(clean, drawn, spread))
    return made.reshape(value.shape).to(value.device)


def let_out_gradients(model: torch.nn.Module) -> None:
    """Release the gradients of a model, which hold their noise."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is not None:
            parameter.grad = outlet.let_out(parameter.grad)
