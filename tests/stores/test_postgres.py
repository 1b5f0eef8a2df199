"""A sealed store in PostgreSQL, and what its own files hold of it, its write-ahead log included."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tacit.hidden_states import ProductCodebook
from tacit.stores import DatabaseBackend, SealedStore

from .places import COUNT, KEY, OTHER, book, documents, filled, forms, vectors

pytestmark = pytest.mark.postgres


def test_a_sealed_store_in_postgresql_does_what_it_does_in_a_folder(postgres):
    store = filled(DatabaseBackend(postgres))
    query = vectors(1, 5)[0]
    wanted = [f"id-{n}" for n in np.argsort(-(vectors() @ query), kind="stable")[:7]]
    again = SealedStore(book(), KEY, DatabaseBackend(postgres))
    for one in (store, again):
        assert [hit.document.id for hit in one.search(query, 7, shortlist=COUNT)] == wanted
    store.delete(["id-3", "id-7"])
    assert len(again) == COUNT - 2
    with pytest.raises(ValueError, match=r"names\[1\]"):
        again.delete(["id-4", "id-3"])
    store.rotate(OTHER)
    with pytest.raises(ValueError, match="key: expected the key"):
        again.search(query)
    store.add(documents(2, 100), vectors(2, 9))
    with SealedStore(book(), None, DatabaseBackend(postgres)) as thief:
        assert len(thief) == COUNT
    for each in (store, again):
        each.close()


def test_no_file_of_the_server_holds_an_exact_vector_or_a_text(postgres):
    import psycopg

    store = filled(DatabaseBackend(postgres))
    position = store._positions(["id-3"])
    sealed = store.backend.fetch(position)[0]
    store.delete(["id-3"])
    store.compact()
    store.close()
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute("SHOW data_directory").fetchone()
    data = Path(found[0])
    if not os.access(data, os.R_OK):
        pytest.skip("the server's files are another user's")
    # the deleted document among them
    needles = {
        form
        for row, document in zip(vectors()[:6], documents()[:6], strict=True)
        for form in forms(row, document)
    }
    # of table files a deleted document is gone; the log keeps its sealed bytes, as is said
    kept = set()
    for path in sorted(data.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            assert not any(needle in content for needle in needles), path
            if sealed[40:80] in content:
                kept.add(path.relative_to(data).parts[0])
    assert kept <= {"pg_wal"}
    assert "write-ahead log" in DatabaseBackend.left


def test_postgresql_keeps_deleted_vectors_until_its_log_is_gone(postgres):
    import psycopg

    from tacit.hidden_states import ProductFit
    from tacit.stores import audit_store

    rows = np.random.default_rng(3).normal(size=(60, 64)).astype(np.float32)
    coded = ProductCodebook.fit(rows, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(rows)).numpy()
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (id int, who text, vector real[])")
        connection.execute("CREATE TABLE bare (vector bytea)")

        def put(vectors):
            held = [(n, f"p{n % 20}", row.tolist()) for n, row in enumerate(vectors)]
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO notes VALUES (%s, %s, %s)", held)

        put(rows)
        live = audit_store(postgres, codec=coded)
        assert (live.kind, live.rows, live.on_codebook) == ("a database of PostgreSQL", 60, 0)
        # a copy in a materialized view, and rows of a partition of another schema, once each
        connection.execute("CREATE MATERIALIZED VIEW seen AS SELECT vector FROM notes LIMIT 7")
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE cut (n int, vector real[]) PARTITION BY RANGE (n)")
        part = "CREATE TABLE other.low PARTITION OF cut FOR VALUES FROM (0) TO (9)"
        connection.execute(part)
        connection.execute("INSERT INTO cut VALUES (3, %s)", (rows[0].tolist(),))
        copied = audit_store(postgres, codec=coded)
        assert (copied.rows, copied.clear) == (68, ("low.n", "notes.id", "notes.who"))
        connection.execute("DROP MATERIALIZED VIEW seen")
        connection.execute("DROP TABLE cut")
        connection.execute("DELETE FROM notes")
        connection.execute("VACUUM FULL")
        put(decoded)
        connection.execute("INSERT INTO bare VALUES (%s)", (decoded[0].tobytes(),))
        found = audit_store(postgres, codec=coded, vectors=rows, by="who")
        assert (found.rows, found.on_codebook, found.rows_per_person) == (61, 61, 3)
        assert found.clear == ("notes.id", "notes.who")
        assert sum(one.vectors for one in found.traces if "pg_wal" in one.file) >= 60
        for command in found.faults[0].remedy.split("; ")[:-1]:
            connection.execute(command)
        assert audit_store(postgres, codec=coded, vectors=rows).faults == ()
        connection.execute("ALTER SYSTEM RESET wal_recycle")
        connection.execute("SELECT pg_reload_conf()")
    with pytest.raises(ValueError, match="PATH: "):
        audit_store(postgres.replace("tacit_", "none_"))
