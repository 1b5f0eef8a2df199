"""The proof of a trained adapter: the mechanism of its method, composed over its steps."""

from __future__ import annotations

from tacit.adapters.release import TrainedAdapter
from tacit.gradients.methods import LoRAFA
from tacit.releases.proof import ReleaseProof
from tacit.releases.proofs import of_mechanism
from tacit.releases.release import Release


def proof(release: Release[TrainedAdapter]) -> ReleaseProof | None:
    """Return the mechanism of the account; None of an adapter without noise."""
    details = release.details
    if isinstance(details.method, LoRAFA):
        return None
    profile = details.method.profile(details.noise_multiplier, details.schedule)
    return of_mechanism(release, profile.mechanism, profile.adjacency)
