"""Canaries in a loop: gradients of nobody, in or out by a coin, and how many coins are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit._ground.values import Count, value
from tacit.attacks import OneRunAudit, audit_one_run, coins
from tacit.guarantees import ApproximateDP
from tacit.releases import Attack
from tacit.text import number_down, number_up
from tacit.training.retraining import CONFIDENCE, share_of

# Fewer canaries can prove next to nothing.
LEAST = 16


@value
class LoopAudit:
    """Canaries that audit a loop as it runs.

    A canary is a record whose gradient is C in one entry and 0 elsewhere, in or out by a fair coin,
    drawn into steps as every record is. The attacker sees every noised sum: it guesses the coins by
    what stands in the canaries' entries, summed over all steps. That costs the model the canaries'
    gradients, and no record any privacy.

    Args:
        canaries: m, each at an entry of its own: a loop of few parameters has room for few.

    Source: Steinke, Nasr and Jagielski (2023), Algorithm 1; Nasr et al. (2023), Dirac canaries.
    """

    canaries: Count = 256

    def _together(self) -> None:
        if self.canaries < LEAST:
            raise ValueError(
                f"canaries: expected at least {LEAST}, of which fewer prove nothing, got "
                f"{self.canaries}"
            )


@dataclass
class DiracCanaries:
    """The canaries of one loop: where each stands, whether it is in, and what was seen there.

    Attributes:
        inside: (m,) the coins.
        places: (m,) entry of each in all parameters behind each other.
        seen: (m,) sums over steps of what was released there.
        starts: where every parameter begins, by name, and how many entries it has.
        draws: gives those of so many that a step draws.
        drawn: (m,) which of them the step has that is taken.
    """

    inside: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]
    seen: npt.NDArray[np.float64]
    starts: Mapping[str, tuple[int, int]]
    draws: Callable[[int, int], Tensor]
    drawn: npt.NDArray[np.bool_]

    @staticmethod
    def of(
        audit: LoopAudit,
        parameters: Mapping[str, Tensor],
        draws: Callable[[int, int], Tensor],
        seed: int | None,
    ) -> DiracCanaries:
        """Place canaries at entries that differ, and toss their coins.

        Raises:
            ValueError: there are fewer entries than canaries.
        """
        source = np.random.default_rng(None if seed is None else [seed, 0, 0, 3])
        sizes = {name: one.numel() for name, one in parameters.items()}
        total, starts, before = sum(sizes.values()), {}, 0
        for name, size in sizes.items():
            starts[name], before = (before, size), before + size
        if audit.canaries > total:
            raise ValueError(
                f"canaries: expected at most the {total} entries that are trained, got "
                f"{audit.canaries}"
            )
        places = source.choice(total, size=audit.canaries, replace=False).astype(np.int64)
        none = np.zeros(audit.canaries)
        inside = coins(audit.canaries, source)
        return DiracCanaries(inside, places, none, starts, draws, none.astype(bool))

    def draw(self, step: int) -> None:
        """Draw those of a step by the law of the records, whatever their coins say."""
        self.drawn[:] = False
        self.drawn[self.draws(step, len(self.places)).numpy()] = True

    def within(self, name: str) -> npt.NDArray[np.int64]:
        """Return the canaries that stand in a parameter."""
        start, size = self.starts[name]
        found: npt.NDArray[np.int64] = np.flatnonzero(
            (self.places >= start) & (self.places < start + size)
        )
        return found

    def add(self, name: str, total: Tensor, clip: float) -> None:
        """Add C to the entry of every canary of a step that is in.

        Args:
            name: of the parameter.
            total: its sum, float64, changed in place.
            clip: C of this parameter.
        """
        own = self.within(name)
        own = own[self.drawn[own] & self.inside[own]]
        # entries differ: no index comes twice
        offsets = torch.from_numpy(self.places[own] - self.starts[name][0]).to(total.device)
        total.view(-1)[offsets] += clip

    def watch(self, name: str, noisy: Tensor, clip: float) -> None:
        """Note what was released at the canaries' entries, in clips."""
        own = self.within(name)
        offsets = torch.from_numpy(self.places[own] - self.starts[name][0])
        held = noisy.reshape(-1)[offsets.to(noisy.device)].double().cpu().numpy()
        self.seen[own] += held / clip

    def audit(self, delta: float) -> OneRunAudit:
        """Bound μ and ε from below by the surest eighths, quarters and halves of the guesses."""
        count = len(self.places)
        # fixed beforehand
        parts = sorted({max(1, count // 8), max(1, count // 4), count // 2})
        return audit_one_run(
            self.seen, self.inside, top=parts, bottom=parts, delta=delta, confidence=CONFIDENCE
        )

    def attack(self, task: str) -> Attack:
        """Return how often the coins are guessed, the higher half in."""
        half = len(self.places) // 2
        order = np.argsort(self.seen, kind="stable")
        right = int((~self.inside[order[:-half]]).sum() + self.inside[order[-half:]].sum())
        return Attack(
            name="what was released at the canaries' entries",
            task=task,
            success=share_of(right, len(self.places)),
            prior=0.5,
            trials=len(self.places),
        )


def told(audit: OneRunAudit, held: ApproximateDP) -> str:
    """Return what an audit proved, and what it could have proved at most."""
    said = "; THE CERTIFICATE IS REFUTED" if audit.refuted(held) else ""
    return (
        f"Audit of this one run, white box: {audit.describe()} Certified: ε = "
        f"{number_up(held.epsilon)} at δ = {number_up(held.delta)}; proven from below: ε of at "
        f"least {number_down(audit.epsilon_low)}{said}. At most ε = "
        f"{number_down(audit.most_epsilon)} could be proven by {audit.canaries} canaries, if every "
        "guess were right."
    )
