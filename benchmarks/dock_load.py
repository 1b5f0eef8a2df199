"""A dock of 10⁵ learnwares under load, beside FAISS: ``python -m benchmarks.dock_load``.

    python -m benchmarks.dock_load [--learnwares 100000] [--clients 32] [--seconds 20]
        [--folder build/dock-100000]

Prints one JSON object. A server process serves a dock that `benchmarks.dock_filled` fills where it
is not there (minutes); one process with one thread sends the requests of all clients, each of which
waits for its answer before it asks again, on the same cores. Queries are about the tasks of the
models; ``unrelated`` ones are about none, and the order of what they find is that of chance.
Milliseconds are by the clock (``median``, ``p99``) and of the processor a request (``cpu``, the
server's; ``client_cpu``). ``flat`` and ``hnsw`` are FAISS's in this process on the same rows, by one
thread, a query at a time; recall is of the ten most similar against an exact comparison.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dock_filled import SPACE, filled, specification
from benchmarks.dock_service import serving, spent, submit_of
from tacit_dock import DockStore
from tacit_dock.search.index import MANY

ROOT = Path(__file__).parents[1]
LEARNWARES, CLIENTS, SUBMITTERS, QUERIES = 100_000, 32, 8, 256
# Neighbours a row has in the graph, how far is looked when it is made, and when it is searched.
GRAPH, MADE, LOOKED = 32, 40, (16, 64, 256)


def queries(count: int, *, related: bool = True) -> list[bytes]:
    """Return specifications of tasks that no model of the dock was made for."""
    made = (specification(seed + 10**8, "task", related=related) for seed in range(count))
    return [one.to_bytes() for one in made]


def request(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    told = {"Host": "127.0.0.1", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def search(body: bytes) -> bytes:
    return request("POST", "/v1/search", body, {"Content-Type": "application/octet-stream"})


class Client:
    """One that asks, waits for the whole answer, and asks again."""

    def __init__(self, port: int) -> None:
        self.line = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.began, self.held, self.wanted = 0.0, bytearray(), 0

    def ask(self, content: bytes) -> None:
        self.began, self.held, self.wanted = time.perf_counter(), bytearray(), 0
        self.line.sendall(content)

    def is_answered(self) -> bool:
        """Take what has come; whether the answer is there whole."""
        part = self.line.recv(1 << 18)
        if not part:
            raise RuntimeError("the dock closed a connection")
        self.held += part
        if not self.wanted:
            end = self.held.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self.held[:end]).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            self.wanted = end + 4 + int(length)
            if head[9:11] != b"20":
                raise RuntimeError(bytes(self.held[:600]).decode("utf-8", "replace"))
        return len(self.held) >= self.wanted


def load(
    port: int, pid: int, clients: int, seconds: float, content: Callable[[int], bytes]
) -> dict[str, Any]:
    """Have clients ask for so many seconds; return what their requests took."""
    selector, times, turn = selectors.DefaultSelector(), [], 0
    everyone = [Client(port) for _ in range(clients)]
    server, own, began = spent(pid), time.process_time(), time.perf_counter()
    for one in everyone:
        selector.register(one.line, selectors.EVENT_READ, one)
        one.ask(content(turn))
        turn += 1
    waiting = clients
    while waiting:
        for key, _ in selector.select():
            one: Client = key.data
            if not one.is_answered():
                continue
            now = time.perf_counter()
            times.append(now - one.began)
            if now - began < seconds:
                one.ask(content(turn))
                turn += 1
            else:
                selector.unregister(one.line)
                one.line.close()
                waiting -= 1
    took, done = time.perf_counter() - began, len(times)
    middle, high = np.quantile(times, [0.5, 0.99]) * 1e3
    return {
        "median": round(float(middle), 1),
        "p99": round(float(high), 1),
        "per_second": round(done / took, 1),
        "cpu": round(1e3 * (spent(pid) - server) / done, 2),
        "client_cpu": round(1e3 * (time.process_time() - own) / done, 2),
        "requests": done,
    }


def memory(pid: int) -> dict[str, int]:
    """Return the megabytes a process held at most, and those not mapped from files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = dict(line.split(":", 1) for line in lines)
    return {
        name: round(int(told[field].split()[0]) * 1024 / 1e6)
        for name, field in (("most", "VmHWM"), ("not_mapped", "RssAnon"))
    }


