"""A step of one's own loop made private, beside a plain one and Opacus', in one run.

Steps of all four alternate and the least CPU time of each counts, of steps 1, 2 and 4 of ours with another backward pass
that holds records apart; the ratio is that to the plain step, forward pass, backward pass and SGD step included in all. Opacus runs by hooks and by ghost norms where it is installed.
"""  # noqa: E501

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from rich.console import Console
from tests.training.networks import Residual, losses, resnet20
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.gradients import DPSGD
from tacit.gradients.given import GivenNoise
from tacit.training import make_private


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    console = Console()
    for name in options.models.split(","):
        console.print(f"{name}, {options.batch} records a step", highlight=False)
        least = compare(name, options.batch, options.rounds)
        for kind, seconds in least.items():
            ratio = seconds / least["plain"]
            console.print(f"{kind:15}{seconds:9.3f} s{ratio:9.2f} × plain", highlight=False)


def images(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))


def resnet18() -> nn.Module:
    """ResNet-18 with GroupNorm for 32 × 32 images."""
    blocks: list[nn.Module] = []
    channels = 64
    for out in (64, 128, 256, 512):
        for index in range(2):
            stride = 2 if index == 0 and out > 64 else 1
            blocks.append(Residual(channels, out, stride, nn.ReLU))
            channels = out
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def texts(batch: int, length: int = 64) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, 1000, (batch, length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Logits(nn.Module):
    """What a model of transformers returns, as a tensor."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.inner(input_ids=tokens, use_cache=False).logits
        return found


def llama(width: int = 128, length: int = 64) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return Logits(
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=1000, hidden_size=width, intermediate_size=2 * width,
                num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=length,
            )
        )
    )  # fmt: skip


def adapted(width: int = 128, length: int = 64) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    inner: Any = llama(width, length).inner
    return Logits(get_peft_model(inner, LoraConfig(r=8, target_modules="all-linear")))


Make = Callable[[int], tuple[Tensor, Tensor]]
MODELS: dict[str, tuple[Callable[[], nn.Module], Make]] = {
    "resnet20": (resnet20, images),
    "resnet18": (resnet18, images),
    "llama": (llama, texts),
    "llama-lora": (adapted, texts),
    "wide": (partial(llama, 256, 128), partial(texts, length=128)),
    "wide-lora": (partial(adapted, 256, 128), partial(texts, length=128)),
}


def plain(name: str, batch: int) -> Callable[[], None]:
    """The step of a loop without privacy."""
    model, optimizer, inputs, targets = parts(name, batch)

    def step() -> None:
        optimizer.zero_grad()
        losses(model, inputs, targets).mean().backward()
        optimizer.step()

    return step


def parts(name: str, batch: int) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    torch.manual_seed(0)
    build, make = MODELS[name]
    model = build()
    free = [one for one in model.parameters() if one.requires_grad]
    return model, torch.optim.SGD(free, lr=1e-3), *make(batch)


def ours(name: str, batch: int) -> Callable[[], None]:
    """The same loop, private: all records are drawn in every step."""
    model, optimizer, inputs, targets = parts(name, batch)
    private = make_private(
        model, optimizer, DataLoader(TensorDataset(inputs, targets), batch_size=batch), DPSGD(),
        GivenNoise(multiplier=1.0, delta=1e-5), epochs=1000,
    )  # fmt: skip

    def batches() -> Iterator[Any]:
        while True:
            yield from private.loader

    every = batches()

    def step() -> None:
        taken, wanted = next(every)
        private.backward(losses(model, taken, wanted))
        optimizer.step()

    return step


def opacus(name: str, batch: int, *, ghost: bool) -> Callable[[], None]:
    """A step of Opacus' hooks, or of its ghost norms."""
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    model, optimizer, inputs, targets = parts(name, batch)
    given = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
    model.train()
    if ghost:
        watched: Any = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean", strict=False
        )
        private: Any = DPOptimizerFastGradientClipping(optimizer, **given)
    else:
        watched = GradSampleModule(model, strict=False)
        private = DPOptimizer(optimizer, **given)

    def step() -> None:
        private.zero_grad()
        found = losses(watched, inputs, targets)
        if ghost:
            DPTensorFastGradientClipping(watched, private, found, "mean").backward()
        else:
            found.mean().backward()
        private.step()

    return step


def compare(name: str, batch: int, rounds: int) -> dict[str, float]:
    """Least CPU seconds of each kind of step, alternating; what fails is left out."""
    runs = {"plain": plain(name, batch), "ours": ours(name, batch)}
    if importlib.util.find_spec("opacus") is not None:
        runs["Opacus hooks"] = opacus(name, batch, ghost=False)
        runs["Opacus ghost"] = opacus(name, batch, ghost=True)
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for turn in range(rounds + 1):
        for kind in list(runs):
            start = time.process_time()
            try:
                runs[kind]()
            except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
                print(f"{kind} is left out: {type(error).__name__}: {error}"[:160])
                del runs[kind], times[kind]
                continue
            if turn:
                times[kind].append(time.process_time() - start)
    return {kind: min(found) for kind, found in times.items()}


if __name__ == "__main__":
    main()
