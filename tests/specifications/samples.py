"""A release of a specification, as its workflow makes it, small."""

from __future__ import annotations

import numpy as np
import torch

from tacit.releases import Release
from tacit.specifications import (
    CertifiedSpecification,
    Description,
    PublicTasks,
    ReplacedRecord,
    public_subspace,
    specify,
)


def released() -> Release[CertifiedSpecification]:
    source = np.random.default_rng(0)
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    subspace = public_subspace(
        backbone,
        source.normal(size=(200, 6)),
        np.arange(200) % 3,
        size=6,
        tasks=PublicTasks(count=20, records=30),
    )
    data, labels = source.normal(size=(30, 6)), np.arange(30) % 3
    return specify(
        labels,
        data,
        ReplacedRecord(epsilon=1.0),
        about=Description(classes=3),
        backbone=backbone,
        space=subspace,
    )
