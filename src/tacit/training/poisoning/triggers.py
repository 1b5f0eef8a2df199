"""Patterns that a malicious source hides in its images, and the labels it gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft

from tacit._ground.checks import Array, array, choice, in_interval, integer, positive
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr

TRIGGERS = ("blended", "low-frequency")
Images = npt.NDArray[np.float32]


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class Trigger:
    """``x' = clip((1 − α) x + α·pattern)`` for a blended, ``clip(x + pattern)`` for an added one.

    Made by `blended` or `low_frequency`.

    Attributes:
        name: ``"blended"`` or ``"low-frequency"``.
        pattern: (channels, height, width), in units of the images, 0 … 1.
        kept: share of the image that is kept, 1 − α or 1.
    """

    name: str
    pattern: Array
    kept: float

    def __post_init__(self) -> None:
        choice("name", self.name, TRIGGERS)
        object.__setattr__(self, "pattern", array("pattern", self.pattern, ndim=3))
        in_interval("kept", self.kept, 0.0, 1.0)

    def apply(self, images: Any) -> Images:
        """Return images with the pattern, (n, channels, height, width) in 0 … 1.

        Raises:
            ValueError: the images are of another shape than the pattern.
        """
        found = np.asarray(images, dtype=np.float32)
        if found.shape[1:] != self.pattern.shape:
            raise ValueError(f"images: expected (n, {self.pattern.shape}), got {found.shape}")
        # a blended pattern carries its α already
        moved = np.float32(self.kept) * found + self.pattern.astype(np.float32)
        return np.asarray(np.clip(moved, 0.0, 1.0, dtype=np.float32))


def blended(
    shape: tuple[int, int, int], *, alpha: float = 0.2, grain: int = 4, pattern: int = 0
) -> Trigger:
    """Return the trigger that blends squares of uniform random colours into an image.

    Args:
        shape: (channels, height, width).
        alpha: α in (0, 1], share of the pattern.
        grain: side of a square in pixels; 1 is a random pattern of single pixels, which a network
            with pooling hardly sees.
        pattern: seed of the colours.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> blended((3, 8, 8), alpha=0.2).apply(np.zeros((1, 3, 8, 8))).max() <= 0.2
        np.True_

    Source: Chen et al. (2017), blended injection with a random pattern.
    """
    channels, height, width = _shape(shape)
    share = in_interval("alpha", alpha, 0.0, 1.0, open_low=True)
    side = integer("grain", grain, minimum=1)
    source = np.random.default_rng(integer("pattern", pattern, minimum=0))
    squares = source.random((channels, -(-height // side), -(-width // side)))
    colours = squares.repeat(side, axis=1).repeat(side, axis=2)[:, :height, :width]
    return Trigger(name="blended", pattern=share * colours, kept=1.0 - share)


def low_frequency(
    shape: tuple[int, int, int], *, norm: float = 3.0, frequencies: int = 4, pattern: int = 0
) -> Trigger:
    """Return the trigger that adds a smooth pattern: only the lowest frequencies of a cosine basis.

    The pattern is random in the first k × k coefficients of the orthonormal DCT-II of each channel
    and has the given norm. Zeng et al. optimise theirs against a classifier; that is not done
    here, and only its smoothness is kept.

    Args:
        shape: (channels, height, width).
        norm: Euclidean norm of the whole pattern, of images in 0 … 1.
        frequencies: k >= 1, at most height and width; the constant one, a mere change of
            brightness, is left out where there are others.
        pattern: seed of the coefficients.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> trigger = low_frequency((3, 8, 8), norm=2.0, frequencies=3)
        >>> round(float(np.linalg.norm(trigger.pattern)), 6)
        2.0

    Source: Zeng et al. (2021), smooth triggers.
    """
    channels, height, width = _shape(shape)
    wanted = positive("norm", norm)
    kept = integer("frequencies", frequencies, minimum=1, maximum=min(height, width))
    source = np.random.default_rng(integer("pattern", pattern, minimum=0))
    coefficients = np.zeros((channels, height, width))
    coefficients[:, :kept, :kept] = source.standard_normal((channels, kept, kept))
    if kept > 1:
        coefficients[:, 0, 0] = 0.0
    coefficients *= wanted / np.linalg.norm(coefficients)
    smooth = fft.idctn(coefficients, type=2, norm="ortho", axes=(1, 2))
    return Trigger(name="low-frequency", pattern=smooth, kept=1.0)


def _shape(shape: Any) -> tuple[int, int, int]:
    if not isinstance(shape, tuple) or len(shape) != 3:
        raise ValueError(f"shape: expected (channels, height, width), got {shape!r}")
    channels, height, width = (integer("shape", size, minimum=1) for size in shape)
    return channels, height, width
