"""What Tacit takes, on one page: ``python -m benchmarks.measured`` writes docs/benchmarks.md.

Every figure is measured in a process of its own, with one thread, and kept in
benchmarks/figures.json with the machine and the commit; ``--only pairs,gate`` measures some anew and
leaves the rest. Seconds are of the processor, of a command and its children, and a peer is measured
in the same process as ours. ``--slow`` measures also what needs minutes: a fresh clone's demo and tests.
"""  # noqa: E501

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "benchmarks" / "figures.json", ROOT / "docs" / "benchmarks.md"
TACIT = str(Path(sys.executable).with_name("tacit"))
MOST_SECONDS = 3600
# What is recorded in the ledger, about so many secrets.
RELEASES, SECRETS = 6_000, 1_000
# Why it takes what it takes.
WHY = (
    "three links and a row of each, 49 values, pass through SQLite and SHA-256; a seventh is "
    "SQLite's own check of its indexes"
)
# Releases and secrets of a long one.
LONG = 1_000_000, 10_000


@dataclass(frozen=True)
class Measured:
    """One line of the page: what was measured, and the peer's in the same unit.

    Attributes:
        ours: in ``unit``.
        unit: what it is in.
        most: what we want of it at most, in ``unit``; None where the peer is the measure.
        peer: what it is compared with.
        theirs: the peer's, in ``unit``.
        note: what else was seen.
    """

    ours: float
    unit: str = "s"
    most: float | None = None
    peer: str = ""
    theirs: float | None = None
    note: str = ""


def processor(work: Callable[[], object]) -> float:
    """Return the processor seconds of a call, its child processes included."""
    began = _spent()
    work()
    return _spent() - began


def _spent() -> float:
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def command(*words: str, folder: str | None = None) -> None:
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise RuntimeError(
            f"{' '.join(words)}: ended with {ended.returncode}: {ended.stderr[-300:]}"
        )


def least(work: Callable[[], object], times: int = 5) -> float:
    return min(processor(work) for _ in range(times))


# Start


def importing() -> Measured:
    bare = least(lambda: command(sys.executable, "-c", "pass"))
    ours = least(lambda: command(sys.executable, "-c", "import tacit"))
    return Measured(1e3 * (ours - bare), "ms", 25, note="beyond an empty interpreter")


def help_page() -> Measured:
    return Measured(least(lambda: command(TACIT, "--help")), most=0.3)


def _released(folder: str) -> str:
    import numpy as np

    np.savetxt(
        f"{folder}/t.csv",
        np.random.default_rng(0).normal(size=(400, 2)),
        delimiter=",",
        header="a,b",
        comments="",
    )
    path = f"{folder}/mean.json"
    command(
        TACIT, "statistic", f"{folder}/t.csv", "--query", "mean", "--success", "0.6", "--json", path
    )
    return path


def gate() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = _released(folder)
        return Measured(
            least(lambda: command(TACIT, "gate", path, "--max-success", "0.6")), most=0.5
        )


def show() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        path = _released(folder)
        return Measured(least(lambda: command(TACIT, "show", path)), most=0.5)


# Accounting


def schedule(name: str, most: float) -> Callable[[], Measured]:
    def measured() -> Measured:
        from benchmarks.accounting import SCHEDULE_DELTA, SCHEDULES, composed
        from tacit.accounting import subsampled_gaussian

        stages = SCHEDULES[name]
        found: list[float] = []

        def ours() -> None:
            whole = subsampled_gaussian(*stages[0])
            for stage in stages[1:]:
                whole = whole.compose(subsampled_gaussian(*stage))
            found.append(whole.epsilon(SCHEDULE_DELTA))

        mine = least(ours, 2)
        theirs = least(lambda: found.append(composed(stages, 1e-4)), 2)
        return Measured(
            mine, most=most * theirs, peer="dp_accounting, steps of 1e-4", theirs=theirs,
            note=f"ε {found[0]:.6f}, the peer's {found[-1] - found[0]:+.1e} from it",
        )  # fmt: skip

    return measured


