"""Sources with budgets: train, certify each one's influence, measure it, release the model."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import stats

from tacit._ground.checks import Array, boolean, integer, positive
from tacit.attacks.intervals import proportion_interval
from tacit.compute.progress import progress_bar
from tacit.guarantees.base import texts
from tacit.measured import Interval
from tacit.releases.form import Use
from tacit.text import percent_up
from tacit.training.contribution.influence import CONFIDENCE, influences, mean_of, presence
from tacit.training.contribution.runs import Examples, Loss, Task
from tacit.training.contribution.schedule import Indices, Schedule
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.measured import Measured, attempted
from tacit.training.prepared import PreparedTraining, prepare_training
from tacit.training.references import References
from tacit.training.release import GUESS, TrainingRelease

# Influence is measured source by source up to so many.
MEASURED = 20


def prepare_contribution(
    model: torch.nn.Module,
    data: Sequence[Any],
    sources: Sequence[str],
    *,
    held_out: Sequence[Any],
    loss: Loss,
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
    epsilon: float | Mapping[str, float],
    delta: float,
    passes: int = 1,
    batch: int | None = None,
    order: int = 0,
    gram: str = "exact",
    noise: str = "optimal",
    influence: bool = True,
    repeats: int = 4,
    attack: bool = True,
    attacked: int = 20,
    checkpoint: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    rng: int | None = None,
    progress: bool = False,
) -> PreparedTraining:
    """Certify a training run in which no source moves the model beyond its own budget.

    Reference i is the same data without source i. What a source may do is its ε; what it does is
    measured by training again without it: ``E ln p(held out | all) − E ln p(held out | without)``.

    Args:
        model: trained in place when the release is drawn.
        data: (inputs, targets), n examples.
        sources: (n,) the name of each example's source.
        held_out: (inputs, targets) that nothing is learned from, known to everybody.
        loss: ``loss(model, inputs, targets)`` → −ln p of each example, nats.
        optimizer: makes the optimiser of a list of parameters.
        epsilon: ε > 0 of every source there is, or of each by its name, which declares the sources:
            one without an example is told like the others.
        delta: δ in (0, 1).
        passes: over the data, >= 1.
        batch: B, examples in a round; all of them when left out, which is least noisy.
        order: seed of the shuffles; it must not depend on the data.
        gram: what the noise is shaped by, as in `Indistinguishable`.
        noise: ``"optimal"`` or ``"isotropic"``.
        influence: whether to train again without each source, with and without noise.
        repeats: pairs of noisy runs for each source's influence, >= 2.
        attack: whether to attack the source of the largest budget.
        attacked: noisy runs with it and as many without, an even number >= 4.
        checkpoint: folder that survives a crash.
        notes: what a reader should know beside.
        rng: a seed voids the guarantee.
        progress: whether to show the measurements' progress.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the `TrainingRelease`.

    Raises:
        ValueError: an argument is outside its range; the message never names a source of the data.

    Example:
        >>> torch = __import__("torch")
        >>> _ = torch.manual_seed(0)
        >>> x, y = torch.randn(60, 2), torch.randint(0, 2, (60,))
        >>> prepared = prepare_contribution(
        ...     torch.nn.Linear(2, 2), (x[:40], y[:40]), ["Ada", "Bob"] * 20,
        ...     held_out=(x[40:], y[40:]), epsilon={"Ada": 4.0, "Bob": 1.0}, delta=1e-5, batch=20,
        ...     loss=lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y, reduction="none"),
        ...     optimizer=lambda p: torch.optim.SGD(p, lr=0.1), repeats=2, attacked=4,
        ... )
        >>> prepared.draw().references
        ('without Ada', 'without Bob')

    Source: dsi, Sec. 5.3 and Theorem 3.4.
    """
    inputs, kept_out = _examples("data", data), _examples("held_out", held_out)
    names, groups = _grouped(sources, len(inputs[0]), epsilon)
    each = _budgets(epsilon, names)
    schedule = Schedule(
        count=len(inputs[0]),
        batch=len(inputs[0]) if batch is None else integer("batch", batch, minimum=1),
        passes=integer("passes", passes, minimum=1),
        order=integer("order", order, minimum=0),
    )
    pairs = integer("repeats", repeats, minimum=2)
    trials = integer("attacked", attacked, minimum=4)
    if trials % 2:
        raise ValueError(f"attacked: expected an even number, got {trials}")
    options: dict[str, Any] = {
        "epsilon": each, "delta": delta, "rounds": schedule.rounds,
        "participations": schedule.participations(groups), "gram": gram, "noise": noise,
    }  # fmt: skip
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if len(kept_out[0]) < 2:
        raise ValueError("held_out: expected at least 2 examples, got 1")
    if not callable(optimizer):
        raise ValueError(f"optimizer: expected a function, got {type(optimizer).__name__}")
    task = Task(
        model=copy.deepcopy(model), optimizer=optimizer, loss=loss, data=inputs, held_out=kept_out,
        groups=groups, references=References.leave_out(names), schedule=schedule, options=options,
    )  # fmt: skip
    _check_loss(task)
    measured = (
        pairs if boolean("influence", influence) else 0,
        trials if boolean("attack", attack) else 0,
    )

    def fit(run: Indistinguishable) -> TrainingRelease:
        for number in range(run.charges, schedule.rounds):
            examples = schedule.examples(number)
            run.step(task.batch(examples), groups[examples])
        return _released(run, task, names, each, measured, tuple(notes), progress)

    return prepare_training(
        model, optimizer(model.parameters()), task.references,
        loss=loss, fit=fit, checkpoint=checkpoint, rng=rng,
        description=f"a model trained on {len(names):,} sources",
        about=[*inputs, *kept_out, groups, *names, schedule], **options,
    )  # fmt: skip


def _released(
    run: Indistinguishable,
    task: Task,
    names: tuple[str, ...],
    each: Array,
    measured: tuple[int, int],
    beside: tuple[str, ...],
    progress: bool,
) -> TrainingRelease:
    found = attempted(lambda: _measured(run, task, names, each, measured, progress))
    return run.release(
        f"a model trained on {len(names):,} sources",
        use=found.use,
        attacks=found.attacks,
        notes=(*_notes(run, names, each, measured[0]), *found.notes, *beside),
    )


def _measured(
    run: Indistinguishable,
    task: Task,
    names: tuple[str, ...],
    each: Array,
    measured: tuple[int, int],
    progress: bool,
) -> Measured:
    pairs, trials = measured
    told = names[:MEASURED] if pairs else ()
    # U and each source left out: once without noise, and once for every pair
    total = (len(told) + 1) * (pairs + 1) * bool(told) + 2 * trials
    likelihoods = task.likelihoods(run.model, task.held_out)
    use = [
        Use(
            name="held-out log-likelihood", unit="nats", better="higher",
            measured=mean_of(likelihoods),
        ),
        *_accuracy(task, run.model),
    ]  # fmt: skip
    attacks = []
    with progress_bar(total, "training again", shown=progress) as advance:
        if told:
            use += influences(task, told, range(pairs), advance)
        if trials:
            # of a source without examples there is nothing to tell
            there = np.isin(np.arange(len(names)), task.groups)
            loosest = int(np.argmax(np.where(there, each, -1.0)))
            attacks.append(presence(task, loosest, names[loosest], GUESS, range(trials), advance))
    return Measured(use=tuple(use), attacks=tuple(attacks))


def _accuracy(task: Task, model: torch.nn.Module) -> list[Use]:
    """Return the share of held-out examples named right, where targets are classes."""
    inputs, targets = task.held_out
    if targets.ndim != 1 or targets.dtype.is_floating_point:
        return []
    with torch.no_grad():
        given = model(inputs)
    if given.ndim != 2:
        return []
    hits, count = int((given.argmax(dim=1) == targets).sum()), len(targets)
    low, high = proportion_interval(hits, count, CONFIDENCE)
    found = Interval(value=hits / count, low=low, high=high, confidence=CONFIDENCE)
    return [Use(name="held-out accuracy", unit="share", better="higher", measured=found)]


def _notes(run: Indistinguishable, names: tuple[str, ...], each: Array, pairs: int) -> list[str]:
    """Say what each budget means for the model's accuracy, and what influence was measured."""
    shifts = 2.0 * stats.norm.cdf(run.budgets.mu / 2.0) - 1.0
    order = np.argsort(-each, kind="stable")
    most = [f"{names[i]} {percent_up(float(shifts[i]))}" for i in order[:MEASURED]]
    more = len(names) - len(most)
    rest = f"; {more} more, at most {percent_up(float(shifts[order[MEASURED]]))}" if more else ""
    notes = [
        "With the noise of this run either way, the expected share of right answers on any fixed "
        "examples differs with and without a source by at most (2Φ(μ/2) − 1): "
        f"{'; '.join(most)}{rest}.",
        "Held-out examples are taken as known to everybody: the certificate does not speak of what "
        "was chosen by them.",
    ]
    if pairs:
        notes.append(
            f"Influences come from further runs ({pairs} pairs of fresh noise a source, and one "
            "without noise); they are measured on the data and may not be published."
            + (
                f" Of {more} sources, those after the first {MEASURED} by name, none was measured."
                if more
                else ""
            )
        )
    return notes


