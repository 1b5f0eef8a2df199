"""What a start is quick by says what the contents say, and nothing of what is gone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from tacit_dock import DockSettings, DockStore
from tacit_dock.api.application import _settle
from tacit_dock.records import Filters
from tacit_dock.reserve import FullError
from tacit_dock.search.index import Index
from tests.dock.learnwares import OCTETS, dock, files, keep, specification

COUNT = 40


def indexed(store: DockStore) -> Index:
    made = Index(store, "quantised")
    made.refresh()
    return made


def found(index: Index) -> list[tuple[str, float]]:
    match = index.search(specification(3, "task"), 12, Filters())
    return [(one.id, one.similarity) for one in match.found]


def names(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "index").rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    place = tmp_path_factory.mktemp("filled")
    with DockStore(place) as made:
        for seed in range(COUNT):
            keep(made, files(specification(seed)), key=f"k{seed}")
    return place


@pytest.fixture
def store(filled, tmp_path):
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    with DockStore(tmp_path) as made:
        yield made


@pytest.fixture
def reads(store, monkeypatch):
    """Digests of the contents that are read."""
    seen: list[str] = []
    read = store.blobs.read
    monkeypatch.setattr(store.blobs, "read", lambda digest: seen.append(digest) or read(digest))
    return seen


def test_a_start_reads_rows_and_not_contents(store, reads):
    first = indexed(store)
    truth = found(first)
    assert len(truth) == 12
    assert len(reads) == COUNT
    assert first.keep() == COUNT
    reads.clear()
    second = indexed(store)
    assert found(second) == truth
    assert reads == []
    assert second.status()["unchecked"] == COUNT
    assert second.keep() == 0
    assert second.check() == 0
    assert len(reads) == COUNT
    assert second.status()["unchecked"] == 0


def test_what_came_since_is_read_and_kept_behind(store, reads):
    indexed(store).keep()
    new = keep(store, files(specification(COUNT)), key="new")
    reads.clear()
    second = indexed(store)
    assert len(reads) == 1
    truth = found(second)
    assert second.keep() == 1
    reads.clear()
    third = indexed(store)
    assert found(third) == truth
    assert reads == []
    assert third.status()["learnwares"] == COUNT + 1
    assert new["id"] in {one.id for one in store.learnwares(limit=100).items}


def test_what_is_withdrawn_is_nowhere_in_its_files(store, tmp_path):
    index = indexed(store)
    index.keep()
    gone, other = specification(7), specification(8)
    held = {one.revision: one for one in store.learnwares(limit=100).items}

    def there(made):
        texts = [path.read_bytes() for path in names(tmp_path)]
        return [any(word in text for text in texts) for word in (
            made.vector.tobytes(), made.revision.removeprefix("sha256:").encode()
        )]  # fmt: skip

    bits = {path.name: path.stat().st_size for path in names(tmp_path)}
    assert there(gone) == there(other) == [True, True]
    store.withdraw(held[gone.revision].id, held[gone.revision].developer)
    assert there(gone) == [False, False]
    assert there(other) == [True, True]
    assert {path.name: path.stat().st_size for path in names(tmp_path)} == bits
    place = next((tmp_path / "index").iterdir())
    digits = np.fromfile(place / "names", dtype="S64")
    at = int(np.flatnonzero(digits == b"")[0])
    for path in names(tmp_path):
        if path.name.isdigit():
            assert not np.fromfile(path, dtype=np.uint8).reshape(COUNT, -1)[at].any()
    second = indexed(store)
    assert found(second) == found(index)
    assert held[gone.revision].id not in dict(found(second))


def test_what_is_withdrawn_while_it_is_written_is_erased(store, tmp_path, monkeypatch):
    index, gone = indexed(store), specification(5)
    held = {one.revision: one for one in store.learnwares(limit=100).items}[gone.revision]
    refresh = index.refresh

    def late() -> None:
        monkeypatch.setattr(index, "refresh", refresh)
        store.withdraw(held.id, held.developer)
        refresh()

    index.search(specification(3, "task"), 1, Filters())
    monkeypatch.setattr(index, "refresh", late)
    index.keep()
    assert not any(gone.vector.tobytes() in path.read_bytes() for path in names(tmp_path))


def test_a_content_that_is_damaged_is_found_and_left_out(store):
    index = indexed(store)
    index.keep()
    best = found(index)[0][0]
    digest = store.content(best, "specification")
    path = store.blobs.path(digest)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    second = indexed(store)
    assert found(second)[0][0] == best
    assert second.check() == 1
    assert best not in dict(found(second))
    assert second.status()["unreadable"] == 1
    third = indexed(store)
    assert best not in dict(found(third))
    assert third.status()["unreadable"] == 1


def test_a_row_that_is_not_its_contents_is_made_anew(store, tmp_path):
    index = indexed(store)
    truth = found(index)
    index.keep()
    rows = next((tmp_path / "index").glob("*/rows"))
    held = np.fromfile(rows, dtype=np.float32)
    held[: len(held) // COUNT * 3] *= -1.0
    held.tofile(rows)
    second = indexed(store)
    assert second.check() == 3
    assert sorted(found(second)) == sorted(truth)
    assert sorted(found(indexed(store))) == sorted(truth)


@pytest.mark.parametrize("name", ["names", "rows", "last"])
def test_what_a_server_that_was_killed_left_is_written_over(store, tmp_path, name):
    index = indexed(store)
    truth = found(index)
    index.keep()
    place = next((tmp_path / "index").iterdir())
    if name == "last":
        # the row was written, its name was not
        with open(place / "names", "r+b") as stream:
            stream.truncate(64 * (COUNT - 1) + 10)
    else:
        with open(place / name, "ab") as stream:
            stream.write(b"x" * 50)
    second = indexed(store)
    assert sorted(found(second)) == sorted(truth)
    keep(store, files(specification(COUNT)), key="new")
    second.refresh()
    assert second.keep() == (2 if name == "last" else 1)
    third = indexed(store)
    assert sorted(found(third)) == sorted(found(second))
    assert third.check() == 0


@pytest.mark.parametrize("change", [{"bits": "faiss 0"}, {"records": {}}, {"made": None}, None])
def test_files_of_another_form_are_none(store, tmp_path, reads, change):
    index = indexed(store)
    truth = found(index)
    index.keep()
    form = next((tmp_path / "index").glob("*/form.json"))
    told = json.loads(form.read_text())
    form.write_text("[" if change is None else json.dumps({**told, **change}))
    reads.clear()
    second = indexed(store)
    assert found(second) == truth
    if change != {"made": None}:
        assert len(reads) == COUNT
        assert second.keep() == COUNT
    assert found(indexed(store)) == truth


def test_a_centre_that_was_cut_off_is_made_anew(store, tmp_path, reads):
    index = indexed(store)
    truth = found(index)
    index.keep()
    centre = next((tmp_path / "index").glob("*/*.centre"))
    centre.write_bytes(centre.read_bytes()[:-4])
    reads.clear()
    second = indexed(store)
    assert (found(second), len(reads)) == (truth, COUNT)
    assert second.keep() == COUNT
    reads.clear()
    assert (found(indexed(store)), reads) == (truth, [])


def test_what_is_withdrawn_is_erased_where_its_content_cannot_be_removed(
    store, tmp_path, monkeypatch
):
    indexed(store).keep()
    gone = specification(7)
    held = {one.revision: one for one in store.learnwares(limit=100).items}[gone.revision]

    def broken(digest):
        raise OSError("the disk does not answer")

    monkeypatch.setattr(store.blobs, "remove", broken)
    with pytest.raises(OSError, match="does not answer"):
        store.withdraw(held.id, held.developer)
    rows = next((tmp_path / "index").glob("*/rows"))
    assert gone.vector.tobytes() not in rows.read_bytes()


def test_rows_of_another_server_stay(store):
    one, other = indexed(store), indexed(store)
    assert one.keep() == COUNT
    assert other.keep() == 0
    keep(store, files(specification(COUNT)), key="new")
    for index in (one, other):
        index.refresh()
    assert one.keep() == 1
    assert other.keep() == 0
    assert sorted(found(indexed(store))) == sorted(found(other))


def test_small_spaces_are_not_kept(store, tmp_path):
    index = Index(store, "auto")
    index.refresh()
    assert index.keep() == 0
    assert not (tmp_path / "index").exists()


def test_a_disk_without_room_costs_time_at_the_next_start_alone(store, tmp_path, monkeypatch):
    index = indexed(store)
    truth = found(index)
    monkeypatch.setattr("tacit_dock.search.index.SPARE_BYTES", 1 << 60)
    with pytest.raises(FullError):
        index.keep()
    _settle(index)
    assert not list((tmp_path / "index").rglob("names"))
    assert found(index) == found(indexed(store)) == truth


def test_a_full_disk_is_no_reason_to_believe_what_was_kept(store, monkeypatch):
    index = indexed(store)
    index.keep()
    best = found(index)[0][0]
    path = store.blobs.path(store.content(best, "specification"))
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    monkeypatch.setattr("tacit_dock.search.index.SPARE_BYTES", 1 << 60)
    second = indexed(store)
    _settle(second)
    assert (second.status()["unchecked"], second.status()["unreadable"]) == (0, 1)
    assert best not in dict(found(second))


def test_a_dock_keeps_its_index_and_reads_the_contents_once_it_is_ready(filled, tmp_path):
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    for _ in range(2):
        with dock(tmp_path, DockSettings(index="quantised")) as running:
            task = specification(3, "task").to_bytes()
            answer = running.client.post("/v1/search", content=task, headers=OCTETS)
            assert len(answer.json()["items"]) == 10
            for _ in range(400):
                told = running.client.get("/v1/health").json()["index"]
                kept = sum(path.stat().st_size for path in tmp_path.glob("index/*/names"))
                if kept == 64 * COUNT and not told["unchecked"]:
                    break
                time.sleep(0.05)
            assert (kept, told["unchecked"], told["unreadable"]) == (64 * COUNT, 0, 0)
