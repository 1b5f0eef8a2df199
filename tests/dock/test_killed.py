"""kill -9 at random moments: nothing acknowledged is lost, no record is half there."""

from __future__ import annotations

import signal

import httpx
import pytest

from tacit_dock import DockStore
from tests.dock.killed import run, server
from tests.dock.learnwares import files, specification


def held_to(outcome, kills):
    assert outcome.kills == kills
    assert outcome.acknowledged > 0
    assert outcome.lost == []
    assert outcome.halves == []
    assert outcome.orphans == 0


def test_a_server_that_is_killed_keeps_what_it_acknowledged(tmp_path):
    held_to(run(tmp_path / "dock", 2, 1), 2)


@pytest.mark.thorough
def test_a_server_that_is_killed_fifty_times_keeps_what_it_acknowledged(tmp_path):
    outcome = run(tmp_path / "dock", 50, 2)
    held_to(outcome, 50)
    assert outcome.acknowledged > 50


def test_a_server_that_is_told_to_stop_ends_by_itself(tmp_path):
    with server(tmp_path) as (process, address):
        assert httpx.get(f"{address}/v1/learnwares").status_code == 200
        process.send_signal(signal.SIGINT)
        process.wait(30)


def test_two_servers_on_one_store_are_one_dock(tmp_path):
    with DockStore(tmp_path) as store:
        token, _ = store.create_token("me")
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    with server(tmp_path) as (_, one), server(tmp_path) as (_, two):
        parts = files(specification(1))
        first, again = (
            httpx.post(f"{address}/v1/learnwares", files=parts, headers=headers)
            for address in (one, two)
        )
        assert first.status_code == again.status_code == 201
        assert first.content == again.content
        query = specification(1, "task").to_bytes()
        media = {"Content-Type": "application/octet-stream"}
        found = httpx.post(f"{two}/v1/search", content=query, headers=media).json()
        assert found["items"][0]["id"] == first.json()["id"]
