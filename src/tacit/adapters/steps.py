"""The steps of a private run: sample, clip, add noise, move; and nothing else sees the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.adapters.layers import AdapterLayer, check_frozen, random_projection
from tacit.adapters.settings import PoissonSteps
from tacit.adapters.tasks import AdapterTask, Rows, select
from tacit.gradients.batches import check_losses
from tacit.gradients.clipping import ClippedMethod
from tacit.gradients.hooks import LinearHooks
from tacit.gradients.randomness import StepRandomness
from tacit.gradients.steps import Method, StepLayer
from tacit.gradients.unclipped import WithoutClipping
from tacit.gradients.verification import check_gradients
from tacit.runs.precision import computing_in


@dataclass(frozen=True, kw_only=True)
class AdapterMechanism:
    """What a run does to its records, worked out: all that its certificate is about.

    Attributes:
        method: what is clipped and which noise is added.
        sampling_rate: q.
        steps: T.
        expected: q n, by which sums are divided; it is public.
        noise_std: standard deviation of the noise in a sum.
    """

    method: Method
    sampling_rate: float
    steps: int
    expected: float
    noise_std: float


class AdapterSteps:
    """Trains the layers of a model, step by step.

    Args:
        model: with the adapters on.
        layers: what is trained.
        rows: all records.
        task: their losses.
        mechanism: what is done to them.
        settings: how many pass together, and what moves the weights.
        precision: of the passes.
        seed: of coins and noise; None for the operating system's.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[AdapterLayer],
        rows: Rows,
        task: AdapterTask,
        mechanism: AdapterMechanism,
        settings: PoissonSteps,
        *,
        precision: str,
        seed: int | None,
    ) -> None:
        self.model, self.layers, self.rows, self.task = model, layers, rows, task
        self.mechanism, self.randomness = mechanism, StepRandomness(seed)
        self.optimizer = _optimizer(settings, [layer.trained for layer in layers])
        # steps, and how many records the last one drew
        self.taken = self.drawn = 0
        self.shares: list[float] = []
        self.device = layers[0].weight.device
        self.count = len(next(iter(rows.values())))
        self._micro_batch, self._precision = settings.micro_batch, precision
        # Algorithm 4 bounds gradients of W itself, so those are watched though B moves
        whole = isinstance(mechanism.method, WithoutClipping)
        watched = {one.name: one.base if whole else one.watched for one in layers}
        # factors that hooks add to a plain module are not in it
        inside = {id(one) for one in watched.values()} <= {id(one) for one in model.modules()}
        self._hooks = LinearHooks(watched, model=model if inside else None)

    def step(self) -> None:
        """Take one step.

        Raises:
            ValueError: a loss or gradient that is not finite, or one that the method forbids.
        """
        # somebody may have let A train between two steps
        check_frozen(self.model, self.layers)
        number, mechanism, method = self.taken, self.mechanism, self.mechanism.method
        chosen = self.randomness.sample(number, self.count, mechanism.sampling_rate)
        self.drawn = len(chosen)
        # A and the noise of this step, drawn by layer
        layers = {one.name: self._layer(place, one) for place, one in enumerate(self.layers)}
        # sums, clipped, noised, scaled: what comes back may be published
        moves, sums = method.update(
            self._gradients(chosen), layers, mechanism.noise_std, mechanism.expected
        )
        # for the holder alone, as it is measured without noise
        if isinstance(method, ClippedMethod) and sums.records:
            self.shares.append(sums.shortened / sums.records)
        self._move(moves)
        if isinstance(method, WithoutClipping) and number + 1 == mechanism.steps:
            # η/n, by which the steps before moved B
            rate = float(self.optimizer.param_groups[0]["lr"]) / mechanism.expected
            for one in self.layers:
                noisy = method.noised_once(
                    one.trained.detach().double(), layers[one.name], rate * mechanism.noise_std
                )
                with torch.no_grad():
                    # the only B that anybody sees
                    one.trained.copy_(noisy)
        self.taken += 1

    def _layer(self, place: int, layer: AdapterLayer) -> StepLayer:
        """Return what this step needs of a layer beside its gradients."""
        projection: Callable[[], Tensor] | None = None
        if self.mechanism.method.fresh:
            rank: int = self.mechanism.method.rank  # type: ignore[attr-defined]
            source = self.randomness.projection_seed(self.taken, place)
            # A_t is drawn when it is asked for: after the gradients are fixed
            projection = partial(_draw_projection, rank, layer.width, source)
        elif layer.matrix_a is not None:
            projection = layer.matrix_a.double
        return StepLayer(
            zeros=torch.zeros(
                self._hooks.shape(layer.name), device=self.device, dtype=torch.float64
            ),
            projection=projection,
            normal=self.randomness.normal(self.taken, place, self.device),
            scaling=layer.scaling,
        )

    def _move(self, moves: Mapping[str, Tensor]) -> None:
        """Take the optimizer's step along published directions: post-processing."""
        for layer in self.layers:
            direction = moves[layer.name]
            # Conv1D keeps its weight as (in, out)
            if layer.matrix_b is None and layer.transposed:
                direction = direction.mT
            # float64 to the parameter's precision, the published sum rounded once more
            layer.trained.grad = direction.to(layer.trained.dtype).contiguous()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def clipped_share(self) -> float | None:
        """Return the mean share of records that were clipped; it may not be published."""
        return sum(self.shares) / len(self.shares) if self.shares else None

    def state_dict(self) -> dict[str, Any]:
        """Return what goes on from here."""
        return {
            "taken": self.taken,
            "shares": self.shares,
            "parameters": {layer.name: layer.trained.detach().clone() for layer in self.layers},
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a stored state."""
        with torch.no_grad():
            for layer in self.layers:
                layer.trained.copy_(state_dict["parameters"][layer.name])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.taken, self.shares = int(state_dict["taken"]), list(state_dict["shares"])

    def _gradients(self, chosen: Tensor) -> Iterator[LinearHooks]:
        """Yield the per-example gradients of a sample, as many records at a time as pass."""
        for part in torch.split(chosen, self._micro_batch):
            # an empty sample has no gradients and still its noise
            if len(part):
                yield self.gradients(part)

    def gradients(self, part: Tensor) -> LinearHooks:
        """Return the per-example gradients of some records."""
        rows = select(self.rows, part, self.device)
        # one forward and one backward pass
        with self._hooks:
            self._hooks.backward(self._losses(rows))
        self.optimizer.zero_grad(set_to_none=True)
        return self._hooks

    def check_gradients(self, part: Tensor) -> None:
        """Hold the gradients of one of some records against autograd's.

        Raises:
            ValueError: they differ, as where a weight is used twice.
        """
        rows = select(self.rows, part, self.device)
        check_gradients(self._hooks, lambda: self._losses(rows))
        self.optimizer.zero_grad(set_to_none=True)

    def losses(self, part: Tensor) -> Tensor:
        """Return the losses of some records, float64, in batches in their order."""
        with torch.no_grad():
            found = [
                self._losses(select(self.rows, some, self.device))
                for some in torch.split(part, self._micro_batch)
            ]
        return torch.cat(found).double().cpu()

    def outputs(self, model: nn.Module, count: int) -> Tensor:
        """Return a model's outputs for the first records."""
        rows = select(self.rows, torch.arange(min(count, self.count)), self.device)
        with torch.no_grad():
            return self.task.outputs(model, rows)

    def _losses(self, rows: Rows) -> Tensor:
        """Return the losses of some records, float32."""
        # bfloat16 only within the passes; losses and sums are float32 and float64
        with computing_in(self._precision, self.device.type):
            losses = self.task.losses(self.task.outputs(self.model, rows), rows)
        return check_losses("loss", losses, len(next(iter(rows.values())))).float()


def _draw_projection(rank: int, width: int, source: np.random.Generator | None) -> Tensor:
    return random_projection(rank, width, source).double()


def _optimizer(settings: PoissonSteps, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return Adam or gradient descent of what is trained."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=settings.learning_rate)
    return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=settings.momentum)
