"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, is_reproducible
from tacit._ground.frozen import read_only
from tacit.attacks import BayesAttack
from tacit.attacks.intervals import proportion_interval
from tacit.classifiers.inputs import Labels, checked_labels, private_order, released_rows, share
from tacit.classifiers.lists import together
from tacit.classifiers.logits import pool_logits, pool_rows
from tacit.classifiers.plan import (
    attacks_on,
    design_row,
    fano_of_attacks,
    success_bounds,
)
from tacit.classifiers.release import (
    KIND,
    LABEL,
    MOST_NUMBERS,
    TRUTH,
    Logits,
    assumptions_of,
    attack_of,
    errors_of,
    information_bound,
    names_of,
    title_of,
)
from tacit.guarantees import InformationBound
from tacit.measured import Interval
from tacit.releases import Draw, Effort, Expected, Numbers, Prepared, Release, Use
from tacit.releases.contradiction import Named
from tacit.releases.prepared import Book
from tacit.releases.promises import check_effort, check_promise
from tacit.releases.publication import allowed_nats

EFFORT = Effort()


def prepare_logits(
    predict: Any,
    pool: Any,
    promise: Draw,
    effort: Effort = EFFORT,
    *,
    inputs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    cost: ArrayLike | None = None,
    rng: RandomSource = None,
) -> PreparedLogits:
    """Certify noisy logits, one row per queried input, before anything is drawn.

    The secret X is which of the n inputs of the pool was queried, uniform; its logits x are
    released as ``y = x + N(0, Σ)``, rounded to 2⁻²⁰ of the noise's standard deviation. The
    covariance S of the logits over the pool (dividing by n) is known exactly, and

        I(X; Y) <= ½ logdet(I + S Σ⁻¹) <= β,

    or, with ``method="true-information"``, the upper confidence bound on I(X; Y) itself is within
    β. An attacker names the input with probability s at most, ``kl(s ‖ 1/n) = β``, and its label
    with ``kl(s ‖ largest share of a label) = β``. That is of one row. m rows are released in a
    random order that nobody is told; together they tell at most m β about all m inputs, so that
    whoever sees them all names the input of one with s at most, ``kl(s ‖ 1/n) = m β``.

    Args:
        predict: callable from a batch of the pool, an array (b, …), to logits (b, c); a torch
            module, which is run in evaluation mode without gradients; or the logits themselves,
            (n, c). What it returns is released, be it logits, log odds or scores.
        pool: the n >= 2 inputs, an array (n, …) or a list.
        promise: β in nats, or s in (1/n, 1) for naming the input, converted to the largest budget
            that allows it; ``method`` as in ``gaussian_information`` or ``true_information``.
        effort: simulated releases to attack, each of an input drawn uniformly from the pool.
        inputs: indices of the inputs to release, none twice; all when None.
        labels: (n,) class numbers 0 … c − 1, for utility and for what the release tells about them.
        cost: F, what noise costs, as in ``gaussian_information``; None for squared error.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.

    Returns:
        The ``PreparedLogits``: the guarantees, the error of every logit, and ``draw``.

    Raises:
        ValueError: a bad argument, or a model that returns other than finite logits.
        ContradictionError: by Fano's inequality an accuracy that was measured takes more
            information than was certified, by more than chance does once in a billion.

    Example:
        >>> logits = np.eye(3)[[0, 1, 2] * 20]
        >>> prepared = prepare_logits(logits, np.arange(60), Draw(nats=0.5))
        >>> [entry.name for entry in prepared.expected], prepared.guarantees[-1].nats <= 0.5
        (['logit[0]', 'logit[1]', 'logit[2]'], True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise), Sec. 6 (logits).
    """
    check_promise(promise, Draw)
    check_effort(effort)
    source = generator(rng)
    candidates = pool_rows(pool)
    rows = released_rows(inputs, len(candidates))
    prior = share(1, len(candidates))
    budget = allowed_nats(promise.nats, promise.success, prior)
    logits = pool_logits(predict, candidates, effort.progress)
    classes = checked_labels(labels, *logits.shape)
    design, variances = design_row(logits, budget, promise, cost, source, effort.progress)
    guarantee = information_bound(design)
    bounds = success_bounds(guarantee, logits, design, classes, rows.size)
    measured: tuple[BayesAttack, ...] = ()
    if effort.trials and design.method != "constant":
        measured = attacks_on(logits, design, classes, effort, promise.confidence, source)
    fano = fano_of_attacks(measured, classes, guarantee, promise.confidence)
    details = Logits(
        # until they are drawn
        logits=np.zeros((rows.size, logits.shape[1])),
        pool_size=len(logits),
        mi_budget=budget,
        confidence=promise.confidence,
        design=design,
        fano=fano,
        output_variance=variances,
    )
    errors = errors_of(design).tolist()
    return PreparedLogits(
        guarantees=(*bounds, guarantee),
        spends=(together(guarantee, rows.size),),
        expected=tuple(
            Expected(name=f"logit[{place}]", error=error) for place, error in enumerate(errors)
        ),
        description=f"logits of {rows.size} inputs of {len(logits)}",
        reproducible=is_reproducible(rng),
        logits=logits,
        rows=rows,
        classes=classes,
        source=None if rng is None else source,
        planned=Release(
            kind=KIND,
            title=title_of(details),
            secret=guarantee.secret,
            method=design.method,
            guarantees=(*bounds, guarantee),
            reproducible=is_reproducible(rng),
            seed=int(rng) if isinstance(rng, int | np.integer) else None,
            assumptions=assumptions_of(guarantee, len(logits), rows.size),
            attacks=tuple(
                attack_of(held, bound.task) for held, bound in zip(measured, bounds, strict=False)
            ),
            details=details,
        ),
    )


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedLogits(Prepared[Logits]):
    """Logits that are certified and not yet drawn; for the holder of the pool.

    Attributes:
        logits: (n, c) of the pool, without noise.
        rows: (m,) which of them are released.
        classes: their labels, where they are known.
        planned: the release but for what is drawn.
        source: the generator that the draw uses; None for the operating system's.
    """

    logits: Array = field(repr=False)
    rows: npt.NDArray[np.intp] = field(repr=False)
    classes: Labels | None = field(repr=False)
    planned: Release[Logits] = field(repr=False)
    source: np.random.Generator | None = field(repr=False)

    def _drawn(self) -> Release[Logits]:
        planned, details = self.planned, self.planned.details
        assert details.design is not None
        # the place of a row says nothing: whoever is told the rows is not told their order
        rows = self.rows[private_order(self.rows.size, self.source)]
        clean, classes = self.logits[rows], self.classes
        released = details.design.release(clean, rng=self.source)
        utility = utility_of(clean, released, rows, classes, details.confidence)
        fano = details.fano
        if fano is None and classes is not None and rows.size == len(self.logits):
            named = Named(LABEL, utility.right, rows.size, clean.shape[1], classes.entropy)
            guarantee = planned.guarantees[-1]
            assert isinstance(guarantee, InformationBound)
            fano = named.information(guarantee, details.confidence)
        return replace(
            planned,
            details=replace(details, logits=released, accuracy_clean=utility.clean, fano=fano),
            numbers=_numbers(released, [entry.error for entry in self.expected]),
            use=_use(utility.noisy, utility.interval, details.confidence),
        )


