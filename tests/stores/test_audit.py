"""What is found in stores that people use: live, after an update, after a deletion, and gone."""

from __future__ import annotations

import base64
import json
import pickle
import sqlite3
from dataclasses import replace
from datetime import timedelta
from zipfile import ZipFile

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")
pytest.importorskip("faiss")

import faiss

from tacit.hidden_states import ProductCodebook, ProductFit, ResidualCodebook, ResidualFit
from tacit.stores import SealedStore, StoreSettings, audit_store, find_vectors, index_bits
from tacit.stores.audit.readers import read_vectors

from .places import COUNT, KEY, PLACES, FolderBackend, book, documents, filled, vectors

WIDE = np.random.default_rng(3).normal(size=(300, 64)).astype(np.float32)


def table(path, rows, people=None):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (person, vector BLOB)")
        who = people or [None] * len(rows)
        pairs = [(one, row.tobytes()) for one, row in zip(who, rows, strict=True)]
        connection.executemany("INSERT INTO notes VALUES (?, ?)", pairs)
    connection.close()


def test_vectors_are_found_in_every_spelling_at_every_offset(tmp_path):
    rows = WIDE[:9]
    for offset in range(9):
        spelled = {
            "float32": rows[offset].tobytes(),
            "float16": rows[offset].astype("<f2").tobytes(),
            "float64": rows[offset].astype("<f8").tobytes(),
            "base64 of float32": base64.b64encode(b"z" * offset + rows[offset].tobytes()),
            "base64 of float16": base64.b64encode(
                b"z" * offset + rows[offset].astype("<f2").tobytes()
            ),
        }  # fmt: skip
        for form, content in spelled.items():
            (tmp_path / "file").write_bytes(b"\0" * (1000 + offset) + content + b"tail")
            found = find_vectors(tmp_path, rows)
            assert [(one.form, one.vectors) for one in found] == [(form, 1)], (form, offset)
    (tmp_path / "file").write_bytes(np.random.default_rng(4).bytes(200_000))
    assert find_vectors(tmp_path, rows) == ()


def test_a_vector_that_is_cut_by_a_block_or_a_page_is_found(tmp_path, monkeypatch):
    from tacit.stores.audit import traces

    monkeypatch.setattr(traces, "BLOCK_BYTES", 1000)
    for start in range(700, 1001, 25):
        (tmp_path / "file").write_bytes(b"\0" * start + WIDE[0].tobytes() + b"\0" * 500)
        assert find_vectors(tmp_path, WIDE[:2])[0].vectors == 1
    # the front of one is on one page and its end on another
    halves = WIDE[0].tobytes()[:100], WIDE[1].tobytes()[100:]
    (tmp_path / "file").write_bytes(halves[0] + b"page" * 9 + halves[1])
    assert find_vectors(tmp_path, WIDE[:3])[0].vectors == 2


def test_zeros_are_no_trace(tmp_path):
    (tmp_path / "file").write_bytes(bytes(10_000))
    assert find_vectors(tmp_path, np.zeros((3, 64), np.float32)) == ()


def test_sqlite_keeps_what_was_written_over_until_it_is_vacuumed(tmp_path):
    place = tmp_path / "notes.sqlite"
    table(place, WIDE)
    coded = ProductCodebook.fit(WIDE, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(WIDE)).numpy()
    with sqlite3.connect(place) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("DELETE FROM notes")
        connection.executemany(
            "INSERT INTO notes VALUES (NULL, ?)", [(row.tobytes(),) for row in decoded[:40]]
        )
    connection.close()
    found = audit_store(place, codec=coded, vectors=WIDE)
    assert (found.rows, found.on_codebook, found.clear) == (40, 40, ())
    assert found.traces[0].vectors > 200
    assert "exact vectors" in found.verdict
    assert "VACUUM" in found.faults[0].remedy
    with sqlite3.connect(place) as connection:
        connection.execute("VACUUM")
    connection.close()
    found = audit_store(place, codec=coded, vectors=WIDE)
    assert (found.faults, found.traces) == ((), ())
    assert (
        found.verdict == f"A thief learns at most {np.log2(coded.size):.4g} bits of any document."
    )


