"""Pages that read: browse, search, one learnware."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from tacit_dock.api.access import READERS, Reader
from tacit_dock.api.bodies import received_form
from tacit_dock.api.learnwares import FilterTexts, Narrowed, filters_of, known
from tacit_dock.api.routes import FILTERS
from tacit_dock.api.searching import found
from tacit_dock.api.state import Dock, dock_of
from tacit_dock.errors import RefusedError
from tacit_dock.examples import examples, find_example
from tacit_dock.pages.rendering import page
from tacit_dock.records import WITHDRAWN, Filters

router = APIRouter(include_in_schema=False)

FILES = str(resources.files("tacit_dock.pages") / "static")
SHOWN, FOUND = 24, 10
# Letters of a card's head that its page shows; the record as JSON has all.
LONGEST_HEAD = 10_000


@router.get("/", dependencies=READERS)
def browse(
    request: Request,
    filters: Narrowed,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Show the learnwares, the newest first, narrowed by what was chosen."""
    dock = dock_of(request)
    held = dock.store.learnwares(filters, cursor=cursor, limit=SHOWN)
    return page(
        "browse",
        items=held.items,
        next=held.next,
        cursor=cursor,
        total=dock.store.count(),
        examples=examples(dock.store)[:3],
        **_narrowing(dock, filters),
    )


@router.get("/search", dependencies=READERS)
async def ask(
    request: Request,
    filters: Narrowed,
    example: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Show the form of a search, or what is found for an example task."""
    dock = dock_of(request)
    if not example:
        return await run_in_threadpool(_search_page, dock, filters)
    held = await run_in_threadpool(find_example, dock.store, example)
    if held is None:
        raise RefusedError(404, "there is no such example task")
    return await dock.compared(lambda: _answer(dock, held.content, filters, held.title, example))


@router.post("/search", dependencies=READERS)
async def search(request: Request) -> Response:
    """Show what is found for a task's specification."""
    dock = dock_of(request)
    async with received_form(request, dock.store.blobs, dock.settings) as form:
        filters = await filters_of(FilterTexts(**form.texts))
        upload = form.uploads.get("specification")
        if upload is None or not upload.size:
            wanted = "Choose the file of a task's specification first."
            return _search_page(dock, filters, status=422, refusal=wanted)
        content = upload.content()
    return await dock.compared(lambda: _answer(dock, content, filters, "your task", None))


@router.get("/learnwares/{identifier}")
def show(request: Request, identifier: str, reader: Reader) -> Response:
    """Show one learnware; of one that is withdrawn, what became of it."""
    dock = dock_of(request)
    held = known(dock, identifier, reader)
    gone = held.status == WITHDRAWN
    return page(
        "learnware",
        410 if gone else 200,
        private=dock.settings.private,
        held=held,
        gone=gone,
        address=str(request.base_url).rstrip("/"),
        head=_shown(held.head),
    )


def _shown(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a card's head has beside what the page tells already, as far as it is light."""
    found, letters = {}, 0
    for name, value in head.items():
        letters += len(name) + len(str(value))
        if name not in ("title", "modality", "tags") and letters <= LONGEST_HEAD:
            found[name] = value
    return found


def _answer(
    dock: Dock, content: bytes, filters: Filters, task: str, example: str | None
) -> Response:
    try:
        answer = found(dock, content, FOUND, filters).to_dict()
    except RefusedError as error:
        if error.status not in (409, 415, 422):
            raise
        return _search_page(dock, filters, status=error.status, refusal=error.detail)
    return _search_page(dock, filters, answer=answer, task=task, example=example)


def _search_page(
    dock: Dock,
    filters: Filters,
    *,
    status: int = 200,
    answer: dict[str, Any] | None = None,
    task: str = "",
    example: str | None = None,
    refusal: str = "",
) -> Response:
    return page(
        "search",
        status,
        answer=answer,
        task=task,
        example=example,
        refusal=refusal,
        examples=examples(dock.store),
        **_narrowing(dock, filters),
    )


def _narrowing(dock: Dock, filters: Filters) -> dict[str, Any]:
    """Return what every page with filters needs."""
    chosen = {
        name: getattr(filters, name) for name in FILTERS if getattr(filters, name) is not None
    }
    return {"facets": dock.store.facets(), "chosen": chosen, "private": dock.settings.private}
