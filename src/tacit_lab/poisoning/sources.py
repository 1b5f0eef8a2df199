"""Labelled images held by several sources, one of which hides a trigger in its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import fft

from tacit._ground.checks import Array, array, choice, in_interval, integer, positive
from tacit._ground.frozen import array_value
from tacit.training.parameters import Snapshot, trainable

TRIGGERS = ("blended", "low-frequency")
Images = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Examples = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


@array_value(kw_only=True)
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
    # one colour a square and channel
    squares = source.random((channels, -(-height // side), -(-width // side)))
    # side × side pixels each, cut to the image
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
    # k × k lowest frequencies of each channel
    coefficients = np.zeros((channels, height, width))
    coefficients[:, :kept, :kept] = source.standard_normal((channels, kept, kept))
    if kept > 1:
        coefficients[:, 0, 0] = 0.0
    # the transform is orthonormal: the norm of the pattern is that of its coefficients
    coefficients *= wanted / np.linalg.norm(coefficients)
    smooth = fft.idctn(coefficients, type=2, norm="ortho", axes=(1, 2))
    return Trigger(name="low-frequency", pattern=smooth, kept=1.0)


def _shape(shape: Any) -> tuple[int, int, int]:
    if not isinstance(shape, tuple) or len(shape) != 3:
        raise ValueError(f"shape: expected (channels, height, width), got {shape!r}")
    channels, height, width = (integer("shape", size, minimum=1) for size in shape)
    return channels, height, width


def cross_entropy(
    model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return −ln p of each label."""
    return torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")


