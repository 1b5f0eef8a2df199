"""A sealed store as LangChain's programs use one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tacit._ground.lazy import install_with
from tacit.stores.documents import Document, Hit, person_of
from tacit.stores.store import SealedStore

try:
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError:
    raise ImportError(f"langchain-core is not installed: {install_with('langchain')}") from None

# what a search opens, where it is asked for more of them than hits
FETCHED = 20


class LangChainStore(VectorStore):  # type: ignore[misc]
    """A vector store of LangChain whose texts, metadata, ids and vectors are sealed.

    Documents of ids that are there are replaced, in one step; ``filter`` is a function of a
    document, asked of those that a search opens. Scores are those of ``SealedStore``.

    Args:
        store: a sealed store, with its key.
        embeddings: an encoder of LangChain, of exact vectors: the store codes them.
        person: name in the metadata of whom a document is about; none is said when None.

    Raises:
        ImportError: langchain-core is not installed.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> import tempfile
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> from tacit.stores import FolderBackend, new_key
        >>> encoder = DeterministicFakeEmbedding(size=8)
        >>> public = np.array(encoder.embed_documents([f"public {n}" for n in range(400)]), "f4")
        >>> book = Codebook.fit(public, CodebookFit(size=8), rng=0, progress=False)
        >>> sealed = SealedStore(book, new_key(), FolderBackend(tempfile.mkdtemp() + "/notes"))
        >>> store = LangChainStore(sealed, encoder)
        >>> _ = store.add_texts(["a letter", "an invoice"])
        >>> store.similarity_search("an invoice", k=1)[0].page_content
        'an invoice'
    """

    def __init__(
        self, store: SealedStore, embeddings: Embeddings, *, person: str | None = None
    ) -> None:
        self.store, self.person, self._embeddings = store, person, embeddings

    @property
    def embeddings(self) -> Embeddings:
        """The encoder."""
        return self._embeddings

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add texts, all or none, and return their ids, random ones where none are given."""
        given = list(texts)
        about = [{}] * len(given) if metadatas is None else list(metadatas)
        names = [name or str(uuid.uuid4()) for name in ids or [None] * len(given)]
        if not len(given) == len(about) == len(names):
            raise ValueError(
                f"metadatas, ids: expected one for each of {len(given)} texts, got {len(about)} "
                f"and {len(names)}"
            )
        # the last of one id counts, as it would if each were added by itself
        documents = {
            name: Document(id=name, text=text, metadata=metadata, person=self._person(metadata))
            for name, text, metadata in zip(names, given, about, strict=True)
        }
        if documents:
            rows = self._embeddings.embed_documents([one.text for one in documents.values()])
            self.store.add(documents.values(), np.asarray(rows, np.float32), replace=True)
        return names

    def delete(self, ids: Sequence[str] | None = None, **_: Any) -> bool:
        """Delete documents by their ids, all of them when None; what is not there is passed over.

        ``compact`` of the sealed store then removes what its place keeps of them.
        """
        names = [one.id for one in self.store] if ids is None else list(dict.fromkeys(ids))
        self.store.delete([name for name in names if name in self.store])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[LangChainDocument]:
        """Return documents by their ids, of those that are there."""
        return [_given_back(one) for one in self.store.get([n for n in ids if n in self.store])]

    def similarity_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, **asked: Any
    ) -> list[tuple[LangChainDocument, float]]:
        """Return the k documents nearest to an exact vector, with their scores.

        Args:
            embedding: (d,).
            k: how many.
            asked: ``filter``, a function of a document, and ``shortlist``, how many are opened.
        """
        return [(_given_back(hit.document), hit.score) for hit in self._hits(embedding, k, asked)]

    def similarity_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, **asked: Any
    ) -> list[LangChainDocument]:
        """As ``similarity_search_with_score_by_vector``, without scores."""
        return [_given_back(hit.document) for hit in self._hits(embedding, k, asked)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **asked: Any
    ) -> list[tuple[LangChainDocument, float]]:
        """As ``similarity_search_with_score_by_vector``, of a text."""
        vector = self._embeddings.embed_query(query)
        return self.similarity_search_with_score_by_vector(vector, k, **asked)

    def similarity_search(self, query: str, k: int = 4, **asked: Any) -> list[LangChainDocument]:
        """As ``similarity_search_with_score``, without scores."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **asked)]

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = FETCHED,
        lambda_mult: float = 0.5,
        **asked: Any,
    ) -> list[LangChainDocument]:
        """Return k of the ``fetch_k`` nearest that are near, and unlike each other."""
        hits = self._hits(embedding, fetch_k, asked)
        # exact vectors stay where they were opened: texts of the few are encoded again
        rows = self._embeddings.embed_documents([hit.document.text for hit in hits])
        chosen = maximal_marginal_relevance(
            np.asarray(embedding, np.float32), rows, lambda_mult=lambda_mult, k=k
        )
        return [_given_back(hits[place].document) for place in chosen]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = FETCHED,
        lambda_mult: float = 0.5,
        **asked: Any,
    ) -> list[LangChainDocument]:
        """As ``max_marginal_relevance_search_by_vector``, of a text."""
        vector = self._embeddings.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **asked
        )

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Sequence[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        store: SealedStore | None = None,
        person: str | None = None,
        **_: Any,
    ) -> LangChainStore:
        """Add texts to a sealed store, and return it as LangChain's."""
        if store is None:
            raise ValueError("store: expected a SealedStore, got None")
        found = cls(store, embedding, person=person)
        found.add_texts(texts, metadatas, ids=ids)
        return found

    def _hits(self, embedding: Sequence[float], k: int, asked: dict[str, Any]) -> tuple[Hit, ...]:
        chosen: Callable[[LangChainDocument], bool] | None = asked.get("filter")
        if chosen is not None and not callable(chosen):
            raise ValueError(
                f"filter: expected a function of a document, got {type(chosen).__name__}"
            )
        return self.store.search(
            np.asarray(embedding, np.float32),
            k,
            shortlist=asked.get("shortlist"),
            where=None if chosen is None else lambda one: chosen(_given_back(one)),
        )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self.store.settings.metric == "euclidean":
            return lambda score: 1.0 / (1.0 - score)
        return lambda score: (1.0 + score) / 2.0

    def _person(self, metadata: dict[str, Any]) -> str | None:
        return None if self.person is None else person_of(metadata.get(self.person))


def _given_back(document: Document) -> LangChainDocument:
    return LangChainDocument(
        id=document.id, page_content=document.text, metadata=dict(document.metadata)
    )