def test_lancedb_keeps_old_versions_until_they_are_cleaned(tmp_path, recwarn):
    lancedb = pytest.importorskip("lancedb")
    coded = ProductCodebook.fit(WIDE, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(WIDE)).numpy()
    held = lancedb.connect(tmp_path / "l").create_table("t", [{"vector": row} for row in WIDE])
    held.add([{"vector": row} for row in decoded])
    held.delete("true")
    held.add([{"vector": row} for row in decoded])
    found = audit_store(tmp_path / "l", codec=coded, vectors=WIDE)
    assert (found.rows, found.on_codebook) == (300, 300)
    assert sum(one.vectors for one in found.traces) == 300
    assert "optimize" in found.faults[0].remedy
    held.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    found = audit_store(tmp_path / "l", codec=coded, vectors=WIDE)
    assert found.faults == ()
    recwarn.clear()


@pytest.mark.parametrize("kind", ["product", "residual"])
def test_live_vectors_are_those_of_the_codebook_to_the_last_bit(tmp_path, kind):
    if kind == "product":
        coded = ProductCodebook.fit(WIDE, ProductFit(parts=4, size=8), rng=0, progress=False)
    else:
        how = ResidualFit(stages=3, size=8)
        coded = ResidualCodebook.fit(WIDE, how, rng=0, progress=False)
    decoded = coded.decode(coded.encode(WIDE)).numpy()
    table(tmp_path / "a.sqlite", decoded)
    found = audit_store(tmp_path / "a.sqlite", codec=coded)
    assert (found.rows, found.on_codebook, found.faults) == (300, 300, ())
    # one float that is moved by 1e-6, the sign of a zero, and a number that is none
    for change in (lambda x: x * (1 + 1e-6), lambda x: np.nan):
        moved = decoded.copy()
        moved[7, 3] = change(moved[7, 3])
        table(tmp_path / f"{change(2.0)}.sqlite", moved)
        found = audit_store(tmp_path / f"{change(2.0)}.sqlite", codec=coded)
        assert found.on_codebook == 299
        assert found.faults[0].what == "live vectors: 1 of 300 are none of the codebook"
        assert found.bits is None


@pytest.mark.parametrize("most", [1, 4, 8])
def test_rows_about_a_person_are_counted(tmp_path, most):
    coded = ProductCodebook.fit(WIDE, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(WIDE[:48])).numpy()
    people = [f"p{n}" for n in range(48 - most)] + ["ann"] * most
    table(tmp_path / "a.sqlite", decoded, people)
    found = audit_store(tmp_path / "a.sqlite", codec=coded, by="person")
    assert found.rows_per_person == most
    bits = np.log2(coded.size)
    wanted = f"at most {bits:.4g} bits of any document"
    if most > 1:
        wanted += f", {most * bits:.4g} of the person with most rows ({most})"
    assert wanted in found.verdict
    # who it is stands in the clear, and is said to
    assert found.clear == ("notes.person",)
    with pytest.raises(ValueError, match="--person: expected a column of the store, got 'who'"):
        audit_store(tmp_path / "a.sqlite", by="who")


BITS = {
    "Flat": (2048, True, False),
    "SQ8": (512, False, False),
    "SQfp16": (1024, False, False),
    "LSH": (64, False, False),
    "PQ8x6": (48, False, False),
    "PQ4x5": (20, False, False),
    "PCA32,PQ8x4": (32, False, False),
    "RQ2x6": (12, False, False),
    "RQ2x6_Nfloat": (12 + 32, False, False),
    "IVF16,PQ8x4": (32 + 4 + 64, False, False),
    "IVF16,Flat": (2048 + 4 + 64, True, False),
    "IDMap,PQ8x4": (32 + 64, False, False),
    "IDMap2,PQ8x4": (32 + 64, False, False),
    "IDMap,Flat": (2048 + 64, True, False),
    "IDMap,IVF16,PQ8x4": (32 + 4 + 128, False, False),
    "PQ8x4,RFlat": (32 + 2048, True, False),
    "HNSW8_PQ8x4": (32, False, True),
}


