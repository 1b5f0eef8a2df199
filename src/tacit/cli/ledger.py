"""``tacit ledger``: what was spent, what may be, and whether the record is whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.console import consoles, in_one_line, line
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import (
    JsonOutput,
    absolute_path,
    check_distinct,
    json_output,
    ledger_file,
    new_file,
)
from tacit.cli.tables import TextFlags

if TYPE_CHECKING:
    from tacit.ledger import BudgetChange, Entry, Ledger
    from tacit.statistics.tables.reading import Fingerprints

app = typer.Typer(
    help="Show what was spent on a secret, set what may be, verify the record.",
    no_args_is_help=True,
)


class By(StrEnum):
    """What the page of a report lists releases by."""

    SECRET = "secret"
    MONTH = "month"


Location = Annotated[str, typer.Option("--ledger", help="Ledger file or database URL.")]
Secret = Annotated[str | None, typer.Option(help="Name of the secret.")]
Data = Annotated[str | None, typer.Option(help="Table whose fingerprint is the secret's name.")]


@app.command()
@grouped
def show(
    *,
    ledger: Location,
    secret: Secret = None,
    data: Data = None,
    text: TextFlags,
    json: Json = None,
    force: Force = False,
) -> None:
    """Show every release, every budget and its history, and what is left of it."""
    output = _output(json, force, ledger, data)
    from tacit.ledger import Ledger

    book = Ledger(ledger, create=False)
    named = secret_name(book, secret, _fingerprints(secret, data, text))
    if named is not None:
        _check_known(book, named)
    names = book.secrets() if named is None else (named,)
    output.write({"ledger": book.location, "secrets": [_account(book, name) for name in names]})
    console = output.console
    if not names:
        console.print("The ledger holds no secret yet.")
    for name in names:
        _print_account(console, book, name)


@dataclass(frozen=True, kw_only=True)
class BudgetFlags:
    """What may be spent, a limit of one kind or of several."""

    panel: ClassVar[str] = "Budget"

    mi_budget: Annotated[float | None, typer.Option(help="Information allowed, in nats.")] = None
    epsilon: Annotated[float | None, typer.Option(help="ε allowed.")] = None
    delta: Annotated[float | None, typer.Option(help="δ allowed beside ε.")] = None
    mu: Annotated[
        float | None, typer.Option(help="μ of Gaussian differential privacy allowed.")
    ] = None
    leakage: Annotated[
        float | None,
        typer.Option(help="Maximal leakage allowed, in nats: ln of the factor for all releases."),
    ] = None
    orders: Annotated[
        str | None,
        typer.Option(help="Rényi orders, separated by commas, at which curves count against ε."),
    ] = None
    drop: Annotated[
        str | None,
        typer.Option(
            help="Kinds of limit to drop, separated by commas: mi_budget, epsilon, mu, leakage."
        ),
    ] = None


@app.command()
@grouped
def budget(
    *,
    ledger: Location,
    secret: Secret = None,
    data: Data = None,
    text: TextFlags,
    limit: BudgetFlags,
    json: Json = None,
    force: Force = False,
) -> None:
    """Set what may be spent on a secret from now on, or show it when no limit is given."""
    output = _output(json, force, ledger, data)
    from tacit.ledger import Ledger
    from tacit.ledger.notions import limits

    if secret is None and data is None:
        raise ValueError("--secret: expected --secret NAME or --data FILE, got neither")
    orders = None if limit.orders is None else _orders(limit.orders)
    given = (limit.mi_budget, limit.epsilon, limit.delta, limit.mu, orders, limit.leakage)
    asked = any(value is not None for value in given)
    if asked and limit.drop is not None:
        raise ValueError("--drop: expected no new limit in the same command, got one")
    if asked:
        limits(*given)
    table = _fingerprints(secret, data, text)
    book = Ledger(ledger, create=asked)
    name = secret_name(book, secret, table)
    assert name is not None
    near = book.near(name) if asked and name not in book.secrets() else ()
    if not asked:
        _check_known(book, name)
    if asked:
        book.set_budget(
            name,
            mi_budget=limit.mi_budget,
            epsilon=limit.epsilon,
            delta=limit.delta,
            mu=limit.mu,
            leakage=limit.leakage,
            orders=orders,
        )
    elif limit.drop is not None:
        book.drop_budget(name, *(kind.strip() for kind in limit.drop.split(",")))
    output.write({"ledger": book.location, **_account(book, name, entries=False)})
    console = output.console
    _print_budget(console, book, name)
    if near:
        line(console, "new", f"{name!r} was not in the ledger; {' and '.join(map(repr, near))} is")


@app.command()
@grouped
def verify(
    ledger: Location,
    head: Annotated[
        str | None,
        typer.Option(help="Head PLACE:HASH that an earlier verification printed."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint that an earlier verification printed: only newer records are read, "
            "with all totals and budgets."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read a large ledger.", show_default="cores")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Exit 0 when every record is as it was written, 1 when not: the first edited row is named."""
    output = _output(json, force, ledger, None)
    from tacit.ledger import verify_ledger

    result = verify_ledger(ledger, head, since=since, workers=workers)
    output.write(result.to_dict())
    console = output.console
    if result.holds:
        records, which = result.records, "" if since is None else " of those that were read"
        console.print(Text(f"whole: {records} records, none edited{which}", "green"))
        if since is not None:
            passed = "releases and seals up to the checkpoint: without --since all are read"
            line(console, "not read", passed)
        line(console, "head", f"{result.head} (kept elsewhere, --head finds a rewritten past)")
        line(
            console, "checkpoint", f"{result.checkpoint} (kept elsewhere, --since goes on from it)"
        )
    for finding in result.findings:
        console.print(Text(in_one_line(f"edited: {finding}"), "bold red"))
    raise typer.Exit(0 if result.holds else 1)


