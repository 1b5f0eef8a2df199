"""A learned inverter of the releases of all positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tacit._ground.checks import Array, plain
from tacit._ground.reprs import short_repr
from tacit.attacks.inversion.learned.inverter import LearnedInverter
from tacit.attacks.inversion.learned.released import trajectories_of


@short_repr
@dataclass(frozen=True, eq=False)
class SequenceInverter(LearnedInverter):
    """Reads a prompt from the releases of all its positions, each drawn by itself.

    Every position's release becomes a token of memory that all attend to, and the start of the
    token at its own place. It needs no likelihood of the release: of noise with a known law a
    ``TrajectoryInverter``, which computes candidates' states, reads more; of codes a network may.

    Attributes:
        model: the language model.
        layer: 1 … L.
        release: how the state of each position is released.
        network: what was learnt.
        trained_on: the release that it learnt from: the same for a mechanism-aware attacker.
        steps: taken in training.
        loss: of held-out public windows, nats a token.
        history: (spent, loss) of every evaluation.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.attacks import InverterFit, LearningSchedule, NetworkShape
        >>> from tacit.models.language import LanguageModel
        >>> sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> stream = torch.randint(20, (2000,), generator=torch.Generator().manual_seed(0))
        >>> how = InverterFit(shape=NetworkShape(layers=1, width=16), steps=2,
        ...                   schedule=LearningSchedule(batch=8))
        >>> inverter = SequenceInverter.train(model, 1, stream, how, length=3, progress=False)
        >>> inverter.invert(model.states([[7, 3, 1]], 1, positions="all")).shape
        (1, 3)

    Source: the hidden-state paper, Sec. 7 and App. V.3, with the local path added.
    """

    everywhere: ClassVar[bool] = True
    of: ClassVar[str] = "all positions"
    usual: ClassVar[str] = "forward"

    def checked(self, released: Any) -> Any:
        """As ``LearnedInverter``: (n, T, k), or codes (n, T)."""
        try:
            found = np.asarray(plain(released))
        except (TypeError, ValueError):
            found = np.empty(0)
        codes = self.release.codes
        wanted = "codes of shape (n, T)" if codes else "releases of shape (n, T, k)"
        if found.ndim != 3 - codes or 0 in found.shape:
            raise ValueError(f"released: expected {wanted}, got shape {found.shape}")
        if found.shape[1] > self.length:
            raise ValueError(
                f"released: expected at most {self.length} positions, got {found.shape[1]}"
            )
        rows = self.release.checked(found.reshape(-1, *found.shape[2:]))
        return self._of_width(rows.reshape(found.shape))

    def read(self, released: Any) -> Tensor:
        given = self.checked(released)
        rows = self.release.vectors_of(given.reshape(-1, *given.shape[2:]))
        return rows.view(*given.shape[:2], -1)

    def distances(self, released: Any, prompts: Tensor) -> Array:
        """As ``LearnedInverter``: those of all positions add up."""
        channel, count = self.release.channel, prompts.shape[1]
        if count != released.shape[1]:
            raise ValueError(f"bank: expected prompts of {released.shape[1]} tokens, got {count}")
        states, behaviours = trajectories_of(self.model, self.layer, prompts, channel.predicts)
        rows = states.flatten(0, 1)
        held = channel.held(rows if channel.predicts else rows.double().cpu(), behaviours)
        by_place = held.reshape(len(prompts), count, *held.shape[1:])
        total: Array = np.zeros((len(released), len(prompts)))
        for place in range(count):
            total += self.release.distances(released[:, place], by_place[:, place])
        return total
