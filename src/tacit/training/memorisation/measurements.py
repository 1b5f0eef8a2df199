"""What a trained language model keeps, canaries in and out, and how that is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import Array, RandomSource
from tacit.attacks import OneRunAudit, audit_one_run
from tacit.attacks.intervals import chernoff_interval, proportion_interval
from tacit.measured import Interval
from tacit.releases.form import Attack, Use
from tacit.text import number_down, number_up, share_nearest, share_up
from tacit.training.bounded import bounded_probability
from tacit.training.contribution.influence import CONFIDENCE, mean_of
from tacit.training.memorisation.canaries import Canaries
from tacit.training.memorisation.exposure import Exposures, exact_memorisation, exposures
from tacit.training.memorisation.language import losses
from tacit.training.release import GUESS

Flags = npt.NDArray[np.bool_]
LARGEST_NATS = 700.0
# What is guessed where the attacker may pass over the canaries it is unsure of.
SUREST = "the coins of the canaries whose loss fell most and least"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured.

    Attributes:
        copies: v of each canary.
        least: c digits that must come out right.
        samples: N secrets drawn for each canary.
        prompt: k tokens that are given.
        following: c tokens that must follow.
    """

    copies: int
    least: int
    samples: int
    prompt: int
    following: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Memorisation:
    """What was measured of one model.

    Attributes:
        plan: what was measured.
        perplexity: of unseen sequences.
        exposures: of every canary.
        learned: which learned sequences come out greedily.
        unseen: which unseen ones do.
    """

    plan: Plan
    perplexity: Interval
    exposures: Exposures
    learned: Flags
    unseen: Flags

    @staticmethod
    def of(
        network: torch.nn.Module,
        canaries: Canaries,
        learned: torch.Tensor,
        unseen: torch.Tensor,
        plan: Plan,
        rng: RandomSource = None,
    ) -> Memorisation:
        """Measure a model, training being over.

        Args:
            network: a causal ``transformers`` model.
            canaries: in and out.
            learned: (n, L) sequences that were learned from.
            unseen: (u, L) others.
            plan: what to measure.
            rng: of the digits that are drawn.
        """
        kept = [
            exact_memorisation(network, rows, prompt=plan.prompt, following=plan.following)
            for rows in (learned, unseen)
        ]
        mean = mean_of(losses(network, unseen, unseen))
        return Memorisation(
            plan=plan,
            perplexity=Interval(
                value=_exp(mean.value), low=_exp(mean.low), high=_exp(mean.high),
                confidence=mean.confidence,
            ),
            exposures=exposures(
                network, canaries, least=plan.least, samples=plan.samples, rng=rng
            ),
            learned=kept[0],
            unseen=kept[1],
        )  # fmt: skip

    def uses(self, inside: Flags) -> list[Use]:
        """Return perplexity, exposures of the canaries in and out, and exact memorisation.

        Args:
            inside: (m,) which canaries were learned from.
        """
        plan = self.plan
        told = [_use("perplexity of unseen sequences", "tokens", self.perplexity)]
        for side, chosen in (("learned", inside), ("left out", ~inside)):
            if not chosen.any():
                continue
            name = f"({plan.copies}, {plan.least})-exposure of canaries {side}"
            told.append(_use(name, "share", mean_share(self.exposures.recovered[chosen])))
            if chosen.sum() < 2:
                continue  # no interval comes from one
            bits = mean_of(self.exposures.bits[chosen])
            told.append(_use(f"exposure of canaries {side}", "bits", bits))
        for side, flags in (("learned", self.learned), ("unseen", self.unseen)):
            name = f"({plan.prompt}, {plan.following})-exact memorisation of {side} sequences"
            told.append(_use(name, "share", share_of(flags)))
        return told

    def reference(self, inside: Flags) -> Interval | None:
        """Return P0: exposure under the references, with the noise of the run; None if unmeasured.

        Args:
            inside: (m,) which canaries were learned from.
        """
        out = self.exposures.recovered[~inside]
        return mean_share(out) if out.size else None

    def notes(self, inside: Flags, mu: float) -> list[str]:
        """Say what exposure is, and the bound on it beside what was measured.

        Args:
            inside: (m,) which canaries were learned from.
            mu: μ of a canary.
        """
        plan, reference = self.plan, self.reference(inside)
        told = [
            f"A canary of {plan.copies} copies is exposed where at least {plan.least} digits of "
            "its secret come out right when digits are drawn behind its prompt, each in proportion "
            "to the model's likelihoods of the ten. Exposure in bits is log2 of the number of "
            "secrets less log2 of the rank, which is estimated from "
            f"{2 * plan.samples} secrets and errs towards too many bits."
        ]
        if reference is None:
            return [*told, "No coin left a canary out, so that P0 was not measured."]
        low, high = reference.value, reference.high
        told.append(
            f"Canaries that a coin left out, {int((~inside).sum())} of them, were exposed with "
            f"probability {share_nearest(low)}, at most P0 = {share_up(high)} (upper end at "
            f"{CONFIDENCE:.0%}), with the noise of this run either way. One that was learned from "
            f"is then exposed with probability at most Φ(Φ⁻¹(P0) + {number_up(mu)}) = "
            f"{share_up(bounded_probability(high, mu))}, in the mean over canaries. P0 is a "
            "measurement whose interval takes canaries as independent, though they share a run's "
            "noise: only as far as they are does the bound hold with that confidence, and it is no "
            "theorem."
        )
        return told


