"""The training of a network that reads prompts, on fresh public windows every step."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.files import check_writable, write_bytes_atomic
from tacit.attacks.inversion.learned.networks import AtOnce, Decoder, build
from tacit.attacks.inversion.learned.presets import Schedule, Shape
from tacit.attacks.inversion.learned.released import (
    StateRelease,
    states_of,
    trajectories_of,
)
from tacit.compute import progress_bar
from tacit.models.language import LanguageModel
from tacit.models.small.muon import Muon
from tacit.runs.precision import computing_in, native_precision

FORMAT = 1
EXAMPLES, EVALUATED, STEP_OF_BAR = 4096, 512, 1000
# streams of random numbers: windows of a step, whitening, evaluation
WINDOWS, WHITENING, EVALUATION = 0, 1, 2
WARMUP_SHARE = 0.05
SECONDS_BETWEEN_CHECKPOINTS = 60.0


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


@dataclass
class Progress:
    """How far a training is.

    Attributes:
        steps: taken.
        spent: of the budget, in its unit.
        best: least held-out loss, nats a token.
        stale: evaluations since then.
        history: (spent, held-out loss) of every evaluation.
        weights: of the best network.
    """

    steps: int = 0
    spent: float = 0.0
    best: float = math.inf
    stale: int = 0
    history: list[tuple[float, float]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)


def in_order(shape: Shape, tokens: Tensor) -> Tensor:
    """Turn prompts, or what was released of each position, to the order of decoding, or back."""
    return tokens if shape.kind == "forward" else tokens.flip(1)


def learn(
    lesson: Lesson,
    shape: Shape,
    schedule: Schedule,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[Decoder | AtOnce, Progress]:
    """Train a network, or go on where a checkpoint stopped.

    Args:
        lesson: what is learnt.
        shape: of the network.
        schedule: how long, how fast.
        checkpoint: file that is read where it is there and written about once a minute.
        progress: whether a bar is shown; None for when stderr is a terminal.
    """
    if checkpoint is not None:
        check_writable("checkpoint", checkpoint)
    embeddings = lesson.model.network.get_input_embeddings().weight
    windows = EXAMPLES // lesson.length + 1 if lesson.everywhere else EXAMPLES
    examples = lesson.batch(windows, WHITENING, 0)[1].flatten(0, -2)
    made = build(
        shape, lesson.length, embeddings, examples, examples.shape[1], lesson.seed,
        lesson.everywhere,
    )  # fmt: skip
    network = made.to(lesson.model.device)
    precision = native_precision(schedule.precision, lesson.model.device)
    optimizers = _optimizers(network, schedule, precision)
    about = _about(lesson, network, shape, schedule)
    state = Progress()
    if checkpoint is not None and Path(checkpoint).is_file():
        state = _restore(Path(checkpoint), about, network, optimizers)
    _train(lesson, network, schedule, optimizers, state, precision, about, checkpoint, progress)
    network.load_state_dict(state.weights)
    return network.eval().requires_grad_(False), state


def _train(
    lesson: Lesson,
    network: Decoder | AtOnce,
    schedule: Schedule,
    optimizers: list[torch.optim.Optimizer],
    state: Progress,
    precision: str,
    about: str,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool | None,
) -> None:
    total = float(schedule.steps or 60.0 * (schedule.minutes or 0.0))
    due = total * schedule.evaluate_every * (len(state.history) + 1)
    watch, before, saved = _Watch(lesson.model.device), state.spent, time.monotonic()
    parts = [lesson.batch(EVALUATED // 4, EVALUATION, part) for part in range(4)]
    shown = 0
    network.train()
    title = f"learning to read {lesson.length} tokens, thousandths of the training"
    with progress_bar(STEP_OF_BAR, title, shown=progress is not False) as advance:
        while state.spent < total and state.stale < schedule.patience:
            _step(lesson, network, schedule, optimizers, state, total, precision)
            state.steps += 1
            spent = state.steps if schedule.steps is not None else before + watch.seconds()
            state.spent = min(float(spent), total)
            if state.spent >= min(due, total):
                _evaluate(network, state, parts, precision)
                due += total * schedule.evaluate_every
            if checkpoint is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                _save(checkpoint, about, network, optimizers, state)
                saved = time.monotonic()
            reached = int(STEP_OF_BAR * state.spent / total)
            advance(reached - shown)
            shown = reached
    if checkpoint is not None:
        _save(checkpoint, about, network, optimizers, state)


def _step(
    lesson: Lesson,
    network: Decoder | AtOnce,
    schedule: Schedule,
    optimizers: list[torch.optim.Optimizer],
    state: Progress,
    total: float,
    precision: str,
) -> None:
    windows, releases = lesson.batch(schedule.batch, WINDOWS, state.steps)
    with computing_in(precision, releases.device.type):
        loss = _loss(network, windows, releases)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    spent = state.spent / total
    share = min(1.0, (spent + 1e-3) / WARMUP_SHARE, (state.steps + 1) / 20)
    share *= 0.5 * (1.0 + math.cos(math.pi * spent))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
        optimizer.step()
        optimizer.zero_grad()


def _loss(network: Decoder | AtOnce, windows: Tensor, releases: Tensor) -> Tensor:
    tokens = in_order(network.shape, windows)
    heard = in_order(network.shape, releases) if network.everywhere else releases
    logits = network(heard, tokens)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


@torch.no_grad()
def _evaluate(
    network: Decoder | AtOnce, state: Progress, parts: list[tuple[Tensor, Tensor]], precision: str
) -> None:
    network.eval()
    with computing_in(precision, parts[0][0].device.type):
        loss = sum(float(_loss(network, *part)) for part in parts) / len(parts)
    network.train()
    state.history.append((state.spent, loss))
    state.stale += 1
    if loss < state.best or not state.weights:
        state.best, state.stale = loss, 0
        state.weights = {name: value.clone() for name, value in network.state_dict().items()}


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
    network: Decoder | AtOnce, schedule: Schedule, precision: str
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


def _about(lesson: Lesson, network: Decoder | AtOnce, shape: Shape, schedule: Schedule) -> str:
    """Digest of all that decides a training: what whitening saw tells model, layer and release."""
    plain = {"shape": asdict(shape), "schedule": asdict(schedule), "length": lesson.length,
             "shortest": lesson.shortest, "seed": lesson.seed, "format": FORMAT}  # fmt: skip
    if lesson.everywhere:
        plain["positions"] = "all"
    found = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for part in (lesson.stream, lesson.unseen, network.whitening.mean, network.whitening.map):
        found.update(part.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _save(
    path: str | os.PathLike[str],
    about: str,
    network: Decoder | AtOnce,
    optimizers: list[torch.optim.Optimizer],
    state: Progress,
) -> None:
    content = {
        "format": FORMAT,
        "about": about,
        "network": network.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": {**vars(state), "weights": state.weights},
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes_atomic("checkpoint", path, buffer.getvalue())


def _restore(
    path: Path,
    about: str,
    network: Decoder | AtOnce,
    optimizers: list[torch.optim.Optimizer],
) -> Progress:
    wrong = f"checkpoint: expected one that a training of this kind wrote, got {path.name}"
    try:
        # a device that is here, whatever one it was written on
        place = network.whitening.mean.device
        content = torch.load(path, map_location=place, weights_only=True)
    except Exception:
        raise ValueError(wrong) from None
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise ValueError(wrong)
    if content["about"] != about:
        raise ValueError(
            f"checkpoint: {path.name} is of another model, layer, release, text or schedule: "
            "name another file"
        )
    network.load_state_dict(content["network"])
    for optimizer, held in zip(optimizers, content["optimizers"], strict=True):
        optimizer.load_state_dict(held)
    return Progress(**content["progress"])
