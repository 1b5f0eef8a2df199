"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from tacit._ground.checks import (
    Array,
    RandomSource,
    array,
    choice,
    generator,
    in_interval,
    integer,
    is_reproducible,
)
from tacit.attacks import BayesAttack, bayes
from tacit.attacks.intervals import proportion_interval
from tacit.attacks.membership.bayes import MOST_TRIALS
from tacit.classifiers.logits import check_spread, pool_logits, pool_rows
from tacit.classifiers.release import (
    ClassifierAttack,
    ClassifierRelease,
)
from tacit.design.base import Design, no_noise
from tacit.design.cost import cost_matrix
from tacit.design.information.exact import NO_NOISE, entropy_sentence, true_information
from tacit.design.information.gaussian import gaussian_information
from tacit.guarantees import InformationBound, SuccessBound
from tacit.information.distinct import EqualRows, entropy
from tacit.linalg import MACHINE_EPSILON
from tacit.releases.contradiction import Named
from tacit.releases.outputs import described_covariance, output_covariance
from tacit.releases.publication import allowed_nats

METHODS = ("exact", "linear", "diagonal", "true-information")
SOURCE = "residual-pac, Thm 1, Eq. 17"
SOURCE_TRUE = "residual-pac, Eq. 17, with the exact likelihood of the mixture over the pool"
SOURCE_ENTROPY = "I(X; Y) <= H(Y), the entropy of the logits over the pool"
SECRET = "which input of the pool was queried"
INPUT = "the queried input"
LABEL = "the label of the queried input"
ASSUMPTIONS = (
    "the queried input is uniform over the declared pool; the attacker may know the pool, the "
    "model, its logits for every input and the law of the noise",
    "that an input is in the pool at all is not hidden",
    "a released row is judged alone: its place in a list, and that no other row is of the same "
    "input, say nothing to the attacker",
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


@dataclass(frozen=True, eq=False)
class _Labels:
    """The label of every input: a function of the secret."""

    values: npt.NDArray[np.intp]
    largest_share: float
    occurring: int
    entropy: float


@dataclass(frozen=True)
class _Utility:
    """How often the largest logit is that of the label; nothing without labels."""

    clean: float | None = None
    noisy: float | None = None
    interval: tuple[float, float] | None = None
    right: int = 0


def privatize_logits(
    predict: Any,
    pool: Any,
    *,
    mi_budget: float | None = None,
    success: float | None = None,
    inputs: Any = None,
    labels: Any = None,
    method: str = "exact",
    cost: Any = None,
    confidence: float = 0.99,
    attack: bool = True,
    attack_trials: int = 2000,
    rng: RandomSource = None,
    progress: bool | None = None,
    before_draw: Callable[[InformationBound], object] | None = None,
) -> ClassifierRelease:
    """Release noisy logits, one row per queried input, with a bound on what a row tells.

    The secret X is which of the n inputs of the pool was queried, uniform; its logits x are
    released as ``y = x + N(0, Σ)``, rounded to 2⁻²⁰ of the noise's standard deviation. The
    covariance S of the logits over the pool (dividing by n) is known exactly, and

        I(X; Y) <= ½ logdet(I + S Σ⁻¹) <= β,

    or, with ``method="true-information"``, the upper confidence bound on I(X; Y) itself is within
    β. An attacker names the input with probability s at most, ``kl(s ‖ 1/n) = β``, and its label
    with ``kl(s ‖ largest share of a label) = β``. The rows released together, about m inputs that
    are drawn in any way with uniform marginals, tell at most m β about all m inputs.

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
        before_draw: called with the guarantee of one row once it is certified, before anything is
            drawn; an exception it raises stops the release.

    Returns:
        The ``ClassifierRelease``. It does not say which inputs were released.

    Raises:
        ValueError: a bad argument, or a model that returns other than finite logits.
        ContradictionError: by Fano's inequality an accuracy that was measured takes more
            information than was certified, by more than chance does once in a billion; nothing is
            released.

    Example:
        >>> source = np.random.default_rng(0)
        >>> digits = np.arange(300) % 3
        >>> images = np.eye(3)[digits] + 0.1 * source.normal(size=(300, 3))
        >>> release = privatize_logits(lambda rows: 5 * rows, images, mi_budget=0.5, labels=digits)
        >>> release.guarantee.nats <= 0.5, release.fano <= 0.5, release.accuracy_clean
        (True, True, 1.0)

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise), Sec. 6 (logits).
    """
    choice("method", method, METHODS)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    trials = integer("attack_trials", attack_trials, minimum=2, maximum=MOST_TRIALS)
    source = generator(rng)
    candidates = pool_rows(pool)
    rows = _released_rows(inputs, len(candidates))
    prior = _share(1, len(candidates))
    budget = allowed_nats(mi_budget, success, prior)
    logits = pool_logits(predict, candidates, progress)
    classes = _checked_labels(labels, *logits.shape)
    design, variances = _designed(logits, budget, method, cost, level, source, progress)
    guarantee = _guarantee(design, reproducible=is_reproducible(rng))
    identification, label_bound = _success_bounds(guarantee, logits, design, classes)
    measured = None
    if attack and design.method != "constant":
        measured = _attacked(logits, design, classes, trials, level, source)
    fano = None if measured is None else _fano_of_attack(measured, classes, guarantee, level)
    if before_draw is not None:
        before_draw(guarantee)
    released = design.release(logits[rows], rng=None if rng is None else source)
    utility = _utility(logits[rows], released, rows, classes, level)
    if fano is None and classes is not None and rows.size == len(logits):
        named = Named(LABEL, utility.right, rows.size, logits.shape[1], classes.entropy)
        fano = named.information(guarantee, level)
    return ClassifierRelease(
        logits=released,
        guarantee=guarantee,
        identification=identification,
        label_bound=label_bound,
        design=design,
        attack=measured,
        accuracy_clean=utility.clean,
        accuracy_noisy=utility.noisy,
        accuracy_interval=utility.interval,
        fano=fano,
        confidence=level,
        pool_size=len(logits),
        mi_budget=budget,
        output_variance=variances,
        method=design.method,
        reproducible=is_reproducible(rng),
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _designed(
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


def _success_bounds(
    guarantee: InformationBound, logits: Array, design: Design, classes: _Labels | None
) -> tuple[SuccessBound, SuccessBound | None]:
    """Bound naming the input and its label; without noise, by counting the logits too."""
    count = len(logits)
    named = guarantee.success(_share(1, count), INPUT)
    labelled = None if classes is None else guarantee.success(classes.largest_share, LABEL)
    if design.rank > 0:
        return named, labelled
    equal = EqualRows.of(logits)
    named = _at_most(named, _share(len(equal), count))
    if classes is not None and labelled is not None:
        pairs = equal.members * (int(classes.values.max()) + 1) + classes.values
        found, sizes = np.unique(pairs, return_counts=True)
        right = np.zeros(len(equal), dtype=np.int64)
        np.maximum.at(right, found // (int(classes.values.max()) + 1), sizes)
        labelled = _at_most(labelled, _share(int(right.sum()), count))
    return named, labelled


def _at_most(bound: SuccessBound, success: float) -> SuccessBound:
    return replace(bound, success=max(bound.prior, min(bound.success, success)))


def _utility(
    clean: Array,
    released: Array,
    rows: npt.NDArray[np.intp],
    classes: _Labels | None,
    confidence: float,
) -> _Utility:
    if classes is None:
        return _Utility()
    truth = classes.values[rows]
    right = int((released.argmax(axis=1) == truth).sum())
    return _Utility(
        clean=float((clean.argmax(axis=1) == truth).mean()),
        noisy=right / truth.size,
        interval=proportion_interval(right, truth.size, confidence),
        right=right,
    )


def _released_rows(inputs: Any, count: int) -> npt.NDArray[np.intp]:
    if inputs is None:
        return np.arange(count)
    indices = _integers("inputs", inputs)
    if indices.min() < 0 or indices.max() >= count:
        raise ValueError(
            f"inputs: expected indices 0 to {count - 1} of the pool, got {indices.min()} to "
            f"{indices.max()}"
        )
    if len(np.unique(indices)) != indices.size:
        raise ValueError(
            "inputs: expected no input twice, since every release of it is charged: call again "
            "for another release"
        )
    return indices


def _checked_labels(labels: Any, count: int, columns: int) -> _Labels | None:
    if labels is None:
        return None
    values = _integers("labels", labels)
    if values.shape != (count,) or values.min() < 0 or values.max() >= columns:
        raise ValueError(
            f"labels: expected {count} class numbers from 0 to {columns - 1}, got {values.size} "
            f"from {values.min()} to {values.max()}"
        )
    sizes = np.bincount(values)
    occurring = int((sizes > 0).sum())
    if occurring < 2:
        raise ValueError(f"labels: expected at least two labels, got only {values[0]}")
    entropy = float(entr(sizes / count).sum()) * (1.0 - 4.0 * sizes.size * MACHINE_EPSILON)
    return _Labels(values, _share(int(sizes.max()), count), occurring, entropy)


def _integers(name: str, values: Any) -> npt.NDArray[np.intp]:
    checked = array(name, values, ndim=1)
    if (checked != np.round(checked)).any() or np.abs(checked).max() > 2.0**53:
        raise ValueError(f"{name}: expected whole numbers, got {checked[:4].tolist()} …")
    return checked.astype(np.intp)


def _share(part: int, whole: int) -> float:
    """Return part/whole, rounded up."""
    return 1.0 if part == whole else math.nextafter(part / whole, 1.0)


def _guarantee(design: Design, *, reproducible: bool) -> InformationBound:
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


def _attacked(
    logits: Array,
    design: Design,
    classes: _Labels | None,
    trials: int,
    confidence: float,
    source: np.random.Generator,
) -> ClassifierAttack:
    noise = design.covariance if design.rank > 0 else None

    def best(task: npt.NDArray[np.intp]) -> BayesAttack:
        return bayes(logits, noise, task, trials=trials, confidence=confidence, rng=source)

    return ClassifierAttack(
        identification=best(np.arange(len(logits))),
        label=None if classes is None else best(classes.values),
    )


def _fano_of_attack(
    measured: ClassifierAttack,
    classes: _Labels | None,
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
