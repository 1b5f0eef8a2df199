"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    boolean,
    choice,
    generator,
    in_interval,
    integer,
    is_reproducible,
)
from tacit._ground.frozen import read_only
from tacit.attacks.membership.bayes import MOST_TRIALS
from tacit.classifiers.inputs import (
    Labels,
    checked_labels,
    private_order,
    released_rows,
    share,
)
from tacit.classifiers.lists import together
from tacit.classifiers.logits import pool_logits, pool_rows
from tacit.classifiers.plan import (
    LABEL,
    METHODS,
    attacked,
    designed,
    fano_of_attack,
    information_bound,
    success_bounds,
)
from tacit.classifiers.release import (
    ClassifierAttack,
    ClassifierRelease,
)
from tacit.classifiers.utility import utility_of
from tacit.design.base import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.releases.contradiction import Named
from tacit.releases.prepared import Book, Expected, Prepared
from tacit.releases.publication import allowed_nats


class Options(TypedDict, total=False):
    """The options of ``prepare_logits``."""

    mi_budget: float | None
    success: float | None
    inputs: Any
    labels: Any
    method: str
    cost: Any
    confidence: float
    attack: bool
    attack_trials: int
    rng: RandomSource
    progress: bool | None


def prepare_logits(
    predict: Any,
    pool: Any,
    *,
    mi_budget: float | None = None,
    success: float | None = None,
    inputs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    method: str = "exact",
    cost: ArrayLike | None = None,
    confidence: float = 0.999,
    attack: bool = True,
    attack_trials: int = 2000,
    rng: RandomSource = None,
    progress: bool | None = None,
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
        mi_budget: β > 0 in nats; or
        success: s in (1/n, 1) for naming the input, converted to the largest budget that allows it.
        inputs: indices of the inputs to release, none twice; all when None.
        labels: (n,) class numbers 0 … c − 1, for utility and for what the release tells about them.
        method: ``"exact"``, ``"linear"``, ``"diagonal"`` as in ``gaussian_information``, or
            ``"true-information"`` as in ``design.true_information``.
        cost: F, what noise costs, as in ``gaussian_information``; None for squared error.
        confidence: of a statistical guarantee, of every interval and of ``fano``, each alone.
        attack: whether to run the best possible attackers on simulated releases.
        attack_trials: simulated releases, each of an input drawn uniformly from the pool.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.
        progress: whether to show a bar on a terminal; None and True do.

    Returns:
        The ``PreparedLogits``: the guarantees, the error of every logit, and ``draw``.

    Raises:
        ValueError: a bad argument, or a model that returns other than finite logits.
        ContradictionError: by Fano's inequality an accuracy that was measured takes more
            information than was certified, by more than chance does once in a billion.

    Example:
        >>> prepared = prepare_logits(np.eye(3)[[0, 1, 2] * 20], np.arange(60), mi_budget=0.5)
        >>> [entry.name for entry in prepared.expected], prepared.guarantee.nats <= 0.5
        (['logit[0]', 'logit[1]', 'logit[2]'], True)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise), Sec. 6 (logits).
    """
    choice("method", method, METHODS)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    trials = integer("attack_trials", attack_trials, minimum=2, maximum=MOST_TRIALS)
    source = generator(rng)
    boolean("attack", attack)
    candidates = pool_rows(pool)
    rows = released_rows(inputs, len(candidates))
    prior = share(1, len(candidates))
    budget = allowed_nats(mi_budget, success, prior)
    logits = pool_logits(predict, candidates, progress)
    classes = checked_labels(labels, *logits.shape)
    design, variances = designed(logits, budget, method, cost, level, source, progress)
    guarantee = information_bound(design, reproducible=is_reproducible(rng))
    identification, label_bound = success_bounds(guarantee, logits, design, classes, rows.size)
    measured = None
    if attack and design.method != "constant":
        measured = attacked(logits, design, classes, trials, level, source)
    fano = None if measured is None else fano_of_attack(measured, classes, guarantee, level)
    return PreparedLogits(
        guarantees=(identification, guarantee)
        if label_bound is None
        else (identification, label_bound, guarantee),
        spends=(together(guarantee, rows.size),),
        expected=tuple(
            Expected(name=f"logit[{place}]", error=math.sqrt(variance))
            for place, variance in enumerate(design.covariance.diagonal().tolist())
        ),
        description=f"logits of {rows.size} inputs of {len(logits)}",
        reproducible=is_reproducible(rng),
        logits=logits,
        rows=rows,
        classes=classes,
        design=design,
        guarantee=guarantee,
        identification=identification,
        label_bound=label_bound,
        attack=measured,
        fano=fano,
        confidence=level,
        mi_budget=budget,
        output_variance=variances,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )


@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedLogits(Prepared[ClassifierRelease]):
    """Logits that are certified and not yet drawn; for the holder of the pool.

    Attributes are those of ``ClassifierRelease`` that are known before the draw.
    """

    logits: Array = field(repr=False)
    rows: npt.NDArray[np.intp] = field(repr=False)
    classes: Labels | None = field(repr=False)
    design: Design = field(repr=False)
    guarantee: InformationBound
    identification: SuccessBound
    label_bound: SuccessBound | None
    attack: ClassifierAttack | None = field(repr=False)
    fano: float | None
    confidence: float
    mi_budget: float
    output_variance: Array = field(repr=False)
    seed: int | None
    source: np.random.Generator | None = field(repr=False)

    def _drawn(self) -> ClassifierRelease:
        # the place of a row says nothing: whoever is told the rows is not told their order
        rows = self.rows[private_order(self.rows.size, self.source)]
        clean, classes = self.logits[rows], self.classes
        released = self.design.release(clean, rng=self.source)
        utility = utility_of(clean, released, rows, classes, self.confidence)
        fano = self.fano
        if fano is None and classes is not None and self.rows.size == len(self.logits):
            columns = self.logits.shape[1]
            named = Named(LABEL, utility.right, self.rows.size, columns, classes.entropy)
            fano = named.information(self.guarantee, self.confidence)
        return ClassifierRelease(
            logits=released,
            guarantee=self.guarantee,
            identification=self.identification,
            label_bound=self.label_bound,
            design=self.design,
            attack=self.attack,
            accuracy_clean=utility.clean,
            accuracy_noisy=utility.noisy,
            accuracy_interval=utility.interval,
            fano=fano,
            confidence=self.confidence,
            pool_size=len(self.logits),
            mi_budget=self.mi_budget,
            output_variance=self.output_variance,
            method=self.design.method,
            reproducible=self.reproducible,
            seed=self.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def privatize_logits(
    predict: Any,
    pool: Any,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Unpack[Options],
) -> ClassifierRelease:
    """Release noisy logits: ``prepare_logits(...).draw(...)`` in one call.

    Args:
        predict: as for ``prepare_logits``.
        pool: as for ``prepare_logits``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none. The m rows that
            are released together spend m β.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        options: the other arguments of ``prepare_logits``.

    Returns:
        The ``ClassifierRelease``. It does not say which inputs were released, nor which row is
        whose: who needs that releases one input a call.

    Raises:
        ValueError: as ``prepare_logits``, or a refusal of the ledger; nothing is drawn then.
        ContradictionError: as ``prepare_logits``, also for the accuracy of the logits drawn;
            nothing is released.

    Example:
        >>> source = np.random.default_rng(0)
        >>> digits = np.arange(300) % 3
        >>> images = np.eye(3)[digits] + 0.1 * source.normal(size=(300, 3))
        >>> release = privatize_logits(lambda rows: 5 * rows, images, mi_budget=0.5, labels=digits)
        >>> release.guarantee.nats <= 0.5, release.fano <= 0.5, release.accuracy_clean
        (True, True, 1.0)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise), Sec. 6 (logits).
    """
    prepared = prepare_logits(predict, pool, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)