# Designs and pairs


def worst(rows: int, columns: int, most: float) -> Callable[[], Measured]:
    def measured() -> Measured:
        import numpy as np

        from tacit.design import worst_case

        differences, gaps = np.random.default_rng(0).normal(size=(rows, columns)), []

        def work() -> None:
            gaps.append(worst_case(differences, np.ones(rows), rtol=1e-6).gap)

        return Measured(processor(work), most=most, note=f"gap {gaps[0]:.0e}")

    return measured


def pairing(rows: int, columns: int, most: float) -> Callable[[], Measured]:
    def measured() -> Measured:
        import numpy as np
        from scipy.spatial import cKDTree

        from tacit.statistics import pairs

        table, lengths = np.random.default_rng(0).normal(size=(rows, columns)), []

        def work() -> None:
            found = pairs.nearest(table, progress=False)
            lengths.append(np.linalg.norm(found.swaps(table), axis=1).max())

        ours, some = processor(work), table[:: rows // 5_000]
        theirs = processor(lambda: cKDTree(table).query(some, k=13))
        return Measured(
            ours, most=most, peer="SciPy's k-d tree, 13 neighbours of 5,000 rows", theirs=theirs,
            note=f"longest of the pairs {lengths[0]:.6g}",
        )  # fmt: skip

    return measured


# Commands that end in a page


def demo() -> Measured:
    return Measured(
        processor(lambda: command(sys.executable, "experiments/demo/run.py", folder=str(ROOT))),
        most=25,
        note="7,000 prompts pass through the model in 12 of them, guessers take 8, the start of "
        "torch and transformers 5",
    )


def specification() -> Measured:
    """The start of the command that makes one: what it imports before it reads anything."""
    with tempfile.TemporaryDirectory() as folder:

        def start() -> None:
            subprocess.run(
                [TACIT, "specification", "make", "missing.safetensors"],
                cwd=folder, capture_output=True, check=False,
            )  # fmt: skip

        theirs = least(lambda: command(sys.executable, "-c", "import torch"))
        return Measured(
            least(start), peer="import torch", theirs=theirs, note="up to a missing file"
        )


def seeding() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        spent = processor(lambda: command(TACIT, "dock", "seed", "--folder", folder))
        return Measured(spent, most=60, note=f"{time.perf_counter() - began:.0f} s by the clock")


# The ledger


def _filled(path: str, count: int, marks: list[float]) -> Any:
    """A ledger of releases; ``marks`` are the seconds after every thousand."""
    from tacit.ledger import Ledger

    return _fill(Ledger(path), count, marks)


def _fill(kept: Any, count: int, marks: list[float]) -> Any:
    from tacit.guarantees import GaussianDP

    guarantee = GaussianDP(
        mu=1e-4, adjacency="replace one record", evidence="theorem", assumptions=(), source="made"
    )
    for number in range(count):
        if number % 1000 == 0:
            marks.append(_spent())
        with kept.reserve(f"secret {number % SECRETS}", guarantee, "mean") as reservation:
            reservation.mark_drawn()
            reservation.commit({"release": number})
    marks.append(_spent())
    return kept


def ledger_release() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        marks: list[float] = []
        _filled(f"{folder}/ledger.db", RELEASES, marks)
        first, last = marks[2] - marks[1], marks[-1] - marks[-2]
        note = f"the last thousand of {RELEASES:,}; the second thousand took {first:.1f} ms each"
        return Measured(last, "ms", 10, note=note)


def ledger_verify() -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        kept = _filled(f"{folder}/ledger.db", RELEASES, [])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        spent = processor(kept.verify)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        return Measured(
            1e6 * spent / RELEASES, "µs", 20, note=f"a release; {grown:.0f} MB more; {WHY}"
        )


def _long() -> Path:
    """A ledger of ``LONG`` releases under build, made when it is not there: minutes."""
    from benchmarks.ledger import filled

    (ROOT / "build").mkdir(exist_ok=True)
    return filled(ROOT / "build" / f"ledger-{LONG[0]}.db", *LONG)


def long_release() -> Measured:
    from tacit.ledger import Ledger

    path = _long()
    size = path.stat().st_size
    marks: list[float] = []
    _fill(Ledger(path), 1_000, marks)
    with tempfile.TemporaryDirectory() as folder:
        alone: list[float] = []
        _filled(f"{folder}/ledger.db", 1_000, alone)
    note = (
        f"the next thousand; a ledger's first thousand took {alone[-1] - alone[0]:.1f} ms each; "
        f"{size / LONG[0]:,.0f} bytes a release on the disk"
    )
    return Measured(marks[-1] - marks[0], "ms", 10, note=note)


def long_verify() -> Measured:
    from tacit.ledger import Ledger

    kept, found = Ledger(_long()), []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # by one process: workers that live on have not told what they spent
    spent = processor(lambda: found.append(kept.verify(workers=1)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    since = processor(lambda: kept.verify(since=found[0].checkpoint, workers=1))
    began = time.perf_counter()
    kept.verify(workers=2)
    took = time.perf_counter() - began
    note = (
        f"a release; {grown:.0f} MB more; by two processes {1e6 * took / LONG[0]:.0f} by the "
        f"clock; since a checkpoint {since:.1f} s in all; {WHY}"
    )
    return Measured(1e6 * spent / LONG[0], "µs", 20, note=note)


# People


def whole_noise() -> Measured:
    """Exact discrete Gaussian draws, for one count, in microseconds."""
    import opendp.prelude as dp

    from tacit.design.grid import discrete_gaussian, random_bits

    dp.enable_features("contrib")
    bits, count, scale = random_bits(None), 60_000, 1_000
    peer = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=float(scale)
    )
    ours = processor(lambda: [discrete_gaussian(scale**2, bits) for _ in range(count)])
    theirs = processor(lambda: peer([0] * count))
    return Measured(1e6 * ours / count, "µs", 4, "OpenDP", 1e6 * theirs / count)


def engine() -> Measured:
    """Counts and means by 100 groups of a Parquet file of 10⁷ rows about 99,800 persons."""
    from benchmarks.people import made

    with tempfile.TemporaryDirectory() as folder:
        path = made(10_000_000, folder)
        told = {}
        for name in ("engine", "pandas"):
            words = [sys.executable, "-m", "benchmarks.people", "--work", name, path]
            ended = subprocess.run(words, capture_output=True, text=True, check=True)
            told[name] = [float(word) for word in ended.stdout.split()]
        note = f"{told['engine'][1]:.0f} MB at its peak, the peer {told['pandas'][1]:.0f}"
        return Measured(
            told["engine"][0], "s", 2.5, "pandas, no clip, no noise", told["pandas"][0], note
        )


# A dock of 10⁵ learnwares


def dock_search() -> Measured:
    from benchmarks.dock_load import CLIENTS, peers, place, queries, searched

    folder = place()
    told = searched(folder, CLIENTS, 20.0)
    unrelated = searched(folder, CLIENTS, 10.0, related=False)
    beside = peers(folder, queries(3 * CLIENTS), CLIENTS)
    graph = ", ".join(
        f"{one['p99']:.0f} ({one['recall']:.2f})" for key, one in beside.items() if "hnsw" in key
    )
    note = (
        f"99%, {CLIENTS} clients on the same cores; median {told['median']:.0f}, "
        f"{told['per_second']:.0f} a second, {told['cpu']:.1f} ms of the server's processor each; "
        f"queries about no task of the models: {unrelated['p99']:.0f} and "
        f"{unrelated['cpu']:.1f}; FAISS alone, no server, as many threads, 99% (recall of ten): "
        f"flat {beside['flat']['cpu']:.0f} of the processor, HNSW {graph}"
    )
    return Measured(
        told["p99"], "ms by the clock", 150, "FAISS flat", beside["flat"]["p99"], note
    )  # fmt: skip


def dock_submit() -> Measured:
    from benchmarks.dock_load import SUBMITTERS, place, submitted

    told = submitted(place(), 20.0)
    note = (
        f"99%, {SUBMITTERS} clients on the same cores; median {told['median']:.0f}, "
        f"{told['per_second']:.0f} a second, {told['cpu']:.0f} ms of the server's processor each"
    )
    return Measured(told["p99"], "ms by the clock", 1000, note=note)


def dock_start() -> Measured:
    from benchmarks.dock_load import place, started

    clock, spent = started(place())
    return Measured(spent, most=5, note=f"to its first answer; {clock:.1f} s by the clock")


def dock_memory() -> Measured:
    from benchmarks.dock_load import CLIENTS, place, searched

    told = searched(place(), CLIENTS, 10.0)
    note = f"at its most, under load; {told['not_mapped']} of them are not mapped from files"
    return Measured(told["most"], "MB", 2000, note=note)


# What needs minutes


def clone(*goals: str) -> Callable[[], Measured]:
    def measured() -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            command("git", "clone", "-q", str(ROOT), f"{folder}/tacit")
            began = time.perf_counter()
            command("make", *goals, folder=f"{folder}/tacit")
            took = time.perf_counter() - began
        return Measured(took, "s by the clock", 90 if goals == ("demo",) else 360)

    return measured


# key: room, what is measured, how; what comes last needs minutes
FIGURES: dict[str, tuple[str, str, Callable[[], Measured]]] = {
    "import": ("Start", "`import tacit`", importing),
    "help": ("Start", "`tacit --help`", help_page),
    "gate": ("Start", "`tacit gate` on a mean of two columns", gate),
    "show": ("Start", "`tacit show` on the same", show),
    "specification": ("Start", "`tacit specification make`, to its first refusal", specification),
    "compose-100": (
        "Accounting", "100 distinct steps of DP-SGD, composed", schedule("100 distinct steps", 2.0)
    ),
    "compose-12": (
        "Accounting", "12 stages of DP-SGD, 100 steps each", schedule("12 stages of DP-SGD", 1.0)
    ),
    "compose-gaussians": ("Accounting", "20 Gaussians", schedule("20 Gaussians", 1.0)),
    "worst-150": ("Noise", "`worst_case` of 10⁵ differences, 150 columns", worst(10**5, 150, 5.0)),
    "worst-200": ("Noise", "`worst_case` of 10⁵ differences, 200 columns", worst(10**5, 200, 14.0)),
    "worst-10": ("Noise", "`worst_case` of 10⁶ differences, 10 columns", worst(10**6, 10, 0.6)),
    "pairs-20": ("Noise", "pairs of 10⁵ rows, 20 columns", pairing(10**5, 20, 4.0)),
    "pairs-5": ("Noise", "pairs of 10⁶ rows, 5 columns", pairing(10**6, 5, 6.0)),
    "whole-noise": ("People", "a draw of the discrete Gaussian, σ = 1,000", whole_noise),
    "engine": ("People", "counts and means by group, 10⁷ rows of Parquet", engine),
    "release": ("Ledger", "a release about one of 1,000 secrets", ledger_release),
    "verify": ("Ledger", f"`verify`, {RELEASES:,} releases", ledger_verify),
    "release-long": (
        "Ledger", f"a release after {LONG[0]:,} about {LONG[1]:,} secrets", long_release
    ),
    "verify-long": ("Ledger", f"`verify`, {LONG[0]:,} releases", long_verify),
    "audit": ("Pages", "the audit of `make demo`", demo),
    "seed": ("Pages", "`tacit dock seed`", seeding),
    "dock-search": ("A dock of 100,000 learnwares", "a search", dock_search),
    "dock-submit": ("A dock of 100,000 learnwares", "a submission", dock_submit),
    "dock-start": ("A dock of 100,000 learnwares", "`tacit dock serve`, to be ready", dock_start),
    "dock-memory": ("A dock of 100,000 learnwares", "memory of the server", dock_memory),
    "demo": ("A fresh clone", "`make demo`, with the installation", clone("demo")),
    "tests": ("A fresh clone", "`make test`, with the installation", clone("test")),
}  # fmt: skip
SLOW = (
    "release-long", "verify-long", "dock-search", "dock-submit", "dock-start", "dock-memory",
    "demo", "tests",
)  # fmt: skip


def measure(key: str) -> dict[str, Any]:
    """Measure one figure in a process of its own; return what it says, or why it says nothing."""
    threads = (
        {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if key not in ("demo", "tests")
        else {}
    )
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.measured", "--one", key],
        cwd=ROOT, env=os.environ | threads, capture_output=True, text=True, check=False,
        timeout=MOST_SECONDS,
    )  # fmt: skip
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"]
        return {"failed": lines[-1][:200]}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def where() -> dict[str, str]:
    """Return what the figures were measured on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "commit": commit or "unknown",
        "day": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def page(kept: dict[str, dict[str, Any]]) -> str:
    """Return the page of what is kept."""
    parts = [HEAD]
    for room in dict.fromkeys(entry[0] for key, entry in FIGURES.items() if key in kept):
        parts.append(f"\n## {room}\n\n{COLUMNS}\n")
        parts += [
            _line(words, kept[key]) for key, (own, words, _) in FIGURES.items()
            if own == room and key in kept
        ]  # fmt: skip
    loads: dict[str, list[float]] = {}
    for found in kept.values():
        loads.setdefault(_where(found["where"]), []).append(float(found["where"]["load"]))
    parts.append("\n## Measured on\n\n")
    parts += [
        f"- {words}; {min(busy):g} to {max(busy):g} processes at work when a figure began\n"
        for words, busy in sorted(loads.items())
    ]
    parts.append(ELSEWHERE)
    return "".join(parts)


def _where(at: dict[str, str]) -> str:
    return f"{at['machine']}, Python {at['python']}, commit {at['commit']}, {at['day']}"


def _line(words: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"| {words} | not measured: {found['failed']} | | | |\n"
    ours, most, theirs = found["ours"], found["most"], found["theirs"]
    wanted = "" if most is None else f"{most:.3g}"
    if most is not None and ours > most:
        wanted = f"**{wanted}**"
    peer = "" if theirs is None else f"{found['peer']}: {theirs:.3g}, {ours / theirs:.2g} × it"
    return f"| {words} | {ours:.3g} {found['unit']} | {wanted} | {peer} | {found['note']} |\n"


HEAD = """# How fast

Every figure of this page is measured by `python -m benchmarks.measured`, each in a process of its
own with one thread: seconds of the processor, of a command and its children. "At most" is what we
want of it, in bold where it is missed; a peer is measured in the same process as ours.
"""
COLUMNS = "| | ours | at most | peer | |\n|---|---|---|---|---|"
ELSEWHERE = """
## Elsewhere

What has a page of its own stands there, with its command:
[people's statistics](explanation/people.md), [training in your own loop](how-to/training-loop.md),
[codes](how-to/encode-a-store.md),
[sealed stores](how-to/sealed-store.md), [a dock's load](how-to/dock.md),
[noise for many references](explanation/worst-case.md), [accounting](how-to/accounting.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="keys, by commas: " + ", ".join(FIGURES))
    parser.add_argument("--slow", action="store_true", help="what needs minutes too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(FIGURES[asked.one][2]().__dict__))
        return
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    chosen = (
        asked.only.split(",")
        if asked.only
        else [key for key in FIGURES if asked.slow or key not in SLOW]
    )
    if unknown := set(chosen) - set(FIGURES):
        parser.error(f"--only: expected keys of {', '.join(FIGURES)}, got {', '.join(unknown)}")
    for key in chosen:
        at = where()
        kept[key] = measure(key) | {"where": at}
        print(_line(FIGURES[key][1], kept[key]), end="", flush=True)
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
