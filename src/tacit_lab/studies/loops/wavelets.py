"""Fixed wavelet features of images: mean moduli of two scales, after Bruna and Mallat (2013)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

ANGLES, CELLS = 8, 4
# half widths of the filters and standard deviations of their envelopes: a fine and a coarse scale
HALVES, SPREADS = (3, 5), (0.8, 1.6)
# of a wave at the fine scale; the next has half of it
FREQUENCY = 3.0 * math.pi / 4.0
# paths of an image: brightness with both orders, two differences of colours with the first alone
PATHS = (1 + 2 * ANGLES + ANGLES**2) + 2 * (1 + 2 * ANGLES)
TOGETHER = 250


def features(images: npt.NDArray[np.float32]) -> Tensor:
    """Return features (n, paths, 4, 4) in half precision, of one image each.

    Args:
        images: (n, 3, 32, 32).
    """
    fine, coarse = _filters(0), _filters(1)
    parts = torch.from_numpy(images).split(TOGETHER)
    with torch.no_grad():
        return torch.cat([_of(part, fine, coarse).half() for part in parts])


def _of(images: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
    red, green, blue = images.unbind(1)
    planes = torch.stack([images.mean(1), red - green, blue - 0.5 * (red + green)], 1)
    count, planes_each = planes.shape[:2]
    alone = planes.flatten(0, 1)[:, None]
    first = _moduli(alone, fine, 1)
    orders = [alone, first, _moduli(alone, coarse, 2)]
    shallow = torch.cat([_averaged(one) for one in orders], 1)
    shallow = shallow.unflatten(0, (count, planes_each)).flatten(1, 2)
    # of every direction of the fine scale, the directions of its coarse changes
    bright = first.unflatten(0, (count, planes_each))[:, 0].flatten(0, 1)[:, None]
    second = _averaged(_moduli(bright, coarse, 2)).unflatten(0, (count, ANGLES)).flatten(1, 2)
    return torch.cat([shallow, second], 1)


def _moduli(rows: Tensor, filters: Tensor, stride: int) -> Tensor:
    """Return |x ∗ ψ| of every angle, (n, angles, …)."""
    half = filters.shape[-1] // 2
    found = functional.conv2d(rows, filters, stride=stride, padding=half)
    return found.unflatten(1, (2, ANGLES)).square().sum(1).sqrt()


def _averaged(maps: Tensor) -> Tensor:
    return functional.avg_pool2d(maps, maps.shape[-1] // CELLS)


def _filters(scale: int) -> Tensor:
    """Return real and imaginary parts of Gabor filters of every angle (2 angles, 1, w, w)."""
    half, spread = HALVES[scale], SPREADS[scale]
    place = torch.arange(-half, half + 1.0)
    y, x = torch.meshgrid(place, place, indexing="ij")
    envelope = torch.exp(-(x**2 + y**2) / (2.0 * spread**2))
    envelope /= envelope.sum()
    waves = []
    for turn in range(ANGLES):
        angle = math.pi * turn / ANGLES
        phase = FREQUENCY / 2**scale * (x * math.cos(angle) + y * math.sin(angle))
        # a constant image has no waves: the mean under the envelope is taken off the cosine
        even = envelope * torch.cos(phase)
        waves.append((even - envelope * even.sum(), envelope * torch.sin(phase)))
    parts = [part for kind in zip(*waves, strict=True) for part in kind]
    return torch.stack(parts)[:, None]
