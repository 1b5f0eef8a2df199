"""Fano's inequality as a check: an accuracy that was reached against the nats certified."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.attacks import BayesAttack
from tacit.attacks.intervals import proportion_interval
from tacit.conversions import fano_information
from tacit.guarantees import InformationBound

# A measured accuracy contradicts a bound only where chance explains it once in a billion.
FALSE_ALARM = 1e-9


class ContradictionError(RuntimeError):
    """What was measured cannot be true of a release that keeps its certified bound."""


@dataclass(frozen=True)
class Named:
    """How often something was named right, of how many that could be named."""

    task: str
    hits: int
    trials: int
    choices: int
    entropy: float

    @staticmethod
    def by(attack: BayesAttack, task: str, entropy: float) -> Named:
        """Return what an attack on ``task`` reached, for an answer of the entropy given."""
        hits = round(attack.success * attack.trials)
        return Named(task, hits, attack.trials, attack.classes, entropy)

    def information(self, guarantee: InformationBound, confidence: float) -> float:
        """Return the nats it takes by Fano's inequality; raise where they refute the guarantee."""
        surely = proportion_interval(self.hits, self.trials, 1.0 - FALSE_ALARM)[0]
        needed = fano_information(surely, self.choices, self.entropy)
        if needed > guarantee.nats:
            raise ContradictionError(
                f"{self.task} was named right {self.hits} times in {self.trials}, which takes at "
                f"least {needed:.6g} nats, but {guarantee.nats:.6g} were certified; nothing is "
                "released"
            )
        lower = proportion_interval(self.hits, self.trials, confidence)[0]
        return fano_information(lower, self.choices, self.entropy)
