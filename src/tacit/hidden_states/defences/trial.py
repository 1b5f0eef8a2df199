"""A defence fitted to one layer: the bank stored, rebuilt by its owner and attacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.inversion.learned.released import MappedChannel
from tacit.hidden_states.audit.attackers import Attacker
from tacit.hidden_states.audit.guessers import Observed
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import Trial
from tacit.hidden_states.audit.points import AttackPoint
from tacit.hidden_states.defences.stored import Game, Stored

# pairs that attackers of a rotation know, besides as many as a state has numbers
PAIRS = (0, 32)


class DefenceTrial(Trial):
    """The bank of one layer, stored.

    Args:
        laboratory: the layer.
        stored: the defence, fitted on calibration prompts.
    """

    def __init__(self, laboratory: Laboratory, stored: Stored) -> None:
        self.laboratory, self.stored, self.rank = laboratory, stored, stored.size
        self.public = numbers(laboratory.calibration)
        self.states = [numbers(laboratory.bank)] + [
            numbers(read.states[laboratory.layer]) for read in laboratory.earlier
        ]
        self.released = [stored.store(rows) for rows in self.states]
        width = self.public.shape[1]
        pairs = sorted({min(count, len(self.public)) for count in (*PAIRS, width)})
        self.games = stored.games(self.public, self.released[0], pairs)

    def read(self, reading: str) -> Tensor:
        """Return the states that the owner rebuilds."""
        del reading
        given = self.laboratory.measured
        return torch.from_numpy(self.stored.rebuild(self.stored.store(numbers(given)))).to(given)

    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return what every attacker of the defence reaches, whoever was named."""
        del attackers
        return tuple(self._reached(game) for game in self.games)

    def _reached(self, game: Game) -> AttackPoint:
        bank = np.hstack([game.of_states(rows) for rows in self.states])
        released = np.hstack([game.of_releases(rows) for rows in self.released])
        return self.laboratory.retrieval(game.name, bank, released)

    def observed(self) -> Observed:
        """Return the last position as it is seen by whoever knows most pairs."""
        width = min(self.public.shape[1], len(self.public))
        game = self.stored.games(self.public, self.released[0][:1], (width,))[0]
        return Observed(
            MappedChannel(game.of_states),
            game.of_states(self.states[0]),
            game.of_releases(self.released[0]),
            game.of_releases(self.stored.store(self.public)),
        )


def numbers(states: Tensor) -> Array:
    """Return states in double precision, (n, d)."""
    found: Array = states.double().cpu().numpy()
    return found
