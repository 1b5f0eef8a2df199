"""Bytes that are hardly requests, sent to a socket: none is answered by a server's error.

``python -m tests.dock.raw COUNT [SEED]`` prints what was answered, as JSON.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tacit_dock import AdmissionPolicy, DockSettings
from tacit_dock.api.routes import RULES
from tests.dock.learnwares import files, keep, specification
from tests.dock.running import Running, running
from tests.dock.stateful import INSIDE

AT_A_TIME = 16
METHODS = (
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "G\x00T",
)  # fmt: skip
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "http/1.1", "", "HTTP/1.1 x")
PLACES = tuple(rule.path.replace("{identifier}", "0" * 32) for rule in RULES)
BITS = (
    "/", "//", "/.", "/..", "/%2e%2e", "/%00", "/%ff", "/%", "/;", "/?", "/#", "/~", "/'",
    "/%c0%ae", "/{identifier}", "/${7*7}", "/<script>", "/'%20OR%201=1--", "/specification",
    "/withdraw", "/v1", "/static/../../x", "/learnwares", "/\\", "/\xe9", "/" + "a" * 5000, "/"
    + "0" * 32,
)  # fmt: skip
NAMES = (
    "limit", "cursor", "tag", "words", "max_epsilon", "revision", "reason", "example",
    "license", "guarantee", "x", "",
)  # fmt: skip
VALUES = (
    "0", "-1", "1e999", "nan", "%00", "%ff%fe", "%F0%9F%92%A9", "'--", "../../etc/passwd",
    "{{7*7}}", "YWZ0ZXI6OTk5", "%u0041", "image", "any", "GaussianDP", "", "\x7f", "\xe9", "9" *
    400, "a" * 3000, "sha256:" + "0" * 64,
)  # fmt: skip
# Lines of a head, with escapes as Python writes them.
WRITTEN = r"""
Host: x
Host:
Host: a\r\nHost: b
Host: [::1
Content-Length: 5
Content-Length: -1
Content-Length: 9999999999999999999999
Content-Length: 5\r\nContent-Length: 6
Content-Length: 0x5
Content-Length: 5, 5
Transfer-Encoding: chunked
Transfer-Encoding: gzip, chunked
Transfer-Encoding: xchunked
Transfer-Encoding : chunked
Expect: 100-continue
Expect: 42
Authorization: Bearer \x00
Authorization: Basic eDp5
Authorization: Bearer tacit_\xe9
Authorization:
Idempotency-Key: \xff
If-Match: *
If-Match: "a",W/"b"
If-None-Match: W/
If-Range: x
Range: bytes=0-1,2-3,4-5
Range: bytes=-0
Range: bytes=99999999999999999999-
Range: lines=1
Upgrade: h2c
Connection: Upgrade
Connection: close, x
Content-Type: multipart/form-data
Content-Type: multipart/form-data; boundary=
Content-Type: multipart/form-data; boundary=b
Content-Type: application/octet-stream
Content-Type: text/plain; charset=utf-7
Content-Encoding: gzip
Content-Digest: sha-256=:!!:
Accept: text/html
X-Forwarded-For: 127.0.0.1
X-Forwarded-Proto: javascript
: x
x
 folded: y
X: a\r\n b
X: \x00
\xff: \xff
Sec-WebSocket-Key: x
"""
HEADERS = [
    *(line.encode().decode("unicode_escape") for line in WRITTEN.strip("\n").split("\n")),
    "X: " + "y" * 70_000, "Cookie: " + "a=b;" * 999, "If-Match: " + '"a",' * 500,
]  # fmt: skip
BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    lambda _: b"",
    lambda chance: chance.randbytes(chance.randrange(1, 400)),
    lambda _: b"5\r\nhello\r\n0\r\n\r\n",
    lambda _: b"FFFFFFFFFFFFFFFF\r\nx\r\n",
    lambda _: b"-1\r\nx\r\n0\r\n\r\n",
    lambda _: b"5;a=b\r\nhel",
    lambda _: b'--b\r\nContent-Disposition: form-data; name="specification"; filename="x"\r\n\r\n',
    lambda _: b'--b\r\nContent-Disposition: form-data; name="card"\r\n\r\nx\r\n--b--\r\n',
    lambda _: b"--b\r\n" + b"A: b\r\n" * 3000,
    lambda chance: mangled(chance, specification(1, "task").to_bytes()),
    lambda _: b'{"a":' * 2000,
    lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    lambda _: b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
)


def mangled(chance: random.Random, content: bytes) -> bytes:
    """Return bytes of which some are others, left out or there twice."""
    held = bytearray(content)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(held))
        held[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(held)


def request(chance: random.Random, token: str) -> bytes:
    """Return the bytes of something like a request, some of them with a token that holds."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(1, 300))
    plain = chance.random() < 0.8
    target = chance.choice(PLACES) if plain or chance.random() < 0.5 else ""
    if not plain or chance.random() < 0.2:
        target += "".join(chance.choices(BITS, k=chance.randrange(4)))
    if chance.random() < 0.4:
        count = chance.randrange(4)
        pairs = zip(chance.choices(NAMES, k=count), chance.choices(VALUES, k=count), strict=True)
        target += "?" + "&".join("=".join(pair) for pair in pairs)
    method = chance.choice(METHODS[:6] if plain else METHODS)
    # most reach a route
    beside = "HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close"
    version = beside if plain else chance.choice(VERSIONS)
    lines = [f"{method} {target} {version}"]
    lines += chance.sample(HEADERS, chance.choice((0, 0, 0, 1, 1, 2, 3)))
    if chance.random() < 0.4:
        lines += [f"Authorization: Bearer {token}", "Idempotency-Key: k"]
    body = b"" if plain and method in METHODS[:2] else chance.choice(BODIES)(chance)
    if body and chance.random() < 0.7:
        lines.append(f"Content-Length: {len(body)}")
    whole = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
    return mangled(chance, whole) if chance.random() < 0.1 else whole


def answered(address: tuple[str, int], content: bytes) -> bytes:
    """Return all that is answered until the server closes the line."""
    found = b""
    with socket.create_connection(address, timeout=30) as line:
        try:
            line.sendall(content)
            while chunk := line.recv(1 << 16):
                found += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    return found


def run(found: Running, count: int, seed: int) -> Counter[str]:
    """Send so many, some at a time; return how often each status was the first answer."""
    host, port = found.url.removeprefix("http://").split(":")

    def one(number: int) -> str:
        content = request(random.Random(f"{seed} {number}"), found.token)
        answer = answered((host, int(port)), content)
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"
        where = f"seed {seed}, number {number}: {answer[:300]!r}"
        assert status == "none" or (status.isdigit() and status < "500"), where
        if status >= "400":
            assert not INSIDE.search(answer.decode("utf-8", "replace")), where
        return status

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return Counter(pool.map(one, range(count)))


def sent(count: int, seed: int) -> Counter[str]:
    """Serve a dock, send it so many and hold what is left of it against what was there."""
    settings = DockSettings(
        policy=AdmissionPolicy(without="accept"), requests_per_minute=10**9, header_seconds=1.0,
        body_seconds=1.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), settings) as found:
        keep(found.store, files(specification(1)))
        told = run(found, count, seed)
        assert len(found.store.learnwares().items) == 1
        assert not list(found.store.blobs.incoming.iterdir())
    return told


if __name__ == "__main__":
    COUNT, SEED = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    ANSWERED = dict(sorted(sent(COUNT, SEED).items()))
    print(json.dumps({"seed": SEED, "requests": COUNT, **ANSWERED}))
