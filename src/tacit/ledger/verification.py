"""Whether a ledger is what was written: the chain, every row, every total."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tacit._ground.checks import integer
from tacit.compute import parallel_map
from tacit.ledger.account import DEFAULT_ORDERS, Account, account_from_json
from tacit.ledger.chain import GENESIS, HEAD, head_text, parse_head
from tacit.ledger.notions import RENYI_DP
from tacit.ledger.store import LedgerStore
from tacit.ledger.stretches import (
    CHAIN,
    FILE,
    UNPLACED,
    Finding,
    Orders,
    Reading,
    Stretch,
    read,
    streamed,
)
from tacit.ledger.structure import added
from tacit.ledger.tables import (
    BUDGET,
    RELEASE,
    TABLE_OF,
    as_flag,
    canonical,
    chain_table,
    digest,
    meta_table,
    secret_table,
)

CHECKPOINT = re.compile(f"({HEAD.pattern}):([0-9a-f]{{64}})")
# So many links or rows are read by one worker at a time; fewer are read at one moment, here.
STRETCH = 100_000
# What stands in the account of a secret whose curves are counted at the usual orders.
USUAL_ORDERS = f'"orders": {canonical(DEFAULT_ORDERS)}, "totals": ['
ACCOUNT = secret_table.c.account
ACCOUNTS = sa.select(
    *(secret_table.c[name] for name in ("secret", "account", "budgeted", "place")),
    chain_table.c.secret.label("whose"), chain_table.c.account.label("sealed"),
).select_from(
    secret_table.outerjoin(chain_table, chain_table.c.place == secret_table.c.place)
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `Ledger.verify` found.

    ``records`` is the number of links of the chain, ``head`` the newest of them; ``findings`` are
    sentences, the one about the earliest record first. ``checkpoint`` is the head and a digest of
    all totals, from which a later verification can go on; it is empty where something was found.
    """

    records: int
    head: str
    findings: tuple[str, ...]
    checkpoint: str = ""

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
            "checkpoint": self.checkpoint,
            "findings": list(self.findings),
        }


def verification(
    store: LedgerStore, head: str | None, since: str | None, workers: int | None
) -> Verification:
    """Verify a ledger as it is at one moment; what `Ledger.verify` says of the arguments holds."""
    if workers is not None:
        integer("workers", workers, minimum=1)
    noted = [] if head is None else [parse_head(head)]
    begun, state = ((0, GENESIS), None) if since is None else _parse_checkpoint(since)
    if since is not None:
        noted.append(begun)
    with store.transaction(write=False) as connection:
        return Verifier(store, connection, begun, state, workers).run(noted)


def _parse_checkpoint(text: str) -> tuple[tuple[int, str], str | None]:
    found = CHECKPOINT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(
            f"since: expected PLACE:HASH:TOTALS as `tacit ledger verify` shows, got {text!r}"
        )
    return parse_head(found[1]), found[4]