@app.command()
@grouped
def report(
    ledger: Location,
    since: Annotated[
        str | None, typer.Option(help="First day, such as 2026-07-01; all when left out.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Last day, itself included; today when left out.")
    ] = None,
    by: Annotated[
        By, typer.Option(help="What the page lists releases by.", show_choices=True)
    ] = By.SECRET,
    names: Annotated[
        str | None,
        typer.Option(
            help="CSV of two columns, the secret and your own name for it. The names "
            "stay on this machine."
        ),
    ] = None,
    page: Annotated[str | None, typer.Option("--report", help="Page to write.")] = None,
    table: Annotated[
        str | None, typer.Option("--csv", help="Table of releases to write, for a spreadsheet.")
    ] = None,
    force: Force = False,
) -> None:
    """Say what was released, what is left, and who may still be asked: a page and a table."""
    place = ledger_file(ledger)
    paths = {"--names": names, "--report": page, "--csv": table}
    check_distinct(
        {"--ledger": place, **{flag: absolute_path(path) for flag, path in paths.items()}}
    )
    written = {flag: new_file(flag, paths[flag], force) for flag in ("--report", "--csv")}
    called = None if names is None else _names(names)
    from tacit._ground.files import write_text_atomic
    from tacit.ledger import Ledger
    from tacit.report import ledger_report
    from tacit.report.ledger import left_words

    try:
        found = ledger_report(Ledger(ledger, create=False), since=since, until=until, names=called)
    except ValueError as error:
        # arguments of the function are flags here
        name, colon, rest = str(error).partition(":")
        if colon and name in ("since", "until", "names"):
            raise ValueError(f"--{name}:{rest}") from None
        raise
    console = consoles(False)
    console.print(Text(found.headline, "bold"))
    for account in found.secrets:
        words = ", no budget" if account.left is None else f", left {left_words(account.left)}"
        asked = "" if account.open else "; may not be asked any more"
        line(console, "secret", f"{account.label}: {account.released} released{words}{asked}")
    for flag, content in (("--report", found.to_html(by.value)), ("--csv", found.to_csv())):
        target = written[flag]
        if target is not None:
            write_text_atomic(flag, target, content)
            line(console, flag.removeprefix("--"), str(target))
    line(console, "keep", "this is the holder's: it names secrets and what was asked of them")


