"""Sealed stores and coded vectors in LangChain, LlamaIndex, Haystack and sentence-transformers."""

from __future__ import annotations

import doctest
import hashlib
import importlib

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tacit.stores import FolderBackend, PrivateEmbeddings, SealedStore, StoreSettings

from .places import KEY, WIDTH, book, on_disk

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings("ignore")]

TEXTS = [f"the {noun} of {name}" for noun in ("letter", "invoice") for name in "abcdefghij"]


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")


def vector(text):
    """A sum of a random vector a word."""
    row = np.zeros(WIDTH)
    for word in text.split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        row += np.random.default_rng(seed).normal(size=WIDTH)
    return row.tolist()


def sealed(folder, rows=1):
    settings = StoreSettings(shortlist=1.0, rows_per_person=rows)
    return SealedStore(book(), KEY, FolderBackend(folder / "notes"), settings)


def decoded(texts):
    rows = np.float32([vector(text) for text in texts])
    return book().decode(book().encode(rows)).numpy()


def nothing_in_clear(folder):
    held = on_disk(folder)
    return not any(text.encode() in held for text in TEXTS)


@pytest.mark.parametrize("name", ["langchain", "llamaindex", "haystack"])
def test_examples_of_the_docstrings_run(name):
    pytest.importorskip(
        {"langchain": "langchain_core", "llamaindex": "llama_index"}.get(name, name)
    )
    outcome = doctest.testmod(importlib.import_module(f"tacit.stores.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.fixture
def encoder():
    embeddings = pytest.importorskip("langchain_core.embeddings")

    class Hashed(embeddings.Embeddings):
        def embed_documents(self, texts):
            return [vector(text) for text in texts]

        def embed_query(self, text):
            return vector(text)

    return Hashed()


def test_a_store_of_langchain_holds_codes_alone(encoder):
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    coded = PrivateEmbeddings(encoder, book())
    assert isinstance(coded, Embeddings)
    store = InMemoryVectorStore(coded)
    store.add_texts(TEXTS)
    held = np.float32([one["vector"] for one in store.store.values()])
    np.testing.assert_array_equal(held, decoded(TEXTS))
    assert len(store.similarity_search("the letter of b", 4)) == 4


def test_langchains_quickstart_finds_the_same_with_two_lines_changed(encoder, tmp_path):
    from langchain_core.documents import Document
    from langchain_core.vectorstores import InMemoryVectorStore

    from tacit.stores.langchain import LangChainStore

    documents = [
        Document(page_content=text, metadata={"who": text[-1], "place": n}, id=f"id-{n}")
        for n, text in enumerate(TEXTS)
    ]

    def tried(vector_store):
        names = vector_store.add_documents(documents=documents)
        vector_store.delete(ids=["id-0", "id-1", "no such id"])
        vector_store.add_documents([Document(page_content="the letter of z", id="id-2")])
        query = "the invoice of c"
        scored = vector_store.similarity_search_with_score(query, k=5)
        only = vector_store.similarity_search(
            query, k=3, filter=lambda one: one.page_content < query
        )
        retriever = vector_store.as_retriever(search_type="mmr", search_kwargs={"k": 3})
        kept = vector_store.get_by_ids(["id-2", "id-0", "id-4"])
        return (
            names,
            [one for one, _ in scored],
            np.round([score for _, score in scored], 3).tolist(),
            only,
            retriever.invoke(query),
            sorted(one.page_content for one in kept),
        )

    own = LangChainStore(sealed(tmp_path), encoder)
    assert tried(own) == tried(InMemoryVectorStore(encoder))
    assert nothing_in_clear(tmp_path)
    assert own.embeddings is encoder
    score = own.similarity_search_with_relevance_scores("the letter of z", k=1)[0][1]
    assert score == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(ValueError, match="filter: expected a function"):
        own.similarity_search("the letter", filter={"who": "a"})
    own.delete()
    assert len(own.store) == 0


def test_whom_a_document_of_langchain_is_about_is_counted(encoder, tmp_path):
    from tacit.stores.langchain import LangChainStore

    about = [{"who": text[-1]} for text in TEXTS]
    store = LangChainStore.from_texts(
        TEXTS, encoder, about, store=sealed(tmp_path, 2), person="who"
    )
    with pytest.raises(ValueError, match=r"documents\[0\]\.person: expected at most 2"):
        store.add_texts(["another"], [{"who": "c"}])
    with pytest.raises(ValueError, match="person: expected text or a whole number"):
        store.add_texts(["another"], [{"who": ["d", "e"]}])
    with pytest.raises(ValueError, match="store: expected a SealedStore"):
        LangChainStore.from_texts(TEXTS, encoder)


def test_an_index_of_llamaindex_is_sealed(tmp_path):
    core = pytest.importorskip("llama_index.core")
    from llama_index.core import Document, StorageContext, VectorStoreIndex
    from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilters

    from tacit.stores.llamaindex import LlamaIndexEmbedding, LlamaIndexStore

    class Hashed(core.MockEmbedding):
        def _get_text_embedding(self, text):
            return vector(text)

        def _get_query_embedding(self, text):
            return vector(text)

    encoder = Hashed(embed_dim=WIDTH)
    texts = [
        Document(text=text, id_=f"d{n}", metadata={"kind": text.split()[1]})
        for n, text in enumerate(TEXTS)
    ]
    for text in texts:
        text.excluded_embed_metadata_keys = ["kind"]
    plain = VectorStoreIndex.from_documents(texts, embed_model=encoder)
    held = LlamaIndexStore(sealed(tmp_path))
    context = StorageContext.from_defaults(vector_store=held)
    index = VectorStoreIndex.from_documents(texts, storage_context=context, embed_model=encoder)

    def found(one, **asked):
        nodes = one.as_retriever(similarity_top_k=4, **asked).retrieve("the letter of d")
        return [(node.text, round(node.score, 3)) for node in nodes]

    assert found(index) == found(plain)
    kind = MetadataFilters(filters=[ExactMatchFilter(key="kind", value="invoice")])
    assert found(index, filters=kind) == found(plain, filters=kind)
    index.delete_ref_doc("d3")
    plain.delete_ref_doc("d3")
    assert found(index) == found(plain)
    assert len(held.get_nodes(filters=kind)) == 10
    context.persist(str(tmp_path / "context"))
    assert nothing_in_clear(tmp_path)
    held.delete_nodes(filters=kind)
    assert len(held.client) == 9
    held.clear()
    assert len(held.client) == 0
    coded = LlamaIndexEmbedding(encoder, book())
    np.testing.assert_array_equal(np.float32(coded.get_text_embedding_batch(TEXTS)), decoded(TEXTS))
    assert coded.get_query_embedding(TEXTS[0]) == vector(TEXTS[0])


def test_a_pipeline_of_haystack_is_sealed(tmp_path):
    pytest.importorskip("haystack")
    from haystack import Document, Pipeline
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.components.writers import DocumentWriter
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.in_memory import InMemoryDocumentStore
    from haystack.document_stores.types import DuplicatePolicy

    from tacit.stores.haystack import HaystackEmbedder, HaystackRetriever, HaystackStore

    documents = [
        Document(id=f"d{n}", content=text, meta={"kind": text.split()[1]}, embedding=vector(text))
        for n, text in enumerate(TEXTS)
    ]
    only = {"field": "meta.kind", "operator": "==", "value": "invoice"}

    def tried(store, retriever):
        filling = Pipeline()
        filling.add_component("writer", DocumentWriter(store))
        filling.run({"writer": {"documents": documents}})
        with pytest.raises(DuplicateDocumentError):
            store.write_documents(documents[:2], DuplicatePolicy.FAIL)
        assert store.write_documents(documents[:2], DuplicatePolicy.SKIP) == 0
        assert store.write_documents(documents[:2], DuplicatePolicy.OVERWRITE) == 2
        store.delete_documents(["d3"])
        asked = Pipeline()
        asked.add_component("retriever", retriever)
        found = []
        for filters in (None, only):
            query = {"query_embedding": vector("the letter of c"), "top_k": 3, "filters": filters}
            hits = asked.run({"retriever": query})["retriever"]["documents"]
            found.append([(hit.id, hit.content, hit.meta, round(hit.score, 3)) for hit in hits])
        kept = sorted(one.id for one in store.filter_documents(only))
        return store.count_documents(), found, kept

    theirs = InMemoryDocumentStore(embedding_similarity_function="cosine")
    own = HaystackStore(sealed(tmp_path))
    wanted = tried(theirs, InMemoryEmbeddingRetriever(theirs, scale_score=False))
    assert tried(own, HaystackRetriever(own)) == wanted
    assert nothing_in_clear(tmp_path)
    with pytest.raises(ValueError, match="its key is not written"):
        own.to_dict()
    with pytest.raises(ValueError, match=r"documents\[0\]\.embedding: expected a vector"):
        own.write_documents([Document(content="bare")])
    coded = HaystackEmbedder(book()).run(documents=documents)["documents"]
    np.testing.assert_array_equal(np.float32([one.embedding for one in coded]), decoded(TEXTS))


def test_a_folder_of_sentence_transformers_is_read_as_it_is_served(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sentences = pytest.importorskip("sentence_transformers")
    import torch
    import transformers
    from sentence_transformers import models

    from tacit.models import load_encoder
    from tests.models.families import words

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    transformers.BertModel(
        transformers.BertConfig(
            vocab_size=40, intermediate_size=24, max_position_embeddings=20, pad_token_id=2, **sizes
        )
    ).save_pretrained(tmp_path / "bare")
    words().save_pretrained(tmp_path / "bare")
    texts = ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13 w14"]
    for pooling in ("mean", "cls", "lasttoken"):
        steps = [models.Transformer(str(tmp_path / "bare"), max_seq_length=5),
                 models.Pooling(WIDTH, pooling), models.Normalize()]  # fmt: skip
        served = sentences.SentenceTransformer(
            modules=steps, prompts={"note": "w7 "}, default_prompt_name="note", device="cpu"
        )
        served.save(str(tmp_path / pooling))
        theirs = served.encode(texts)
        ours = load_encoder(str(tmp_path / pooling)).encode(texts).numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    coded = PrivateEmbeddings(served, book())
    np.testing.assert_array_equal(coded.encode(texts), book().decode(book().encode(theirs)).numpy())
    np.testing.assert_array_equal(
        np.float32(coded.embed_query(texts[0])), served.encode([texts[0]])[0]
    )
