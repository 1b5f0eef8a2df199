"""Processes that compete for one budget."""

from __future__ import annotations

import subprocess
import sys

# One process imports, and forks those that compete from one starting signal.
RACE = """
import multiprocessing, sys
from tacit.guarantees import InformationBound
from tacit.ledger import BudgetExceededError, Ledger
bound = InformationBound(nats=0.125, secret="rows", evidence="theorem", assumptions=(), source="t")
location, runners = sys.argv[1], int(sys.argv[2])
fork = multiprocessing.get_context("fork")
start, found = fork.Barrier(runners), fork.SimpleQueue()

def compete(index):
    ledger = Ledger(location)
    start.wait(60)
    won = 0
    for attempt in range(8):
        try:
            ledger.reserve("s", bound, f"{index}/{attempt}").commit({})
            won += 1
        except BudgetExceededError:
            pass
    found.put(won)

started = [fork.Process(target=compete, args=(index,)) for index in range(runners)]
for process in started:
    process.start()
for process in started:
    process.join()
assert [process.exitcode for process in started] == [0] * runners
print(*(found.get() for _ in started))
"""


def race(location: str, runners: int = 5) -> list[int]:
    """Let processes compete; return how many reservations each won."""
    command = [sys.executable, "-c", RACE, location, str(runners)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [int(won) for won in done.stdout.split()]
