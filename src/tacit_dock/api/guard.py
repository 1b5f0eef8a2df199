"""What surrounds every request: a name, headers, a place among those answered, one line of log."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import sys
import time
import traceback
from typing import Any

from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit_dock.api.access import COST
from tacit_dock.api.arriving import Arriving, address_of
from tacit_dock.api.metrics import OTHER, Metrics
from tacit_dock.api.problems import TROUBLE, problem
from tacit_dock.api.routes import BY_PLACE, HEAD, NOTHING, RULE, is_head, place_of, rule_of
from tacit_dock.errors import RefusedError
from tacit_dock.settings import DockSettings
from tacit_dock.tokens import now

LOGGER = logging.getLogger("tacit_dock")
SERVER = logging.getLogger("uvicorn.error")
BUSY_SECONDS = 1
# How long a request whose body has arrived waits for a place, and a reader may pause.
PLACE_SECONDS, GRACE_SECONDS = 10.0, 15.0
GONE = 499
WATCHED = ("/v1/health", "/v1/ready")
# Of requests, for the log: told apart, not secret; the system's would be asked for each.
NAMES = random.Random(secrets.randbits(128))
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


class WatchedApplication:
    """What is counted of an application, by its guard.

    Args:
        settings: how much may be under way.
    """

    def __init__(self, settings: DockSettings) -> None:
        self.places = asyncio.Semaphore(settings.concurrency)
        self.arriving, self.metrics = Arriving(settings), Metrics()
        self._most = settings.concurrency

    def now(self) -> dict[str, float]:
        """Return what is under way."""
        return {
            "places": self._most,
            "places_taken": self._most - self.places._value,
            "arriving": self.arriving.bodies,
            "arriving_bytes": self.arriving.size,
        }


class Guard:
    """The outermost layer of an application.

    A request has one of the places while it is worked on: from when its body is there until its
    answer begins. One that still sends, or still reads, keeps nobody else waiting.

    Args:
        app: what is surrounded.
        settings: how much may be under way, and for whom.
        watched: counts for whoever runs the dock.
    """

    def __init__(self, app: ASGIApp, settings: DockSettings, watched: WatchedApplication) -> None:
        self._app, self._settings, self._watched = app, settings, watched
        self._places, self._arriving = watched.places, watched.arriving
        self._hosts = {name.lower() for name in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = normal(scope)
        exchange = _Exchange(
            scope, send, _Place(self._places), self._settings.least_speed, self._watched.metrics
        )
        try:
            await self._done(scope, receive, exchange)
        except ClientDisconnect:
            exchange.status = GONE
        finally:
            exchange.place.leave()
            exchange.log()

    async def _done(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        """Have a request answered, whatever becomes of it.

        Raises:
            ClientDisconnect: there is nobody to answer to.
        """
        try:
            self._check(scope)
            if not has_body(scope):
                await exchange.place.take(0.0)
                await self._app(scope, receive, exchange.send)
            else:
                with self._arriving.body(scope):
                    await self._app(scope, exchange.received(receive), exchange.send)
        except RefusedError as error:
            if not exchange.started:
                wait = error.retry_after
                headers = {} if wait is None else {"Retry-After": str(wait)}
                answer = problem(
                    error.status, error.detail, instance=scope["path"],
                    headers={**headers, "Connection": "close"},
                )  # fmt: skip
                await exchange.answer(answer, receive)
        except ClientDisconnect:
            raise
        except Exception as error:
            exchange.error = where_of(error)
            if not exchange.started:
                detail = f"the dock failed; its log says more under {exchange.name}"
                await exchange.answer(problem(500, detail, instance=scope["path"]), receive)

    def _check(self, scope: Scope) -> None:
        """Refuse a request for another host, and one whose length is told twice."""
        names = [name for name, _ in scope["headers"]]
        if b"transfer-encoding" in names and b"content-length" in names:
            raise RefusedError(400, "expected Content-Length or Transfer-Encoding, got both")
        rule = rule_of(scope)
        if rule is not None and not rule.parts and has_body(scope):
            raise RefusedError(413, f"expected no body beside {scope['method']}")
        # whoever watches a dock asks the machine, and is told nothing of a record
        watched = scope["path"] in WATCHED
        if self._hosts and not watched and host_of(scope) not in self._hosts:
            raise RefusedError(421, "this dock does not answer for this host")


def normal(scope: Scope) -> Scope:
    """Return a request as the routes know it: HEAD is GET, and a path has no slash at its end.

    The rule of its route is in it, and what that may cost.
    """
    head = scope["method"] == "HEAD"
    path, method = scope["path"].rstrip("/") or "/", "GET" if head else scope["method"]
    rule = BY_PLACE.get((method, place_of(path) or ""))
    cost = 1 if rule is None else rule.cost
    return {**scope, "path": path, "method": method, HEAD: head, RULE: rule, COST: cost}


def has_body(scope: Scope) -> bool:
    """Whether a body follows the head of a request."""
    told = dict(scope["headers"])
    return b"transfer-encoding" in told or told.get(b"content-length", b"0").strip(b" 0") != b""


def host_of(scope: Scope) -> str:
    """Return the host that a request is for, without its port."""
    told: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
    name, colon, port = told.rpartition(":")
    return name if colon and port.isdigit() else told


class _Place:
    """One of the places for requests that are worked on."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._held = places, False

    async def take(self, seconds: float) -> None:
        """Take a place, or wait for one.

        Raises:
            RefusedError: none became free (503).
        """
        if self._held:
            return
        try:
            if self._places.locked() and not seconds:
                raise TimeoutError
            async with asyncio.timeout(seconds or None):
                await self._places.acquire()
        except TimeoutError:
            raise RefusedError(503, "too many at a time", retry_after=BUSY_SECONDS) from None
        self._held = True

    def leave(self) -> None:
        """Give it back."""
        if self._held:
            self._held = False
            self._places.release()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, scope: Scope, send: Send, place: _Place, least_speed: int, metrics: Metrics
    ) -> None:
        self._scope, self._send, self.place, self._least = scope, send, place, least_speed
        self._metrics = metrics
        self.name, self._began = f"{NAMES.getrandbits(64):016x}", time.perf_counter()
        self.started, self.status, self.error = False, 0, ""

    async def answer(self, response: Response, receive: Receive) -> None:
        await response(self._scope, receive, self.send)

    def received(self, receive: Receive) -> Receive:
        """Return what gives the body; with its last byte a place is taken."""

        async def next_part() -> Message:
            message = await receive()
            self._metrics.received += len(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body", False):
                await self.place.take(PLACE_SECONDS)
            return message

        return next_part

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.place.leave()
            self.started, self.status = True, message["status"]
            given = {key.lower() for key, _ in message["headers"]}
            rule = rule_of(self._scope)
            cache = NOTHING if rule is None or self.status >= 400 else rule.cache
            headers = {**HEADERS, "x-request-id": self.name, "cache-control": cache}
            more = [
                (key.encode(), value.encode())
                for key, value in headers.items()
                if key.encode() not in given
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        elif is_head(self._scope):
            message = {**message, "body": b""}
        self._metrics.sent += len(message.get("body", b""))
        # whoever does not read is not waited for
        try:
            async with asyncio.timeout(GRACE_SECONDS + len(message.get("body", b"")) / self._least):
                await self._send(message)
        except (TimeoutError, OSError):
            # nobody reads, or the line is closed; a fault of ours stays one
            raise ClientDisconnect from None

    def log(self) -> None:
        """Write one line: no header, no query, no body, where a secret could be."""
        seconds, path = time.perf_counter() - self._began, self._scope["path"]
        method = "HEAD" if is_head(self._scope) else self._scope["method"]
        rule = rule_of(self._scope)
        known = place_of(path) if rule is None else rule.path
        self._metrics.answered(method, known or OTHER, self.status, seconds)
        told = {
            "request": self.name,
            "method": method,
            "path": path[:200],
            "status": self.status,
            "seconds": round(seconds, 4),
            "address": address_of(self._scope),
        }
        error = self.error or self._scope.get(TROUBLE)
        write("request", **told, **({"error": error} if error else {}))


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
    handler.setFormatter(_Line())
    for logger, level in ((LOGGER, logging.INFO), (SERVER, logging.WARNING)):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class _Line(logging.Formatter):
    """Lines of ours as they are; what the server below says as a line of JSON too."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == LOGGER.name:
            return record.getMessage()
        told = {"time": now(), "event": "server", "says": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = where_of(record.exc_info[1])
        return json.dumps(told)
