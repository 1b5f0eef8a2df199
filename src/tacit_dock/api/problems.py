"""Answers: JSON, and RFC 9457 problems for everything that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from tacit_dock.api.routes import methods_of
from tacit_dock.errors import RefusedError, UnavailableError
from tacit_dock.texts import json_text

PROBLEM = "application/problem+json"
RETRY_SECONDS = 5
# In the scope of a request: what its operator reads in the log, and nobody else.
TROUBLE = "tacit.trouble"


class Json(JSONResponse):
    """Strict JSON in ASCII: no text that a client sent can fail to be encoded."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the body."""
        return json_text(content).encode()


class ProblemResponse(Json):
    """A refusal, as RFC 9457 has it."""

    media_type = PROBLEM


def problem(
    status: int,
    detail: str,
    *,
    instance: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return the answer that says why a request is refused.

    Args:
        status: of HTTP.
        detail: a sentence.
        instance: the request's path.
        headers: beside those of every answer.
        more: further members.
    """
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        **more,
    }
    return ProblemResponse(content, status, headers=dict(headers or {}))


def refused(request: Request, error: RefusedError) -> Response:
    """Return the answer to a request that a dock refuses."""
    headers = dict(error.headers)
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        sign = ', error="invalid_token"' if "authorization" in request.headers else ""
        headers["WWW-Authenticate"] = f'Bearer realm="tacit dock"{sign}'
    return problem(
        error.status, error.detail, instance=request.url.path, headers=headers, **error.more
    )


def install(app: FastAPI) -> None:
    """Have every refusal answered as a problem, those of the framework too."""
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(UnavailableError, _unavailable)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return refused(request, error)


async def _unavailable(request: Request, error: Exception) -> Response:
    request.scope[TROUBLE] = str(error)
    detail = "the dock's database or disk did not answer; only what was answered was changed"
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return problem(503, detail, instance=request.url.path, headers=headers)


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = "there is nothing at this path"
    elif error.status_code == 405:
        # the framework names the methods of one of the routes at a path
        headers = {"Allow": ", ".join(methods_of(request.scope["path"]))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
        detail = f"{request.method} is not done here"
    return problem(error.status_code, detail, instance=request.url.path, headers=headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [
        {"where": [str(part) for part in one["loc"]], "what": str(one["msg"])}
        for one in error.errors()
    ]
    first = found[0] if found else {"where": ["request"], "what": "it is malformed"}
    detail = f"{first['where'][-1]}: {first['what']}"
    return problem(422, detail, instance=request.url.path, errors=found)
