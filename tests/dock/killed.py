"""A server that is killed while learnwares are submitted to it: what was acknowledged is there.

``python -m tests.dock.killed FOLDER KILLS SEED`` prints what came of it as JSON. A submission whose
201 arrived and that is not there afterwards, whole, is lost.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from tacit_dock import DockStore, Filters
from tests.dock.learnwares import files, specification, weights

SUBMITTERS = 3
MODEL = weights({"w": ("U8", (200_000,), bytes(200_000))})


@dataclass
class Outcome:
    """What came of it."""

    kills: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    withdrawn: int = 0
    lost: list[str] = field(default_factory=list)
    halves: list[str] = field(default_factory=list)
    orphans: int = 0


@contextlib.contextmanager
def server(
    folder: Path, *more: str, most_files: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start ``tacit dock serve`` on a free port; give the process and its address."""
    limited = [] if most_files is None else ["sh", "-c", f'ulimit -n {most_files}; exec "$@"', "-"]
    command = [
        *limited, sys.executable, "-c", "from tacit.__main__ import main; main()",
        "dock", "serve", "--folder", str(folder), "--port", "0", "--requests", "1000000",
        "--max-learnwares", "1000000", *more,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        address = found[0].rstrip("/")
        with httpx.Client() as client:
            for _ in range(600):
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{address}/v1/health").status_code == 200:
                        break
                time.sleep(0.05)
        yield process, address
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def submit(
    address: str, token: str, seeds: Iterator[int], told: dict[int, str], begun, stop
) -> None:
    """Submit one after the other; repeat, with the same key, what was not acknowledged."""
    with httpx.Client(base_url=address, timeout=20) as client:
        for seed in seeds:
            if stop.is_set():
                return
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"key-{seed}"}
            parts = files(specification(seed), model=MODEL)
            told.setdefault(seed, "")
            with contextlib.suppress(httpx.TransportError):
                answer = client.post("/v1/learnwares", files=parts, headers=headers)
                assert answer.status_code == 201, answer.text
                told[seed] = answer.json()["id"]
                begun.set()
                if seed % 5 == 0:
                    place = f"/v1/learnwares/{told[seed]}"
                    if client.delete(place, headers=headers).status_code == 204:
                        told[seed] = f"withdrawn {told[seed]}"
                continue
            return


def run(folder: Path, kills: int, seed: int) -> Outcome:
    """Kill a server that often, each time at a random moment, and look at what is there."""
    chance, outcome = random.Random(seed), Outcome()
    with DockStore(folder) as store:
        token, _ = store.create_token("me")
    told: dict[int, str] = {}
    following = 0
    for _ in range(kills):
        with server(folder) as (process, address):
            begun, stop = threading.Event(), threading.Event()
            threads = []
            open_seeds = [name for name, identifier in told.items() if not identifier]
            for i in range(SUBMITTERS):
                repeated = open_seeds[i::SUBMITTERS]
                fresh = range(following + 1000 * i, following + 1000 * (i + 1))
                arguments = (address, token, iter([*repeated, *fresh]), told, begun, stop)
                threads.append(threading.Thread(target=submit, args=arguments))
            following += 1000 * SUBMITTERS
            for thread in threads:
                thread.start()
            # most kills hit submissions under way, the others a server that has just begun
            if chance.random() < 0.8:
                begun.wait(20)
            time.sleep(chance.uniform(0.0, 0.4))
            process.send_signal(signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join()
        outcome.kills += 1
    check(folder, told, outcome)
    return outcome


def check(folder: Path, told: dict[int, str], outcome: Outcome) -> None:
    """Hold what is there against what was acknowledged."""
    with DockStore(folder) as store:
        store.collect()
        held, cursor = {}, None
        while True:
            page = store.learnwares(Filters(), cursor=cursor, limit=100)
            held |= {one.id: one for one in page.items}
            cursor = page.next
            if cursor is None:
                break
        named = set()
        for one in held.values():
            for content in (one.revision, one.history[0].model, one.history[0].release):
                named.add(content)
                try:
                    store.blobs.read(content)
                except OSError:
                    outcome.halves.append(one.id)
        for seed, identifier in told.items():
            outcome.acknowledged += bool(identifier)
            outcome.unacknowledged += not identifier
            if identifier.startswith("withdrawn"):
                outcome.withdrawn += 1
                found = store.learnware(identifier.split()[1])
                if found is None or found.status != "withdrawn":
                    outcome.lost.append(identifier)
            elif identifier:
                found = store.learnware(identifier)
                # a withdrawal that was not acknowledged may have been done
                whole = (
                    found is not None
                    and (found.status == "listed") == (identifier in held)
                    and found.revision == specification(seed).revision
                    and (found.status == "listed" or seed % 5 == 0)
                )
                if not whole:
                    outcome.lost.append(identifier)
        outcome.orphans = len(set(store.blobs.digests()) - named)
        revisions = [one.revision for one in held.values()]
        assert len(set(revisions)) == len(revisions)


if __name__ == "__main__":
    print(json.dumps(asdict(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