class Verifier:
    """One pass over a ledger, at the moment of one transaction."""

    def __init__(
        self,
        store: LedgerStore,
        connection: sa.Connection,
        begun: tuple[int, str],
        state: str | None,
        workers: int | None,
    ) -> None:
        self.store, self.connection, self.workers = store, connection, workers
        self.begun, self.state = begun, state
        self.findings: list[Finding] = []
        self.missing: list[int] = []
        self.sealed: dict[str, tuple[int, str]] = {}

    def run(self, noted: Sequence[tuple[int, str]]) -> Verification:
        """Check everything, and that the chain goes through the heads noted."""
        newest = self._newest()
        links = self._read(CHAIN, newest, {})
        self.missing, self.sealed = links.missing, links.sealed
        end = links.end if links.end[0] else self.begun
        self._end(end)
        for place, kept in noted:
            self._noted(place, kept)
        orders = self._orders()
        budgets, releases = (self._read(kind, newest, orders) for kind in (BUDGET, RELEASE))
        for kind in (BUDGET, RELEASE):
            self._deleted(kind, newest)
        state = self._accounts(orders, budgets, releases)
        for reading in (links, budgets, releases):
            self.findings += reading.findings
            self.findings += [(self._since(place), text) for place, text in reading.after]
        self.findings += [(UNPLACED, text) for text in added(self.connection)]
        found = tuple(
            dict.fromkeys(text for _, text in sorted(self.findings, key=lambda found: found[0]))
        )
        head = head_text(*end)
        checkpoint = "" if found else f"{head}:{state}"
        return Verification(records=end[0], head=head, findings=found, checkpoint=checkpoint)

    def _newest(self) -> int:
        return int(
            self.connection.execute(sa.select(sa.func.max(chain_table.c.place))).scalar() or 0
        )

    def _read(self, kind: str, newest: int, orders: Orders) -> Reading:
        """Read all that there is of a kind, by stretches, with several workers where it is much."""
        whole, stretches = Reading(), list(self._stretches(kind, newest))
        if len(stretches) <= 2:
            for stretch in stretches:
                whole.take(read(self.connection, stretch, orders))
            return whole
        location = str(self.store.url.render_as_string(hide_password=False))
        parallel_map(
            _Elsewhere(location, orders), stretches,
            workers=self.workers, engine="local", each=whole.take,
        )  # fmt: skip
        return whole

    def _stretches(self, kind: str, newest: int) -> Iterator[Stretch]:
        since = self.begun[0]
        if kind == CHAIN:
            first, last = since + 1, newest
        else:
            number = TABLE_OF[kind].c.number
            ends = self.connection.execute(sa.select(sa.func.min(number), sa.func.max(number)))
            low, high = ends.one()
            first, last = (1, 0) if low is None else (int(low), int(high))
        begin = first
        while begin <= last:
            end = last if last - begin < 2 * STRETCH else begin + STRETCH - 1
            yield Stretch(kind, begin, end, newest, since)
            begin = end + 1
        if kind == CHAIN and not since:
            yield Stretch(FILE, 0, 0, newest)

    def _find(self, place: float, sentence: str) -> None:
        self.findings.append((place, sentence))

    def _since(self, place: float) -> float:
        """Where something went wrong that was last sealed at ``place``.

        Where later records are missing, one of it may be among them, and the gap comes first.
        """
        return min([gap + 0.1 for gap in self.missing if gap > place], default=place)

    def _noted(self, place: int, noted: str) -> None:
        """Say whether the chain goes through a head that was kept elsewhere."""
        query = sa.select(chain_table.c.hash).where(chain_table.c.place == place)
        stored = GENESIS if place == 0 else self.connection.execute(query).scalar_one_or_none()
        if stored != noted:
            what = "is missing" if stored is None else "is another one"
            self._find(place, f"record {place} of the head given {what}")

    def _end(self, end: tuple[int, str]) -> None:
        """Say whether the head is the newest record, or records were cut off before it."""
        query = sa.select(meta_table.c.value).where(meta_table.c.key == "head")
        stored = self.connection.execute(query).scalar_one_or_none()
        if stored == head_text(*end):
            return
        place = end[0]
        try:
            last = parse_head(stored)[0]
        except ValueError:
            last = place
        if last > place:
            self.missing.append(place + 1)
            what = (
                f"record {last} is" if last == place + 1 else f"records {place + 1} to {last} are"
            )
            self._find(place + 1, f"{what} cut off the end")
        else:
            self._find(place + 0.75, "the head is not the newest record")

    def _orders(self) -> dict[str, tuple[float, ...]]:
        """Return the Rényi orders of the secrets that have others than the usual ones."""
        found = {}
        for rows in streamed(self.connection, sa.select(secret_table.c.secret, ACCOUNT)):
            for secret, text in rows:
                orders = DEFAULT_ORDERS if USUAL_ORDERS in str(text) else _account(text).orders
                if orders != DEFAULT_ORDERS:
                    found[secret] = orders
        return found

    def _accounts(self, orders: Orders, budgets: Reading, releases: Reading) -> str:
        """Hold every account against its seal and its records; return a digest of all of them.

        Totals are held against those of their records, or against those of the checkpoint and of
        newer ones. Sums are exact, so that what was added since is taken away to the last digit.
        """
        seen, now, before = set[str](), dict[str, str](), dict[str, str]()
        for rows in streamed(self.connection, ACCOUNTS):
            for secret, text, flag, place, whose, sealed in rows:
                seen.add(secret)
                summed, limits = releases.totals.of(secret), budgets.budgets.get(secret)
                account = Account(limits, orders.get(secret, DEFAULT_ORDERS), summed)
                whole = self.state is None and text == account.to_json()
                if not whole:
                    account = _account(text)
                self._sealed(secret, account, text, as_flag(flag), place, (whose, sealed))
                if self.state is None:
                    whole = whole or account.totals == summed
                else:
                    try:
                        earlier = account.with_all(releases.earlier.of(secret)).without(summed)
                        before[secret], whole = _of_state(secret, earlier), True
                    except ValueError:
                        whole = False
                if not whole or account.budget != limits:
                    self._find(
                        self._last_sealed(secret),
                        f"the totals of secret {secret!r} are not those of its records",
                    )
                now[secret] = _of_state(secret, account)
        for secret in self.sealed.keys() - seen:
            self._find(self._last_sealed(secret), f"secret {secret!r} was deleted")
        place = self.begun[0]
        if self.state not in (None, _state(before, budgets.history, place)):
            self._find(place, f"the totals or budgets up to record {place} are not as they were")
        return _state(now, budgets.history, UNPLACED)

    def _last_sealed(self, secret: str) -> float:
        return self._since(self.sealed.get(secret, (UNPLACED, ""))[0] + 0.5)

    def _sealed(
        self,
        secret: str,
        account: Account,
        text: Any,
        flag: Any,
        place: Any,
        link: tuple[Any, Any],
    ) -> None:
        """Say whether an account is what the last link about its secret sealed."""
        last, sealed = self.sealed.get(secret, (UNPLACED, ""))
        if last == UNPLACED and self.state is not None and link[0] == secret:
            # sealed before the checkpoint, whose digest of the totals holds it
            last, sealed = place, link[1]
        if last == UNPLACED:
            self._find(UNPLACED, f"secret {secret!r} was inserted")
        elif sealed != digest(text) or place != last or flag is not (account.budget is not None):
            self._find(self._since(last + 0.5), f"the totals of secret {secret!r} were edited")

    def _deleted(self, kind: str, newest: int) -> None:
        """Name the rows that the chain has and the table has not."""
        table, link = TABLE_OF[kind], chain_table.c
        known = sa.select(link.number).where(link.kind == kind).distinct().subquery()
        joined = known.outerjoin(table, table.c.number == known.c.number)
        query = sa.select(known.c.number).select_from(joined).where(table.c.number.is_(None))
        for number in self.connection.execute(query).scalars().all():
            last = (
                sa.select(link.place, link.secret)
                .where(link.kind == kind, link.number == number, link.place <= newest)
                .order_by(link.place.desc())
                .limit(1)
            )
            place, secret = self.connection.execute(last).one()
            self._find(place, f"{kind} {number} of secret {secret!r} was deleted")


