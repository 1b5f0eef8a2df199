"""Small runs that several tests share."""

import numpy as np
import torch

from tacit import Run
from tacit.training import Beside, Indistinguishable, OneStep, References


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


def made(
    model, optimizer, references, *, loss, rounds, local=None, ledger=None, secret=None, rng=None,
    **asked,
):  # fmt: skip
    """A run that has begun, from flat settings."""

    def some(*names):
        return {name: asked.pop(name) for name in names if name in asked}

    promise = Beside(references=references, **some("epsilon", "delta", "mu", "participations"))
    run = Run(steps=rounds, progress=False, **some("checkpoint", "about"))
    method = local or OneStep(**some("noise", "gram"))
    assert not asked, asked
    return Indistinguishable(
        model, optimizer, promise, loss=loss, run=run, method=method, rng=rng
    ).begin(ledger=ledger, secret=secret)


def run_of(model, count=5, rounds=4, **options):
    """A run of plain gradient steps, lr 1."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    given = {"mu": 1.0, **options}
    return made(model, optimizer, References.leave_out(count), loss=squares, rounds=rounds, **given)


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


def released():
    """The release of four rounds beside five references of different budgets."""
    model, inputs, targets = task()
    run = run_of(model, mu=None, epsilon=[1.0, 2.0, 2.0, 4.0, 0.5], delta=1e-5)
    for _ in range(4):
        run.step((inputs, targets), np.arange(10) % 5)
    return run.release("a toy")
