"""Processes that spend from one budget while they are killed: what was promised is there.

``python -m tests.ledger.chaos LOCATION PROCESSES SPENDS KILLS SEED`` prints what came of it.
Every process has SPENDS releases to reserve and commit; one that is killed is followed by another
that goes on where it was. What a process was told is written to its file at once, so a release that
was acknowledged and is not in the ledger afterwards is lost.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from tacit.guarantees import InformationBound
from tacit.ledger import BudgetExceededError, Ledger

COST = 2.0**-10
BOUND = InformationBound(
    nats=COST, secret="rows drawn", evidence="theorem", assumptions=("none",), source="test"
)
# less than is asked for, so that the end of the budget is raced for
SHARE = Fraction(3, 4)


@dataclass(frozen=True)
class Outcome:
    """What came of it; ``lost`` were acknowledged and are not there as acknowledged."""

    asked: int
    kills: int
    reserved: int
    committed: int
    unacknowledged: int
    refused: int
    lost: int
    overspent: float
    unspent: float
    whole: bool
    failures: list[str]
    seconds: float


def spend(location: str, log: Path, spends: int) -> None:
    """Reserve and commit until ``spends`` releases were acknowledged or refused."""
    done = sum(line[0] in "ax" for line in log.read_text().splitlines()) if log.exists() else 0
    out = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    ledger = Ledger(location)
    for _ in range(done, spends):
        try:
            reservation = ledger.reserve("s", BOUND, log.name)
        except BudgetExceededError:
            os.write(out, b"x 0\n")
            continue
        os.write(out, f"a {reservation.number}\n".encode())
        reservation.commit({"release": [1.0]})
        os.write(out, f"c {reservation.number}\n".encode())


def start(location: str, log: Path, spends: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        spend(location, log, spends)
        code = 0
    except BaseException as error:
        (log.with_suffix(".failed")).write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def run(location: str, processes: int, spends: int, kills: int, seed: int) -> Outcome:
    begun = time.monotonic()
    rng = random.Random(seed)
    budget = float(processes * spends * Fraction(COST) * SHARE)
    Ledger(location).set_budget("s", mi_budget=budget)
    folder = Path(tempfile.mkdtemp())
    logs = [folder / f"{index}.log" for index in range(processes)]
    living = {start(location, log, spends): log for log in logs}
    killed = 0
    while living:
        time.sleep(rng.expovariate(20.0))
        finished, status = os.waitpid(-1, os.WNOHANG)
        while finished:
            log = living.pop(finished)
            if os.WIFSIGNALED(status):
                living[start(location, log, spends)] = log
            finished, status = os.waitpid(-1, os.WNOHANG) if living else (0, 0)
        if killed < kills and living:
            os.kill(rng.choice(sorted(living)), signal.SIGKILL)
            killed += 1
    return _outcome(location, logs, budget, killed, processes * spends, begun)


def _outcome(
    location: str, logs: list[Path], budget: float, kills: int, asked: int, begun: float
) -> Outcome:
    ledger = Ledger(location)
    entries = {entry.number: entry for entry in ledger.entries("s")}
    said = [line.split() for log in logs for line in log.read_text().splitlines()]
    reserved = {int(number) for kind, number in said if kind == "a"}
    committed = {int(number) for kind, number in said if kind == "c"}
    lost = {n for n in reserved if n not in entries or not entries[n].counts}
    lost |= {n for n in committed if n not in entries or entries[n].status != "committed"}
    spent = sum(Fraction(e.charge.nats) for e in entries.values() if e.counts)
    failed = [log.with_suffix(".failed") for log in logs]
    return Outcome(
        asked=asked,
        kills=kills,
        reserved=len(reserved),
        committed=len(committed),
        unacknowledged=len(entries) - len(reserved),
        refused=sum(kind == "x" for kind, _ in said),
        lost=len(lost),
        overspent=float(max(spent - Fraction(budget), Fraction(0))),
        unspent=float(Fraction(budget) - spent),
        whole=ledger.verify().holds and Fraction(ledger.spent("s").nats) == spent,
        failures=[path.read_text() for path in failed if path.exists()],
        seconds=time.monotonic() - begun,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(sys.argv[1], *map(int, sys.argv[2:6])))))