def _exp(nats: float) -> float:
    """Return e^x, the largest number where that is more than a float holds."""
    return math.exp(min(nats, LARGEST_NATS))


def mean_share(values: Array) -> Interval:
    """Return the mean of independent values in [0, 1] of different laws, by Chernoff's bound."""
    mean = float(np.clip(values.mean(), 0.0, 1.0))
    low, high = chernoff_interval(mean, values.size, CONFIDENCE)
    return Interval(value=mean, low=min(low, mean), high=max(high, mean), confidence=CONFIDENCE)


def share_of(flags: Flags) -> Interval:
    """Return a share with Clopper and Pearson's interval."""
    hits = int(flags.sum())
    low, high = proportion_interval(hits, flags.size, CONFIDENCE)
    return Interval(value=hits / flags.size, low=low, high=high, confidence=CONFIDENCE)


def guessed(scores: Array, inside: Flags, delta: float) -> tuple[OneRunAudit, list[Attack]]:
    """Guess the coins by how far each canary's loss fell.

    A quarter of the canaries is guessed in and a quarter out, fixed beforehand, for the audit; the
    half of the higher scores in and the others out, for the success in the certified game.

    Args:
        scores: (m,) by how much the loss fell, higher for canaries that look in.
        inside: (m,) the coins.
        delta: δ of the audit's ε.
    """
    count = len(inside)
    quarter, half = max(1, count // 4), count // 2
    audit = audit_one_run(scores, inside, top=quarter, bottom=quarter, delta=delta)
    whole = audit_one_run(scores, inside, top=half, bottom=count - half, delta=delta)
    return audit, [
        _attack("fall of a canary's loss", GUESS, whole),
        _attack("fall of a canary's loss, the surest half", SUREST, audit),
    ]


def audit_note(audit: OneRunAudit, mu: float, epsilon: float, delta: float) -> str:
    """Say what the audit proves from below, beside what is certified."""
    return (
        f"Audit of this one run: {audit.describe()} By the Gaussian curve, ε is at least "
        f"{number_down(audit.gaussian_epsilon_low)}. Certified for a canary: μ = {number_up(mu)} "
        f"and ε = {number_up(epsilon)} at δ = {number_up(delta)}."
    )


def _attack(name: str, task: str, audit: OneRunAudit) -> Attack:
    low, high = proportion_interval(audit.right, audit.guesses, CONFIDENCE)
    value = audit.right / audit.guesses
    return Attack(
        name=name,
        task=task,
        success=Interval(value=value, low=low, high=high, confidence=CONFIDENCE),
        prior=0.5,
        trials=audit.guesses,
    )


def _use(name: str, unit: str, measured: Interval) -> Use:
    return Use(name=name, unit=unit, better="lower", measured=measured)
