"""Frozen networks that everyone shares: from inputs to features, with the layers described."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Of tacit/small the first blocks are enough, and so many tokens of a text.
BLOCKS, TOKENS = 2, 32
VISION_SEED = 20_261_123


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen network that is public and the same for everyone who is to be compared.

    Attributes:
        name: what a manifest calls it.
        module: from prepared inputs to features (n, d), in evaluation mode.
        layers: names of the linear and convolutional layers that are described.
        prepare: from a user's inputs to a tensor, records first.
        width: d.
    """

    name: str
    module: nn.Module
    layers: tuple[str, ...]
    prepare: Callable[[Any], Tensor]
    width: int

    def __post_init__(self) -> None:
        self.module.eval()
        for held in self.module.parameters():
            held.requires_grad_(False)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the form, the described layers and all weights."""
        found = hashlib.sha256(repr((str(self.module), self.layers)).encode())
        for name, held in self.module.state_dict().items():
            found.update(name.encode())
            found.update(held.detach().contiguous().numpy().tobytes())
        return f"sha256:{found.hexdigest()}"

    def features(self, inputs: Any) -> Tensor:
        """Return features (n, d), 250 records at a time."""
        with torch.no_grad():
            return torch.cat([self.module(part) for part in self.prepare(inputs).split(250)])


def vision_network() -> nn.Sequential:
    """Return three convolutions and a linear layer on 3 × 32 × 32, 124 thousand parameters."""
    blocks: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 96)):
        blocks += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU(),
                   nn.MaxPool2d(2)]  # fmt: skip
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(384, 128),
                         nn.ReLU())  # fmt: skip


def vision_backbone(network: nn.Module | None = None, *, name: str = "tacit/vision") -> Backbone:
    """Return the backbone of pictures (n, 3, 32, 32) in [0, 1].

    Args:
        network: weights of your own in the form of ``vision_network``; without, random ones, which
            no data had a part in: normal with variance 2 over the inputs of a unit, by a fixed seed
            of NumPy's PCG64.
        name: what a manifest calls it.
    """
    held = network if network is not None else _random(vision_network())
    # one layer: the noise of ε = 1 spreads over its 64 numbers at r = 1, and over no others
    return Backbone(name, held, ("4",), _pictures, 128)


def small_backbone() -> Backbone:
    """Return the first two blocks of ``tacit/small``: mean state of a text's first 32 tokens."""
    from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = Path(__file__).parents[2] / "models" / "small" / "stored"
    whole = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return Backbone("tacit/small", _FirstBlocks(whole), ("blocks.1.mlp.c_fc", "blocks.1.mlp.c_proj"),
                    functools.partial(_tokens, tokenizer), whole.config.n_embd)  # fmt: skip


class _FirstBlocks(nn.Module):
    """Mean over the tokens of the state after the first blocks; token −1 is padding."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.words, self.places = whole.transformer.wte, whole.transformer.wpe
        self.blocks = nn.ModuleList(whole.transformer.h[:BLOCKS])

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (n, d) from token numbers (n, t)."""
        held = tokens >= 0
        state = self.words(tokens.clamp(min=0)) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            found = block(state)
            state = found[0] if isinstance(found, tuple) else found
        weights = held / held.sum(dim=1, keepdim=True).clamp(min=1)
        return torch.einsum("ntd,nt->nd", state, weights)


def _pictures(inputs: Any) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(inputs, dtype=np.float32))


def _tokens(tokenizer: Any, texts: Any) -> Tensor:
    """Number the first tokens of every text; causal blocks never look at the padding after them."""
    found = torch.full((len(texts), TOKENS), -1)
    for row, numbers in zip(found, tokenizer(list(texts))["input_ids"], strict=True):
        row[: len(numbers[:TOKENS])] = torch.tensor(numbers[:TOKENS])
    return found


def _random(network: nn.Module) -> nn.Module:
    rng = np.random.Generator(np.random.PCG64(VISION_SEED))
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            shape = tuple(layer.weight.shape)
            spread = (2.0 / np.prod(shape[1:])) ** 0.5
            drawn = rng.standard_normal(shape).astype(np.float32) * np.float32(spread)
            layer.weight.data.copy_(torch.from_numpy(drawn))
            if layer.bias is not None:
                layer.bias.data.zero_()
    return network
