"""What surrounds every request: a name, headers, a place among those answered, one line of log."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
import traceback
from typing import Any

from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.dock.api.problems import problem
from tacit.dock.tokens import now

LOGGER = logging.getLogger("tacit.dock")
BUSY_SECONDS = 1
GONE = 499
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The outermost layer of an application.

    Args:
        app: what is surrounded.
        concurrency: requests answered at a time.
    """

    def __init__(self, app: ASGIApp, concurrency: int) -> None:
        self._app, self._most, self._now = app, concurrency, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, send)
        self._now += 1
        try:
            if self._now > self._most:
                headers = {"Retry-After": str(BUSY_SECONDS)}
                await exchange.answer(problem(503, "too many at a time", headers=headers), receive)
            else:
                await self._app(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = GONE
        except Exception as error:
            exchange.error = where_of(error)
            if not exchange.started:
                detail = f"the dock failed; its log says more under {exchange.name}"
                await exchange.answer(problem(500, detail, instance=scope["path"]), receive)
        finally:
            self._now -= 1
            exchange.log()


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.name, self._began = secrets.token_hex(8), time.perf_counter()
        self.started, self.status, self.error = False, 0, ""

    async def answer(self, response: Response, receive: Receive) -> None:
        await response(self._scope, receive, self.send)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            given = {key.lower() for key, _ in message["headers"]}
            more = [
                (key.encode(), value.encode())
                for key, value in {**HEADERS, "x-request-id": self.name}.items()
                if key.encode() not in given
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        await self._send(message)

    def log(self) -> None:
        """Write one line: no header, no query, no body, where a secret could be."""
        client = self._scope.get("client")
        told = {
            "request": self.name,
            "method": self._scope["method"],
            "path": self._scope["path"][:200],
            "status": self.status,
            "seconds": round(time.perf_counter() - self._began, 4),
            "address": client[0] if client else "",
        }
        write("request", **told, **({"error": self.error} if self.error else {}))


def where_of(error: BaseException) -> str:
    """Return the kind of an error and where it was raised, without what it says: that is data."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__} at {places}"


def write(event: str, **told: Any) -> None:
    """Write one line of JSON to the log."""
    LOGGER.info(json.dumps({"time": now(), "event": event, **told}))


def log_to_stderr() -> None:
    """Have the lines written to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.handlers = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
