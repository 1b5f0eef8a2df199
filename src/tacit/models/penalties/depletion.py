"""The share of what tells prompts apart that lies where the prediction is read: q_B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit._ground.checks import integer
from tacit.models.penalties.step import Step, check_layers, check_weight


@dataclass(frozen=True)
class MarginDepletion:
    """λ q_B, ``q_B = tr(P S)/tr S``: the margin mass in the k leading directions of F.

    P is measured in every step, from the slopes of the log-likelihood of one sampled label a
    position (its own prediction and later ones, all of a window), and held fixed; S is the second
    moment of differences of the step's states at the same position of different windows, and the
    gradient flows through it. The paper names this regulariser as missing.

    q_B depends on coordinates: a network lowers it by writing the trunk in smaller numbers, which
    moves G_Mah and leaves M*. Judge what it did by M* (``least_signal``).

    Args:
        layers: where it is measured; the mean over them.
        weight: λ.
        rank: k.

    Raises:
        ValueError: an argument outside its range.

    Example:
        >>> MarginDepletion((3,), 0.1, rank=8).describe()["name"]
        'margin-depletion'

    Source: hidden-state, App. Z.7, Sec. 9.
    """

    layers: tuple[int, ...]
    weight: float
    rank: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", check_layers(self.layers))
        check_weight(self.weight)
        integer("rank", self.rank, minimum=1)

    def describe(self) -> dict[str, Any]:
        """Return its name and arguments."""
        return {"name": "margin-depletion", "layers": list(self.layers), "weight": self.weight,
                "rank": self.rank}  # fmt: skip

    def measure(self, step: Step) -> Tensor:
        """Return λ times the mean of q_B over the layers."""
        if len(step.windows) < 2:
            raise ValueError("batch: expected at least 2 windows, whose states differ, got 1")
        held = [step.states[layer] for layer in self.layers]
        logs = step.logits.float().log_softmax(dim=-1)
        chances = logs.detach().flatten(0, 1).exp().cpu()
        labels = torch.multinomial(chances, 1, generator=step.source).view(*logs.shape[:2], 1)
        likelihood = logs.gather(2, labels.to(logs.device)).sum()
        slopes = torch.autograd.grad(likelihood, held, retain_graph=True)
        shares = [
            margin_mass(state.float(), leading(slope.float(), self.rank))
            for state, slope in zip(held, slopes, strict=True)
        ]
        return self.weight * torch.stack(shares).mean()


@torch.no_grad()
def leading(slopes: Tensor, rank: int) -> Tensor:
    """Return the k leading directions of the second moment of slopes (…, d), as columns (d, k)."""
    rows = slopes.flatten(0, -2)
    vectors: Tensor = torch.linalg.eigh(rows.T @ rows)[1]
    return vectors[:, -min(rank, vectors.shape[1]) :]


def margin_mass(states: Tensor, basis: Tensor) -> Tensor:
    """Return tr(P S)/tr S of differences of states (n, T, d) from the next window's."""
    differences = states - states.roll(1, dims=0)
    return (differences @ basis).square().sum() / differences.square().sum()
