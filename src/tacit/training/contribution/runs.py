"""The same training with and without a source, under the run's own noise or under none."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import Array
from tacit.training.contribution.schedule import Indices, Schedule
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.references import References

Loss = Callable[..., torch.Tensor]
Examples = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained, on what, and beside which references.

    Attributes:
        model: as it was before training.
        optimizer: makes one of a model's parameters.
        loss: a loss for each example.
        data: (inputs, targets), n examples.
        held_out: examples that nothing is learned from.
        groups: (n,) the source of each example.
        references: one for each source.
        schedule: which examples every round has.
        options: what `Indistinguishable` is given beside.
    """

    model: torch.nn.Module
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    loss: Loss
    data: Examples
    held_out: Examples
    groups: Indices
    references: References
    schedule: Schedule
    options: dict[str, Any]

    def likelihoods(self, model: torch.nn.Module, examples: Examples) -> Array:
        """Return ``−loss`` of every example."""
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        with torch.no_grad():
            found = -self.loss(model, *examples).detach().to(torch.float64).numpy()
        for module, mode in modes:
            module.training = mode
        return np.asarray(found)

    def without_noise(self, left_out: int | None) -> torch.nn.Module:
        """Return the model trained without noise, one source left out or none.

        The batch is divided by its whole size either way, as in the certified run.
        """
        model = copy.deepcopy(self.model)
        optimizer = self.optimizer(model.parameters())
        for number in range(self.schedule.rounds):
            examples = self.schedule.examples(number)
            kept = examples[self.groups[examples] != (-2 if left_out is None else left_out)]
            optimizer.zero_grad(set_to_none=True)
            if kept.size:
                losses = self.loss(model, *self.batch(kept))
                torch.autograd.backward(losses.sum() / examples.size)
            optimizer.step()
        return model

    def with_noise(self, left_out: int | None, seed: int) -> torch.nn.Module:
        """Return the model of a fresh run, or what reference ``left_out`` gives with its noise.

        The noise covers the source as if it were learned from: it is the law that the certificate
        compares with. One seed gives both the same normal draws, so their difference is steady.
        """
        model = copy.deepcopy(self.model)
        run = Indistinguishable(
            model, self.optimizer(model.parameters()), self.references,
            **{**self.options, "loss": self.loss, "rng": seed},
        )  # fmt: skip
        for number in range(self.schedule.rounds):
            examples = self.schedule.examples(number)
            groups = self.groups[examples]
            inside = None if left_out is None else groups != left_out
            run.step(self.batch(examples), groups, inside=inside)
        return model

    def batch(self, examples: Indices) -> Examples:
        """Return (inputs, targets) of some examples."""
        chosen = torch.from_numpy(examples)
        return self.data[0][chosen], self.data[1][chosen]
