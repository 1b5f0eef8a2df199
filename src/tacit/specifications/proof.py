"""The proof of a specification: the mechanism of its steps."""

from __future__ import annotations

import math

from tacit.releases.proof import ReleaseProof
from tacit.releases.proofs import of_mechanism
from tacit.releases.release import Release
from tacit.specifications.release import ADJACENCY, CertifiedSpecification


def proof(release: Release[CertifiedSpecification]) -> ReleaseProof | None:
    """Return the mechanism of the account; None of a specification without noise."""
    details = release.details
    if math.isinf(details.mu):
        return None
    return of_mechanism(release, details.schedule.profile(details.mu).mechanism, ADJACENCY)
