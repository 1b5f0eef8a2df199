"""A sealed store, and coded vectors, as LlamaIndex's programs use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit._ground.lazy import install_with
from tacit.hidden_states import Codec
from tacit.stores.documents import Document, person_of
from tacit.stores.embeddings import PrivateEmbeddings
from tacit.stores.store import SealedStore

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import (
        build_metadata_filter_fn,
        metadata_dict_to_node,
        node_to_metadata_dict,
    )
except ImportError:
    raise ImportError(f"llama-index-core is not installed: {install_with('llamaindex')}") from None


class LlamaIndexEmbedding(BaseEmbedding):  # type: ignore[misc]
    """An encoder of LlamaIndex whose vectors of texts are those that stand for codes.

    Queries are exact, as with ``PrivateEmbeddings``.

    Args:
        embeddings: an encoder of LlamaIndex.
        codec: a codebook fitted on vectors of public texts of this encoder.

    Raises:
        ImportError: llama-index-core is not installed.

    Example:
        >>> from llama_index.core import MockEmbedding
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> public = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
        >>> book = Codebook.fit(public, CodebookFit(size=8), rng=0, progress=False)
        >>> coded = LlamaIndexEmbedding(MockEmbedding(embed_dim=8), book)
        >>> len({tuple(row) for row in coded.get_text_embedding_batch(["a", "b"])})
        1
    """

    _coded: PrivateEmbeddings = PrivateAttr()

    def __init__(self, embeddings: BaseEmbedding, codec: Codec) -> None:
        coded = PrivateEmbeddings(embeddings, codec)
        super().__init__(model_name=getattr(embeddings, "model_name", "unknown"))
        self._coded = coded

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._coded.embed_documents(texts)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._coded.embed_documents([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._coded.embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class LlamaIndexStore(BasePydanticVectorStore):  # type: ignore[misc]
    """A vector store of LlamaIndex whose nodes, ids and vectors are sealed.

    Nodes of ids that are there are replaced, in one step; filters are asked of those nodes that a
    search opens. A ``docstore`` of the program's own would keep texts in the clear: there is none,
    as this store keeps them.

    Args:
        store: a sealed store, with its key.
        person: name in the metadata of whom a node is about; none is said when None.

    Raises:
        ImportError: llama-index-core is not installed.

    Example:
        >>> import tempfile
        >>> from llama_index.core.schema import TextNode
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> from tacit.stores import FolderBackend, new_key
        >>> rows = np.random.default_rng(0).normal(size=(402, 8)).astype(np.float32)
        >>> book = Codebook.fit(rows[:400], CodebookFit(size=8), rng=0, progress=False)
        >>> sealed = SealedStore(book, new_key(), FolderBackend(tempfile.mkdtemp() + "/notes"))
        >>> store = LlamaIndexStore(sealed)
        >>> texts = "a letter", "an invoice"
        >>> both = zip(texts, rows[400:].tolist())
        >>> _ = store.add([TextNode(text=text, embedding=row) for text, row in both])
        >>> asked = VectorStoreQuery(query_embedding=rows[401].tolist(), similarity_top_k=1)
        >>> store.query(asked).nodes[0].get_content()
        'an invoice'
    """

    stores_text: bool = True
    person: str | None = None
    _store: SealedStore = PrivateAttr()

    def __init__(self, store: SealedStore, *, person: str | None = None) -> None:
        super().__init__(person=person)
        self._store = store

    @classmethod
    def class_name(cls) -> str:
        """Name that LlamaIndex knows it by."""
        return "LlamaIndexStore"

    @property
    def client(self) -> SealedStore:
        """The sealed store."""
        return self._store

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with their vectors, all or none, and return their ids."""
        rows = [node.get_embedding() for node in nodes]
        # the last of one id counts, as it would if each were added by itself
        places = {node.node_id: place for place, node in enumerate(nodes)}
        held = [self._document(nodes[place]) for place in places.values()]
        if held:
            kept = np.asarray(rows, np.float32)[list(places.values())]
            self._store.add(held, kept, replace=True)
        return [node.node_id for node in nodes]

    def query(self, query: VectorStoreQuery, **asked: Any) -> VectorStoreQueryResult:
        """Return the nodes nearest to an exact vector.

        Args:
            query: by its vector.
            asked: ``shortlist``, how many are opened.
        """
        if query.mode != VectorStoreQueryMode.DEFAULT or query.query_embedding is None:
            raise ValueError(
                "query: expected a search by vector (mode default), as a sealed store has no words"
            )
        # LlamaIndex asks for none of them where all are meant
        only = set(query.node_ids) if query.node_ids else None
        within = set(query.doc_ids) if query.doc_ids else None

        def chosen(one: Document) -> bool:
            node = one.metadata
            return (
                (only is None or one.id in only)
                and (within is None or node.get("ref_doc_id") in within)
                and _passes(one, query.filters)
            )

        bare = only is None and within is None and query.filters is None
        hits = self._store.search(
            np.asarray(query.query_embedding, np.float32),
            query.similarity_top_k,
            shortlist=asked.get("shortlist"),
            where=None if bare else chosen,
        )
        return VectorStoreQueryResult(
            nodes=[_node(hit.document) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[hit.document.id for hit in hits],
        )

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return nodes by ids, or all of them, that pass the filters."""
        return [_node(one) for one in self._chosen(node_ids, filters)]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document; ``compact`` of the sealed store removes left-overs."""
        held = [one.id for one in self._store if one.metadata.get("ref_doc_id") == ref_doc_id]
        self._store.delete(held)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Delete nodes by ids, filters or both."""
        if node_ids is None and filters is None:
            raise ValueError("node_ids, filters: expected one of them; clear() deletes all")
        self._store.delete([one.id for one in self._chosen(node_ids, filters)])

    def clear(self) -> None:
        """Delete every node."""
        self._store.delete([one.id for one in self._store])

    def _chosen(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> list[Document]:
        names = (
            None if node_ids is None else [n for n in dict.fromkeys(node_ids) if n in self._store]
        )
        held = self._store if names is None else self._store.get(names)
        return [one for one in held if _passes(one, filters)]

    def _document(self, node: BaseNode) -> Document:
        person = None if self.person is None else node.metadata.get(self.person)
        return Document(
            id=node.node_id,
            text=node.get_content(),
            metadata=node_to_metadata_dict(node, remove_text=True, flat_metadata=False),
            person=person_of(person),
        )


def _node(document: Document) -> BaseNode:
    return metadata_dict_to_node(dict(document.metadata), text=document.text)


def _passes(document: Document, filters: MetadataFilters | None) -> bool:
    """Whether a node passes; what LlamaIndex keeps of it stands beside its own metadata."""
    if filters is None:
        return True
    return bool(build_metadata_filter_fn(lambda _: dict(document.metadata), filters)(document.id))
