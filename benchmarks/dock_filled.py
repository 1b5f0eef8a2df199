"""A dock of many learnwares, filled in bulk by rows as submissions leave them.

Submission by submission 10⁵ of them take an hour: each is examined, and on the disk before the
next. Here the first is submitted to the store, the others share its noise and so what was decided
about it, and ten thousand of them one transaction; their factors, releases, cards and words are
their own.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.documents import dumps
from tacit.releases import Release
from tacit.specifications import CertifiedSpecification, Specification, SpecificationSpace
from tacit.specifications.release import KIND, NOISY, SECRET, certified, notes_of
from tacit.specifications.schedule import StepSchedule
from tacit_dock import DockSettings, DockStore, examine
from tacit_dock.cards import read_card
from tacit_dock.submissions import Submission, body_digest
from tacit_dock.tables import (
    answer_table,
    deed_table,
    learnware_table,
    meta_table,
    metadata,
    revision_table,
    tag_table,
    word_table,
)
from tacit_dock.words import words_of

MU, TOGETHER, DEVELOPERS, CENTRES = 0.5, 2_000, 500, 1_000
SPACE = SpecificationSpace(
    backbone="sha256:0", layers=("fc",), shapes=((512, 8),), factor="seed:7", subspace="none",
    output="scatter",
)  # fmt: skip
GUARANTEES = certified(MU, 1e-5, "labels")
LIMITS = DockSettings(max_learnwares=10**9, max_bytes=1 << 50)
# what models of one task share falls off as 1/√j over the numbers
SCALE = (1.0 / np.sqrt(np.arange(1, SPACE.size + 1))).astype(np.float32).reshape(SPACE.shapes[0])


def factors_of(seed: int, centre: int | None) -> np.ndarray:
    """Return the factors of a model of one of the thousand tasks; of none where that is None."""
    own = np.random.default_rng(seed).standard_normal(SPACE.shapes[0], dtype=np.float32)
    if centre is None:
        return own
    shared = np.random.default_rng(-1 - centre & 2**63 - 1)
    return (shared.standard_normal(SPACE.shapes[0], dtype=np.float32) + 0.5 * own) * SCALE


def specification(seed: int, kind: str = "model", *, related: bool = True) -> Specification:
    """Return a specification near those of its task, or one that is related to none."""
    centre = seed % CENTRES if related else None
    return Specification(
        kind=kind, space=SPACE, factors={"fc": factors_of(seed, centre)}, method="dp",
        guarantees=GUARANTEES, created="2026-01-02T03:04:05+00:00",
        notes=notes_of(MU, SPACE.output, StepSchedule()),
    )  # fmt: skip


def card_of(seed: int) -> str:
    words = " ".join(f"word{at}" for at in np.random.default_rng(seed).integers(2000, size=80))
    return f"---\ntitle: Model {seed}\nmodality: image\ntags: [t{seed % 40}]\n---\n{words}.\n"


def parts(seed: int) -> dict[str, bytes]:
    """Return the files of a submission."""
    made = specification(seed)
    details = CertifiedSpecification(
        specification=made, backbone="tacit/vision", records=100, classes=2, mu=MU, delta=1e-5,
        targets="labels", schedule=StepSchedule(),
    )  # fmt: skip
    release = Release(
        kind=KIND, title="A specification", secret=SECRET, method=NOISY, guarantees=GUARANTEES,
        details=details, digests=details.digests, notes=made.notes, reproducible=False,
        created=made.created,
    )  # fmt: skip
    text = json.dumps(release.to_dict()).encode()
    return {"specification": made.to_bytes(), "card": card_of(seed).encode(), "release": text}


def filled(folder: Path, count: int) -> Path:
    """Fill a dock with so many learnwares, or what it lacks of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with DockStore(folder) as store:
        if not store.count():
            _submit_first(store)
        filling = Filling(store)
        while (there := store.count()) < count:
            filling.run(there, min(there + TOGETHER, count))
    return folder


def _submit_first(store: DockStore) -> None:
    with contextlib.ExitStack() as stack:
        uploads = _uploads(store, stack, parts(0))
        store.submit(examine(uploads, {}, LIMITS), "d0", "k0", LIMITS)