@pytest.mark.parametrize("factory", BITS)
def test_bits_of_an_index_are_those_of_its_structure(tmp_path, factory):
    index = faiss.index_factory(64, factory)
    rows = np.random.default_rng(0).normal(size=(2_500, 64)).astype(np.float32)
    index.train(rows)

    def add():
        if factory.startswith("IDMap"):
            index.add_with_ids(WIDE, np.arange(len(WIDE)) + index.ntotal)
        else:
            index.add(WIDE)

    add()
    found = index_bits(index)
    assert (found.bits, found.exact, found.graph) == BITS[factory]
    # what a file of twice as many rows has more is what the index keeps of each
    sizes = []
    for _ in range(2):
        sizes.append(len(faiss.serialize_index(index)))
        add()
    grown = 8 * (sizes[1] - sizes[0]) / len(WIDE)
    slack = 8.0 if not found.graph else 1e4
    assert found.code + found.name <= grown + slack
    assert grown <= found.code + found.name + slack
    faiss.write_index(index, str(tmp_path / "index"))
    assert bool(audit_store(tmp_path / "index").faults) == (found.exact or found.graph)


@pytest.mark.parametrize("name", PLACES)
def test_a_sealed_store_is_told_by_its_header_and_holds_nothing_exact(tmp_path, name):
    store = SealedStore(book(), KEY, PLACES[name](tmp_path), StoreSettings(rows_per_person=3))
    store.add(documents(), vectors())
    store.close()
    place = next(tmp_path.iterdir())
    found = audit_store(place, codec=book(), vectors=vectors())
    assert (found.rows, found.faults, found.rows_per_person) == (COUNT, (), 3)
    # 8 × 8 codes and four lengths: 8 bits, as the certificate has it
    assert found.bits == 8.0
    assert 2.0**found.bits == store.certificate().guarantees[2].factor
    assert "24 of the person with most rows (3)" in found.verdict


def test_the_command_exits_with_what_it_found(tmp_path, tacit):
    np.save(tmp_path / "original.npy", WIDE)
    table(tmp_path / "floats.sqlite", WIDE)
    coded = ProductCodebook.fit(WIDE, ProductFit(parts=2, size=8), rng=0, progress=False)
    coded.save(tmp_path / "book.safetensors")
    table(tmp_path / "coded.sqlite", coded.decode(coded.encode(WIDE)).numpy())
    flags = ("--codebook", tmp_path / "book.safetensors", "--vectors", tmp_path / "original.npy")
    for name, code in (("floats", 1), ("coded", 0)):
        told = tmp_path / f"{name}.json"
        done = tacit("audit", "store", tmp_path / f"{name}.sqlite", *flags, "--json", told)
        assert done.code == code, done.err
        content = json.loads(told.read_text())
        assert content["verdict"] in " ".join(done.out.split())
        assert bool(content["faults"]) == bool(code)
    done = tacit("audit", "store", tmp_path / "none")
    assert (done.code, "no such file or folder" in done.err) == (2, True)
    done = tacit("audit", "store", tmp_path / "coded.sqlite", "--codebook", tmp_path / "none")
    assert (done.code, done.err.startswith("error: --codebook") or "--codebook" in done.err) == (
        2,
        True,
    )


def test_nothing_is_written_where_is_looked(tmp_path):
    table(tmp_path / "notes.sqlite", WIDE)
    (tmp_path / "folder").mkdir()
    filled(PLACES["folder"](tmp_path / "folder")).close()
    before = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")}
    audit_store(tmp_path / "notes.sqlite", vectors=WIDE)
    audit_store(tmp_path / "folder" / "notes", vectors=vectors())
    assert {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")} == before


def test_files_that_are_damaged_are_one_sentence(tmp_path):
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 500)
    (tmp_path / "index").write_bytes(b"IxF2" + b"x" * 20)
    for name in ("a.sqlite", "index"):
        with pytest.raises(ValueError, match=r"^PATH: .*"):
            audit_store(tmp_path / name)
    with pytest.raises(ValueError, match="--vectors: expected 8 columns"):
        audit_store(tmp_path / "index", codec=book(), vectors=WIDE)
    other = replace(book(), parts=book().parts[:1])
    table(tmp_path / "b.sqlite", WIDE)
    # rows of another width are no vectors of the codebook: bytes in the clear
    found = audit_store(tmp_path / "b.sqlite", codec=other)
    assert (found.rows, found.on_codebook, found.clear) == (None, None, ("notes.vector",))


