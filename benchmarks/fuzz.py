"""Every reader of what strangers hand over, fed with damaged files: ``python -m benchmarks.fuzz``.

A reader takes bytes or refuses them in a sentence (a `ValueError`), within ``SECONDS`` of the
processor and ``MOST_MEMORY`` above what the process holds when it begins; whatever else comes is a
finding. Inputs are steered to lines of Tacit that none reached before where atheris is installed
(``pip install atheris``); files of JSON are changed as values too, those of safetensors in their
heads. Every reader runs in a process of its own. Counts, seed and findings are kept in
benchmarks/fuzz.json, the inputs found under build/fuzz.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT, FOUND = ROOT / "benchmarks" / "fuzz.json", ROOT / "build" / "fuzz"
SECONDS, MOST_MEMORY = 10, 2 << 30
LONGEST = 1 << 16
LENGTH = 8
INSTRUMENTED = ["tacit", "tacit_check", "tacit_dock"]
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 5e-324, -0.0, 2**53 + 1, 10**30, "", "\u202e", "\0", "Infinity",
    "NaN", [], {}, [[]], "9" * 5000, [0] * 3000, "sha256:" + "0" * 64,
)  # fmt: skip
PIECES = (
    b"\xff" * 8, b"null", b"NaN", b"1e999", b"[" * 400, b"\x00" * 8, b"-1", b"\xed\xa0\x80",
    b"\x1a", b"9" * 400, b'"', b"'", b"--", b";", b",,,", b"\r", b"((((", b" OR ", b"\xef\xbb\xbf",
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """What reads, what it is begun with, and what it may refuse with."""

    read: Callable[[bytes], object]
    corpus: list[bytes]
    refusals: tuple[type[BaseException], ...] = (ValueError,)
    share: float = 1.0


class TookLongError(BaseException):
    """A reader was still at it after its seconds."""


def file_reader(read: Callable[[Path], object], paths: list[Path], share: float = 1.0) -> Reader:
    """Read bytes from a file with the ending of the corpus."""
    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").exists() else None))
    target = place / f"read{paths[0].suffix}"
    beside = paths[0].with_name(paths[0].name + ".json")
    if beside.exists():
        target.with_name(target.name + ".json").write_bytes(beside.read_bytes())

    def written(content: bytes) -> object:
        target.write_bytes(content)
        target.chmod(0o600)
        return read(target)

    return Reader(written, [path.read_bytes() for path in paths], share=share)


def stored(folder: Path) -> dict[str, Callable[[], Reader]]:
    """Releases, files of rows, codebooks, specifications, sessions: what the tests damage too."""
    from tests.releases.test_damaged import made

    files = made(folder)
    releases = [path for path, _ in files.values() if path.suffix == ".json"]
    session, ask = files.pop("session")
    found: dict[str, Callable[[], Reader]] = {
        "releases": lambda: file_reader(files["rows"][1], releases[:-1], 2.0),
        "sessions": lambda: file_reader(ask, [session], 0.05),
    }
    for name, (path, read) in files.items():
        if path.suffix != ".json":
            few = 0.02 if path.suffix == ".parquet" else 0.6
            found[name] = lambda path=path, read=read, few=few: file_reader(read, [path], few)
    return found


def tables(folder: Path) -> dict[str, Callable[[], Reader]]:
    """Tables, their policies and questions about them."""
    import duckdb
    import numpy as np

    from tacit import Effort, Table
    from tacit.gate import read_policy
    from tacit.statistics import fingerprint, prepare, prepare_sql, read_table
    from tacit.statistics.engines.policy import read_policy as table_policy

    text = folder / "t.csv"
    text.write_text('who,x,city\n1,1.5,"a ""b"""\n2,,Rome\n3,-2e3,\n4,7,"two\nlines"\n', "utf-8")
    other = folder / "u.csv"
    other.write_bytes("wer;x\r\nann;1,5\r\nbö;\r\n".encode("utf-16"))
    parquet = folder / "t.parquet"
    duckdb.sql(f"COPY (SELECT * FROM '{text}') TO '{parquet}' (FORMAT parquet)")
    policy, gate = folder / "data.toml", folder / "gate.toml"
    policy.write_text(
        'person = "who"\nclip = 3\n[tables]\nt = "t.csv"\n[bounds]\nx = [0, 9]\n'
        "[query]\nepsilon = 1.0\n",
        "utf-8",
    )
    gate.write_text("max_attack = 0.7\n[statistic-rows]\nmax_success = 0.6\n", "utf-8")
    rows = np.random.default_rng(0).normal(size=(60, 2))
    promise = Table(mu=1.0, person="who", clip=2, bounds={"x": (0.0, 9.0)})
    asked = [
        b"SELECT COUNT(*), SUM(x), AVG(x) FROM t WHERE x > 1.5 AND city <> 'Rome'",
        b"SELECT city, COUNT(DISTINCT who) FROM t GROUP BY city HAVING city IN ('a', 'b')",
        b"SELECT SUM(CASE WHEN x BETWEEN 1 AND 2 THEN x ELSE 0 END) FROM t",
        b"SELECT MEDIAN(x) FROM t -- c\n",
    ]
    queries = [
        b"mean+std",
        b"quantile:0.25,0.5",
        b"by:b,mean",
        b"count",
        b"covariance",
        b"ratio:a,b",
    ]

    def numbers(path: Path) -> object:
        return read_table(path, ["x"], missing="drop-unreadable")

    def sql(content: bytes) -> object:
        return prepare_sql(content.decode("utf-8", "surrogateescape"), {"t": str(text)}, promise)

    def query(content: bytes) -> object:
        from tacit import Rows

        word = content.decode("utf-8", "surrogateescape")
        return prepare(word, rows, Rows(success=0.6), Effort(trials=0), columns=["a", "b"])

    return {
        "CSV": lambda: file_reader(numbers, [text, other], 2.0),
        "fingerprints": lambda: file_reader(fingerprint, [text, other]),
        "Parquet": lambda: file_reader(numbers, [parquet], 0.02),
        "policies of a gate": lambda: file_reader(read_policy, [gate], 2.0),
        "policies of tables": lambda: file_reader(
            lambda path: table_policy(str(path)), [policy], 2.0
        ),
        "SQL": lambda: Reader(sql, asked, share=0.1),
        "queries": lambda: Reader(query, queries, share=0.05),
    }


