"""Who may submit: secrets of 32 random bytes, of which a dock keeps the SHA-256 alone."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tacit._ground.checks import integer
from tacit._ground.reprs import shown
from tacit_dock.database import Database
from tacit_dock.tables import token_table

PREFIX, BYTES = "tacit_", 32
DEVELOPER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SPELLED = re.compile(r"tacit_[A-Za-z0-9_-]{43}")
LONGEST_DAYS = 3650


@dataclass(frozen=True)
class Token:
    """What is known of a token.

    Attributes:
        number: its name on the command line.
        developer: who it speaks for.
        created: ISO 8601, UTC.
        expires: ISO 8601, UTC.
        revoked: ISO 8601, UTC; None where it was not.
    """

    number: int
    developer: str
    created: str
    expires: str
    revoked: str | None

    @property
    def holds(self) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and self.expires > now()


def now() -> str:
    """Return the time, ISO 8601, UTC, to the microsecond, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def create_token(database: Database, developer: str, *, days: int = 365) -> tuple[str, Token]:
    """Make a token for a developer.

    Args:
        database: of the dock.
        developer: small letters, digits, dots, dashes and underscores, at most 64.
        days: after which it expires.

    Returns:
        The token, which is kept nowhere, and what is known of it.

    Raises:
        ValueError: the name or the days are none.
    """
    if not isinstance(developer, str) or not DEVELOPER.fullmatch(developer):
        raise ValueError(
            f"developer: expected small letters, digits, . _ and -, got {shown(developer)}"
        )
    days = integer("days", days, minimum=1, maximum=LONGEST_DAYS)
    token = PREFIX + secrets.token_urlsafe(BYTES)
    made = {
        "digest": digest_of(token),
        "developer": developer,
        "created": now(),
        "expires": (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="microseconds"),
    }
    with database.writing() as (connection, _):
        number = connection.execute(token_table.insert().values(made)).inserted_primary_key
        assert number is not None
        return token, Token(number[0], developer, made["created"], made["expires"], None)


def list_tokens(database: Database) -> tuple[Token, ...]:
    """Return what is known of every token, the oldest first."""
    with database.reading() as connection:
        rows = connection.execute(sa.select(token_table).order_by(token_table.c.number))
        return tuple(_token(row) for row in rows)


def revoke_token(database: Database, number: int) -> Token:
    """End a token now; one that was revoked stays so since then.

    Raises:
        ValueError: there is none of this number.
    """
    with database.writing() as (connection, _):
        mine = token_table.c.number == number
        connection.execute(
            sa.update(token_table)
            .where(mine & token_table.c.revoked.is_(None))
            .values(revoked=now())
        )
        row = connection.execute(sa.select(token_table).where(mine)).one_or_none()
    if row is None:
        raise ValueError(f"number: expected that of a token, got {shown(number)}")
    return _token(row)


def find_token(database: Database, token: str) -> Token | None:
    """Return what is known of a token; None where the dock never made it."""
    if not SPELLED.fullmatch(token):
        return None
    with database.reading() as connection:
        query = sa.select(token_table).where(token_table.c.digest == digest_of(token))
        row = connection.execute(query).one_or_none()
        return None if row is None else _token(row)


def digest_of(token: str) -> str:
    """Return what is stored of a token: 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def _token(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.number, row.developer, row.created, row.expires, row.revoked)
