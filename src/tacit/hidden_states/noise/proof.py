"""The proof of noisy states: one Gaussian shift, whose distance the Rényi curve gives."""

from __future__ import annotations

import math

from tacit.guarantees import RenyiDP
from tacit.hidden_states.noise.release import StateRows
from tacit.releases.proof import ReleaseProof
from tacit.releases.proofs import told_distance
from tacit.releases.recompute import only
from tacit.releases.release import Release


def proof(release: Release[StateRows]) -> ReleaseProof | None:
    """Return the distance of which the curve is α μ²/2; None where nothing is bounded."""
    held = only(release, RenyiDP)
    if held is None or not math.isfinite(max(held.epsilons)):
        return None
    pairs = zip(held.orders, held.epsilons, strict=True)
    # of the orders the least: each of the bounds was rounded up by itself
    square = min(2.0 * nats / order for order, nats in pairs)
    return told_distance(release, math.sqrt(square), "differences")
