"""How a round is computed, as values, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tacit._ground.reprs import short_repr
from tacit._ground.values import Count, value

NoiseOfRounds: TypeAlias = Literal["optimal", "isotropic"]
Gram: TypeAlias = Literal["exact", "forward", "none"]
Way: TypeAlias = Literal["auto", "vmap", "processes", "loop"]


@value
class OneStep:
    """One step along the noisy mean gradient, or any outcome and its noise.

    Args:
        noise: optimal is the least noise that keeps every difference in its budget. isotropic, to
            compare with, has the same certificate: N(0, σ²) in every parameter with σ² = max_r
            ‖z_r‖²/g_r.
        gram: What shapes the noise: the inner products of all gradients (exact), of the last
            layer's (forward), or none. Every choice is sound; the last two need more noise.

    Example:
        >>> OneStep(noise="isotropic", gram="forward")
        Traceback (most recent call last):
        ValueError: gram: expected 'exact' beside isotropic noise, got 'forward'

    Source: dsi, Theorem 3.3 and Algorithm 1.
    """

    panel: ClassVar[str] = "Rounds"

    noise: NoiseOfRounds = "optimal"
    gram: Gram = "exact"

    def _together(self) -> None:
        if self.noise == "isotropic" and self.gram != "exact":
            raise ValueError(f"gram: expected 'exact' beside isotropic noise, got {self.gram!r}")


@value
class LocalSteps:
    """K steps of a black-box optimizer in every round, on U and on every reference.

    Args:
        steps: K >= 1.
        optimizer: Makes a fresh optimizer of a list of parameters.
        groups: L sub-groups whose outcomes are averaged; a reference reruns only its own.
        way: vmap over references, processes, loop, or auto.
        noise: As of `OneStep`.

    Example:
        >>> import torch
        >>> LocalSteps(steps=5, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)).groups
        1

    Source: dsi, Algorithm 2 and Eq. 36.
    """

    steps: Count
    optimizer: Callable[[Iterable[Any]], Any]
    groups: Count = 1
    way: Way = "auto"
    noise: NoiseOfRounds = "optimal"

    def _together(self) -> None:
        if not callable(self.optimizer):
            found = type(self.optimizer).__name__
            raise ValueError(f"optimizer: expected a function of the parameters, got {found}")


@short_repr
@dataclass(frozen=True, kw_only=True)
class Round:
    """What became of one round.

    Attributes:
        number: rounds applied so far, this one included.
        loss: mean loss of the real batch before the step. It is measured on the data without
            noise: it is for whoever trains, and no part of the release.
        taking_part: how many references differ from the real input in the round.
        energy: E‖noise‖² of what was added to the mean gradient or the parameters, by the Gram
            matrix known; None without one.
        gap: certified relative distance of the energy from the least possible.
    """

    number: int
    loss: float | None
    taking_part: int
    energy: float | None
    gap: float | None
