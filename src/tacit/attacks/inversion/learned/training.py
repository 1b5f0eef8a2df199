"""The training of a network that reads prompts, on fresh public windows every step."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.attacks.inversion.learned.networks import AtOnce, MemoryDecoder, build
from tacit.attacks.inversion.learned.presets import LearningSchedule, NetworkShape
from tacit.attacks.inversion.learned.released import (
    StateRelease,
    states_of,
    trajectories_of,
)
from tacit.models.language import LanguageModel
from tacit.models.small.muon import Muon
from tacit.runs.folder import RunFolder
from tacit.runs.identity import identity
from tacit.runs.loop import STATE_FIELDS, HeldOut, Loop, RunProgress
from tacit.runs.precision import computing_in, native_precision
from tacit.runs.run import Run

# Releases that whitening is fitted on, and prompts of an evaluation.
EXAMPLES, EVALUATED = 4096, 512
# streams of random numbers: windows of a step, whitening, evaluation
WINDOWS, WHITENING, EVALUATION = 0, 1, 2
WARMUP_SHARE = 0.05
SECONDS_BETWEEN_STATES = 60.0


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is to be learnt: to read prompts of T tokens from what is released of one layer.

    Attributes:
        model: the public model.
        layer: 1 … L.
        release: how a state is released.
        stream: public tokens, (S,), of which every step draws windows anywhere.
        unseen: public tokens that no step draws from, for early stopping.
        length: T.
        shortest: least tokens of a window.
        seed: of the windows and the start.
        everywhere: whether the states of all positions are released, each by itself.
    """

    model: LanguageModel
    layer: int
    release: StateRelease
    stream: Tensor
    unseen: Tensor
    length: int
    shortest: int
    seed: int
    everywhere: bool = False

    def batch(self, count: int, purpose: int, step: int) -> tuple[Tensor, Tensor]:
        """Return fresh windows (n, t) and what a network reads of releases, (n, d) or (n, t, d)."""
        source = np.random.default_rng([self.seed, purpose, step])
        length = int(source.integers(self.shortest, self.length + 1))
        stream = self.unseen if purpose == EVALUATION else self.stream
        starts = source.integers(0, len(stream) - length + 1, count)
        windows = stream[torch.from_numpy(starts)[:, None] + torch.arange(length)]
        observed = trajectories_of if self.everywhere else states_of
        states, behaviours = observed(
            self.model, self.layer, windows, self.release.channel.predicts
        )
        drawn = self.release.draw(states.flatten(0, -2), behaviours, source)
        read = self.release.vectors_of(drawn).view(*states.shape[:-1], -1)
        return windows.to(self.model.device), read.to(self.model.device)


def in_order(shape: NetworkShape, tokens: Tensor) -> Tensor:
    """Turn prompts, or what was released of each position, to the order of decoding, or back."""
    return tokens if shape.kind == "forward" else tokens.flip(1)


