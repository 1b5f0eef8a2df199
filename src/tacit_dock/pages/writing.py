"""Pages that write: submit and withdraw, by a token that is typed in and never kept."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from tacit_dock.api.access import COST, READERS
from tacit_dock.api.bodies import MultipartForm, received_form
from tacit_dock.api.learnwares import KEY, LONGEST_REASON, present
from tacit_dock.api.state import Dock, dock_of
from tacit_dock.errors import RefusedError
from tacit_dock.pages.rendering import page
from tacit_dock.submissions import REQUIRED, body_digest, examine
from tacit_dock.texts import check_text

router = APIRouter(include_in_schema=False, dependencies=READERS)

AGAIN = (401, 403, 409, 410, 413, 415, 422, 507)


@router.get("/submit")
def form(request: Request) -> Response:
    """Show the form of a submission."""
    return _submit_page(dock_of(request))


@router.post("/submit")
async def submit(request: Request) -> Response:
    """Keep a learnware and go to its page; twice the same form is one learnware."""
    dock = dock_of(request)
    try:
        dock.store.blobs.check_room(dock.settings.min_free)
        arriving = received_form(
            request, dock.store.blobs, dock.settings,
            admit=lambda before: _developer(dock, before),
        )  # fmt: skip
        async with arriving as given:
            answer = await run_in_threadpool(_submitted, dock, given, request.scope[COST])
    except RefusedError as error:
        if error.status not in AGAIN:
            raise
        return _submit_page(dock, error)
    return RedirectResponse(f"/learnwares/{answer['id']}", 303)


@router.get("/learnwares/{identifier}/withdraw")
def confirm(request: Request, identifier: str) -> Response:
    """Ask for the token and the reason."""
    return _withdraw_page(dock_of(request), identifier)


@router.post("/learnwares/{identifier}/withdraw")
async def withdraw(request: Request, identifier: str) -> Response:
    """Withdraw a learnware and go to what stays of it."""
    dock = dock_of(request)
    try:
        async with received_form(request, dock.store.blobs, dock.settings) as given:
            await run_in_threadpool(_withdrawn, dock, identifier, given, request.scope[COST])
    except RefusedError as error:
        if error.status not in AGAIN:
            raise
        return await run_in_threadpool(_withdraw_page, dock, identifier, error)
    return RedirectResponse(f"/learnwares/{identifier}", 303)


def _submitted(dock: Dock, given: MultipartForm, cost: int) -> dict[str, Any]:
    developer = _developer(dock, given.texts)
    # a browser sends a file that nobody chose as an empty one
    uploads = {k: v for k, v in given.uploads.items() if v.size or k in REQUIRED}
    dock.rates.take(f"developer {developer}", cost)
    for name in REQUIRED:
        if name not in uploads or not uploads[name].size:
            raise RefusedError(422, f"{name}: expected a file, none was chosen")
    key = given.texts.get("key", "")
    if not KEY.fullmatch(key):
        raise RefusedError(422, "the form is incomplete: load this page again")
    replayed = dock.store.replay(developer, key, body_digest(uploads))
    if replayed is not None:
        return replayed
    made = examine(uploads, given.digests, dock.settings)
    return dock.store.submit(made, developer, key, dock.settings)


def _withdrawn(dock: Dock, identifier: str, given: MultipartForm, cost: int) -> None:
    developer = _developer(dock, given.texts)
    dock.rates.take(f"developer {developer}", cost)
    reason = check_text("reason", given.texts.get("reason", "").strip(), longest=LONGEST_REASON)
    present(dock, identifier, developer)
    dock.store.withdraw(identifier, developer, reason)
    dock.store.reserve.fill(dock.settings.reserve)


def _developer(dock: Dock, texts: Mapping[str, str]) -> str:
    token = dock.store.find_token(texts.get("token", "").strip())
    if token is None or not token.holds:
        raise RefusedError(401, "token: expected one that this dock made and that still holds")
    return token.developer


def _submit_page(dock: Dock, error: RefusedError | None = None) -> Response:
    return page(
        "submit",
        200 if error is None else error.status,
        private=dock.settings.private,
        refusal="" if error is None else error.detail,
        there=None if error is None else error.more.get("learnware"),
        settings=dock.settings,
        key=secrets.token_hex(16),
    )


def _withdraw_page(dock: Dock, identifier: str, error: RefusedError | None = None) -> Response:
    return page(
        "withdraw",
        200 if error is None else error.status,
        private=dock.settings.private,
        held=present(dock, identifier, None),
        refusal="" if error is None else error.detail,
        longest=LONGEST_REASON,
    )
