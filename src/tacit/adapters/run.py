"""The steps of a private run: sample, clip, add noise, move; and nothing else sees the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.gradients.hooks import LinearHooks
from tacit.gradients.verification import check_gradients
from tacit.adapters.layers import AdapterLayer, check_frozen, random_projection
from tacit.gradients.methods import Clipped, Method, WithoutClipping
from tacit.adapters.sampling import StepRandomness
from tacit.adapters.tasks import Rows, Task, taken

# Rounding of float32 gradients must not carry a clipped norm above C.
ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is, beside its model and its records.

    Attributes:
        method: what is clipped and which noise is added.
        sampling_rate: q.
        steps: T.
        expected: q n, by which sums are divided; it is public.
        noise_std: standard deviation of the noise in a sum.
        micro_batch: most records in one forward pass.
        autocast: whether passes are in bfloat16.
    """

    method: Method
    sampling_rate: float
    steps: int
    expected: float
    noise_std: float
    micro_batch: int
    autocast: bool


class Run:
    """Trains the layers of a model, step by step.

    Args:
        model: with the adapters on.
        layers: what is trained.
        rows: all records.
        task: their losses.
        settings: of the run.
        optimizer: of the layers' trained parameters.
        randomness: of the steps.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[AdapterLayer],
        rows: Rows,
        task: Task,
        settings: Settings,
        optimizer: torch.optim.Optimizer,
        randomness: StepRandomness,
    ) -> None:
        self.model, self.layers, self.rows, self.task = model, layers, rows, task
        self.settings, self.optimizer, self.randomness = settings, optimizer, randomness
        self.taken = 0
        self.shares: list[float] = []
        self.drawn = 0
        self._device = layers[0].weight.device
        self._count = len(next(iter(rows.values())))
        watched = {layer.name: layer.watched for layer in layers}
        if isinstance(settings.method, WithoutClipping):
            watched = {layer.name: layer.base for layer in layers}
        self._watched = watched
        # factors that hooks add to a plain module are not in it
        inside = {id(one) for one in watched.values()} <= {id(one) for one in model.modules()}
        self._hooks = LinearHooks(watched, model=model if inside else None)
        self._total: dict[str, Tensor] = {}

    def step(self) -> None:
        """Take one step.

        Raises:
            ValueError: a loss or gradient that is not finite, or one that the method forbids.
        """
        check_frozen(self.model, self.layers)
        number, settings = self.taken, self.settings
        chosen = self.randomness.sample(number, self._count, settings.sampling_rate)
        self.drawn = len(chosen)
        totals = self._sums(chosen)
        if isinstance(settings.method, WithoutClipping):
            moves = self._unclipped(totals)
        else:
            moves = {
                layer.name: self._released(place, layer, totals[layer.name])
                for place, layer in enumerate(self.layers)
            }
        self._move(moves)
        if isinstance(settings.method, WithoutClipping) and number + 1 == settings.steps:
            self._noised_once()
        self.taken += 1

    def clipped_share(self) -> float | None:
        """Return the mean share of records that were clipped; it may not be published."""
        return sum(self.shares) / len(self.shares) if self.shares else None

    def state(self) -> dict[str, Any]:
        """Return what goes on from here."""
        return {
            "taken": self.taken,
            "shares": self.shares,
            "parameters": {layer.name: layer.trained.detach().clone() for layer in self.layers},
            "totals": self._total,
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a stored state."""
        with torch.no_grad():
            for layer in self.layers:
                layer.trained.copy_(state["parameters"][layer.name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.taken, self.shares = int(state["taken"]), list(state["shares"])
        self._total = dict(state["totals"])

    def _sums(self, chosen: Tensor) -> dict[str, Tensor]:
        """Return the sum of clipped gradients of each layer over a batch, in float64."""
        totals = {
            layer.name: torch.zeros(
                _matrix_shape(self._watched[layer.name]), device=self._device, dtype=torch.float64
            )
            for layer in self.layers
        }
        clipped, method = 0, self.settings.method
        for part in torch.split(chosen, self.settings.micro_batch):
            if not len(part):
                continue
            hooks = self.gradients(part)
            norms = hooks.squared_norms
            if isinstance(method, Clipped):
                factors = method.factors(norms)
                clipped += int(_any_below(factors).sum())
                factors = {name: held * (1 - ROUNDING) for name, held in factors.items()}
            else:
                factors = {name: torch.ones_like(held) for name, held in norms.items()}
            if isinstance(method, WithoutClipping):
                _check_bound(norms, method.bound)
            for name, value in hooks.sums(factors).items():
                totals[name] += value
        if isinstance(method, Clipped) and len(chosen):
            self.shares.append(clipped / len(chosen))
        return totals

    def gradients(self, part: Tensor) -> LinearHooks:
        """Return the per-example gradients of some records."""
        rows = taken(self.rows, part, self._device)
        hooks = self._hooks
        with hooks:
            hooks.backward(self._losses(rows))
        self.optimizer.zero_grad(set_to_none=True)
        return hooks

    def check_gradients(self, part: Tensor) -> None:
        """Hold the gradients of one of some records against autograd's.

        Raises:
            ValueError: they differ, as where a weight is used twice.
        """
        rows = taken(self.rows, part, self._device)
        check_gradients(self._hooks, lambda: self._losses(rows))
        self.optimizer.zero_grad(set_to_none=True)

    def losses(self, part: Tensor) -> Tensor:
        """Return the losses of some records, float64, in batches in their order."""
        with torch.no_grad():
            found = [
                self._losses(taken(self.rows, some, self._device))
                for some in torch.split(part, self.settings.micro_batch)
            ]
        return torch.cat(found).double().cpu()

    def _losses(self, rows: Rows) -> Tensor:
        """Return the losses of some records, float32."""
        with self._precision():
            losses = self.task.losses(self.task.outputs(self.model, rows), rows)
        check_losses(losses, len(next(iter(rows.values()))))
        return losses.float()

    def _precision(self) -> AbstractContextManager[Any]:
        if not self.settings.autocast:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def _released(self, place: int, layer: AdapterLayer, total: Tensor) -> Tensor:
        """Return what is published of one layer's sum."""
        method, projection = self.settings.method, layer.matrix_a
        if method.fresh:
            source = self.randomness.projection_seed(self.taken, place)
            drawn = random_projection(method.rank, layer.width, source)  # type: ignore[attr-defined]
            projection = drawn.to(total)
        normal = self.randomness.normal(self.taken, place)
        held = None if projection is None else projection.to(total)
        return method.publish(total, held, self.settings.noise_std, normal)

    def _unclipped(self, totals: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return G_t Aᵀ, without noise."""
        moves = {}
        for layer in self.layers:
            assert layer.matrix_a is not None
            moves[layer.name] = layer.scaling * totals[layer.name] @ layer.matrix_a.double().mT
        return moves

    def _noised_once(self) -> None:
        """Add the noise of all steps to B_T, of which no earlier B was ever seen.

        ``B_T − (η/n) s L E Aᵀ``: a step of gradient descent on the noise alone, and B_T on the grid
        of it as a whole, for the steps before left their low bits in B.
        """
        rate = float(self.optimizer.param_groups[0]["lr"]) / self.settings.expected
        for place, layer in enumerate(self.layers):
            assert layer.matrix_a is not None
            std = rate * self.settings.noise_std * layer.scaling
            normal = self.randomness.normal(self.taken, place)
            held, factor = layer.trained.detach().double(), layer.matrix_a.double()
            noisy = self.settings.method.publish(held, factor, std, normal)
            with torch.no_grad():
                layer.trained.copy_(noisy)

    def _move(self, moves: dict[str, Tensor]) -> None:
        for layer in self.layers:
            direction = moves[layer.name] / self.settings.expected
            if layer.matrix_b is None and layer.transposed:
                direction = direction.mT
            layer.trained.grad = direction.to(layer.trained.dtype).contiguous()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def make_optimizer(
    name: str, layers: Sequence[AdapterLayer], rate: float, momentum: float
) -> torch.optim.Optimizer:
    """Return Adam or gradient descent of what is trained."""
    parameters = [layer.trained for layer in layers]
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def check_losses(losses: Tensor, count: int) -> None:
    """Refuse losses that are not one for each record."""
    if not isinstance(losses, Tensor):
        raise ValueError(f"loss: expected a tensor, got {type(losses).__name__}")
    if losses.shape != (count,):
        raise ValueError(
            f"loss: expected one for each of {count} records, got shape {tuple(losses.shape)}"
        )


def _matrix_shape(module: nn.Module) -> tuple[int, int]:
    weight = module.weight
    assert isinstance(weight, Tensor)
    first, second = weight.shape
    return (first, second) if isinstance(module, nn.Linear) else (second, first)


def _any_below(factors: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(factors.values())).amin(dim=0) < 1.0


def _check_bound(squared_norms: dict[str, Tensor], bound: float) -> None:
    largest = float(torch.stack(list(squared_norms.values())).sum(dim=0).max()) ** 0.5
    if largest > bound:
        raise ValueError(
            f"bound: expected one that no record's gradient exceeds, got {bound:g}; clip instead, "
            "or bound the inputs"
        )
