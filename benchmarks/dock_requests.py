"""Requests that follow from answers, sent to a dock for an hour: ``python -m benchmarks.dock_requests``.

schemathesis makes them from the dock's OpenAPI description, round after round, each with a seed and
a dock of its own; an answer of 500 or above, or one that tells what is inside the server, is a
finding, and a round is the same again by its seed. How many were sent, what was answered and the
findings are kept in benchmarks/fuzz.json under "requests to a dock".
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from typing import Any

from tests.dock.stateful import STEPS, round_of

from benchmarks.fuzz import KEPT

# A round makes its ways to draw anew: few of them do it once for many requests.
ENTRY, EXAMPLES = "requests to a dock", 120


def kept(told: dict[str, Any]) -> None:
    """Put what is known by now beside what the readers' fuzzing left."""
    found = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    found[ENTRY] = told
    making = KEPT.with_name(f"{KEPT.name}.{os.getpid()}")
    making.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    making.replace(KEPT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    asked = parser.parse_args()
    began, number = time.monotonic(), asked.seed
    statuses: Counter[int] = Counter()
    findings: list[str] = []
    while time.monotonic() - began < asked.seconds:
        try:
            statuses += round_of(number, examples=EXAMPLES)
        except Exception as error:  # whatever it is, the next round may find more
            findings.append(f"seed {number}: {type(error).__name__}: {str(error)[:300]}")
        number += 1
        told = {
            "seeds": [asked.seed, number - 1],
            "requests": sum(statuses.values()),
            "answered": {str(status): many for status, many in sorted(statuses.items())},
            "findings": findings,
            "seconds": round(time.monotonic() - began),
            "a_round": [EXAMPLES, STEPS],
        }
        kept(told)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
