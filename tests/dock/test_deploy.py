"""What an operator starts from: flags are flags, limits fit together, a backup is a dock."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tacit_dock import DockSettings, DockStore, serving
from tests.cli_runner import Tacit
from tests.dock.learnwares import OCTETS, dock, files, keep, specification

DEPLOY = Path(__file__).parents[2] / "deploy"


def service() -> dict[str, str]:
    lines = (DEPLOY / "tacit-dock.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line))


def entry() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text()
    found: list[str] = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    return found


def test_flags_are_flags(tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[DockSettings] = []
    monkeypatch.setattr("tacit_dock.serve", lambda store, settings, listening: ran.append(settings))
    for words in (shlex.split(service()["ExecStart"])[1:], entry()[1:]):
        given = [str(tmp_path) if word == "/var/lib/tacit-dock" else word for word in words]
        given[given.index("--port") + 1] = "0"
        done = tacit(*given)
        assert done.code == 0, done.err
    unit, container = ran
    assert (unit.hosts, unit.proxies, unit.metrics) == (("dock.example.org",), ("127.0.0.1",), True)
    assert (container.hosts, container.proxies) == ((), ())


def test_limits_fit_together() -> None:
    unit, front = service(), (DEPLOY / "nginx.conf").read_text()
    assert int(unit["TimeoutStopSec"]) > serving.STOP_SECONDS
    assert int(unit["LimitNOFILE"]) > serving.MOST_CONNECTIONS
    assert (unit["UMask"], unit["StateDirectoryMode"]) == ("0077", "0700")
    settings = DockSettings()
    sizes = ("max_model", "max_specification", "max_release", "max_card")
    largest = sum(getattr(settings, name) for name in sizes)
    assert int(re.search(r"client_max_body_size (\d+)m", front)[1]) << 20 > largest
    assert int(re.search(r"client_header_timeout (\d+)s", front)[1]) == settings.header_seconds
    assert "proxy_request_buffering off" in front
    assert int(re.search(r"EXPOSE (\d+)", (DEPLOY / "Containerfile").read_text())[1]) == int(
        entry()[entry().index("--port") + 1]
    )


def test_what_a_container_is_made_of_is_not_left_out() -> None:
    root = DEPLOY.parent
    ignored = (root / ".dockerignore").read_text().splitlines()
    needed = ("src", "pyproject.toml", "README.md", "LICENSE", "deploy")
    assert not [name for name in needed for line in ignored if fnmatch(name, line)]
    assert {".git", ".venv", "build"} <= set(ignored)
    # podman leaves a health check out of an image of its own form
    assert "podman build --format docker" in (root / "Makefile").read_text()
    assert "HEALTHCHECK" in (DEPLOY / "Containerfile").read_text()


def test_a_backup_of_a_running_dock_is_a_dock(tmp_path: Path) -> None:
    live, saved = tmp_path / "dock", tmp_path / "saved"
    saved.mkdir()
    with DockStore(live) as store:
        stop, made = threading.Event(), []

        def submit() -> None:
            while not stop.is_set():
                seed = len(made)
                made.append(keep(store, files(specification(seed)), key=f"k{seed}")["id"])

        thread = threading.Thread(target=submit)
        thread.start()
        try:
            while len(made) < 5:
                stop.wait(0.01)
            before = list(made)
            # as the how-to says: the database first, then what it names
            with sqlite3.connect(live / "dock.sqlite") as one, sqlite3.connect(
                saved / "dock.sqlite"
            ) as other:  # fmt: skip
                # in one read, or every submission would begin it anew
                one.execute("BEGIN")
                one.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                one.backup(other)
            one.close()
            other.close()
            for name in ("blobs", "dock.id"):
                copy = shutil.copytree if (live / name).is_dir() else shutil.copy2
                copy(live / name, saved / name)
        finally:
            stop.set()
            thread.join()
    with dock(saved) as found:
        told = found.client.get("/v1/health").json()
        assert (told["status"], told["index"]["unreadable"]) == ("ok", 0)
        listed = {one.id for one in found.store.learnwares(limit=100).items}
        assert set(before) <= listed
        for identifier in listed:
            held = found.client.get(f"/v1/learnwares/{identifier}/specification")
            assert held.status_code == 200
        task = specification(2, "task").to_bytes()
        answer = found.client.post("/v1/search", content=task, headers=OCTETS).json()
        assert answer["items"][0]["similarity"] > 0.99


def test_no_spelling_of_metrics_passes_the_proxy(tmp_path: Path) -> None:
    with dock(tmp_path, DockSettings(metrics=True)) as found:
        assert found.client.get("/metrics/").status_code == 200
    front = (DEPLOY / "nginx.conf").read_text()
    assert re.search(r"location \^~ /metrics \{ deny all; \}", front)