def kept(folder: Path) -> dict[str, Callable[[], Reader]]:
    """The ledger, checkpoints, stores and prompts."""
    import numpy as np
    import torch

    from tacit.documents import loads
    from tacit.guarantees import ApproximateDP, GaussianDP, guarantee_from_dict
    from tacit.ledger import Ledger, verify_ledger
    from tacit.ledger.account import account_from_json
    from tacit.models.texts.prompts import read_prompts
    from tacit.runs.folder import RunFolder
    from tacit.stores.audit.readers import read_store

    common: dict[str, Any] = {
        "adjacency": "replace one record", "evidence": "theorem", "assumptions": (), "source": "-",
    }  # fmt: skip
    stated = [GaussianDP(mu=0.1, **common), ApproximateDP(epsilon=1.0, delta=1e-6, **common)]
    book = Ledger(folder / "ledger.db")
    for one in stated:
        book.reserve("s", one, "x").commit({"release": 1})
    accounts = [book._account("s").to_json().encode()]
    with book._store.transaction(write=False) as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = folder / "copy.db"
    whole.write_bytes((folder / "ledger.db").read_bytes())
    run = RunFolder(folder / "run", {"kind": "x"}, fields={"w", "step"})
    run.save({"w": torch.ones(3), "step": 4})
    state, declared = folder / "run" / "state.pt", folder / "run"

    def resumed(path: Path) -> object:
        (declared / "state.pt").write_bytes(path.read_bytes())
        return RunFolder(declared, {"kind": "x"}, fields={"w", "step"}).state()

    prompts = folder / "p.jsonl"
    prompts.write_text('{"prompt": "one"}\n"two"\n', "utf-8")
    rows = folder / "rows.npy"
    np.save(rows, np.ones((3, 4), np.float32))
    from tests.stores.places import FolderBackend, filled

    filled(FolderBackend(folder / "notes"))
    head = folder / "notes" / "store.json"

    def opened(path: Path) -> object:
        head.write_bytes(path.read_bytes())
        return read_store(head.parent)

    first = folder / "head.json"
    first.write_bytes(head.read_bytes())
    return {
        "guarantees of a ledger": lambda: Reader(
            lambda content: guarantee_from_dict(loads(content)),
            [json.dumps(one.to_dict()).encode() for one in stated],
            share=4.0,
        ),
        "accounts of a ledger": lambda: Reader(
            lambda content: account_from_json(content.decode("utf-8", "replace")),
            accounts,
            share=4.0,
        ),
        "files of a ledger": lambda: file_reader(verify_ledger, [whole], 0.03),
        "checkpoints": lambda: file_reader(resumed, [state], 0.5),
        "prompts": lambda: file_reader(read_prompts, [prompts]),
        "audited stores, SQLite": lambda: file_reader(read_store, [whole], 0.1),
        "audited stores, arrays": lambda: file_reader(read_store, [rows], 0.5),
        "heads of stores": lambda: file_reader(opened, [first]),
    }