def _names(path: str) -> dict[str, str]:
    """Return names by secret from a CSV of two columns, without a header."""
    import csv

    try:
        with open(path, encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"--names: cannot read {path} ({type(error).__name__})") from None
    for place, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise ValueError(
                f"--names: expected two columns, secret and name, got {len(row)} in record {place}"
            )
    return dict(rows)


def _output(json: str | None, force: bool, ledger: str, data: str | None) -> JsonOutput:
    place = ledger_file(ledger)
    others = {"--ledger": None if place is None else str(place), "--data": data}
    return json_output(json, force, others)


def secret_name(book: Ledger, secret: str | None, table: Fingerprints | None) -> str | None:
    """Return the name given, or the name of the table given; None for neither."""
    return secret if table is None else name_of_rows(book, table.rows, table.file)


def name_of_rows(book: Ledger, rows: str, file: str | None) -> str:
    """Return a table's name: its rows' fingerprint, or the file's where Tacit 0.1 entered it."""
    return file if file in book.secrets() and file is not None else rows


def _fingerprints(secret: str | None, data: str | None, text: TextFlags) -> Fingerprints | None:
    if secret is not None and data is not None:
        raise ValueError("--secret: expected --secret or --data, got both")
    return None if data is None else text.fingerprints(data)


def _orders(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--orders: expected numbers separated by commas, got {text!r}") from None


def _check_known(book: Ledger, name: str) -> None:
    from tacit.ledger.records import suggestion

    names = book.secrets()
    if name not in names:
        others = suggestion(book.near(name), names[:3]).strip(" ;")
        raise ValueError(
            f"--secret: {book.location} holds no secret {name!r}"
            + (f"; {others}" if others else "")
        )


def _account(book: Ledger, name: str, *, entries: bool = True) -> dict[str, Any]:
    limit, left = book.budget(name), book.remaining(name)
    account: dict[str, Any] = {
        "secret": name,
        "budget": None if limit is None else limit.to_dict(),
        "spent": book.spent(name).to_dict(),
        "remaining": None if left is None else left.to_dict(),
        "budget_history": [change.to_dict() for change in book.budget_history(name)],
    }
    if entries:
        account["entries"] = [entry.to_dict() for entry in book.entries(name)]
    return account


def _print_account(console: Console, book: Ledger, name: str) -> None:
    _print_budget(console, book, name)
    for change in book.budget_history(name):
        console.print(_change_line(change))
    for entry in book.entries(name):
        console.print(_entry_line(entry))
    console.print()


def _print_budget(console: Console, book: Ledger, name: str) -> None:
    from tacit.report.ledger import left_words, spending_words

    limit, left, spent = book.budget(name), book.remaining(name), book.spent(name)
    console.print(Text(in_one_line(name), "bold"))
    line(console, "budget", "none set" if limit is None else str(limit))
    line(console, "spent", spending_words(spent))
    if left is not None:
        why = book.uncounted(name)
        line(console, "left", left_words(left) + (f": {why}" if why else ""))


def _change_line(change: BudgetChange) -> Text:
    old, new = ("none" if limit is None else str(limit) for limit in (change.old, change.new))
    told = f"  budget {change.time[:19]}Z  {old} → {new}  by {change.who}"
    return Text(in_one_line(told), "dim")


def _entry_line(entry: Entry) -> Text:
    style = "" if entry.counts else "dim strike"
    text = f"  #{entry.number} {entry.time[:19]}Z  {entry.status:<9}  {entry.cost}"
    return Text(in_one_line(f"{text}  {entry.description}"), style)
