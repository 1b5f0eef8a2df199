"""An Opacus accountant: exact composition for a `PrivacyEngine`, and the noisy projection M2."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

from tacit._ground.checks import choice, in_interval, integer, non_negative
from tacit._ground.lazy import install_with
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.projection import ProjectedSteps, noisy_projection_steps
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian
from tacit.guarantees.adjacency import Adjacency, Neighbours

try:
    from opacus.accountants import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        IAccountant,
        register_accountant,
    )
except ImportError as error:
    raise ImportError(
        f"tacit.accounting.exchange.opacus needs Opacus: {install_with('opacus')}"
    ) from error

# Under which Opacus knows it, and what it accounts for.
NAME = "tacit"
MECHANISMS = ("gaussian", "noisy-projection")


class TacitAccountant(IAccountant):  # type: ignore[misc, unused-ignore]
    """What an Opacus `PrivacyEngine` has spent, composed exactly and rounded up.

    ``PrivacyEngine(accountant="tacit")`` uses it for DP-SGD once this module is imported. For M2,
    assign ``engine.accountant = TacitAccountant(mechanism="noisy-projection", rank=r, dim=d)``
    before ``make_private`` and multiply each step's noisy gradient by a fresh Wishart matrix of
    rank r before anything else sees it: only M(V + Ξ) may leave the step. M itself may be public.

    Args:
        mechanism: ``"gaussian"`` (the noisy gradient is released) or ``"noisy-projection"``.
        rank: r of the projection; with ``"noisy-projection"`` only.
        dim: d, the dimension that is projected; with ``"noisy-projection"`` only.
        difference_rank: 1 where one record changes the gradient by a rank-one matrix; None for
            every spectrum.
        neighbours: ``"add-remove"`` or ``"replace"`` one record.

    Raises:
        ValueError: An argument is not what it should be, or a rank or dimension without a
            projection.

    Source: lora-privacy, Theorem 5 and Appendix F.2, with the exact mixture for its bound.
    """

    def __init__(
        self,
        mechanism: Literal["gaussian", "noisy-projection"] = "gaussian",
        *,
        rank: int | None = None,
        dim: int | None = None,
        difference_rank: int | None = None,
        neighbours: Neighbours = "add-remove",
    ) -> None:
        # (noise multiplier, sampling rate, steps), as Opacus keeps it
        self.history: list[tuple[float, float, int]] = []
        self._set(
            choice("mechanism", mechanism, MECHANISMS),
            rank,
            dim,
            difference_rank,
            Adjacency.read("neighbours", neighbours).value,
        )

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record one optimiser step.

        Args:
            noise_multiplier: Noise standard deviation over the clipping norm, >= 0.
            sample_rate: Probability in [0, 1] that a record is in the step's batch.

        Raises:
            ValueError: A number is out of range; nothing is recorded.
        """
        noise = non_negative("noise_multiplier", noise_multiplier)
        rate = in_interval("sample_rate", sample_rate, 0.0, 1.0)
        # equal steps in a row are one entry, as Opacus stores them
        steps = 0
        if self.history and self.history[-1][:2] == (noise, rate):
            steps = self.history.pop()[2]
        self.history.append((noise, rate, steps + 1))

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Return the smallest ε at ``delta`` for all steps so far, rounded up; 0 before the first.

        Args:
            delta: δ in [0, 1].
            args: Ignored; other accountants take tolerances here.
            kwargs: Ignored, likewise.

        Raises:
            ValueError: ``delta`` is outside [0, 1].
        """
        failure = in_interval("delta", delta, 0.0, 1.0)
        if not self.history:
            return 0.0
        # a step without noise on some record has no profile: nothing is bounded but at δ = 1
        if any(noise == 0 and rate > 0 for noise, rate, _ in self.history):
            return 0.0 if failure == 1 else math.inf
        return self.profile().epsilon(failure)

    def profile(self) -> PrivacyProfile:
        """Return the privacy profile of all steps so far.

        Raises:
            ValueError: There was no step yet, or one had no noise.
        """
        # composition does not depend on the order: equal steps are composed at once
        merged: dict[tuple[float, float], int] = {}
        for noise, rate, steps in self.history:
            merged[noise, rate] = merged.get((noise, rate), 0) + steps
        if not merged:
            raise ValueError("history: expected at least one step, got none")
        parts = [self._steps(noise, rate, steps) for (noise, rate), steps in merged.items()]
        return reduce(PrivacyProfile.compose, parts)

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the name under which Opacus knows this accountant."""
        return NAME

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Return the function that an Opacus optimiser calls after every step.

        Args:
            sample_rate: Expected sampling rate of one batch.
        """
        hook: Callable[[Any], None] = super().get_optimizer_hook_fn(sample_rate)
        return hook

    def state_dict(self, destination: Any = None) -> Any:
        """Return the history and what it is the history of, for a checkpoint."""
        state = super().state_dict(destination)
        state["tacit"] = dict(self._kind)
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: It is empty, of another accountant, or of another mechanism than this one.
        """
        # a checkpoint of another mechanism would be composed as this one
        kind = dict(self._kind) if not state_dict else state_dict.get("tacit", self._kind)
        if kind != self._kind:
            raise ValueError(f"state_dict: expected steps of {self._kind!r}, got {kind!r}")
        super().load_state_dict(state_dict)

    def _set(
        self,
        mechanism: str,
        rank: int | None,
        dim: int | None,
        difference_rank: int | None,
        neighbours: str,
    ) -> None:
        self._kind: dict[str, Any] = {"mechanism": mechanism, "neighbours": neighbours}
        # what only the projection has must not be given without it
        given = {"rank": rank, "dim": dim, "difference_rank": difference_rank}
        if mechanism == "gaussian":
            extra = [name for name, value in given.items() if value is not None]
            if extra:
                raise ValueError(f"{extra[0]}: expected none with mechanism 'gaussian'")
            return
        if dim is None or rank is None:
            raise ValueError("rank, dim: expected both with mechanism 'noisy-projection'")
        size = integer("dim", dim, minimum=2)
        self._kind |= {
            "dim": size,
            "rank": integer("rank", rank, minimum=1),
            "difference_rank": None
            if difference_rank is None
            else integer("difference_rank", difference_rank, minimum=1, maximum=size),
        }

    def _steps(self, noise: float, rate: float, steps: int) -> PrivacyProfile:
        # the gradient itself, or what a projection leaves of it
        neighbours = self._kind["neighbours"]
        if self._kind["mechanism"] == "gaussian":
            return subsampled_gaussian(rate, noise, steps, neighbours)
        work = ProjectedSteps(
            dim=self._kind["dim"],
            rank=self._kind["rank"],
            steps=steps,
            sampling_rate=rate,
            difference_rank=self._kind["difference_rank"],
            neighbours=neighbours,
        )
        return noisy_projection_steps(work, noise)


register_accountant(NAME, TacitAccountant, force=True)
