"""The noise of one row of logits, what it certifies and what attackers reach against it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit.attacks import BayesAttack, bayes
from tacit.classifiers.inputs import Labels, share
from tacit.classifiers.release import ALONE, INPUT, LABEL, law_of
from tacit.design.base import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information.distinct import EqualRows
from tacit.releases import Draw, Effort
from tacit.releases.contradiction import Named
from tacit.releases.finite import OutputNoise, OutputWords, design_outputs

WORDS = OutputWords(
    "predict: expected logits",
    "the logits are the same for every input, so they are released without noise",
)


def design_row(
    logits: Array,
    budget: float,
    promise: Draw,
    cost: Any,
    source: np.random.Generator,
    progress: bool,
) -> tuple[Design, Array]:
    """Return the noise of one row and the variance of each logit."""
    found = design_outputs(
        logits,
        budget,
        lambda _: cost,
        how=OutputNoise(
            method="exact" if promise.method == "auto" else promise.method,
            confidence=promise.confidence,
        ),
        words=WORDS,
        source=source,
        progress=progress,
    )
    return found.design, np.diagonal(found.covariance).copy()


def success_bounds(
    guarantee: InformationBound,
    logits: Array,
    design: Design,
    classes: Labels | None,
    released: int,
) -> tuple[SuccessBound, ...]:
    """Bound naming the input, and its label where it is known; without noise, by counting too.

    Of several released rows it is what one tells, from that row alone.
    """
    count = len(logits)
    alone = ALONE if released > 1 else ""
    law = law_of(count)
    named = guarantee.success(share(1, count), INPUT + alone, law=law)
    labelled = None
    if classes is not None:
        labelled = guarantee.success(classes.largest_share, LABEL + alone, law=law)
    if design.rank > 0:
        return (named,) if labelled is None else (named, labelled)
    equal = EqualRows.of(logits)
    named = _at_most(named, share(len(equal), count))
    if classes is not None and labelled is not None:
        pairs = equal.members * (int(classes.values.max()) + 1) + classes.values
        found, sizes = np.unique(pairs, return_counts=True)
        right = np.zeros(len(equal), dtype=np.int64)
        np.maximum.at(right, found // (int(classes.values.max()) + 1), sizes)
        labelled = _at_most(labelled, share(int(right.sum()), count))
    return (named,) if labelled is None else (named, labelled)


def _at_most(bound: SuccessBound, success: float) -> SuccessBound:
    return replace(bound, success=max(bound.prior, min(bound.success, success)))


def attacks_on(
    logits: Array,
    design: Design,
    classes: Labels | None,
    effort: Effort,
    confidence: float,
    source: np.random.Generator,
) -> tuple[BayesAttack, ...]:
    """Run the best possible attackers on simulated releases: naming the input, and its label."""
    noise = design.covariance if design.rank > 0 else None
    tasks = [np.arange(len(logits)), *([] if classes is None else [classes.values])]
    return tuple(
        bayes(logits, noise, task, trials=effort.trials, confidence=confidence, rng=source)
        for task in tasks
    )


def fano_of_attacks(
    measured: tuple[BayesAttack, ...],
    classes: Labels | None,
    guarantee: InformationBound,
    confidence: float,
) -> float | None:
    """Hold the attacks against the guarantee; return what the label attack's success implies."""
    if not measured:
        return None
    # ln N, rounded down: with it falls what a success is said to take
    entropy_of_input = math.nextafter(math.log(measured[0].classes), 0.0)
    Named.by(measured[0], INPUT, entropy_of_input).information(guarantee, confidence)
    if len(measured) == 1 or classes is None:
        return None
    return Named.by(measured[1], LABEL, classes.entropy).information(guarantee, confidence)
