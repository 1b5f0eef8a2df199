"""A sealed store does what a store does, in every place; its files hold nothing that is sealed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tacit.hidden_states import ProductCodebook, ProductFit
from tacit.stores import Document, SealedStore, StoreSettings
from tacit.stores.backends.base import ClearColumns, Records
from tacit.stores.documents import person_of

from .places import (
    COUNT,
    KEY,
    OTHER,
    PLACES,
    WIDTH,
    book,
    documents,
    filled,
    forms,
    on_disk,
    vectors,
)


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return lambda: PLACES[request.param](tmp_path)


def ids(hits):
    return [hit.document.id for hit in hits]


def exact(query, k):
    return [f"id-{n}" for n in np.argsort(-(vectors() @ query), kind="stable")[:k]]


def test_a_search_of_all_documents_is_exact_and_another_process_finds_the_same(place):
    store = filled(place())
    query = vectors(1, 5)[0]
    assert ids(store.search(query, 7, shortlist=COUNT)) == exact(query, 7)
    assert ids(SealedStore(book(), KEY, place()).search(query, 7, shortlist=COUNT)) == exact(
        query, 7
    )
    hit = store.search(vectors()[3], 1)[0]
    assert hit.document == documents()[3]
    assert hit.score == pytest.approx(1.0, abs=1e-6)
    assert len(store.search(vectors(3, 5), 2)) == 3


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_every_metric_ranks_by_itself(tmp_path, metric):
    rows = vectors() * np.linspace(0.5, 2.0, COUNT, dtype=np.float32)[:, None]
    for name in ("folder", "faiss"):
        backend = PLACES[name](tmp_path / name)
        store = SealedStore(book(), KEY, backend, StoreSettings(metric=metric))
        store.add(documents(), rows)
        query = vectors(1, 5)[0]
        scores = rows @ query if metric == "dot" else -((rows - query) ** 2).sum(axis=1)
        found = store.search(query, 5, shortlist=COUNT)
        assert ids(found) == [f"id-{n}" for n in np.argsort(-scores)[:5]]
        assert found[0].score == pytest.approx(scores.max(), rel=1e-5)
        # the shortlist is what scores of decoded codes say
        decoded = book().decode(book().encode(rows)).numpy()
        stage = decoded @ query if metric == "dot" else -((decoded - query) ** 2).sum(axis=1)
        among = set(np.argsort(-stage)[:12].tolist())
        got = {int(name[3:]) for name in ids(store.search(query, 10, shortlist=12))}
        ties = {n for n in range(COUNT) if stage[n] >= np.sort(stage)[-12] - 1e-5}
        assert got <= among | ties


def test_documents_are_deleted_added_again_and_opened_by_id(place):
    store = filled(place())
    store.delete(["id-3", "id-7"])
    assert len(store) == COUNT - 2
    assert "id-3" not in store
    assert "id-4" in store
    assert "id-3" not in ids(store.search(vectors()[3], 10))
    with pytest.raises(ValueError, match=r"names\[1\]"):
        store.delete(["id-4", "id-3"])
    assert "id-4" in store
    store.add([Document(id="id-3", text="anew")], vectors()[3:4])
    assert store.get(["id-3", "id-5"]) == (Document(id="id-3", text="anew"), documents()[5])
    assert ids(store.search(vectors()[3], 1)) == ["id-3"]


def test_a_key_is_rotated_and_the_old_one_opens_nothing(place):
    store = filled(place())
    before = {bytes(row) for row in store._columns.handles}
    store.rotate(OTHER)
    assert ids(store.search(vectors()[3], 1)) == ["id-3"]
    # handles and versions are others: no row of an old copy is recognised by them
    assert before.isdisjoint({bytes(row) for row in store._columns.handles})
    assert len(set(store._columns.versions.tolist())) == 1
    store.add(documents(1, 500), vectors(1, 9))
    with pytest.raises(ValueError, match="key: expected the key"):
        SealedStore(book(), KEY, place())
    assert len(SealedStore(book(), OTHER, place())) == COUNT + 1


def test_a_wrong_key_is_refused_and_nothing_changes(place, tmp_path):
    filled(place()).close()
    before = on_disk(tmp_path)
    with pytest.raises(ValueError, match=r"^key: expected the key that the store was sealed with"):
        SealedStore(book(), OTHER, place())
    for key in (b"short", "text", 32 * b"x" + b"y"):
        with pytest.raises(ValueError, match="key: expected 32 bytes, got") as refused:
            SealedStore(book(), key, place())
        assert "short" not in str(refused.value)
    assert on_disk(tmp_path) == before


def test_without_the_key_codes_are_searched_and_nothing_else(place):
    filled(place()).close()
    thief = SealedStore(book(), None, place())
    found = thief.topics(vectors()[3], 4)
    # the codes that occur, by the scores of what stands for them, each with its documents
    codes = book().encode(vectors())
    known, counts = np.unique(codes, axis=0, return_counts=True)
    scores = book().decode(known).numpy() @ vectors()[3]
    order = np.argsort(-scores, kind="stable")[:4]
    np.testing.assert_allclose(found.scores, scores[order], rtol=1e-5)
    assert found.documents.tolist() == counts[order].tolist()
    assert len(thief) == COUNT
    for refused in (
        lambda: thief.search(vectors()[3]),
        lambda: thief.add(documents(1, 100), vectors(1)),
        lambda: thief.delete(["id-3"]),
        lambda: thief.get(["id-3"]),
        lambda: thief.rotate(OTHER),
    ):
        with pytest.raises(ValueError, match="key: expected 32 bytes to"):
            refused()


def test_no_exact_vector_and_no_text_is_on_the_disk_whatever_was_done(place, tmp_path):
    store = filled(place())
    store.add(documents(5, 100), vectors(5, 7))
    store.delete(["id-3", "id-102"])
    store.search(vectors()[4])
    store.rotate(OTHER)
    store.compact()
    content = on_disk(tmp_path)
    assert len(content) > 10_000
    for row, document in [
        *zip(vectors(), documents(), strict=True),
        *zip(vectors(5, 7), documents(5, 100), strict=True),
    ]:
        for form in forms(row, document):
            assert form not in content, document.id


def test_what_the_search_for_exact_bytes_would_find(tmp_path):
    """The control of the test above: a store of floats as people write it is found."""
    row, document = vectors()[3], documents()[3]
    (tmp_path / "f4").write_bytes(b"xyz" + row.tobytes())
    (tmp_path / "f2").write_bytes(row.astype("<f2").tobytes())
    import base64

    (tmp_path / "b64").write_bytes(b"q" + base64.b64encode(b"z" + row.tobytes()))
    (tmp_path / "text").write_bytes(document.text.encode())
    for name in ("f4", "f2", "b64", "text"):
        content = (tmp_path / name).read_bytes()
        assert any(form in content for form in forms(row, document)), name


def test_sealed_bytes_of_a_deleted_document_are_gone_after_compact(place, tmp_path):
    store = filled(place())
    position = store._positions(["id-3"])
    handle = store._columns.handles[position[0]].tobytes()
    sealed = store.backend.fetch(position)[0]
    assert sealed[:24] in on_disk(tmp_path)
    store.delete(["id-3"])
    store.compact()
    store.close()
    content = on_disk(tmp_path)
    assert sealed[:24] not in content
    assert sealed[-24:] not in content
    assert handle not in content


def test_two_stores_of_one_place_see_each_others_writes(place):
    one, other = filled(place()), SealedStore(book(), KEY, place())
    one.add(documents(1, 200), vectors(1, 11))
    assert ids(other.search(vectors(1, 11)[0], 1)) == ["id-200"]
    other.delete(["id-200"])
    assert "id-200" not in one
    one.compact()
    assert ids(other.search(vectors()[5], 1)) == ["id-5"]
    other.rotate(OTHER)
    with pytest.raises(ValueError, match="key: expected the key"):
        one.search(vectors()[5])


def test_an_empty_store_finds_nothing_and_leaves_nothing(place, tmp_path):
    store = SealedStore(book(), KEY, place())
    assert store.search(vectors()[0]) == ()
    assert len(store) == 0
    assert "id-0" not in store
    assert len(store.topics(vectors()[0]).codes) == 0
    store.add([], np.empty((0, 8)))
    with pytest.raises(ValueError, match="got an empty one"):
        store.certificate()
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []
    store = filled(place())
    store.delete([document.id for document in documents()])
    assert store.search(vectors()[0]) == ()
    store.add(documents(2), vectors(2))
    assert len(SealedStore(book(), KEY, place())) == 2


def test_what_cannot_be_added_is_refused_at_its_position_and_nothing_is_added(place):
    store = filled(place())
    fine, rows = documents(3, 100), vectors(3, 2)

    def with_second(**changes):
        return [fine[0], Document(**{"id": "new", "text": "t", **changes}), fine[2]]

    for given, where in (
        ((with_second(id="id-5"), rows), r"documents\[1\]\.id: expected one that is not there"),
        ((with_second(id="id-100"), rows), r"documents\[1\]\.id: expected different"),
        ((with_second(text="x" * 40_000), rows), r"documents\[1\]: expected at most 32,768 bytes"),
        ((fine, np.where([[0], [1], [0]], np.nan, rows)), r"vectors\[1\]: expected numbers that"),
        ((fine, rows * [[1], [0], [1]]), r"vectors\[1\]: expected a vector that is not 0"),
        ((fine, rows[:2]), r"vectors: expected shape \(3, 8\), got \(2, 8\)"),
        ((fine, [["a"] * 8] * 3), "vectors: expected real numbers"),
        (([*fine[:2], "text"], rows), r"documents\[2\]: expected a Document, got str"),
    ):
        with pytest.raises(ValueError, match=where):
            store.add(*given)
        assert len(store) == COUNT
    with pytest.raises(ValueError, match="metadata: expected values that strict JSON holds"):
        store.add(with_second(metadata={"a": float("nan")}), rows)


def test_rows_about_a_person_are_counted_for_ever(place):
    settings = StoreSettings(rows_per_person=2)
    store = SealedStore(book(), KEY, place(), settings)

    def about(person, *numbers):
        return [Document(id=f"{person}{n}", text="t", person=person) for n in numbers]

    store.add([*about("ann", 1), *about("bob", 1, 2)], vectors(3))
    store.add(about("ann", 2), vectors(1))
    for given, place_of in ((about("ann", 3), 0), ([*about("eve", 1), *about("bob", 3)], 1)):
        with pytest.raises(
            ValueError, match=rf"documents\[{place_of}\]\.person: expected at most 2"
        ):
            store.add(given, vectors(len(given)))
    # deleted documents were seen, and count; a rotated key and another process change nothing
    store.delete(["ann1"])
    store.rotate(OTHER)
    again = SealedStore(book(), OTHER, place())
    with pytest.raises(ValueError, match=r"documents\[0\]\.person"):
        again.add(about("ann", 3), vectors(1))
    again.add(about("eve", 1, 2), vectors(2))
    person, _, document, _ = again.certificate().guarantees
    assert (person.factor, document.factor) == (256.0**2, 256.0)


def test_another_codebook_and_other_settings_are_refused(place):
    from dataclasses import replace

    filled(place())
    other = replace(book(), parts=tuple(part + 1.0 for part in book().parts))
    with pytest.raises(ValueError, match="codec: the store was made with another codebook"):
        SealedStore(other, KEY, place())
    with pytest.raises(ValueError, match="settings: the store declares"):
        SealedStore(book(), KEY, place(), StoreSettings(metric="dot"))
    assert SealedStore(book(), KEY, place(), StoreSettings()).settings == StoreSettings()


def test_a_document_is_replaced_in_one_step_and_others_are_chosen_among(place):
    store = filled(place())
    new = [Document(id="id-7", text="another"), Document(id="id-100", text="a new one")]
    with pytest.raises(ValueError, match=r"documents\[0\]\.id: expected one that is not there"):
        store.add(new, vectors(2, 9))
    store.add(new, vectors(2, 9), replace=True)
    again = SealedStore(book(), KEY, place())
    assert {one.id: one.text for one in again} == {
        **{one.id: one.text for one in documents()}, "id-7": "another", "id-100": "a new one"
    }  # fmt: skip
    assert again.search(vectors(2, 9)[0], 1, shortlist=COUNT + 1)[0].document.text == "another"
    chosen = again.search(vectors()[3], 3, shortlist=COUNT, where=lambda one: one.id < "id-2")
    assert all(hit.document.id < "id-2" for hit in chosen)
    assert again.search(vectors()[3], 3, where=lambda one: False) == ()


def test_finer_codes_are_sealed_and_a_short_list_by_them_holds_the_nearest(place, tmp_path):
    from tacit.hidden_states import ResidualCodebook, ResidualFit

    how = ProductFit(parts=4, size=64, least_cell=1)
    fine = ProductCodebook.fit(vectors(400, 0), how, rng=0, progress=False)

    def opened(key, **given):
        return SealedStore(book(), key, place(), **given)

    store = opened(KEY, fine=fine)
    store.add(documents(), vectors())
    store.add(documents(3, 100), vectors(3, 7))
    store.delete(["id-3"])
    store.add([Document(id="id-5", text="anew")], vectors(1, 8), replace=True)
    store.rotate(OTHER)
    store.compact()
    again = opened(OTHER, fine=fine)
    rows = np.concatenate([np.delete(vectors(), [3, 5], axis=0), vectors(3, 7), vectors(1, 8)])
    held = {one.id: one for one in again}
    assert len(again) == len(rows) == len(held) == COUNT + 2
    # a shortlist is that of the fine codes, whatever was added, deleted and sealed anew
    decoded = fine.decode(fine.encode(rows)).numpy()
    names = [f"id-{n}" for n in [*(n for n in range(COUNT) if n not in (3, 5)), 100, 101, 102, 5]]
    query = vectors(1, 5)[0]
    directions = decoded / np.linalg.norm(decoded, axis=1, keepdims=True)
    wanted = {names[n] for n in np.argsort(-(directions @ query))[:6]}
    assert set(ids(again.search(query, 6, shortlist=6))) == wanted
    # who has no key has the clear codes, and none of the fine ones
    thief = opened(None)
    assert (thief.codes < 8).all()
    assert thief.certificate().guarantees[0].factor == 256.0
    codes = again._heading.fine
    assert np.array_equal(np.unique(codes, axis=0), np.unique(fine.encode(rows), axis=0))
    assert codes[:4].astype(np.uint8).tobytes() not in on_disk(tmp_path)
    stages = ResidualFit(stages=2, size=4)
    other = ResidualCodebook.fit(vectors(400, 0), stages, rng=0, progress=False)
    for given, why in (({}, "made with fine codes of another"), ({"fine": other}, "of another")):
        with pytest.raises(ValueError, match=f"fine: expected the codebook of the store.*{why}"):
            opened(OTHER, **given)
    with pytest.raises(ValueError, match="fine: expected a codebook, got str"):
        opened(OTHER, fine="book")


@pytest.mark.parametrize("fetched_by", ["clear", "fine"])
def test_what_is_fetched_is_said_by_the_codes_that_the_store_declares(place, fetched_by):
    how = ProductFit(parts=4, size=64, least_cell=1)
    fine = ProductCodebook.fit(vectors(400, 0), how, rng=0, progress=False)
    settings = StoreSettings(fetched_by=fetched_by)
    store = SealedStore(book(), KEY, place(), settings, fine=fine)
    store.add(documents(), vectors())
    fetch, seen, query = store.backend.fetch, [], vectors(1, 5)[0]
    store.backend.fetch = lambda positions: seen.append(positions) or fetch(positions)
    hits = store.search(query, 2, shortlist=30)
    # whatever is in the documents: a look at the codes alone says which cells are fetched
    by = fine if fetched_by == "fine" else book()
    rows = by.decode(by.encode(vectors())).numpy()
    scores = rows @ query / np.linalg.norm(rows, axis=1)
    (positions,) = seen
    fetched = [int(one.id[3:]) for one in store._again(lambda: [
        store._document(plain) for plain in store._opened(positions)
    ])]  # fmt: skip
    np.testing.assert_allclose(np.sort(scores[fetched]), np.sort(scores)[-30:], rtol=1e-5)
    # of these the nearest 20 by fine codes are opened, and all for a filter
    directions = fine.decode(fine.encode(vectors())).numpy()
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    near = sorted(fetched, key=lambda n: -(directions[n] @ query))[:20]
    opened = fetched if fetched_by == "fine" else near
    wanted = sorted(opened, key=lambda n: -(vectors()[n] @ query))[:2]
    assert ids(hits) == [f"id-{n}" for n in wanted]
    some = store.search(query, 30, shortlist=30, where=lambda one: True)
    assert {hit.document.id for hit in some} == {f"id-{n}" for n in fetched}
    told = " ".join(store.certificate().notes)
    assert ("it is a function of these" in told) == (fetched_by == "fine")


def test_a_code_that_says_little_of_a_vector_is_ranked_by_its_direction(tmp_path):
    # a cone, as of pixels: what most have in common, ⟨q, x̂⟩ is largest where x̂ is longest
    rows = np.abs(np.random.default_rng(0).normal(size=(400, WIDTH))).astype(np.float32) + 1.0
    rows[::2] += 2.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cone = ProductCodebook.fit(rows, ProductFit(parts=2, size=8), rng=0, progress=False)
    store = SealedStore(cone, KEY, PLACES["folder"](tmp_path))
    store.add(documents(300), rows[:300])
    decoded = cone.decode(cone.encode(rows[:300])).numpy()
    lengths = np.linalg.norm(decoded, axis=1)
    for query in rows[301:309]:
        held = store.search(query, 30, shortlist=30)
        score = decoded @ query / lengths
        got = score[[int(name[3:]) for name in ids(held)]]
        np.testing.assert_allclose(np.sort(got), np.sort(score)[-30:], rtol=1e-5)


def test_fine_codes_are_of_the_documents_that_they_were_sealed_with(tmp_path):
    how = ProductFit(parts=4, size=64, least_cell=1)
    fine = ProductCodebook.fit(vectors(400, 0), how, rng=0, progress=False)
    store = SealedStore(book(), KEY, PLACES["folder"](tmp_path), fine=fine)
    store.add(documents(), vectors())
    columns, backend = store._columns, store.backend
    first = np.array([0])
    old = ClearColumns(columns.handles[:1], columns.versions[:1], columns.codes[:1])
    sealed = Records(old, [bytes(one) for one in backend.fetch(first)])
    anew = next(one for one in documents() if store._handle(one.id) == old.handles.tobytes())
    store.add([Document(id=anew.id, text="anew")], vectors(1, 8), replace=True)
    # as many documents of the same handles, but one is a former one: its own seal is whole
    backend.write(backend.state(), sealed, first)
    with pytest.raises(ValueError, match="its documents differ from those of its fine codes"):
        store.search(vectors()[3])


def test_a_table_of_lance_loses_documents_in_the_commit_that_says_so(tmp_path, monkeypatch):
    table = pytest.importorskip("lancedb.table")
    fine = book()
    store = SealedStore(book(), KEY, PLACES["lance"](tmp_path), fine=fine)
    store.add(documents(), vectors())
    place = np.array([store._places()[store._handle("id-3")]])
    (sealed,) = store.backend.fetch(place)
    # a process that died between two commits would leave fine codes of other documents
    monkeypatch.delattr(table.LanceTable, "delete")
    store.delete(["id-3"])
    again = SealedStore(book(), KEY, PLACES["lance"](tmp_path), fine=fine)
    assert len(again) == COUNT - 1
    assert "id-3" not in ids(again.search(vectors()[3], 10))
    assert sealed not in on_disk(tmp_path)


def test_a_vector_of_any_length_is_found_by_its_direction(tmp_path):
    store = filled(PLACES["folder"](tmp_path))
    lengths = np.float32([[1e-30], [1e-12], [1e25], [1e37]])
    rows = vectors(4, 9)
    store.add(documents(4, 100), rows * lengths)
    for place, row in enumerate(rows):
        best = store.search(row * lengths[3 - place], 1, shortlist=COUNT + 4)[0]
        assert best.document.id == f"id-{100 + place}"
        assert best.score == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("kind", ["folder", "faiss"])
def test_documents_that_are_added_one_by_one_stand_in_few_files(kind, tmp_path):
    store = SealedStore(book(), KEY, PLACES[kind](tmp_path))
    for document, row in zip(documents(45), vectors(45), strict=True):
        store.add([document], row[None])
    store.delete(["id-3", "id-30"])
    # 45 = 101101 in binary: a part for every power of two that is not full
    assert len(list((tmp_path / "notes").glob("part-*"))) <= 6
    for held in (store, SealedStore(book(), KEY, PLACES[kind](tmp_path))):
        kept = {document.id: document for document in documents(45)}
        del kept["id-3"], kept["id-30"]
        assert {document.id: document for document in held} == kept
        query = vectors(45)[17]
        assert held.search(query, 1, shortlist=43)[0].document == kept["id-17"]


def test_one_person_has_one_name_and_several_have_none():
    assert {person_of(one) for one in (7, 7.0, "7")} == {"7"}
    assert person_of(None) is None
    for several in (["ann", "bob"], {"a": 1}, 7.5, float("nan"), float("inf"), True):
        with pytest.raises(ValueError, match="person: expected text or a whole number"):
            person_of(several)