def test_a_file_of_vectors_is_exact_unless_a_codebook_says_that_it_is_decoded(tmp_path):
    rows = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    found = audit_store(tmp_path / "rows.npy")
    assert found.rows == 6
    assert found.bits is None
    assert found.faults[0].what.startswith("live vectors: 6 stand there as numbers")


def test_what_cannot_be_read_is_not_said_to_be_clean(tmp_path, tacit):
    for name, content in (("junk.npy", b"x"), ("log.bin", b"abc")):
        (tmp_path / name).write_bytes(content)
        assert "could not be read" in audit_store(tmp_path / name).verdict
    assert tacit("audit", "store", tmp_path / "log.bin").code == 2
    np.save(tmp_path / "sought.npy", WIDE)
    sought = ("--vectors", tmp_path / "sought.npy")
    assert tacit("audit", "store", tmp_path / "log.bin", *sought).code == 0


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("pickled floats", pickle.dumps({"vector": WIDE[3].tolist()})),
        ("numbers as text", json.dumps({"meta": WIDE[3].tolist()}).encode()),
        ("numbers as text", ",".join(str(number) for number in WIDE[3]).encode()),
        ("float32, bytes swapped", WIDE[3].astype(">f4").tobytes()),
        ("float16", WIDE[3].astype("<f2").tobytes()),
        ("base64 of float64", base64.b64encode(b"id" + WIDE[3].astype("<f8").tobytes())),
        ("columns of float32", WIDE[3:12].T.tobytes()),
    ],
)
def test_one_vector_is_found_however_it_is_spelled(tmp_path, form, content):
    (tmp_path / "file").write_bytes(b"point" + content)
    found = {one.form: one.vectors for one in find_vectors(tmp_path, WIDE)}
    # nine rows by columns have two runs of eight
    assert found == {form: 2 if form.startswith("columns") else 1}


def test_rows_in_several_passes_are_those_of_one(tmp_path, monkeypatch):
    (tmp_path / "rows").write_bytes(WIDE[3:9].tobytes())
    (tmp_path / "columns").write_bytes(WIDE[:14].T.tobytes())
    whole = find_vectors(tmp_path, WIDE)
    assert [(one.file, one.vectors) for one in whole] == [("columns", 7), ("rows", 6)]
    monkeypatch.setattr("tacit.stores.audit.traces.ROWS_TOGETHER", 8)
    assert find_vectors(tmp_path, WIDE) == whole


def test_numbers_that_any_file_holds_are_no_trace(tmp_path):
    rows = np.zeros((20, 64), np.float32)
    rows[:, -3:] = 1.0
    coded = base64.b64encode(bytes(300))
    text = b"0.0, " * 99 + b"0.0,0.0,0.0,0.0,1.0,1.0,1.0"
    (tmp_path / "file").write_bytes(bytes(4000) + text + coded)
    assert find_vectors(tmp_path, rows) == ()


class Ran:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was run')",)


def collection(folder, points):
    place = folder / "collection" / "notes"
    place.mkdir(parents=True)
    (folder / "meta.json").write_text("{}")
    with sqlite3.connect(place / "storage.sqlite") as connection:
        connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        pickled = [(str(n), pickle.dumps(point)) for n, point in enumerate(points)]
        connection.executemany("INSERT INTO points VALUES (?, ?)", pickled)
    connection.close()


