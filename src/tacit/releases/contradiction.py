"""What an attack reached against what is certified: by Fano, by a success, by a factor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri, rel_entr

from tacit.attacks import BayesAttack
from tacit.attacks.intervals import proportion_interval
from tacit.conversions import fano_information
from tacit.guarantees import InformationBound
from tacit.measured import Interval
from tacit.releases.form import Form
from tacit.text import percent, percent_up

# A measured accuracy contradicts a bound only where chance explains it once in a billion.
FALSE_ALARM = 1e-9
BISECTIONS = 60


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


def surely(measured: Interval) -> float:
    """Return a success that an attack falls short of once in a billion.

    An interval of level γ around a share p of n trials has ``n kl(p ‖ low) >= z²/2``, z the normal
    quantile of γ. The end returned has ``n kl(p ‖ end) >= ln 10⁹``: by Chernoff, chance takes an
    attack that succeeds less often so far once in a billion. A bound that is met exactly would be
    contradicted by one interval of 95% in forty.
    """
    if measured.confidence is None or measured.low <= 0.0 or measured.low == measured.value:
        return measured.low
    quantile = float(ndtri(0.5 + 0.5 * measured.confidence))
    factor = max(math.log(1.0 / FALSE_ALARM) / (0.5 * quantile**2), 1.0)
    needed = factor * _kl(measured.value, measured.low)
    low, high = 0.0, measured.low
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _kl(measured.value, middle) >= needed else (low, middle)
    return low


def _kl(share: float, other: float) -> float:
    """Return kl(share ‖ other) of two coins."""
    if not 0.0 < other < 1.0:
        return 0.0 if share == other else math.inf
    return float(rel_entr(share, other) + rel_entr(1.0 - share, 1.0 - other))


def refuted(form: Form) -> str | None:
    """Say which stored attack surely did better than a stored guarantee allows; None for none.

    A bound on success is held against attacks on the same task, a factor against every attack whose
    blind success is known.
    """
    for attack in form.attacks:
        measured = (attack.success,) if attack.worst is None else (attack.success, attack.worst)
        low = max(surely(interval) for interval in measured)
        reached = f"an attack on {attack.task} got at least {percent(low)}"
        bound = form.headline
        if bound is not None and attack.task == bound.task and low > form.success(bound):
            return f"{reached}, and the bound says {percent_up(form.success(bound))}"
        held = form.leakage
        if held is not None and attack.prior and low > held.factor * attack.prior:
            return (
                f"{reached}, which is more than {held.factor:g} times the {percent(attack.prior)} "
                "of guessing blind"
            )
    return None
