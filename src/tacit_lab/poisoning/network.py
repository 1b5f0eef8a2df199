"""A small convolutional network that mixes no examples, and training it on public images."""

from __future__ import annotations

import numpy as np
import torch

from tacit._ground.checks import integer
from tacit.training.retraining import Factory
from tacit_lab.poisoning.sources import LabelledImages, cross_entropy

WIDTHS = (16, 32, 64)


class Centred(torch.nn.Module):
    """Pixels of 0 … 1 as −1 … 1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return ``2 x − 1``."""
        return 2.0 * images - 1.0


def small_network(channels: int, classes: int, *, seed: int = 0) -> torch.nn.Module:
    """Return a network of three convolutions with group normalisation, for images of any size.

    Args:
        channels: of the images.
        classes: C.
        seed: of the initial parameters, which do not depend on the data.

    Example:
        >>> small_network(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    # the caller's randomness goes on as if nothing had been drawn
    state = torch.random.get_rng_state()
    torch.manual_seed(integer("seed", seed, minimum=0))
    layers: list[torch.nn.Module] = [Centred()]
    for width, wider in zip((channels, *WIDTHS), WIDTHS, strict=False):
        # group normalisation: no statistic of the batch
        layers += [
            torch.nn.Conv2d(width, wider, 3, padding=1),
            torch.nn.GroupNorm(4, wider),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2, ceil_mode=True),
        ]
    pooled = torch.nn.AdaptiveAvgPool2d(2)
    head = torch.nn.Linear(4 * WIDTHS[-1], classes)
    found = torch.nn.Sequential(*layers, pooled, torch.nn.Flatten(), head)
    torch.random.set_rng_state(state)
    return found


def pretrain(
    model: torch.nn.Module,
    public: LabelledImages,
    optimizer: Factory,
    *,
    passes: int = 1,
    batch: int = 64,
    order: int = 0,
) -> None:
    """Train on images that need no protection, without noise.

    Args:
        model: trained in place.
        public: examples that no source holds.
        optimizer: makes one of the model's parameters.
        passes: over them.
        batch: examples of a step.
        order: seed of the shuffles.
    """
    stepping = optimizer(model.parameters())
    source = np.random.default_rng(order)
    for _ in range(integer("passes", passes, minimum=0)):
        # an order of its own for every pass
        shuffled = source.permutation(len(public))
        for start in range(0, len(public), integer("batch", batch, minimum=1)):
            some = shuffled[start : start + batch]
            stepping.zero_grad(set_to_none=True)
            inputs, labels = public.floats(some), public.labels[some]
            losses = cross_entropy(model, torch.from_numpy(inputs), torch.from_numpy(labels))
            # plain gradient descent on images that are public
            torch.autograd.backward(losses.mean())
            stepping.step()
