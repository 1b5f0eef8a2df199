"""Whether a ledger is what was written: the chain, every row, every total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit.ledger.account import Account, account_from_json
from tacit.ledger.chain import GENESIS, head_text, parse_head, seal
from tacit.ledger.notions import Budget
from tacit.ledger.records import CANCELLED, COMMITTED
from tacit.ledger.rows import budget_of, row_charges
from tacit.ledger.tables import (
    BUDGET,
    RELEASE,
    TABLE_OF,
    chain_table,
    digest,
    meta_table,
    row_digest,
    secret_table,
)

Finding = tuple[float, str]
UNPLACED = float("inf")
ROWS_TOGETHER = 1000
# Of every row the link that sealed it last.
_NEWEST = (
    sa.select(sa.func.max(chain_table.c.place).label("place"))
    .group_by(chain_table.c.kind, chain_table.c.number)
    .subquery()
)
LAST = sa.select(chain_table).join(_NEWEST, chain_table.c.place == _NEWEST.c.place).subquery()


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `Ledger.verify` found.

    ``records`` is the number of links of the chain, ``head`` the newest of them; ``findings`` are
    sentences, the one about the earliest record first.
    """

    records: int
    head: str
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-able dictionary."""
        return {
            "holds": self.holds,
            "records": self.records,
            "head": self.head,
            "findings": list(self.findings),
        }


class Verifier:
    """One pass over a ledger, inside one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.findings: list[Finding] = []
        # of every account: where it was sealed last, and as what
        self.accounts: dict[str, tuple[int, str]] = {}
        self.missing: list[int] = []

    def run(self, head: str | None) -> Verification:
        """Check everything, and that the chain goes through ``head`` where one is given."""
        noted = None if head is None else parse_head(head)
        newest = self._chain()
        if noted is not None:
            self._noted(*noted)
        accounts = self._stored_accounts()
        built = {secret: Account(orders=account.orders) for secret, account in accounts.items()}
        for kind in (BUDGET, RELEASE):
            self._rows(kind, built)
            self._deleted(kind)
        others = sa.select(LAST.c.place).where(LAST.c.kind.not_in(list(TABLE_OF)))
        for place in self._stream(others).scalars():
            self._find(place, f"record {place} is of an unknown kind")
        for secret, account in accounts.items():
            if account != built[secret]:
                place = self.accounts.get(secret, (UNPLACED, ""))[0]
                self._find(
                    self._since(place + 0.5),
                    f"the totals of secret {secret!r} are not those of its records",
                )
        found = tuple(
            dict.fromkeys(text for _, text in sorted(self.findings, key=lambda found: found[0]))
        )
        return Verification(records=newest[0], head=head_text(*newest), findings=found)

    def _find(self, place: float, sentence: str) -> None:
        self.findings.append((place, sentence))

    def _since(self, place: float) -> float:
        """Where something went wrong that was last sealed at ``place``.

        Where later records are missing, one of it may be among them, and the gap comes first.
        """
        return min([gap + 0.1 for gap in self.missing if gap > place], default=place)

    def _stream(self, query: sa.Select[Any]) -> sa.CursorResult[Any]:
        """Return the rows of a query, a few at a time: a ledger may be larger than the memory."""
        return self.connection.execute(query, execution_options={"yield_per": ROWS_TOGETHER})

    def _noted(self, place: int, noted: str) -> None:
        """Say whether the chain goes through a head that was kept elsewhere."""
        query = sa.select(chain_table.c.hash).where(chain_table.c.place == place)
        stored = GENESIS if place == 0 else self.connection.execute(query).scalar_one_or_none()
        if stored != noted:
            what = "is missing" if stored is None else "is another one"
            self._find(place, f"record {place} of the head given {what}")

    def _gap(self, place: int, sentence: str) -> None:
        self.missing.append(place)
        self._find(place, sentence)

    def _chain(self) -> tuple[int, str]:
        place, previous = 0, GENESIS
        query = sa.select(chain_table).order_by(chain_table.c.place)
        for link in self._stream(query).mappings():
            at = int(link["place"])
            if at != place + 1:
                self._gap(place + 1, f"{_span(place + 1, at - 1)} missing from the chain")
            elif link["hash"] != seal(link):
                self._find(at, f"record {at}, {_named(link)}, was edited")
            elif link["previous"] != previous:
                self._find(place, f"record {place} was rewritten after record {at} sealed it")
            self.accounts[link["secret"]] = (at, link["account"])
            place, previous = at, link["hash"]
        stored = self.connection.execute(
            sa.select(meta_table.c.value).where(meta_table.c.key == "head")
        ).scalar_one_or_none()
        if stored != head_text(place, previous):
            self._cut(stored, place)
        return place, previous

    def _cut(self, stored: str | None, place: int) -> None:
        try:
            last = parse_head(stored)[0]
        except ValueError:
            last = place
        if last > place:
            self._gap(place + 1, f"{_span(place + 1, last)} cut off the end")
        else:
            self._find(place + 0.75, "the head is not the newest record")

    def _stored_accounts(self) -> dict[str, Account]:
        accounts = {}
        for row in self.connection.execute(sa.select(secret_table)).mappings():
            secret = row["secret"]
            place, sealed = self.accounts.get(secret, (UNPLACED, ""))
            try:
                account = account_from_json(row["account"])
            except ValueError:
                account = Account()
            accounts[secret] = account
            flagged = row["budgeted"] is (account.budget is not None)
            if place == UNPLACED:
                self._find(UNPLACED, f"secret {secret!r} was inserted")
            elif sealed != digest(row["account"]) or row["place"] != place or not flagged:
                self._find(self._since(place + 0.5), f"the totals of secret {secret!r} were edited")
        for secret, (place, _) in self.accounts.items():
            if secret not in accounts:
                self._find(self._since(place + 0.5), f"secret {secret!r} was deleted")
        return accounts

    def _rows(self, kind: str, built: dict[str, Account]) -> None:
        """Hold every row against what sealed it last, and add it to the account of its secret."""
        table = TABLE_OF[kind]
        joined = table.outerjoin(
            LAST, sa.and_(LAST.c.kind == kind, LAST.c.number == table.c.number)
        )
        sealed = (LAST.c.place.label("sealed_at"), LAST.c.row.label("sealed_as"))
        query = sa.select(table, *sealed).select_from(joined).order_by(table.c.number)
        for found in self._stream(query).mappings():
            row = dict(found)
            place, content = row.pop("sealed_at"), row.pop("sealed_as")
            number, secret = row["number"], row["secret"]
            name = f"{kind} {number} of secret {secret!r}"
            if place is None:
                self._find(UNPLACED, f"{name} was inserted")
            elif content != row_digest(row):
                self._find(self._since(place), f"{name} was edited")
            elif secret in built:
                built[secret] = _with(built[secret], kind, row)

    def _deleted(self, kind: str) -> None:
        table = TABLE_OF[kind]
        joined = LAST.outerjoin(table, LAST.c.number == table.c.number)
        query = (
            sa.select(LAST.c.place, LAST.c.number, LAST.c.secret)
            .select_from(joined)
            .where(LAST.c.kind == kind, table.c.number.is_(None))
        )
        for link in self._stream(query).mappings():
            name = f"{kind} {link['number']} of secret {link['secret']!r}"
            self._find(link["place"], f"{name} was deleted")


def _with(account: Account, kind: str, row: Any) -> Account:
    """Return the account after one row; the rows of a budget come before those of releases."""
    if kind == BUDGET:
        budget: Budget | None = budget_of(row)
        return Account(budget=budget, orders=account.orders, totals=account.totals)
    if row["status"] == CANCELLED:
        return account
    return account.added(row_charges(row), committed=row["status"] == COMMITTED)


def _named(link: Any) -> str:
    return f"{link['kind']} {link['number']} of secret {link['secret']!r}"


def _span(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