def served(folder: Path) -> dict[str, Callable[[], Reader]]:
    """Bodies of a dock, and proofs for the checker."""
    from tests.dock.learnwares import specification

    from tacit_check.balls import RefusedFileError
    from tacit_check.claims import check
    from tacit_check.reading import parse
    from tacit_dock.cards import read_card
    from tacit_dock.errors import RefusedError
    from tacit_dock.submissions import read_submitted
    from tacit_dock.weights import check_weights

    path = folder / "submitted.safetensors"
    specification(1).save(path)
    card = b"---\ntitle: Digits\ntags: [image, ten classes]\nlicense: mit\n---\n# Digits\n"
    lines = (ROOT / "tests/check/vectors/vectors.jsonl").read_bytes().splitlines()
    proofs = [line for line in lines if len(line) < 2_000][::25]
    refused = (ValueError, RefusedError)
    return {
        "dock: specifications": lambda: Reader(read_submitted, [path.read_bytes()], refused),
        "dock: models": lambda: Reader(
            file_reader(check_weights, [path]).read, [path.read_bytes()], refused, 2.0
        ),
        "dock: cards": lambda: Reader(read_card, [card], refused, 0.5),
        "proofs, read": lambda: Reader(parse, proofs, (RefusedFileError,), 4.0),
        "proofs, checked": lambda: Reader(
            lambda content: check(parse(content)), proofs, (RefusedFileError,), 0.05
        ),
    }


def readers(folder: Path) -> dict[str, Callable[[], Reader]]:
    """Return every reader by its name."""
    found: dict[str, Callable[[], Reader]] = {}
    for room in (stored, tables, kept, served):
        found |= room(folder)
    return found


def changed(content: bytes, source: random.Random) -> bytes:
    """Change a value of JSON or of a head in JSON, else bytes."""
    if source.random() < 0.5:
        head = content[LENGTH : LENGTH + int.from_bytes(content[:LENGTH], "little")]
        safe = content[LENGTH : LENGTH + 1] == b"{" and content[:1] != b"{"
        try:
            value = json.loads(head if safe else content)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            text = json.dumps(_swapped(value, source)).encode()
            tail = content[LENGTH + len(head) :]
            return len(text).to_bytes(LENGTH, "little") + text + tail if safe else text
    place = source.randrange(len(content) + 1)
    if source.random() < 0.2:
        return content[:place]
    if source.random() < 0.5 and content:
        turned = bytearray(content)
        for _ in range(source.choice((1, 1, 3))):
            turned[source.randrange(len(turned))] ^= 1 << source.randrange(8)
        return bytes(turned)
    end = min(place + source.randrange(12), len(content))
    return content[:place] + source.choice(PIECES) + content[end:]


