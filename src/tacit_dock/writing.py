"""What changes a dock: each in one transaction that waits for the one before."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from tacit.documents import dumps, loads
from tacit_dock import reading
from tacit_dock.blobs import Blobs
from tacit_dock.cards import Card
from tacit_dock.claims import together
from tacit_dock.database import Database
from tacit_dock.deeds import OPERATOR, note
from tacit_dock.errors import RefusedError
from tacit_dock.records import LISTED, QUARANTINED, WITHDRAWN, Learnware
from tacit_dock.settings import DockSettings
from tacit_dock.submissions import Submission
from tacit_dock.tables import (
    answer_table,
    learnware_table,
    revision_table,
    space_table,
    tag_table,
)
from tacit_dock.tokens import now
from tacit_dock.words import keep_words

# A developer's quota frees up when something is withdrawn.
QUOTA_SECONDS = 3600
WITHDRAWN_REVISION = {
    "specification", "model", "release", "model_size", "manifest", "card", "head", "headline",
    "direction", "epsilon",
}  # fmt: skip


class Writer:
    """Submissions, revisions, withdrawals and admissions."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database, self._blobs = database, blobs

    def replay(self, developer: str, key: str, body: str) -> dict[str, Any] | None:
        """Return what was answered to this key and body; None where the key is new.

        Raises:
            RefusedError: the key was used for another body (422).
        """
        with self._database.reading() as connection:
            return _answered(connection, developer, key, body)

    def submit(
        self, submission: Submission, developer: str, key: str, settings: DockSettings
    ) -> dict[str, Any]:
        """Keep a submission and return the answer to it; the same again for the same key.

        Args:
            submission: read and decided about.
            developer: whose it becomes.
            key: of idempotency, the developer's own.
            settings: of the dock.

        Raises:
            RefusedError: the key was used for another body (422), the revision is there already
                (409), or the developer's quota is used up (429).
        """
        _sync(submission)
        with self._database.writing() as (connection, change):
            answered = _answered(connection, developer, key, submission.body)
            if answered is not None:
                return answered
            _check_new(connection, submission, developer)
            _check_quota(connection, developer, submission.size, settings, more=1)
            _keep(submission)
            moment, identifier = now(), secrets.token_hex(16)
            row = {
                **_columns(submission, change, moment),
                "id": identifier,
                "developer": developer,
                "created": moment,
            }
            made = connection.execute(learnware_table.insert().values(row)).inserted_primary_key
            assert made is not None
            _insert(connection, made[0], submission, moment)
            answer = _answer(connection, identifier)
            note(connection, developer, "submit", learnware=identifier, detail=answer["revision"])
            connection.execute(
                answer_table.insert().values(
                    developer=developer,
                    key=key,
                    body=submission.body,
                    answer=dumps(answer),
                    created=moment,
                )
            )
        return answer

    def revise(
        self,
        identifier: str,
        expected: str,
        submission: Submission,
        developer: str,
        settings: DockSettings,
    ) -> dict[str, Any]:
        """Give a learnware a new content; its history keeps the old ones.

        Args:
            identifier: of the learnware.
            expected: revision that the caller has seen last.
            submission: read and decided about.
            developer: whose it must be.
            settings: of the dock.

        Raises:
            RefusedError: there is none (404), it is another developer's (403), withdrawn (410) or
                revised meanwhile (412), the revision is there already (409), or the quota is used
                up (429).
        """
        _sync(submission)
        with self._database.writing() as (connection, change):
            row = _own(connection, identifier, developer)
            if row.status == WITHDRAWN:
                raise RefusedError(410, "this learnware was withdrawn")
            if row.revision != expected:
                raise RefusedError(412, f"this learnware is at revision {row.revision} by now")
            _check_new(connection, submission, developer, identifier)
            _check_quota(connection, developer, submission.size, settings, more=0)
            earlier = _headlines(connection, row.number)
            if len(earlier) >= settings.max_revisions:
                raise RefusedError(
                    429,
                    f"expected at most {settings.max_revisions} revisions of one learnware: "
                    "withdraw it and submit another",
                    retry_after=QUOTA_SECONDS,
                )
            _keep(submission)
            moment = now()
            connection.execute(
                sa.update(learnware_table)
                .where(learnware_table.c.number == row.number)
                .values(_columns(submission, change, moment))
            )
            _insert(connection, row.number, submission, moment, earlier)
            revised = _answer(connection, identifier)
            note(connection, developer, "revise", learnware=identifier, detail=revised["revision"])
            return revised

    def withdraw(self, identifier: str, developer: str, reason: str) -> list[str]:
        """Empty a learnware and leave a tombstone; return the digests that it named.

        Raises:
            RefusedError: there is none (404), or it is another developer's (403).
        """
        with self._database.writing() as (connection, change):
            row = _own(connection, identifier, developer)
            if row.status == WITHDRAWN:
                return []
            mine = revision_table.c.learnware == row.number
            held = connection.execute(
                sa.select(
                    revision_table.c.specification, revision_table.c.model, revision_table.c.release
                ).where(mine)
            ).all()
            connection.execute(
                sa.update(revision_table)
                .where(mine)
                .values(**dict.fromkeys(WITHDRAWN_REVISION), size=0)
            )
            connection.execute(sa.delete(tag_table).where(tag_table.c.learnware == row.number))
            keep_words(connection, row.number, "")
            moment = now()
            connection.execute(
                sa.update(learnware_table)
                .where(learnware_table.c.number == row.number)
                .values(
                    status=WITHDRAWN,
                    change=change,
                    updated=moment,
                    withdrawn=moment,
                    reason=reason,
                    title="",
                    modality="",
                    guarantee="",
                )
            )
            note(connection, developer, "withdraw", learnware=identifier, detail=row.revision)
        return [digest for one in held for digest in one if digest is not None]

    def admit(self, identifier: str) -> Learnware:
        """List a learnware that is in quarantine.

        Raises:
            RefusedError: there is none (404), or it is not in quarantine (409).
        """
        with self._database.writing() as (connection, change):
            row = reading.row(connection, identifier)
            if row is None:
                raise RefusedError(404, "there is no such learnware")
            if row.status != QUARANTINED:
                raise RefusedError(409, f"this learnware is {row.status}, not in quarantine")
            connection.execute(
                sa.update(learnware_table)
                .where(learnware_table.c.number == row.number)
                .values(status=LISTED, change=change, updated=now())
            )
            newest = (revision_table.c.learnware == row.number) & (
                revision_table.c.revision == row.revision
            )
            connection.execute(
                sa.update(revision_table)
                .where(newest)
                .values(
                    status=LISTED, reason=revision_table.c.reason + "; admitted by the operator"
                )
            )
            note(connection, OPERATOR, "admit", learnware=identifier, detail=row.revision)
            found = reading.learnware(connection, identifier)
        assert found is not None
        return found


