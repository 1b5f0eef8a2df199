"""Per-example gradients by plain backpropagation of one example at a time, in double precision."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.gradients import PerExample


def naive_gradients(model: nn.Module, loss: Any, inputs: Any, targets: Any) -> np.ndarray:
    """Rows g_i of the trainable parameters; the examples never share a batch."""
    double = copy.deepcopy(model).double()
    trained = [one for one in double.parameters() if one.requires_grad]
    rows = []
    for i in range(len(targets)):
        single = as_double(inputs[i : i + 1]), as_double(targets[i : i + 1])
        found = torch.autograd.grad(loss(double, *single)[0], trained, allow_unused=True)
        parts = [torch.zeros_like(one) if part is None else part
                 for one, part in zip(trained, found, strict=True)]  # fmt: skip
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows).numpy()


def as_double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


def written(model: nn.Module) -> np.ndarray:
    """The gradient that the trainable parameters hold."""
    trained = [one for one in model.parameters() if one.requires_grad]
    return torch.cat([one.grad.double().flatten() for one in trained]).numpy()


def captured_gradients(model: nn.Module, found: PerExample) -> np.ndarray:
    """Rows g_i as the capture has them."""
    rows = []
    for unit in np.eye(found.losses.size):
        found.weighted(unit)
        rows.append(written(model))
    return np.stack(rows)


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Error of a matrix as a share of its Frobenius norm."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
