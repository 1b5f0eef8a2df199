"""Small labelled images that several tests share."""

import numpy as np
import torch

from tacit_lab.poisoning import LabelledImages

SHAPE = (1, 8, 8)


def images(count=48, classes=3, seed=0):
    """Images whose class shows in one bright column."""
    source = np.random.default_rng(seed)
    found = source.random((count, *SHAPE)) * 0.5
    labels = np.arange(count) % classes
    found[np.arange(count), 0, :, labels] += 0.5
    return LabelledImages(found, labels)


def linear(seed=0, classes=3):
    """A linear model of the pixels."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))


def descent(rate=0.1):
    """What makes plain gradient descent."""
    return lambda parameters: torch.optim.SGD(parameters, lr=rate)
