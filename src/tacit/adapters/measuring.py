"""What a model is worth on records that are not private."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from tacit._ground.checks import Array
from tacit.adapters.tasks import LABELS, TARGETS, Rows, Task, taken
from tacit.measured import Interval
from tacit.releases.form import Use
from tacit.training.contribution.influence import mean_of

# Records in one pass.
TOGETHER = 64


@dataclass(frozen=True, eq=False)
class Quality:
    """Losses of records, and which of them were named right.

    Attributes:
        losses: (n,) nats.
        right: (n,) truth values; None where nothing is named.
    """

    losses: Array
    right: Array | None

    def uses(self) -> tuple[Use, ...]:
        """Return both as a release tells them."""
        told = [Use(name="held-out loss", unit="nats", better="lower", measured=_mean(self.losses))]
        if self.right is not None:
            told.append(
                Use(name="accuracy", unit="share", better="higher", measured=_mean(self.right))
            )
        return tuple(told)

    def describe(self) -> str:
        """Return both in words."""
        told = f"held-out loss {self.losses.mean():.3f} nats"
        return told if self.right is None else f"{told}, accuracy {self.right.mean():.1%}"


def quality(model: nn.Module, task: Task, rows: Rows) -> Quality:
    """Measure a model on some records."""
    device = next(model.parameters()).device
    count = len(next(iter(rows.values())))
    losses, right = [], []
    with torch.no_grad():
        for part in torch.split(torch.arange(count), TOGETHER):
            some = taken(rows, part, device)
            outputs = task.outputs(model, some)
            losses.append(task.losses(outputs, some).double().cpu().numpy())
            answers = some.get(TARGETS, some.get(LABELS))
            if answers is not None and outputs.ndim == 2 and answers.ndim == 1 \
                    and not answers.is_floating_point():  # fmt: skip
                right.append((outputs.argmax(dim=1) == answers).double().cpu().numpy())
    return Quality(np.concatenate(losses), np.concatenate(right) if right else None)


def _mean(values: Array) -> Interval:
    if values.size < 2:
        only = float(values.mean())
        return Interval(value=only, low=only, high=only)
    return mean_of(values)
