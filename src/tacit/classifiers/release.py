"""Released logits: what the workflow keeps of them, and how they are worked out again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tacit._ground.checks import Array, integer, positive
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.codec import HOLDER
from tacit.design.base import Design
from tacit.measured import Interval
from tacit.releases import Attack, Kind, Release
from tacit.releases.recompute import (
    check_assumed,
    check_derived,
    check_designed,
    check_measured,
)

if TYPE_CHECKING:
    from tacit.attacks import BayesAttack

KIND = "classifier"
ASSUMPTIONS = (
    "the queried input is uniform over the declared pool; the attacker may know the pool, the "
    "model, its logits for every input and the law of the noise",
    "that an input is in the pool at all is not hidden",
    "the released rows stand in a random order that nobody is told",
    "one release of an input; T released rows of the same input tell at most T times as much",
    "only the released logits are published: the clean logits, the accuracies, the attack and the "
    "design stay with the holder of the model",
    "the randomness is the operating system's",
)


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class Logits:
    """Noisy logits, and what was seen of the pool.

    Attributes:
        logits: (m, c) the numbers to publish, one row per input released, in a random order.
        pool_size: n, number of inputs in the pool.
        mi_budget: the budget asked for, in nats.
        confidence: of the intervals, of ``fano`` and of a statistical guarantee, each alone.
        design: the noise of one row; the holder's, as what follows.
        accuracy_clean: share of the inputs whose largest clean logit is that of their label.
        fano: least information that the measured label accuracy implies, nats, at ``confidence``;
            None where no accuracy over the whole pool was measured.
        output_variance: (c,) variance of each clean logit over the pool.
    """

    logits: Array
    pool_size: int
    mi_budget: float
    confidence: float
    design: Annotated[Design | None, HOLDER] = None
    accuracy_clean: Annotated[float | None, HOLDER] = None
    fano: Annotated[float | None, HOLDER] = None
    output_variance: Annotated[Array | None, HOLDER] = None

    def __post_init__(self) -> None:
        if self.logits.ndim != 2:
            raise ValueError(f"logits: expected rows of numbers, got shape {self.logits.shape}")
        integer("pool_size", self.pool_size, minimum=2)
        positive("mi_budget", self.mi_budget)


def recompute(release: Release[Logits]) -> str:
    """Hold a release of logits against the design that stands beside it.

    Raises:
        ValueError: a bound below what the noise was designed for, a success below what the
            information gives, or an assumption that is missing.
    """
    check_assumed(release, ASSUMPTIONS)
    check_measured(release.attacks)
    design = release.details.design
    if design is None:
        return "the noise it was designed with is not in the file"
    check_designed(release, design.information)
    if design.rank > 0:
        # without noise outcomes are counted, which may say less than any information does
        check_derived(release)
    return ""


CLASSIFIER = Kind(name=KIND, details=Logits, recompute=recompute)


def attack_of(measured: BayesAttack, task: str) -> Attack:
    """Return a measured attacker as a release has it."""
    low, high = measured.interval
    return Attack(
        name="best attack on the exact posterior",
        task=task,
        success=Interval(
            value=measured.success, low=low, high=high, confidence=measured.confidence
        ),
        prior=measured.prior,
        trials=measured.trials,
    )
