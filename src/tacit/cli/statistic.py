"""``tacit statistic``: from a table to a released statistic, its report and its ledger entry."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import line
from tacit.cli.options import (
    Attacked,
    Force,
    Json,
    LedgerFile,
    NoBudget,
    Report,
    Secret,
    Seed,
    grouped,
)
from tacit.cli.publishing import Destination, Flags, tell_prepared, tell_table
from tacit.cli.tables import Category, Columns, Data, Missing, TableFlags, listed

if TYPE_CHECKING:
    from tacit.report import ReleaseRecord
    from tacit.statistics import StatisticRelease, Table

OUTPUTS_PER_LINE = 4


@grouped
def statistic(
    *,
    data: Data = None,
    query: Annotated[
        str,
        typer.Option(
            help="mean, std, quantiles[:0.25,0.5,0.75], covariance, least-squares, logistic, "
            "kmeans:K, several joined by +, or module:function."
        ),
    ],
    columns: Columns = None,
    missing: Missing = "refuse",
    category: Category = None,
    reading: TableFlags,
    success: Annotated[
        float | None, typer.Option(help="Largest success of guessing membership allowed.")
    ] = None,
    mi_budget: Annotated[
        float | None, typer.Option(help="Largest information allowed, in nats.")
    ] = None,
    sampling_rate: Annotated[
        float, typer.Option(help="Fraction of the rows that is drawn, in (0, 1).")
    ] = 0.5,
    method: Annotated[
        str,
        typer.Option(
            help="auto (least noise under the exact information), exact, linear or diagonal."
        ),
    ] = "auto",
    cost: Annotated[
        str | None, typer.Option(help="What noise costs: squared (error) or relative.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column a regression explains; the last when left out.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Of the guarantee, where it rests on simulated releases.")
    ] = 0.999,
    simulations: Annotated[int, typer.Option(help="Candidate subsets to simulate.")] = 2000,
    workers: Annotated[
        int | None, typer.Option(help="Processes that simulate; one per core when left out.")
    ] = None,
    seed: Seed = None,
    attack: Attacked = True,
    report: Report = None,
    json: Json = None,
    force: Force = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the guarantee and the error of every number; draw nothing."
        ),
    ] = False,
    ledger: LedgerFile = None,
    secret: Secret = None,
    no_budget: NoBudget = False,
) -> None:
    """Release a statistic of a table with designed noise, a guarantee and a measured attack."""
    from tacit.statistics import prepare

    if seed is not None:
        integer("--seed", seed, minimum=0)
    table = reading.read(data, _columns(columns, target), missing=missing, categories=category)
    destination = Destination.checked(
        Flags(
            data=data,
            report=report,
            json=json,
            ledger=ledger,
            secret=secret,
            reproducible=seed is not None,
            no_budget=no_budget,
            force=force,
        ),
        table,
    )
    if ":" in query:
        sys.path.insert(0, os.getcwd())
    prepared = prepare(
        query,
        table,
        mi_budget=mi_budget,
        success=success,
        sampling_rate=sampling_rate,
        method=method,
        confidence=confidence,
        simulations=simulations,
        rng=seed,
        cost=cost,
        target=target,
        workers=workers,
        attack=attack and not dry_run,
    )
    prepared = replace(prepared, description=f"{prepared.description} of {table.label}")
    if dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    destination.store(release, destination.provenance(table))
    _tell(release, destination, table)


def _columns(columns: str | None, target: str | None) -> list[str] | None:
    if columns is None:
        return None
    names = listed("--columns", columns)
    return names if target is None or target in names else [*names, target]


def _tell(release: StatisticRelease, destination: Destination, table: Table) -> None:
    from tacit.report import read_release
    from tacit.report.statistic.words import verdict

    console = destination.json.console
    record = read_release(release)
    conclusion = verdict(record)
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for number, outputs in enumerate(_outputs(record)):
        line(console, "" if number else "released", outputs)
    for label, text in _numbers(record):
        line(console, label, text)
    tell_table(console, table)
    destination.tell()


def _outputs(record: ReleaseRecord) -> list[str]:
    from tacit.text import beside, significant

    parts = [
        f"{name} = {beside(value, spread)} (noise {significant(spread, 2)})"
        for name, value, spread in zip(
            record.names, record.values.tolist(), (record.noise_variance**0.5).tolist(), strict=True
        )
    ]
    starts = range(0, len(parts), OUTPUTS_PER_LINE)
    return [", ".join(parts[start : start + OUTPUTS_PER_LINE]) for start in starts]


def _numbers(record: ReleaseRecord) -> list[tuple[str, str]]:
    from tacit.report.statistic.words import plus_minus, seed_words, success_bound
    from tacit.text import percent, percent_up, significant, significant_up

    void = "void: " if record.reproducible else ""
    lines = [
        (
            "guarantee",
            f"{void}information ≤ {significant_up(record.guarantee.nats)} nats, so success ≤ "
            f"{percent_up(success_bound(record))} (guessing blind {percent(record.prior)})",
        )
    ]
    if record.gaussian_information is not None and record.noise_saved is not None:
        lines.append(
            (
                "certified",
                f"by the exact posterior, with probability {record.guarantee.confidence:g}; the "
                f"Gaussian bound of this noise is {significant_up(record.gaussian_information)} "
                f"nats, and {percent(record.noise_saved)} of the noise it asks for is saved",
            )
        )
    attack = record.attack
    if attack is None:
        lines.append(("attack", "none was run"))
    else:
        low, high = (percent(end) for end in attack.worst_interval)
        lines.append(
            (
                "attack",
                f"{attack.name}: {plus_minus(attack)}; worst row {percent(attack.worst_success)} "
                f"[{low}, {high}]; {attack.trials:,} simulated releases",
            )
        )
    power, own = float(record.noise_variance.sum()), float(record.output_variance.sum())
    ratio = f", {significant(power / own, 2)} times the output's own" if own > 0 else ""
    added = (
        f"none ({record.method}): the outputs carry no more than is certified"
        if record.noiseless
        else f"{record.method}, total variance {significant(power)}{ratio}"
    )
    lines.append(("noise", added))
    entropy = "operating system entropy"
    lines.append(("randomness", seed_words(record) if record.reproducible else entropy))
    return lines
