"""Sources with budgets: train, certify each one's influence, measure it, release the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from scipy import stats

from tacit._ground.checks import Array, positive
from tacit._ground.values import Within, value
from tacit.attacks.intervals import proportion_interval
from tacit.compute.progress import progress_bar
from tacit.gradients.batches import evaluating
from tacit.guarantees.base import texts
from tacit.measured import Interval
from tacit.releases import Attack, Release, Use
from tacit.runs.run import Run, check_run
from tacit.text import percent_up
from tacit.training.account import Beside
from tacit.training.indistinguishable import ONE_STEP, Indistinguishable
from tacit.training.prepared import Measurements, PreparedTraining, attempt, prepare_training
from tacit.training.references import References
from tacit.training.release import GUESS, TrainedModel
from tacit.training.rounds import OneStep

Indices: TypeAlias = npt.NDArray[np.intp]
Loss: TypeAlias = Callable[..., torch.Tensor]
Examples: TypeAlias = tuple[torch.Tensor, torch.Tensor]
Factory: TypeAlias = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
Advance: TypeAlias = Callable[[int], None]
CONFIDENCE = 0.95
# Influence is measured source by source up to so many.
MEASURED = 20
# What of a run these rounds read; their number follows from the passes.
READ = ("passes", "checkpoint", "about")
ONE_PASS = Run(passes=1, progress=False)


@value
class TrainingRecipe:
    """What learns: a model, what makes its optimizer, and the loss of each example.

    Args:
        model: Trained in place when the release is drawn.
        optimizer: Makes the optimizer of a list of parameters.
        loss: ``loss(model, inputs, targets)`` → −ln p of each example, nats; None where a workflow
            has its own.
    """

    model: Any
    optimizer: Factory
    loss: Loss | None = None

    def _together(self) -> None:
        if not callable(self.optimizer):
            found = type(self.optimizer).__name__
            raise ValueError(f"optimizer: expected a function, got {found}")
        if self.loss is not None and not callable(self.loss):
            raise ValueError(f"loss: expected a function, got {type(self.loss).__name__}")


@value
class SourcedExamples:
    """Examples, whose each of them is, and others that nothing is learned from.

    Args:
        data: (inputs, targets), n examples.
        sources: (n,) the name of each example's source.
        held_out: (inputs, targets) that nothing is learned from, known to everybody.
        batch: Examples in a round; all of them when left out, which is least noisy.
        order: Seed of the shuffles; it must not depend on the data.
        remarks: What the holder of the release should know of them.
    """

    data: Any
    sources: Any
    held_out: Any
    batch: Annotated[int, Within(1, ends="[)")] | None = None
    order: Annotated[int, Within(0, ends="[)")] = 0
    remarks: tuple[str, ...] = ()


@value
class Retraining:
    """Further trainings on the same data, which say what sources do and what an attacker sees.

    Args:
        influence: Pairs of noisy runs for each source's influence, at least 2; 0 for none.
        attacked: Noisy runs with the source of the largest budget and as many without, by which
            it is attacked; an even number, at least 4; 0 for no attack.
    """

    influence: Annotated[int, Within(0, ends="[)")] = 4
    attacked: Annotated[int, Within(0, ends="[)")] = 20

    def _together(self) -> None:
        if self.influence == 1:
            raise ValueError("influence: expected 0, or 2 and more, got 1")
        if 0 < self.attacked < 4 or self.attacked % 2:
            raise ValueError(
                f"attacked: expected 0, or an even number from 4 on, got {self.attacked}"
            )


RETRAINING = Retraining()


def prepare_contribution(
    recipe: TrainingRecipe,
    examples: SourcedExamples,
    promise: Beside,
    run: Run = ONE_PASS,
    *,
    method: OneStep = ONE_STEP,
    retraining: Retraining = RETRAINING,
    rng: int | None = None,
) -> PreparedTraining:
    """Certify a training run in which no source moves the model beyond its own budget.

    Reference i is the same data without source i. What a source may do is its ε; what it does is
    measured by training again without it: ``E ln p(held out | all) − E ln p(held out | without)``.

    Args:
        recipe: what learns.
        examples: what is learned from, and what is held out.
        promise: δ, and ε > 0 of every source there is, or of each by its name, which declares the
            sources: one without an example is told like the others.
        run: passes over the data, and the folder that survives a crash.
        method: what the noise is shaped by.
        retraining: how often it is trained again, without each source and for an attack.
        rng: a seed voids the guarantee.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the release.

    Raises:
        ValueError: an argument is outside its range; the message never names a source of the data.

    Example:
        >>> torch = __import__("torch")
        >>> _ = torch.manual_seed(0)
        >>> x, y = torch.randn(60, 2), torch.randint(0, 2, (60,))
        >>> prepared = prepare_contribution(
        ...     TrainingRecipe(
        ...         model=torch.nn.Linear(2, 2), optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        ...         loss=lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y, reduction="none"),
        ...     ),
        ...     SourcedExamples(
        ...         data=(x[:40], y[:40]), sources=["Ada", "Bob"] * 20, held_out=(x[40:], y[40:]),
        ...         batch=20,
        ...     ),
        ...     Beside(epsilon={"Ada": 4.0, "Bob": 1.0}, delta=1e-5),
        ...     retraining=Retraining(influence=2, attacked=4),
        ... )
        >>> prepared.draw().details.references
        ('without Ada', 'without Bob')

    Source: dsi, Sec. 5.3 and Theorem 3.4.
    """  # noqa: E501
    # rounds follow from passes, so that no other budget is taken
    passes = check_run(run, READ).lasting(passes=1).passes
    # tensors, finite and equally many
    inputs = _examples("data", examples.data)
    kept_out = _examples("held_out", examples.held_out)
    # every source there is or that was declared, and whose each example is
    names, groups = _group(examples.sources, len(inputs[0]), promise.epsilon)
    # ε of each source
    each = _budgets(promise, names)
    # which examples every round has, by its number alone
    schedule = EpochSchedule(
        count=len(inputs[0]),
        batch=examples.batch or len(inputs[0]),
        passes=passes or 1,
        order=examples.order,
    )
    model, loss = recipe.model, recipe.loss
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if loss is None:
        raise ValueError("loss: expected a function, got None")
    if len(kept_out[0]) < 2:
        raise ValueError("held_out: expected at least 2 examples, got 1")
    # what is trained again for influences and for the attack
    task = ContributionTask(
        recipe=replace(recipe, model=copy.deepcopy(model)),
        data=inputs,
        held_out=kept_out,
        groups=groups,
        promise=replace(
            promise,
            references=References.leave_out(names),
            epsilon=each,
            participations=schedule.participations(groups),
        ),
        schedule=schedule,
        method=method,
    )
    # what cannot be measured is told before anything is spent
    _check_loss(task)

    def fit(rounds: Indistinguishable) -> Release[TrainedModel]:
        for number in rounds.rounds_left():
            # the round's examples, and whose they are
            chosen = schedule.examples(number)
            rounds.step(task.batch(chosen), groups[chosen])
        # a model that was paid for is released whatever becomes of its measurements
        found = attempt(lambda: _measure(rounds, task, names, each, retraining))
        return rounds.release(
            f"a model trained on {len(names):,} sources",
            use=found.use,
            attacks=found.attacks,
            remarks=(
                *_remarks(rounds, names, each, retraining.influence),
                *found.remarks,
                *examples.remarks,
            ),
        )

    # another data set, schedule or source list is another run
    about = (*inputs, *kept_out, groups, *names, schedule, run.about)
    rounds = Indistinguishable(
        model,
        recipe.optimizer(model.parameters()),
        task.promise,
        loss=loss,
        method=method,
        run=replace(run, passes=None, steps=schedule.rounds, about=about),
        rng=rng,
    )
    return prepare_training(rounds, fit, description=f"a model trained on {len(names):,} sources")


@dataclass(frozen=True, kw_only=True)
class EpochSchedule:
    """Passes over n examples in batches of a fixed size, shuffled anew in each pass.

    Which examples a round has is decided by its number alone, so that a run can go on.

    Attributes:
        count: n.
        batch: B at most.
        passes: over the data.
        order: seed of the shuffles, which do not depend on the data.

    Example:
        >>> schedule = EpochSchedule(count=5, batch=2, passes=2, order=0)
        >>> schedule.rounds, sorted(schedule.examples(3).tolist() + schedule.examples(4).tolist())
        (6, [0, 1, 3, 4])
    """

    count: int
    batch: int
    passes: int
    order: int

    @property
    def a_pass(self) -> int:
        """Rounds of one pass."""
        return -(-self.count // self.batch)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.a_pass * self.passes

    def examples(self, number: int) -> Indices:
        """Return the examples of a round, counted from 0."""
        # the pass, and the batch within it
        turn, place = divmod(number, self.a_pass)
        order = _shuffle(self.order, turn, self.count)
        return order[place * self.batch : (place + 1) * self.batch].copy()

    def participations(self, groups: Indices) -> int:
        """Return in how many rounds any one group takes part at most; −1 is no group."""
        # rounds that have an example of the group
        taken = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        for number in range(self.rounds):
            present = np.unique(groups[self.examples(number)])
            taken[present[present >= 0]] += 1
        return int(taken.max())


@lru_cache(maxsize=2)
def _shuffle(order: int, turn: int, count: int) -> Indices:
    found: Indices = np.random.default_rng([order, turn]).permutation(count)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, kw_only=True)
class ContributionTask:
    """What is trained, on what, and beside which references.

    Attributes:
        recipe: its model as it was before training.
        data: (inputs, targets), n examples.
        held_out: examples that nothing is learned from.
        groups: (n,) the source of each example.
        promise: beside one reference for each source.
        schedule: which examples every round has.
        method: of the rounds.
    """

    recipe: TrainingRecipe
    data: Examples
    held_out: Examples
    groups: Indices
    promise: Beside
    schedule: EpochSchedule
    method: OneStep

    @property
    def loss(self) -> Loss:
        """A loss for each example."""
        assert self.recipe.loss is not None
        return self.recipe.loss

    def likelihoods(self, model: torch.nn.Module, examples: Examples) -> Array:
        """Return ``−loss`` of every example."""
        with evaluating(model), torch.no_grad():
            found = -self.loss(model, *examples).detach().to(torch.float64).numpy()
        return np.asarray(found)

    def without_noise(self, left_out: int | None) -> torch.nn.Module:
        """Return the model trained without noise, one source left out or none.

        The batch is divided by its whole size either way, as in the certified run.
        """
        model = copy.deepcopy(self.recipe.model)
        optimizer = self.recipe.optimizer(model.parameters())
        for number in range(self.schedule.rounds):
            examples = self.schedule.examples(number)
            # −2 is nobody: all examples stay
            kept = examples[self.groups[examples] != (-2 if left_out is None else left_out)]
            optimizer.zero_grad(set_to_none=True)
            if kept.size:
                losses = self.loss(model, *self.batch(kept))
                # divided by the whole batch, as the certified run is
                torch.autograd.backward(losses.sum() / examples.size)
            optimizer.step()
        found: torch.nn.Module = model
        return found

    def with_noise(self, left_out: int | None, seed: int) -> torch.nn.Module:
        """Return the model of a fresh run, or what reference ``left_out`` gives with its noise.

        The noise covers the source as if it were learned from: it is the law that the certificate
        compares with. One seed gives both the same normal draws, so their difference is steady.
        """
        model = copy.deepcopy(self.recipe.model)
        rounds = Indistinguishable(
            model,
            self.recipe.optimizer(model.parameters()),
            self.promise,
            loss=self.loss,
            method=self.method,
            run=Run(steps=self.schedule.rounds),
            rng=seed,
        )
        for number in range(self.schedule.rounds):
            examples = self.schedule.examples(number)
            groups = self.groups[examples]
            # what is left out is covered by the noise and not learned from
            inside = None if left_out is None else groups != left_out
            rounds.step(self.batch(examples), groups, inside=inside)
        found: torch.nn.Module = model
        return found

    def batch(self, examples: Indices) -> Examples:
        """Return (inputs, targets) of some examples."""
        chosen = torch.from_numpy(examples)
        return self.data[0][chosen], self.data[1][chosen]


def _measure(
    rounds: Indistinguishable,
    task: ContributionTask,
    names: tuple[str, ...],
    each: Array,
    retraining: Retraining,
) -> Measurements:
    pairs, trials = retraining.influence, retraining.attacked
    # further sources are not measured, and the remark says so
    some = names[:MEASURED] if pairs else ()
    # U and each source left out: once without noise, and once for every pair
    total = (len(some) + 1) * (pairs + 1) * bool(some) + 2 * trials
    # of the released model
    likelihood = mean_of(task.likelihoods(rounds.model, task.held_out))
    use = [
        Use(name="held-out log-likelihood", unit="nats", better="higher", measured=likelihood),
        *_accuracy(task, rounds.model),
    ]
    attacks = []
    with progress_bar(total, "training again", shown=rounds.run.progress) as advance:
        if some:
            use += influences(task, some, range(pairs), advance)
        if trials:
            # of a source without examples there is nothing to tell
            # sources that have an example
            there = np.isin(np.arange(len(names)), task.groups)
            loosest = int(np.argmax(np.where(there, each, -1.0)))
            attacks.append(presence(task, loosest, names[loosest], GUESS, range(trials), advance))
    return Measurements(use=tuple(use), attacks=tuple(attacks))


def influences(
    task: ContributionTask, names: Sequence[str], seeds: Sequence[int], advance: Advance
) -> tuple[Use, ...]:
    """Return by how much each source raises the mean held-out log-likelihood, in nats.

    Without noise: one training with the source and one without, its interval over held-out
    examples by the normal law. With noise: pairs of runs with the same normal draws, Student's
    interval over pairs.

    Args:
        task: what is trained.
        names: of the sources.
        seeds: of the noise, one for each pair, at least 2.
        advance: told after every training.
    """

    def score(model: torch.nn.Module) -> Array:
        advance(1)
        return task.likelihoods(model, task.held_out)

    # without noise: one training on all, one without each source
    plain = score(task.without_noise(None))
    # with noise: the same seeds in both, so that most of the noise cancels
    noisy = [float(score(task.with_noise(None, seed)).mean()) for seed in seeds]
    uses = []
    for index, name in enumerate(names):
        # by held-out example: ln p(all) − ln p(without)
        alone = plain - score(task.without_noise(index))
        pairs = np.array(
            [
                whole - float(score(task.with_noise(index, seed)).mean())
                for whole, seed in zip(noisy, seeds, strict=True)
            ]
        )
        for values, way in ((alone, "without noise"), (pairs, "with noise")):
            uses.append(
                Use(
                    name=f"influence of {name} {way}",
                    unit="nats",
                    better="higher",
                    measured=mean_of(values),
                )
            )
    return tuple(uses)


def mean_of(values: Array) -> Interval:
    """Return a mean with Student's interval, of two values or more."""
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / values.size**0.5
    # t_{n−1} quantile times the standard error
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, values.size - 1)) * error
    return Interval(value=mean, low=mean - half, high=mean + half, confidence=CONFIDENCE)


