"""Time a dock that runs: clients that search, browse and submit, alone and beside some that dawdle.

    python -m benchmarks.dock_service [--learnwares 1000] [--clients 32] [--seconds 15]
        [--folder FOLDER] [--database postgresql://…]

Prints one JSON object. A process serves a dock of ``--learnwares`` specifications of 4,096 numbers;
clients keep their connections. ``search``, ``browse``, ``list`` (by three words of a card) and
``submit`` are milliseconds by the clock (median, 99 %), requests a second, and the server's
processor time a request; ``fill`` and ``start`` are seconds by the clock and of the processor. A
``--folder`` that is filled already is served as it is. ``index_share`` is the
index's own time, measured in this process on the same vectors, over the server's time of a search.
``dawdling`` is eight clients that ask for a page alone, and beside 700 connections that send half a
head and 66 that drip a body; each dawdler that is closed comes again.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.dock_filled import parts, specification
from tacit_dock import DockSettings, DockStore, examine
from tacit_dock.records import Filters
from tacit_dock.search.index import Index

HALF, DRIPS, HONEST = 700, 66, 8


def fill(folder: Path, count: int, database: str | None) -> str:
    with DockStore(folder, database) as store:
        for seed in range(count):
            with contextlib.ExitStack() as stack:
                uploads = {}
                for name, content in parts(seed).items():
                    uploads[name] = stack.enter_context(store.blobs.upload(name, 1 << 30))
                    uploads[name].write(content)
                settings = DockSettings(max_learnwares=10**9)
                store.submit(examine(uploads, {}, settings), "me", f"k{seed}", settings)
        return str(store.create_token("me")[0])


@contextlib.contextmanager
def serving(folder: Path, database: str | None):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tacit", "dock", "serve", "--folder", str(folder), "--port",
               str(port), "--requests", "10000000", "--max-learnwares", "10000000",
               *(["--database", database] if database else [])]  # fmt: skip
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            while True:
                with contextlib.suppress(OSError):
                    if ask(connection(port), "GET", "/v1/ready")[0] == 200:
                        break
                time.sleep(0.02)
            yield port, server.pid, [time.perf_counter() - began, spent(server.pid)]
        finally:
            server.terminate()


def connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=120)


def ask(line: http.client.HTTPConnection, method: str, path: str, body=None, headers=None):
    line.request(method, path, body, headers or {})
    answer = line.getresponse()
    return answer.status, answer.read()


def spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(port: int, pid: int, clients: int, seconds: float, work) -> dict[str, float]:
    times, stop, started = [], time.perf_counter() + seconds, spent(pid)

    def run(number: int) -> None:
        line, turn = connection(port), 0
        while time.perf_counter() < stop:
            began = time.perf_counter()
            status, answer = ask(line, *work(number, turn))
            assert status in (200, 201), answer
            times.append(time.perf_counter() - began)
            turn += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    middle, high = np.quantile(times, [0.5, 0.99]) * 1e3
    return {
        "median_ms": round(middle, 1),
        "p99_ms": round(high, 1),
        "per_second": round(len(times) / wall, 1),
        "cpu_ms": round(1e3 * (spent(pid) - started) / len(times), 2),
    }


def search_of(bodies):
    kind = {"Content-Type": "application/octet-stream"}
    return lambda number, turn: (
        "POST", "/v1/search", bodies[(7 * number + turn) % len(bodies)], kind
    )  # fmt: skip


def submit_of(token: str, first: int):
    def work(number: int, turn: int):
        seed, body = first + 10**5 * number + turn, b""
        for name, content in parts(seed).items():
            head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
            body += head.encode() + b"\r\n" + content + b"\r\n"
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"n{seed}",
                   "Content-Type": "multipart/form-data; boundary=b"}  # fmt: skip
        return "POST", "/v1/learnwares", body + b"--b--\r\n", headers

    return work


def index_seconds(folder: Path, database: str | None, queries) -> float:
    """Return the processor time of the index's own search, a query."""
    with DockStore(folder, database) as store:
        index = Index(store)
        index.refresh()
        began = time.process_time()
        for query in queries:
            index.search(query, 10, Filters())
        return (time.process_time() - began) / len(queries)


class Dawdlers:
    """Connections that send half a head or drip a body, and come again when they are closed."""

    def __init__(self, port: int) -> None:
        self._port, self._stop = port, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._lines = [self._line(number) for number in range(HALF + DRIPS)]
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        for line in self._lines:
            line.close()

    def _line(self, number: int) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\n"
        kind = b"Content-Type: application/octet-stream\r\nContent-Length: 9000\r\n\r\n"
        line.sendall(head + (kind if number < DRIPS else b"X: "))
        return line

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            for number, line in enumerate(self._lines):
                try:
                    line.sendall(b"y")
                except OSError:
                    line.close()
                    with contextlib.suppress(OSError):
                        self._lines[number] = self._line(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnwares", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--folder", type=Path, help="of the dock; a temporary one when left out")
    parser.add_argument("--database", help="an empty one; SQLite in the folder when left out")
    asked = parser.parse_args()
    database = asked.database
    found: dict[str, object] = {"learnwares": asked.learnwares, "clients": asked.clients}
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        began = time.perf_counter(), time.process_time()
        if (folder / "dock.id").exists():
            with DockStore(folder, database) as store:
                token = store.create_token("me")[0]
        else:
            token = fill(folder, asked.learnwares, database)
            filled = time.perf_counter() - began[0], time.process_time() - began[1]
            found["fill"] = [round(value, 1) for value in filled]
        tasks = [specification(seed + 10**6, "task") for seed in range(64)]
        bodies = [task.to_bytes() for task in tasks]
        with serving(folder, database) as (port, pid, start):
            found["start"] = [round(value, 2) for value in start]
            search = timed(port, pid, asked.clients, asked.seconds, search_of(bodies))
            found["search"] = search
            found["index_share"] = round(
                1e3 * index_seconds(folder, database, tasks) / search["cpu_ms"], 2
            )
            found["search_alone"] = timed(port, pid, 1, asked.seconds / 3, search_of(bodies))
            found["browse"] = timed(port, pid, 1, asked.seconds / 3, lambda *_: ("GET", "/"))
            words = ("GET", "/v1/learnwares?limit=50&words=model%20word1%20word2")
            found["list"] = timed(port, pid, 1, asked.seconds / 3, lambda *_: words)
            honest = ("GET", "/v1/learnwares?limit=10")
            plain = timed(port, pid, HONEST, asked.seconds, lambda *_: honest)
            with Dawdlers(port):
                beside = timed(port, pid, HONEST, asked.seconds, lambda *_: honest)
            ratio = round(beside["p99_ms"] / plain["p99_ms"], 2)
            found["dawdling"] = {"alone": plain, "beside": beside, "p99_ratio": ratio}
            fresh = 10**6 * int(time.time())  # a folder may hold what an earlier run submitted
            found["submit"] = timed(port, pid, 4, asked.seconds, submit_of(token, fresh))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
