"""The pages' place in the application: their routes, their files, and refusals as pages."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from tacit_dock.api.state import dock_of
from tacit_dock.errors import RefusedError, UnavailableError
from tacit_dock.pages.reading import FILES, router
from tacit_dock.pages.rendering import page
from tacit_dock.pages.writing import router as writing

INTERFACE = ("/v1", "/openapi.json")
KINDS = (RefusedError, UnavailableError, HTTPException, RequestValidationError)
# What to do about a refusal, where its own sentence does not say.
ADVICE = {
    401: "A token is made by the operator of this dock: tacit dock token create NAME.",
    403: "Only the developer who submitted a learnware may change or withdraw it.",
    404: "The address may be mistyped. A withdrawn learnware keeps its page; this address never "
    "had one.",
    410: "Its content is gone; the page of the record says when and why.",
    413: "The limits are the operator's. A specification is small; a model may be kept elsewhere.",
    503: "The dock is busy or its database does not answer. Nothing was changed.",
}
Handler = Callable[[Request, Exception], Awaitable[Response]]


def mount(app: FastAPI) -> tuple[APIRouter, ...]:
    """Add the pages to an application; what is refused below ``/v1`` stays a problem.

    Returns:
        Their routes.
    """
    app.include_router(router)
    app.include_router(writing)
    app.mount("/static", StaticFiles(directory=FILES), name="static")
    for kind in KINDS:
        app.add_exception_handler(kind, _as_page(cast(Handler, app.exception_handlers[kind])))
    return router, writing


def _as_page(handler: Handler) -> Handler:
    async def answered(request: Request, error: Exception) -> Response:
        answer = await handler(request, error)
        path = request.url.path
        wants_page = "text/html" in request.headers.get("accept", "")
        if path.startswith(INTERFACE) or not wants_page or not answer.body:
            return answer
        told: dict[str, Any] = json.loads(bytes(answer.body))
        status = answer.status_code
        shown = page(
            "error",
            status,
            private=dock_of(request).settings.private,
            title=told["title"],
            code=status,
            detail=told["detail"],
            wait=answer.headers.get("retry-after"),
            advice=ADVICE.get(status),
        )
        for name in ("retry-after", "www-authenticate", "allow"):
            if name in answer.headers:
                shown.headers[name] = answer.headers[name]
        return shown

    return answered