def share_of(hits: int, trials: int) -> Interval:
    """Return a share with Clopper and Pearson's interval."""
    # exact, from the tails of the binomial law
    low, high = proportion_interval(hits, trials, CONFIDENCE)
    return Interval(value=hits / trials, low=low, high=high, confidence=CONFIDENCE)


def presence(
    task: ContributionTask,
    index: int,
    name: str,
    guess: str,
    seeds: Sequence[int],
    advance: Advance,
) -> Attack:
    """Return how often the likelihood of a source's own examples tells whether it was learned.

    The threshold is chosen on the first half of the runs and measured on the others.

    Args:
        task: what is trained.
        index: of the source.
        name: of the source.
        guess: the task as the certificate names it.
        seeds: of the noise, an even number: a run with and one without the source each.
        advance: told after every training.
    """
    # the source's own examples, which its likelihood is of
    own: Indices = np.flatnonzero(task.groups == index).astype(np.intp)
    scores = np.empty((2, len(seeds)))
    for side, left_out in enumerate((index, None)):
        for place, seed in enumerate(seeds):
            # runs with and without have draws of their own: an attacker sees one of them
            model = task.with_noise(left_out, 2 * seed + side)
            scores[side, place] = task.likelihoods(model, task.batch(own)).mean()
            advance(1)
    # a threshold that is chosen and measured on the same runs looks too good
    half = len(seeds) // 2
    threshold, above = best_threshold(scores[0, :half], scores[1, :half])
    # guesses of the other half of the runs
    said = (scores[:, half:] > threshold) == above
    # right in runs without the source, and in runs with it
    hits = int((~said[0]).sum() + said[1].sum())
    return Attack(
        name=f"likelihood of the examples of {name}",
        task=guess,
        success=share_of(hits, said.size),
        prior=0.5,
        trials=said.size,
    )


