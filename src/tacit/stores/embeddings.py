"""An encoder whose vectors are those that stand for codes, for any store that takes floats."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec

# what encoders are called by, of lists of texts: LangChain's, LlamaIndex's, sentence-transformers'
OF_TEXTS = ("embed_documents", "get_text_embedding_batch", "encode")
OF_QUERY = ("embed_query", "get_query_embedding")


class PrivateEmbeddings:
    """Give a store decoded codes in the place of vectors, and queries as they are.

    Two lines change of a program that fills Chroma, Qdrant, pgvector or any other store: the
    codebook, and this in the place of the encoder. Each vector is one of ``Π_j C_j``, so the store
    holds that many values whatever the texts are. Texts, ids and metadata that the program writes
    beside them are in the clear: see ``SealedStore``.

    Args:
        embeddings: an encoder with ``embed_documents`` and ``embed_query`` (LangChain),
            ``get_text_embedding_batch`` and ``get_query_embedding`` (LlamaIndex), ``encode``
            (sentence-transformers), or a function of a list of texts.
        codec: a codebook fitted on vectors of public texts of this encoder.

    Raises:
        ValueError: no encoder, or no codebook.

    Example:
        >>> from tacit.hidden_states import Codebook, CodebookFit
        >>> rows = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
        >>> book = Codebook.fit(rows, CodebookFit(size=8), rng=0)
        >>> coded = PrivateEmbeddings(lambda texts: rows[: len(texts)], book)
        >>> len({tuple(row) for row in coded.embed_documents(["text"] * 400)}) <= 8
        True
    """

    def __init__(self, embeddings: Any, codec: Codec) -> None:
        if not isinstance(codec, Codec):
            raise ValueError(f"codec: expected a codebook, got {type(codec).__name__}")
        self._texts = _called(embeddings, OF_TEXTS)
        if self._texts is None:
            raise ValueError(
                f"embeddings: expected an encoder with one of {', '.join(OF_TEXTS)}, or a "
                f"function, got {type(embeddings).__name__}"
            )
        self._query = _called(embeddings, OF_QUERY)
        self.embeddings, self.codec = embeddings, codec
        core = sys.modules.get("langchain_core.embeddings")
        if core is not None:
            # some stores of LangChain ask whether it is one of its encoders
            core.Embeddings.register(type(self))

    def encode(self, sentences: Sequence[str] | str, **asked: Any) -> npt.NDArray[np.float32]:
        """Return decoded codes of texts (n, d), or of one text (d,), as sentence-transformers do.

        Args:
            sentences: the texts.
            asked: of the encoder, which takes it.
        """
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        if not texts:
            return np.empty((0, self.codec.width), np.float32)
        assert self._texts is not None
        rows = np.asarray(self._texts(texts, **asked), np.float32)
        if rows.shape != (len(texts), self.codec.width):
            raise ValueError(
                f"embeddings: expected vectors of shape ({len(texts)}, {self.codec.width}), as the "
                f"codebook codes, got {rows.shape}"
            )
        decoded: npt.NDArray[np.float32] = self.codec.decode(self.codec.encode(rows)).numpy()
        return decoded[0] if single else decoded

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return decoded codes of texts, as LangChain's encoders do."""
        found: list[list[float]] = self.encode(list(texts)).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the exact vector of a query, which a store sees that is asked for it."""
        if self._query is not None:
            return [float(number) for number in self._query(text)]
        assert self._texts is not None
        return [float(number) for number in np.asarray(self._texts([text]))[0]]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As ``embed_documents``."""
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As ``embed_query``."""
        return self.embed_query(text)


def _called(embeddings: Any, names: Sequence[str]) -> Callable[..., Any] | None:
    for name in names:
        if callable(found := getattr(embeddings, name, None)):
            return found  # type: ignore[no-any-return]
    # a function of texts is none of a query
    return embeddings if names is OF_TEXTS and callable(embeddings) else None
