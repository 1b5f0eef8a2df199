"""Training again: what a source does to a model, and what an attacker sees of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
from scipy import stats

from tacit._ground.checks import Array
from tacit._ground.values import Within, value
from tacit.attacks.intervals import proportion_interval
from tacit.compute.progress import progress_bar
from tacit.gradients.batches import evaluating
from tacit.measured import Interval
from tacit.releases import Attack, Use
from tacit.runs.run import Run
from tacit.text import percent_up
from tacit.training.account import Beside
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.prepared import Measurements
from tacit.training.release import GUESS
from tacit.training.rounds import OneStep
from tacit.training.sourced_examples import EpochSchedule, Examples, Indices

Loss: TypeAlias = Callable[..., torch.Tensor]
Factory: TypeAlias = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
Advance: TypeAlias = Callable[[int], None]
CONFIDENCE = 0.95
# Influence is measured source by source up to so many.
MEASURED = 20


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


def measure(
    rounds: Indistinguishable,
    task: ContributionTask,
    names: tuple[str, ...],
    each: Array,
    retraining: Retraining,
) -> Measurements:
    """Return what the model is worth, what each source did to it, and the attack on the loosest."""
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
    # no masks: what the model names is one function of the input
    with evaluating(model), torch.no_grad():
        given = model(inputs)
    if given.ndim != 2:
        return []
    # classes named right
    hits = int((given.argmax(dim=1) == targets).sum())
    measured = share_of(hits, len(targets))
    return [Use(name="held-out accuracy", unit="share", better="higher", measured=measured)]


def remarks_of(
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


def check_loss(task: ContributionTask) -> None:
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
