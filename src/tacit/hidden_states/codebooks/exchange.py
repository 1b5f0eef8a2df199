"""Codes as FAISS keeps them: packed bits, and an index that searches them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.lazy import install_with
from tacit.hidden_states.codebooks.certificates import checked_codes
from tacit.hidden_states.codebooks.codec import Codec


def packed_codes(codes: ArrayLike, bits: int) -> npt.NDArray[np.uint8]:
    """Return codes as FAISS packs them: b bits a part, lowest bits first, rows of whole bytes.

    Args:
        codes: (n, m), each below 2^b.
        bits: b.

    Returns:
        (n, ⌈m b/8⌉); for b = 8 the codes themselves, for b = 16 their bytes, the low one first.

    Example:
        >>> packed_codes([[1, 2, 3]], 4).tolist()
        [[33, 3]]

    Source: FAISS, ``PQEncoderGeneric``.
    """
    rows = checked_codes("codes", codes, 2**bits, least=1)
    # bit j of a code is bit j of its little-endian word: the first b bits of each part, end to end
    wide = np.ascontiguousarray(rows.reshape(len(rows), -1), "<u4")
    unpacked = np.unpackbits(wide.view(np.uint8).reshape(*wide.shape, 4), axis=2, bitorder="little")
    return np.packbits(unpacked[:, :, :bits].reshape(len(rows), -1), axis=1, bitorder="little")


def faiss_index(codec: Codec, codes: ArrayLike) -> Any:
    """Return a FAISS index that holds codes and searches them by distance to their centroids.

    An ``IndexPQ``, or an ``IndexResidualQuantizer`` of codewords that are summed.

    Args:
        codec: the codebook; a plain one is searched by its codewords.
        codes: (n, m) or (n,).

    Returns:
        The index: ``faiss.write_index`` stores it, ``reconstruct`` decodes.

    Raises:
        ValueError: codes outside the codebook, or FAISS is not installed.

    Source: ``ProductQuantizer``: centroids (m, 2^b, d/m) of float32.
    """
    try:
        import faiss
    except ImportError:
        raise ValueError(f"faiss: not installed; {install_with('llm')}") from None
    rows = np.asarray(codes)
    rows = rows[:, None] if rows.ndim == 1 else rows
    # refuses codes of another shape
    codec.decode(rows[:1])
    packed = packed_codes(rows, codec.bits)
    index = _summing(codec, faiss) if codec.summed else _tiling(codec, faiss)
    faiss.copy_array_to_vector(packed.ravel(), index.codes)
    # the index is filled as FAISS keeps it, without a call that would encode again
    index.ntotal = len(packed)
    index.is_trained = True
    return index


def _tiling(codec: Codec, faiss: Any) -> Any:
    """Return an index whose vectors are centroids side by side."""
    index = faiss.IndexPQ(codec.width, len(codec.sizes), codec.bits)
    faiss.copy_array_to_vector(_table(codec, 2**codec.bits).ravel(), index.pq.centroids)
    return index


def _summing(codec: Codec, faiss: Any) -> Any:
    """Return an index whose vectors are sums of codewords, which a search adds up again."""
    bits = faiss.ResidualQuantizer(codec.width, len(codec.sizes), codec.bits)
    index = faiss.IndexResidualQuantizer(
        codec.width, len(codec.sizes), codec.bits, faiss.METRIC_L2, bits.ST_decompress
    )
    faiss.copy_array_to_vector(_table(codec, 2**codec.bits).ravel(), index.rq.codebooks)
    index.rq.is_trained = True
    return index


def _table(codec: Codec, rows: int) -> npt.NDArray[np.float32]:
    """Return the centroids as FAISS keeps them, (m, 2^b, d_j) of float32.

    A part of fewer cells repeats its first one, which no code refers to.
    """
    parts = [part.numpy() for part in codec.centroids]
    filled = [np.concatenate([part, np.repeat(part[:1], rows - len(part), 0)]) for part in parts]
    return np.stack(filled)
