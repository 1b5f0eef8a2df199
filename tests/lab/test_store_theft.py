"""What a thief of codes is right about, held against playing each game, and the page of it."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.hidden_states import ResidualCodebook, ResidualFit
from tacit_lab.studies.places import DOCS, RESULTS
from tacit_lab.studies.stores import page, theft
from tacit_lab.studies.stores.encoder import WordMeans
from tacit_lab.studies.stores.measure import TheftScale, measured, texts_of
from tacit_lab.studies.stores.words import best_unseen, words_f1

READERS = {"linear", "transformer", "re-encoding"}
NOUNS = [f"{a}{b}{c}" for a in "stblw" for b in "aeiou" for c in "rkdnstml"]


@pytest.fixture(scope="module")
def lines():
    source = np.random.default_rng(0)
    # words of a kind stand together, so that there is something to search for
    picked = (
        source.choice(NOUNS[40 * kind : 40 * kind + 40], 10) for kind in [0, 1, 2, 3, 4] * 200
    )
    return texts_of("\n".join(" ".join(words) for words in picked), 900)


@pytest.fixture(scope="module")
def coded(lines):
    means = WordMeans(lines[:500], vocabulary=40, width=16)
    how = ResidualFit(stages=2, size=16)
    return means, ResidualCodebook.fit(means(lines[:500]), how, rng=0, progress=False)


def test_a_text_of_a_list_is_named_as_often_as_codes_are_occupied(lines, coded):
    means, book = coded
    codes = book.encode(means(lines[500:]))
    right = theft.named_among(codes)
    assert right == len({tuple(code) for code in codes.tolist()}) / len(codes)
    assert right <= 2.0**book.kept_bits / len(codes)
    # the game played: a row is drawn, and one of those of its code is named
    source, trials = np.random.default_rng(1), 4000
    truth = source.integers(len(codes), size=trials)
    alike = [np.flatnonzero((codes == codes[place]).all(axis=1)) for place in truth]
    played = np.mean([source.choice(one) == place for one, place in zip(alike, truth, strict=True)])
    assert abs(played - right) < 4.0 * math.sqrt(right * (1.0 - right) / trials)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_a_document_finds_itself_as_often_as_its_code_has_room(lines, coded, k):
    means, book = coded
    rows = means(lines[500:])
    codes = book.encode(rows)
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    found = theft.own_recall(codes, k)
    assert found == sum(min(k, int(n)) for n in counts) / len(codes)
    # a search for the vector that stands for a code, with ties at random
    source, decoded = np.random.default_rng(2), book.decode(codes).numpy()
    hits = []
    for place in source.integers(len(rows), size=600):
        apart = ((decoded - decoded[place]) ** 2).sum(axis=1)
        order = np.lexsort((source.permutation(len(rows)), apart))
        hits.append(place in order[:k])
    assert abs(np.mean(hits) - found) < 4.0 * math.sqrt(found * (1.0 - found) / len(hits)) + 1e-9


def test_every_theft_is_within_its_bound_and_exact_vectors_give_all(lines):
    asked, read = ((1, 4), (1, 12)), ("1 × 4", "float32")
    scale = TheftScale(
        public=500, stored=300, queries=20, asked=asked, known=4, read=read, digits=200
    )
    small, larger, exact = measured(lines, scale)
    for row in (small, larger):
        assert all(one["right"] <= one["most"] + 1e-12 for one in row["thefts"])
        assert row["bits"] == pytest.approx(math.log2(int(row["asked"].split()[-1])), abs=2.0)
    held = {one["game"]: one for one in small["thefts"]}
    assert (set(small["readers"]), larger["readers"]) == (READERS, {})
    assert all(one["right"] <= one["most"] for one in small["readers"].values())
    read_of = exact["readers"]
    assert read_of["re-encoding"]["right"] > small["readers"]["re-encoding"]["right"]
    digits = held["four digits"]
    assert digits["right"] <= 2.0 ** small["bits"] / 200 == digits["most"]
    assert held["which of 300 texts in a list"]["most"] == 2.0 ** small["bits"] / 300
    # eight rows of one person tell more than one
    one, eight = held["a name of 1,000"], held["a name of 1,000, from 8 rows of one person"]
    assert eight["right"] >= one["right"]
    games = {one["game"]: one["right"] for one in exact["thefts"]}
    assert games.pop("words of a text (F1)") > small["thefts"][-1]["right"]
    assert set(games.values()) == {1.0}
    assert exact["recall"]["sealed store"] == 1.0


def test_no_list_of_words_is_better_without_the_store_than_the_best_one():
    source = np.random.default_rng(3)
    bags = (source.random((40, 7)) < source.random(7)).astype(float)
    lists = [np.array(chosen) for chosen in product([0.0, 1.0], repeat=7)]
    # every list of words, and a game played with a code of two bits by the best reader of it
    best = max(float(words_f1(bags, np.tile(one, (40, 1))).mean()) for one in lists)
    assert best == pytest.approx(best_unseen(bags), rel=1e-12)
    codes = source.integers(4, size=40)
    read = sum(
        max(float(words_f1(part, np.tile(one, (len(part), 1))).sum()) for one in lists)
        for part in (bags[codes == code] for code in range(4))
    )
    assert best < read / 40 <= 4 * best


def test_the_page_in_the_docs_is_that_of_the_stored_result():
    stored = json.loads((RESULTS / f"{page.NAME}.json").read_text(encoding="utf-8"))
    written = DOCS / "explanation" / f"{page.NAME}.md"
    assert written.read_text(encoding="utf-8") == page.text(stored)
    assert all(
        one["right"] <= one["most"] + 1e-12 for row in stored["rows"] for one in row["thefts"]
    )
    # what is recommended is what was found
    byte = next(row for row in stored["rows"] if row["asked"] == "1 × 256")
    named = {one["game"]: one["right"] for one in byte["thefts"]}
    assert named["a name of 1,000"] < 0.05
