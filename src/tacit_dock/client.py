"""A client of a dock: submit, search, fetch, withdraw and list over HTTP."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, Unpack

from tacit._ground.files import read_bytes, write_text_atomic
from tacit.documents import dumps, read
from tacit.specifications import (
    Specification,
    SpecificationRelease,
    specification_from_bytes,
)
from tacit_dock.connection import Connection, DockError, json_object

IDENTIFIER = re.compile(r"[0-9a-f]{32}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

UNPROTECTED = (
    "task: expected a specification with a guarantee, got one that has none: it is a mean of "
    "gradients of its records, from which records have been read back, and whoever runs the dock "
    "sees it. Make it with an epsilon, or, of records that are public, set unprotected"
)


class SearchFilter(TypedDict, total=False):
    """What a list or a search is narrowed to: as `tacit_dock.Filters`, its task as ``for_task``."""

    tag: str | None
    modality: str | None
    developer: str | None
    guarantee: str | None
    license: str | None
    language: str | None
    for_task: str | None
    words: str | None
    max_epsilon: float | None


@dataclass(frozen=True)
class Fetched:
    """A learnware as it was written to a folder.

    Attributes:
        record: what the dock tells of it.
        specification: read and held against its revision.
        folder: where the files are.
        model: path of the model, None where the dock keeps none.
    """

    record: Mapping[str, Any]
    specification: Specification
    folder: Path
    model: Path | None


class DockClient:
    """A connection to one dock.

    The token is sent to this host alone, and no redirect is followed.

    Args:
        url: of the dock, such as ``https://dock.example``.
        token: of a developer; needed to submit and withdraw.
        timeout: seconds that the dock may be silent.
        tries: how often a request is sent where the dock does not answer or is busy.
        allow_http: send the token in the clear to another machine.

    Raises:
        ValueError: the URL is none, or the token would be sent in the clear.
        ImportError: what the extra ``dock`` brings is missing.

    Example:
        >>> with DockClient("http://127.0.0.1:8765") as dock:
        ...     dock.url
        'http://127.0.0.1:8765'
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        tries: int = 3,
        allow_http: bool = False,
    ) -> None:
        self._connection = Connection(url, token, timeout, tries, allow_http)
        self.url = self._connection.url

    def __repr__(self) -> str:
        return f"DockClient({self.url!r})"

    def __enter__(self) -> DockClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._connection.close()

    def submit(
        self,
        specification: str | os.PathLike[str] | Specification,
        card: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | None = None,
        release: str | os.PathLike[str] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Submit a learnware; sent twice under one key it is one learnware.

        Args:
            specification: of the model, or its file.
            card: path of the Markdown with its YAML head.
            model: path of a safetensors file that the dock is to keep.
            release: path of the release's JSON; what may be published of it is sent, and not
                where it comes from.
            key: what makes a second sending the same; a random one when left out.

        Returns:
            id, revision, developer, status, guarantee and what the policy decided.

        Raises:
            ValueError: a file cannot be read.
            DockError: the dock refuses it.
        """
        given: dict[str, Any] = {
            "specification": specification.to_bytes()
            if isinstance(specification, Specification)
            else read_bytes("specification", specification),
            "card": read_bytes("card", card),
        }
        if model is not None:
            given["model"] = read_bytes("model", model)
        if release is not None:
            given["release"] = _published(release)
        files = {name: (name, content) for name, content in given.items()}
        told = {
            f"{name}_digest": _digest(given[name])
            for name in ("specification", "model")
            if name in given
        }
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        answer = self._connection.send(
            "POST", "/v1/learnwares", files=files, data=told, headers=headers
        )
        found = json_object(answer)
        if found.get("revision") != told["specification_digest"]:
            raise DockError("the dock answered with another revision than was sent")
        return found

    def search(
        self,
        task: str | os.PathLike[str] | Specification,
        *,
        limit: int = 10,
        unprotected: bool = False,
        **narrow: Unpack[SearchFilter],
    ) -> dict[str, Any]:
        """Find the learnwares whose specifications are most similar to that of a task.

        Args:
            task: the specification of the task, or its file.
            limit: how many at most.
            unprotected: whether a specification without a guarantee may be sent.
            **narrow: to what the search is narrowed, as of ``SearchFilter``.

        Returns:
            items with rank and raw similarity, and the verdict: whether any is a good match.

        Raises:
            ValueError: the file cannot be read, or is of no specification; or it has no guarantee
                and ``unprotected`` is not set. Then nothing is sent.
            DockError: the dock refuses it, such as a space that no learnware is of (409).
        """
        held = (
            task
            if isinstance(task, Specification)
            else specification_from_bytes(read_bytes("task", task), name="task")
        )
        if not held.guarantees and not unprotected:
            raise ValueError(UNPROTECTED)
        content = held.to_bytes()
        asked = _given(limit=limit, **_filters(narrow))
        headers = {"Content-Type": "application/octet-stream"}
        return json_object(
            self._connection.send(
                "POST", "/v1/search", content=content, params=asked, headers=headers
            )
        )

    def list(
        self,
        **narrow: Unpack[SearchFilter],
    ) -> Iterator[dict[str, Any]]:
        """Yield what is told of every learnware, the newest first; pages are asked for as needed.

        Args:
            **narrow: to what the list is narrowed, as of ``SearchFilter``.
        """
        asked = _given(**_filters(narrow))
        cursor: str | None = None
        while True:
            page = json_object(
                self._connection.send(
                    "GET", "/v1/learnwares", params={**asked, **_given(cursor=cursor)}
                )
            )
            yield from page["items"]
            cursor, last = page["next"], cursor
            if cursor is None:
                return
            if cursor == last:
                raise DockError("the dock answered with the same page twice")

    def show(self, identifier: str) -> dict[str, Any]:
        """Return all that is told of a learnware: card, guarantees, space, history.

        Raises:
            DockError: there is none (404), or it was withdrawn (410).
        """
        return json_object(
            self._connection.send("GET", f"/v1/learnwares/{_identifier(identifier)}")
        )

    def history(self, identifier: str) -> dict[str, Any]:
        """Return the revisions of a learnware and its withdrawal, of one that is withdrawn too.

        Returns:
            history, the newest first, and withdrawal: time and reason, or None.
        """
        try:
            found: Mapping[str, Any] = self.show(identifier)
        except DockError as error:
            if error.status != 410:
                raise
            found = error.problem
        return {"history": found["history"], "withdrawal": found["withdrawal"]}

    def fetch(
        self, identifier: str, folder: str | os.PathLike[str], *, revision: str | None = None
    ) -> Fetched:
        """Write a learnware to a folder: specification, card, and model and release where it has.

        A file gets its name only when its bytes have the digest of the record. All are of one
        revision; ``release.json`` is what ``tacit gate`` works the guarantee out from again.

        Args:
            identifier: of the learnware.
            folder: made where it is missing; it may hold no such file yet.
            revision: which; the newest when left out.

        Raises:
            ValueError: the folder holds such a file, or cannot be written.
            DockError: there is no such learnware or revision, or what arrived is something else.
        """
        record = self.show(identifier)
        wanted = record["revision"] if revision is None else revision
        found = next((one for one in record["history"] if one["revision"] == wanted), None)
        if found is None or not DIGEST.fullmatch(str(wanted)):
            raise DockError("revision: expected one of the learnware's history", 404)
        place = Path(folder)
        digests = {"specification.safetensors": wanted}
        if found["model"] is not None:
            digests["model.safetensors"] = found["model"]["digest"]
        if found.get("release") is not None:
            digests["release.json"] = found["release"]
        for name in (*digests, "card.md"):
            if (place / name).exists():
                raise ValueError(f"folder: {place / name} exists already")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"folder: cannot make {place} ({error.strerror})") from None
        start = f"/v1/learnwares/{identifier}"
        card = self._connection.send("GET", f"{start}/card", params={"revision": wanted})
        # the specification last: whoever sees it sees what belongs to it
        for name, digest in reversed(digests.items()):
            what = name.partition(".")[0]
            self._connection.download(f"{start}/{what}", wanted, digest, place / name)
        write_text_atomic("card", place / "card.md", card.text)
        specification = specification_from_bytes((place / "specification.safetensors").read_bytes())
        model = place / "model.safetensors" if "model.safetensors" in digests else None
        return Fetched(record, specification, place, model)

    def withdraw(self, identifier: str, reason: str = "") -> None:
        """Withdraw one's own learnware: its content is removed, time and reason stay.

        Args:
            identifier: of the learnware; one that is withdrawn stays as it is.
            reason: for everyone to read.

        Raises:
            DockError: it is another developer's (403), or there is none (404).
        """
        place = f"/v1/learnwares/{_identifier(identifier)}"
        self._connection.send("DELETE", place, params=_given(reason=reason or None))


def _published(path: str | os.PathLike[str]) -> bytes:
    """Return what may be published of a stored release, as the dock reads it."""
    content = read("release", path)
    told = SpecificationRelease.from_dict(content).publishable_part().to_dict()
    return dumps(told, name="release").encode()


def _identifier(identifier: str) -> str:
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(identifier):
        raise ValueError("identifier: expected the 32 hexadecimal digits of a learnware")
    return identifier


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _filters(narrow: SearchFilter) -> dict[str, Any]:
    """Return what a dock calls them; `search` has a task of its own."""
    known = SearchFilter.__annotations__
    if unknown := [name for name in narrow if name not in known]:
        raise ValueError(f"{unknown[0]}: expected one of {', '.join(known)}")
    return {name.removeprefix("for_"): value for name, value in narrow.items()}


def _given(**asked: Any) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}