def test_a_pickle_of_a_store_is_read_and_not_run(tmp_path):
    collection(tmp_path, [Ran()])
    found = audit_store(tmp_path)
    assert (found.kind, found.rows) == ("a folder of Qdrant", None)
    with sqlite3.connect(tmp_path / "collection" / "notes" / "storage.sqlite") as connection:
        connection.execute("UPDATE points SET point = ?", (b"\x80\x04cut",))
    connection.close()
    with pytest.raises(ValueError, match="holds a point that cannot be read"):
        audit_store(tmp_path)


def test_a_log_of_sqlite_is_looked_at_and_said_not_to_be_read(tmp_path):
    place = tmp_path / "notes.sqlite"
    coded = ProductCodebook.fit(WIDE, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(WIDE)).numpy()
    connection = sqlite3.connect(place)
    connection.execute("PRAGMA journal_mode = WAL")
    table(place, decoded)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    asked = "INSERT INTO notes VALUES (NULL, ?)"
    connection.executemany(asked, [(row.tobytes(),) for row in WIDE[:5]])
    connection.commit()
    assert "notes.sqlite-wal, a log of SQLite" in audit_store(place, codec=coded).verdict
    (trace,) = audit_store(place, codec=coded, vectors=WIDE).traces
    assert (trace.file, trace.vectors) == ("notes.sqlite-wal", 5)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert audit_store(place, codec=coded).on_codebook == len(decoded)


class Sparse:
    pass


class Point:
    def __init__(self, vector):
        self.vector = vector

    def __getstate__(self):
        return {"__dict__": self.__dict__}


def test_vectors_that_are_not_read_are_said_to_stand_in_the_clear(tmp_path):
    row = WIDE[0].tolist()
    collection(tmp_path, [Point({"dense": row, "words": Sparse()}), Point({"dense": row})])
    found = audit_store(tmp_path)
    assert found.rows == 2
    # a point without a state is none
    collection(tmp_path / "empty", [Sparse()])
    assert audit_store(tmp_path / "empty").rows is None
    assert found.clear == ("notes.id", "notes.vector, of numbers that are not read")


def test_tables_beside_a_sealed_store_are_looked_at_too(tmp_path):
    store = filled(PLACES["sqlite"](tmp_path))
    (place,) = (one for one in tmp_path.iterdir() if one.suffix != ".lock")
    assert audit_store(place).clear == ()
    table(place, vectors())
    assert audit_store(place).clear == ("notes.vector",)
    found = audit_store(place, codec=store.codec)
    assert (found.rows, found.on_codebook) == (COUNT, 0)
    assert "live vectors" in found.verdict


