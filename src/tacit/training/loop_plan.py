"""What is asked of a training loop of one's own, and what follows from it before its first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tacit._ground.checks import integer
from tacit._ground.reprs import shown
from tacit._ground.values import Count, Spelled, Within, value
from tacit.guarantees.base import Guarantee
from tacit.training.canaries import LoopAudit
from tacit.training.loop_release import PrivateTraining
from tacit.training.people import People
from tacit.training.sampling import BY_COINS, AnySampling, StepSampling


@value
class LoopSettings:
    """What is asked of a training loop beside its method, its promise and its length.

    Args:
        micro_batch: Records that pass through the model together, at most; a step is then several
            batches, of which the optimizer moves with the last. All of a step when left out.
        sampling_rate: Probability of each record in a step, declared without looking at the
            records; the batch size over their number when left out, which is then public.
        passes: Backward passes of a batch: 1, which keeps what every layer's gradients are made of,
            or 2, of which the first leaves norms alone, for the memory of a plain step; by what
            the first batch kept when left out.
        checkpoint: Folder that survives a crash: the same call goes on from it.
        every: Steps between two stored states.
        sampling: How the records of a step are drawn; by a coin each when left out.
        person: Whose each record is, where a person is what is protected.
        audit: Canaries that audit the loop as it runs; none when left out.
        records: How many records a stream has in each pass, declared; none of any other loader.
        about: What makes the run what it is beside its settings, such as a digest of the data.
        seed: Of coins and noise: it voids the guarantee.
    """

    micro_batch: Count | None = None
    sampling_rate: Annotated[float, Within(0, 1, "(]")] | None = None
    checkpoint: Annotated[Any, Spelled("FOLDER", str)] = None
    every: Count = 100
    passes: Annotated[int, Within(1, 2, "[]")] | None = None
    sampling: AnySampling = BY_COINS
    person: People | None = None
    audit: LoopAudit | None = None
    records: Count | None = None
    about: Any = None
    seed: int | None = None

    def _together(self) -> None:
        if self.seed is not None:
            integer("seed", self.seed, minimum=0)
        if not isinstance(self.sampling, StepSampling):
            raise ValueError(f"sampling: expected a StepSampling(), got {shown(self.sampling)}")
        if not isinstance(self.audit, LoopAudit | None):
            raise ValueError(f"audit: expected LoopAudit(), got {type(self.audit).__name__}")
        if self.audit is not None and self.checkpoint is not None:
            raise ValueError("checkpoint: expected none beside audit, whose coins are in no folder")
        if not isinstance(self.person, People | None):
            raise ValueError(f"person: expected People(of=…), got {type(self.person).__name__}")


AS_USUAL = LoopSettings()


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopPlan:
    """What a loop will do and is certified for, known before its first step.

    Attributes:
        guarantees: what it will be certified for, the headline first.
        spends: what the ledger counts.
        description: what is trained, for the ledger.
        details: all that the certificate follows from.
        parts: the model, the optimizer and the loader.
        settings: as given.
        epochs: passes over the loader.
        expected: records expected in a step, of persons where these are drawn.
        batch: units of a step in this process, where that is fixed.
        units: the places of every unit's records; None where each record is one.
        parameters: what is trained, by name.
    """

    guarantees: tuple[Guarantee, ...]
    spends: tuple[Guarantee, ...]
    description: str
    details: PrivateTraining
    parts: tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]] = field(repr=False)
    settings: LoopSettings
    epochs: int
    expected: float
    batch: int
    units: Sequence[Any] | None
    parameters: Mapping[str, nn.Parameter] = field(repr=False)
