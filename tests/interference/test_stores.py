"""What the files of a sealed store tell beside codes and padded lengths."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tacit.stores import Document, LanceBackend, SealedStore
from tests.stores.places import KEY, PLACES, book, documents, vectors

from .registry import tells_nothing_beside

PLACE = 7
CHANGES = {
    "vector": lambda row, document: (-row, document),
    "long": lambda row, _: (row, Document(id="id-7", text="x" * 400, metadata={"page": 7})),
    "empty": lambda row, _: (row, Document(id="id-7", text="")),
    "id": lambda row, document: (row, Document(id="another", text=document.text)),
    "person": lambda row, document: (
        row, Document(id=document.id, text=document.text, person="ann"),
    ),
    "metadata": lambda row, document: (
        row, Document(id=document.id, text=document.text, metadata={"a": ["\ud800", 1.5]}),
    ),
}  # fmt: skip


def secrets(change):
    rows, held = vectors(), documents()
    rows[PLACE], held[PLACE] = change(rows[PLACE], held[PLACE])
    return rows, held


def fill(name):
    def run(secret):
        rows, held = secret
        store = SealedStore(book(), KEY, PLACES[name](Path()))
        store.add(held[:40], rows[:40])
        store.add(held[40:], rows[40:])
        told = {**store.certificate().to_dict(), "created": "", "printed": repr(store)}
        store.compact()
        store.close()
        return told

    return run


@tells_nothing_beside("sealed-store")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["folder", "faiss", "sqlite"])
def test_files_of_a_store_tell_codes_and_padded_lengths_alone(interference, name, change):
    pair = interference.calls(fill(name), (vectors(), documents()), secrets(CHANGES[change]))
    # names, sizes, order and every byte, with codes, handles and sealed bytes as they were
    pair.assert_equal()
    assert len(pair.first.files) >= 1


@tells_nothing_beside("sealed-store")
def test_a_document_of_another_bucket_shows_its_bucket_alone(interference):
    def changed(row, _):
        return row, Document(id="id-7", text="x" * 600)

    pair = interference.calls(fill("folder"), (vectors(), documents()), secrets(changed))
    # the door sees that one sealed text is of another length: that is what is certified
    assert len(pair.second.faults) == 1
    assert "uint8" in pair.second.faults[0]


@tells_nothing_beside("sealed-store")
def test_files_of_lancedb_are_as_many_and_as_large(tmp_path):
    sizes = []
    for n, (rows, held) in enumerate(((vectors(), documents()), secrets(CHANGES["long"]))):
        folder = tmp_path / str(n)
        store = SealedStore(book(), KEY, LanceBackend(folder))
        store.add(held, rows)
        files = [one for one in folder.rglob("*") if one.is_file()]
        data = [one.stat().st_size for one in files if one.suffix == ".lance"]
        sizes.append((len(files), data))
    # numbers of its header are packed: sizes are equal to what that moves
    assert sizes[0][0] == sizes[1][0]
    np.testing.assert_allclose(sizes[0][1], sizes[1][1], atol=64)


@tells_nothing_beside("sealed-store")
@pytest.mark.parametrize("name", ["folder", "sqlite"])
def test_refusals_repeat_nothing_of_a_document(tmp_path, name):
    store = SealedStore(book(), KEY, PLACES[name](tmp_path))
    store.add(documents(), vectors())
    secret = "Ann Miller has the flu"
    for document, row in (
        (Document(id=secret, text=secret * 5000), vectors(1)),
        (Document(id="id-5", text=secret), vectors(1)),
        (Document(id=secret, text=secret, metadata={secret: float("nan")}), vectors(1)),
        (Document(id=secret, text=secret), vectors(1) * np.nan),
    ):
        with pytest.raises(ValueError, match="expected") as refused:
            store.add([document], row)
        assert "Ann" not in str(refused.value)
    with pytest.raises(ValueError, match="expected the id") as refused:
        store.delete([secret])
    assert "Ann" not in str(refused.value)
    assert "Ann" not in json.dumps(store.certificate().to_dict())


@tells_nothing_beside("sealed-store")
def test_the_order_in_which_documents_were_added_is_not_told(tmp_path):
    """Rows of a write stand by their handles, whatever order they came in."""
    found = []
    for n, order in enumerate((np.arange(60), np.random.default_rng(0).permutation(60))):
        store = SealedStore(book(), KEY, PLACES["folder"](tmp_path / str(n)))
        store.add([documents()[place] for place in order], vectors()[order])
        positions = store._positions([document.id for document in documents()])
        found.append((positions, store._columns.handles.tolist() == sorted(
            store._columns.handles.tolist()
        )))  # fmt: skip
    assert all(ordered for _, ordered in found)
    # a key and a store of their own give handles of their own: no order is that of the rows
    for positions, _ in found:
        assert abs(np.corrcoef(positions, np.arange(60))[0, 1]) < 0.6
