"""Poison one source on purpose, train beside the references without each, measure what is left."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import Array, integer
from tacit._ground.values import Count, Within, value
from tacit.attacks.intervals import chernoff_interval
from tacit.compute.progress import progress_bar
from tacit.gradients.batches import evaluating
from tacit.measured import Interval
from tacit.releases import Attack, Release, Use
from tacit.runs.run import Run, check_run
from tacit.text import percent, percent_up
from tacit.training.account import Beside
from tacit.training.bounded import bounded_probability
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.parameters import (
    check_model,
    flat_outcome,
    trainable,
    write_flat,
    write_gradient,
)
from tacit.training.prepared import Measurements, PreparedTraining, attempt, prepare_training
from tacit.training.references import References
from tacit.training.release import TrainedModel
from tacit.training.retraining import CONFIDENCE, Factory, TrainingRecipe, share_of
from tacit.training.rounds import NoiseOfRounds, OneStep
from tacit_lab.poisoning.aggregation import ANGLE, robust_aggregate, robust_mean
from tacit_lab.poisoning.sources import (
    Images,
    LabelledImages,
    Sources,
    Trigger,
    check_target,
    cross_entropy,
    source_gradients,
)

# Images of one forward pass.
AT_ONCE = 500
TASK = "the target class on test images with the trigger"
UNPUBLISHED = (
    "What was measured without noise and in further runs is measured on the data and may not be "
    "published."
)
KNOWN = (
    "How many classes there are is taken as known to everybody, and so are the test images: the "
    "certificate does not speak of what was chosen by them."
)
# What of a run these rounds read; their number follows from the passes.
READ = ("passes", "checkpoint", "about")
ONE_PASS = Run(passes=1, progress=False)


@value
class PoisonedImages:
    """Labelled images split among sources, one of which is malicious, and others to test on.

    Args:
        data: What the sources hold, split among them at random, in equal parts.
        test: What nothing is learned from.
        trigger: What the malicious source hides in all of its images.
        target: The class that it wants, and labels them with.
        sources: Sources m, at least 2.
        malicious: Which source is.
        batch: Images of a step over all sources.
        order: Seed of who holds what and of the shuffles, which do not depend on the data.
        remarks: What the holder of the release should know of them.
    """

    data: Any
    test: Any
    trigger: Any
    target: Annotated[int, Within(0, ends="[)")]
    sources: int
    malicious: Annotated[int, Within(0, ends="[)")] = 0
    batch: Count = 400
    order: Annotated[int, Within(0, ends="[)")] = 0
    remarks: tuple[str, ...] = ()


@value
class RobustAggregation:
    """The sources' mean gradients, clipped, turned and averaged, and noise for every difference.

    Args:
        angle: Degrees from the mean direction that a gradient may have; None for any.
        clip: Whether norms are clipped to their median.
        iterations: Steps of a round; for more than 1 each round trains once more a source.
        noise: optimal, or isotropic of the same certificate, to compare with.
    """

    angle: Annotated[float, Within(0, 180, "(]")] | None = ANGLE
    clip: bool = True
    iterations: Count = 1
    noise: NoiseOfRounds = "optimal"


@value
class PoisoningComparison:
    """Further trainings that say what the trigger does elsewhere.

    Args:
        repeats: Runs of the reference without the malicious source, with noise of their own; 0
            leaves out the attack.
        compare: Whether to train with isotropic noise of the same certificate as well.
    """

    repeats: Annotated[int, Within(0, ends="[)")] = 2
    compare: bool = False


ROBUST, COMPARISON = RobustAggregation(), PoisoningComparison()


def prepare_poisoning(
    recipe: TrainingRecipe,
    images: PoisonedImages,
    promise: Beside,
    run: Run = ONE_PASS,
    *,
    method: RobustAggregation = ROBUST,
    comparison: PoisoningComparison = COMPARISON,
    rng: int | None = None,
) -> PreparedTraining:
    """Certify a training on m sources beside what each of them left out would have given.

    One source hides the trigger in all of its images and labels them with the target. Every round
    the sources' mean gradients are aggregated robustly, `robust_aggregate`, and reference i is the
    aggregate without source i.

    Args:
        recipe: a model, in which nothing may learn running statistics, and its optimizer; the
            loss is cross-entropy. It is trained in place when the release is drawn.
        images: what the sources hold, the malicious one and its trigger.
        promise: ε > 0 and δ of the whole run beside each reference.
        run: passes over the data, and the folder that survives a crash.
        method: how gradients are aggregated, and what the noise is.
        comparison: what is trained besides; O(m²) gradients for more than one step a round.
        rng: a seed voids the guarantee.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the release.

    Raises:
        ValueError: an argument is outside its range, or shapes do not fit.

    Example:
        >>> import numpy as np
        >>> from tacit_lab.poisoning import blended, small_network
        >>> pictures = np.random.default_rng(0).random((40, 1, 8, 8))
        >>> data = LabelledImages(pictures, np.arange(40) % 2)
        >>> prepared = prepare_poisoning(
        ...     TrainingRecipe(
        ...         model=small_network(1, 2), optimizer=lambda p: torch.optim.SGD(p, lr=0.05)
        ...     ),
        ...     PoisonedImages(
        ...         data=data, test=data, trigger=blended((1, 8, 8)), target=0, sources=4, batch=20
        ...     ),
        ...     Beside(epsilon=4.0, delta=1e-5), comparison=PoisoningComparison(repeats=1),
        ... )
        >>> prepared.draw().details.rounds
        2

    Source: dsi, Sec. 5.2, App. F.3 and Algorithm 2.
    """
    model, data, test = recipe.model, images.data, images.test
    check_model(model, cross_entropy)
    if recipe.loss is not None:
        raise ValueError("loss: expected None, as cross-entropy is taken, got another")
    # rounds follow from passes
    passes = check_run(run, READ).lasting(passes=1).passes or 1
    # images, classes, trigger and model fit each other
    _check_fit(model, images)
    sources = Sources(
        data=data,
        count=images.sources,
        batch=images.batch,
        malicious=images.malicious,
        trigger=images.trigger,
        target=images.target,
        order=images.order,
    )
    # K steps a round see K batches
    rounds = max(1, sources.a_pass * passes // method.iterations)
    # what is trained again for the comparison
    training = PoisonedTraining(
        model=copy.deepcopy(model),
        optimizer=recipe.optimizer,
        sources=sources,
        rounds=rounds,
        method=method,
        promise=replace(promise, references=References.leave_out(sources.names)),
    )

    def fit(own: Indistinguishable) -> Release[TrainedModel]:
        for number in own.rounds_left():
            training.round(own, number)
        found = attempt(lambda: _measure(own, training, test, comparison))
        return own.release(
            f"a classifier of images from {images.sources:,} sources, one poisoned on purpose",
            attacks=found.attacks,
            use=found.use,
            remarks=(
                *found.remarks,
                _aggregation_words(training),
                UNPUBLISHED,
                KNOWN,
                *images.remarks,
            ),
        )

    trigger = images.trigger
    # what makes the run what it is: images, labels, trigger, sources
    about = (
        data.images,
        data.labels,
        test.images,
        test.labels,
        trigger.name,
        trigger.pattern,
        trigger.kept,
        images.target,
        images.sources,
        images.malicious,
        images.batch,
        method,
        images.order,
        run.about,
    )
    return prepare_training(
        training.begin(model, replace(run, passes=None, steps=rounds, about=about), rng=rng),
        fit,
        description=f"a model trained on {images.sources:,} sources, one of them poisoned on "
        "purpose",
    )


@dataclass(frozen=True, kw_only=True)
class PoisonedTraining:
    """Robustly aggregated training on sources, one of them malicious.

    Attributes:
        model: as it was before training.
        optimizer: makes one of a model's parameters.
        sources: who holds what.
        rounds: T.
        method: how gradients are aggregated; more than one step of a round needs (m + 1) trainings
            of m gradients in every round.
        promise: beside all of the data without each source.
    """

    model: torch.nn.Module
    optimizer: Factory
    sources: Sources
    rounds: int
    method: RobustAggregation
    promise: Beside

    def begin(
        self,
        model: torch.nn.Module,
        run: Run,
        *,
        rng: int | None,
        noise: NoiseOfRounds | None = None,
    ) -> Indistinguishable:
        """Return the rounds of a model: a step each, or any outcome where they have several."""
        # for one step a round the optimizer sees the noisy aggregate
        stepping = self.optimizer(model.parameters()) if self.method.iterations == 1 else None
        method = OneStep(noise=noise or self.method.noise)
        return Indistinguishable(
            model, stepping, self.promise, loss=cross_entropy, method=method, run=run, rng=rng
        )

    def round(self, run: Indistinguishable, number: int, *, left_out: int | None = None) -> None:
        """Run one round: U's update, or that of a reference, with the noise of U's differences.

        Args:
            run: with an optimiser for one step a round, without for more.
            number: from 0; it decides the batches.
            left_out: the source whose reference is trained instead of U.
        """
        if self.method.iterations == 1:
            # F(U) and z_i = F(R_i) − F(U) from m gradients
            real, differences = self.aggregate(run.model, number)
        else:
            real = self._local(run.model, number, None)
            # w after K robust steps without each source
            outcomes = [
                self._local(run.model, number, source) for source in range(self.sources.count)
            ]
            differences = np.stack(outcomes) - real
        # the reference has the noise of U's differences
        run.update(real if left_out is None else real + differences[left_out], differences)

    def aggregate(self, model: torch.nn.Module, number: int) -> tuple[Array, Array]:
        """Return F(U) of one step and the differences of the references, from m gradients."""
        gradients = source_gradients(model, self.sources, number)
        return robust_aggregate(gradients, angle=self.method.angle, clip=self.method.clip)

    def without_noise(self, *, left_out: int | None = None) -> torch.nn.Module:
        """Return the model trained without noise, on all sources or all but one."""
        model = copy.deepcopy(self.model)
        optimizer = self.optimizer(model.parameters())
        for number in range(self.rounds):
            if self.method.iterations > 1:
                write_flat(model, self._local(model, number, left_out))
                continue
            real, differences = self.aggregate(model, number)
            write_gradient(model, real if left_out is None else real + differences[left_out])
            optimizer.step()
        return model

    def with_noise(
        self, *, left_out: int | None = None, seed: int, noise: NoiseOfRounds | None = None
    ) -> torch.nn.Module:
        """Return the model of a fresh run, or what a reference gives with the noise of that run.

        The noise of the reference covers the source that is left out, as if it were learned from:
        it is the law that the certificate compares with.

        Args:
            left_out: the source of the reference.
            seed: of the noise.
            noise: of another kind than that of the released run.
        """
        model = copy.deepcopy(self.model)
        run = self.begin(model, Run(steps=self.rounds), rng=seed, noise=noise)
        for number in range(self.rounds):
            self.round(run, number, left_out=left_out)
        return model

    def _local(self, model: torch.nn.Module, number: int, left_out: int | None) -> Array:
        """Return the parameters after K robust steps on all sources or all but one."""
        # a copy trains, the model stays where the round began
        local, method = copy.deepcopy(model), self.method
        optimizer = self.optimizer(local.parameters())
        for step in range(method.iterations):
            gradients = source_gradients(
                local, self.sources, number * method.iterations + step, left_out=left_out
            )
            write_gradient(local, robust_mean(gradients, angle=method.angle, clip=method.clip))
            optimizer.step()
        return flat_outcome(local, "parameters", dict(trainable(local)))


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """How one model does on test images.

    Attributes:
        accuracy: share of clean images named right.
        success: attack success rate, the share of triggered images of another class that are named
            the target.
        images: how many of them there are.
    """

    accuracy: Interval
    success: Interval
    images: int


def measure_trigger(
    model: torch.nn.Module, test: LabelledImages, trigger: Trigger, target: int
) -> TestOutcome:
    """Return clean accuracy and attack success of a model, with Clopper and Pearson's intervals.

    The intervals speak of this model on further images of the same kind, not of another draw of
    its noise.

    Args:
        model: to be attacked; images → (n, C) scores.
        test: images that nothing was learned from.
        trigger: put on those whose class is not the target.
        target: the class that the attacker wants.

    Raises:
        ValueError: every test image is of the target class, or the target is no class.

    Example:
        >>> from tacit_lab.poisoning import blended
        >>> test = LabelledImages(np.zeros((6, 1, 2, 2)), np.array([0, 1, 2, 0, 1, 2]))
        >>> always = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> _ = torch.nn.init.zeros_(always[1].weight)
        >>> always[1].bias.data = torch.tensor([1.0, 0.0, 0.0])
        >>> found = measure_trigger(always, test, blended((1, 2, 2)), 0)
        >>> round(found.accuracy.value, 3), found.success.value, found.images
        (0.333, 1.0, 4)

    Source: dsi, Sec. 5.2.
    """
    integer("target", target, minimum=0, maximum=None)
    # an image of the target class is named so without any trigger
    others = np.flatnonzero(test.labels != target)
    if not others.size:
        raise ValueError("test: expected images of another class than the target, got none")
    right = hits = 0
    for start in range(0, len(test), AT_ONCE):
        some = np.arange(start, min(start + AT_ONCE, len(test)))
        right += int((_answers(model, test.floats(some)) == test.labels[some]).sum())
    for start in range(0, others.size, AT_ONCE):
        images = trigger.apply(test.floats(others[start : start + AT_ONCE]))
        hits += int((_answers(model, images) == target).sum())
    return TestOutcome(
        accuracy=share_of(right, len(test)), success=share_of(hits, others.size), images=others.size
    )


def mean_over_noise(shares: Sequence[float]) -> Interval:
    """Return the mean of shares in [0, 1] over independent runs, with Chernoff's interval."""
    mean = float(np.mean(shares))
    low, high = chernoff_interval(mean, len(shares), CONFIDENCE)
    return Interval(value=mean, low=min(low, mean), high=max(high, mean), confidence=CONFIDENCE)


