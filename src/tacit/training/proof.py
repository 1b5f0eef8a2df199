"""The proof of a trained model: a Gaussian shift, of the reference that is told apart best."""

from __future__ import annotations

import math

import numpy as np

from tacit.releases.proof import ReleaseProof
from tacit.releases.proofs import told_distance
from tacit.releases.release import Release
from tacit.training.release import TrainedModel


def proof(release: Release[TrainedModel]) -> ReleaseProof:
    """Return the largest distance that was granted, with what follows from it."""
    # μ rounded up, as it is certified
    farthest = math.nextafter(float(np.sqrt(release.details.squared.max())), math.inf)
    return told_distance(release, farthest, "differences")