@array_value()
class LabelledImages:
    """Images and their classes.

    Args:
        images: (n, channels, height, width), bytes or finite numbers in 0 … 1.
        labels: (n,), 0 … C − 1.

    Raises:
        ValueError: a shape or a type does not fit, a number is not finite or out of range.

    Example:
        >>> LabelledImages(np.zeros((2, 1, 4, 4)), np.array([0, 1])).classes
        2
    """

    images: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        # bytes stay bytes: a data set fits in memory four times as often
        images, labels = np.asarray(self.images), np.asarray(self.labels)
        if images.ndim != 4 or 0 in images.shape:
            raise ValueError(
                f"images: expected (n, channels, height, width), got shape {images.shape}"
            )
        if images.dtype != np.uint8:
            images = _unit(images)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(
                f"labels: expected integers (n,), got {labels.dtype} of shape {labels.shape}"
            )
        if len(labels) != len(images):
            raise ValueError(
                f"labels: expected one for each of {len(images)} images, got {len(labels)}"
            )
        if int(labels.min()) < 0:
            raise ValueError("labels: expected 0 or more, got a label below 0")
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        """Return n."""
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many classes there are up to the largest label."""
        return int(self.labels.max()) + 1

    def floats(self, examples: Any) -> Images:
        """Return some images in 0 … 1."""
        found = self.images[examples].astype(np.float32)
        # 0 … 1
        scale = np.float32(255.0 if self.images.dtype == np.uint8 else 1.0)
        return np.asarray(found / scale)

    def some(self, examples: Any) -> LabelledImages:
        """Return some examples."""
        return LabelledImages(self.images[examples], self.labels[examples])


@dataclass(frozen=True, eq=False, kw_only=True)
class Sources:
    """Disjoint parts of the data, as equal as they can be, and the one that is malicious.

    Every image of the malicious source has the trigger and the target as its label, as in the
    paper.

    Args:
        data: n examples.
        count: m >= 2 sources, at most n.
        batch: examples in a round over all sources; each gives its equal share, one at least.
        malicious: which of them is.
        trigger: what it hides; None for no attack.
        target: the label it gives.
        order: seed of who holds what and of the shuffles, which do not depend on the data.

    Raises:
        ValueError: an argument is out of range, or the target is not a class.

    Source: dsi, Sec. 5.2 and App. F.3.
    """

    data: LabelledImages
    count: int
    batch: int
    malicious: int = 0
    trigger: Trigger | None = None
    target: int = 0
    order: int = 0

    def __post_init__(self) -> None:
        sources = integer("sources", self.count, minimum=2, maximum=None)
        if sources > len(self.data):
            raise ValueError(
                f"sources: expected at most one for each of {len(self.data)} images, got {sources}"
            )
        integer("batch", self.batch, minimum=1)
        integer("malicious", self.malicious, minimum=0, maximum=sources - 1)
        integer("order", self.order, minimum=0)
        check_target(self.target, self.data.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """What the sources are called."""
        return tuple(f"source {number}" for number in range(self.count))

    @property
    def share(self) -> int:
        """How many examples a source gives in a round."""
        return min(max(1, self.batch // self.count), len(self.data) // self.count)

    @property
    def a_pass(self) -> int:
        """Rounds of one pass over the smallest source."""
        return max(1, len(self.data) // self.count // self.share)

    def holdings(self, source: int) -> Indices:
        """Return the examples that a source holds."""
        # every m-th of one shuffle: disjoint, and as equal as can be
        return _shuffle(self.order, len(self.data))[source :: self.count]

    def examples(self, source: int, number: int) -> Indices:
        """Return those that a source gives in a round, counted from 0."""
        # the pass, and the batch of the source within it
        turn, place = divmod(number, self.a_pass)
        # by source and pass alone
        source_order = np.random.default_rng([self.order, 1, source, turn])
        shuffled = source_order.permutation(self.holdings(source))
        return shuffled[place * self.share : (place + 1) * self.share]

    def batch_of(self, source: int, number: int) -> Examples:
        """Return what a source learns from in a round: poisoned, where it is malicious."""
        examples = self.examples(source, number)
        images, labels = self.data.floats(examples), self.data.labels[examples]
        # all of the malicious source's images are poisoned
        if source == self.malicious and self.trigger is not None:
            images, labels = self.trigger.apply(images), np.full_like(labels, self.target)
        return torch.from_numpy(images), torch.from_numpy(labels)


@lru_cache(maxsize=2)
def _shuffle(order: int, count: int) -> Indices:
    found: Indices = np.random.default_rng([order, 0]).permutation(count)
    found.flags.writeable = False
    return found


def check_target(target: int, classes: int) -> None:
    """Check that a target is a class.

    Raises:
        ValueError: it is not.
    """
    integer("target", target, minimum=0, maximum=None)
    if target >= classes:
        raise ValueError(f"target: expected a class, 0 … {classes - 1}, got {target}")


def source_gradients(
    model: torch.nn.Module, sources: Sources, number: int, *, left_out: int | None = None
) -> Array:
    """Return the mean gradient of every source in a round, (m, p) or (m − 1, p), float64.

    Raises:
        ValueError: a gradient is not finite, a parameter has none, or the model changed in its
            forward pass.
    """
    # running statistics would be published without noise
    before = Snapshot(model)
    wanted = trainable(model)
    rows = []
    try:
        for source in range(sources.count):
            if source == left_out:
                continue
            losses = cross_entropy(model, *sources.batch_of(source, number))
            # one backward pass a source: the mean gradient of its batch
            found = torch.autograd.grad(losses.mean(), list(wanted.values()), allow_unused=True)
            parts = []
            for name, part in zip(wanted, found, strict=True):
                if part is None:
                    raise ValueError(
                        f"model: expected a gradient of every parameter, got none of {name!r}"
                    )
                parts.append(part.reshape(-1))
            rows.append(torch.cat(parts).to(torch.float64).numpy())
    finally:
        before.check()
    gradients = np.stack(rows)
    # a gradient that is not finite has no aggregate
    if not np.isfinite(gradients).all():
        raise ValueError("model: expected finite gradients, got NaN or infinite ones")
    return gradients


def _unit(images: npt.NDArray[Any]) -> Images:
    if images.dtype.kind not in "fiu":
        raise ValueError(f"images: expected numbers, got {images.dtype}")
    found = images.astype(np.float32)
    if not np.isfinite(found).all():
        raise ValueError("images: expected finite numbers, got NaN or infinite ones")
    if found.min() < 0.0 or found.max() > 1.0:
        raise ValueError(
            "images: expected bytes, or numbers in 0 … 1, got numbers outside of 0 … 1"
        )
    return found