def _check_loss(task: Task) -> None:
    """Refuse what would fail when the held-out examples are measured, before anything is spent."""
    try:
        found = task.likelihoods(copy.deepcopy(task.model), task.held_out)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ValueError(
            f"held_out: expected examples that the loss takes, got {type(error).__name__} from it"
        ) from None
    if found.shape != (len(task.held_out[0]),) or not np.isfinite(found).all():
        raise ValueError(
            f"loss: expected {len(task.held_out[0])} finite losses of the held-out examples, got "
            f"shape {found.shape}"
        )


def _examples(name: str, examples: Sequence[Any]) -> Examples:
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise ValueError(f"{name}: expected (inputs, targets), got {type(examples).__name__}")
    found = [part if isinstance(part, torch.Tensor) else _tensor(name, part) for part in examples]
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


def _grouped(sources: Sequence[str], count: int, declared: Any) -> tuple[tuple[str, ...], Indices]:
    held = texts("sources", list(sources))
    if len(held) != count:
        raise ValueError(f"sources: expected {count} names, one an example, got {len(held)}")
    roster = {*held, *declared} if isinstance(declared, Mapping) else {*held}
    names = tuple(sorted(map(str, roster)))
    if len(names) < 2:
        raise ValueError("sources: expected at least 2, got 1")
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[name] for name in held], dtype=np.intp)


def _budgets(epsilon: Any, names: tuple[str, ...]) -> Array:
    if not isinstance(epsilon, Mapping):
        return np.full(len(names), positive("epsilon", epsilon))
    missing = len(set(names) - set(epsilon))
    if missing:
        raise ValueError(f"epsilon: expected every source, got none for {missing} of {len(names)}")
    return np.array([positive("epsilon", epsilon[name]) for name in names])
