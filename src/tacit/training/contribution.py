"""Sources with budgets: train, certify each one's influence, measure it, release the model."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from tacit.releases import Release
from tacit.runs.run import Run, check_run
from tacit.training.account import Beside
from tacit.training.indistinguishable import ONE_STEP, Indistinguishable
from tacit.training.prepared import PreparedTraining, attempt, prepare_training
from tacit.training.references import References
from tacit.training.release import TrainedModel
from tacit.training.retraining import (
    ContributionTask,
    Retraining,
    TrainingRecipe,
    check_loss,
    measure,
    remarks_of,
)
from tacit.training.rounds import OneStep
from tacit.training.sourced_examples import (
    EpochSchedule,
    SourcedExamples,
    budgets_of,
    examples_of,
    sources_of,
)

# What of a run these rounds read; their number follows from the passes.
READ = ("passes", "checkpoint", "about")
ONE_PASS = Run(passes=1, progress=False)


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
    inputs = examples_of("data", examples.data)
    kept_out = examples_of("held_out", examples.held_out)
    # every source there is or that was declared, and whose each example is
    names, groups = sources_of(examples.sources, len(inputs[0]), promise.epsilon)
    # ε of each source
    each = budgets_of(promise, names)
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
    check_loss(task)

    def fit(rounds: Indistinguishable) -> Release[TrainedModel]:
        for number in rounds.rounds_left():
            # the round's examples, and whose they are
            chosen = schedule.examples(number)
            rounds.step(task.batch(chosen), groups[chosen])
        # a model that was paid for is released whatever becomes of its measurements
        found = attempt(lambda: measure(rounds, task, names, each, retraining))
        return rounds.release(
            f"a model trained on {len(names):,} sources",
            use=found.use,
            attacks=found.attacks,
            remarks=(
                *remarks_of(rounds, names, each, retraining.influence),
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
