"""The contents of a learnware: its specification, model, release and card, of every revision."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from tacit_dock.api.access import Reader
from tacit_dock.api.conditions import none_matches, part_of
from tacit_dock.api.learnwares import NoneMatch, present
from tacit_dock.api.routes import is_head
from tacit_dock.api.shapes import problems
from tacit_dock.api.state import dock_of
from tacit_dock.errors import RefusedError, UnavailableError
from tacit_dock.records import QUARANTINED

router = APIRouter(prefix="/v1/learnwares/{identifier}", tags=["learnwares"])

REVISION = re.compile(r"sha256:[0-9a-f]{64}")
CHUNK = 1 << 20
OCTETS, JSON = "application/octet-stream", "application/json"
MARKDOWN = "text/markdown; charset=utf-8"
KINDS = {
    "specification": (OCTETS, "safetensors"),
    "model": (OCTETS, "safetensors"),
    "release": (JSON, "json"),
    "card": (MARKDOWN, "md"),
}
Wanted = Annotated[str | None, Query(description="A revision of its history.", max_length=100)]
Part = Annotated[str | None, Header(alias="range", description="bytes=FIRST-LAST, one range.")]
IfRange = Annotated[str | None, Header()]


def described(media: str) -> dict[int | str, dict[str, Any]]:
    """Return how the answers with a file are described."""
    content = {media: {"schema": {"type": "string", "format": "binary"}}}
    return {
        200: {"description": "The file; its ETag is its SHA-256.", "content": content},
        206: {"description": "The bytes that Range asked for.", "content": content},
        304: {"description": "The file is the one that is known."},
        **problems(403, 404, 410, 416),
    }


@dataclass(frozen=True)
class ContentRequest:
    """What a request for a content says."""

    request: Request
    identifier: str
    reader: Reader
    revision: Wanted = None
    if_none_match: NoneMatch = None
    part: Part = None
    if_range: IfRange = None


Content = Annotated[ContentRequest, Depends()]


@router.get("/specification", responses=described(OCTETS))
def specification(asked: Content) -> Response:
    """Fetch a specification, the newest or one of the history."""
    return _answer("specification", asked)


@router.get("/model", responses=described(OCTETS))
def model(asked: Content) -> Response:
    """Fetch a model, the newest or one of the history; the dock never ran it."""
    return _answer("model", asked)


@router.get("/release", responses=described(JSON))
def release(asked: Content) -> Response:
    """Fetch the release that a guarantee was worked out from: for `tacit gate` to do it again."""
    return _answer("release", asked)


@router.get("/card", responses=described("text/markdown"))
def card(asked: Content) -> Response:
    """Fetch a card as it was submitted, the newest or one of the history."""
    return _answer("card", asked)


def _answer(name: str, asked: ContentRequest) -> Response:
    held = _found(name, asked)
    media, suffix = KINDS[name]
    digest = _digest(held) if name == "card" else held
    tag = f'"{digest}"'
    plain = base64.b64encode(bytes.fromhex(digest.removeprefix("sha256:"))).decode()
    headers = {
        "ETag": tag,
        "Repr-Digest": f"sha-256=:{plain}:",
        "Vary": "Authorization",
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{asked.identifier}.{name}.{suffix}"',
    }
    if none_matches(asked.if_none_match, tag):
        return Response(status_code=304, headers=headers)
    stream = io.BytesIO(held.encode()) if name == "card" else _opened(held, asked)
    size = stream.seek(0, 2)
    part = part_of(asked.part, asked.if_range, tag, size)
    if part is not None and not part:
        stream.close()
        nothing = {"Content-Range": f"bytes */{size}"}
        raise RefusedError(416, f"Range: expected a part of {size} bytes", headers=nothing)
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    rows = range(size) if part is None else part
    headers["Content-Length"] = str(len(rows))
    status = 200 if part is None else 206
    if is_head(asked.request.scope):
        stream.close()
        return Response(None, status, media_type=media, headers=headers)
    return StreamingResponse(_chunks(stream, rows), status, media_type=media, headers=headers)


def _found(name: str, asked: ContentRequest) -> str:
    """Return the digest of a content, of a card its text, that a reader may fetch.

    Raises:
        RefusedError: it is in quarantine (403), or there is none (404, 410, 422).
    """
    dock, reader, revision = dock_of(asked.request), asked.reader, asked.revision
    found = present(dock, asked.identifier, reader)
    if revision is None and found.status == QUARANTINED and reader != found.developer:
        raise RefusedError(403, "this learnware is in quarantine: only its developer may fetch it")
    if revision is not None and not REVISION.fullmatch(revision):
        raise RefusedError(422, "revision: expected sha256: and 64 hexadecimal digits")
    wanted = found.revision if revision is None else revision
    # what may be fetched is decided by the status of that content, not of what holds it
    served = any(one.revision == wanted for one in found.history)
    held = dock.store.content(asked.identifier, name, wanted) if served else None
    if held is None:
        raise RefusedError(404, f"this learnware has no such {name}")
    return held


def _opened(digest: str, asked: ContentRequest) -> BinaryIO:
    dock = dock_of(asked.request)
    try:
        return open(dock.store.blobs.path(digest), "rb")
    except FileNotFoundError:
        # withdrawn since it was looked up
        present(dock, asked.identifier, asked.reader)
        raise UnavailableError(f"folder: no content {digest}") from None


def _chunks(stream: BinaryIO, rows: range) -> Iterator[bytes]:
    with stream:
        stream.seek(rows.start)
        left = len(rows)
        while left and (chunk := stream.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
