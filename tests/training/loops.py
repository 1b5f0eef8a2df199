"""A small network trained in a loop of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tacit.gradients import DPSGD, AdaptiveDPSGD
from tacit.gradients.given import GivenNoise
from tacit.training import FixedOrder, LoopSettings, PrivateLoop, make_private

NOISE = GivenNoise(multiplier=1.0, delta=1e-3)


# What a stream is trained by: no coin draws its records.
AS_THEY_COME: dict[str, Any] = {
    "sampling": FixedOrder(shuffled=False),
    "promise": GivenNoise(multiplier=1.0, delta=1e-3, adjacency="replace"),
}


def method_of(kind: str) -> DPSGD:
    """The clip of ``ddp`` follows the gradients of all processes, that of others stays."""
    return AdaptiveDPSGD(clip=0.5, rate=1.0) if kind == "ddp" else DPSGD()


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def records(count: int = 24) -> TensorDataset:
    source = torch.Generator().manual_seed(2)
    return TensorDataset(
        torch.randn(count, 6, generator=source), torch.randint(3, (count,), generator=source)
    )


class Stream(IterableDataset[tuple[Tensor, ...]]):
    """Records that come one after the other, from the first again where there are more.

    Args:
        count: how many come.
        given: the records.
    """

    def __init__(self, count: int = 24, given: TensorDataset | None = None) -> None:
        every = records() if given is None else given
        self.rows = [every[place % len(every)] for place in range(count)]

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return iter(self.rows)


def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), targets, reduction="none")


def begun(
    model: nn.Module,
    data: Any = None,
    *,
    rate: float = 0.1,
    batch: int = 8,
    epochs: int = 1,
    seed: int | None = 3,
    method: DPSGD | None = None,
    promise: Any = NOISE,
    **options: Any,
) -> tuple[PrivateLoop, torch.optim.Optimizer]:
    """Return a loop and its optimizer; settings of the loop by their names."""
    book = {name: options.pop(name) for name in ("ledger", "secret") if name in options}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    private = make_private(
        model, optimizer, DataLoader(data or records(), batch_size=batch), method or DPSGD(),
        promise, epochs=epochs, settings=LoopSettings(seed=seed, **options), **book,
    )  # fmt: skip
    return private, optimizer


def finish(private: PrivateLoop, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """Take the steps that are left and return the release."""
    for _ in private.epochs:
        for inputs, targets in private.loader:
            private.backward(losses(model, inputs, targets))
            optimizer.step()
    return private.release()


def trained(model: nn.Module | None = None, **options: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the release of a whole loop and what it trained."""
    model = network() if model is None else model
    private, optimizer = begun(model, **options)
    release = finish(private, model, optimizer)
    return release, {name: one.detach().clone() for name, one in model.state_dict().items()}


def released() -> Any:
    return trained(seed=None)[0]


def streamed() -> Any:
    return trained(data=Stream(), records=24, seed=None, **AS_THEY_COME)[0]
