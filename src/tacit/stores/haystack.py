"""A sealed store, and coded vectors, as Haystack's pipelines use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit._ground.lazy import install_with
from tacit.hidden_states import Codec
from tacit.stores.documents import Document, person_of
from tacit.stores.store import SealedStore

try:
    from haystack import Document as HaystackDocument
    from haystack import component
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.utils.filters import document_matches_filter
except ImportError:
    raise ImportError(f"haystack-ai is not installed: {install_with('haystack')}") from None

Filters = dict[str, Any]


@component  # type: ignore[untyped-decorator, unused-ignore]
class HaystackEmbedder:
    """Replace vectors of documents by those that stand for their codes, before a store has them.

    It stands behind an embedder of documents in a pipeline; queries stay exact.

    Args:
        codec: a codebook fitted on vectors of public texts of this embedder.

    Raises:
        ImportError: haystack-ai is not installed.

    Example:
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> rows = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
        >>> book = Codebook.fit(rows, CodebookFit(size=8), rng=0, progress=False)
        >>> given = [HaystackDocument(content="text", embedding=row.tolist()) for row in rows]
        >>> coded = HaystackEmbedder(book).run(documents=given)["documents"]
        >>> len({tuple(one.embedding) for one in coded}) <= 8
        True
    """

    def __init__(self, codec: Codec) -> None:
        if not isinstance(codec, Codec):
            raise ValueError(f"codec: expected a codebook, got {type(codec).__name__}")
        self.codec = codec

    @component.output_types(documents=list[HaystackDocument])  # type: ignore[untyped-decorator, unused-ignore]
    def run(self, documents: list[HaystackDocument]) -> dict[str, Any]:
        """Return the documents with coded vectors."""
        if not documents:
            return {"documents": []}
        rows = self.codec.decode(self.codec.encode(_vectors(documents))).numpy().tolist()
        both = zip(documents, rows, strict=True)
        return {"documents": [replace(one, embedding=row) for one, row in both]}


class HaystackStore:
    """A document store of Haystack whose documents, ids and vectors are sealed.

    Args:
        store: a sealed store, with its key.
        person: name in the ``meta`` of whom a document is about; none is said when None.

    Raises:
        ImportError: haystack-ai is not installed.

    Example:
        >>> import tempfile
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> from tacit.stores import FolderBackend, new_key
        >>> rows = np.random.default_rng(0).normal(size=(402, 8)).astype(np.float32)
        >>> book = Codebook.fit(rows[:400], CodebookFit(size=8), rng=0, progress=False)
        >>> sealed = SealedStore(book, new_key(), FolderBackend(tempfile.mkdtemp() + "/notes"))
        >>> texts = "a letter", "an invoice"
        >>> store, both = HaystackStore(sealed), zip(texts, rows[400:].tolist())
        >>> store.write_documents([HaystackDocument(content=c, embedding=row) for c, row in both])
        2
        >>> found = HaystackRetriever(store).run(query_embedding=rows[401].tolist(), top_k=1)
        >>> found["documents"][0].content
        'an invoice'
    """

    def __init__(self, store: SealedStore, *, person: str | None = None) -> None:
        self.store, self.person = store, person

    def to_dict(self) -> dict[str, Any]:
        """Refuse: a pipeline that is written would have the key in the clear."""
        raise ValueError("HaystackStore: its key is not written into a pipeline's file")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackStore:
        """Refuse, as ``to_dict`` does."""
        raise ValueError("HaystackStore: a pipeline's file has no key to open it with")

    def count_documents(self) -> int:
        """Return how many documents there are."""
        return len(self.store)

    def filter_documents(self, filters: Filters | None = None) -> list[HaystackDocument]:
        """Open every document, and return those that pass the filters."""
        return [_given_back(one) for one in self.store if _passes(one, filters)]

    def write_documents(
        self, documents: list[HaystackDocument], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write documents with their vectors, all or none; return how many were written."""
        kept = {one.id: one for one in documents}
        if policy == DuplicatePolicy.SKIP:
            kept = {name: one for name, one in kept.items() if name not in self.store}
        elif policy != DuplicatePolicy.OVERWRITE and (
            len(kept) < len(documents) or any(name in self.store for name in kept)
        ):
            raise DuplicateDocumentError("documents: expected ids that are not there yet")
        given = list(kept.values())
        if given:
            self.store.add([self._document(one) for one in given], _vectors(given), replace=True)
        return len(given)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by ids; what is not there is passed over.

        ``compact`` of the sealed store then removes what its place keeps of them.
        """
        self.store.delete([name for name in dict.fromkeys(document_ids) if name in self.store])

    def _document(self, document: HaystackDocument) -> Document:
        # everything but the vector, which is kept beside it
        held = replace(document, embedding=None, score=None).to_dict(flatten=False)
        text = held.pop("content") or ""
        person = None if self.person is None else document.meta.get(self.person)
        return Document(
            id=document.id,
            text=text,
            metadata=held,
            person=person_of(person),
        )


@component  # type: ignore[untyped-decorator, unused-ignore]
class HaystackRetriever:
    """Find documents of a sealed store by an exact vector.

    Args:
        document_store: a ``HaystackStore``.
        top_k: how many.
        filters: asked of the documents that a search opens; none when None.
        shortlist: how many documents a search opens; as the store's settings say when None.
    """

    def __init__(
        self,
        document_store: HaystackStore,
        top_k: int = 10,
        filters: Filters | None = None,
        shortlist: int | None = None,
    ) -> None:
        self.document_store, self.top_k = document_store, top_k
        self.filters, self.shortlist = filters, shortlist

    @component.output_types(documents=list[HaystackDocument])  # type: ignore[untyped-decorator, unused-ignore]
    def run(
        self,
        query_embedding: list[float],
        filters: Filters | None = None,
        top_k: int | None = None,
    ) -> dict[str, Any]:
        """Return the nearest documents, the nearest first, with their scores."""
        asked = filters or self.filters
        hits = self.document_store.store.search(
            np.asarray(query_embedding, np.float32),
            top_k or self.top_k,
            shortlist=self.shortlist,
            where=None if asked is None else lambda one: _passes(one, asked),
        )
        return {"documents": [replace(_given_back(hit.document), score=hit.score) for hit in hits]}


def _vectors(documents: list[HaystackDocument]) -> Any:
    for place, one in enumerate(documents):
        if one.embedding is None:
            raise ValueError(
                f"documents[{place}].embedding: expected a vector, as an embedder gives, got None"
            )
    return np.asarray([one.embedding for one in documents], np.float32)


def _given_back(document: Document) -> HaystackDocument:
    held = dict(document.metadata)
    # a document of bytes alone has no text
    held["content"] = None if held.get("blob") and not document.text else document.text
    return HaystackDocument.from_dict(held)


def _passes(document: Document, filters: Filters | None) -> bool:
    return filters is None or bool(document_matches_filter(filters, _given_back(document)))
