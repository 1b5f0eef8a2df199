"""What a search tells of what it found is what the records say, whenever they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit_dock import DockSettings, DockStore, create_application, examine
from tacit_dock.api.searching import found
from tacit_dock.records import Filters
from tacit_dock.search import index as indexing
from tacit_dock.search.index import Index
from tests.dock.learnwares import card, files, keep, specification


def revised(store: DockStore, identifier: str, seed: int, title: str) -> None:
    found = store.learnware(identifier)
    parts = files(specification(seed), card=card(title))
    uploads = {name: store.blobs.upload(name, 1 << 20) for name in parts}
    try:
        for name, content in parts.items():
            uploads[name].write(content)
        settings = DockSettings()
        made = examine(uploads, {}, settings)
        store.revise(identifier, found.revision, made, "me", settings)
    finally:
        for upload in uploads.values():
            upload.discard()


def told(index: Index) -> list[str]:
    match = index.search(specification(1, "task"), 10, Filters())
    held = index.summaries(one.id for one in match.found)
    return [held[one.id].told["title"] for one in match.found if one.id in held]


def test_a_change_by_another_process_is_told_at_the_next_search(tmp_path: Path) -> None:
    with DockStore(tmp_path) as store, DockStore(tmp_path) as other:
        index = Index(store)
        first = keep(store, files(specification(1), card=card("Old")), key="a")["id"]
        keep(store, files(specification(2), card=card("Beside")), key="b")
        assert told(index) == told(index) == ["Old", "Beside"]
        revised(other, first, 3, "New")
        assert sorted(told(index)) == ["Beside", "New"]
        other.withdraw(first, "me", "")
        assert told(index) == ["Beside"]


def test_what_was_read_before_a_change_is_not_kept(tmp_path: Path, monkeypatch) -> None:
    with DockStore(tmp_path) as store:
        index = Index(store)
        first = keep(store, files(specification(1), card=card("Old")))["id"]
        plain = store.named

        def named(identifiers):
            found = plain(identifiers)
            monkeypatch.setattr(store, "named", plain)
            # another request takes a change over before this one goes on
            revised(store, first, 3, "New")
            index.refresh()
            return found

        monkeypatch.setattr(store, "named", named)
        told(index)
        assert told(index) == ["New"]


def test_what_is_counted_of_all_is_read_once_for_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DockStore(tmp_path) as store, DockStore(tmp_path) as other:
        keep(other, files(specification(1)))
        first = store.facets(), store.spaces()
        assert (first[0]["tag"], first[1][0]["learnwares"]) == ([("mnist", 1)], 1)
        with monkeypatch.context() as patch:
            for name in ("facets", "spaces"):
                patch.setattr(f"tacit_dock.reading.{name}", None)
            assert (store.facets(), store.spaces()) == first
        # what another process changes is told at once
        keep(other, files(specification(2)), key="other")
        assert (store.facets()["tag"], store.spaces()[0]["learnwares"]) == ([("mnist", 2)], 2)


def test_summaries_do_not_grow_without_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(indexing, "MOST_SUMMARIES", 3)
    with DockStore(tmp_path) as store:
        index = Index(store)
        for seed in range(8):
            keep(store, files(specification(seed), card=card(f"T{seed}")), key=f"k{seed}")
        names = [found["id"] for found in (held.summary() for held in store.learnwares().items)]
        index.refresh()
        for at in range(8):
            assert set(index.summaries(names[at:])) == set(names[at:])
            assert len(index._summaries) <= 8


def test_an_answer_is_the_same_as_json_and_as_a_value(tmp_path: Path) -> None:
    with DockStore(tmp_path) as store:
        for seed in range(3):
            # what JSON has to escape
            title = card(f"{seed} é {{}} [] </b>")
            keep(store, files(specification(seed), card=title), key=f"k{seed}")
        dock = create_application(store).state.dock
        content = specification(1, "task").to_bytes()
        for limit in (1, 10):
            answer = found(dock, content, limit, Filters())
            assert json.loads(answer.to_json()) == answer.to_dict()
            assert len(answer.to_dict()["items"]) == min(limit, 3)