def keep_card(connection: sa.Connection, number: int, card: Card) -> None:
    """Have a learnware found by what its card says, and by nothing that it said before."""
    connection.execute(sa.delete(tag_table).where(tag_table.c.learnware == number))
    if card.marks or card.tags:
        rows = [{"learnware": number, "tag": tag} for tag in (*card.tags, *card.marks)]
        connection.execute(tag_table.insert(), rows)
    keep_words(connection, number, " ".join((card.title, card.modality, *card.tags, card.source)))


def epsilon_of(headline: Mapping[str, Any] | None) -> str:
    """Return ε of all revisions together as text, empty where there is no bound."""
    told = {} if headline is None else headline.get("together") or headline
    epsilon = told.get("epsilon")
    return "" if epsilon is None else repr(float(epsilon))


def _sync(submission: Submission) -> None:
    for upload in submission.uploads.values():
        upload.sync()


def _keep(submission: Submission) -> None:
    """Give the files their names, within the transaction that will name them."""
    for name in ("specification", "model", "release"):
        if name in submission.uploads:
            submission.uploads[name].keep()


def _own(connection: sa.Connection, identifier: str, developer: str) -> Any:
    row = reading.row(connection, identifier)
    if row is None:
        raise RefusedError(404, "there is no such learnware")
    if row.developer != developer:
        raise RefusedError(403, "this learnware is another developer's")
    return row


def _answered(
    connection: sa.Connection, developer: str, key: str, body: str
) -> dict[str, Any] | None:
    mine = (answer_table.c.developer == developer) & (answer_table.c.key == key)
    row = connection.execute(sa.select(answer_table).where(mine)).one_or_none()
    if row is None:
        return None
    if row.body != body:
        raise RefusedError(422, "Idempotency-Key: this key was used for another submission")
    answer: dict[str, Any] = loads(row.answer)
    held = reading.row(connection, answer["id"])
    if held is not None and held.status == WITHDRAWN:
        raise RefusedError(
            410,
            "Idempotency-Key: what was submitted under this key was withdrawn since",
            learnware=answer["id"],
        )
    return answer


