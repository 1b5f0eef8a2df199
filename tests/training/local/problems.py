"""Small models with a batch each, and the naive computation of local steps."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Transformer(nn.Module):
    """Two layers of attention with tied embedding and head."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
            for _ in range(2)
        )

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden @ self.embedding.weight.T


def next_token_losses(model, tokens, targets):
    logits = model(tokens)
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(dim=1)


def class_losses(model, images, labels):
    return F.cross_entropy(model(images), labels, reduction="none")


def convolutions(*extra):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        *extra,
        nn.GELU(),
        nn.Conv2d(4, 3, 3, stride=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


def problem(kind, size=8, dtype=torch.float64):
    """Return (model, loss, inputs, targets), the same every time."""
    torch.manual_seed(3)
    if kind == "transformer":
        tokens = torch.randint(11, (size, 6))
        return Transformer().to(dtype), next_token_losses, tokens[:, :-1], tokens[:, 1:]
    images, labels = torch.randn(size, 2, 6, 6, dtype=dtype), torch.randint(5, (size,))
    extra = {"cnn": (), "batch norm": (nn.BatchNorm2d(4),), "dropout": (nn.Dropout(0.4),)}[kind]
    return convolutions(*extra).to(dtype), class_losses, images, labels


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3),
    "momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
}


def naive_outcome(model, loss, inputs, targets, steps, optimizer):
    """The trainable parameters after full-batch steps on a copy."""
    own = copy.deepcopy(model)
    parameters = [one for one in own.parameters() if one.requires_grad]
    stepper = optimizer(parameters)
    for _ in range(steps if len(targets) else 0):
        stepper.zero_grad()
        loss(own, inputs, targets).mean().backward()
        stepper.step()
    return torch.cat([one.detach().reshape(-1) for one in parameters]).double().numpy()


def naive(model, loss, inputs, targets, membership, steps, optimizer, groups=1):
    """The outcome and the differences, every reference on every sub-group, one after the other."""

    def outcome(kept):
        ends = []
        for part in np.array_split(np.arange(len(targets)), groups):
            chosen = part[kept[part]]
            state = torch.get_rng_state()
            ends.append(
                naive_outcome(model, loss, inputs[chosen], targets[chosen], steps, optimizer)
            )
            torch.set_rng_state(state)
        return np.mean(ends, axis=0)

    real = outcome(np.ones(len(targets), dtype=bool))
    return real, np.stack([outcome(np.asarray(kept)) for kept in membership]) - real
