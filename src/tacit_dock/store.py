"""The store of a dock: records in a database, contents in a folder, both on the disk at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from tacit_dock import reading
from tacit_dock.blobs import Blobs
from tacit_dock.database import Database
from tacit_dock.deeds import OPERATOR, Deed, deeds, note
from tacit_dock.identity import check_pair
from tacit_dock.records import Filters, Learnware, LearnwarePage
from tacit_dock.reserve import FullError, Reserve
from tacit_dock.search.kept import erase
from tacit_dock.tables import revision_table
from tacit_dock.tokens import Token, create_token, find_token, list_tokens, revoke_token
from tacit_dock.upgrading import fill_in
from tacit_dock.writing import Writer

DATABASE = "dock.sqlite"
CONTENTS = ("specification", "model", "release")
BATCH = 500
Kept = TypeVar("Kept")
# So many contents without a record are left by servers that were killed.
FEW = 20


class DockStore:
    """Learnwares, their contents, developers' tokens; several processes may share one.

    A content is on the disk before the record that names it, a record is on the disk when the
    method returns, and every method that changes something is done whole or not at all.

    Args:
        folder: of the contents, made where it is missing.
        database: path of a SQLite file or URL of PostgreSQL; ``dock.sqlite`` in the folder when
            left out.
        create: whether tables are made where there are none.

    Raises:
        ValueError: the folder cannot be written, or the database does not answer, is none or is of
            something else.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DockStore(folder) as store:
        ...     len(store.learnwares().items)
        0
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        database: str | None = None,
        *,
        create: bool = True,
    ) -> None:
        self.blobs = Blobs(folder)
        place = Path(self.blobs.folder.parent, DATABASE) if database is None else database
        self.reserve = Reserve(self.blobs.folder.parent)
        try:
            self.database = Database(place, create=create, fill_in=fill_in)
        except FullError:
            # SQLite needs some room to be opened at all
            if not self.reserve.give():
                raise
            self.database = Database(place, create=create, fill_in=fill_in)
        try:
            check_pair(self.blobs, self.database)
        except BaseException:
            self.database.discard() if self.database.is_new else self.database.close()
            raise
        self._read: dict[str, tuple[int, Any]] = {}
        # what an operator has to look at, told by health
        self.trouble = ""
        self._writer = Writer(self.database, self.blobs)
        self.submit, self.revise = self._writer.submit, self._writer.revise
        self.replay, self.admit = self._writer.replay, self._writer.admit

    def __enter__(self) -> DockStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self.database.close()

    def learnware(self, identifier: str) -> Learnware | None:
        """Return a learnware with card and history, None where there never was one of this id."""
        with self.database.reading() as connection:
            return reading.learnware(connection, identifier)

    def learnwares(
        self,
        filters: Filters | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        status: str = "listed",
    ) -> LearnwarePage:
        """Return listed learnwares, the newest first.

        Args:
            filters: what they are narrowed to.
            cursor: ``next`` of the page before.
            limit: how many at most.
            status: of those wanted.

        Raises:
            RefusedError: the cursor is none that a page gave (422).
        """
        with self.database.reading() as connection:
            return reading.page(connection, filters or Filters(), cursor, limit, status)

    def named(self, identifiers: Iterable[str]) -> dict[str, Learnware]:
        """Return those learnwares of these ids that are listed, by id."""
        with self.database.reading() as connection:
            return reading.named(connection, tuple(identifiers))

    def matching(self, filters: Filters, space: str) -> set[str]:
        """Return the ids of the listed learnwares of a space that pass the filters."""
        with self.database.reading() as connection:
            return reading.matching(connection, filters, space)

    def spaces(self) -> list[dict[str, object]]:
        """Return the fullest spaces of listed learnwares: digest, fields, how many are in each."""
        return self._kept("spaces", reading.spaces)

    def count(self) -> int:
        """Return how many learnwares are listed."""
        return self._kept("count", reading.count)

    def facets(self) -> dict[str, list[tuple[str, int]]]:
        """Return tags, modalities and developers of listed learnwares, the most frequent first."""
        return self._kept("facets", reading.facets)

    def _kept(self, name: str, read: Callable[[sa.Connection], Kept]) -> Kept:
        """Return what is read of all records, once for every change."""
        with self.database.reading() as connection:
            newest = reading.newest_change(connection)
            change, held = self._read.get(name, (-1, None))
            found: Kept = read(connection) if change != newest else held
            self._read[name] = (newest, found)
            return found

    def newest_change(self) -> int:
        """Return the number of the newest change."""
        return self.database.newest_change()

    def changes(self, seen: int) -> tuple[int, list[tuple[str, str, str, str]]]:
        """Return the newest change, and (id, status, space, revision) of all changed since.

        Args:
            seen: number of the change that is known; 0 for none.
        """
        with self.database.reading() as connection:
            return reading.changes(connection, seen)

    def content(self, identifier: str, name: str, revision: str | None = None) -> str | None:
        """Return the digest of a content of a learnware, of a card its text; None without one.

        Args:
            identifier: of the learnware.
            name: ``"specification"``, ``"model"``, ``"release"`` or ``"card"``.
            revision: which; the newest when left out.
        """
        with self.database.reading() as connection:
            return reading.content(connection, identifier, name, revision)

    def usage(self, developer: str) -> tuple[int, int]:
        """Return how many learnwares a developer holds, and how many bytes."""
        with self.database.reading() as connection:
            return reading.usage(connection, developer)

    def withdraw(self, identifier: str, developer: str, reason: str = "") -> Learnware:
        """Remove a learnware's content; a tombstone with time and reason stays.

        Args:
            identifier: of the learnware; one that is withdrawn stays as it is.
            developer: whose it must be.
            reason: why, for everyone to read.

        Raises:
            RefusedError: there is none (404), or it is another developer's (403).
        """
        try:
            gone = self._writer.withdraw(identifier, developer, reason)
        except FullError:
            # the reserve is there for what makes room
            if not self.reserve.give():
                raise
            gone = self._writer.withdraw(identifier, developer, reason)
        self.collect(gone)
        # what was written of it before is gone from the database's log, too
        self.database.truncate_log()
        found = self.learnware(identifier)
        assert found is not None
        return found

    def collect(self, digests: Iterable[str] | None = None) -> int:
        """Remove contents that no record names; return how many.

        Those of a withdrawal are removed for good. What is found by looking at every one goes to
        the trash, for some days, and nothing does where most would go: then the database is not
        the folder's, whatever it says, and ``health`` says so.

        Args:
            digests: those to look at, for good; every one, and uploads that ended with their
                server, when left out.
        """
        if digests is not None:
            return self._remove(self._unnamed(digests), self.blobs.remove)
        self.blobs.sweep()
        held = tuple(self.blobs.digests())
        orphans = self._unnamed(held)
        if len(orphans) > max(FEW, len(held) // 2):
            self.trouble = (
                f"{len(orphans)} of {len(held)} contents are named by no record: nothing was "
                "removed; is this the database of this folder?"
            )
            return 0
        return self._remove(orphans, self.blobs.throw_away)

    def _remove(self, orphans: list[str], remove: Callable[[str], None]) -> int:
        for start in range(0, len(orphans), BATCH):
            # nobody can name one meanwhile: submissions wait for this transaction
            with self.database.writing() as (connection, _):
                part = orphans[start : start + BATCH]
                gone = set(part) - _named(connection, part)
                try:
                    # first: what is left of a content is removed by the next start, a row is not
                    erase(self.blobs.folder.parent, gone)
                finally:
                    for digest in gone:
                        remove(digest)
        return len(orphans)

    def create_token(self, developer: str, *, days: int = 365) -> tuple[str, Token]:
        """Make a token: as `tacit_dock.tokens.create_token`."""
        token, made = create_token(self.database, developer, days=days)
        self._note("token", f"{made.number} of {made.developer}")
        return token, made

    def tokens(self) -> tuple[Token, ...]:
        """Return what is known of every token, the oldest first."""
        return list_tokens(self.database)

    def revoke_token(self, number: int) -> Token:
        """End a token now.

        Raises:
            ValueError: there is none of this number.
        """
        ended = revoke_token(self.database, number)
        self._note("revoke", f"{ended.number} of {ended.developer}")
        return ended

    def deeds(self, limit: int = 50) -> tuple[Deed, ...]:
        """Return who changed what, the newest first."""
        with self.database.reading() as connection:
            return deeds(connection, limit)

    def _note(self, what: str, detail: str) -> None:
        with self.database.writing() as (connection, _):
            note(connection, OPERATOR, what, detail=detail)

    def find_token(self, token: str) -> Token | None:
        """Return what is known of a token; None where the dock never made it."""
        return find_token(self.database, token)

    def health(self) -> dict[str, object]:
        """Return the newest change and which database answers: it was just asked."""
        change = self.newest_change()
        kind = "SQLite" if self.database.is_sqlite else "PostgreSQL"
        told = {"status": "ok"} if not self.trouble else {"status": "degraded", "why": self.trouble}
        return {**told, "database": kind, "change": change}

    def _unnamed(self, digests: Iterable[str]) -> list[str]:
        asked = tuple(digests)
        with self.database.reading() as connection:
            if len(asked) > BATCH:
                # most of what is there: all names are read sooner than so many are looked up
                known = _all_named(connection)
            else:
                known = _named(connection, list(asked))
        return [digest for digest in asked if digest not in known]


def _all_named(connection: sa.Connection) -> set[str]:
    """Return every digest that a record names."""
    found: set[str] = set()
    for name in CONTENTS:
        column = revision_table.c[name]
        found.update(connection.execute(sa.select(column).where(column.is_not(None))).scalars())
    return found


def _named(connection: sa.Connection, digests: list[str]) -> set[str]:
    """Return which of some digests a record names."""
    found: set[str] = set()
    for name in CONTENTS:
        column = revision_table.c[name]
        found |= set(connection.execute(sa.select(column).where(column.in_(digests))).scalars())
    return found