def _swapped(value: Any, source: random.Random) -> Any:
    """Put something strange, or another part of it, at a random place of a value."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        one = stack.pop()
        keys = one.keys() if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        stack += [one[key] for key in keys if isinstance(one[key], dict | list)]
    if not places:
        return source.choice(STRANGE)
    holder, key = source.choice(places)
    kind = source.random()
    if kind < 0.2:
        del holder[key]
    elif kind < 0.3 and isinstance(holder, dict):
        holder[source.choice(("", "x", "kind", "\u202e"))] = holder[key]
    elif kind < 0.5:
        other, at = source.choice(places)
        # a copy: a value in itself is no JSON
        holder[key] = json.loads(json.dumps(other[at])) if at in other or isinstance(at, int) else 0
    elif kind < 0.6 and isinstance(holder[key], int | float):
        holder[key] = holder[key] * source.choice((-1, 0.5, 2, 1e9, 1e-9))
    else:
        holder[key] = source.choice(STRANGE)
    return value


class Watch:
    """Runs a reader, counts, and keeps what was found by where it was raised."""

    def __init__(self, name: str, reader: Reader) -> None:
        self.name, self.reader = name, reader
        self.executions, self.taken, self.longest = 0, 0, 0.0
        self.findings: dict[str, str] = {}
        signal.signal(signal.SIGPROF, self._late)

    def _late(self, *_: Any) -> None:
        raise TookLongError

    def __call__(self, content: bytes) -> None:
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            self.reader.read(content)
            self.taken += 1
        except self.reader.refusals:
            pass
        except (Exception, TookLongError) as error:
            self._keep(error, content)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.executions += 1
        self.longest = max(self.longest, time.process_time() - began)

    def _keep(self, error: BaseException, content: bytes) -> None:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tacit" in f.filename]
        last = frames[-1] if frames else None
        at = f"{Path(last.filename).name}:{last.name}" if last else "?"
        sign = f"{type(error).__name__} in {at}"
        if sign not in self.findings:
            self.findings[sign] = str(error)[:200]
            FOUND.mkdir(parents=True, exist_ok=True)
            told = {"reader": self.name, "error": repr(error)[:500],
                    "where": [f"{f.filename}:{f.lineno}" for f in frames],
                    "input": base64.b64encode(content).decode()}  # fmt: skip
            safe = "".join(c if c.isalnum() else "-" for c in f"{self.name} {sign}")
            (FOUND / f"{safe}.json").write_text(json.dumps(told, indent=1), "utf-8")

    def told(self) -> dict[str, Any]:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"executions": self.executions, "taken": self.taken,
                "longest_s": round(self.longest, 2), "peak_mb": round(grown),
                "findings": sorted(self.findings)}  # fmt: skip


def work(name: str, reader: Reader, runs: int, seed: int, told: Path) -> None:
    """Feed one reader until its runs are done; write what came of it."""
    atheris, watch = guide(), Watch(name, reader)
    for content in reader.corpus:
        watch(content)
    _bounded()
    if atheris is None:
        source = random.Random(f"{name} {seed}")
        for _ in range(runs):
            content = source.choice(reader.corpus)
            for _ in range(source.choice((1, 1, 2, 5))):
                content = changed(content, source)
            watch(content[:LONGEST])
        told.write_text(json.dumps(watch.told()))
        return
    begin = Path(tempfile.mkdtemp())
    for number, content in enumerate(reader.corpus):
        (begin / str(number)).write_bytes(content)

    def one(content: bytes) -> None:
        watch(content)
        if watch.executions >= runs:
            # the fuzzer ends the process by itself, and says nothing
            told.write_text(json.dumps(watch.told()))
            os._exit(0)

    def mutated(content: bytes, most: int, number: int) -> bytes:
        source = random.Random(number)
        if source.random() < 0.3:
            return bytes(atheris.Mutate(content, most))
        return changed(content, source)[:most]

    words = [sys.argv[0], str(begin), f"-seed={seed}", f"-max_len={LONGEST}", "-rss_limit_mb=0",
             f"-runs={10 * runs}", "-verbosity=0"]  # fmt: skip
    atheris.Setup(words, one, custom_mutator=mutated)
    atheris.Fuzz()


def guide() -> Any:
    """Return atheris with Tacit's lines counted, None where it is not installed."""
    try:
        import atheris
    except ImportError:
        return None
    # held until the process ends: modules are imported when they are needed
    atheris.instrument_imports(include=INSTRUMENTED).__enter__()
    return atheris


def _bounded() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_MEMORY,) * 2)


def apart(name: str, reader: Reader, runs: int, seed: int) -> dict[str, Any]:
    """Feed one reader in a process of its own, which holds what was made for all."""
    told = Path(tempfile.mkdtemp()) / "told.json"
    child = os.fork()
    if not child:
        code = 1
        try:
            work(name, reader, runs, seed, told)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if not told.exists():
        return {"failed": f"the process ended with status {status}"}
    found: dict[str, Any] = json.loads(told.read_text("utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="executions in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="readers whose name begins so")
    asked = parser.parse_args()
    guide()
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = {name: make() for name, make in readers(Path(folder)).items()}
        whole = sum(reader.share for reader in all_of_them.values())
        for name, reader in all_of_them.items():
            if name.startswith(asked.only):
                runs, began = max(round(asked.runs * reader.share / whole), 100), time.monotonic()
                told = apart(name, reader, runs, asked.seed)
                told["seconds"] = round(time.monotonic() - began)
                kept.setdefault(f"seed {asked.seed}", {})[name] = told
                print(name, json.dumps(told), flush=True)
                text = json.dumps(kept, indent=1, ensure_ascii=False)
                KEPT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
