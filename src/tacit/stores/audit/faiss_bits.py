"""Bits that an index of FAISS keeps of a vector, from its structure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

ID_BITS = 64


@dataclass(frozen=True, kw_only=True)
class IndexBits:
    """What an index keeps of each vector.

    Attributes:
        code: bits of its code; 32 d where it is exact.
        list: bits of the list that it stands in, log2 of how many there are, rounded up.
        name: bits of a number of its own that the index keeps.
        exact: whether the vector itself is there.
        graph: whether neighbours are kept, which tell about the vectors that they were found by.
    """

    code: int
    list: int = 0
    name: int = 0
    exact: bool = False
    graph: bool = False

    @property
    def bits(self) -> int:
        """All of them."""
        return self.code + self.list + self.name


def index_bits(index: Any) -> IndexBits:
    """Return what an index of FAISS keeps of each vector.

    Args:
        index: of any class; of one that is not known, the vectors count as exact.

    Example:
        >>> import faiss
        >>> index_bits(faiss.index_factory(64, "PQ8x6")).bits
        48
        >>> index_bits(faiss.index_factory(64, "IVF16,PQ8")).bits
        132
    """
    import faiss

    held: Any = faiss.downcast_index(index)
    exact = IndexBits(code=32 * held.d, exact=True)
    if isinstance(held, faiss.IndexPreTransform):
        return index_bits(held.index)
    if isinstance(held, faiss.IndexIDMap | faiss.IndexIDMap2):
        # beside those that lists keep already
        inner = index_bits(held.index)
        return replace(inner, name=inner.name + ID_BITS)
    if isinstance(held, faiss.IndexRefine):
        # codes to search by, and what they are refined by
        first, second = index_bits(held.base_index), index_bits(held.refine_index)
        return replace(first, code=first.code + second.code, exact=first.exact or second.exact)
    if isinstance(held, faiss.IndexHNSW):
        return replace(index_bits(held.storage), graph=True)
    if isinstance(held, faiss.IndexIVF):
        bits = math.ceil(math.log2(held.nlist)) if held.nlist > 1 else 0
        return replace(_coded(held, exact), list=bits, name=ID_BITS)
    return _coded(held, exact)


def _coded(held: Any, exact: IndexBits) -> IndexBits:
    import faiss

    if isinstance(held, faiss.IndexFlat | faiss.IndexIVFFlat):
        return exact
    if hasattr(held, "pq"):
        return IndexBits(code=held.pq.M * held.pq.nbits)
    for name in ("rq", "lsq", "prq", "plsq"):
        if hasattr(held, name):
            # the bits of a norm that is kept beside them are among them
            return IndexBits(code=int(getattr(held, name).tot_bits))
    if hasattr(held, "code_size"):
        # every bit of every byte of the code
        return IndexBits(code=8 * int(held.code_size))
    return exact
