"""What a dock tells of its learnwares: frozen values, each with its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LISTED, QUARANTINED, WITHDRAWN = "listed", "quarantined", "withdrawn"


@dataclass(frozen=True)
class Revision:
    """One content that a learnware has had.

    Attributes:
        revision: SHA-256 of its specification.
        created: when it was submitted, ISO 8601, UTC.
        status: what the policy made of it.
        reason: why.
        model: SHA-256 of the model, None where there is none.
        model_size: its bytes.
        release: SHA-256 of the release's JSON, None where none was given.

    A content in quarantine is its developer's: others are not told its digests either, which a
    guess of its records could be held against.
    """

    revision: str
    created: str
    status: str
    reason: str
    model: str | None
    model_size: int | None
    release: str | None

    def as_seen_by(self, reader: str | None, developer: str) -> Revision:
        """Return what somebody may see of it."""
        if self.status != QUARANTINED or reader == developer:
            return self
        return replace(self, revision="", model=None, model_size=None, release=None)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        model = None if self.model is None else {"digest": self.model, "size": self.model_size}
        return {
            "revision": self.revision,
            "created": self.created,
            "status": self.status,
            "reason": self.reason,
            "model": model,
            "release": self.release,
        }


@dataclass(frozen=True)
class Learnware:
    """A learnware: its newest content, its history and what became of it.

    Attributes:
        id: 32 hexadecimal digits.
        number: its place among all, in the order of submission.
        developer: who may revise and withdraw it.
        status: ``"listed"``, ``"quarantined"`` or ``"withdrawn"``.
        created: ISO 8601, UTC.
        updated: ISO 8601, UTC.
        revision: SHA-256 of the newest specification.
        title: of its card.
        modality: of its card, empty where it says none.
        tags: of its card.
        license: of its card, empty where it names none.
        languages: of its card.
        task: of its card, empty where it names none.
        space: the fields of the space of its specification; empty once withdrawn.
        method: how its specification was made.
        classes: what its specification calls its classes; none where that is not told.
        inputs: height and width of the pictures it was described with; empty of other records.
        guarantee: the headline with its sentence; None where nothing is claimed.
        notes: of its specification.
        head: the YAML head of its card.
        text: the Markdown of its card.
        history: every content, the newest first; in a list the newest alone.
        withdrawn: when, ISO 8601, UTC; None where it was not.
        reason: why it was withdrawn.
    """

    id: str
    number: int
    developer: str
    status: str
    created: str
    updated: str
    revision: str
    title: str
    modality: str
    tags: tuple[str, ...] = ()
    license: str = ""
    languages: tuple[str, ...] = ()
    task: str = ""
    space: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""
    classes: tuple[str, ...] = ()
    inputs: str = ""
    guarantee: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    head: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    history: tuple[Revision, ...] = ()
    withdrawn: str | None = None
    reason: str | None = None

    @property
    def policy(self) -> dict[str, str]:
        """What the policy made of the newest content, and why."""
        newest = self.history[0]
        return {"decision": newest.status, "reason": newest.reason}

    def as_seen_by(self, reader: str | None) -> Learnware:
        """Return what somebody may see of it: of contents in quarantine no digest.

        Args:
            reader: a developer, or None for anybody.
        """
        history = tuple(one.as_seen_by(reader, self.developer) for one in self.history)
        revision = history[0].revision if history else self.revision
        return replace(self, history=history, revision=revision)

    def summary(self) -> dict[str, Any]:
        """Return what a list tells of it."""
        return {
            "id": self.id,
            "title": self.title,
            "developer": self.developer,
            "status": self.status,
            "modality": self.modality,
            "tags": list(self.tags),
            "license": self.license,
            "languages": list(self.languages),
            "task": self.task,
            "classes": list(self.classes),
            "inputs": self.inputs,
            "created": self.created,
            "updated": self.updated,
            "revision": self.revision,
            "guarantee": None if self.guarantee is None else dict(self.guarantee),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it JSON-able."""
        model = self.history[0].to_dict()["model"] if self.history else None
        trail = {"time": self.withdrawn, "reason": self.reason}
        return {
            **self.summary(),
            "policy": self.policy,
            "space": dict(self.space),
            "method": self.method,
            "notes": list(self.notes),
            "card": {"head": dict(self.head), "text": self.text},
            "model": model,
            "history": [held.to_dict() for held in self.history],
            "withdrawal": None if self.withdrawn is None else trail,
        }


@dataclass(frozen=True)
class LearnwarePage:
    """Some learnwares and where the next ones begin.

    Attributes:
        items: the newest first.
        next: an opaque cursor, None at the end.
    """

    items: tuple[Learnware, ...]
    next: str | None


@dataclass(frozen=True)
class Filters:
    """What a list or a search is narrowed to; None where it is not.

    Attributes:
        tag: a word of the card.
        modality: of the card.
        developer: who submitted.
        guarantee: ``"any"``, ``"none"`` or the type of the headline, such as ``"GaussianDP"``.
        license: of the card, as Hugging Face names it.
        language: of the card, likewise.
        task: of the card, such as ``"image-classification"``.
        words: that title, tags or card have, or words that begin so.
        max_epsilon: the largest ε at δ = 1e-5 of all its revisions together.
    """

    tag: str | None = None
    modality: str | None = None
    developer: str | None = None
    guarantee: str | None = None
    license: str | None = None
    language: str | None = None
    task: str | None = None
    words: str | None = None
    max_epsilon: float | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())
