"""``tacit statistic``: from a table to a released statistic, its report and its ledger entry."""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.options import Force, Json
from tacit.cli.output import JsonOutput, json_output, new_file

if TYPE_CHECKING:
    from tacit.ledger import Ledger
    from tacit.releases import Provenance
    from tacit.report import ReleaseRecord
    from tacit.statistics import PreparedStatistic, StatisticRelease
    from tacit.statistics.table import Table

SHOWN_OUTPUTS = 4


@dataclass(frozen=True)
class _Destination:
    """Where a release goes; every path is checked before the draw."""

    report: Path | None
    json: JsonOutput
    ledger: Ledger | None
    secret: str | None


def statistic(
    data: Annotated[str, typer.Argument(help="CSV file with a header line.")],
    query: Annotated[
        str,
        typer.Option(
            help="mean, std, quantiles[:0.25,0.5,0.75], covariance, least-squares, logistic, "
            "kmeans:K, several joined by +, or module:function."
        ),
    ],
    columns: Annotated[
        str | None, typer.Option(help="Columns to use, separated by commas; all when left out.")
    ] = None,
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
    seed: Annotated[
        int | None, typer.Option(help="Make the draw repeatable. This voids the guarantee.")
    ] = None,
    attack: Annotated[bool, typer.Option(help="Attack simulated releases and measure.")] = True,
    report: Annotated[str | None, typer.Option(help="HTML report to write.")] = None,
    json: Json = None,
    force: Force = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the guarantee and the error of every number; draw nothing."
        ),
    ] = False,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger to spend from: a file or a database URL.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="Name in the ledger; the rows' fingerprint when left out.")
    ] = None,
    no_budget: Annotated[
        bool,
        typer.Option(
            "--no-budget", help="Release though the secret has no budget and others have one."
        ),
    ] = False,
) -> None:
    """Release a statistic of a table with designed noise, a guarantee and a measured attack."""
    from tacit.ledger import Ledger
    from tacit.releases import Provenance
    from tacit.statistics import prepare
    from tacit.statistics.table import read_table

    if seed is not None:
        integer("--seed", seed, minimum=0)
    for flag, given in (("--secret", secret is not None), ("--no-budget", no_budget)):
        if given and ledger is None:
            raise ValueError(f"{flag}: expected --ledger beside it, got none")
    table = read_table(data, _columns(columns, target))
    destination = _destination(
        data, report, json, ledger, secret, table, seed is not None, no_budget, force
    )
    if ":" in query:
        sys.path.insert(0, os.getcwd())
    prepared = prepare(
        query,
        table.rows,
        mi_budget=mi_budget,
        success=success,
        sampling_rate=sampling_rate,
        method=method,
        confidence=confidence,
        simulations=simulations,
        rng=seed,
        cost=cost,
        columns=table.names,
        target=target,
        workers=workers,
        attack=attack and not dry_run,
    )
    prepared = replace(prepared, description=f"{prepared.description} of {os.path.basename(data)}")
    if dry_run:
        _tell_prepared(prepared, destination.json)
        return
    if ledger is not None and destination.ledger is None:
        destination = replace(destination, ledger=Ledger(ledger))
    release = prepared.draw(
        ledger=destination.ledger, secret=destination.secret, no_budget=no_budget
    )
    provenance = Provenance.capture(
        command_line(),
        data_name=os.path.basename(data),
        data_fingerprint=table.fingerprint,
        data_rows=len(table.rows),
        data_columns=table.names,
        secret=destination.secret,
        ledger=None if destination.ledger is None else destination.ledger.location,
    )
    _store(release, destination, provenance)
    _tell(release, destination, table)


def _columns(columns: str | None, target: str | None) -> list[str] | None:
    if columns is None:
        return None
    names = [name.strip() for name in next(csv.reader([columns]), [])]
    if not names or not all(names):
        raise ValueError(f"--columns: expected names separated by commas, got {columns!r}")
    return names if target is None or target in names else [*names, target]


def _destination(
    data: str,
    report: str | None,
    json: str | None,
    ledger: str | None,
    secret: str | None,
    table: Table,
    reproducible: bool,
    no_budget: bool,
    force: bool,
) -> _Destination:
    from tacit._ground.files import check_writable
    from tacit.ledger import Ledger

    _check_distinct(
        {
            "DATA": Path(os.path.abspath(data)),
            "--report": None if report is None else Path(os.path.abspath(report)),
            "--json": None if json is None or json == "-" else Path(os.path.abspath(json)),
            "--ledger": None if ledger is None else _ledger_file(ledger),
        }
    )
    page, output = new_file("--report", report, force), json_output(json, force)
    if ledger is None:
        return _Destination(page, output, None, None)
    path = _ledger_file(ledger)
    if path is not None and not check_writable("--ledger", path).exists():
        # A ledger is made when there is something to write into it.
        return _Destination(page, output, None, table.fingerprint if secret is None else secret)
    book = Ledger(ledger)
    name = _checked_secret(book, secret, data, table, reproducible, no_budget)
    return _Destination(page, output, book, name)


