"""Processes that compete for one budget."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys
from tacit.guarantees import InformationBound
from tacit.ledger import BudgetExceededError, Ledger
bound = InformationBound(nats=0.125, secret="rows", evidence="theorem", assumptions=(), source="t")
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = 0
for attempt in range(8):
    try:
        ledger.reserve("s", bound, f"{sys.argv[2]}/{attempt}").commit({})
        won += 1
    except BudgetExceededError:
        pass
print(won)
"""


def race(location: str, runners: int = 5) -> list[int]:
    """Let processes compete from one starting signal; return how many reservations each won."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, location, str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(runners)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    won = [int(process.communicate("go\n")[0]) for process in started]
    assert all(process.returncode == 0 for process in started)
    return won
