"""A long ledger, filled in bulk by the ledger's own rows, totals and links.

Release by release 10⁶ of them take hours: three transactions each, and each on the disk before the
next. Here so many share one transaction; what is in the file is what the releases would have left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.documents import dumps
from tacit.guarantees import GaussianDP
from tacit.ledger import Ledger
from tacit.ledger.account import Account
from tacit.ledger.chain import CHANGED_SECRET, GENESIS, MOVED_HEAD, head_text, new_link, now
from tacit.ledger.notions import Charge, charges_of
from tacit.ledger.records import COMMITTED, DRAWN, RESERVED
from tacit.ledger.rows import entry_row
from tacit.ledger.store import LedgerStore
from tacit.ledger.tables import RELEASE, chain_table, entry_table, secret_table

TOGETHER, STRENGTHS = 10_000, 50
Stated = tuple[tuple[GaussianDP, ...], tuple[Charge, ...]]


def filled(path: Path, releases: int, secrets: int) -> Path:
    """Make a ledger of committed releases, in turn about so many secrets, unless it is there."""
    if not path.exists():
        making = path.with_name(f"{path.name}.making")
        making.unlink(missing_ok=True)
        Ledger(making)
        Filling(LedgerStore(making), secrets).run(releases)
        making.rename(path)
    return path


class Filling:
    """What the next release continues: the newest link, and the account of every secret."""

    def __init__(self, store: LedgerStore, secrets: int) -> None:
        self.store, self.head = store, (0, GENESIS)
        self.names = [f"secret {number}" for number in range(secrets)]
        self.accounts, self.places = dict.fromkeys(self.names, Account()), dict[str, int]()
        self.stated = [_stated(1e-4 * (1 + number)) for number in range(STRENGTHS)]
        rows = [
            {"secret": name, "account": Account().to_json(), "budgeted": False, "place": 0}
            for name in self.names
        ]
        with store.transaction() as connection:
            connection.execute(secret_table.insert(), rows)

    def run(self, releases: int) -> None:
        """Enter releases, many in one transaction, and the accounts of all secrets at the end."""
        for first in range(1, releases + 1, TOGETHER):
            whole = [self._release(n) for n in range(first, min(first + TOGETHER, releases + 1))]
            with self.store.transaction() as connection:
                connection.execute(entry_table.insert(), [row for row, _ in whole])
                connection.execute(chain_table.insert(), [link for _, ls in whole for link in ls])
                connection.execute(MOVED_HEAD, {"value": head_text(*self.head)})
        accounts = [
            {"named": name, "account": self.accounts[name].to_json(), "place": place}
            for name, place in self.places.items()
        ]
        with self.store.transaction() as connection:
            connection.execute(CHANGED_SECRET, accounts)

    def _release(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the row of a committed release and the three links that lead to it."""
        secret = self.names[number % len(self.names)]
        # the next about a secret is of another strength
        turn = number // len(self.names) + number
        guarantees, charges = self.stated[turn % STRENGTHS]
        row = entry_row(secret, RESERVED, guarantees, charges, "mean", reproducible=False)
        row, links = {"number": number, **row}, []
        reserved = self.accounts[secret].added(charges)
        closed = reserved.closed()
        before, after = reserved.to_json(), closed.to_json()
        record = {"record": dumps({"release": number})}
        for status, account, change in (
            (RESERVED, before, {}), (DRAWN, before, {}), (COMMITTED, after, record)
        ):  # fmt: skip
            row = {**row, "status": status, "changed": now(), **change}
            link = new_link(self.head, secret, account, RELEASE, row, status)
            self.head = (link["place"], link["hash"])
            links.append(link)
        self.accounts[secret], self.places[secret] = closed, self.head[0]
        return row, links


def _stated(mu: float) -> Stated:
    guarantee = GaussianDP(
        mu=mu, adjacency="replace one record", evidence="theorem", assumptions=(), source="made"
    )
    return (guarantee,), charges_of((guarantee,), reproducible=False)
