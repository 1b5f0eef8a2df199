"""Small runs that several tests share."""

import numpy as np
import torch

from tacit.training import Indistinguishable, References


def squares(model, inputs, targets):
    """Squared errors, one per example."""
    return (model(inputs) - targets).square().sum(dim=1)


def task(seed=0, size=10, columns=4):
    """A model of 20 parameters with ten examples."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(columns, 2), torch.nn.Tanh(), torch.nn.Linear(2, 3))
    inputs = torch.randn(size, columns, generator=generator, dtype=torch.float64)
    targets = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    return model.double(), inputs, targets


def run_of(model, count=5, rounds=4, **options):
    """A run of plain gradient steps, lr 1."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    given = {"mu": 1.0, **options}
    return Indistinguishable(
        model, optimizer, References.leave_out(count), loss=squares, rounds=rounds, **given
    )


def flat(model):
    """The parameters as one vector."""
    return torch.cat([p.detach().ravel() for p in model.parameters()]).numpy().copy()


def gradients(model, inputs, targets):
    """Per-example gradients, (B, p), by ordinary autograd one after the other."""
    rows = []
    for i in range(len(inputs)):
        loss = squares(model, inputs[i : i + 1], targets[i : i + 1])[0]
        parts = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.cat([part.ravel() for part in parts]).numpy())
    return np.array(rows)