def privatize_logits(
    predict: Any,
    pool: Any,
    promise: Draw,
    effort: Effort = EFFORT,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Any,
) -> Release[Logits]:
    """Release noisy logits: ``prepare_logits(...).draw(...)`` in one call.

    Args:
        predict: as for ``prepare_logits``.
        pool: as for ``prepare_logits``.
        promise: as for ``prepare_logits``.
        effort: as for ``prepare_logits``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none. The m rows that
            are released together spend m β.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        options: the other arguments of ``prepare_logits``.

    Returns:
        The release. It does not say which inputs were released, nor which row is whose: who needs
        that releases one input a call.

    Raises:
        ValueError: as ``prepare_logits``, or a refusal of the ledger; nothing is drawn then.
        ContradictionError: as ``prepare_logits``, also for the accuracy of the logits drawn;
            nothing is released.

    Example:
        >>> source = np.random.default_rng(0)
        >>> digits = np.arange(300) % 3
        >>> images = np.eye(3)[digits] + 0.1 * source.normal(size=(300, 3))
        >>> promise = Draw(nats=0.5)
        >>> release = privatize_logits(lambda rows: 5 * rows, images, promise, labels=digits)
        >>> release.information <= 0.5, release.details.fano <= 0.5, release.details.accuracy_clean
        (True, True, 1.0)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise), Sec. 6 (logits).
    """
    prepared = prepare_logits(predict, pool, promise, effort, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _numbers(released: Array, errors: list[float]) -> Numbers | None:
    """Return every released logit with the deviation of its noise; None where they are many."""
    if released.size > MOST_NUMBERS:
        return None
    rows, columns = released.shape
    return Numbers(
        names=names_of(rows, columns),
        values=released.ravel(),
        errors=np.array(errors * rows),
        truth=TRUTH,
    )


def _use(
    noisy: float | None, interval: tuple[float, float] | None, confidence: float
) -> tuple[Use, ...]:
    if noisy is None or interval is None:
        return ()
    low, high = interval
    measured = Interval(value=noisy, low=low, high=high, confidence=confidence)
    return (Use(name="accuracy", unit="share", better="higher", measured=measured),)


@dataclass(frozen=True)
class Accuracy:
    """How often the largest logit is that of the label; nothing without labels."""

    clean: float | None = None
    noisy: float | None = None
    interval: tuple[float, float] | None = None
    right: int = 0


def utility_of(
    clean: Array,
    released: Array,
    rows: npt.NDArray[np.intp],
    classes: Labels | None,
    confidence: float,
) -> Accuracy:
    """Return how often the label is named, before and after the noise."""
    if classes is None:
        return Accuracy()
    truth = classes.values[rows]
    right = int((released.argmax(axis=1) == truth).sum())
    return Accuracy(
        clean=float((clean.argmax(axis=1) == truth).mean()),
        noisy=right / truth.size,
        interval=proportion_interval(right, truth.size, confidence),
        right=right,
    )
