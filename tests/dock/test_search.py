"""What is found is what an exhaustive comparison in float64 finds."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from tacit.specifications.identification import judge_match
from tacit_dock.search.quantised import Quantised, hadamard
from tacit_dock.search.vectors import VectorStore


def unit(rows):
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def stored(rows, block_rows=None):
    held = VectorStore(rows.shape[1])
    if block_rows is not None:
        held.block_rows = block_rows
    for i, row in enumerate(rows):
        held.add(f"{i}", row)
    return held


def best(rows, query, count, allowed=None):
    scores = rows.astype(float) @ query.astype(float)
    kept = range(len(rows)) if allowed is None else allowed
    return [f"{i}" for i in sorted(kept, key=lambda i: -scores[i])[:count]]


@pytest.fixture(scope="module")
def rows():
    source = np.random.default_rng(0)
    centres = source.normal(size=(40, 48))
    return unit(centres[source.integers(0, 40, 1500)] + 0.7 * source.normal(size=(1500, 48)))


@pytest.mark.parametrize("block_rows", [None, 7, 500])
def test_exact_search_over_blocks(rows, block_rows):
    held = stored(rows, block_rows)
    queries = unit(rows[:5] + 0.05)
    for query, found in zip(queries, held.exact(queries, 12), strict=True):
        assert [one.id for one in found] == best(rows, query, 12)
        assert found[0].similarity == pytest.approx(
            max(rows.astype(float) @ query.astype(float)), abs=1e-6
        )


@pytest.mark.parametrize("size", [3, 40, 1200])
def test_only_what_is_allowed_is_found(rows, size):
    held, allowed = stored(rows), range(100, 100 + size)
    query = unit(rows[:1] + 0.05)
    found = held.exact(query, 10, {f"{i}" for i in allowed} | {"gone"})[0]
    assert [one.id for one in found] == best(rows, query[0], 10, allowed)


def test_what_is_removed_is_not_found_and_leaves_no_number(rows):
    held = stored(rows, 100)
    gone = set(range(0, 1500, 3))
    for i in gone:
        held.remove(f"{i}")
    held.add("1", rows[2])
    query = rows[4:5]
    kept = [i for i in range(1500) if i not in gone and i != 1]
    found = [one.id for one in held.exact(query, 20)[0]]
    assert [name for name in found if name != "1"] == best(rows, query[0], 20, kept)[
        : len(found) - ("1" in found)
    ]
    assert not held.rows_between(0, 1).any()
    fresh = held.compacted()
    assert len(fresh) == fresh.rows == len(held)
    assert [one.id for one in fresh.exact(query, 20)[0]] == found


def test_a_rotation_keeps_inner_products(rows):
    quantised = Quantised(stored(rows))
    turned = quantised.rotated(rows[:20])
    assert turned.shape == (20, 64)
    np.testing.assert_allclose(turned @ turned.T, rows[:20] @ rows[:20].T, atol=1e-5)
    np.testing.assert_allclose(hadamard(8) @ hadamard(8).T, np.eye(8), atol=1e-6)


@pytest.mark.parametrize("noise", [0.02, 0.2, 3.0])
def test_quantised_search_finds_nearly_what_exact_search_finds(rows, noise):
    held = stored(rows, 200)
    quantised = Quantised(held)
    source = np.random.default_rng(1)
    hits = 0
    for at in range(40):
        query = unit(rows[at : at + 1] + noise * source.normal(size=(1, 48)))[0]
        found = quantised.search(query, 10)
        hits += len({one.id for one in found} & set(best(rows, query, 10)))
        similarity = {one.id: one.similarity for one in found}
        for name, told in similarity.items():
            assert told == pytest.approx(float(rows[int(name)] @ query), abs=1e-6)
    # a miss has probability 0.5% or less: 8 in 400 is four standard errors beyond
    assert hits >= 392


def test_quantised_search_follows_what_is_added_and_removed(rows):
    held = stored(rows[:1000])
    quantised = Quantised(held)
    assert quantised.search(rows[3], 1)[0].id == "3"
    held.remove("3")
    assert "3" not in {one.id for one in quantised.search(rows[3], 10)}
    held.add("new", rows[3])
    assert quantised.search(rows[3], 1)[0].id == "new"
    assert quantised.nbytes < held.nbytes / 3


@pytest.fixture(scope="module")
def wide():
    """Clusters of 4 among 2,000 rows so wide that a quarter of their bits is compared first."""
    source = np.random.default_rng(4)
    centres = source.normal(size=(500, 2048))
    return unit(np.repeat(centres, 4, axis=0) + 0.7 * source.normal(size=(2000, 2048)))


def test_few_bits_find_what_all_bits_find(wide):
    quantised = Quantised(stored(wide))
    source = np.random.default_rng(5)
    hits = 0
    for at in range(50):
        query = unit(wide[at : at + 1] + 0.5 / 2048**0.5 * source.normal(size=(1, 2048)))[0]
        found = [one.id for one in quantised.search(query, 4)]
        hits += len(set(found) & set(best(wide, query, 4)))
    assert quantised._skipped == 0
    assert hits >= 196


def test_where_few_bits_leave_too_much_all_are_compared(wide):
    quantised = Quantised(stored(wide))
    source = np.random.default_rng(6)
    hits = 0
    for _ in range(20):
        # no row is near: what is best is decided by little
        query = unit(source.normal(size=(1, 2048)))[0]
        found = [one.id for one in quantised.search(query, 10)]
        hits += len(set(found) & set(best(wide, query, 10)))
    assert quantised._skipped > 0
    assert hits >= 190


def test_searches_go_on_while_rows_are_added(wide):
    held = stored(wide[:500])
    quantised = Quantised(held)
    wrong, done = [], threading.Event()

    def ask(place):
        while not done.is_set():
            if quantised.search(wide[place], 1)[0].id != f"{place}":
                wrong.append(place)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for at in range(500, 2000):
        held.add(f"{at}", wide[at])
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert quantised.search(wide[1999], 1)[0].id == "1999"


def test_a_threshold_is_passed_by_chance_in_one_search_of_a_hundred():
    source = np.random.default_rng(2)
    searches, many, size = 2000, 30, 24
    passed = 0
    for _ in range(searches):
        rows = unit(source.normal(size=(many, size)))
        query = unit(source.normal(size=(1, size)))[0]
        passed += judge_match(float((rows @ query).max()), many, size).good_match
    error = math.sqrt(0.01 * 0.99 / searches)
    assert abs(passed / searches - 0.01) < 5 * error


def test_nothing_to_compare_with_is_no_match():
    assert not judge_match(None, 0, 64).good_match
    assert judge_match(0.9, 1, 1).threshold == 1.0
    # of one number every second direction is the same
    assert not judge_match(1.0, 1, 1).good_match