def learn(
    lesson: Lesson,
    shape: NetworkShape,
    schedule: LearningSchedule,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[MemoryDecoder | AtOnce, RunProgress]:
    """Train a network, or go on where a checkpoint stopped; the best on held-out windows is kept.

    Args:
        lesson: what is learnt.
        shape: of the network.
        schedule: how long, how fast.
        checkpoint: folder that survives a crash.
        progress: whether a bar is shown; None for when stderr is a terminal.
    """
    run = Run(
        steps=schedule.steps,
        minutes=None if schedule.steps is not None else schedule.minutes,
        patience=schedule.patience,
        checkpoint=checkpoint,
        progress=progress is not False,
    )
    embeddings = lesson.model.network.get_input_embeddings().weight
    windows = EXAMPLES // lesson.length + 1 if lesson.everywhere else EXAMPLES
    examples = lesson.batch(windows, WHITENING, 0)[1].flatten(0, -2)
    made = build(
        shape, lesson.length, embeddings, examples, examples.shape[1], lesson.seed,
        lesson.everywhere,
    )  # fmt: skip
    network = made.to(lesson.model.device)
    precision = native_precision(schedule.precision, lesson.model.device)
    with ExitStack() as stack:
        folder = None
        if checkpoint is not None:
            # by the machine: a run does not go on in another precision
            declared = {**_declaration(lesson, network, shape, schedule), "precision": precision}
            folder = RunFolder(checkpoint, declared, fields=STATE_FIELDS)
            stack.enter_context(folder.alone())
        here = _train(lesson, network, schedule, run, precision, folder)
    return network.eval().requires_grad_(False), here


def _train(
    lesson: Lesson,
    network: MemoryDecoder | AtOnce,
    schedule: LearningSchedule,
    run: Run,
    precision: str,
    folder: RunFolder | None,
) -> RunProgress:
    # the same windows in every evaluation
    held_out = [lesson.batch(EVALUATED // 4, EVALUATION, part) for part in range(4)]
    optimizers = _optimizers(network, schedule, precision)
    loop = Loop(
        run,
        {"network": network} | {f"optimizer {place}": one for place, one in enumerate(optimizers)},
        title=f"learning to read {lesson.length} tokens",
        folder=folder,
        every=SECONDS_BETWEEN_STATES,
        held_out=HeldOut(
            lambda: _held_out_loss(network, held_out, precision),
            schedule.evaluate_every,
            "network",
        ),
        clock=_Watch(lesson.model.device).seconds,
    )
    network.train()
    for here in loop:
        _step(lesson, network, schedule, optimizers, here.steps, loop.share, precision)
    return loop.here


def _step(
    lesson: Lesson,
    network: MemoryDecoder | AtOnce,
    schedule: LearningSchedule,
    optimizers: list[torch.optim.Optimizer],
    number: int,
    spent: float,
    precision: str,
) -> None:
    windows, releases = lesson.batch(schedule.batch, WINDOWS, number)
    with computing_in(precision, releases.device.type):
        loss = _loss(network, windows, releases)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    # a linear rise over the first share of the budget, then a half cosine to 0
    share = min(1.0, (spent + 1e-3) / WARMUP_SHARE, (number + 1) / 20)
    share *= 0.5 * (1.0 + math.cos(math.pi * spent))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
        optimizer.step()
        optimizer.zero_grad()


def _loss(network: MemoryDecoder | AtOnce, windows: Tensor, releases: Tensor) -> Tensor:
    tokens = in_order(network.shape, windows)
    heard = in_order(network.shape, releases) if network.everywhere else releases
    logits = network(heard, tokens)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


@torch.no_grad()
def _held_out_loss(
    network: MemoryDecoder | AtOnce, parts: list[tuple[Tensor, Tensor]], precision: str
) -> float:
    """Return the mean loss of windows that no step draws, nats a token."""
    network.eval()
    with computing_in(precision, parts[0][0].device.type):
        loss = sum(float(_loss(network, *part)) for part in parts) / len(parts)
    network.train()
    return loss


class _Watch:
    """Seconds of computing: of a processor's thread, or of the clock beside a GPU."""

    def __init__(self, device: torch.device) -> None:
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        self._clock = time.process_time if device.type == "cpu" else time.perf_counter
        self._threads, self._start = threads, self._clock()

    def seconds(self) -> float:
        """Since the start."""
        return (self._clock() - self._start) / self._threads


def _optimizers(
    network: MemoryDecoder | AtOnce, schedule: LearningSchedule, precision: str
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of blocks, AdamW for all else."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in network.named_parameters():
        inner = parameter.ndim == 2 and name.startswith(("blocks.", "hidden."))
        (matrices if inner else others).append(parameter)
    found: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [{"params": others, "peak": schedule.rate}], betas=(0.9, 0.95), weight_decay=0.01
        )
    ]
    if matrices:
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        groups = [{"params": matrices, "peak": schedule.matrix_rate}]
        found.append(Muon(groups, momentum=0.95, weight_decay=0.05, precision=dtype))
    return found


def _declaration(
    lesson: Lesson, network: MemoryDecoder | AtOnce, shape: NetworkShape, schedule: LearningSchedule
) -> dict[str, str]:
    """Return digests of all that decides a training."""
    return {
        "run": "inverter",
        "shape": identity(asdict(shape)),
        "schedule": identity(asdict(schedule)),
        "windows": identity(lesson.length, lesson.shortest, lesson.seed, lesson.everywhere),
        "text": identity(lesson.stream, lesson.unseen),
        # what whitening saw tells model, layer and release
        "releases": identity(network.whitening.mean, network.whitening.map),
    }
