"""The built-in backbone for pictures: a small network trained on public digits and photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._ground.checks import masked
from tacit._ground.reprs import shown

STORED = Path(__file__).parent / "stored"
WEIGHTS = "vision.safetensors"
SIDE, CHANNELS, FEATURES = 32, 3, 128
WIDTHS = (32, 64, 96)
# Eighths of the side that a small picture is enlarged to: what it shows is then as large as what
# larger pictures show within their margins, as a digit within 28 pixels.
ENLARGED = 5


def network() -> nn.Module:
    """Return the network from (b, 3, 32, 32) in [0, 1] to (b, 128) with random weights."""
    parts: dict[str, nn.Module] = {}
    before = CHANNELS
    for number, after in enumerate(WIDTHS, start=1):
        parts[f"convolution{number}"] = nn.Conv2d(before, after, 3, padding=1)
        parts[f"norm{number}"] = nn.GroupNorm(8, after)
        parts[f"rectified{number}"] = nn.ReLU()
        parts[f"pool{number}"] = nn.MaxPool2d(2)
        before = after
    parts["average"] = nn.AdaptiveAvgPool2d(2)
    parts["flat"] = nn.Flatten()
    parts["features"] = nn.Linear(4 * before, FEATURES)
    parts["rectified"] = nn.ReLU()
    found = nn.Sequential()
    for name, part in parts.items():
        found.add_module(name, part)
    return found


LAYERS = ("convolution2", "convolution3", "features")


def stored_network() -> nn.Module:
    """Return the network with the weights that come with this package, in float32."""
    from safetensors.torch import load_file

    found = network()
    held = load_file(STORED / WEIGHTS)
    found.load_state_dict({name: value.float() for name, value in held.items()})
    return found


def pictures(data: Any, side: int = SIDE, channels: int = CHANNELS) -> Tensor:
    """Return pictures as (n, channels, side, side) float32 in [0, 1].

    Smaller ones are put in the middle of black, those of less than half the side enlarged before,
    larger ones are shrunk; grey becomes colour.

    Args:
        data: (n, height, width), (n, 1 or 3, height, width) or (n, height, width, 1 or 3), of
            integers, which are bytes, or of numbers in [0, 1]. Every picture of a list is read by
            its own type.
        side: of the result.
        channels: of the result, 1 or 3.

    Raises:
        ValueError: another shape or range.
    """
    values = _numbers(data)
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim == 4 and values.shape[1] not in (1, 3) and values.shape[3] in (1, 3):
        values = values.permute(0, 3, 1, 2)
    if values.ndim != 4 or values.shape[1] not in (1, 3) or 0 in values.shape:
        raise ValueError(
            "data: expected pictures (n, height, width), (n, 1 or 3, height, width) or (n, height, "
            f"width, 1 or 3), got shape {tuple(values.shape)}"
        )
    if not bool(torch.isfinite(values).all()) or values.min() < 0.0 or values.max() > 1.0:
        raise ValueError(
            "data: expected integers in 0 … 255, or finite numbers in [0, 1]: divide by the "
            "largest that a pixel can have (--max-pixel)"
        )
    if values.shape[1] < channels:
        values = values.expand(-1, channels, -1, -1)
    elif values.shape[1] > channels:
        values = values.mean(dim=1, keepdim=True)
    return _fitted(values, side).contiguous()


def size_of(data: Any) -> str:
    """Return height and width of pictures that `pictures` reads.

    Example:
        >>> size_of(np.zeros((2, 28, 28))), size_of(np.zeros((2, 3, 32, 24)))
        ('28 × 28', '32 × 24')
    """
    first = np.shape(data[0])
    # a channel is in front, or behind
    held = first if len(first) == 2 else first[1:] if first[0] in (1, CHANNELS) else first[:2]
    return " × ".join(str(side) for side in held)


def _numbers(data: Any) -> Tensor:
    if isinstance(data, (list, tuple)) and data:
        # no picture's type or range decides what another's numbers mean
        parts = [_numbers(_picture(one)) for one in data]
        if len({part.shape for part in parts}) > 1:
            raise ValueError("data: expected pictures of one shape, got several")
        return torch.stack(parts)
    if isinstance(data, Tensor):
        held = data.detach().cpu()
        plain = held.is_floating_point() or held.dtype == torch.bool
        return held.float() / (1.0 if plain else 255.0)
    if masked(data):
        raise ValueError("data: expected pictures without masked entries")
    try:
        found = np.asarray(data)
    except ValueError:
        raise ValueError("data: expected pictures of one shape, got several") from None
    if found.dtype.kind not in "fiub":
        raise ValueError(f"data: expected pictures, got {shown(data)}")
    # the type decides, never the largest number: one record would rescale all others
    divisor = 255.0 if found.dtype.kind in "iu" else 1.0
    return torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32)) / divisor


def _picture(one: Any) -> Any:
    try:
        return np.asarray(one) if isinstance(one, (list, tuple)) else one
    except ValueError:
        raise ValueError("data: expected pictures of one shape, got several") from None


def _fitted(values: Tensor, side: int) -> Tensor:
    height, across = values.shape[2:]
    largest = max(height, across)
    # the shape decides, which is public and the same for all pictures
    wanted = side if largest > side else ENLARGED * side // 8 if 2 * largest < side else largest
    if wanted != largest:
        shape = [max(1, round(length * wanted / largest)) for length in (height, across)]
        values = functional.interpolate(values, shape, mode="bilinear", antialias=True)
        height, across = values.shape[2:]
    top, left = (side - height) // 2, (side - across) // 2
    return functional.pad(values, (left, side - across - left, top, side - height - top))
