"""The ledger of releases and budgets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import sqlalchemy as sa

from tacit._ground.checks import boolean, integer
from tacit.guarantees import Guarantee
from tacit.ledger.account import Account
from tacit.ledger.chain import ADVICE, Page, append, check_head, lock_page, now, read_page
from tacit.ledger.filters import (
    check_orders,
    curves_in_words,
    exceeds,
    remaining,
    uncounted,
    unsummable,
)
from tacit.ledger.notions import Budget, Charge, Spending, charges_of, limits, merged, without
from tacit.ledger.records import (
    RESERVED,
    BudgetChange,
    BudgetExceededError,
    Entry,
    IncomparableGuaranteeError,
    NoBudgetError,
)
from tacit.ledger.reservation import Reservation
from tacit.ledger.rows import add_row, budget_of, entry_of, entry_row, record_budget, who_am_i
from tacit.ledger.store import LedgerStore
from tacit.ledger.tables import RELEASE, budget_table, entry_table, secret_table
from tacit.ledger.verification import Verification, verification

SUGGESTED, SIMILAR = 3, 0.6
# the name a table has by default: nobody misspells one, and they are all alike
FINGERPRINT = re.compile("sha256:[0-9a-f]{64}")


class Ledger:
    """A durable account of every release against every secret.

    Nats add, nats of maximal leakage add, (ε, δ) add, μ² adds, Rényi curves add at orders fixed
    beforehand; sums are exact and rounded up. A release is refused before anything is drawn when
    spent + asked > budget, in one transaction, so that processes that race for the same budget
    cannot overrun it together.

    Args:
        location: a file path, a ``sqlite:///`` URL, or a ``postgresql://`` URL.
        create: make the ledger when it is not there yet; otherwise a missing one is an error.

    Raises:
        ValueError: for a file that is empty, corrupt, read-only, of another program or that
            contradicts itself, or a URL that is neither SQLite nor PostgreSQL.

    Example:
        >>> import os, tempfile
        >>> from tacit.guarantees import InformationBound
        >>> ledger = Ledger(os.path.join(tempfile.mkdtemp(), "ledger.db"))
        >>> _ = ledger.set_budget("customers", mi_budget=0.02)
        >>> bound = InformationBound(
        ...     nats=0.015, secret="rows drawn", evidence="theorem", assumptions=(), source="-"
        ... )
        >>> with ledger.reserve("customers", bound, "mean age") as reservation:
        ...     reservation.mark_drawn()
        ...     reservation.commit({"release": [41.3]})
        >>> ledger.spent("customers").nats
        0.015
        >>> ledger.reserve("customers", bound, "mean income")
        Traceback (most recent call last):
            ...
        tacit.ledger.records.BudgetExceededError: budget: secret 'customers' has a budget of \
