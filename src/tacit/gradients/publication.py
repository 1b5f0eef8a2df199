"""The one way out for noised sums of tensors: float64, on the grid of the noise, then anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground import outlet
from tacit._ground.checks import Array
from tacit._ground.numbers import LARGEST
from tacit.covariance.publication import (
    EXACT_INTEGERS,
    grid_of,
    grid_of_one,
    nearest,
    publish_sum,
)

# Entries that are drawn, added and rounded together.
TOGETHER = 2**16


def publish_tensor(value: Tensor, noise: Tensor, deviations: Any) -> Tensor:
    """Return ``value + noise`` in float64 on the grid that the noise alone sets.

    An optimizer, a parameter of float32 or a file sees the sum afterwards, so that all of it is
    post-processing: low bits of the sum, which name what was summed, are gone.

    Args:
        value: a sum of clipped gradients or the like, of any shape.
        noise: of its shape.
        deviations: standard deviation of each entry of the noise, or what broadcasts to that.
    """
    if value.device.type != "cpu":
        drawn_there = noise.detach().to(value.device, torch.float64)
        return _publish_there(value.detach().double(), drawn_there, deviations)
    # float64 before the sum: its rounding is that of the grid and no finer
    clean = np.ascontiguousarray(value.detach().double().cpu().numpy())
    drawn = np.ascontiguousarray(noise.detach().double().cpu().numpy())
    # one deviation, or one for each entry
    spread = deviations.cpu().numpy() if isinstance(deviations, Tensor) else deviations
    # round((value + noise)/h) h with h a power of two set by the noise alone; NumPy makes a row of
    # a single number
    made = torch.from_numpy(publish_sum(clean, drawn, spread))
    return made.reshape(value.shape).to(value.device)


def _publish_there(value: Tensor, noise: Tensor, deviations: Any) -> Tensor:
    """Return the same sum as ``rounded_sum``, bit by bit, where the tensors are.

    The host reads nothing: whatever it would decide by, the device selects entry by entry.
    """
    spread = deviations.cpu().numpy() if isinstance(deviations, Tensor) else deviations
    # a power of two below 2⁻²⁰ σ: of the law of the noise alone
    spacing = np.asarray(grid_of(*2 * (np.asarray(spread, dtype=np.float64),)))
    grid = float(spacing) if spacing.ndim == 0 else torch.from_numpy(spacing).to(value.device)
    total = value + noise
    # Knuth's two-sum: total + error is the exact sum
    virtual = total - value
    error = (value - (total - virtual)) + (noise - virtual)
    # where doubles are wider apart than the grid they are the grid
    fine = total.abs() < EXACT_INTEGERS * grid
    # exact: the grid is a power of two
    units = torch.where(fine, total, 0.0) / grid
    whole = torch.round(units)
    rest = units - whole
    # where the rounded sum is a half, the exact one lies on the side of the error
    whole = whole + ((rest == 0.5) & (error > 0.0)).double()
    whole = whole - ((rest == -0.5) & (error < 0.0)).double()
    # adding 0.0 leaves zero one sign
    rounded = torch.where(fine, whole * grid, total) + 0.0
    return outlet.let_out(rounded.clamp(-LARGEST, LARGEST))


def publish_drawn(value: Tensor, deviation: float, normal: Callable[..., Tensor]) -> Tensor:
    """Write ``value + σ E`` on the grid of σ over a value, and return it.

    So many entries at a time as stay in a processor's cache are drawn, added and rounded.

    Args:
        value: as of ``publish_tensor``; no copy is made of float64.
        deviation: σ of every entry.
        normal: draws independent N(0, 1) values, of the entries in their order.
    """
    if value.device.type != "cpu" or deviation == 0.0:
        noise = deviation * normal(tuple(value.shape)).to(value)
        return publish_tensor(value, noise, deviation)
    # of the law of the noise alone, and refused before anything is drawn
    grid = grid_of_one(float(deviation))
    whole = value.detach().double().contiguous()
    entries = whole.view(-1)
    room = torch.empty(3, min(len(entries), TOGETHER), dtype=torch.float64)
    for start in range(0, len(entries), TOGETHER):
        part = entries[start : start + TOGETHER]
        scaled, units, points = room[:, : len(part)]
        torch.mul(normal((len(part),)).to(part), deviation, out=scaled)
        _add_on_grid(part, scaled, grid, units, points)
    # NumPy's at the door, as of all that is released
    released = np.ascontiguousarray(outlet.let_out(entries.numpy()))
    return torch.from_numpy(released).view(whole.shape)


def _add_on_grid(value: Tensor, noise: Tensor, grid: Array, units: Tensor, points: Tensor) -> None:
    """Write the exact ``value + noise`` on a grid over a value, as ``rounded_sum`` has it.

    Args:
        value: (d,) float64.
        noise: (d,) float64.
        grid: one power of two.
        units: room for d numbers.
        points: the same.
    """
    spacing = float(grid)
    # the rounded sum in units of the grid, exactly: the grid is a power of two
    torch.add(value, noise, out=units).mul_(1.0 / spacing)
    # the nearest point, and how far it is
    torch.round(units, out=points)
    reach = torch.stack((*units.sub_(points).aminmax(), *points.aminmax())).abs_().tolist()
    # a half is decided by the rounding of the sum, and what is larger has doubles for its grid
    if max(reach[:2]) < 0.5 and max(reach[2:]) < min(EXACT_INTEGERS, LARGEST / spacing):
        # adding 0.0 leaves zero one sign
        torch.mul(points, spacing, out=value).add_(0.0)
        return
    value.copy_(torch.from_numpy(nearest(value.numpy(), noise.numpy(), grid.reshape(1))))


def let_out_gradients(model: torch.nn.Module) -> None:
    """Release the gradients of a model, which hold their noise."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is not None:
            parameter.grad = outlet.let_out(parameter.grad)
