"""A client of a dock: submit, search, fetch, withdraw and list over HTTP."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tacit._ground.files import read_bytes, write_text_atomic
from tacit.documents import dumps
from tacit.releases import load
from tacit.specifications import Specification, specification_from_bytes
from tacit_dock.connection import Connection, DockError, as_docks_answer, json_object

IDENTIFIER = re.compile(r"[0-9a-f]{32}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

UNPROTECTED = (
    "expected a specification with a guarantee, got one without. It is a mean over its records, "
    "from which records have been read back; whoever runs the dock would see it. Make it "
    "with an epsilon, or, of records that are public, set unprotected"
)


# What the parts of a submission are called in a folder: as Hugging Face, as ``specification make -o
# FOLDER/specification.safetensors`` and as ``fetch`` write them.
IN_FOLDER = {
    "specification": ("specification.safetensors",),
    "card": ("README.md", "card.md"),
    "model": ("model.safetensors",),
    "release": ("specification.json", "release.json"),
}


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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._connection.close()

    def submit(
        self,
        specification: str | os.PathLike[str] | Specification,
        card: str | os.PathLike[str] | None = None,
        *,
        model: str | os.PathLike[str] | None = None,
        release: str | os.PathLike[str] | None = None,
        key: str | None = None,
        unprotected: bool = False,
    ) -> dict[str, Any]:
        """Submit a learnware; sent twice under one key it is one learnware.

        Args:
            specification: of the model, or its file, or a folder that holds it as
                ``specification.safetensors``, where the parts that are not given are found as in
                `files_in`.
            card: path of the Markdown with its YAML head.
            model: path of a safetensors file that the dock is to keep.
            release: path of the release's JSON; what may be published of it is sent, and not
                where it comes from.
            key: what makes a second sending the same; a random one when left out.
            unprotected: whether a specification without a guarantee may be sent.

        Returns:
            id, revision, developer, status, guarantee and what the policy decided.

        Raises:
            ValueError: a file cannot be read, there is no card, or the specification has no
                guarantee and ``unprotected`` is not set. Then nothing is sent.
            DockError: the dock refuses it.
        """
        paths: dict[str, Any] = {"card": card, "model": model, "release": release}
        if not isinstance(specification, Specification):
            found = files_in(specification) if os.path.isdir(specification) else {}
            told = {name: path for name, path in paths.items() if path is not None}
            paths = {"specification": specification, "card": None, **found, **told}
        if paths["card"] is None:
            raise ValueError("card: expected a file beside the specification, got none")
        # a release without a guarantee has no part that may be published
        contents = {
            name: _published(path) if name == "release" else read_bytes(name, path)
            for name, path in paths.items()
            if path is not None
        }
        given = {name: content for name, content in contents.items() if content is not None}
        if isinstance(specification, Specification):
            given["specification"] = specification.to_bytes()
        held = specification_from_bytes(given["specification"], name="specification")
        if not held.guarantees and not unprotected:
            raise ValueError(f"specification: {UNPROTECTED}")
        files = {name: (name, content) for name, content in given.items()}
        digests = {
            f"{name}_digest": _digest(given[name])
            for name in ("specification", "model")
            if name in given
        }
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        answer = self._connection.send(
            "POST", "/v1/learnwares", files=files, data=digests, headers=headers
        )
        answered = json_object(answer)
        if answered.get("revision") != digests["specification_digest"]:
            raise DockError("the dock answered with another revision than was sent")
        return answered

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
            raise ValueError(f"task: {UNPROTECTED}")
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
            with as_docks_answer():
                items, cursor, last = iter(page["items"]), page["next"], cursor
            yield from items
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
        with as_docks_answer():
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
        place = Path(folder)
        with as_docks_answer():
            wanted = record["revision"] if revision is None else revision
            found = next((one for one in record["history"] if one["revision"] == wanted), None)
            if found is None or not DIGEST.fullmatch(str(wanted)):
                raise DockError("revision: expected one of the learnware's history", 404)
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


def files_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the parts of a submission that a folder holds, by name.

    Args:
        folder: with ``specification.safetensors``; ``README.md`` or ``card.md``;
            ``model.safetensors``; ``specification.json`` or ``release.json``. The first of two
            names is taken.

    Raises:
        ValueError: it holds no specification or no card.
    """
    places = {name: [Path(folder, one) for one in names] for name, names in IN_FOLDER.items()}
    found = {
        name: there[0]
        for name, ways in places.items()
        if (there := [path for path in ways if path.is_file()])
    }
    for name in ("specification", "card"):
        if name not in found:
            wanted = " or ".join(IN_FOLDER[name])
            raise ValueError(f"{name}: expected {wanted} in {os.fspath(folder)}, got none")
    return found


def _published(path: str | os.PathLike[str]) -> bytes | None:
    """Return what may be published of a stored release, as the dock reads it; None for nothing."""
    release = load(path)
    return None if release.withheld else dumps(release.published(), name="release").encode()


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
