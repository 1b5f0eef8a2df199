"""One small network for every way in which a layer holds its parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from transformers.pytorch_utils import Conv1D

from tests.training.networks import Transformer, resnet20

B = 6


class Through(nn.Module):
    """A network as a function of its modules and parameters."""

    def __init__(self, call: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, values: Tensor) -> Tensor:
        return self.call(self, values)


def vectors(*shape: int) -> Tensor:
    return torch.randn(B, *shape)


def tokens(length: int = 5, count: int = 11) -> Tensor:
    return torch.randint(0, count, (B, length))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def scaled(model: nn.Module) -> nn.Module:
    """Move scales and shifts off their starting values 1 and 0."""
    for one in model.parameters():
        if one.ndim == 1:
            one.data += 0.3 * torch.randn_like(one)
    return model


def frozen_first() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


def fixed_batch_norm() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    model[1].eval()
    return model


def attention(batch_first: bool) -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        values = values if batch_first else values.transpose(0, 1)
        mixed = self.attend(values, values, values, need_weights=False)[0]
        return mixed if batch_first else mixed.transpose(0, 1)

    return Through(call, attend=nn.MultiheadAttention(6, 2, batch_first=batch_first))


def encoder() -> nn.Module:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), 2,
        mask_check=False,
    )  # fmt: skip


def class_token() -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        whole = torch.cat([self.token.expand(len(values), -1, -1), values], dim=1)
        return self.head(whole + self.places[:, : whole.shape[1]]) * self.scale

    return Through(call, token=parameter(1, 1, 4), places=parameter(1, 9, 4),
                   head=nn.Linear(4, 3), scale=parameter(3))  # fmt: skip


def positions() -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        places = torch.arange(values.shape[1])
        return self.head(self.words(values) + self.places(places) - self.shift)

    return Through(call, words=nn.Embedding(11, 4, padding_idx=2), places=nn.Embedding(7, 4),
                   shift=parameter(1), head=Conv1D(3, 4))  # fmt: skip


def tied() -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        states = torch.tanh(self.words(values))
        return states @ self.words.weight.T + functional.linear(states, self.words.weight)

    return Through(call, words=nn.Embedding(11, 4))


def twice() -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(values))) / self.scale

    return Through(call, layer=nn.Linear(4, 4), scale=nn.Parameter(torch.rand(4) + 1.0))


def sequence_first() -> nn.Module:
    def call(self: nn.Module, values: Tensor) -> Tensor:
        return self.norm(self.layer(values.transpose(0, 1))).transpose(0, 1)

    return Through(call, layer=nn.Linear(4, 3), norm=nn.LayerNorm(3))


def recurrent() -> nn.Module:
    return Through(lambda self, values: self.cells(values)[0],
                   cells=nn.LSTM(4, 3, batch_first=True))  # fmt: skip


# Kinks are left to a test of their own: rounding decides on which side of one an input is.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(4, 3), lambda: vectors(4)),
    "linear of rank 3": (lambda: nn.Linear(4, 3), lambda: vectors(5, 4)),
    "linear of rank 4": (lambda: nn.Linear(9, 3, bias=False), lambda: vectors(2, 2, 9)),
    "convolution 1d": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), lambda: vectors(3, 9)),
    "convolution 2d": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, dilation=2, padding="same"), nn.ReLU(True),
                              nn.Conv2d(4, 6, 3, stride=2, groups=2, padding=(1, 0))),
        lambda: vectors(2, 8, 8),
    ),
    "depthwise": (lambda: nn.Conv2d(3, 6, 3, groups=3, bias=False), lambda: vectors(3, 4, 4)),
    "large kernel": (lambda: nn.Conv2d(3, 8, 5, groups=1), lambda: vectors(3, 5, 5)),
    "uneven padding": (lambda: nn.Conv2d(2, 3, 2, padding="same"), lambda: vectors(2, 4, 4)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 3), lambda: vectors(2, 4, 4)),
    "embedding": (lambda: nn.Embedding(11, 4, padding_idx=3), tokens),
    "layer norm": (lambda: nn.LayerNorm(4), lambda: vectors(5, 4)),
    "layer norm of two": (lambda: nn.LayerNorm((5, 4), bias=False), lambda: vectors(5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), lambda: vectors(4, 3, 3)),
    "group norm of rank 2": (lambda: nn.GroupNorm(2, 4), lambda: vectors(4)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), lambda: vectors(3, 4, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), lambda: vectors(5, 4)),
    "fixed batch norm": (fixed_batch_norm, lambda: vectors(2, 5, 5)),
    "attention": (lambda: attention(True), lambda: vectors(5, 6)),
    "attention, sequence first": (lambda: attention(False), lambda: vectors(5, 6)),
    "encoder": (encoder, lambda: vectors(5, 6)),
    "class token": (class_token, lambda: vectors(5, 4)),
    "positions": (positions, tokens),
    "weight norm": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), nn.PReLU(3)),
        lambda: vectors(4),
    ),
    "tied": (tied, tokens),
    "twice": (twice, lambda: vectors(4)),
    "sequence first": (sequence_first, lambda: vectors(5, 4)),
    "as many positions as examples": (positions, lambda: tokens(B)),
    "recurrent": (recurrent, lambda: vectors(5, 4)),
    "frozen parts": (frozen_first, lambda: vectors(4)),
    "resnet20": (lambda: resnet20(nn.SiLU), lambda: vectors(3, 32, 32)),
    "transformer": (lambda: Transformer(40, 16, 12), lambda: tokens(12, 40)),
}  # fmt: skip


def case(name: str, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """The network of a case, a batch and its targets."""
    torch.manual_seed(seed)
    make, batch = CASES[name]
    model, inputs = scaled(make()), batch()
    with torch.no_grad():
        targets = torch.randn_like(model(inputs))
    return model, inputs, targets


def curved(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of any outputs, one per example."""
    missed = model(inputs) - targets
    return (missed**2 + 0.1 * missed**3).reshape(len(targets), -1).mean(dim=1)
