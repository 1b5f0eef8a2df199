"""Connections that dawdle, lie about their length or do not read, beside those that behave."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path

import httpx
import pytest

from tacit_dock import DockSettings, DockStore
from tacit_dock.api import bodies, guard
from tests.dock.killed import server
from tests.dock.learnwares import card, files, specification, weights
from tests.dock.running import Running, running

SHORT = 0.4


def connected(dock: Running) -> socket.socket:
    host, _, port = dock.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answered(dock: Running, content: bytes) -> bytes:
    """Send raw bytes and return all that comes back until the dock closes."""
    with connected(dock) as line:
        line.sendall(content)
        found = b""
        while more := line.recv(1 << 16):
            found += more
        return found


def honest(dock: Running, times: int = 3) -> list[int]:
    return [httpx.get(f"{dock.url}/v1/health", timeout=20).status_code for _ in range(times)]


def test_half_a_head_is_closed(tmp_path: Path) -> None:
    with running(tmp_path, DockSettings(header_seconds=SHORT)) as dock:
        assert answered(dock, b"") == b""
        assert answered(dock, b"GET / HTTP/1.1\r\nHost: d") == b""
        # a connection that is kept has as long for its next request
        whole = b"GET /v1/health HTTP/1.1\r\nHost: d\r\n\r\n"
        found = answered(dock, whole + b"GET / HT")
        assert found.startswith(b"HTTP/1.1 200")
        assert found.count(b"HTTP/1.1") == 1
        # two that came together are both answered
        assert answered(dock, whole * 2).count(b"HTTP/1.1 200") == 2
        # and one whose head comes in pieces, in time
        with connected(dock) as line:
            for part in (whole[:10], whole[10:30], whole[30:]):
                line.sendall(part)
                time.sleep(SHORT / 10)
            assert line.recv(100).startswith(b"HTTP/1.1 200")


def test_a_head_that_drips_is_closed(tmp_path: Path) -> None:
    with running(tmp_path, DockSettings(header_seconds=SHORT)) as dock, connected(dock) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: d\r\nX: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012
            for _ in range(200):
                line.sendall(b"y")
                time.sleep(SHORT / 10)


def test_many_that_dawdle_keep_nobody_waiting(tmp_path: Path) -> None:
    with running(tmp_path, DockSettings(concurrency=2)) as dock, contextlib.ExitStack() as stack:
        for number in range(60):
            line = stack.enter_context(connected(dock))
            line.sendall(b"POST /v1/search HTTP/1.1\r\nHost: d\r\n")
            if number % 2:
                line.sendall(
                    b"Content-Type: application/octet-stream\r\nContent-Length: 900\r\n\r\nx"
                )
        assert honest(dock) == [200] * 3


def test_more_connections_than_files_keep_nobody_waiting(tmp_path: Path) -> None:
    with DockStore(tmp_path) as store:
        token, _ = store.create_token("me")
    with server(tmp_path, most_files=700) as (process, url), httpx.Client(base_url=url) as kept:
        assert kept.get("/v1/health").status_code == 200
        host, _, port = url.removeprefix("http://").partition(":")
        with contextlib.ExitStack() as stack:
            for _ in range(900):
                line = socket.create_connection((host, int(port)), timeout=20)
                stack.enter_context(line)
            # of those that wait all but a few are closed, and one that is there is answered
            files_open = len(os.listdir(f"/proc/{process.pid}/fd"))
            assert files_open < 700
            for _ in range(6):
                time.sleep(0.5)
                assert kept.get("/v1/health", timeout=5).status_code in (200, 503)
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
        told: list[int] = []
        while 201 not in told and len(told) < 100:
            parts = files(specification(1))
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(f"{url}/v1/learnwares", files=parts, headers=headers)
                told.append(answer.status_code)
            time.sleep(0.1)
        assert 201 in told


def test_a_body_that_drips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_SECONDS", SHORT)
    monkeypatch.setattr(bodies, "DRAINED_SECONDS", 0.1)
    head = (
        b"POST /v1/search HTTP/1.1\r\nHost: d\r\nConnection: close\r\n"
        b"Content-Type: application/octet-stream\r\nContent-Length: 900\r\n\r\nx"
    )
    with running(tmp_path) as dock, connected(dock) as line:
        line.sendall(head)
        for _ in range(4):
            time.sleep(SHORT / 4)
            line.sendall(b"y")
        found = b"".join(iter(lambda: line.recv(1 << 16), b""))
    assert found.startswith(b"HTTP/1.1 408")
    assert b"8192 bytes a second" in found


def test_whoever_does_not_read_holds_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "GRACE_SECONDS", SHORT)
    large = weights({"w": ("F32", (4 << 20,), bytes(16 << 20))})
    with running(tmp_path, DockSettings(concurrency=1, least_speed=1 << 30)) as dock:
        made = httpx.post(
            f"{dock.url}/v1/learnwares",
            files={k: (k, v) for k, v in files(specification(1), model=large).items()},
            headers={"Authorization": f"Bearer {dock.token}", "Idempotency-Key": "k"},
            timeout=60,
        )
        assert made.status_code == 201, made.text
        path = f"/v1/learnwares/{made.json()['id']}/model"
        with connected(dock) as line:
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: d\r\n\r\n".encode())
            time.sleep(0.2)
            assert honest(dock) == [200] * 3
            time.sleep(2 * SHORT)
            # what waited in the buffers is all that comes
            found = 0
            with contextlib.suppress(OSError):
                while more := line.recv(1 << 20):
                    found += len(more)
            assert found < len(large)
        assert len(httpx.get(dock.url + path, timeout=60).content) == len(large)


@pytest.mark.parametrize("first", ["Content-Length: 4\r\nTransfer-Encoding: chunked",
                                   "Transfer-Encoding: chunked\r\nContent-Length: 4"])  # fmt: skip
def test_a_length_that_is_told_twice(tmp_path: Path, first: str) -> None:
    head = f"POST /v1/search HTTP/1.1\r\nHost: d\r\n{first}\r\n\r\n".encode()
    smuggled = b"0\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: d\r\n\r\n"
    with running(tmp_path, DockSettings(header_seconds=SHORT)) as dock:
        found = answered(dock, head + smuggled)
    assert found.startswith(b"HTTP/1.1 400")
    assert found.count(b"HTTP/1.1") == 1


def test_nobody_is_believed_who_says_for_whom_it_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for proxies, address in (((), "127.0.0.1"), (("127.0.0.1",), "9.9.9.9")):
        caplog.clear()
        with caplog.at_level("INFO", "tacit_dock"), running(
            tmp_path, DockSettings(proxies=proxies)
        ) as dock:  # fmt: skip
            httpx.get(f"{dock.url}/v1/health", headers={"X-Forwarded-For": "9.9.9.9"}, timeout=20)
        lines = [json.loads(record.message) for record in caplog.records]
        assert [line["address"] for line in lines if line["event"] == "request"] == [address]


def form(*parts: tuple[str, bytes]) -> bytes:
    return b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in parts
    )


def posted(dock: Running, path: str, start: bytes, more: int) -> tuple[int, int, int]:
    """Return the status of a form, most files that were on the disk meanwhile, and its bytes."""
    incoming, seen, largest = dock.store.blobs.incoming, 0, 0

    def body() -> object:
        nonlocal seen, largest
        yield start
        for _ in range(more):
            yield bytes(1 << 16)
            with contextlib.suppress(FileNotFoundError):
                held = [os.stat(incoming / name).st_size for name in os.listdir(incoming)]
                seen, largest = max(seen, len(held)), max(largest, sum(held))
        yield b"\r\n--b--\r\n"

    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    with contextlib.suppress(httpx.WriteError):
        answer = httpx.post(dock.url + path, content=body(), headers=kind, timeout=60)
        return answer.status_code, seen, largest
    return 0, seen, largest


def test_a_form_without_a_token_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    with running(tmp_path) as dock:
        model = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
        for before in ((), (("token", b"forged"),), (("key", b"k"), ("card", card()))):
            status, _, size = posted(dock, "/submit", form(*before) + model, 64)
            assert status in (0, 401), before
            # of the first pieces that came with the name of the file
            assert size <= 4 << 16
        # a token that comes after a file comes too late
        late = form(("card", card()), ("token", dock.token.encode())) + model
        assert posted(dock, "/submit", late, 64)[0] in (0, 401)
        for path in ("/search", f"/learnwares/{'0' * 32}/withdraw"):
            status, seen, _ = posted(dock, path, model, 64)
            assert (status in (0, 404, 422), seen) == (True, 0)
        assert os.listdir(dock.store.blobs.incoming) == []
        assert honest(dock) == [200] * 3
