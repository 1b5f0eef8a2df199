"""Bodies as they arrive: counted, hashed, and refused before they are too large."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from tacit_dock.api.arriving import NAME
from tacit_dock.api.routes import rule_of
from tacit_dock.blobs import Blobs, Upload
from tacit_dock.errors import RefusedError
from tacit_dock.settings import DockSettings
from tacit_dock.submissions import DIGESTS, FILES
from tacit_dock.texts import check_file_name

LONGEST_HEADERS = 8 << 10
LONGEST_BOUNDARY = 70
# Of a body that is refused this much is still read, so that its sender hears why.
DRAINED_BYTES, DRAINED_SECONDS = 16 << 20, 5.0
# A body may pause for so long before its speed counts.
GRACE_SECONDS = 15.0
PLAIN = ("", "identity", "7bit", "8bit", "binary")
DIGEST = re.compile(r"(?:^|,)\s*sha-256\s*=\s*:([A-Za-z0-9+/=]+):")


@dataclass
class MultipartForm:
    """The parts of a multipart body.

    Attributes:
        uploads: files by name.
        digests: what the sender says that they are, by name of the file.
        texts: fields of a page's form, by name.
    """

    uploads: dict[str, Upload] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def received_form(
    request: Request,
    blobs: Blobs,
    settings: DockSettings,
    *,
    admit: Callable[[Mapping[str, str]], object] | None = None,
) -> AsyncIterator[MultipartForm]:
    """Give the parts of a multipart body; files that are not kept are gone afterwards.

    Args:
        request: whose body is read.
        blobs: where the files arrive.
        settings: how large they may be; which are taken is in the rule of the route.
        admit: called in a thread with the texts that stand before the first file, before that is
            kept; refuses those who may not send one. None where they were seen to before.

    Raises:
        RefusedError: it is no multipart body (415), compressed (415), too large (413), too slow
            (408), malformed or has a part twice or one that nobody asked for (422).
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= LONGEST_BOUNDARY:
        raise RefusedError(415, "expected multipart/form-data with a boundary")
    rule = rule_of(request.scope)
    assert rule is not None
    limits = rule.limits(settings)
    parts = _Parts(blobs, limits)
    try:
        parser = MultipartParser(boundary, parts.callbacks())
        largest = sum(limits.values()) + len(limits) * (LONGEST_HEADERS + 2 * LONGEST_BOUNDARY)
        async for chunk in _chunks(request, largest, settings):
            try:
                parser.write(chunk)
            except FormParserError:
                raise RefusedError(422, "the multipart body is malformed") from None
            if admit is not None and parts.has_file:
                await run_in_threadpool(admit, parts.before)
                admit = None
        if not parts.ended:
            raise RefusedError(422, "the multipart body is truncated")
        yield parts.form()
    finally:
        parts.discard()


async def received_bytes(request: Request, limit: int, settings: DockSettings) -> bytes:
    """Return a whole body of one file.

    Raises:
        RefusedError: it is compressed (415), too large (413), too slow (408) or not what its
            digest says (400).
    """
    found = bytearray()
    async for chunk in _chunks(request, limit, settings):
        found += chunk
    return bytes(found)


async def _chunks(request: Request, limit: int, settings: DockSettings) -> AsyncIterator[bytes]:
    if request.headers.get("content-encoding", "").strip().lower() not in PLAIN[:2]:
        raise RefusedError(415, "expected a body that is not compressed")
    told = _told_digest(request)
    stream = request.stream()
    try:
        if _declared(request) > limit:
            raise RefusedError(413, f"expected a body of at most {limit} bytes")
        size, hashed, began = 0, hashlib.sha256(), asyncio.get_running_loop().time()
        body, most = request.scope.get(NAME), settings.body_seconds
        async with asyncio.timeout(min(most, GRACE_SECONDS)) as patience:
            async for chunk in stream:
                size += len(chunk)
                patience.reschedule(began + min(most, GRACE_SECONDS + size / settings.least_speed))
                if body is not None:
                    body.grow(len(chunk))
                if size > limit:
                    raise RefusedError(413, f"expected a body of at most {limit} bytes")
                if told is not None:
                    hashed.update(chunk)
                yield chunk
        if told is not None and hashed.digest() != told:
            raise RefusedError(400, "Content-Digest: what arrived does not have this digest")
    except TimeoutError:
        raise RefusedError(
            408,
            f"expected the body within {most:g} seconds, at {settings.least_speed} bytes a second",
        ) from None
    except RefusedError:
        await _drain(stream)
        raise


