"""The proof of codes: how many there are, or the reports of a randomised response."""

from __future__ import annotations

import math

from tacit._ground.proof import Node, composed, node
from tacit.hidden_states.codebooks.release import CodeRows
from tacit.hidden_states.codebooks.response import share
from tacit.releases.proof import ReleaseProof, claims_of
from tacit.releases.release import Release


def proof(release: Release[CodeRows]) -> ReleaseProof | None:
    """Return the number of codes, or the responses of the parts; None of several near codes."""
    details = release.details
    epsilon, times = details.promise.epsilon, details.promise.releases
    if epsilon is None:
        whole: list[Node | None] = [{"kind": "code", "sizes": [str(math.prod(details.sizes))]}]
    elif details.promise.near > 1:
        return None
    else:
        # a part of one cell is reported as it is, and takes no share of ε
        each = share(epsilon, list(details.sizes))
        whole = [node("response", categories=one, epsilon=each) for one in details.sizes if one > 1]
    mechanism = composed([(one, times) for one in whole])
    if mechanism is None:
        return None
    return ReleaseProof(
        mechanism=mechanism, claims=claims_of(release.guarantees), given=release.all_assumptions
    )
