"""The networks that training is tested and measured on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(
        self, channels: int, out: int, stride: int, activation: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.GroupNorm(2, out), activation(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.GroupNorm(2, out),
        )  # fmt: skip
        self.activation = activation()
        self.shortcut: nn.Module = nn.Identity()
        if channels != out:
            self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        return self.activation(self.body(values) + self.shortcut(values))


def resnet20(activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """ResNet-20 with GroupNorm for 32 × 32 images."""
    blocks: list[nn.Module] = []
    channels = 16
    for out in (16, 32, 64):
        for index in range(3):
            blocks.append(Residual(channels, out, 2 if index == 0 and out > 16 else 1, activation))
            channels = out
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(2, 16), activation(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each after a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, values: Tensor) -> Tensor:
        count, length, width = values.shape
        joint = self.joint(self.before(values)).view(count, length, 3, self.heads, -1)
        queries, keys, contents = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, contents, is_causal=True)
        values = values + self.out(mixed.transpose(1, 2).reshape(count, length, width))
        return values + self.feed(self.after(values))


class Transformer(nn.Module):
    """A causal transformer whose head is its embedding."""

    def __init__(self, vocabulary: int = 1024, width: int = 128, length: int = 64) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.blocks(self.tokens(tokens) + self.positions(places))
        return functional.linear(self.norm(states), self.tokens.weight)


def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of every example, a mean over its positions."""
    logits = model(inputs)
    flat = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.flatten(),
                           reduction="none")  # fmt: skip
    return flat.view(len(targets), -1).mean(dim=1)
