"""Several noisy steps on Poisson samples, and the network that they move."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit._ground.random import released_normal
from tacit.covariance.publication import publish_sum
from tacit.specifications.backbones.backbone import Backbone
from tacit.specifications.coordinates import GradientFrame, coordinates
from tacit.specifications.objectives import label_directions
from tacit.specifications.schedule import StepSchedule
from tacit.specifications.subspace import clip_rows

if TYPE_CHECKING:
    from tacit.specifications.mechanism import DescribedSubject, DescriptionRequest

# The backbone's weights are moved in place while a step is taken.
MOVING = Lock()


def take_steps(
    subject: DescribedSubject,
    asked: DescriptionRequest,
    schedule: StepSchedule,
    error: float,
    source: np.random.Generator | None,
) -> NDArray[np.float64]:
    """Return ``(1/T) Σ_t y_t`` of noisy steps from θ₀, (k,).

    ``y_t = (1/(qn)) (Σ_{i in S_t} clip(y_i(θ_t)) + noise)``, S_t a Poisson sample; the described
    layers then move by ``−η‖W‖`` along what y_t says of the factors, ``(c + D⁺ᵀ y_t) A``. All that
    is made of noisy steps is post-processing.

    Args:
        subject: what is described.
        asked: how, with ``objective="labels"``.
        schedule: of the steps.
        error: standard deviation of the noise of every number of one y_t.
        source: of samples and noise; None for the operating system.

    Source: pave, Algorithm 1.
    """
    backbone, frame = subject.backbone, asked.frame
    parts = backbone.prepare(subject.data)
    directions = subject.shares @ label_directions(asked.names, subject.width)
    # A of every layer, and D⁺ that leads numbers of the subspace back to factors
    matrices, back = frame.matrices(backbone), _back(frame)
    shapes = zip(frame.layers, frame.shapes(backbone), strict=True)
    moved = {name: torch.zeros(shape) for name, shape in shapes}
    size = sum(held.numel() for held in moved.values())
    size = size if frame.directions is None else frame.directions.shape[1]
    total: NDArray[np.float64] = np.zeros(size)
    for _ in range(schedule.steps):
        # S_t: a coin for every record, as the account assumes
        rows = _sample(subject.count, schedule.sampling_rate, source)
        found = np.zeros(size)
        if len(rows):
            taken = tuple(part[torch.from_numpy(rows)] for part in parts)
            # gradients at θ_t, the layers moved by B_t A
            with change_weights(backbone, {name: moved[name] @ matrices[name] for name in moved}):
                held = coordinates(backbone, taken, directions[rows], frame)
            # ‖y_i‖ ≤ C at every step: the network moved by noisy sums alone
            held = clip_rows(held, asked.clip) if math.isfinite(asked.clip) else held
            found = held.sum(axis=0)
        # over q n, the records expected, and not over those drawn, whose number tells
        found = found / (schedule.sampling_rate * subject.count)
        if error:
            found = publish_sum(found, error * released_normal(found.shape, source), error)
        # what is published is the mean of noisy steps: post-processing
        total = total + found
        _move(moved, matrices, found, frame, back, backbone, schedule.step_size)
    return total / schedule.steps


def refuse_made_weights(backbone: Backbone, frame: GradientFrame) -> None:
    """Refuse layers whose weight is made of other parameters: a step would move nothing.

    Raises:
        ValueError: there is one; it is named.
    """
    modules = dict(backbone.module.named_modules())
    for name in frame.layers:
        if "weight" not in modules[name]._parameters:
            raise ValueError(
                f"backbone: expected layers that several steps can move, got {name}, whose weight "
                "is made of others (weight_norm, parametrize); remove the parametrization, which "
                "leaves the weight as it is, or take one step"
            )


@contextmanager
def change_weights(backbone: Backbone, changes: Mapping[str, Tensor]) -> Iterator[None]:
    """Add (m, n) matrices to the weights of layers, and put the weights back afterwards."""
    modules = dict(backbone.module.named_modules())
    with MOVING, torch.no_grad():
        # copies, so that the weights come back bit by bit
        kept = {name: modules[name].weight.detach().clone() for name in changes}
        try:
            for name, change in changes.items():
                modules[name].weight.add_(_shaped(change, modules[name]))
            with torch.enable_grad():
                yield
        finally:
            for name, weight in kept.items():
                modules[name].weight.copy_(weight)


def _sample(count: int, rate: float, source: np.random.Generator | None) -> NDArray[np.int64]:
    """Return the records that are in a step, each by a coin of its own."""
    if rate == 1.0:
        return np.arange(count)
    coins = np.random.default_rng() if source is None else source
    return np.flatnonzero(coins.random(count) < rate)


def _back(frame: GradientFrame) -> NDArray[np.float64] | None:
    """Return D⁺, (k, p), by which numbers of the subspace are factors again."""
    return None if frame.directions is None else np.linalg.pinv(frame.directions.astype(float))


def _move(
    moved: dict[str, Tensor],
    matrices: Mapping[str, Tensor],
    found: NDArray[np.float64],
    frame: GradientFrame,
    back: NDArray[np.float64] | None,
    backbone: Backbone,
    step_size: float,
) -> None:
    """Take one step: B ← B − η (‖W‖/‖bA‖) b, norms over all described layers."""
    # b = c + D⁺ᵀ y, of the layers joined
    joined = found if back is None else found @ back
    joined = joined if frame.centre is None else joined + frame.centre
    modules, start = dict(backbone.module.named_modules()), 0
    factors = {}
    for name, held in moved.items():
        part = joined[start : start + held.numel()]
        factors[name] = torch.from_numpy(part.reshape(held.shape)).float()
        start += held.numel()
    # ‖bA‖ and ‖W‖ over all layers: a step is a share of the weights, whatever the scale of losses
    length = math.sqrt(sum(float((factors[n] @ matrices[n]).square().sum()) for n in moved))
    weight = math.sqrt(sum(float(modules[n].weight.float().square().sum()) for n in moved))
    for name, held in moved.items():
        held -= step_size * weight / max(length, 1e-30) * factors[name]


def _shaped(change: Tensor, module: nn.Module) -> Tensor:
    """Return an (m, n) matrix in the shape in which a layer keeps its weight."""
    weight: Any = module.weight
    # GPT-2 keeps (n, m) where others keep (m, n)
    held = change.mT if type(module).__name__ == "Conv1D" else change
    shaped: Tensor = held.reshape(weight.shape).to(weight.dtype)
    return shaped