def _answers(model: torch.nn.Module, images: Images) -> npt.NDArray[np.int64]:
    with evaluating(model), torch.no_grad():
        scores = model(torch.from_numpy(images))
    if scores.ndim != 2 or not bool(torch.isfinite(scores).all()):
        raise ValueError("model: expected finite scores (n, classes), got other values")
    return np.asarray(scores.argmax(dim=1).numpy())


def _measure(
    run: Indistinguishable,
    training: PoisonedTraining,
    test: LabelledImages,
    comparison: PoisoningComparison,
) -> Measurements:
    repeats, compare = comparison.repeats, comparison.compare
    trigger, target = training.sources.trigger, training.sources.target
    assert trigger is not None
    with progress_bar(repeats + 1 + compare, "training again", shown=run.run.progress) as advance:

        def of(model: torch.nn.Module) -> TestOutcome:
            found = measure_trigger(model, test, trigger, target)
            advance(1)
            return found

        # the model that is released
        mine = measure_trigger(run.model, test, trigger, target)
        # what the poison does without noise
        plain = of(training.without_noise())
        # noise of another kind or of its own: nothing of it is released, so its seed is no matter
        same = of(training.with_noise(seed=0, noise="isotropic")) if compare else None
        # p: what a model without the poison does, with the same law of noise
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
                task=TASK,
                success=mine.success,
                prior=None,
                trials=mine.images,
            )
        )
        use.append(_attack("attack success without noise", plain))
    if same is not None:
        use.append(_accuracy("accuracy with isotropic noise of the same certificate", same))
        if repeats:
            use.append(_attack("attack success with isotropic noise", same))
    found = (_bound(run, training, references),) if repeats else ()
    return Measurements(attacks=tuple(attacks), use=tuple(use), remarks=found)


