"""Requests that follow from answers, made from the OpenAPI description, round after round.

``python -m tests.dock.stateful SECONDS [SEED]`` prints one line of JSON a round: its seed, how many
requests there were and what was answered. A round is repeated by its seed. It ends with the first
answer that is a server's error or tells what is inside.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import schemathesis
import sqlalchemy as sa
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tacit_dock import AdmissionPolicy, DockSettings, DockStore, create_application
from tacit_dock.search.index import Index
from tacit_dock.tables import meta_table, metadata, token_table
from tests.dock.learnwares import files, keep, specification, weights

EXAMPLES, STEPS = 20, 25
# What only the inside of a server knows: places in it, its libraries, its statements.
INSIDE = re.compile(
    r"Traceback|File \"|/tmp/|site-packages|sqlalchemy|sqlite|SELECT |0x[0-9a-f]{8}"
)
WRITES = (("POST", "/v1/learnwares"), ("PUT", "/v1/learnwares/{identifier}"))


def checked(answer: Any, statuses: Counter[int]) -> None:
    """Hold an answer against what a dock may say."""
    statuses[answer.status_code] += 1
    text = answer.content[:100_000].decode("utf-8", "replace")
    assert answer.status_code < 500, (answer.status_code, text[:500])
    if answer.status_code >= 400:
        media = answer.headers["content-type"]
        assert media in (["application/problem+json"], "application/problem+json"), media
        assert not INSIDE.search(text), text[:500]


def emptied(app: FastAPI) -> None:
    """Have a dock as it was before the first request: what follows depends on nothing earlier."""
    dock = app.state.dock
    with dock.store.database.alone() as connection:
        for table in reversed(metadata.sorted_tables):
            if table not in (meta_table, token_table):
                connection.execute(sa.delete(table))
    dock.store.collect(tuple(dock.store.blobs.digests()))
    app.state.dock = replace(dock, index=Index(dock.store))
    keep(dock.store, files(specification(1)))


def machine(schema: OpenApiSchema, app: FastAPI, token: str, statuses: Counter[int]) -> type:
    """Return the state machine of a description, half of whose submissions are learnwares."""

    class Machine(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            emptied(app)
            # one revision after the other, so that what is not there yet can be submitted
            self.made = iter(range(10**9))

        def before_call(self, case: Any) -> None:
            number = next(self.made)
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {token}"}
            if (case.method, case.operation.path) in WRITES and number % 2:
                parts = files(specification(number % 50), model=weights())
                case.body = {**parts} if number % 3 else dict(list(parts.items())[: number % 5])
                case.media_type = "multipart/form-data"
                case.headers |= {"Idempotency-Key": f"key-{number % 60}", "If-Match": "*"}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            del case
            checked(response, statuses)

    return Machine


def round_of(
    number: int,
    *,
    examples: int = EXAMPLES,
    steps: int = STEPS,
    statuses: Counter[int] | None = None,
) -> Counter[int]:
    """Run one round on a dock of its own; return, or add up, how often each status was answered."""
    statuses = Counter() if statuses is None else statuses
    with tempfile.TemporaryDirectory() as folder, DockStore(folder) as store:
        limits = DockSettings(
            policy=AdmissionPolicy(without="accept"), requests_per_minute=10**9, body_seconds=5.0
        )
        app = create_application(store, limits)
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        found = seed(number)(machine(schema, app, store.create_token("me")[0], statuses))
        run_state_machine_as_test(
            found,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    return statuses


def main(seconds: float, first: int) -> None:
    """Run rounds until the time is over."""
    began, number = time.monotonic(), first
    while time.monotonic() - began < seconds:
        told = dict(sorted(round_of(number).items()))
        print(json.dumps({"seed": number, "requests": sum(told.values()), **told}), flush=True)
        number += 1


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
