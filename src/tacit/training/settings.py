"""How a round is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tacit._ground.checks import choice, integer

GRAMS = ("exact", "forward", "none")
NOISES = ("optimal", "isotropic")
WAYS = ("auto", "vmap", "processes", "loop")


@dataclass(frozen=True, kw_only=True)
class LocalSteps:
    """K steps of a black-box optimiser in every round, on U and on every reference.

    Args:
        steps: K >= 1.
        optimizer: makes a fresh optimiser of a list of parameters.
        groups: L sub-groups whose outcomes are averaged; a reference reruns only its own.
        way: ``"vmap"`` over references, ``"processes"``, ``"loop"``, or ``"auto"``.

    Example:
        >>> import torch
        >>> LocalSteps(steps=5, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)).groups
        1

    Source: dsi, Algorithm 2 and Eq. 36.
    """

    steps: int
    optimizer: Callable[[Iterable[Any]], Any]
    groups: int = 1
    way: Literal["auto", "vmap", "processes", "loop"] = "auto"

    def __post_init__(self) -> None:
        integer("steps", self.steps, minimum=1)
        integer("groups", self.groups, minimum=1)
        choice("way", self.way, WAYS)
        if not callable(self.optimizer):
            found = type(self.optimizer).__name__
            raise ValueError(f"optimizer: expected a function of the parameters, got {found}")
