"""A defence as an inverter meets it: what it learns from, and what it is then given."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array, integer
from tacit.attacks.inversion.learned.released import MappedChannel, StateRelease
from tacit.hidden_states.defences.stored import Stored


class StoredRelease(StateRelease):
    """What an attacker makes of a stored state, who simulates it with what it knows.

    It learns from its own view of public states and is given its view of what was stored: the same
    numbers, where it knows enough of the defence.

    Args:
        stored: the defence, fitted.
        public: states of prompts whose stored form the attacker may know, (m, d).
        known_pairs: of how many it does, which counts against a secret alone.

    Raises:
        ValueError: more pairs than public prompts.

    Example:
        >>> from tacit.hidden_states.defences.stored import Rotated
        >>> states = np.random.default_rng(0).normal(size=(4, 3))
        >>> turned = StoredRelease(Rotated.draw(3, 1), states, 3)
        >>> bool(np.allclose(turned.seen(torch.from_numpy(states)), turned.draw(states), atol=1e-5))
        True
    """

    def __init__(self, stored: Stored, public: Array, known_pairs: int) -> None:
        pairs = integer("known_pairs", known_pairs, minimum=0, maximum=len(public))
        # one release is too few for a population, so that only the pairs count
        self.game = stored.games(public, stored.store(public[:1]), (pairs,))[0]
        self.stored = stored
        super().__init__(MappedChannel(self.game.of_states))

    def seen(self, states: Tensor) -> Array:
        """Return the view of what is stored of states, (n, w)."""
        return self.game.of_releases(self.stored.store(_numbers(states)))

    def rebuilt(self, states: Tensor) -> Tensor:
        """Return the states that the owner goes on from, (n, d) in float32."""
        rows = self.stored.rebuild(self.stored.store(_numbers(states)))
        return torch.from_numpy(rows.astype(np.float32))


def _numbers(states: Tensor) -> Array:
    found: Array = states.double().cpu().numpy()
    return found
