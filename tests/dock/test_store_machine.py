"""Whatever is done in whatever order, a store tells what a plain dictionary would."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tacit_dock import DockSettings, DockStore, Filters, RefusedError, examine
from tacit_dock.search.index import Index
from tests.dock.learnwares import files, keep, specification

SEEDS = st.integers(0, 5)
DEVELOPERS = st.sampled_from(["me", "other"])
KEYS = st.sampled_from(["a", "b", "c"])


def change(store, name, expected, seed, developer):
    uploads = {}
    try:
        for part, content in files(specification(seed)).items():
            uploads[part] = store.blobs.upload(part, 1 << 20)
            uploads[part].write(content)
        made = examine(uploads, {}, DockSettings())
        store.revise(name, expected, made, developer, DockSettings())
    finally:
        for upload in uploads.values():
            upload.discard()


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.open()
        self.live: dict[str, tuple[str, list[int]]] = {}
        self.gone: set[str] = set()
        self.answers: dict[tuple[str, str], tuple[int, dict]] = {}

    def open(self):
        self.store = DockStore(Path(self.folder.name))
        self.index = Index(self.store)

    def taken(self, seed):
        return any(seed in seeds for _, seeds in self.live.values())

    @rule(seed=SEEDS, developer=DEVELOPERS, key=KEYS)
    def submit(self, seed, developer, key):
        known = self.answers.get((developer, key))
        ended = known is not None and known[1]["id"] in self.gone
        refused = known[0] != seed or ended if known is not None else self.taken(seed)
        if refused:
            with pytest.raises(RefusedError) as caught:
                keep(self.store, files(specification(seed)), developer, key)
            expected = 409 if known is None else 422 if known[0] != seed else 410
            assert caught.value.status == expected
            return
        answer = keep(self.store, files(specification(seed)), developer, key)
        if known is not None:
            assert known == (seed, answer)
            return
        self.answers[developer, key] = (seed, answer)
        self.live[answer["id"]] = (developer, [seed])

    @rule(place=st.integers(0, 9), seed=SEEDS, developer=DEVELOPERS)
    def revise(self, place, seed, developer):
        if not self.live:
            return
        name = sorted(self.live)[place % len(self.live)]
        owner, seeds = self.live[name]
        expected = specification(seeds[-1]).revision
        if owner == developer and not self.taken(seed):
            change(self.store, name, expected, seed, developer)
            seeds.append(seed)
            return
        with pytest.raises(RefusedError) as caught:
            change(self.store, name, expected, seed, developer)
        assert caught.value.status == (403 if owner != developer else 409)

    @rule(place=st.integers(0, 9), developer=DEVELOPERS)
    def withdraw(self, place, developer):
        names = sorted({*self.live, *self.gone})
        if not names:
            return
        name = names[place % len(names)]
        if name in self.live and self.live[name][0] != developer:
            with pytest.raises(RefusedError) as caught:
                self.store.withdraw(name, developer)
            assert caught.value.status == 403
        elif name in self.live:
            assert self.store.withdraw(name, developer, "why").reason == "why"
            del self.live[name]
            self.gone.add(name)

    @rule()
    def restart(self):
        self.store.close()
        self.open()
        assert self.store.collect() == 0

    @invariant()
    def tells_what_is_there(self):
        found = {one.id: one for one in self.store.learnwares().items}
        assert set(found) == set(self.live)
        for name, (owner, seeds) in self.live.items():
            history = [held.revision for held in self.store.learnware(name).history]
            assert found[name].history[0].revision == history[0]
            assert history == [specification(seed).revision for seed in reversed(seeds)]
            assert found[name].developer == owner
        for name in self.gone:
            assert self.store.learnware(name).status == "withdrawn"
        parts = [files(specification(s)) for _, seeds in self.live.values() for s in seeds]
        contents = {
            f"sha256:{hashlib.sha256(held[name]).hexdigest()}"
            for held in parts
            for name in ("specification", "release")
        }
        assert set(self.store.blobs.digests()) == contents

    @invariant()
    def finds_what_is_there(self):
        match = self.index.search(specification(0, "task"), 10, Filters())
        assert {one.id for one in match.found} == set(self.live)

    def teardown(self):
        self.store.close()
        self.folder.cleanup()


StoreMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestStore = StoreMachine.TestCase
