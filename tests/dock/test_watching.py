"""What an operator is told: counts that add up, readiness, and nothing of a record."""

from __future__ import annotations

import json
import re

from tacit_dock import DockSettings
from tests.dock.learnwares import dock, files, is_problem, specification

LINE = re.compile(r"(tacit_dock_[a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)")


def read(found):
    answer = found.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            told[name, labels or ""] = float(value)
    return told, answer.text


def test_counts_add_up_and_name_no_record(tmp_path):
    with dock(tmp_path, DockSettings(metrics=True)) as found:
        place = found.submit(files(specification(1))).headers["location"]
        sent = len(specification(1).to_bytes())
        for _ in range(3):
            found.client.get(place)
        found.client.head(f"{place}/")
        found.client.get("/v1/learnwares/" + "0" * 32)
        found.client.get("/etc/passwd?token=secret")
        found.client.request("BREW", "/v1/health")
        told, text = read(found)
        record = 'method="{}",path="/v1/learnwares/{{identifier}}",status="{}"'
        requests = "tacit_dock_requests_total"
        assert told[requests, record.format("GET", 200)] == 3
        assert told[requests, record.format("HEAD", 200)] == 1
        assert told[requests, record.format("GET", 404)] == 1
        assert told[requests, 'method="GET",path="other",status="404"'] == 1
        counted = sum(value for (name, _), value in told.items() if name == requests)
        assert told["tacit_dock_seconds_count", ""] == counted == 8
        assert told["tacit_dock_seconds_bucket", 'le="+Inf"'] == counted
        bins = [v for (name, _), v in told.items() if name == "tacit_dock_seconds_bucket"]
        assert bins == sorted(bins)
        assert told["tacit_dock_received_bytes_total", ""] > sent
        assert told["tacit_dock_index_learnwares", ""] == 0
        found.search(specification(1, "task"))
        told, _ = read(found)
        assert told["tacit_dock_index_learnwares", ""] == 1
        # this request itself
        assert told["tacit_dock_places_taken", ""] == 1
        assert told["tacit_dock_arriving", ""] == told["tacit_dock_arriving_bytes", ""] == 0
        for word in (place.rsplit("/", 1)[1], "secret", "passwd", "Digits", "me", "BREW"):
            assert not re.search(rf"\b{word}\b", text), word


def test_metrics_are_told_where_they_were_asked_for(dock):
    is_problem(dock.client.get("/metrics"), 404)


def test_a_server_is_ready_between_start_and_stop(dock):
    assert dock.client.get("/v1/ready").json() == {"status": "ready"}
    dock.client.app.state.ready = False
    answer = dock.client.get("/v1/ready")
    is_problem(answer, 503)
    assert answer.headers["retry-after"] == "1"
    assert dock.client.get("/v1/health").status_code == 200


def test_who_did_what_is_written_down_with_the_change(tmp_path, tacit):
    with dock(tmp_path) as found:
        made = found.submit(files(specification(1)))
        place, first = made.headers["location"], made.json()["revision"]
        headers = found.headers(**{"If-Match": "*"})
        found.client.put(place, files=files(specification(2)), headers=headers)
        # what was refused is no deed
        found.submit(files(specification(2)))
        found.client.delete(place, headers=found.headers("other"))
        found.client.delete(place, headers=found.headers())
        found.store.revoke_token(2)
        deeds = found.store.deeds()
        second = specification(2).revision
        name = made.json()["id"]
    assert [(d.who, d.what, d.learnware, d.detail) for d in reversed(deeds)] == [
        ("operator", "token", "", "1 of me"),
        ("operator", "token", "", "2 of other"),
        ("me", "submit", name, first),
        ("me", "revise", name, second),
        ("me", "withdraw", name, second),
        ("operator", "revoke", "", "2 of other"),
    ]
    shown = tacit("dock", "log", "--folder", tmp_path, "--limit", "3")
    assert shown.code == 0
    assert [line.split()[2] for line in shown.out.splitlines()[:3]] == [
        "revoke", "withdraw", "revise"
    ]  # fmt: skip
    told = json.loads(tacit("dock", "log", "--folder", tmp_path, "--json", "-").out)
    assert len(told["deeds"]) == 6
    assert "tacit_" not in json.dumps(told)
