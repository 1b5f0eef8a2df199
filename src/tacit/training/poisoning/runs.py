"""One training as it is released, without noise, and as the reference without a source gives it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit._ground.checks import Array
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.parameters import flat_outcome, trainable, write_flat, write_gradient
from tacit.training.poisoning.aggregation import robust_aggregate, robust_mean
from tacit.training.poisoning.network import Optimizers
from tacit.training.poisoning.sources import Sources, source_gradients
from tacit.training.references import References


@dataclass(frozen=True, kw_only=True)
class PoisonedTraining:
    """Robustly aggregated training on sources, one of them malicious.

    Attributes:
        model: as it was before training.
        optimizer: makes one of a model's parameters.
        sources: who holds what.
        rounds: T.
        iterations: K, optimiser steps of a round; more than one needs (m + 1) trainings of m
            gradients in every round.
        angle: of the cone, degrees; None for none.
        clip: whether norms are clipped to the median.
        options: what `Indistinguishable` is given beside.
    """

    model: torch.nn.Module
    optimizer: Optimizers
    sources: Sources
    rounds: int
    iterations: int
    angle: float | None
    clip: bool
    options: dict[str, Any]

    @property
    def references(self) -> References:
        """All of the data without each source."""
        return References.leave_out(self.sources.names)

    def round(self, run: Indistinguishable, number: int, *, left_out: int | None = None) -> None:
        """Run one round: U's update, or that of a reference, with the noise of U's differences.

        Args:
            run: with an optimiser for one step a round, without for more.
            number: from 0; it decides the batches.
            left_out: the source whose reference is trained instead of U.
        """
        if self.iterations == 1:
            real, differences = self.aggregate(run.model, number)
        else:
            real = self._local(run.model, number, None)
            outcomes = [
                self._local(run.model, number, source) for source in range(self.sources.count)
            ]
            differences = np.stack(outcomes) - real
        run.update(real if left_out is None else real + differences[left_out], differences)

    def aggregate(self, model: torch.nn.Module, number: int) -> tuple[Array, Array]:
        """Return F(U) of one step and the differences of the references, from m gradients."""
        gradients = source_gradients(model, self.sources, number)
        return robust_aggregate(gradients, angle=self.angle, clip=self.clip)

    def without_noise(self, *, left_out: int | None = None) -> torch.nn.Module:
        """Return the model trained without noise, on all sources or all but one."""
        model = copy.deepcopy(self.model)
        optimizer = self.optimizer(model.parameters())
        for number in range(self.rounds):
            if self.iterations > 1:
                write_flat(model, self._local(model, number, left_out))
                continue
            real, differences = self.aggregate(model, number)
            write_gradient(model, real if left_out is None else real + differences[left_out])
            optimizer.step()
        return model

    def with_noise(
        self, *, left_out: int | None = None, seed: int, **options: Any
    ) -> torch.nn.Module:
        """Return the model of a fresh run, or what a reference gives with the noise of that run.

        The noise of the reference covers the source that is left out, as if it were learned from:
        it is the law that the certificate compares with.

        Args:
            left_out: the source of the reference.
            seed: of the noise.
            options: instead of those of the released run.
        """
        model = copy.deepcopy(self.model)
        run = Indistinguishable(
            model, self.stepping(model), self.references,
            **{**self.options, **options, "rng": seed},
        )  # fmt: skip
        for number in range(self.rounds):
            self.round(run, number, left_out=left_out)
        return model

    def stepping(self, model: torch.nn.Module) -> torch.optim.Optimizer | None:
        """Return the optimiser of the noisy gradient; None where rounds have local iterations."""
        return self.optimizer(model.parameters()) if self.iterations == 1 else None

    def _local(self, model: torch.nn.Module, number: int, left_out: int | None) -> Array:
        """Return the parameters after K robust steps on all sources or all but one."""
        local = copy.deepcopy(model)
        optimizer = self.optimizer(local.parameters())
        for step in range(self.iterations):
            gradients = source_gradients(
                local, self.sources, number * self.iterations + step, left_out=left_out
            )
            write_gradient(local, robust_mean(gradients, angle=self.angle, clip=self.clip))
            optimizer.step()
        return flat_outcome(local, "parameters", dict(trainable(local)))