def _declared(request: Request) -> int:
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _told_digest(request: Request) -> bytes | None:
    text = request.headers.get("content-digest")
    if text is None:
        return None
    found = DIGEST.search(text)
    try:
        return base64.b64decode(found[1], validate=True) if found else None
    except ValueError:
        raise RefusedError(400, "Content-Digest: expected sha-256=:base64:") from None


async def _drain(stream: Any) -> None:
    """Read what a sender still sends, within reason: it listens only afterwards."""
    size = 0
    with contextlib.suppress(Exception):
        async with asyncio.timeout(DRAINED_SECONDS):
            async for chunk in stream:
                size += len(chunk)
                if size > DRAINED_BYTES:
                    return


class _Parts:
    """What the parser of a multipart body calls, part by part."""

    def __init__(self, blobs: Blobs, limits: Mapping[str, int]) -> None:
        self._blobs, self._limits = blobs, limits
        self._uploads: dict[str, Upload] = {}
        self._texts: dict[str, bytearray] = {}
        self._headers: dict[str, str] = {}
        self._header, self._value, self._length = bytearray(), bytearray(), 0
        self._name = ""
        self.ended = False
        self.before: dict[str, str] = {}

    def callbacks(self) -> Any:
        """Return the functions by the names that the parser has for them."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._grow(self._header, data[start:end]),
            "on_header_value": lambda data, start, end: self._grow(self._value, data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._open,
            "on_part_data": lambda data, start, end: self._take(data[start:end]),
            "on_end": self._end,
        }

    @property
    def has_file(self) -> bool:
        """Whether a file has begun."""
        return bool(self._uploads)

    def form(self) -> MultipartForm:
        """Return all parts, which have arrived."""
        texts = {name: text.decode("utf-8", "replace") for name, text in self._texts.items()}
        told = {
            name.removesuffix("_digest"): texts.pop(name).strip()
            for name in DIGESTS
            if name in texts
        }
        return MultipartForm(dict(self._uploads), told, texts)

    def discard(self) -> None:
        """Forget the files that were not kept."""
        for upload in self._uploads.values():
            upload.discard()

    def _begin(self) -> None:
        self._headers, self._length = {}, 0

    def _grow(self, held: bytearray, more: bytes) -> None:
        held += more
        self._length += len(more)
        if self._length > LONGEST_HEADERS:
            raise RefusedError(422, "expected short headers of every part")

    def _header_end(self) -> None:
        self._headers[self._header.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._header, self._value = bytearray(), bytearray()

    def _open(self) -> None:
        kind, options = parse_options_header(self._headers.get("content-disposition", ""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or name not in self._limits:
            raise RefusedError(422, f"expected parts named {', '.join(self._limits)}")
        if name in self._uploads or name in self._texts:
            raise RefusedError(422, f"{name}: expected one part of this name, got two")
        check_file_name(name, options.get(b"filename", b"").decode("utf-8", "replace"))
        for header in ("content-encoding", "content-transfer-encoding"):
            if self._headers.get(header, "").strip().lower() not in PLAIN:
                raise RefusedError(415, f"{name}: expected a file that is not compressed")
        self._name = name
        if name in FILES:
            if not self._uploads:
                self.before = {k: v.decode("utf-8", "replace") for k, v in self._texts.items()}
            self._uploads[name] = self._blobs.upload(name, self._limits[name])
        else:
            self._texts[name] = bytearray()

    def _take(self, data: bytes) -> None:
        if self._name in self._uploads:
            self._uploads[self._name].write(data)
            return
        text = self._texts[self._name]
        text += data
        if len(text) > self._limits[self._name]:
            raise RefusedError(
                413, f"{self._name}: expected at most {self._limits[self._name]} bytes"
            )

    def _end(self) -> None:
        self.ended = True
