"""Decoded codes in the place of vectors, with encoders as people have them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.stores import PrivateEmbeddings

from .places import WIDTH, book, vectors

ROWS = {f"text {n}": row for n, row in enumerate(vectors(40, 6))}


class LangChain:
    def embed_documents(self, texts):
        return [ROWS[text].tolist() for text in texts]

    def embed_query(self, text):
        return (2 * ROWS[text]).tolist()


class LlamaIndex:
    def get_text_embedding_batch(self, texts):
        return [ROWS[text].tolist() for text in texts]

    def get_query_embedding(self, text):
        return (2 * ROWS[text]).tolist()


class SentenceTransformers:
    def encode(self, sentences, normalize_embeddings=False):
        assert normalize_embeddings in (True, False)
        return np.stack([ROWS[text] for text in sentences])


@pytest.mark.parametrize("encoder", [LangChain(), LlamaIndex(), SentenceTransformers()])
def test_documents_are_codes_and_queries_are_exact(encoder):
    coded, texts = PrivateEmbeddings(encoder, book()), list(ROWS)
    wanted = book().decode(book().encode(vectors(40, 6))).numpy()
    np.testing.assert_array_equal(np.float32(coded.embed_documents(texts)), wanted)
    np.testing.assert_array_equal(coded.encode(texts), wanted)
    np.testing.assert_array_equal(coded.encode(texts[3]), wanted[3])
    factor = 1 if isinstance(encoder, SentenceTransformers) else 2
    np.testing.assert_array_equal(np.float32(coded.embed_query(texts[3])), factor * ROWS[texts[3]])
    assert coded.embed_documents([]) == []
    assert coded.encode([]).shape == (0, WIDTH)


def test_what_is_no_encoder_is_refused():
    with pytest.raises(ValueError, match="embeddings: expected an encoder"):
        PrivateEmbeddings(3, book())
    with pytest.raises(ValueError, match="codec: expected a codebook"):
        PrivateEmbeddings(LangChain(), "book")
    narrow = PrivateEmbeddings(lambda texts: np.ones((len(texts), 3)), book())
    with pytest.raises(ValueError, match=r"embeddings: expected vectors of shape \(1, 8\)"):
        narrow.encode(["a"])


def test_the_arguments_of_an_encoder_are_passed_on():
    coded = PrivateEmbeddings(SentenceTransformers(), book())
    assert coded.encode(["text 1"], normalize_embeddings=True).shape == (1, WIDTH)


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
def test_chroma_keeps_exact_vectors_that_were_deleted_and_the_audit_finds_them(tmp_path):
    chromadb = pytest.importorskip("chromadb")
    from tacit.stores import audit_store

    rows = np.random.default_rng(3).normal(size=(200, 32)).astype(np.float32)
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(tmp_path / "c"), settings=settings)
    held = client.create_collection("notes")
    held.add(ids=[str(n) for n in range(200)], embeddings=rows, documents=["text"] * 200)
    held.delete(ids=[str(n) for n in range(200)])
    found = audit_store(tmp_path / "c", vectors=rows)
    assert found.kind == "a store of Chroma"
    assert max(one.vectors for one in found.traces) > 150
    remedy = found.faults[0].remedy
    assert remedy == f'chroma vacuum --path "{tmp_path / "c"}"'
    # a graph that was built on them stays as long as its collection
    client.delete_collection("notes")
    del client, held
    command = Path(sys.executable).parent / "chroma"
    command = command if command.is_file() else Path(chromadb.__file__).parents[4] / "bin/chroma"
    done = subprocess.run(
        [command, *shlex.split(remedy)[1:], "--force"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert audit_store(tmp_path / "c", vectors=rows).traces == ()


@pytest.mark.services
@pytest.mark.filterwarnings("ignore")
def test_qdrants_folder_keeps_deleted_vectors_until_it_is_vacuumed(tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    import sqlite3

    from qdrant_client import models

    from tacit.hidden_states import ProductCodebook, ProductFit
    from tacit.stores import audit_store

    rows = np.random.default_rng(3).normal(size=(200, 32)).astype(np.float32)
    coded = ProductCodebook.fit(rows, ProductFit(parts=2, size=8), rng=0, progress=False)
    decoded = coded.decode(coded.encode(rows)).numpy()
    client = qdrant.QdrantClient(path=str(tmp_path / "q"))
    sizes = models.VectorParams(size=32, distance=models.Distance.COSINE)
    client.create_collection("notes", vectors_config=sizes)
    # SQLite's own default, which some builds change
    held = client._client.collections["notes"].storage.storage
    held.execute("PRAGMA secure_delete = OFF")

    def put(vectors, first):
        client.upsert(
            "notes",
            [
                models.PointStruct(id=first + n, vector=row.tolist(), payload={"who": f"p{n % 50}"})
                for n, row in enumerate(vectors)
            ],
        )

    put(rows, 0)
    live = audit_store(tmp_path / "q", codec=coded, vectors=rows)
    assert (live.kind, live.rows, live.on_codebook) == ("a folder of Qdrant", 200, 0)
    client.delete("notes", models.PointIdsList(points=list(range(200))))
    put(decoded[:50], 1000)
    client.close()
    found = audit_store(tmp_path / "q", codec=coded, vectors=rows, by="who")
    assert (found.rows, found.on_codebook, found.rows_per_person) == (50, 50, 1)
    assert found.clear == ("notes.id", "notes.who")
    assert found.traces[0].form == "pickled floats"
    assert found.traces[0].vectors > 50
    place = next((tmp_path / "q").rglob("storage.sqlite"))
    assert found.faults[0].remedy == f'sqlite3 "{place}" VACUUM'
    with sqlite3.connect(place) as connection:
        connection.execute("VACUUM")
    connection.close()
    assert audit_store(tmp_path / "q", codec=coded, vectors=rows).faults == ()
