"""The noise of one row of logits, what it certifies and what attackers reach against it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import (
    Array,
)
from tacit.attacks import BayesAttack, bayes
from tacit.classifiers.inputs import Labels, share
from tacit.classifiers.logits import check_spread
from tacit.classifiers.release import (
    ClassifierAttack,
)
from tacit.design.base import Design, no_noise
from tacit.design.cost import cost_matrix
from tacit.design.information.exact import NO_NOISE, entropy_sentence, true_information
from tacit.design.information.gaussian import gaussian_information
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information.distinct import EqualRows, entropy
from tacit.releases.contradiction import Named
from tacit.releases.outputs import described_covariance, output_covariance

METHODS = ("exact", "linear", "diagonal", "true-information")
SOURCE = "residual-pac, Thm 1, Eq. 17"
SOURCE_TRUE = "residual-pac, Eq. 17, with the exact likelihood of the mixture over the pool"
SOURCE_ENTROPY = "I(X; Y) <= H(Y), the entropy of the logits over the pool"
SECRET = "which input of the pool was queried"
INPUT = "the queried input"
LABEL = "the label of the queried input"
# Where several rows are released: what one of them tells about its own input.
ALONE = " from its row alone"
ASSUMPTIONS = (
    "the queried input is uniform over the declared pool; the attacker may know the pool, the "
    "model, its logits for every input and the law of the noise",
    "that an input is in the pool at all is not hidden",
    "the released rows stand in a random order that nobody is told",
    "one release of an input; T released rows of the same input tell at most T times as much",
    "only the released logits are published: the clean logits, the accuracies, the attack and the "
    "design stay with the holder of the model",
)
WITH_NOISE = "the noise is independent of all else, computed in double precision"
WITHOUT_NOISE = "the logits are published as they are, without noise, as double-precision numbers"
FROM_SYSTEM = "the randomness is the operating system's"
REPRODUCIBLE = (
    "VOID: a seed or generator was given, so whoever knows it can repeat the draw; the bound "
    "describes the same release with the operating system's randomness"
)


def designed(
    logits: Array,
    budget: float,
    method: str,
    cost: Any,
    confidence: float,
    source: np.random.Generator,
    progress: bool | None,
) -> tuple[Design, Array]:
    """Return the noise of one row and the variance of each logit."""
    size, equal = logits.shape[1], EqualRows.of(logits)
    nats = entropy(equal.weights(None))
    if nats <= budget:
        cost_matrix(cost, size)
        variances = np.diagonal(described_covariance(logits)[1]).copy()
        if len(equal) == 1:
            reason = "the logits are the same for every input, so they are released without noise"
            return no_noise(size, 0.0, "constant", reason), variances
        return no_noise(size, nats, NO_NOISE, entropy_sentence(len(equal), nats)), variances
    check_spread(logits)
    # Equal rows are one, with the probability that they have together.
    shares = None if len(equal) == len(logits) else equal.weights(None)
    points = logits[equal.first]
    _, covariance, slack = output_covariance(points, shares)
    variances = np.diagonal(covariance).copy()
    if method == "true-information":
        design = true_information(
            points,
            budget,
            weights=shares,
            cost=cost,
            confidence=confidence,
            rng=source,
            progress=progress,
        )
        return design, variances
    upper = covariance + slack * np.diag(variances)
    return gaussian_information(upper, budget, cost=cost, method=method), variances


def success_bounds(
    guarantee: InformationBound,
    logits: Array,
    design: Design,
    classes: Labels | None,
    released: int,
) -> tuple[SuccessBound, SuccessBound | None]:
    """Bound naming the input and its label; without noise, by counting the logits too.

    Of several released rows it is what one tells, from that row alone.
    """
    count = len(logits)
    alone = ALONE if released > 1 else ""
    law = f"that it is one of {count:,} inputs, all equally likely,"
    named = guarantee.success(share(1, count), INPUT + alone, law=law)
    labelled = None
    if classes is not None:
        labelled = guarantee.success(classes.largest_share, LABEL + alone, law=law)
    if design.rank > 0:
        return named, labelled
    equal = EqualRows.of(logits)
    named = _at_most(named, share(len(equal), count))
    if classes is not None and labelled is not None:
        pairs = equal.members * (int(classes.values.max()) + 1) + classes.values
        found, sizes = np.unique(pairs, return_counts=True)
        right = np.zeros(len(equal), dtype=np.int64)
        np.maximum.at(right, found // (int(classes.values.max()) + 1), sizes)
        labelled = _at_most(labelled, share(int(right.sum()), count))
    return named, labelled


def _at_most(bound: SuccessBound, success: float) -> SuccessBound:
    return replace(bound, success=max(bound.prior, min(bound.success, success)))


def information_bound(design: Design, *, reproducible: bool) -> InformationBound:
    """Return what the noise of one row certifies."""
    statistical, silent = design.confidence is not None, design.rank == 0
    return InformationBound(
        nats=math.inf if design.information is None else design.information,
        secret=SECRET,
        evidence="statistical" if statistical else "numerical",
        assumptions=(
            *ASSUMPTIONS,
            WITHOUT_NOISE if silent else WITH_NOISE,
            REPRODUCIBLE if reproducible else FROM_SYSTEM,
        ),
        source=SOURCE_TRUE if statistical else SOURCE_ENTROPY if silent else SOURCE,
        confidence=design.confidence,
    )


def attacked(
    logits: Array,
    design: Design,
    classes: Labels | None,
    trials: int,
    confidence: float,
    source: np.random.Generator,
) -> ClassifierAttack:
    """Run the best possible attackers on simulated releases."""
    noise = design.covariance if design.rank > 0 else None

    def best(task: npt.NDArray[np.intp]) -> BayesAttack:
        return bayes(logits, noise, task, trials=trials, confidence=confidence, rng=source)

    return ClassifierAttack(
        identification=best(np.arange(len(logits))),
        label=None if classes is None else best(classes.values),
    )


def fano_of_attack(
    measured: ClassifierAttack,
    classes: Labels | None,
    guarantee: InformationBound,
    confidence: float,
) -> float | None:
    """Hold both attacks against the guarantee; return what the label attack's success implies."""
    inputs = measured.identification.classes
    Named.by(measured.identification, INPUT, _rounded_down_log(inputs)).information(
        guarantee, confidence
    )
    if measured.label is None or classes is None:
        return None
    return Named.by(measured.label, LABEL, classes.entropy).information(guarantee, confidence)


def _rounded_down_log(count: int) -> float:
    return math.nextafter(math.log(count), 0.0)