def _check_new(
    connection: sa.Connection,
    submission: Submission,
    developer: str,
    identifier: str | None = None,
) -> None:
    """Refuse a content that is there already, and factors that another learnware has.

    Of another's content in quarantine nothing is told, not even that it is there: a guess of its
    records could be held against the answer.
    """
    seen = (learnware_table.c.developer == developer) | (revision_table.c.status != QUARANTINED)
    held = (learnware_table.c.status != WITHDRAWN) & seen
    query = (
        sa.select(learnware_table.c.id)
        .join(revision_table, revision_table.c.learnware == learnware_table.c.number)
        .limit(1)
    )
    same = held & (revision_table.c.revision == submission.specification.revision)
    found = connection.execute(query.where(same)).scalars().first()
    if found is not None:
        raise RefusedError(409, "this revision is there already", learnware=found)
    alike = held & (revision_table.c.direction == submission.direction)
    if identifier is not None:
        alike &= learnware_table.c.id != identifier
    found = connection.execute(query.where(alike)).scalars().first()
    if found is not None:
        raise RefusedError(
            409, "specification: another learnware has these very factors", learnware=found
        )


def _check_quota(
    connection: sa.Connection, developer: str, size: int, settings: DockSettings, *, more: int
) -> None:
    count, held = reading.usage(connection, developer)
    if count + more > settings.max_learnwares:
        raise RefusedError(
            429,
            f"expected at most {settings.max_learnwares} learnwares of one developer",
            retry_after=QUOTA_SECONDS,
        )
    if held + size > settings.max_bytes:
        raise RefusedError(
            429,
            f"expected at most {settings.max_bytes} bytes of one developer",
            retry_after=QUOTA_SECONDS,
        )


def _columns(submission: Submission, change: int, moment: str) -> dict[str, Any]:
    told = submission.decision.headline
    return {
        "status": submission.decision.status,
        "updated": moment,
        "change": change,
        "revision": submission.specification.revision,
        "space": submission.specification.space.digest,
        "title": submission.card.title,
        "modality": submission.card.modality,
        "guarantee": "" if told is None else told["type"],
    }


def _headlines(connection: sa.Connection, number: int) -> list[Any]:
    """Return what every revision so far says, None of those without a guarantee."""
    query = sa.select(revision_table.c.headline).where(revision_table.c.learnware == number)
    return [None if one is None else loads(one) for one in connection.execute(query).scalars()]


def _insert(
    connection: sa.Connection,
    number: int,
    submission: Submission,
    moment: str,
    earlier: Sequence[Any] = (),
) -> None:
    specification, uploads = submission.specification, submission.uploads
    told = together(submission.decision.headline, earlier)
    digests = {name: uploads[name].digest for name in ("model", "release") if name in uploads}
    connection.execute(
        revision_table.insert().values(
            learnware=number,
            revision=specification.revision,
            created=moment,
            status=submission.decision.status,
            reason=submission.decision.reason,
            specification=specification.revision,
            size=submission.size,
            model_size=uploads["model"].size if "model" in uploads else None,
            manifest=dumps(specification.manifest(), ascii_only=True),
            card=submission.card.source,
            head=dumps(dict(submission.card.head), ascii_only=True),
            headline=None if told is None else dumps(dict(told), ascii_only=True),
            epsilon=epsilon_of(told),
            direction=submission.direction,
            **digests,
        )
    )
    keep_card(connection, number, submission.card)
    space = specification.space
    known = sa.select(space_table.c.digest).where(space_table.c.digest == space.digest)
    if connection.execute(known).scalar_one_or_none() is None:
        fields = dumps(asdict(space), ascii_only=True)
        connection.execute(space_table.insert().values(digest=space.digest, fields=fields))


def _answer(connection: sa.Connection, identifier: str) -> dict[str, Any]:
    found = reading.learnware(connection, identifier)
    assert found is not None
    told = ("id", "revision", "developer", "created", "updated", "status", "guarantee")
    return {**{name: found.summary()[name] for name in told}, "policy": found.policy}
