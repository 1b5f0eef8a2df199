"""A sealed store: what a shortlist by code holds of the exact ten nearest, and milliseconds.

``python -m benchmarks.stores recall --data DATA`` measures recall@10 by real bits and by the share
of documents that a search fetches, on embeddings of news (``ag_news_train_part.csv.gz``), digits
(``mnist.npz``), photographs (``cifar10.npz``) and windows of plain text (``text/``): codebooks are
fitted on one part, searched is another. ``python -m benchmarks.stores speed`` times a search among
10⁵ vectors of 768 numbers beside FAISS's exact search, in one run, in time of a processor.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.vector_sets import images
from tacit.hidden_states import ResidualCodebook, ResidualFit
from tacit.stores import Document, FolderBackend, SealedStore, StoreSettings, new_key
from tacit.stores.ranking import CodeRanking, largest

STORED, QUERIES, PUBLIC, NEIGHBOURS, WIDTH = 20_000, 250, 15_000, 10, 384
SHARES = (0.005, 0.01, 0.025, 0.05, 0.1)
# stages of residual codes: the first few stand in the clear, all of them under seal
STAGES, CLEAR = 8, (1, 2, 3, 4)
PARTS = ("public", "store", "queries")


def unit(rows: Any) -> Any:
    rows = np.asarray(rows, np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def latent(texts: list[str]) -> Any:
    """Return texts as (n, 384): words weighted by rarity, by the axes of the public ones."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(min_df=3, max_df=0.3, sublinear_tf=True, stop_words="english")
    public = words.fit_transform(texts[:PUBLIC])
    axes = TruncatedSVD(WIDTH, n_iter=3, random_state=0).fit(public)
    return unit(axes.transform(words.transform(texts)))


def averaged(texts: list[str]) -> Any:
    """Return texts as (n, 384): word vectors by rarity, averaged, their common direction removed.

    Source: word vectors by PPMI (Levy and Goldberg, 2014), SIF (Arora, Liang and Ma, 2017).
    """
    import scipy.sparse as sp
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(min_df=5, max_features=12_000, binary=True)
    public = words.fit_transform(texts[:PUBLIC]).astype(np.float64)
    # PPMI: max(0, ln p(a, b)/(p(a) p(b))) of words that stand in one text
    together = (public.T @ public).tocoo()
    share = np.asarray(public.sum(0)).ravel()
    value = np.log(together.data * PUBLIC / (share[together.row] * share[together.col]))
    kept = value > 0
    places = together.row[kept], together.col[kept]
    mutual = sp.csr_matrix((value[kept], places), shape=together.shape)
    vectors = TruncatedSVD(WIDTH, n_iter=3, random_state=0).fit_transform(mutual)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
    weights = 1e-3 / (1e-3 + share / share.sum())
    rows = words.transform(texts).astype(np.float64) @ (weights[:, None] * vectors)
    common = np.linalg.svd(rows[:PUBLIC], full_matrices=False)[2][0]
    return unit(rows - np.outer(rows @ common, common))


def parts(rows: Any) -> tuple[Any, ...]:
    return tuple(np.split(rows, [PUBLIC, PUBLIC + STORED]))


def sets(data: Path) -> Iterator[tuple[str, Any]]:
    with gzip.open(data / "ag_news_train_part.csv.gz", "rb") as stream:
        table = csv.reader(io.TextIOWrapper(stream, "utf-8"))
        news = [" ".join(row[1:]) for row in table]
    order = np.random.default_rng(0).permutation(len(news))
    chosen = [news[place] for place in order[: PUBLIC + STORED + QUERIES]]
    yield "AG News, SIF", parts(averaged(chosen))
    yield "AG News, SVD", parts(latent(chosen))
    digits = np.load(data / "mnist.npz")["x_train"].reshape(60_000, -1) / 255.0
    digits = digits[np.random.default_rng(0).permutation(60_000)[: PUBLIC + STORED + QUERIES]]
    mean = digits[:PUBLIC].mean(0)
    axes = np.linalg.eigh(np.cov(digits[:PUBLIC].T))[1][:, ::-1][:, :64]
    yield "MNIST", parts(unit((digits - mean) @ axes))
    windows: list[str] = []
    for path in sorted((data / "text").glob("*.txt.gz")):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as text:
            words = text.read().split()
        windows += [" ".join(words[at : at + 60]) for at in range(0, len(words) - 60, 60)]
    order = np.random.default_rng(0).permutation(len(windows))
    chosen = [windows[place] for place in order[: PUBLIC + STORED + QUERIES]]
    yield "text windows", parts(latent(chosen))
    photographs = images(str(data))
    yield "photographs", tuple(unit(getattr(photographs, part)) for part in PARTS)


