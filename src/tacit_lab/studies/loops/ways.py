"""One model trained at equal guarantee by the loops of Tacit and of Opacus, and without noise."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tacit import Table
from tacit.design import Banded
from tacit.gradients import DPSGD, CorrelatedDPSGD, GivenNoise
from tacit.training import CyclicPoisson, LoopSettings, Poisson, make_private, prepare_private
from tacit.training.sampling import AnySampling

CLIP, MOMENTUM, BANDS = 1.0, 0.9, 8
READ_TOGETHER = 1000


@dataclass(frozen=True, eq=False)
class LearningTask:
    """What is learned, and how long.

    Attributes:
        model: a fresh one by its seed.
        train: inputs and labels.
        tuning: those that rates are chosen on.
        test: those that are reported.
        batch: records that a step expects.
        epochs: passes.
        delta: of the guarantee.
    """

    model: Callable[[int], nn.Module]
    train: tuple[Tensor, Tensor]
    tuning: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    batch: int
    epochs: int
    delta: float

    @property
    def loader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return the records in shuffled batches."""
        return DataLoader(TensorDataset(*self.train), batch_size=self.batch, shuffle=True)


class WayToTrain(ABC):
    """How a model is trained: at which noise a promise is kept, and the loop."""

    def multiplier(self, task: LearningTask, epsilon: float) -> float:
        """Return the noise of a step over the clip, at which the promise is kept; 0 without."""
        return 0.0

    @abstractmethod
    def train(self, task: LearningTask, multiplier: float, rate: float, seed: int) -> nn.Module:
        """Return a trained model."""


@dataclass(frozen=True)
class WithoutNoise(WayToTrain):
    """Training without noise, by shuffled batches.

    Attributes:
        most: norm to which the mean gradient of a batch is cut.
    """

    most: float = math.inf

    def train(self, task: LearningTask, multiplier: float, rate: float, seed: int) -> nn.Module:
        model = task.model(seed)
        optimizer = _sgd(model, rate)
        for _ in range(task.epochs):
            for inputs, labels in task.loader:
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs), labels).backward()
                nn.utils.clip_grad_norm_(model.parameters(), self.most)
                optimizer.step()
        return model


@dataclass(frozen=True)
class ByTacit(WayToTrain):
    """Training by ``make_private``.

    Attributes:
        method: clip and noise.
        sampling: how the records of a step are drawn.
    """

    method: DPSGD
    sampling: AnySampling

    def multiplier(self, task: LearningTask, epsilon: float) -> float:
        model = task.model(0)
        promise = Table(epsilon=epsilon, delta=task.delta)
        settings = LoopSettings(sampling=self.sampling)
        prepared = prepare_private(
            model, _sgd(model, 1.0), task.loader, self.method, promise, epochs=task.epochs,
            settings=settings,
        )  # fmt: skip
        return prepared.details.noise_multiplier

    def train(self, task: LearningTask, multiplier: float, rate: float, seed: int) -> nn.Module:
        model = task.model(seed)
        optimizer = _sgd(model, rate)
        noise = GivenNoise(multiplier=multiplier, delta=task.delta)
        private = make_private(
            model, optimizer, task.loader, self.method, noise, epochs=task.epochs,
            settings=LoopSettings(sampling=self.sampling, seed=seed),
        )  # fmt: skip
        for _ in private.epochs:
            for inputs, labels in private.loader:
                losses = functional.cross_entropy(model(inputs), labels, reduction="none")
                private.backward(losses)
                optimizer.step()
        private.close()
        return model


@dataclass(frozen=True)
class ByOpacus(WayToTrain):
    """Training as the tutorial of Opacus does, by its hooks and its sharpest accountant."""

    def multiplier(self, task: LearningTask, epsilon: float) -> float:
        from opacus.accountants.utils import get_noise_multiplier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return get_noise_multiplier(
                target_epsilon=epsilon, target_delta=task.delta, accountant="prv",
                sample_rate=1.0 / len(task.loader), epochs=task.epochs,
            )  # fmt: skip

    def train(self, task: LearningTask, multiplier: float, rate: float, seed: int) -> nn.Module:
        from opacus import PrivacyEngine

        model = task.model(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped, optimizer, loader = PrivacyEngine().make_private(
                module=model, optimizer=_sgd(model, rate), data_loader=task.loader,
                noise_multiplier=multiplier, max_grad_norm=CLIP,
            )  # fmt: skip
            for _ in range(task.epochs):
                for inputs, labels in loader:
                    optimizer.zero_grad()
                    functional.cross_entropy(wrapped(inputs), labels).backward()
                    optimizer.step()
        return model


def accuracy(model: nn.Module, part: tuple[Tensor, Tensor]) -> float:
    """Return the share of inputs whose class is named."""
    model.eval()
    with torch.no_grad():
        right = [
            int((model(inputs).argmax(1) == labels).sum())
            for inputs, labels in zip(*(one.split(READ_TOGETHER) for one in part), strict=True)
        ]
    return sum(right) / len(part[1])


def _sgd(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    learned = [one for one in model.parameters() if one.requires_grad]
    return torch.optim.SGD(learned, lr=rate, momentum=MOMENTUM)


TIED = CorrelatedDPSGD(clip=CLIP, noise=Banded(bands=BANDS, momentum=MOMENTUM))
WAYS: dict[str, WayToTrain] = {
    "without noise and clip": WithoutNoise(),
    "without noise": WithoutNoise(most=CLIP),
    "Opacus": ByOpacus(),
    "Tacit": ByTacit(method=DPSGD(clip=CLIP), sampling=Poisson()),
    "Tacit, tied noise": ByTacit(method=TIED, sampling=CyclicPoisson(classes=BANDS)),
}