def best_threshold(without: Array, learned: Array) -> tuple[float, bool]:
    """Return the threshold that parts two samples best, and whether "learned" is above it."""
    values = np.unique(np.concatenate([without, learned]))
    # between neighbouring values, and below all
    cuts = [values[0] - 1.0, *((values[1:] + values[:-1]) / 2.0)]
    right = [(float((without <= cut).mean() + (learned > cut).mean()) / 2.0, cut) for cut in cuts]
    # the best either way round
    best, least = max(right), min(right)
    return (best[1], True) if best[0] >= 1.0 - least[0] else (least[1], False)


def _accuracy(task: ContributionTask, model: torch.nn.Module) -> list[Use]:
    """Return the share of held-out examples named right, where targets are classes."""
    inputs, targets = task.held_out
    if targets.ndim != 1 or targets.dtype.is_floating_point:
        return []
    with torch.no_grad():
        given = model(inputs)
    if given.ndim != 2:
        return []
    # classes named right
    hits = int((given.argmax(dim=1) == targets).sum())
    measured = share_of(hits, len(targets))
    return [Use(name="held-out accuracy", unit="share", better="higher", measured=measured)]


def _remarks(
    rounds: Indistinguishable, names: tuple[str, ...], each: Array, pairs: int
) -> list[str]:
    """Say what each budget means for the model's accuracy, and what influence was measured."""
    # total variation of N(0, 1) and N(μ, 1): no event is likelier by more
    shifts = 2.0 * stats.norm.cdf(rounds.budgets.mu / 2.0) - 1.0
    # the largest budgets first
    order = np.argsort(-each, kind="stable")
    most = [f"{names[i]} {percent_up(float(shifts[i]))}" for i in order[:MEASURED]]
    more = len(names) - len(most)
    rest = f"; {more} more, at most {percent_up(float(shifts[order[MEASURED]]))}" if more else ""
    remarks = [
        "With the noise of this run either way, the expected share of right answers on any fixed "
        "examples differs with and without a source by at most (2Φ(μ/2) − 1): "
        f"{'; '.join(most)}{rest}.",
        "Held-out examples are taken as known to everybody: the certificate does not speak of what "
        "was chosen by them.",
    ]
    if pairs:
        untold = f" Of {more} sources, those after the first {MEASURED} by name, none was measured."
        remarks.append(
            f"Influences come from further runs ({pairs} pairs of fresh noise a source, and one "
            "without noise); they are measured on the data and may not be published."
            + (untold if more else "")
        )
    return remarks


