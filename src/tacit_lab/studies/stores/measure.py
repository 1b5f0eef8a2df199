"""Theft and search of one store at codes of several sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.hidden_states import ResidualCodebook, ResidualFit
from tacit_lab.studies.stores import theft
from tacit_lab.studies.stores.encoder import WordMeans, words_of
from tacit_lab.studies.stores.words import Readings, recovered

NEIGHBOURS, SHARE, ROWS = 10, 0.05, 8
SHORTEST, LONGEST = 8, 30


@dataclass(frozen=True)
class TheftScale:
    """How much is measured.

    Attributes:
        public: texts that encoder and codebooks are fitted on.
        stored: texts of the store.
        queries: texts that are searched for.
        asked: (stages, codewords) of the codes.
        known: texts of which all but a field is known.
        read: codes of which words are read by a transformer and by re-encoding too.
        digits: how many strings of digits there are.
    """

    public: int
    stored: int
    queries: int
    asked: tuple[tuple[int, int], ...]
    known: int
    read: tuple[str, ...] = ()
    digits: int = 10_000


def texts_of(corpus: str, count: int) -> list[str]:
    """Return different lines of some words, in a random order."""
    lines = {line.strip() for line in corpus.splitlines()}
    usable = sorted(line for line in lines if SHORTEST <= len(words_of(line)) <= LONGEST)
    if len(usable) < count:
        raise ValueError(
            f"texts: expected {count:,} lines of {SHORTEST} words or more, got {len(usable):,}"
        )
    order = np.random.default_rng(0).permutation(len(usable))[:count]
    return [usable[place] for place in order]


def measured(texts: Sequence[str], scale: TheftScale) -> Iterator[dict[str, Any]]:
    """Yield a row for every size of code, and one for the exact vectors."""
    end = scale.public + scale.stored
    public, stored = texts[: scale.public], texts[scale.public : end]
    queries = texts[end : end + scale.queries]
    means = WordMeans(public)
    rows = {name: means(held) for name, held in
            (("public", public), ("stored", stored), ("queries", queries))}  # fmt: skip
    for stages, size in scale.asked:
        how = ResidualFit(stages=stages, size=size)
        book = ResidualCodebook.fit(rows["public"], how, rng=0, progress=False)
        decoded = {name: book.decode(book.encode(held)).numpy() for name, held in rows.items()}
        about = {"asked": f"{stages} × {size}", "bits": book.kept_bits}
        yield {**about, **_found(means, rows, decoded, (public, stored), book.encode, about, scale)}
    about = {"asked": "float32", "bits": 32.0 * means.width}
    yield {**about, **_found(means, rows, rows, (public, stored), lambda held: held, about, scale)}


def _found(
    means: WordMeans, rows: Any, decoded: Any, texts: Any, code: Any, about: Any, scale: TheftScale
) -> dict[str, Any]:
    stored, bits = texts[1], about["bits"]
    searched = scale.known if about["asked"] in scale.read else 0
    held = Readings(texts, (decoded["public"], decoded["stored"]), means, bits, searched)
    words, readers = recovered(held)
    names = [f"name{n}" for n in range(1000)]
    digits = [f"{n:04d}" for n in range(scale.digits)]
    known = stored[: scale.known]
    groups = [stored[ROWS * n : ROWS * (n + 1)] for n in range(max(1, scale.known // ROWS))]
    thefts = [
        theft.fields("a name of 10", names[:10], known, means, code, bits),
        theft.fields("a name of 1,000", names, known, means, code, bits),
        theft.chunks(names, groups, means, code, bits),
        theft.fields("four digits", digits, known[: max(2, scale.known // 10)], means, code, bits),
        theft.duplicates(stored[:1000], means, code, bits),
        theft.told(f"which of {len(stored):,} texts in a list",
                   [theft.named_among(code(rows["stored"]))], 1.0 / len(stored), bits),
        words,
    ]  # fmt: skip
    exact = np.argsort(-(rows["queries"] @ rows["stored"].T), axis=1)[:, :NEIGHBOURS]
    scores = rows["queries"] @ decoded["stored"].T
    # rows of one code stand in an order of chance
    chance = np.random.default_rng(0).permutation(scores.shape[1])
    order = np.lexsort((np.broadcast_to(chance, scores.shape), -scores))
    found = {"a text by itself": theft.own_recall(code(rows["stored"]), NEIGHBOURS)}
    for name, count in (
        ("codes alone", NEIGHBOURS),
        ("sealed store", math.ceil(SHARE * len(stored))),
    ):
        near = [len(set(a) & set(c)) for a, c in
                zip(exact.tolist(), order[:, :count].tolist(), strict=True)]  # fmt: skip
        found[name] = float(np.mean(near)) / NEIGHBOURS
    read = {name: asdict(one) for name, one in readers.items()}
    return {"thefts": [asdict(one) for one in thefts], "readers": read, "recall": found}
