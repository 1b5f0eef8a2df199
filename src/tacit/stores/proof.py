"""The proof of a sealed store: how many codes and lengths the documents about one person have."""

from __future__ import annotations

from tacit._ground.proof import Node, composed
from tacit.releases.proof import ReleaseProof, claims_of
from tacit.releases.release import Release
from tacit.stores.release import SealedRows, guarantees_of


def proof(release: Release[SealedRows]) -> ReleaseProof | None:
    """Return the number of values of a document's code and length, as often as of one person.

    What is stated of one document alone is of fewer values, and is not claimed beside it.
    """
    details = release.details
    one: Node = {"kind": "code", "sizes": [str(details.values)]}
    mechanism = composed([(one, details.settings.rows_per_person)])
    if mechanism is None:
        return None
    # the pair about a person stands first
    stated = guarantees_of(details)[:2]
    return ReleaseProof(
        mechanism=mechanism, claims=claims_of(stated), given=release.all_assumptions
    )
