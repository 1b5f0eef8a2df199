"""Submit, list, show, fetch, revise and withdraw learnwares."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tacit_dock.api.access import READERS, Developer, Reader
from tacit_dock.api.bodies import received_form
from tacit_dock.api.conditions import matches, none_matches
from tacit_dock.api.problems import Json
from tacit_dock.api.shapes import ListShape, RecordShape, SubmissionShape, problems
from tacit_dock.api.state import Dock, dock_of
from tacit_dock.errors import RefusedError
from tacit_dock.records import WITHDRAWN, Filters, Learnware
from tacit_dock.submissions import DIGESTS, Submission, body_digest, examine
from tacit_dock.texts import check_text

router = APIRouter(prefix="/v1/learnwares", tags=["learnwares"])

IDENTIFIER = re.compile(r"[0-9a-f]{32}")
KEY = re.compile(r"[\x21-\x7e]{1,200}")
LONGEST_REASON, LONGEST_FILTER, LONGEST_NUMBER = 500, 100, 40
FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["specification", "card"],
                    "additionalProperties": False,
                    "properties": {
                        "specification": {
                            "type": "string",
                            "format": "binary",
                            "description": "Of a model, as Specification.save writes it.",
                        },
                        "card": {
                            "type": "string",
                            "format": "binary",
                            "description": "Markdown below a YAML head with a title.",
                            "example": "---\ntitle: Digits 0 to 4\ntags: [mnist]\n---\nA net.\n",
                        },
                        "model": {
                            "type": "string",
                            "format": "binary",
                            "description": "A safetensors file; it is never run.",
                        },
                        "release": {
                            "type": "string",
                            "format": "binary",
                            "description": "JSON of the release that the specification is.",
                        },
                        **{
                            name: {
                                "type": "string",
                                "description": "sha256: and 64 hexadecimal digits.",
                            }
                            for name in DIGESTS
                        },
                    },
                }
            }
        },
    }
}
Filter = Annotated[str | None, Query(max_length=LONGEST_FILTER)]
NoneMatch = Annotated[str | None, Header()]
Match = Annotated[
    str | None, Header(description="The ETag that you have seen last, of the record or its answer.")
]


@dataclass(frozen=True, kw_only=True)
class FilterTexts:
    """The fields of ``Filters`` as a request or a form has them, in text."""

    tag: Filter = None
    modality: Filter = None
    developer: Filter = None
    guarantee: Filter = None
    license: Filter = None
    language: Filter = None
    task: Filter = None
    words: Filter = None
    max_epsilon: Annotated[str | None, Query(max_length=LONGEST_NUMBER)] = None


async def _asked(**given: Any) -> FilterTexts:
    """Return what a request asks for; a class is called in a thread, which costs more than it."""
    return FilterTexts(**given)


_asked.__signature__ = signature(FilterTexts)  # type: ignore[attr-defined]


async def filters_of(texts: Annotated[FilterTexts, Depends(_asked)]) -> Filters:
    """Return what a request is narrowed to.

    Raises:
        RefusedError: a filter holds what no text of a record holds, or no number (422).
    """
    # a field of a form that is left empty asks for nothing
    given = {name: text for name, text in vars(texts).items() if text}
    epsilon = _number("max_epsilon", given.pop("max_epsilon", None))
    checked = {name: check_text(name, text) for name, text in given.items()}
    return Filters(**checked, max_epsilon=epsilon)


Narrowed = Annotated[Filters, Depends(filters_of)]


def _number(name: str, text: str | None) -> float | None:
    try:
        found = float(text) if text else None
    except ValueError:
        found = math.nan
    if found is not None and not found >= 0.0:
        raise RefusedError(422, f"{name}: expected a number of at least 0")
    return found


@router.post(
    "",
    status_code=201,
    response_model=SubmissionShape,
    responses=problems(400, 408, 409, 410, 413, 415, 507),
    openapi_extra=FORM,
)
async def submit(
    request: Request,
    developer: Developer,
    idempotency_key: Annotated[str | None, Header(description="Any text of your own.")] = None,
) -> Response:
    """Submit a learnware; the same answer again for the same Idempotency-Key and body."""
    dock = dock_of(request)
    key = idempotency_key or ""
    if not KEY.fullmatch(key):
        raise RefusedError(400, "Idempotency-Key: expected 1 to 200 printable ASCII characters")
    dock.store.blobs.check_room(dock.settings.min_free)
    async with received_form(request, dock.store.blobs, dock.settings) as form:

        def work() -> dict[str, Any]:
            replayed = dock.store.replay(developer, key, body_digest(form.uploads))
            if replayed is not None:
                return replayed
            made = examine(form.uploads, form.digests, dock.settings)
            return dock.store.submit(made, developer, key, dock.settings)

        answer = await run_in_threadpool(work)
    return Json(answer, 201, headers=_places(answer))


@router.put(
    "/{identifier}",
    response_model=SubmissionShape,
    responses=problems(403, 404, 408, 409, 410, 412, 413, 415, 428, 507),
    openapi_extra=FORM,
)
async def revise(
    request: Request,
    identifier: str,
    developer: Developer,
    if_match: Match = None,
) -> Response:
    """Give your own learnware a new content; its history keeps the old ones."""
    dock = dock_of(request)
    found = await run_in_threadpool(known, dock, identifier, developer)
    if found.developer != developer:
        raise RefusedError(403, "this learnware is another developer's")
    if if_match is None:
        raise RefusedError(428, "If-Match: expected the revision that you have seen last")
    _check_match(if_match, found)
    dock.store.blobs.check_room(dock.settings.min_free)
    async with received_form(request, dock.store.blobs, dock.settings) as form:

        def work() -> dict[str, Any]:
            made: Submission = examine(form.uploads, form.digests, dock.settings)
            return dock.store.revise(identifier, found.revision, made, developer, dock.settings)

        answer = await run_in_threadpool(work)
    return Json(answer, 200, headers=_places(answer))


@router.get("", response_model=ListShape, responses=problems(), dependencies=READERS)
def listing(
    request: Request,
    filters: Narrowed,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> Response:
    """List learnwares, the newest first; `next` is the cursor of the page after."""
    page = dock_of(request).store.learnwares(filters, cursor=cursor, limit=limit)
    items = [held.summary() for held in page.items]
    return Json({"items": items, "next": page.next})


@router.get(
    "/{identifier}",
    response_model=RecordShape,
    responses={
        **problems(404, 410),
        304: {"description": "The newest revision is the one that is known."},
    },
)
def show(
    request: Request, identifier: str, reader: Reader, if_none_match: NoneMatch = None
) -> Response:
    """Show a learnware with its card, guarantees and history."""
    found = present(dock_of(request), identifier, reader)
    tag = _tag(found.revision or found.updated, found.status)
    headers = {"ETag": tag, "Vary": "Authorization"}
    if none_matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Json(found.to_dict(), headers=headers)


@router.delete("/{identifier}", status_code=204, responses=problems(403, 404, 412))
def withdraw(
    request: Request,
    identifier: str,
    developer: Developer,
    reason: Annotated[str, Query(max_length=LONGEST_REASON)] = "",
    if_match: Match = None,
) -> Response:
    """Withdraw your own learnware: its content is removed, time and reason stay."""
    dock = dock_of(request)
    found = known(dock, identifier, developer)
    if if_match is not None and found.developer == developer:
        _check_match(if_match, found)
    dock.store.withdraw(identifier, developer, check_text("reason", reason))
    dock.store.reserve.fill(dock.settings.reserve)
    return Response(status_code=204)


def known(dock: Dock, identifier: str, reader: str | None) -> Learnware:
    """Return what a reader may see of a learnware, withdrawn or not.

    Raises:
        RefusedError: there is none (404).
    """
    found = dock.store.learnware(identifier) if IDENTIFIER.fullmatch(identifier) else None
    if found is None:
        raise RefusedError(404, "there is no such learnware")
    return found.as_seen_by(reader)


def present(dock: Dock, identifier: str, reader: str | None) -> Learnware:
    """Return what a reader may see of a learnware that is not withdrawn.

    Raises:
        RefusedError: there is none (404), or its tombstone (410).
    """
    found = known(dock, identifier, reader)
    if found.status == WITHDRAWN:
        trail = {"time": found.withdrawn, "reason": found.reason}
        raise RefusedError(
            410,
            "this learnware was withdrawn",
            withdrawal=trail,
            history=[held.to_dict() for held in found.history],
        )
    return found


def _places(answer: dict[str, Any]) -> dict[str, str]:
    tag = _tag(answer["revision"], answer["status"])
    return {"Location": f"/v1/learnwares/{answer['id']}", "ETag": tag}


def _tag(revision: str, status: str) -> str:
    """Return the tag of a record: its content, and what an operator admits."""
    return f'"{revision}.{status}"'


def _check_match(header: str, found: Learnware) -> None:
    """Refuse what was meant for another state of a learnware than the one that is there."""
    if not matches(header, (_tag(found.revision, found.status), f'"{found.revision}"')):
        raise RefusedError(412, f"this learnware is at revision {found.revision} by now")