def place(learnwares: int = LEARNWARES, folder: Path | None = None) -> Path:
    """Return a dock of so many learnwares, filled where it is not, whose index is kept."""
    made = folder or ROOT / "build" / f"dock-{learnwares}"
    filled(made, learnwares)
    if learnwares >= MANY:
        settled(made, learnwares)
    return made


def settled(folder: Path, count: int) -> None:
    """Serve a dock until what the next start is quick by is on the disk."""
    with serving(folder, None):
        while sum(path.stat().st_size for path in folder.glob("index/*/names")) < 64 * count:
            time.sleep(0.2)


def token(folder: Path) -> str:
    with DockStore(folder) as store:
        return str(store.create_token("me")[0])


def submissions(folder: Path) -> Callable[[int], bytes]:
    """Return what submits a learnware that is not there, ready to be sent."""
    work, first = submit_of(token(folder), 10**6 * int(time.time())), 0
    ready = [request(method, path, body, headers) for method, path, body, headers in (
        work(0, first + turn) for turn in range(3000)
    )]  # fmt: skip
    return lambda turn: ready[turn]


def peers(folder: Path, bodies: list[bytes]) -> dict[str, Any]:
    """Return what FAISS takes a query on the same rows, exactly and by a graph, and its recall."""
    import faiss

    from tacit.specifications import specification_from_bytes

    rows = np.fromfile(next(folder.glob("index/*/rows")), dtype=np.float32).reshape(-1, SPACE.size)
    asked = np.stack([specification_from_bytes(body).vector for body in bodies])
    began = time.process_time()
    graph = faiss.IndexHNSWFlat(SPACE.size, GRAPH, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = MADE
    graph.add(rows)
    making = time.process_time() - began
    del rows
    faiss.omp_set_num_threads(1)
    flat = faiss.downcast_index(graph.storage)

    def each(index: Any, wanted: Any) -> tuple[float, list[set[int]]]:
        began, found = time.process_time(), []
        for one in wanted:
            found.append(set(index.search(one[np.newaxis], 10)[1][0].tolist()))
        return 1e3 * (time.process_time() - began) / len(wanted), found

    few = asked[:32]
    took, truth = each(flat, few)
    told: dict[str, Any] = {"flat": {"cpu": round(took, 2)}}
    for looked in LOOKED:
        graph.hnsw.efSearch = looked
        took, found = each(graph, few)
        recall = np.mean([len(a & b) / 10 for a, b in zip(truth, found, strict=True)])
        told[f"hnsw, {looked}"] = {"cpu": round(took, 2), "recall": round(float(recall), 3)}
    told["hnsw_made_s"] = round(making)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnwares", type=int, default=LEARNWARES)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--no-peers", action="store_true")
    asked = parser.parse_args()
    folder = place(asked.learnwares, asked.folder)
    related, unrelated = queries(QUERIES), queries(QUERIES, related=False)
    submit = submissions(folder)
    found: dict[str, Any] = {"learnwares": asked.learnwares, "clients": asked.clients}
    with serving(folder, None) as (port, pid, start):
        found["start"] = [round(value, 2) for value in start]
        for name, bodies in (("search", related), ("unrelated", unrelated)):
            sent = [search(body) for body in bodies]
            told = load(port, pid, asked.clients, asked.seconds, lambda n, s=sent: s[n % QUERIES])
            found[name] = told
        alone = [search(body) for body in related]
        found["alone"] = load(port, pid, 1, asked.seconds / 4, lambda n: alone[n % QUERIES])
        found["submit"] = load(port, pid, SUBMITTERS, asked.seconds, submit)
        found["memory"] = memory(pid)
    if not asked.no_peers:
        found |= peers(folder, related)
    found["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