def _check_loss(task: ContributionTask) -> None:
    """Refuse what would fail when the held-out examples are measured, before anything is spent."""
    try:
        found = task.likelihoods(copy.deepcopy(task.recipe.model), task.held_out)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ValueError(
            f"held_out: expected examples that the loss takes, got {type(error).__name__} from it"
        ) from None
    if found.shape != (len(task.held_out[0]),) or not np.isfinite(found).all():
        raise ValueError(
            f"loss: expected {len(task.held_out[0])} finite losses of the held-out examples, got "
            f"shape {found.shape}"
        )


def _examples(name: str, examples: Any) -> Examples:
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise ValueError(f"{name}: expected (inputs, targets), got {type(examples).__name__}")
    # copied: what is checked and certified here is what is trained on
    found = [
        part.detach().clone() if isinstance(part, torch.Tensor) else _tensor(name, part)
        for part in examples
    ]
    for what, part in zip(("inputs", "targets"), found, strict=True):
        if part.ndim == 0 or len(part) == 0:
            raise ValueError(f"{name}: expected examples, got none in {what}")
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise ValueError(f"{name}: expected finite {what}, got NaN or infinite ones")
    if len(found[0]) != len(found[1]):
        raise ValueError(
            f"{name}: expected a target for each input, got {len(found[0])} and {len(found[1])}"
        )
    return found[0], found[1]


