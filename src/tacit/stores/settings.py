"""How a sealed store is laid out, as a value that is declared before a document is seen."""

from __future__ import annotations

from typing import Annotated, Literal

from tacit._ground.checks import integer
from tacit._ground.values import Count, Within, value

# What a text, its id and its metadata are padded to, in bytes: two bits of every length are told.
BUCKETS = (512, 2048, 8192, 32768)


@value
class StoreSettings:
    """What is declared of a sealed store: all of it is told to whoever holds the files.

    Args:
        metric: What nearness of vectors is; with cosine the codebook codes unit vectors.
        buckets: Bytes that a document (text, id, metadata and person as JSON) is padded to, rising;
            which of them it is, is told.
        rows_per_person: T, documents that are ever added about one person at most.
        shortlist: Share of the documents that a search fetches, unless it is asked for another.
        fetched_by: Which codes say what a search fetches, where finer ones are sealed: by the clear
            ones, what a host sees of searches tells nothing of a document beyond its code.

    Example:
        >>> StoreSettings(buckets=(4096,))
        StoreSettings(buckets=(4096,))
    """

    metric: Literal["cosine", "dot", "euclidean"] = "cosine"
    buckets: tuple[int, ...] = BUCKETS
    rows_per_person: Count = 1
    shortlist: Annotated[float, Within(0, 1, ends="(]")] = 0.05
    fetched_by: Literal["fine", "clear"] = "fine"

    def _together(self) -> None:
        if not self.buckets:
            raise ValueError("buckets: expected one size or more, got none")
        for size in self.buckets:
            integer("buckets", size, minimum=1)
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets: expected rising sizes, got {self.buckets}")