0.02 nats, 0.015 nats spent, and this release asks for 0.015 nats; nothing was drawn
    """

    def __init__(self, location: str | os.PathLike[str], *, create: bool = True) -> None:
        self._store = LedgerStore(location, create=boolean("create", create))

    @property
    def location(self) -> str:
        """Where the ledger is kept, without a password."""
        return self._store.label

    def set_budget(
        self,
        secret: str,
        *,
        mi_budget: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        leakage: float | None = None,
        orders: float | Sequence[float] | None = None,
    ) -> Budget:
        """Set what may be spent on ``secret`` from now on, releases already made included.

        The kinds of budget that are not named stay as they are. A release must fit every kind in
        which it states something, and state something in one of them.

        Args:
            secret: the name of the secret.
            mi_budget: nats > 0.
            epsilon: ε > 0.
            delta: δ in [0, 1) beside ``epsilon``; 0 when left out.
            mu: μ > 0 of Gaussian differential privacy.
            leakage: nats > 0 of maximal leakage: ln of the factor by which all releases together
                may multiply a chance.
            orders: the Rényi orders > 1 at which curves are counted against (ε, δ); they can
                change until the first curve is recorded.

        Returns:
            The budget in force, the kinds set earlier included.

        Raises:
            ValueError: when no limit is given, one is out of range, or curves are recorded at
                other orders.
        """
        asked = limits(mi_budget, epsilon, delta, mu, orders, leakage)
        changed = self._change_budget(secret, lambda old: merged(old, asked), asked)
        assert changed is not None
        return changed

    def drop_budget(self, secret: str, *kinds: str) -> Budget | None:
        """Stop counting kinds of budget, and keep a trace of it; return what stays in force.

        Args:
            secret: the name of the secret.
            kinds: of ``"mi_budget"``, ``"epsilon"`` (with its δ), ``"mu"`` and ``"leakage"``.

        Raises:
            ValueError: when a kind is unknown or has no budget.
        """
        return self._change_budget(secret, lambda old: without(old, kinds))

    def budget(self, secret: str) -> Budget | None:
        """Return the budget in force, None when none was set."""
        return self._account(secret).budget

    def budget_history(self, secret: str) -> tuple[BudgetChange, ...]:
        """Return every change of the budget, oldest first."""
        query = sa.select(budget_table).where(budget_table.c.secret == _secret(secret))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(budget_table.c.number)).mappings().all()
        budgets = [None, *(budget_of(row) for row in rows)]
        return tuple(
            BudgetChange(time=row["time"], who=row["who"], old=old, new=new)
            for row, old, new in zip(rows, budgets, budgets[1:], strict=False)
        )

    def spent(self, secret: str) -> Spending:
        """Return the totals of every release that counts, per notion, rounded up."""
        return self._account(secret).spending()

    def remaining(self, secret: str) -> Budget | None:
        """Return what is left of the budget, rounded down; None when no budget was set.

        Every limit is 0 when the releases recorded cannot all be counted against the budget.
        """
        return remaining(self._account(secret))

    def uncounted(self, secret: str) -> str | None:
        """Say why what was released is not counted by the budget; None where it is, or none set."""
        account = self._account(secret)
        return None if account.budget is None else unsummable(account.budget, account)

    def secrets(self) -> tuple[str, ...]:
        """Return the names of all secrets, sorted."""
        with self._reading() as connection:
            return _names(connection)

    def near(self, secret: str) -> tuple[str, ...]:
        """Return the names of secrets that ``secret`` may be a misspelling of, nearest first."""
        return _near(_secret(secret), self.secrets())

    def check_budgeted(self, secret: str) -> None:
        """Refuse, as `reserve` does, a secret without a budget in a ledger where others have one.

        Raises:
            NoBudgetError: when it has none.
        """
        if self.budget(secret) is None:
            try:
                with self._reading() as connection:
                    _check_no_budgets(connection, secret)
            except NoBudgetError as error:
                raise NoBudgetError(secret, self.near(secret), error.budgeted) from None

    def entries(self, secret: str | None = None) -> tuple[Entry, ...]:
        """Return every entry, cancelled ones included, oldest first; of one secret if named."""
        query = sa.select(entry_table).order_by(entry_table.c.number)
        if secret is not None:
            query = query.where(entry_table.c.secret == _secret(secret))
        with self._reading() as connection:
            return tuple(entry_of(row) for row in connection.execute(query).mappings())

    def verify(
        self, head: str | None = None, *, since: str | None = None, workers: int | None = None
    ) -> Verification:
        """Check that every row is as it was written and every total is the sum of its rows.

        Args:
            head: a head that an earlier verification returned, kept elsewhere. Without it, a whole
                chain that was written anew, or cut and closed again, looks like any other.
            since: the ``checkpoint`` of an earlier verification, kept elsewhere: what is newer is
                read, and every total and every budget is held against it. Seals up to there, and
                releases that have not changed since, are not read: an edit of these is not found.
            workers: processes that read a large ledger; None for one per core.

        Returns:
            The ``Verification``, whose first finding names the first edited row.

        Raises:
            ValueError: when ``head`` or ``since`` is not one, or ``workers`` is below 1.
        """
        return verification(self._store, head, since, workers)

    def reserve(
        self,
        secret: str,
        guarantee: Guarantee | Sequence[Guarantee],
        description: str,
        *,
        reproducible: bool = False,
        no_budget: bool = False,
    ) -> Reservation:
        """Spend ``guarantee`` on ``secret``, before the release it certifies is drawn.

        Args:
            secret: the name of the secret.
            guarantee: what the release about to be drawn is certified for; several statements
                about it where the secret has several kinds of budget.
            description: what is released, for the record.
            reproducible: whether the noise comes from a seed, which voids the guarantee: refused
                under a budget, recorded as spending everything otherwise.
            no_budget: record the release though ``secret`` has no budget and others have one.

        Returns:
            The ``Reservation``. It counts as spent from now on, until it is cancelled; after a
            crash it stays spent.

        Raises:
            BudgetExceededError: when spent + asked > budget.
            IncomparableGuaranteeError: when the budget cannot count this guarantee, or one already
                recorded.
            NoBudgetError: when the secret has no budget and others have one.
        """
        name = _secret(secret)
        boolean("reproducible", reproducible)
        boolean("no_budget", no_budget)
        guarantees = tuple(guarantee) if isinstance(guarantee, (list, tuple)) else (guarantee,)
        charges = charges_of(guarantees, reproducible=reproducible)
        if not isinstance(description, str):
            raise ValueError(f"description: expected text, got {description!r}")
        row = entry_row(name, RESERVED, guarantees, charges, description, reproducible=reproducible)
        try:
            number = self._spend(name, charges, row, no_budget)
        except NoBudgetError as error:
            # the names it may be a misspelling of are sought while no other process waits
            raise NoBudgetError(name, self.near(name), error.budgeted) from None
        return Reservation(self._store, number, name)

    def reserved(self, number: int, secret: str, *, seal: str | None = None) -> Reservation:
        """Return a reservation that an earlier process made, to be committed or cancelled.

        Args:
            number: ``Reservation.number``.
            secret: the name that it counts against.
            seal: ``Reservation.seal``, which tells this ledger from one put in its place.

        Raises:
            ValueError: a bad argument, or another seal; without one, what the ledger does not have
                is refused when it is used.
        """
        found = Reservation(self._store, integer("number", number, minimum=0), _secret(secret))
        if seal is not None and found.seal != seal:
            raise ValueError(
                f"ledger: expected the one in which release {number} of secret {secret!r} was "
                f"reserved, got {self.location}, where it was not"
            )
        return found

    def _spend(
        self, secret: str, charges: Sequence[Charge], row: dict[str, Any], no_budget: bool
    ) -> int:
        """Enter a release, or refuse it, in one transaction; return its number."""
        with self._store.transaction() as connection:
            page = lock_page(connection, secret, sqlite=self._store.is_sqlite)
            if page.account.budget is None and not no_budget:
                _check_no_budgets(connection, secret)
            account = page.account.added(charges)
            _admit(page, account, charges)
            whole = add_row(connection, entry_table, row)
            append(connection, page, account, RELEASE, whole, RESERVED)
        return int(whole["number"])

    def _change_budget(
        self, secret: str, change: Any, asked: Budget | None = None
    ) -> Budget | None:
        name = _secret(secret)
        with self._store.transaction() as connection:
            page = lock_page(connection, name, sqlite=self._store.is_sqlite)
            account = page.account.with_budget(change(page.account.budget))
            if asked is not None:
                check_orders(asked)
            record_budget(connection, page, account, who_am_i(), now())
        return account.budget

    def _account(self, secret: str) -> Account:
        with self._reading() as connection:
            page = read_page(connection, _secret(secret))
        return Account() if page is None else page.account

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._store.transaction(write=False) as connection:
            check_head(connection)
            yield connection


def verify_ledger(
    location: str | os.PathLike[str],
    head: str | None = None,
    *,
    since: str | None = None,
    workers: int | None = None,
) -> Verification:
    """Check a ledger as `Ledger.verify` does, one too that contradicts itself on opening.

    Args:
        location: as ``Ledger`` takes it; it must exist.
        head: as in `Ledger.verify`.
        since: as there.
        workers: as there.

    Raises:
        ValueError: when there is no ledger to read.
    """
    store = LedgerStore(location, create=False, check=False)
    return verification(store, head, since, workers)


def _admit(page: Page, account: Account, charges: Sequence[Charge]) -> None:
    """Refuse the release that leads to ``account`` where the budget cannot count or hold it."""
    budget, secret = account.budget, page.secret
    if budget is None:
        return
    reason = uncounted(budget, {charge.notion for charge in charges})
    if reason is not None:
        raise IncomparableGuaranteeError(
            f"guarantee: {reason} (secret {secret!r}); nothing was drawn"
        )
    reason = unsummable(budget, account)
    if reason is not None:
        raise IncomparableGuaranteeError(
            f"guarantee: among the releases recorded for secret {secret!r}, {reason}; "
            "nothing was drawn"
        )
    if exceeds(budget, account):
        curves = curves_in_words(page.account, account)
        raise BudgetExceededError(secret, budget, page.account.spending(), charges, curves)


def _check_no_budgets(connection: sa.Connection, secret: str) -> None:
    # whatever is not exactly false counts as a budget, also what no ledger writes: text and blobs
    # lie above every number; two ends of the index, where "is not" reads the row of every secret
    flag, none = secret_table.c.budgeted, sa.literal(False)
    budgeted = (flag > none) | (flag < none)
    found = connection.execute(sa.select(secret_table.c.secret).where(budgeted).limit(SUGGESTED))
    names = sorted(map(str, found.scalars()))
    if names:
        raise NoBudgetError(secret, (), names)


def _names(connection: sa.Connection) -> tuple[str, ...]:
    names = connection.execute(sa.select(secret_table.c.secret)).scalars().all()
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"ledger: the name of secret {name!r} was edited; it {ADVICE}")
    return tuple(sorted(names))


def _near(secret: str, names: Sequence[str]) -> tuple[str, ...]:
    folded: dict[str, list[str]] = {}
    asked = secret.strip().casefold()
    if FINGERPRINT.fullmatch(asked):
        return ()
    for name in names:
        if name != secret and not FINGERPRINT.fullmatch(name):
            text = name.strip().casefold()
            # the ratio of difflib is at most 2 min/(a + b) of the lengths
            if 2 * min(len(asked), len(text)) >= SIMILAR * (len(asked) + len(text)):
                folded.setdefault(text, []).append(name)
    matches = get_close_matches(asked, folded, n=SUGGESTED, cutoff=SIMILAR)
    return tuple(name for match in matches for name in folded[match])[:SUGGESTED]


def _secret(secret: str) -> str:
    if not isinstance(secret, str) or not secret.strip():
        raise ValueError(f"secret: expected a name, got {secret!r}")
    return secret
