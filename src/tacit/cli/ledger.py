"""``tacit ledger``: what was spent, and what may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.console import consoles, line, print_json
from tacit.cli.options import Json

if TYPE_CHECKING:
    from tacit.ledger import Budget, Entry, Ledger, Spending

app = typer.Typer(help="Show what was spent on a secret, set what may be.", no_args_is_help=True)

Location = Annotated[str, typer.Option("--ledger", help="Ledger file or database URL.")]
Secret = Annotated[str | None, typer.Option(help="Name of the secret.")]
Data = Annotated[str | None, typer.Option(help="Data file whose fingerprint is the secret's name.")]


@app.command()
def show(ledger: Location, secret: Secret = None, data: Data = None, json: Json = False) -> None:
    """Show every release and what is left of every budget."""
    from tacit.ledger import Ledger

    book = Ledger(ledger, create=False)
    named = secret_name(secret, data)
    names = book.secrets() if named is None else (named,)
    if json:
        print_json({"ledger": book.location, "secrets": [_account(book, name) for name in names]})
        return
    console = consoles(False)
    if not names:
        console.print("The ledger holds no secret yet.")
    for name in names:
        _print_account(console, book, name)


@app.command()
def budget(
    ledger: Location,
    secret: Secret = None,
    data: Data = None,
    mi_budget: Annotated[float | None, typer.Option(help="Information allowed, in nats.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε allowed.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ allowed beside ε.")] = None,
    json: Json = False,
) -> None:
    """Set what may be spent on a secret from now on, or show it when no limit is given."""
    from tacit.ledger import Ledger
    from tacit.ledger.notions import limits

    name = secret_name(secret, data)
    if name is None:
        raise ValueError("--secret: expected --secret NAME or --data FILE, got neither")
    asked = any(value is not None for value in (mi_budget, epsilon, delta))
    if asked:
        limits(mi_budget, epsilon, delta)
    book = Ledger(ledger, create=asked)
    if asked:
        book.set_budget(name, mi_budget=mi_budget, epsilon=epsilon, delta=delta)
    if json:
        print_json({"ledger": book.location, **_account(book, name, entries=False)})
        return
    _print_budget(consoles(False), book, name)


def secret_name(secret: str | None, data: str | None) -> str | None:
    """Return the name given, or the fingerprint of the data file given; None for neither."""
    if secret is not None and data is not None:
        raise ValueError("--secret: expected --secret or --data, got both")
    if data is None:
        return secret
    from tacit.statistics.table import fingerprint

    return fingerprint(data)


def _account(book: Ledger, name: str, *, entries: bool = True) -> dict[str, Any]:
    limit, left = book.budget(name), book.remaining(name)
    account: dict[str, Any] = {
        "secret": name,
        "budget": None if limit is None else limit.to_dict(),
        "spent": book.spent(name).to_dict(),
        "remaining": None if left is None else left.to_dict(),
    }
    if entries:
        account["entries"] = [entry.to_dict() for entry in book.entries(name)]
    return account


def _print_account(console: Console, book: Ledger, name: str) -> None:
    _print_budget(console, book, name)
    for entry in book.entries(name):
        console.print(_entry_line(entry))
    console.print()


def _print_budget(console: Console, book: Ledger, name: str) -> None:
    limit, left, spent = book.budget(name), book.remaining(name), book.spent(name)
    console.print(Text(name, "bold"))
    line(console, "budget", "none set" if limit is None else str(limit))
    line(console, "spent", spending_words(spent))
    if left is not None:
        line(console, "left", _left_words(left))


def _left_words(left: Budget) -> str:
    return "nothing" if not left.nats and not left.epsilon else str(left)


def spending_words(spent: Spending) -> str:
    """Return the totals in one line."""
    from tacit.ledger.notions import shown

    if spent.void:
        return f"everything: {spent.void} reproducible release(s) recorded"
    parts = [f"{shown(spent.nats)} nats"] if spent.nats or not spent.releases else []
    for adjacency, (epsilon, delta) in spent.approximate.items():
        parts.append(f"ε = {shown(epsilon)}, δ = {shown(delta)} ({adjacency})")
    parts += [f"a Rényi curve ({adjacency})" for adjacency in spent.renyi]
    if spent.unadded:
        parts.append(f"{spent.unadded} release(s) whose guarantees do not add up")
    if spent.failure:
        parts.append(f"guarantees that fail with probability at most {spent.failure:.3g}")
    return "; ".join(parts) + f" in {spent.releases} release(s)"


def _entry_line(entry: Entry) -> Text:
    style = "" if entry.counts else "dim strike"
    text = f"  #{entry.number} {entry.time[:19]}Z  {entry.status:<9}  {entry.charge}"
    return Text(f"{text}  {entry.description}", style)
