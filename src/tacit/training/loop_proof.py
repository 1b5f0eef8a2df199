"""The proof of a training loop of one's own: the mechanism of its method, over its steps."""

from __future__ import annotations

from tacit.releases.proof import ReleaseProof
from tacit.releases.proofs import of_mechanism
from tacit.releases.release import Release
from tacit.training.loop_release import PrivateTraining


def proof(release: Release[PrivateTraining]) -> ReleaseProof | None:
    """Return the mechanism of the account, of all steps that are paid for."""
    profile = release.details.profile
    return of_mechanism(release, profile.mechanism, profile.adjacency)