def test_rows_are_read_in_any_order_and_type_and_in_folders(tmp_path):
    from tacit.stores.audit.readers import read_vectors

    rows = WIDE[:6]
    folder = tmp_path / "store"
    (folder / "parts").mkdir(parents=True)
    spelled = {
        "turned.npy": np.asfortranarray(rows),
        "whole.npy": np.rint(10 * rows).astype(np.int64),
        "one.npy": rows[0],
        "parts/double.npy": rows.astype(np.float64),
    }
    for name, held in spelled.items():
        np.save(folder / name, held)
    np.savez_compressed(folder / "parts" / "several.npz", a=rows[:2], b=rows[2:], words=["x"])
    (folder / "notes.txt").write_text("in the clear")
    (folder / "junk.npy").write_bytes(b"x")
    found = audit_store(folder)
    assert found.rows == 6 + 6 + 1 + 6 + 6
    assert len(found.faults) == 5
    assert {one.what.split(":")[0] for one in found.faults} == {*spelled, "parts/several.npz"}
    assert any("whole numbers" in one.what for one in found.faults)
    assert sum("notes.txt" in one or "junk.npy" in one for one in found.clear) == 2
    np.testing.assert_array_equal(read_vectors("--vectors", folder / "turned.npy"), rows)
    np.testing.assert_array_equal(read_vectors("--vectors", folder / "parts" / "several.npz"), rows)
    # an archive of other files, one of an unknown compression, and rows that no memory holds
    packed = bytearray((folder / "parts" / "several.npz").read_bytes())
    packed[8] = packed[packed.index(b"PK\x01\x02") + 10] = 97
    (folder / "packed.npz").write_bytes(packed)
    with ZipFile(folder / "notes.npz", "w") as archive:
        archive.writestr("notes.txt", "in the clear")
    np.save(folder / "large.npy", rows)
    large = (folder / "large.npy").read_bytes()
    (folder / "large.npy").write_bytes(large.replace(b"(6, ", b"(6000000000000, "))
    for path, words in (
        (folder / "junk.npy", "damaged"), (folder / "notes.txt", "ending in"),
        (folder / "packed.npz", "damaged"), (folder / "notes.npz", "numbers"),
        (folder / "large.npy", "damaged"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"--vectors: .*{words}"):
            read_vectors("--vectors", path)


def test_what_stands_beside_rows_is_said_whatever_its_name(tmp_path):
    rows = book().decode(book().encode(vectors())).numpy()
    np.savez(
        tmp_path / "rows.npz", rows=rows, tokens=rows.reshape(COUNT // 2, 2, -1), names=["ann"]
    )
    for name in ("diary-journal", "rows.npz.json", "rows.npz-journal"):
        (tmp_path / name).write_text("in the clear")
    (tmp_path / "up").symlink_to(tmp_path, target_is_directory=True)
    found = audit_store(tmp_path, codec=book())
    assert found.clear == (
        *("rows.npz: array tokens", "rows.npz: array names"),
        "file up, a link to a folder, not followed",
        *("file diary-journal", "file rows.npz-journal", "file rows.npz.json"),
    )
    assert (found.rows, found.faults) == (COUNT, ())


def test_what_stands_in_the_folder_of_a_sealed_store_is_looked_at_too(tmp_path):
    place = tmp_path / "notes"
    filled(FolderBackend(place)).close()
    alone = audit_store(place)
    assert (alone.faults, alone.clear) == ((), ())
    np.save(place / "exact.npy", vectors())
    (place / "texts.txt").write_text("in the clear")
    (place / "store.json-journal").write_text("in the clear")
    found = audit_store(place)
    assert [one.what.split(",")[0] for one in found.faults] == [
        f"exact.npy: live vectors: {COUNT} stand there as numbers"
    ]
    assert found.clear == ("file store.json-journal", "file texts.txt")
    assert found.rows_per_person == alone.rows_per_person


def test_a_journal_that_sqlite_left_is_said_not_to_be_read(tmp_path):
    table(tmp_path / "notes.sqlite", book().decode(book().encode(vectors())).numpy())
    (tmp_path / "notes.sqlite-journal").write_bytes(bytes(512) + vectors()[0].tobytes())
    for place in (tmp_path, tmp_path / "notes.sqlite"):
        (fault,) = audit_store(place, codec=book()).faults
        assert "notes.sqlite-journal, a log of SQLite" in fault.what
        assert fault.remedy.endswith('notes.sqlite" "PRAGMA journal_mode = DELETE"')


def test_what_files_of_a_folder_tell_of_a_document_adds_up(tmp_path):
    codec = book()
    codes = codec.encode(vectors())
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, codec.decode(codes).numpy())
    alone, both = (audit_store(one, codec=codec) for one in (tmp_path / "a.npy", tmp_path))
    assert not both.faults
    assert both.bits == pytest.approx(2 * alone.bits)
    assert both.on_codebook == both.rows == 2 * alone.rows


def test_a_sealed_folder_without_a_part_is_a_sentence(tmp_path):
    from tacit.stores.audit.readers import read_store

    filled(FolderBackend(tmp_path / "notes"))
    for part in (tmp_path / "notes").glob("part-*"):
        part.unlink()
    with pytest.raises(ValueError, match="its manifest names"):
        read_store(tmp_path / "notes")


def test_an_archive_that_expands_beyond_measure_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, a=np.zeros((2000, 50), np.float32))
    monkeypatch.setattr("tacit._ground.unpacking.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"rows\.npz expands to more than 100 times its size"):
        read_vectors("--vectors", path)
    assert audit_store(path).rows is None
    monkeypatch.undo()
    assert len(read_vectors("--vectors", path)) == 2000