def _ledger_file(location: str) -> Path | None:
    from tacit.ledger.store import parse_location

    url = parse_location(location)
    return Path(os.path.abspath(str(url.database))) if url.get_backend_name() == "sqlite" else None


def _check_distinct(paths: dict[str, Path | None]) -> None:
    seen: dict[Path, str] = {}
    for flag, path in paths.items():
        if path is None:
            continue
        if path in seen:
            raise ValueError(f"{flag}: expected another file than {seen[path]}, got {path} twice")
        seen[path] = flag


def _checked_secret(
    book: Ledger,
    named: str | None,
    data: str,
    table: Table,
    reproducible: bool,
    no_budget: bool,
) -> str:
    """Return the secret's name; refuse now what the reservation would after the simulations."""
    from tacit.cli.ledger import name_of_rows
    from tacit.ledger.filters import uncounted
    from tacit.ledger.notions import INFORMATION

    secret = name_of_rows(book, data, table.fingerprint) if named is None else named
    budget, left = book.budget(secret), book.remaining(secret)
    if budget is None or left is None:
        if not no_budget:
            book.check_budgeted(secret)
        return secret
    if reproducible:
        raise ValueError(
            f"--seed: a seeded release guarantees nothing, and secret {secret!r} has a budget of "
            f"{budget}; nothing was drawn"
        )
    reason = uncounted(budget, {INFORMATION})
    if reason is not None:
        raise ValueError(f"guarantee: {reason} (secret {secret!r}); nothing was drawn")
    if not left.nats:
        raise ValueError(
            f"budget: secret {secret!r} has a budget of {budget} and no nats left of it; "
            "nothing was drawn"
        )
    return secret


def _store(release: StatisticRelease, destination: _Destination, provenance: Provenance) -> None:
    """Write what the ledger has by now: if a file cannot be written, the release is not lost."""
    from tacit.report import write_report

    destination.json.write({**release.to_dict(), "provenance": provenance.to_dict()})
    if destination.report is not None:
        write_report(release, destination.report, provenance)


def _tell_prepared(prepared: PreparedStatistic, output: JsonOutput) -> None:
    """Say what a release would be: its guarantee and the error of every number."""
    from tacit.text import significant

    console = output.console
    for guarantee in prepared.guarantees:
        line(console, "guarantee", guarantee.describe())
    for expected in prepared.expected:
        line(console, "error", f"{expected.name} ± {significant(expected.error)} (one deviation)")
    line(console, "drawn", "nothing: this was a dry run")
    output.write(
        {
            "guarantees": [guarantee.to_dict() for guarantee in prepared.guarantees],
            "expected": [vars(expected) for expected in prepared.expected],
            "description": prepared.description,
            "reproducible": prepared.reproducible,
        }
    )
    output.tell()


def _tell(release: StatisticRelease, destination: _Destination, table: Table) -> None:
    from tacit.report import read_release
    from tacit.report.statistic.words import verdict

    console = destination.json.console
    record = read_release(release)
    conclusion = verdict(record)
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    line(console, "released", _outputs(record))
    for label, text in _numbers(record):
        line(console, label, text)
    line(
        console,
        "data",
        f"{len(table.rows):,} rows × {len(table.names)} columns, {table.fingerprint[:23]}…",
    )
    if destination.ledger is not None and destination.secret is not None:
        line(console, "ledger", _account(destination.ledger, destination.secret))
    if destination.report is not None:
        line(console, "report", str(destination.report))
    destination.json.tell()


def _outputs(record: ReleaseRecord) -> str:
    from tacit.text import beside, significant

    parts = [
        f"{name} = {beside(value, spread)} (noise {significant(spread, 2)})"
        for name, value, spread in zip(
            record.names[:SHOWN_OUTPUTS],
            record.values.tolist(),
            (record.noise_variance**0.5).tolist(),
            strict=False,
        )
    ]
    more = len(record.names) - SHOWN_OUTPUTS
    return ", ".join(parts) + (f", and {more} more" if more > 0 else "")


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


def _account(book: Ledger, secret: str) -> str:
    from tacit.cli.ledger import spending_words

    left = book.remaining(secret)
    words = f"{book.location}: spent {spending_words(book.spent(secret))}"
    return words if left is None else f"{words}, {left} left"
