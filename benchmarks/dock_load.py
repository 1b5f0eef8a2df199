"""A dock of 10⁵ learnwares under load, beside FAISS: ``python -m benchmarks.dock_load``.

    python -m benchmarks.dock_load [--learnwares 100000] [--clients 32] [--seconds 20]
        [--folder build/dock-100000]

Prints one JSON object. A server process serves a dock that `benchmarks.dock_filled` fills where it
is not there (minutes); one process with one thread sends the requests of all clients, each of which
waits for its answer before it asks again, on the same cores, once the server has read its contents.
Queries are about the tasks of the
models; ``unrelated`` ones are about none, and the order of what they find is that of chance.
Milliseconds are by the clock (``median``, ``p99``) and of the processor a request (``cpu``, the
server's; ``client_cpu``); ``most`` and ``not_mapped`` are the server's megabytes. ``flat`` and
``hnsw`` are FAISS's on the same rows, asked by as many threads of this process; recall is of the ten
most similar against an exact comparison.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dock_filled import SPACE, filled, specification
from benchmarks.dock_service import ask, connection, serving, spent, submit_of
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


def graph_of(folder: Path) -> Any:
    """Return FAISS's graph of the rows that the dock keeps, made where it is not there: minutes."""
    import faiss

    path = folder.with_name(f"{folder.name}.hnsw")
    if not path.exists():
        held = np.fromfile(next(folder.glob("index/*/rows")), dtype=np.float32)
        graph = faiss.IndexHNSWFlat(SPACE.size, GRAPH, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = MADE
        graph.add(held.reshape(-1, SPACE.size))
        faiss.write_index(graph, str(path))
    return faiss.read_index(str(path))


def peers(folder: Path, bodies: list[bytes], clients: int) -> dict[str, Any]:
    """Return what FAISS takes for as many clients on the same rows, exactly and by a graph."""
    import faiss

    from tacit.specifications import specification_from_bytes

    asked = np.stack([specification_from_bytes(body).vector for body in bodies])
    graph = graph_of(folder)
    faiss.omp_set_num_threads(1)
    told, truth = {}, []
    for name, index, looked in (
        ("flat", faiss.downcast_index(graph.storage), 0), *(("hnsw", graph, n) for n in LOOKED)
    ):  # fmt: skip
        graph.hnsw.efSearch = max(looked, 1)
        times, found = by_clients(index, asked, clients)
        truth = truth or found
        recall = np.mean([len(a & b) / 10 for a, b in zip(truth, found, strict=True)])
        told[f"{name} {looked or ''}".strip()] = {**times, "recall": round(float(recall), 3)}
    return told


def by_clients(index: Any, asked: Any, clients: int) -> tuple[dict[str, float], list[set[int]]]:
    """Have threads ask an index, each again at once, a few queries each."""
    times, found, line = [0.0] * len(asked), [set[int]()] * len(asked), threading.Barrier(clients)

    def ask(mine: range) -> None:
        line.wait()
        for at in mine:
            began = time.perf_counter()
            found[at] = set(index.search(asked[[at]], 10)[1][0].tolist())
            times[at] = time.perf_counter() - began

    threads = [
        threading.Thread(target=ask, args=(range(number, len(asked), clients),))
        for number in range(clients)
    ]
    began = time.process_time()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    cpu = 1e3 * (time.process_time() - began) / len(asked)
    middle, high = (round(1e3 * float(at), 1) for at in np.quantile(times, [0.5, 0.99]))
    return {"median": middle, "p99": high, "cpu": round(cpu, 2)}, found


def checked(port: int) -> None:
    """Wait until a dock has read the contents of all rows that it began with."""
    line = connection(port)
    while json.loads(ask(line, "GET", "/v1/health")[1])["index"]["unchecked"]:
        time.sleep(0.5)


def searched(folder: Path, clients: int, seconds: float, *, related: bool = True) -> dict[str, Any]:
    """Serve a dock to clients that search; return what it took, and the memory of the server."""
    sent = [search(body) for body in queries(QUERIES, related=related)]
    with serving(folder, None) as (port, pid, _):
        checked(port)
        told = load(port, pid, clients, seconds, lambda number: sent[number % QUERIES])
        return told | memory(pid)


def started(folder: Path) -> list[float]:
    """Return the seconds, by the clock and of the processor, until a dock is ready."""
    with serving(folder, None) as (_, _, start):
        return start


def submitted(folder: Path, seconds: float) -> dict[str, Any]:
    """Serve a dock to clients that submit; return what it took."""
    content = submissions(folder)
    with serving(folder, None) as (port, pid, _):
        checked(port)
        return load(port, pid, SUBMITTERS, seconds, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnwares", type=int, default=LEARNWARES)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--no-peers", action="store_true")
    asked = parser.parse_args()
    folder = place(asked.learnwares, asked.folder)
    found: dict[str, Any] = {
        "learnwares": asked.learnwares,
        "clients": asked.clients,
        "start": [round(value, 2) for value in started(folder)],
        "search": searched(folder, asked.clients, asked.seconds),
        "unrelated": searched(folder, asked.clients, asked.seconds, related=False),
        "alone": searched(folder, 1, asked.seconds / 4),
        "submit": submitted(folder, asked.seconds),
    }
    if not asked.no_peers:
        found |= peers(folder, queries(3 * asked.clients), asked.clients)
    found["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
