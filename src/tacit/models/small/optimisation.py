"""The optimisation of a small language model within a budget of time or steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.compute import progress_bar
from tacit.models.anatomy import dissect
from tacit.models.penalties.step import Penalty, Step, run
from tacit.models.small.checkpoints import Checkpoint
from tacit.models.small.muon import Muon
from tacit.models.small.precision import native_precision

WARMUP_SHARE = 0.03
MATRIX_RATE, OTHER_RATE = 0.02, 0.01
MATRIX_MOMENTUM, MATRIX_DECAY, OTHER_DECAY = 0.95, 0.05, 0.01
ROWS_EVALUATED_TOGETHER = 256
OPTIMIZER = {
    "matrices": {"name": "Muon", "rate": MATRIX_RATE, "decay": MATRIX_DECAY},
    "others": {"name": "AdamW", "rate": OTHER_RATE, "decay": OTHER_DECAY},
    "warmup": WARMUP_SHARE,
}


@dataclass(frozen=True)
class Budget:
    """Seconds or optimiser steps, whichever is given."""

    seconds: float | None
    steps: int | None

    @property
    def total(self) -> float:
        """The budget in its own unit."""
        return float(self.seconds or 0.0) if self.steps is None else float(self.steps)

    @property
    def unit(self) -> str:
        """What the budget is counted in."""
        return "seconds" if self.steps is None else "steps"


@dataclass(frozen=True)
class Outcome:
    """What an optimisation took: steps, tokens read and seconds, and in which precision."""

    steps: int
    tokens: int
    seconds: float
    precision: str


def fit(
    network: Any,
    stream: Tensor,
    *,
    context: int,
    batch: int,
    budget: Budget,
    seed: int,
    precision: str,
    progress: bool | None,
    penalties: Sequence[Penalty] = (),
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Minimise the mean cross-entropy of the next token over windows, plus the penalties.

    What a checkpoint has kept is taken up: the same steps follow as without the interruption.
    """
    device = next(network.parameters()).device
    batches = _windows(stream, context + 1, batch, seed, device)
    kept = None if checkpoint is None else checkpoint.read()
    drawn = 0
    if kept is not None:
        precision, drawn = kept["precision"], kept["drawn"]
        for _ in range(drawn):
            next(batches)
    precision = native_precision(precision, device)
    optimizers = _optimizers(network, precision)
    objective = _Objective(network, penalties, precision, seed)
    steps, before = 0, 0.0
    if checkpoint is not None and kept is not None:
        checkpoint.restore(kept, network, optimizers, objective.source)
        steps, before = kept["steps"], kept["seconds"]
    network.train()
    shown, start = 0, time.perf_counter()
    done = before if budget.steps is None else float(steps)
    title, total = f"training, {budget.unit}", math.ceil(budget.total)
    with progress_bar(total, title, shown=progress is not False) as advance:
        while done < budget.total:
            _step(network, next(batches), optimizers, _rate(done / budget.total), objective)
            steps, drawn = steps + 1, drawn + 1
            seconds = before + time.perf_counter() - start
            done = steps if budget.steps is not None else seconds
            advance(min(int(done), total) - shown)
            shown = min(int(done), total)
            if checkpoint is not None and checkpoint.is_due():
                facts = {"steps": steps, "drawn": drawn, "seconds": seconds, "precision": precision}
                checkpoint.write(facts, network, optimizers, objective.source)
    network.eval()
    seconds = before + time.perf_counter() - start
    return Outcome(steps, steps * batch * context, seconds, precision)


def _rate(spent: float) -> float:
    """Warm up linearly, then fall to zero as a half cosine of the budget spent."""
    if spent < WARMUP_SHARE:
        return max(spent / WARMUP_SHARE, 0.02)
    return 0.5 * (1.0 + math.cos(math.pi * (spent - WARMUP_SHARE) / (1.0 - WARMUP_SHARE)))


class _Objective:
    """The mean cross-entropy of a batch, and what the penalties add."""

    def __init__(
        self, network: Any, penalties: Sequence[Penalty], precision: str, seed: int
    ) -> None:
        self.network, self.penalties, self.precision = network, tuple(penalties), precision
        self.source = torch.Generator().manual_seed(seed)
        self.anatomy = dissect(network, "training") if penalties else None
        self.layers = sorted({layer for penalty in penalties for layer in penalty.layers})
        if self.anatomy is not None and max(self.layers, default=0) > self.anatomy.layers:
            raise ValueError(
                f"penalties: expected layers 1 … {self.anatomy.layers}, got {max(self.layers)}"
            )

    def __call__(self, windows: Tensor) -> Tensor:
        if self.anatomy is None:
            return _loss(self.network, windows, self.precision)
        with computing_in(self.precision, windows.device.type):
            states, logits = run(self.anatomy, windows[:, :-1], self.layers)
        step = Step(self.anatomy, windows, logits, states, self.source)
        added = [penalty.measure(step) for penalty in self.penalties]
        return _cross_entropy(logits, windows) + torch.stack(added).sum()


def _step(
    network: Any,
    windows: Tensor,
    optimizers: list[torch.optim.Optimizer],
    share: float,
    objective: _Objective,
) -> None:
    loss = objective(windows)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
        optimizer.step()
        optimizer.zero_grad()


def _loss(network: Any, windows: Tensor, precision: str) -> Tensor:
    with computing_in(precision, windows.device.type):
        logits = network(windows[:, :-1], use_cache=False).logits
    return _cross_entropy(logits, windows)


def _cross_entropy(logits: Tensor, windows: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


def computing_in(precision: str, device: str) -> AbstractContextManager[Any]:
    """Return the context in which products are computed in bfloat16, or none."""
    if precision == "bfloat16":
        return torch.autocast(device, dtype=torch.bfloat16)
    return nullcontext()


def _optimizers(network: nn.Module, precision: str) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings, gains and biases."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        inner = parameter.ndim == 2 and ".h." in name
        (matrices if inner else others).append(parameter)
    muon = Muon(
        [{"params": matrices, "peak": MATRIX_RATE}],
        momentum=MATRIX_MOMENTUM,
        weight_decay=MATRIX_DECAY,
        precision=torch.bfloat16 if precision == "bfloat16" else torch.float32,
    )
    adamw = torch.optim.AdamW(
        [{"params": others, "peak": OTHER_RATE}],
        betas=(0.9, 0.95),
        weight_decay=OTHER_DECAY,
    )
    return [muon, adamw]


def _windows(
    stream: Tensor, length: int, batch: int, seed: int, device: torch.device
) -> Iterator[Tensor]:
    """Yield batches of windows, all of the stream once per round, from a new phase each round."""
    source = torch.Generator().manual_seed(seed)
    rows = stream.unfold(0, length, 1)
    pending = torch.empty(0, dtype=torch.int64)
    while True:
        phase = int(torch.randint(min(length, len(rows)), (1,), generator=source))
        starts = torch.arange(phase, len(rows), length)
        pending = torch.cat([pending, starts[torch.randperm(len(starts), generator=source)]])
        while len(pending) >= batch:
            yield rows[pending[:batch]].to(device)
            pending = pending[batch:]


@torch.no_grad()
def perplexity(network: Any, stream: Tensor, context: int) -> float:
    """Return exp of the mean cross-entropy per token over consecutive windows of the stream."""
    device = next(network.parameters()).device
    length = min(context + 1, len(stream))
    rows = stream[: len(stream) // length * length].view(-1, length)
    total = sum(
        float(_loss(network, part.to(device), "float32")) * len(part)
        for part in torch.split(rows, ROWS_EVALUATED_TOGETHER)
    )
    return math.exp(total / len(rows))
