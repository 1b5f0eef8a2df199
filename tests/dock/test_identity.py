"""A dock deletes only what is its own, and nobody but its owner reads what it keeps."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from tacit_dock import DockStore
from tacit_dock.blobs import TRASH_SECONDS
from tacit_dock.examples import Example, keep_example
from tests.dock.learnwares import dock, files, keep, specification, weights

MANY = 30


def filled(folder: Path, count: int = MANY) -> list[str]:
    with DockStore(folder) as store:
        return [keep(store, files(specification(n)), key=f"k{n}")["id"] for n in range(count)]


def contents(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs").rglob("*") if path.is_file()}


def test_a_new_database_beside_contents_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    filled(tmp_path / "dock")
    before = contents(tmp_path / "dock")
    with pytest.raises(ValueError, match="holds contents of a dock"):
        DockStore(tmp_path / "dock", str(tmp_path / "new.sqlite"))
    assert contents(tmp_path / "dock") == before
    assert list(tmp_path.glob("new.sqlite*")) == []
    with dock(tmp_path / "dock") as found:
        assert len(found.client.get("/v1/learnwares").json()["items"]) == MANY
        assert found.client.get("/v1/health").json()["status"] == "ok"
    assert contents(tmp_path / "dock") == before


def test_the_database_of_another_dock_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "one", 2)
    filled(tmp_path / "other", 2)
    before = contents(tmp_path / "one")
    with pytest.raises(ValueError, match="of another dock than the folder"):
        DockStore(tmp_path / "one", str(tmp_path / "other" / "dock.sqlite"))
    with pytest.raises(ValueError, match=r"is empty, and .* is of a dock with records"):
        DockStore(tmp_path / "nothing", str(tmp_path / "other" / "dock.sqlite"))
    (tmp_path / "one" / "dock.id").write_text("\x00 nobody")
    with pytest.raises(ValueError, match="expected the identity of a dock"):
        DockStore(tmp_path / "one")
    assert contents(tmp_path / "one") == before


def test_a_dock_from_before_is_given_an_identity_once(tmp_path: Path) -> None:
    import sqlite3

    filled(tmp_path, 2)
    (tmp_path / "dock.id").unlink()
    with sqlite3.connect(tmp_path / "dock.sqlite") as held:
        held.execute("DELETE FROM dock_meta WHERE key = 'identity'")
    with DockStore(tmp_path):
        pass
    first = (tmp_path / "dock.id").read_text()
    with DockStore(tmp_path) as store:
        assert len(store.learnwares().items) == 2
    assert (tmp_path / "dock.id").read_text() == first


def test_an_old_backup_removes_nothing_where_most_would_go(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    shutil.copy(tmp_path / "dock.sqlite", tmp_path / "backup.sqlite")
    with DockStore(tmp_path) as store:
        for n in range(2, MANY):
            keep(store, files(specification(n)), key=f"k{n}")
    before = contents(tmp_path)
    with dock(tmp_path, database=str(tmp_path / "backup.sqlite")) as found:
        told = found.client.get("/v1/health").json()
        assert told["status"] == "degraded"
        assert "named by no record: nothing was removed" in told["why"]
    assert contents(tmp_path) == before
    with dock(tmp_path) as found:
        assert found.client.get("/v1/health").json()["status"] == "ok"


def test_a_few_contents_without_a_record_are_in_the_trash_for_some_days(tmp_path: Path) -> None:
    filled(tmp_path, 6)
    with DockStore(tmp_path) as store:
        upload = store.blobs.upload("model", 1000)
        upload.write(weights())
        digest = upload.digest
        upload.keep()
        assert store.collect() == 1
        assert store.collect() == 0
        left = store.blobs.trash / digest.removeprefix("sha256:")
        assert left.read_bytes() == weights()
        old = time.time() - TRASH_SECONDS - 10
        os.utime(left, (old, old))
        store.collect()
        assert not left.exists()


def test_what_a_dock_did_not_put_there_stays(tmp_path: Path) -> None:
    """A folder of somebody's own, of which some names are those that a dock uses."""
    old = time.time() - 10 * TRASH_SECONDS
    mine = [tmp_path / name for name in ("trash/letter", "incoming/notes.txt", "reserve")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (old, old))
    with dock(tmp_path) as found:
        gone = found.submit(files(specification(1)))
        found.client.delete(gone.headers["location"], headers=found.headers())
        assert not found.store.reserve.fill(1000)
        assert not found.store.reserve.give()
    assert {path.read_bytes() for path in mine} == {b"mine"}


def test_a_withdrawal_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    secret = b"a sentence of the card that is nowhere else"
    with DockStore(tmp_path / "dock") as store:
        for n in range(5):
            keep(store, files(specification(n)), key=f"k{n}")
        card = b"---\ntitle: " + secret + b"\n---\n" + secret * 20 + b"\n"
        made = keep(store, {**files(specification(9)), "card": card}, key="last")

        def found() -> list[str]:
            held = [path for path in (tmp_path / "dock").rglob("*") if path.is_file()]
            return [path.name for path in held if secret in path.read_bytes()]

        assert found()
        store.withdraw(made["id"], "me", "why")
        assert found() == []


def test_nobody_else_reads_what_a_dock_keeps(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with DockStore(tmp_path / "dock") as store:
            keep(store, files(specification(1), model=weights()))
            store.reserve.fill(1000)
            upload = store.blobs.upload("model", 1000)
            keep_example(store, Example("one", "One", specification(1, "task").to_bytes()))
            for path in [tmp_path / "dock", *(tmp_path / "dock").rglob("*")]:
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
            upload.discard()
    finally:
        os.umask(before)


def test_what_was_open_to_others_is_closed_at_the_next_start(tmp_path: Path) -> None:
    filled(tmp_path / "dock", 2)
    ours = [tmp_path / "dock" / name for name in ("blobs", "incoming", "dock.sqlite")]
    for path in ours:
        path.chmod(0o755)
    with DockStore(tmp_path / "dock"):
        assert {stat.S_IMODE(path.stat().st_mode) for path in ours} <= {0o700, 0o600}
