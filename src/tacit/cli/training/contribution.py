"""``tacit training contribution``: sources with budgets, and what each of them does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from tacit._ground.checks import integer
from tacit._ground.files import check_room
from tacit.cli.completion import column
from tacit.cli.options import grouped
from tacit.cli.output import new_file
from tacit.cli.publishing import Destination, Source, kept_beside, publish, tell_release, tell_table
from tacit.cli.tables import Category, Data, Missing, TableFlags
from tacit.cli.training.flags import Passes, TrainingFlags, saving, tell_model
from tacit.training.rounds import OneStep

if TYPE_CHECKING:
    from tacit.cli.training.tabular import TableProblem
    from tacit.releases import Release

# Every row in every round: a source's part of the gradient then differs by what it teaches, not by
# which of its rows were drawn.
PASSES, RATE = 10, 0.3


@dataclass(frozen=True, kw_only=True)
class ProblemFlags:
    """How rows of sources become what a classifier learns from."""

    panel: ClassVar[str] = "Problem"

    source: Annotated[
        str, typer.Option(autocompletion=column, help="Column that says whose each row is.")
    ]
    label: Annotated[
        str, typer.Option(autocompletion=column, help="Column that the model predicts, a category.")
    ]
    missing: Missing = "refuse"
    category: Category = None
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW:HIGH,…",
            help="Lowest and highest of columns of numbers, declared without looking at the table: "
            "a number outside counts as the nearer bound. May be repeated.",
        ),
    ] = None
    hidden: Annotated[
        int, typer.Option(help="Units of a hidden layer; 0 is logistic regression.")
    ] = 0
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out-share",
            help="Share of the rows that nothing is learned from; taken as known to all.",
        ),
    ] = 0.25


@dataclass(frozen=True, kw_only=True)
class ContributionFlags(TrainingFlags):
    """Budgets, loop and destination."""

    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=EPSILON",
            help="ε of one source, in place of --epsilon. May be repeated.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RetrainingFlags:
    """What is trained again to be measured."""

    panel: ClassVar[str] = "Measured"

    influence: Annotated[
        bool,
        typer.Option(
            "--influence/--no-influence",
            help="Train again without each source, and measure how the model changes.",
        ),
    ] = True
    repeats: Annotated[
        int, typer.Option(help="Pairs of noisy runs for each source's influence.")
    ] = 4
    attacked: Annotated[
        int,
        typer.Option(
            "--trials", help="Number of attacked runs with each source, and as many without it."
        ),
    ] = 20


@grouped
def contribution(
    data: Data = None,
    *,
    reading: TableFlags,
    asked: ProblemFlags,
    again: RetrainingFlags,
    method: OneStep,
    run: Passes,
    flags: ContributionFlags,
) -> None:
    """Train a classifier of a table so that no source moves it beyond its budget.

    What each source does to the held-out likelihood is measured by training again without it.

    Ten passes of one round each where neither --epochs nor --batch is given.
    """
    from tacit.cli.training.tabular import problem_of
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.training import Retraining, SourcedExamples, TrainingRecipe, prepare_contribution

    # source and label are categories, declared or read
    levels = [*(asked.category or ()), *_undeclared((asked.source, asked.label), asked.category)]
    table = reading.read(data, missing=asked.missing or "refuse", categories=levels)
    saved = new_file("--out", flags.save, flags.force)

    def prepare() -> Any:
        # inputs, classes and sources of the rows
        problem = problem_of(
            table,
            asked.source,
            asked.label,
            hidden=asked.hidden,
            held_out=asked.held_out,
            bounds=_bounds(asked.bounds),
        )
        if saved is not None:
            # scales that were read would be published with the model
            _check_declared(problem.undeclared)
            check_room("--out", saved.parent, problem.most_bytes)
        prepared = prepare_contribution(
            TrainingRecipe(
                model=problem.model,
                optimizer=problem.optimizer(RATE if flags.rate is None else flags.rate),
                loss=problem.loss,
            ),
            SourcedExamples(
                data=problem.data,
                sources=problem.sources,
                held_out=problem.held_out,
                batch=flags.batch,
                remarks=problem.remarks,
            ),
            replace(flags.promise, epsilon=_budgets(flags.budget, flags.epsilon, problem)),
            run.lasting(passes=PASSES),
            method=method,
            retraining=Retraining(
                # --no-influence and --no-attack train nothing again
                influence=integer("--repeats", again.repeats, minimum=2) if again.influence else 0,
                attacked=again.attacked if flags.attack else 0,
            ),
            rng=flags.seed,
        )
        return saving(prepared, saved, problem.save)

    def tell(destination: Destination, release: Release[Any]) -> None:
        tell_table(destination.json.console, table)
        tell_release(destination, release, kept_beside(release, flags.save))
        tell_model(destination, saved)

    publish(
        prepare,
        flags,
        Source.of(table, data),
        spends=GAUSSIAN_DP,
        others=flags.written(run),
        tell=tell,
    )


def _bounds(texts: list[str] | None) -> dict[str, tuple[float, float]] | None:
    from tacit.releases.promises import bounds_of

    try:
        return bounds_of(texts) if texts else None
    except ValueError as error:
        raise ValueError(f"--bounds: {error}") from None


def _check_declared(undeclared: tuple[str, ...]) -> None:
    """Refuse to write scales or levels that were found in the rows into a model."""
    if undeclared:
        raise ValueError(
            f"--out: expected --bounds of every column of numbers and --category NAME=LEVEL,… of "
            f"every other, --source and --label too, since the model holds them; {len(undeclared)} "
            f"are not declared, such as {undeclared[0]!r}"
        )


def _undeclared(names: tuple[str, ...], category: list[str] | None) -> list[str]:
    declared = {text.partition("=")[0].strip() for text in category or ()}
    return [name for name in dict.fromkeys(names) if name not in declared]


def _budgets(budget: list[str] | None, epsilon: float, problem: TableProblem) -> dict[str, float]:
    """Return ε of every source."""
    # one ε for all, but for those that --budget names
    found: dict[str, float] = dict.fromkeys(problem.roster, epsilon)
    named: set[str] = set()
    for text in budget or ():
        # a name may hold an equals sign
        name, given, value = text.rpartition("=")
        if not given or name not in found:
            raise ValueError(f"--budget: expected SOURCE=EPSILON of a source there, got {text!r}")
        if name in named:
            raise ValueError("--budget: expected each source once, got one twice")
        named.add(name)
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"--budget: expected a number behind =, got {text!r}") from None
    return found
