"""Released logits: what the workflow keeps of them, and how they are worked out again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tacit._ground.checks import Array, integer, positive
from tacit._ground.frozen import array_value
from tacit.classifiers.inputs import share
from tacit.classifiers.lists import of_a_list
from tacit.codec import HOLDER
from tacit.design.base import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.measured import Interval
from tacit.releases import Attack, Kind, Release
from tacit.releases.recompute import (
    check_assumed,
    check_designed,
    check_measured,
    check_stated,
    only,
)

if TYPE_CHECKING:
    from tacit.attacks import BayesAttack

KIND = "classifier"
# More released logits than this are told in the details alone.
MOST_NUMBERS = 200
TRUTH = "logit without noise"
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

SOURCE = "residual-pac, Thm 1, Eq. 17"
SOURCE_TRUE = "residual-pac, Eq. 17, with the exact likelihood of the mixture over the pool"
SOURCE_ENTROPY = "I(X; Y) <= H(Y), the entropy of the logits over the pool"
SECRET = "which input of the pool was queried"
INPUT = "the queried input"
LABEL = "the label of the queried input"
# Where several rows are released: what one of them tells about its own input.
ALONE = " from its row alone"
WITH_NOISE = "the noise is independent of all else, computed in double precision"
WITHOUT_NOISE = "the logits are published as they are, without noise, as double-precision numbers"
# Beyond what the square root of a variance loses.
AGREEMENT = 1e-9


@array_value(kw_only=True)
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


def title_of(details: Logits) -> str:
    """Return what was released."""
    return f"logits of {len(details.logits):,} inputs in {details.logits.shape[1]:,} classes"


def law_of(pool: int) -> str:
    """Return what an attacker knows of the queried input."""
    return f"that it is one of {pool:,} inputs, all equally likely,"


def information_bound(design: Design) -> InformationBound:
    """Return what the noise of one row certifies."""
    statistical, silent = design.confidence is not None, design.rank == 0
    return InformationBound(
        nats=math.inf if design.information is None else design.information,
        secret=SECRET,
        evidence="statistical" if statistical else "numerical",
        assumptions=(*ASSUMPTIONS, WITHOUT_NOISE if silent else WITH_NOISE),
        source=SOURCE_TRUE if statistical else SOURCE_ENTROPY if silent else SOURCE,
        confidence=design.confidence,
    )


def assumptions_of(guarantee: InformationBound, pool: int, count: int) -> tuple[str, ...]:
    """Return what is assumed of m rows beside what the guarantee of one assumes."""
    return (
        f"the input was drawn uniformly from {pool:,} known ones",
        *of_a_list(guarantee, share(1, pool), count),
    )


def recompute(release: Release[Logits]) -> str:
    """Work out again what the details determine of a release of logits.

    Raises:
        ValueError: another title, secret or number than the details give, a bound below what the
            noise was designed for, or a success below what the information gives.
    """
    details, told = release.details, only(release, InformationBound)
    count = len(details.logits)
    if told is None or (release.title, release.secret) != (title_of(details), SECRET):
        raise ValueError("its title, secret or guarantee differs from what its details give")
    if release.assumptions != assumptions_of(told, details.pool_size, count):
        raise ValueError("its details give other assumptions")
    check_assumed(release, ASSUMPTIONS)
    check_measured(release.attacks)
    expected = [*_successes(release, told), told]
    design = details.design
    if design is not None:
        check_designed(release, design.information)
        expected[-1] = information_bound(design)
    check_stated(release, expected)
    _check_numbers(release)
    return "the noise it was designed with is not in the file" if design is None else ""


def _successes(release: Release[Logits], told: InformationBound) -> list[SuccessBound]:
    """Return what the information gives about naming the input, and its label if that is told."""
    details, held = release.details, release.guarantees[:-1]
    labelled = [bound for bound in held[1:] if isinstance(bound, SuccessBound)]
    if details.accuracy_clean is not None and not labelled:
        raise ValueError("its labels were given, and no guarantee is about naming one")
    alone = ALONE if len(details.logits) > 1 else ""
    # the shares of the labels are not in the file; the input is one of n alike
    priors = [share(1, details.pool_size)]
    priors += [bound.prior for bound in labelled]
    found = [
        # kl(s ‖ prior) = nats, rounded up
        told.success(prior, task + alone, law=law_of(details.pool_size))
        for prior, task in zip(priors, (INPUT, LABEL), strict=False)
    ]
    if WITHOUT_NOISE not in told.assumptions:
        return found
    # without noise outcomes are counted, which may say less than any information does
    return [
        replace(bound, success=min(bound.success, max(bound.prior, said.success)))
        for bound, said in zip(found, held, strict=False)
        if isinstance(said, SuccessBound)
    ]


def _check_numbers(release: Release[Logits]) -> None:
    """Refuse numbers other than the logits, or errors other than the design's."""
    details, numbers = release.details, release.numbers
    if (numbers is None) != (details.logits.size > MOST_NUMBERS):
        raise ValueError("its details give another list of numbers")
    if numbers is None:
        return
    rows, columns = details.logits.shape
    if numbers.names != names_of(rows, columns) or numbers.truth != TRUTH:
        raise ValueError("the names of the numbers differ from those that its details give")
    if not np.array_equal(numbers.values, details.logits.ravel()):
        raise ValueError("the numbers differ from those that its details give")
    errors = numbers.errors.reshape(rows, columns)
    right = errors[0] if details.design is None else errors_of(details.design)
    if right.shape != (columns,) or not np.allclose(errors, right, rtol=AGREEMENT, atol=0.0):
        raise ValueError("the errors of the numbers differ from those that its details give")


def names_of(rows: int, columns: int) -> tuple[str, ...]:
    """Return what the logits of so many rows are called."""
    return tuple(
        f"row {row + 1}, logit[{column}]" for row in range(rows) for column in range(columns)
    )


def errors_of(design: Design) -> Array:
    """Return the deviation of the noise in every logit of a row."""
    return np.sqrt(design.covariance.diagonal())


CLASSIFIER = Kind(
    name=KIND,
    details=Logits,
    recompute=recompute,
    proof="tacit.releases.proofs:told_information",
    record="one input whose answer was asked for",
)


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
