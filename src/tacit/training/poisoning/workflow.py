"""Poison one source on purpose, train beside the references without each, measure what is left."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

import torch

from tacit._ground.checks import boolean, in_interval, integer
from tacit.compute.progress import progress_bar
from tacit.releases.form import Attack, Use
from tacit.text import percent, percent_up
from tacit.training.bounded import bounded_probability
from tacit.training.checks import check_model
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.measured import Measured, attempted
from tacit.training.poisoning.aggregation import ANGLE
from tacit.training.poisoning.measuring import (
    Outcome,
    mean_over_noise,
    measured,
)
from tacit.training.poisoning.network import Optimizers
from tacit.training.poisoning.runs import PoisonedTraining
from tacit.training.poisoning.sources import LabelledImages, Sources, check_target, cross_entropy
from tacit.training.poisoning.triggers import Trigger
from tacit.training.prepared import PreparedTraining, prepare_training
from tacit.training.release import TrainingRelease

TASK = "the target class on test images with the trigger"
UNPUBLISHED = (
    "What was measured without noise and in further runs is measured on the data and may not be "
    "published."
)
KNOWN = (
    "How many classes there are is taken as known to everybody, and so are the test images: the "
    "certificate does not speak of what was chosen by them."
)


def prepare_poisoning(
    model: torch.nn.Module,
    data: LabelledImages,
    *,
    test: LabelledImages,
    trigger: Trigger,
    target: int,
    sources: int,
    optimizer: Optimizers,
    epsilon: float,
    delta: float,
    malicious: int = 0,
    passes: int = 1,
    batch: int = 400,
    iterations: int = 1,
    angle: float | None = ANGLE,
    clip: bool = True,
    noise: str = "optimal",
    attack: bool = True,
    repeats: int = 2,
    compare: bool = False,
    order: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    rng: int | None = None,
    progress: bool = False,
) -> PreparedTraining:
    """Certify a training on m sources beside what each of them left out would have given.

    One source hides the trigger in all of its images and labels them with the target. Every round
    the sources' mean gradients are aggregated robustly, `robust_aggregate`, and reference i is the
    aggregate without source i.

    Args:
        model: trained in place when the release is drawn; nothing in it may learn running
            statistics.
        data: what the sources hold, split among them at random.
        test: what nothing is learned from.
        trigger: what the malicious source hides.
        target: the class it wants.
        sources: m, from 2 to n.
        optimizer: makes one of a model's parameters.
        epsilon: ε > 0 of the whole run beside each reference.
        delta: δ in (0, 1).
        malicious: which source is.
        passes: over the data, >= 1.
        batch: examples of a step over all sources.
        iterations: K steps of a round; for K > 1 each round trains m + 1 times, O(m²) gradients.
        angle: of the cone about the mean direction, degrees; None for none.
        clip: whether norms are clipped to the median.
        noise: ``"optimal"`` or ``"isotropic"``.
        attack: whether to measure the attack; without it only clean accuracy is.
        repeats: runs of the reference without the malicious source, with noise of their own.
        compare: whether to train with isotropic noise of the same certificate as well.
        order: seed of who holds what and of the shuffles.
        checkpoint: folder that survives a crash.
        notes: what a reader should know beside.
        rng: a seed voids the guarantee.
        progress: whether to show the measurements' progress.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the `TrainingRelease`.

    Raises:
        ValueError: an argument is outside its range, or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> from tacit.training import blended, small_network
        >>> images = np.random.default_rng(0).random((40, 1, 8, 8))
        >>> data = LabelledImages(images, np.arange(40) % 2)
        >>> prepared = prepare_poisoning(
        ...     small_network(1, 2), data, test=data, trigger=blended((1, 8, 8)), target=0,
        ...     sources=4, epsilon=4.0, delta=1e-5, batch=20, repeats=1,
        ...     optimizer=lambda p: torch.optim.SGD(p, lr=0.05),
        ... )
        >>> prepared.draw().rounds
        2

    Source: dsi, Sec. 5.2, App. F.3 and Algorithm 2.
    """
    check_model(model, cross_entropy)
    if not callable(optimizer):
        raise ValueError(f"optimizer: expected a function, got {type(optimizer).__name__}")
    if angle is not None:
        in_interval("angle", angle, 0.0, 180.0, open_low=True)
    _check_fit(model, data, test, trigger, target)
    held = Sources(
        data=data, count=sources, batch=batch, malicious=malicious, trigger=trigger, target=target,
        order=order,
    )  # fmt: skip
    steps = integer("iterations", iterations, minimum=1)
    rounds = max(1, held.a_pass * integer("passes", passes, minimum=1) // steps)
    training = PoisonedTraining(
        model=copy.deepcopy(model), optimizer=optimizer, sources=held, rounds=rounds,
        iterations=steps, angle=angle, clip=boolean("clip", clip),
        options={
            "loss": cross_entropy, "rounds": rounds, "epsilon": epsilon, "delta": delta,
            "noise": noise,
        },
    )  # fmt: skip
    again = integer("repeats", repeats, minimum=1) if boolean("attack", attack) else 0
    compared = boolean("compare", compare)

    def fit(run: Indistinguishable) -> TrainingRelease:
        for number in range(run.charges, rounds):
            training.round(run, number)
        found = attempted(lambda: _measured(run, training, test, again, compared, progress))
        return run.release(
            f"a classifier of images from {sources:,} sources, one poisoned on purpose",
            attacks=found.attacks,
            use=found.use,
            notes=(*found.notes, _aggregated(training), UNPUBLISHED, KNOWN, *notes),
        )

    return prepare_training(
        model, training.stepping(model), training.references,
        fit=fit, checkpoint=checkpoint, rng=rng,
        description=f"a model trained on {sources:,} sources, one of them poisoned on purpose",
        about=[
            data.images, data.labels, test.images, test.labels, trigger.name, trigger.pattern,
            trigger.kept, target, sources, malicious, batch, steps, angle, clip, order,
        ],
        **training.options,
    )  # fmt: skip


def _measured(
    run: Indistinguishable,
    training: PoisonedTraining,
    test: LabelledImages,
    repeats: int,
    compare: bool,
    progress: bool,
) -> Measured:
    trigger, target = training.sources.trigger, training.sources.target
    assert trigger is not None
    with progress_bar(repeats + 1 + compare, "training again", shown=progress) as advance:

        def of(model: torch.nn.Module) -> Outcome:
            found = measured(model, test, trigger, target)
            advance(1)
            return found

        mine = measured(run.model, test, trigger, target)
        plain = of(training.without_noise())
        # noise of another kind or of its own: nothing of it is released, so its seed is no matter
        same = of(training.with_noise(seed=0, noise="isotropic")) if compare else None
        references = [
            of(training.with_noise(left_out=training.sources.malicious, seed=seed))
            for seed in range(repeats)
        ]
    use = [_accuracy("accuracy", mine), _accuracy("accuracy without noise", plain)]
    attacks = []
    if repeats:
        attacks.append(
            Attack(
                name=f"{trigger.name} trigger of source {training.sources.malicious}",
                task=TASK, success=mine.success, prior=None, trials=mine.images,
            )
        )  # fmt: skip
        use.append(_attack("attack success without noise", plain))
    if same is not None:
        use.append(_accuracy("accuracy with isotropic noise of the same certificate", same))
        if repeats:
            use.append(_attack("attack success with isotropic noise", same))
    found = (_bound(run, training, references),) if repeats else ()
    return Measured(attacks=tuple(attacks), use=tuple(use), notes=found)


def _bound(
    run: Indistinguishable, training: PoisonedTraining, references: Sequence[Outcome]
) -> str:
    """Say what the certificate says of the attack, by name of its law, and what it does not."""
    index = training.sources.malicious
    mean = mean_over_noise([one.success.value for one in references])
    mu = float(run.budgets.mu[index])
    name = run.references.names[index]
    return (
        f"The certificate bounds the attack success averaged over the noise by Φ(Φ⁻¹(p) + μ), "
        f"μ = {mu:.3g}, p that of the model which the reference “{name}” gives with the noise of "
        f"this run; it bounds neither p nor the success of one draw. In {len(references)} runs of "
        f"that reference p was {percent(mean.value)} on average on the test images, at most "
        f"{percent_up(mean.high)} with 95% confidence over the noise, for which the bound is "
        f"{percent_up(bounded_probability(mean.high, mu))}; at the average measured it would be "
        f"{percent_up(bounded_probability(mean.value, mu))}, an estimate. p is not the success "
        "against a clean training: noise shaped by the poisoned gradients moves that model along "
        "them too."
    )


def _aggregated(training: PoisonedTraining) -> str:
    clipped = "clipped to their median norm" if training.clip else "not clipped"
    turned = "" if training.angle is None else f", turned to within {training.angle:g}° of the mean"
    steps = "" if training.iterations == 1 else f", {training.iterations} steps a round"
    return (
        f"The gradients of {training.sources.count:,} sources, {training.sources.share:,} images "
        f"each, were {clipped}{turned} and averaged{steps}."
    )


def _accuracy(name: str, found: Outcome) -> Use:
    return Use(name=name, unit="share", better="higher", measured=found.accuracy)


def _attack(name: str, found: Outcome) -> Use:
    return Use(name=name, unit="share", better="lower", measured=found.success)


def _check_fit(
    model: torch.nn.Module,
    data: LabelledImages,
    test: LabelledImages,
    trigger: Trigger,
    target: int,
) -> None:
    """Check that images, classes, trigger and model fit each other, before anything is certified.

    Raises:
        ValueError: names what does not.
    """
    for name, found in (("data", data), ("test", test)):
        if not isinstance(found, LabelledImages):
            raise ValueError(f"{name}: expected LabelledImages, got {type(found).__name__}")
    if test.images.shape[1:] != data.images.shape[1:]:
        raise ValueError(
            f"test: expected images of shape {data.images.shape[1:]}, got {test.images.shape[1:]}"
        )
    check_target(target, data.classes)
    if not (test.labels != target).any():
        raise ValueError("test: expected images of another class than the target, got none")
    triggered = trigger.apply(data.floats([0]))
    try:
        with torch.no_grad():
            scores = copy.deepcopy(model)(torch.from_numpy(triggered))
    except Exception as error:
        raise ValueError(
            f"model: expected one that takes images {triggered.shape[1:]}, got "
            f"{type(error).__name__} from it"
        ) from error
    if not isinstance(scores, torch.Tensor):
        raise ValueError(f"model: expected scores (n, classes), got {type(scores).__name__}")
    most = max(data.classes, test.classes)
    if scores.ndim != 2 or scores.shape[1] < most:
        raise ValueError(
            f"model: expected {most} scores of an image, one for each class, got "
            f"{tuple(scores.shape[1:])}"
        )