@dataclass(frozen=True)
class _Elsewhere:
    """Reads a stretch on a connection of its own, in whichever process."""

    # of a server it holds a password, which no message shows
    location: str = field(repr=False)
    orders: Orders

    def __call__(self, stretch: Stretch) -> Reading:
        store = LedgerStore(self.location, create=False, check=False)
        with store.transaction(write=False) as connection:
            return read(connection, stretch, self.orders)


def _account(text: Any) -> Account:
    """Return the account of a text, an empty one where it is none."""
    try:
        return account_from_json(text)
    except ValueError:
        return Account()


def _of_state(secret: str, account: Account) -> str:
    """Return canonical JSON of the totals of a secret; "" where it has none."""
    # orders are fixed by the first curve that is counted at them
    orders = account.orders if account.adjacencies(RENYI_DP) else None
    return canonical([secret, orders, account.totals_json()]) if account.totals else ""


def _state(totals: dict[str, str], history: list[tuple[float, int, str]], place: float) -> str:
    """Return one digest of all totals, and of all budgets that were sealed up to a place.

    It is that of the canonical JSON of both, which is not held at once.
    """
    whole, between = hashlib.sha256(b"[["), ""
    for secret in sorted(totals, key=repr):
        if totals[secret]:
            whole.update(f"{between}{totals[secret]}".encode())
            between = ", "
    budgets = [(number, own) for at, number, own in history if at <= place]
    whole.update(f"], {canonical(budgets)}]".encode())
    return whole.hexdigest()