def _bound(
    run: Indistinguishable, training: PoisonedTraining, references: Sequence[TestOutcome]
) -> str:
    """Say what the certificate says of the attack, by name of its law, and what it does not."""
    index = training.sources.malicious
    # over runs: the bound is on the mean over noise
    mean = mean_over_noise([one.success.value for one in references])
    mu = float(run.budgets.mu[index])
    name = run.references.names[index]
    return (
        f"The certificate bounds the attack success averaged over the noise by Φ(Φ⁻¹(p) + μ), "
        f"μ = {mu:.3g}, p that of the model which the reference “{name}” gives with the noise of "
        f"this run. It bounds neither p nor the success of one draw. In {len(references)} runs of "
        f"that reference p was {percent(mean.value)} on average on the test images, at most "
        f"{percent_up(mean.high)} with 95% confidence over the noise, for which the bound is "
        f"{percent_up(bounded_probability(mean.high, mu))}; at the average measured it would be "
        f"{percent_up(bounded_probability(mean.value, mu))}, an estimate. p is not the success "
        "against a clean training: noise shaped by the poisoned gradients moves that model along "
        "them too."
    )


def _aggregation_words(training: PoisonedTraining) -> str:
    method = training.method
    clipped = "clipped to their median norm" if method.clip else "not clipped"
    turned = "" if method.angle is None else f", turned to within {method.angle:g}° of the mean"
    steps = "" if method.iterations == 1 else f", {method.iterations} steps a round"
    return (
        f"The gradients of {training.sources.count:,} sources, {training.sources.share:,} images "
        f"each, were {clipped}{turned} and averaged{steps}."
    )


def _accuracy(name: str, found: TestOutcome) -> Use:
    return Use(name=name, unit="share", better="higher", measured=found.accuracy)


def _attack(name: str, found: TestOutcome) -> Use:
    return Use(name=name, unit="share", better="lower", measured=found.success)


def _check_fit(model: torch.nn.Module, given: PoisonedImages) -> None:
    """Check that images, classes, trigger and model fit each other, before anything is certified.

    Raises:
        ValueError: names what does not.
    """
    data, test, target = given.data, given.test, given.target
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
    if not isinstance(given.trigger, Trigger):
        raise ValueError(f"trigger: expected a Trigger, got {type(given.trigger).__name__}")
    # one image through the model, before anything is certified
    triggered = given.trigger.apply(data.floats([0]))
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
    # a score for each class there is
    most = max(data.classes, test.classes)
    if scores.ndim != 2 or scores.shape[1] < most:
        raise ValueError(
            f"model: expected {most} scores of an image, one for each class, got "
            f"{tuple(scores.shape[1:])}"
        )
