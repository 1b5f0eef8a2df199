"""Several questions to one table under one budget, from a file or as they are typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import line
from tacit.cli.options import Chosen, grouped
from tacit.cli.publishing import KEPT_DRY, Charged, Destination, Source
from tacit.cli.statistic.commands import read_pool
from tacit.cli.tables import Data, PoolFlags
from tacit.releases.promises import Draw, Effort, Promise
from tacit.statistics.promises import PROMISES

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.statistics import Session

# A share that is left is told in thousandths, rounded down but for what its last digits lost.
PARTS, SLACK = 1000, 1e-6
PRICES = ("share", "error", "spend")
SAID = "QUERY share=0.25, or error=NUMBER, or spend=NUMBER; price QUERY …; left; close"
KEPT = "this output is the holder's: what may be published are the answers"
# words that a person types between questions: they say what a file is told anyway
LINES = ("left", "close")


@dataclass(frozen=True)
class PricedQuestion:
    """One line of a session.

    Attributes:
        query: as ``--query`` takes it; ``left`` and ``close`` are none.
        price: what is given for it: ``share``, ``error`` or ``spend``, and how much.
        target: column that a regression explains.
        only: whether the price is asked for, and nothing is answered.
    """

    query: str
    price: Mapping[str, float]
    target: str | None = None
    only: bool = False


def read_question(text: str) -> PricedQuestion:
    """Return what a line asks: ``mean by city share=0.25``.

    Raises:
        ValueError: it has no price, two, or one that is no number.
    """
    words = text.split()
    only = words[:1] == ["price"]
    words, given = words[only:], dict[str, str]()
    while words and words[-1].partition("=")[0] in (*PRICES, "target") and "=" in words[-1]:
        name, _, value = words.pop().partition("=")
        if name in given:
            raise ValueError(f"questions: {name} stands twice in a line")
        given[name] = value
    target = given.pop("target", None)
    if not words or len(given) != 1:
        raise ValueError(f"questions: expected {SAID}; got a line without one of these")
    ((name, value),) = given.items()
    try:
        price = float(value)
    except ValueError:
        raise ValueError(f"questions: expected a number for {name}, got another text") from None
    return PricedQuestion(" ".join(words), {name: price}, target, only)


@grouped
def session(
    *,
    data: Data = None,
    reading: PoolFlags,
    promise: Annotated[Promise, Chosen("--protect", "rows", "What is hidden.", (*PROMISES,))],
    effort: Effort,
    questions: Annotated[
        str | None,
        typer.Option(help="Questions, one a line; - for standard input. Typed when left out."),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help="File that keeps the session and what was drawn, for its owner alone. An "
            "existing file is taken up again."
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(help="What noise costs: relative (when left out) or squared (error)."),
    ] = None,
    paying: Charged,
) -> None:
    """Ask a table several questions under one budget, each with what it may cost.

    A line is a query and its price. `mean share=0.25` spends a quarter of the budget,
    `std error=5` what noise of deviation 5 costs. `price mean error=1` asks for the price alone,
    and `left` for what is left. Every answer is charged, and nothing beyond the budget.
    """
    from tacit.ledger.notions import APPROXIMATE_DP, GAUSSIAN_DP, INFORMATION
    from tacit.statistics import Session

    asked = None if questions is None else [read_question(one) for one in _lines(questions)]
    pool, promise, told = read_pool(data, _whole(asked), None, reading, promise, session=True)
    destination = Destination.checked(
        paying,
        Source.of(told, data),
        spends=INFORMATION
        if isinstance(promise, Draw)
        else APPROXIMATE_DP
        if getattr(promise, "sought", ())
        else GAUSSIAN_DP,
        others={"--path": path, "--questions": None if questions == "-" else questions},
    )
    destination = destination if paying.dry_run else destination.opened()
    # a dry run leaves no file of a session behind
    kept = None if paying.dry_run and path is not None and not Path(path).exists() else path
    with Session(
        pool,
        promise,
        effort,
        path=kept,
        cost=cost,
        ledger=destination.ledger,
        secret=None if destination.ledger is None else destination.secret,
        no_budget=paying.no_budget,
    ) as held:
        console = destination.json.console
        _tell_left(console, held)
        try:
            if asked is None:
                _converse(console, held, dry=paying.dry_run)
            for number, one in enumerate(asked or (), 1):
                _answer(console, held, one, number, dry=paying.dry_run)
        finally:
            # what was answered before a refusal was paid for
            _tell_left(console, held)
            destination.json.write(_content(held))
    destination.tell(KEPT_DRY if paying.dry_run else KEPT)


def _lines(questions: str) -> list[str]:
    """Return the lines of a file that ask something."""
    if questions == "-":
        text = sys.stdin.read()
    else:
        try:
            text = Path(os.path.expanduser(questions)).read_text("utf-8")
        except FileNotFoundError:
            raise ValueError(f"--questions: no such file: {questions}") from None
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"--questions: cannot read {questions} as text") from None
    found = [one.strip() for one in text.splitlines()]
    found = [one for one in found if one and not one.startswith("#") and one not in LINES]
    if not found:
        raise ValueError("--questions: expected a question a line, got none")
    return found


def _whole(asked: list[PricedQuestion] | None) -> str:
    """Return one query that reads what all questions read."""
    if asked is None:
        return "mean"
    return "+".join(dict.fromkeys(one.query for one in asked if ":" not in one.query)) or "mean"


def _converse(console: Console, held: Session, *, dry: bool) -> None:
    """Answer what is typed, line by line, until it is closed."""
    line(console, "ask", SAID)
    for number, text in enumerate(_typed(), 1):
        try:
            if text == "left":
                _tell_left(console, held)
            else:
                _answer(console, held, read_question(text), number, dry=dry)
        except ValueError as error:
            line(console, "refused", str(error))


def _typed() -> Iterator[str]:
    """Give the lines that are typed until ``close`` or the end of the input."""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("tacit> ")
            sys.stderr.flush()
        text = sys.stdin.readline()
        if not text or text.strip() in ("close", "quit", "exit"):
            return
        if text.strip():
            yield text.strip()


def _answer(
    console: Console, held: Session, one: PricedQuestion, number: int, *, dry: bool
) -> None:
    """Answer one question, or say its price."""
    from tacit.pages.numbers import number_lines
    from tacit.releases.showing import HALF
    from tacit.text import number_up, significant_up

    try:
        if dry or one.only:
            offer = held.price(one.query, target=one.target, **one.price)
            line(console, "price", f"{one.query}: {number_up(offer.spend)} {held.unit}")
            for place, entry in enumerate(offer.expected, 1):
                told = f"{entry.name} ± {significant_up(entry.half_width)}"
                line(console, "error", told if place < len(offer.expected) else f"{told} ({HALF})")
            return
        release = held.ask(one.query, target=one.target, **one.price)
    except ValueError as error:
        raise ValueError(f"question {number}: {error}") from None
    for place, words in enumerate(number_lines(tuple(release.numbers or ()))):
        line(console, "" if place else "released", words)
    line(console, "charged", f"{number_up(held.spends[-1])} {held.unit}")


def _tell_left(console: Console, held: Session) -> None:
    """Say what all answers together hide, and what is left of it, rounded down."""
    from tacit.text import number_down, number_up, percent, share_up

    bound = held.membership
    share = floor(PARTS * held.share_left + SLACK) / PARTS
    count = len(held.spends)
    told = f"{count} answer" + ("s" if count != 1 else "")
    line(
        console,
        "left",
        f"{percent(share)} of the budget after {told} ({number_down(held.remaining)} of "
        f"{number_up(held.budget)} {held.unit}); after all answers anyone is right about "
        f"{bound.task} at most {share_up(bound.success)} of the time",
    )


def _content(held: Session) -> dict[str, Any]:
    """Return the published form of every answer, and the budget."""
    return {
        "budget": held.budget,
        "remaining": held.remaining,
        "unit": held.unit,
        "spends": list(held.spends),
        "membership": held.membership.to_dict(),
        "answers": list(held.answers),
    }