def _uploads(store: DockStore, stack: contextlib.ExitStack, files: dict[str, bytes]) -> Any:
    uploads = {}
    for name, content in files.items():
        uploads[name] = stack.enter_context(store.blobs.upload(name, 1 << 30))
        uploads[name].write(content)
    return uploads


class Filling:
    """What the first learnware left in every table, for the others to differ from."""

    def __init__(self, store: DockStore) -> None:
        self.store = store
        with contextlib.ExitStack() as stack:
            uploads = _uploads(store, stack, parts(0))
            self.first = examine(uploads, {}, LIMITS)
            self.files = {name: upload.content() for name, upload in uploads.items()}
        with store.database.reading() as connection:
            self.rows = {
                table.name: dict(connection.execute(table.select().limit(1)).one()._mapping)
                for table in metadata.tables.values()
                if table.name not in ("dock_tokens", "dock_tags", "dock_words")
            }
            found = connection.execute(deed_table.select().where(deed_table.c.what == "submit"))
            self.rows[deed_table.name] = dict(found.first()._mapping)

    def run(self, start: int, end: int) -> None:
        """Enter those between two seeds, in one transaction."""
        made: dict[str, list[dict[str, Any]]] = {}
        with self.store.database.writing() as (connection, change):
            for seed in range(start, end):
                for name, rows in self.rows_of(seed, change + seed - start).items():
                    made.setdefault(name, []).extend(rows)
            for name, rows in made.items():
                connection.execute(metadata.tables[name].insert(), rows)
        # the transaction told its own number as the newest
        with self.store.database.alone() as connection:
            mine = meta_table.c.key == "change"
            connection.execute(
                meta_table.update().where(mine).values(value=str(change + end - start - 1))
            )

    def rows_of(self, seed: int, change: int) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a learnware, whose contents are kept."""
        submission, identifier = self.kept(seed), secrets.token_hex(16)
        developer, number, key = f"d{seed % DEVELOPERS}", seed + 1, f"k{seed}"
        made, card = submission.specification, submission.card
        answer = json.loads(self.rows[answer_table.name]["answer"])
        answer |= {"id": identifier, "revision": made.revision, "developer": developer}
        words = dict.fromkeys(
            words_of(" ".join((card.title, card.modality, *card.tags, card.source)))
        )
        return {
            learnware_table.name: [self.rows[learnware_table.name] | {
                "number": number, "id": identifier, "developer": developer, "change": change,
                "revision": made.revision, "title": card.title,
            }],
            revision_table.name: [self.rows[revision_table.name] | {
                "number": number, "learnware": number, "revision": made.revision,
                "specification": made.revision, "size": submission.size,
                "release": submission.uploads["release"].digest, "card": card.source,
                "head": dumps(dict(card.head), ascii_only=True),
                "direction": submission.direction,
            }],
            tag_table.name: [
                {"learnware": number, "tag": tag} for tag in (*card.tags, *card.marks)
            ],
            word_table.name: [{"learnware": number, "word": word} for word in words],
            deed_table.name: [
                {name: value for name, value in self.rows[deed_table.name].items()
                 if name != "number"}
                | {"who": developer, "learnware": identifier, "detail": made.revision}
            ],
            answer_table.name: [self.rows[answer_table.name] | {
                "developer": developer, "key": key, "body": submission.body,
                "answer": dumps(answer),
            }],
        }  # fmt: skip

    def kept(self, seed: int) -> Submission:
        """Return a submission that differs from the first in factors and card; keep its files."""
        made, blobs = specification(seed), self.store.blobs
        # as the release of other factors has it: their digest, and the file in base64
        text = self.files["release"].decode()
        held = self.first.specification
        for old, new in (
            (held.revision, made.revision),
            (held.to_dict()["file"], made.to_dict()["file"]),
        ):
            text = text.replace(old, new)
        files = {"specification": made.to_bytes(), "card": card_of(seed).encode(),
                 "release": text.encode()}  # fmt: skip
        with contextlib.ExitStack() as stack:
            uploads = _uploads(self.store, stack, files)
            submission = replace(
                self.first, specification=made, card=read_card(files["card"]), uploads=uploads,
                body=body_digest(uploads),
            )  # fmt: skip
            for name in ("specification", "release"):
                path = blobs.path(uploads[name].digest)
                path.parent.mkdir(exist_ok=True, mode=0o700)
                uploads[name].path.rename(path)
        return submission
