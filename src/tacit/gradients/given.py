"""The noise itself in place of a promise."""

from __future__ import annotations

from tacit._ground.values import Positive, Share, value
from tacit.guarantees.adjacency import Adjacency


@value
class GivenNoise:
    """The noise is given, and what it keeps is worked out: a promise beside ``Table``.

    Args:
        multiplier: Of the noise, over the clip.
        delta: δ at which ε is told.
        adjacency: Which records are neighbours: one more, or one replaced.

    Example:
        >>> GivenNoise(multiplier=1.0, delta=1e-5).adjacency.sentence()
        'add or remove one record'
    """

    multiplier: Positive
    delta: Share
    adjacency: Adjacency = Adjacency.ADD_REMOVE
