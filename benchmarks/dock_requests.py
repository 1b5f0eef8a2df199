"""Requests that follow from answers, sent to a dock for an hour: ``python -m benchmarks.dock_requests``.

schemathesis makes them from the dock's OpenAPI description, round after round, each with a seed and
a dock of its own; an answer of 500 or above, or one that tells what is inside the server, is a
finding. The seed of a round is its number, and a run goes on behind the last. How many were sent,
what was answered and the findings are kept in benchmarks/fuzz.json under "requests to a dock".
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from typing import Any

from hypothesis.errors import Flaky
from tests.dock.stateful import STEPS, round_of

from benchmarks.fuzz import KEPT

# A round makes its ways to draw anew: few of them do it once for many requests.
ENTRY, EXAMPLES = "requests to a dock", 60


def known() -> dict[str, Any]:
    """Return all that was kept of fuzzing."""
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return found


def keep(told: dict[str, Any]) -> None:
    """Put what is known by now beside what the readers' fuzzing left."""
    making = KEPT.with_name(f"{KEPT.name}.{os.getpid()}")
    content = json.dumps(known() | {ENTRY: told}, indent=1, ensure_ascii=False)
    making.write_text(content + "\n", "utf-8")
    making.replace(KEPT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--anew", action="store_true", help="forget the rounds of before")
    asked = parser.parse_args()
    before = {} if asked.anew else known().get(ENTRY, {})
    statuses = Counter({int(name): many for name, many in before.get("answered", {}).items()})
    findings, number = list(before.get("findings", [])), int(before.get("rounds", 0))
    began, earlier = time.monotonic(), float(before.get("seconds", 0))
    while time.monotonic() - began < asked.seconds:
        number += 1
        try:
            round_of(number, examples=EXAMPLES, statuses=statuses)
        except Flaky:
            # answers differ from one time to the next, which hypothesis ends a round for
            pass
        except Exception as error:  # whatever it is, the next round may find more
            findings.append(f"seed {number}: {type(error).__name__}: {str(error)[:300]}")
        told = {
            "rounds": number,
            "requests": sum(statuses.values()),
            "answered": {str(status): many for status, many in sorted(statuses.items())},
            "findings": findings,
            "seconds": round(earlier + time.monotonic() - began),
            "a_round": [EXAMPLES, STEPS],
        }
        keep(told)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
