"""A folder whose codes stand in one index of FAISS too, which searches them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit.hidden_states import Codec, faiss_index, packed_codes
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.stores.backends.base import ChangedError, ClearColumns
from tacit.stores.backends.folder import FolderBackend
from tacit.stores.ranking import CodeRanking, Scores

INDEX = "codes-{}.faiss"


class FaissBackend(FolderBackend):
    """A ``FolderBackend`` whose codes are in an index of FAISS too, in a file.

    Row i of the index is the document of the i-th handle, by rising handle. Whatever reads an
    index of FAISS reads it; it holds the codebook's centroids and the codes. It is the first stage
    by dot product and distance; by the cosine codes are ranked by their directions, which it has
    not.

    Args:
        path: the folder, made when something is written.

    Example:
        >>> FaissBackend("notes.store").words
        'a folder of safetensors and an index of FAISS'
    """

    words: ClassVar[str] = "a folder of safetensors and an index of FAISS"

    def prepare(self, codec: Codec, metric: str) -> None:
        """As ``Backend.prepare``: an index of no code is made, so that what cannot be refuses."""
        self._codec, self._metric = codec, metric
        self._index(np.zeros((1, len(codec.sizes)), np.int64))

    def columns(self, sizes: tuple[int, ...]) -> ClearColumns:
        """As ``Backend.columns``; an index of other codes is refused."""
        found = super().columns(sizes)
        if len(found) and self._named:
            self._read(self.path / self._named[0], found.codes)
        return found

    def ranking(self, codec: Codec, metric: str, codes: Codes) -> CodeRanking:
        return (
            _FaissRanking(self._index(codes), metric)
            if len(codes) and metric != "cosine"
            else super().ranking(codec, metric, codes)
        )

    def _beside(self, names: list[str]) -> list[str]:
        sizes = self._codec.sizes
        parts = [self._opened(name, sizes).columns for name in names]
        whole = ClearColumns.joined(parts, sizes).ordered()[0]
        if not len(whole):
            return []
        import faiss

        from tacit._ground.files import atomic_stream

        name = INDEX.format(secrets.token_hex(16))
        content = faiss.serialize_index(self._index(whole.codes.astype(np.int64)))
        with atomic_stream("path", self.path / name) as stream:
            stream.write(content.tobytes())
        return [name]

    def _index(self, codes: Codes) -> Any:
        index = faiss_index(self._codec, codes)
        if self._metric != "euclidean":
            import faiss

            index.metric_type = faiss.METRIC_INNER_PRODUCT
        return index

    def _read(self, place: Path, codes: npt.NDArray[Any]) -> None:
        import faiss

        try:
            index: Any = faiss.read_index(str(place))
            held = faiss.vector_to_array(index.codes).reshape(index.ntotal, -1)
        except (RuntimeError, AttributeError, ValueError):
            if not place.exists():
                # another process has committed since the manifest was read, or the file is lost
                raise ChangedError(f"store: its manifest names {place}, which is missing") from None
            raise ValueError(f"store: {place} is cut off or no index of codes") from None
        expected = packed_codes(codes.astype(np.int64), self._codec.bits)
        if not np.array_equal(held, expected):
            raise ValueError(f"store: {place} holds other codes than the documents")


class _FaissRanking(CodeRanking):
    def __init__(self, index: Any, metric: str) -> None:
        self._found, self._metric = index, metric

    def scores(
        self, query: npt.NDArray[np.float32], among: npt.NDArray[np.intp] | None = None
    ) -> Scores:
        near, rows = self._found.search(query[None], self._found.ntotal)
        scores = np.empty(self._found.ntotal, np.float32)
        scores[rows[0]] = near[0] if self._found.metric_type == 0 else -near[0]
        return scores if among is None else scores[among]

    def nearest(
        self,
        query: npt.NDArray[np.float32],
        count: int,
        among: npt.NDArray[np.intp] | None = None,
    ) -> npt.NDArray[np.intp]:
        if among is not None:
            return super().nearest(query, count, among)
        rows: npt.NDArray[np.intp] = self._found.search(query[None], count)[1][0]
        return rows[rows >= 0]
