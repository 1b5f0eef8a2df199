"""The optimization of a small language model within a budget of time or steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from tacit.models.anatomy import dissect
from tacit.models.penalties.step import Penalty, Step
from tacit.models.penalties.step import run as run_layers
from tacit.models.small.muon import Muon
from tacit.runs.folder import RunFolder
from tacit.runs.loop import SECONDS_BETWEEN_STATES, Loop, RandomState
from tacit.runs.precision import computing_in, native_precision
from tacit.runs.run import Run

# Of the budget, over which the rates rise to their peaks; and where they start, as a share.
WARMUP_SHARE, FIRST_SHARE = 0.03, 0.02
MATRIX_RATE, OTHER_RATE = 0.02, 0.01
MATRIX_MOMENTUM, MATRIX_DECAY, OTHER_DECAY = 0.95, 0.05, 0.01
# A gradient longer than this is shortened to it.
LONGEST_STEP = 1.0
ROWS_EVALUATED_TOGETHER = 256
OPTIMIZER = {
    "matrices": {"name": "Muon", "rate": MATRIX_RATE, "decay": MATRIX_DECAY},
    "others": {"name": "AdamW", "rate": OTHER_RATE, "decay": OTHER_DECAY},
    "warmup": WARMUP_SHARE,
}


@dataclass(frozen=True)
class TrainingOutcome:
    """What an optimization took: steps, tokens read and seconds, and in which precision."""

    steps: int
    tokens: int
    seconds: float
    precision: str


@dataclass(frozen=True, kw_only=True)
class TrainingWindows:
    """What a step reads: windows of the stream in an order that a seed fixes.

    Attributes:
        context: tokens that are predicted in a window.
        batch: windows a step.
        seed: of their order.
    """

    context: int
    batch: int
    seed: int


def fit(
    network: Any,
    stream: Tensor,
    run: Run,
    windows: TrainingWindows,
    *,
    penalties: Sequence[Penalty] = (),
    folder: RunFolder | None = None,
    every: float = SECONDS_BETWEEN_STATES,
) -> TrainingOutcome:
    """Minimise the mean cross-entropy of the next token over windows, plus the penalties.

    What a folder has kept is taken up: the same steps follow as without the interruption.
    """
    device = next(network.parameters()).device
    # what the machine has instructions for; told in the recipe
    precision = native_precision(run.precision or "auto", device)
    optimizers = _optimizers(network, precision)
    # cross-entropy, and what penalties add
    objective = _Objective(network, penalties, precision, windows.seed)
    parts = {"network": network, "source": RandomState(objective.source)}
    parts |= {f"optimizer {place}": one for place, one in enumerate(optimizers)}
    # network, optimizers and the penalties' randomness go on from a stored state
    loop = Loop(run, parts, title="training", folder=folder, every=every)
    # a batch is a function of its number alone, so that those of earlier processes are passed over
    batches = islice(_batches(stream, windows, device), loop.here.steps, None)
    network.train()
    for _ in loop:
        _step(network, next(batches), optimizers, _rate(loop.share), objective)
    network.eval()
    here, tokens = loop.here, windows.batch * windows.context
    return TrainingOutcome(here.steps, here.steps * tokens, here.seconds, precision)


def _rate(spent: float) -> float:
    """Warm up linearly, then fall to zero as a half cosine of the budget spent."""
    if spent < WARMUP_SHARE:
        # a linear rise from a fiftieth of the peak
        return max(spent / WARMUP_SHARE, FIRST_SHARE)
    # ½(1 + cos π s) over what is left of the budget
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
            # penalties read states of their layers
            states, logits = run_layers(self.anatomy, windows[:, :-1], self.layers)
        step = Step(self.anatomy, windows, logits, states, self.source)
        added = [penalty.measure(step) for penalty in self.penalties]
        # mean −ln p of the next token, nats, plus penalties in nats
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
    # one bad batch moves the model no further than any other
    nn.utils.clip_grad_norm_(network.parameters(), LONGEST_STEP)
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


def _optimizers(network: nn.Module, precision: str) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings, gains and biases."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        # matrices of layers; embeddings are tables
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


def _batches(stream: Tensor, windows: TrainingWindows, device: torch.device) -> Iterator[Tensor]:
    """Yield batches of windows, all of the stream once per round, from a new phase each round."""
    # a window is read but for its last token, which is predicted
    length, batch = windows.context + 1, windows.batch
    source = torch.Generator().manual_seed(windows.seed)
    rows = stream.unfold(0, length, 1)
    pending = torch.empty(0, dtype=torch.int64)
    while True:
        # windows begin elsewhere in every round, so that all boundaries are learned
        phase = int(torch.randint(min(length, len(rows)), (1,), generator=source))
        # all of the stream once
        starts = torch.arange(phase, len(rows), length)
        pending = torch.cat([pending, starts[torch.randperm(len(starts), generator=source)]])
        while len(pending) >= batch:
            yield rows[pending[:batch]].to(device)
            pending = pending[batch:]


@torch.no_grad()
def perplexity(network: Any, stream: Tensor, context: int) -> float:
    """Return exp of the mean cross-entropy per token over consecutive windows of the stream."""
    device = next(network.parameters()).device
    # as many tokens as the model reads, and the next
    length = min(context + 1, len(stream))
    rows = stream[: len(stream) // length * length].view(-1, length)
    total = sum(
        float(_loss(network, part.to(device), "float32")) * len(part)
        for part in torch.split(rows, ROWS_EVALUATED_TOGETHER)
    )
    # exp of the mean cross-entropy: rows are of one length
    return math.exp(total / len(rows))
