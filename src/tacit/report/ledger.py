"""The page and the table of a ledger: what was released, what is left, who may still be asked."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from markupsafe import Markup

import tacit
from tacit.ledger import Budget, Entry, Ledger, Spending
from tacit.ledger.notions import shown
from tacit.pages import Section, joined, paragraph, rendered, table
from tacit.text import in_nats

By = Literal["secret", "month"]
# Releases that a page lists; a table lists them all.
# Of a name that is a digest, so many letters stand on the page.
DIGEST_SHOWN = 19
MOST_LISTED = 500


@dataclass(frozen=True, kw_only=True)
class SecretAccount:
    """One secret in a report.

    Attributes:
        secret: its name in the ledger.
        label: the holder's name for it, the same as ``secret`` where there is none.
        released: how many releases of the time asked for count.
        spent: all that was ever spent on it.
        budget: what may be; None where none is set.
        left: what is left of that.
    """

    secret: str
    label: str
    released: int
    spent: Spending
    budget: Budget | None
    left: Budget | None

    @property
    def open(self) -> bool:
        """Whether something may still be asked of it."""
        left = self.left
        return left is None or bool(left.nats or left.epsilon or left.mu or left.leakage)


@dataclass(frozen=True, kw_only=True)
class LedgerReport:
    """What a ledger says of a stretch of time.

    Attributes:
        location: of the ledger.
        since: the first day, ISO-8601; None for the beginning.
        until: the last day, itself included; None for today.
        created: when the report was made.
        secrets: every secret that has a budget or was released from.
        entries: releases of the time asked for, in order, those that count and those that do not.
    """

    location: str
    since: str | None
    until: str | None
    created: str
    secrets: tuple[SecretAccount, ...]
    entries: tuple[Entry, ...]

    @property
    def headline(self) -> str:
        """What was released and what is used up, in one sentence."""
        counted = sum(entry.counts for entry in self.entries)
        about = sum(bool(account.released) for account in self.secrets)
        closed = [account.label for account in self.secrets if not account.open]
        when = "" if self.since is None else f" since {self.since}"
        when += "" if self.until is None else f" until {self.until}"
        first = f"{_count(counted, 'release')} about {_count(about, 'secret')}{when}"
        if not closed:
            return f"{first}; every secret may still be asked."
        return f"{first}; nothing is left of {', '.join(closed)}."

    def to_csv(self) -> str:
        """Return every release as a row of CSV, for a spreadsheet."""
        labels = {account.secret: account.label for account in self.secrets}
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            ("number", "time", "month", "secret", "name", "status", "counts", "cost", "release",
             "guarantee")
        )  # fmt: skip
        for one in self.entries:
            writer.writerow(
                (
                    one.number,
                    one.time,
                    one.time[:7],
                    harmless_cell(one.secret),
                    harmless_cell(labels.get(one.secret, one.secret)),
                    one.status,
                    "yes" if one.counts else "no",
                    one.cost,
                    harmless_cell(one.description),
                    harmless_cell(one.guarantee.describe()),
                )
            )
        return out.getvalue()

    def to_html(self, by: By = "secret") -> str:
        """Return the report as one self-contained page, its releases by secret or by month."""
        parts = [Section("What is left", self._left(), across=True)]
        parts += [
            Section(title, self._releases(title, entries, by), across=True)
            for title, entries in self._grouped(by)
        ]
        unlisted = len(self.entries) - MOST_LISTED
        if unlisted > 0:
            told = f"The {_count(unlisted, 'older release')} of this time stand in the table alone."
            parts.append(Section("Not listed here", paragraph(told)))
        return rendered(
            "tacit.report",
            "ledger",
            headline=self.headline,
            location=self.location,
            created=self.created,
            version=tacit.__version__,
            parts=parts,
        )

    def _left(self) -> Markup:
        rows = [
            [
                _cut(account.label),
                "yes" if account.open else Markup("<strong>no</strong>"),
                "no limit" if account.left is None else left_words(account.left),
                "none set" if account.budget is None else str(account.budget),
                str(account.released),
                spending_words(account.spent),
            ]
            for account in self.secrets
        ]
        head = ["secret", "may still be asked", "left", "budget", "releases", "spent in all"]
        return table("what is left", head, rows, "promises words")

    def _grouped(self, by: By) -> list[tuple[str, list[Entry]]]:
        labels = {account.secret: account.label for account in self.secrets}
        found: dict[str, list[Entry]] = {}
        for entry in self.entries[-MOST_LISTED:]:
            name = _cut(labels.get(entry.secret, entry.secret))
            key = entry.time[:7] if by == "month" else name
            found.setdefault(key, []).append(entry)
        return sorted(found.items())

    def _releases(self, name: str, entries: list[Entry], by: By) -> Markup:
        labels = {account.secret: account.label for account in self.secrets}
        rows = [
            [
                f"#{one.number}, {one.time[:10]}",
                *([_cut(labels.get(one.secret, one.secret))] if by == "month" else []),
                one.description,
                one.cost if one.counts else f"nothing ({one.status})",
            ]
            for one in entries
        ]
        head = ["release", *(["secret"] if by == "month" else []), "what", "cost"]
        listed = table(f"releases of {name}", head, rows, "promises words")
        void = sum(one.reproducible for one in entries)
        told = f"{_count(void, 'release')} of these can be repeated by a seed: no budget covers it."
        return joined(listed, paragraph(told, "aside") if void else None)


def ledger_report(
    ledger: Ledger,
    *,
    since: str | None = None,
    until: str | None = None,
    names: Mapping[str, str] | None = None,
) -> LedgerReport:
    """Read a ledger for a report: what was released since a day, and what is left now.

    Args:
        ledger: the ledger.
        since: the first day, ``"2026-07-01"`` or any ISO-8601 time in UTC; None for the beginning.
        until: the last day, itself included, or a time before which it was; None for today.
        names: the holder's names of secrets, by their names in the ledger.

    Returns:
        The report; ``to_html`` and ``to_csv`` write it out.

    Raises:
        ValueError: ``since`` or ``until`` is no day, or the ledger holds no secret of a name.

    Example:
        >>> import tempfile
        >>> book = Ledger(tempfile.mkdtemp() + "/ledger.db")
        >>> _ = book.set_budget("customers", mi_budget=1.0)
        >>> ledger_report(book).headline
        '0 releases about 0 secrets; every secret may still be asked.'
    """
    first = None if since is None else _moment("since", since)
    last = None if until is None else _moment("until", until)
    # a day ends where the next begins
    if last is not None and _is_day(str(until)):
        last += timedelta(days=1)
    secrets, given = ledger.secrets(), dict(names or {})
    for secret in given:
        if secret not in secrets:
            raise ValueError(f"names: the ledger holds no secret {secret!r}")
    entries = ledger.entries()
    inside = tuple(
        one
        for one in entries
        if (first is None or _moment("time", one.time) >= first)
        and (last is None or _moment("time", one.time) < last)
    )
    counted = Counter(one.secret for one in inside if one.counts)
    return LedgerReport(
        location=ledger.location,
        since=since,
        until=until,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        secrets=tuple(
            SecretAccount(
                secret=secret,
                label=given.get(secret, secret),
                released=counted[secret],
                spent=ledger.spent(secret),
                budget=ledger.budget(secret),
                left=ledger.remaining(secret),
            )
            for secret in secrets
        ),
        entries=inside,
    )


def _cut(name: str) -> str:
    """Return a digest that stands for a name cut to its first digits; the CSV has it whole."""
    return f"{name[:DIGEST_SHOWN]}…" if name.startswith("sha256:") else name


def left_words(left: Budget) -> str:
    """Return what is left in one line."""
    return str(left) if left.nats or left.epsilon or left.mu or left.leakage else "nothing"


def spending_words(spent: Spending) -> str:
    """Return the totals in one line."""
    if spent.void:
        return f"everything: {_count(spent.void, 'reproducible release')} recorded"
    if not spent.releases:
        return "nothing yet"
    parts = [in_nats(shown(spent.nats))] if spent.nats else []
    if spent.leakage:
        parts.append(f"{in_nats(shown(spent.leakage))} of maximal leakage")
    for adjacency, (epsilon, delta) in spent.approximate.items():
        parts.append(f"ε = {shown(epsilon)}, δ = {shown(delta)} ({adjacency})")
    parts += [f"μ = {shown(mu)} ({adjacency})" for adjacency, mu in spent.gaussian.items()]
    curves = [adjacency for adjacency in spent.renyi if adjacency not in spent.gaussian]
    parts += [f"a Rényi curve ({adjacency})" for adjacency in curves]
    if spent.unadded:
        parts.append(f"{_count(spent.unadded, 'release')} whose guarantees do not add up")
    if spent.failure:
        parts.append(f"guarantees that fail with probability at most {spent.failure:.3g}")
    # a release of 0 nats is all that leaves no part
    return "; ".join(parts or ["0 nats"]) + f" in {_count(spent.releases, 'release')}"


def harmless_cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _moment(name: str, day: str) -> datetime:
    try:
        found = datetime.fromisoformat(day)
    except ValueError:
        raise ValueError(f"{name}: expected a day such as 2026-07-01, got {day!r}") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _is_day(text: str) -> bool:
    """Whether a time is told by its day alone, in any spelling of ISO 8601."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
