"""``tacit training contribution``: sources with budgets, and what each of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import grouped
from tacit.cli.output import new_file
from tacit.cli.publishing import Destination, tell_prepared, tell_release, tell_table
from tacit.cli.statistic.asked import Bounds, bounds_of
from tacit.cli.tables import Category, Data, Missing, TableFlags
from tacit.cli.training.flags import ShapedFlags

if TYPE_CHECKING:
    from tacit.cli.training.tabular import Problem

# Every row in every round: a source's part of the gradient then differs by what it teaches, not by
# which of its rows were drawn.
PASSES, RATE = 10, 0.3


@grouped
def contribution(
    *,
    data: Data = None,
    source: Annotated[str, typer.Option(help="Column that says whose each row is.")],
    label: Annotated[str, typer.Option(help="Column that the model predicts, a category.")],
    reading: TableFlags,
    missing: Missing = "refuse",
    category: Category = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=EPSILON", help="Another ε than --epsilon for a source. May be repeated."
        ),
    ] = None,
    bounds: Bounds = None,
    hidden: Annotated[
        int, typer.Option(help="Units of a hidden layer; 0 is logistic regression.")
    ] = 0,
    held_out: Annotated[
        float,
        typer.Option(help="Share of the rows that nothing is learned from; taken as known to all."),
    ] = 0.25,
    influence: Annotated[
        bool, typer.Option(help="Train again without each source and measure its influence.")
    ] = True,
    repeats: Annotated[
        int, typer.Option(help="Pairs of noisy runs for each source's influence.")
    ] = 4,
    attacked: Annotated[
        int, typer.Option(help="Runs with, and as many without, for the attack.")
    ] = 20,
    flags: ShapedFlags,
) -> None:
    """Train a classifier of a table so that no source moves it beyond its budget.

    What each source does to the held-out likelihood is measured by training again without it.
    """
    from tacit.cli.training.tabular import problem_of, save_model
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.training import prepare_contribution

    levels = [*(category or ()), *_undeclared((source, label), category)]
    table = reading.read(data, missing=missing, categories=levels)
    destination = Destination.checked(
        flags, data, table, spends=GAUSSIAN_DP, others=flags.written()
    )
    saved = new_file("--save", flags.save, flags.force)
    problem = problem_of(
        table, source, label, hidden=hidden, held_out=held_out, bounds=bounds_of(bounds)
    )
    if saved is not None:
        _check_declared(problem.undeclared)
    prepared = prepare_contribution(
        problem.model,
        problem.data,
        problem.sources,
        held_out=problem.held_out,
        loss=problem.loss,
        optimizer=problem.optimizer(RATE if flags.rate is None else flags.rate),
        epsilon=_budgets(budget, flags.epsilon, problem),
        delta=flags.delta,
        passes=PASSES if flags.passes is None else flags.passes,
        batch=flags.batch,
        gram=flags.gram,
        noise=flags.noise,
        influence=influence,
        repeats=repeats,
        attack=flags.attack,
        attacked=attacked,
        checkpoint=flags.checkpoint,
        notes=problem.notes,
        rng=flags.seed,
        progress=True,
    )
    if flags.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    if saved is not None:
        save_model(saved, problem)
    destination.store(release, destination.provenance(table))
    tell_table(destination.json.console, table)
    tell_release(destination, release, saved)


def _check_declared(undeclared: tuple[str, ...]) -> None:
    """Refuse to write scales or levels that were found in the rows into a model."""
    if undeclared:
        raise ValueError(
            f"--save: expected --bounds of every column of numbers and --category NAME=LEVEL,… of "
            f"every other, --source and --label too, since the model holds them; {len(undeclared)} "
            f"are not declared, such as {undeclared[0]!r}"
        )


def _undeclared(names: tuple[str, ...], category: list[str] | None) -> list[str]:
    declared = {text.partition("=")[0].strip() for text in category or ()}
    return [name for name in dict.fromkeys(names) if name not in declared]


def _budgets(budget: list[str] | None, epsilon: float, problem: Problem) -> dict[str, float]:
    found: dict[str, float] = dict.fromkeys(problem.roster, epsilon)
    named: set[str] = set()
    for text in budget or ():
        name, given, value = text.rpartition("=")
        if not given or name not in found:
            raise ValueError(f"--budget: expected SOURCE=EPSILON of a source there, got {text!r}")
        if name in named:
            raise ValueError("--budget: expected each source once, got one twice")
        named.add(name)
        found[name] = _number(text, value)
    return found


def _number(text: str, value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"--budget: expected a number behind =, got {text!r}") from None
