"""A database or a disk that is gone: said as such, and nothing is acknowledged that is nowhere."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from pathlib import Path

import pytest

from tacit_dock import DockStore
from tests.dock.learnwares import dock, files, is_problem, specification


def saved(folder: Path, target: Path) -> None:
    """Back the database up as the how-to says."""
    one, other = sqlite3.connect(folder / "dock.sqlite"), sqlite3.connect(target)
    one.backup(other)
    one.close()
    other.close()


@pytest.mark.parametrize("by", ["nothing", "an older one"])
def test_nothing_is_acknowledged_that_a_lost_database_would_hold(tmp_path: Path, by: str) -> None:
    folder = tmp_path / "dock"
    with dock(folder) as found:
        place = found.submit(files(specification(1))).headers["location"]
        saved(folder, tmp_path / "backup.sqlite")
        later = found.submit(files(specification(2)), key="later")
        assert later.status_code == 201
        for path in folder.glob("dock.sqlite*"):
            path.rename(tmp_path / path.name)
        if by == "an older one":
            shutil.copy(tmp_path / "backup.sqlite", folder / "dock.sqlite")
        before = sorted(path.name for path in folder.glob("dock.sqlite*"))
        for _ in range(3):
            is_problem(found.submit(files(specification(3)), key="lost"), 503)
            is_problem(found.client.delete(place, headers=found.headers()), 503)
        # no file is made in the place of one that is gone
        assert sorted(path.name for path in folder.glob("dock.sqlite*")) == before
    for path in folder.glob("dock.sqlite*"):
        path.unlink()
    with pytest.raises(ValueError, match="holds contents of a dock"):
        DockStore(folder)
    assert list(folder.glob("dock.sqlite*")) == []
    # what is found again is the dock, with all that was acknowledged
    for path in tmp_path.glob("dock.sqlite*"):
        path.rename(folder / path.name)
    with dock(folder) as found:
        assert len(found.client.get("/v1/learnwares").json()["items"]) == 2
        assert found.submit(files(specification(2)), key="later").json() == later.json()
        assert found.submit(files(specification(3)), key="lost").status_code == 201
        assert found.client.delete(place, headers=found.headers()).status_code == 204


def test_contents_that_are_gone_are_said_and_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dock"
    with dock(folder) as found:
        place = found.submit(files(specification(1))).headers["location"]
        for name in ("blobs", "incoming"):
            (folder / name).rename(tmp_path / name)
        with caplog.at_level(logging.INFO, logger="tacit_dock"):
            is_problem(found.submit(files(specification(2)), key="k"), 503)
            answer = found.client.get(f"{place}/specification")
            is_problem(answer, 503)
        assert "sha256" not in answer.text
        assert any("folder: no content sha256" in line for line in caplog.messages)
        # records are read
        assert found.client.get(place).status_code == 200
        assert found.search(specification(1, "task")).json()["items"] == []
        assert found.client.get("/v1/health").json()["index"]["unreadable"] == 1
        for name in ("blobs", "incoming"):
            (tmp_path / name).rename(folder / name)
        assert found.client.get(f"{place}/specification").status_code == 200
        monkeypatch.setattr(found.client.app.state.dock.index, "_again", 0.0)
        assert found.search(specification(1, "task")).json()["items"]
        assert found.client.get("/v1/health").json()["index"]["unreadable"] == 0
        assert found.submit(files(specification(2)), key="k").status_code == 201
