"""A small model for a task, trained in a second and stored as safetensors."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.specifications.seeds.material import Material

if TYPE_CHECKING:
    import torch

WORDS, WIDTH = 4096, 16
EPOCHS, BATCH, RATE, DECAY = 20, 50, 5e-3, 0.01


def trained(material: Material) -> torch.nn.Module:
    """Return a model from the inputs of a task to its logits.

    Images are halved twice and read by one hidden layer; of a text the hashed words are counted.
    """
    import torch

    inputs = prepared(material.modality, material.inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = _network(material)
        _fit(network, inputs, torch.from_numpy(material.labels))
    return network.eval()


def stored(network: torch.nn.Module) -> bytes:
    """Return the safetensors file of a model's weights."""
    from safetensors.torch import save

    return save({name: held.contiguous() for name, held in network.state_dict().items()})


def accuracy(network: torch.nn.Module, material: Material) -> float:
    """Return the share of a user's records that the model names right."""
    import torch

    with torch.no_grad():
        said = network(prepared(material.modality, material.user_inputs)).argmax(dim=1).numpy()
    return float((said == material.user_labels).mean())


def prepared(modality: str, inputs: Any) -> torch.Tensor:
    """Return images as they are, (n, 3, 32, 32), and texts as counts of hashed words, (n, 4096)."""
    import torch

    if modality == "image":
        return torch.from_numpy(inputs)
    return torch.from_numpy(hashed(inputs))


def hashed(texts: list[str]) -> NDArray[np.float32]:
    """Return how often each hash of a word occurs, divided by how many words there are."""
    counts = np.zeros((len(texts), WORDS), dtype=np.float32)
    for row, text in zip(counts, texts, strict=True):
        numbers = [zlib.crc32(word.encode()) % WORDS for word in text.lower().split()]
        np.add.at(row, numbers, 1.0 / max(len(numbers), 1))
    return counts


def _network(material: Material) -> torch.nn.Module:
    from torch import nn

    labels = len(material.names)
    if material.modality == "text":
        return nn.Sequential(nn.Linear(WORDS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, labels))
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, labels)
    )


def _fit(network: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    import torch

    # the functional form: its class imports the compiler of torch, which takes longer than a fit
    step, weights = _adamw(network), list(network.parameters())
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            loss = torch.nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            step(list(torch.autograd.grad(loss, weights)))


def _adamw(network: torch.nn.Module) -> Callable[[list[torch.Tensor]], None]:
    """Return what moves the weights of a network by their gradients, as ``torch.optim.AdamW``."""
    import torch
    from torch.optim.adamw import adamw

    weights: list[torch.Tensor] = list(network.parameters())
    means, squares = ([torch.zeros_like(held) for held in weights] for _ in range(2))
    steps = [torch.zeros(()) for _ in weights]

    @torch.no_grad()
    def step(gradients: list[torch.Tensor]) -> None:
        adamw(
            weights, gradients, means, squares, [], steps, foreach=False, capturable=False,
            differentiable=False, fused=False, grad_scale=None, found_inf=None, has_complex=False,
            amsgrad=False, beta1=0.9, beta2=0.999, lr=RATE, weight_decay=DECAY, eps=1e-8,
            maximize=False,
        )  # fmt: skip

    return step