def _tensor(name: str, values: ArrayLike) -> torch.Tensor:
    found = np.asarray(values)
    if found.dtype.kind in "iu":
        return torch.from_numpy(found.astype(np.int64))
    try:
        return torch.from_numpy(found.astype(np.float32))
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected numbers, got {found.dtype}") from None


def _group(sources: Any, count: int, declared: Any) -> tuple[tuple[str, ...], Indices]:
    """Return the names of all sources, sorted, and the place of each example's among them."""
    given = texts("sources", list(sources))
    if len(given) != count:
        raise ValueError(f"sources: expected {count} names, one an example, got {len(given)}")
    # declared sources count though they have no example
    roster = {*given, *declared} if isinstance(declared, Mapping) else {*given}
    names = tuple(sorted(map(str, roster)))
    if len(names) < 2:
        raise ValueError("sources: expected at least 2, got 1")
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[name] for name in given], dtype=np.intp)


def _budgets(promise: Beside, names: tuple[str, ...]) -> Array:
    """Return ε of every source, in the order of their names."""
    epsilon = promise.epsilon
    if promise.references is not None or promise.participations is not None or epsilon is None:
        raise ValueError(
            "promise: expected Beside(epsilon=…, delta=…) alone: the references are the sources, "
            "and the passes say in how many rounds each takes part"
        )
    if not isinstance(epsilon, Mapping):
        return np.full(len(names), positive("epsilon", epsilon))
    missing = len(set(names) - set(epsilon))
    if missing:
        raise ValueError(f"epsilon: expected every source, got none for {missing} of {len(names)}")
    return np.array([positive("epsilon", epsilon[name]) for name in names])