def recall(data: Path) -> None:
    shares = ", ".join(f"{share:.1%}" for share in SHARES)
    print(f"recall@{NEIGHBOURS} by the share that is fetched: {shares}")
    for name, rows in sets(data):
        public, stored, queries = rows
        exact = [set(largest(stored @ query, NEIGHBOURS).tolist()) for query in queries]
        how = ResidualFit(stages=STAGES, size=256)
        fine = ResidualCodebook.fit(public, how, rng=0, progress=False)
        for book in (*map(fine.first, CLEAR), fine):
            ranking = CodeRanking(book, "cosine", book.encode(stored))
            found = []
            for share in SHARES:
                count = math.ceil(share * len(stored))
                held = [
                    len(near & set(ranking.nearest(query, count).tolist()))
                    for near, query in zip(exact, queries, strict=True)
                ]
                found.append(sum(held) / (NEIGHBOURS * len(queries)))
            told = "  ".join(f"{value:.3f}" for value in found)
            print(f"{name:>12}, {len(stored):,}: {book.kept_bits:.1f} bits  {told}", flush=True)


def milliseconds(work: Callable[[Any], object], queries: Any) -> float:
    """Return the median of a processor's milliseconds, which other work on it does not lengthen."""
    work(queries[0])
    times = []
    for query in queries:
        began = time.process_time()
        work(query)
        times.append(1000.0 * (time.process_time() - began))
    return float(np.median(times))


def speed(count: int, width: int) -> None:
    import faiss

    source = np.random.default_rng(0)
    centres = source.normal(size=(2000, width)).astype(np.float32)
    rows = centres[source.integers(0, 2000, count + 5_020)]
    rows = unit(rows + 0.7 * source.normal(size=rows.shape).astype(np.float32))
    public, queries, stored = rows[:5_000], rows[5_000:5_020], rows[5_020:]
    exact = faiss.IndexFlatIP(width)
    exact.add(stored)
    theirs = milliseconds(lambda query: exact.search(query[None], NEIGHBOURS), queries)
    print(f"{count:,} × {width}: FAISS, exact {theirs:.1f} ms")
    fine = ResidualCodebook.fit(public, ResidualFit(stages=8, size=256), rng=0, progress=False)
    book = fine.first(2)
    for name, one in (("clear", book), ("fine", fine)):
        ranking = CodeRanking(one, "cosine", one.encode(stored))
        first = milliseconds(partial(ranking.nearest, count=1000), queries)
        print(f"  first stage by {name} codes of {one.kept_bits:.1f} bits: {first:.1f} ms")
    near = exact.search(queries, NEIGHBOURS)[1]
    by_fine, by_clear = (
        StoreSettings(buckets=(256,)), StoreSettings(buckets=(256,), fetched_by="clear")
    )  # fmt: skip
    most = count // 20
    for settings, shortlists in ((by_fine, (200, 500, 1000, most)), (by_clear, (1000, most))):
        by = settings.fetched_by
        with tempfile.TemporaryDirectory() as folder:
            place = FolderBackend(Path(folder) / "store")
            store = SealedStore(book, new_key(), place, settings, fine=fine)
            began = time.perf_counter()
            store.add([Document(id=str(n), text=f"document {n}") for n in range(count)], stored)
            taken = time.perf_counter() - began
            print(f"  sealed and written: {count / taken:,.0f} documents a second")
            for shortlist in shortlists:

                def search(query: Any, store: Any = store, shortlist: int = shortlist) -> Any:
                    return store.search(query, NEIGHBOURS, shortlist=shortlist)

                ours = milliseconds(search, queries)
                right = [len(set(map(str, a.tolist())) & {hit.document.id for hit in hits})
                         for a, hits in zip(near, search(queries), strict=True)]  # fmt: skip
                held = sum(right) / near.size
                told = f"{ours:.1f} ms, recall {held:.3f}"
                print(f"  {shortlist:,} fetched by {by} codes: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("recall")
    measured.add_argument("--data", type=Path, required=True)
    timed = commands.add_parser("speed")
    timed.add_argument("--count", type=int, default=100_000)
    timed.add_argument("--width", type=int, default=768)
    asked = parser.parse_args()
    if asked.command == "recall":
        recall(asked.data)
    else:
        speed(asked.count, asked.width)


if __name__ == "__main__":
    main()
