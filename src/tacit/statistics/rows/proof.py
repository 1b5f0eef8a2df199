"""The proof of a release by pairs: how far a swap moves the sums, in the norm of the noise."""

from __future__ import annotations

from tacit._ground.proof import claim_up, node
from tacit.guarantees import SuccessBound
from tacit.releases.proof import NAMING, ReleaseProof, claims_of
from tacit.releases.proofs import distance_of, of_answer
from tacit.releases.release import Release
from tacit.statistics.rows.release import RowsDetails


def proof(release: Release[RowsDetails]) -> ReleaseProof | None:
    """Return the distance of a swap with what follows from it; None where draws were simulated."""
    distance, details = distance_of(release), release.details
    if distance is None:
        return None
    first, size = of_answer(release, alone=details.session is None), details.group_size
    # of k > 2 rows the third guarantee is about naming one of all k
    held = [one for one in first if not (isinstance(one, SuccessBound) and size > 2)]
    named = [one for one in first if isinstance(one, SuccessBound) and one.prior == 1.0 / size]
    claims = claims_of(held)
    if size > 2:
        claims += tuple(
            {"kind": NAMING, "candidates": str(size), "success": claim_up(one.success)}
            for one in named
        )
    return ReleaseProof(
        mechanism=node("swaps", distance=distance), claims=claims, given=release.all_assumptions
    )
