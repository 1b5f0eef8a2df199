"""Recall and rank correlation of released embeddings against counting by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from tacit.hidden_states import measure_embeddings


def rows(count, seed, width=12):
    return np.random.default_rng(seed).standard_normal((count, width))


def by_hand(clean, released, queries, size):
    """One query at a time, by sorting; no ties."""

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    shares, ranks = [], []
    for i, query in enumerate(unit(clean) if queries is None else unit(queries)):
        keep = [j for j in range(len(clean)) if queries is not None or j != i]
        before, after = ((unit(x) @ query)[keep] for x in (clean, released))
        nearest = [set(np.argsort(-s)[:size].tolist()) for s in (before, after)]
        shares.append(len(nearest[0] & nearest[1]) / size)
        ranks.append(spearmanr(before, after).statistic)
    return np.mean(shares), np.mean(ranks)


@pytest.mark.parametrize("queries", [None, rows(30, 2)])
def test_noisy_embeddings_are_counted_one_by_one(queries):
    clean = rows(300, 0)
    released = clean + 0.7 * rows(300, 1)
    found = measure_embeddings(clean, released, queries=queries, neighbours=7)
    recall, correlation = by_hand(clean, released, queries, 7)
    assert found.recall.value == pytest.approx(recall, abs=1e-12)
    assert found.rank_correlation.value == pytest.approx(correlation, abs=1e-9)
    assert (found.queries, found.stored) == (300 if queries is None else 30, 300)
    for held in (found.recall, found.rank_correlation):
        assert held.low < held.value < held.high
        assert held.confidence == 0.95


def test_the_same_embeddings_find_the_same_whatever_their_length():
    clean = rows(100, 3)
    found = measure_embeddings(clean, clean * np.linspace(1, 9, 100)[:, None])
    assert found.recall.value == pytest.approx(1.0)
    assert found.rank_correlation.value == pytest.approx(1.0)


def test_ties_are_broken_at_random_and_not_in_favour():
    clean = rows(201, 4)
    alike = measure_embeddings(clean, np.ones_like(clean), neighbours=10)
    assert alike.recall.value == pytest.approx(10 / 200)
    assert alike.rank_correlation.value == 0.0
    # two cells: of the 10 nearest those in the query's cell count with 10 in the cell's size
    side = clean[:, :1] > 0
    coded = np.where(side, 1.0, -1.0) * np.eye(12)[0]
    asked = np.eye(12)[:1].repeat(2, axis=0)
    found = measure_embeddings(clean, coded, queries=asked, neighbours=10)
    nearest = np.argsort(-clean[:, 0] / np.linalg.norm(clean, axis=1))[:10]
    share = side[nearest, 0].sum() / side.sum()
    assert found.recall.value == pytest.approx(share)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((rows(9, 0), rows(8, 0)), {}, r"released: expected shape \(9, 12\), got \(8, 12\)"),
        ((rows(9, 0), np.zeros((9, 12))), {}, "released: .* a zero vector in row 0"),
        ((rows(9, 0), rows(9, 0)), {}, "neighbours: expected an integer <= 8"),
        ((rows(2, 0), rows(2, 0)), {"neighbours": 1}, "at least 2 queries and 2 others"),
        ((rows(20, 0), rows(20, 0)), {"queries": rows(5, 0, 3)}, "queries: "),
        ((rows(20, 0), rows(20, 0)), {"confidence": 1.0}, "confidence"),
        ((np.full((9, 2), np.nan), rows(9, 0, 2)), {}, "clean"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, named, message):
    with pytest.raises(ValueError, match=message):
        measure_embeddings(*arguments, **named)
