"""Groups of rows: disjoint, a function of the rows alone, and short where they are searched for."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial import cKDTree

from tacit import Effort, Rows
from tacit.statistics import pairs, prepare
from tacit.statistics.pairs.matching import Flat, exchange, first_groups
from tacit.statistics.queries import Mean


def longest(pairing, rows):
    return float(np.linalg.norm(pairing.swaps(rows), axis=1).max())


def every_matching(rows):
    """All ways to put an even number of rows in pairs."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for i, second in enumerate(rest):
        for others in every_matching(rest[:i] + rest[i + 1 :]):
            yield [(first, second), *others]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("count", [10, 11, 1301])
def test_groups_are_disjoint_and_leave_out_fewer_rows_than_a_group(size, count):
    rows = np.random.default_rng(count).standard_t(2, (count, 3))
    for pairing in (
        pairs.nearest(rows, group_size=size),
        pairs.at_random(count, group_size=size, rng=1),
        pairs.by_column(rows[:, 0], group_size=size),
    ):
        assert pairing.members.shape == (count // size, size)
        assert np.unique(pairing.members).size == pairing.members.size
        assert pairing.left_out.size == count % size
        assert not np.isin(pairing.left_out, pairing.members).any()


def test_the_same_rows_always_give_the_same_groups():
    rows = np.random.default_rng(3).normal(size=(900, 4))
    np.testing.assert_array_equal(pairs.nearest(rows).members, pairs.nearest(rows).members)


def test_nearest_is_close_to_the_shortest_longest_pair_of_all():
    """Of 105 and 945 matchings; exchanges between two pairs need not find the very best."""
    rng = np.random.default_rng(4)
    excess = []
    for _ in range(40):
        rows = rng.standard_t(3, (int(rng.choice([8, 10])), 2))
        features = rows / rows.std(axis=0)
        best = min(
            max(np.linalg.norm(features[a] - features[b]) for a, b in matching)
            for matching in every_matching(list(range(len(rows))))
        )
        excess.append(longest(pairs.nearest(rows), features) / best)
    assert min(excess) >= 1 - 1e-12
    assert np.median(excess) < 1.001
    assert max(excess) < 1.6


def test_exchanges_shorten_what_leaves_leave():
    """One far row keeps the very longest long; the twenty next to it are shortened."""
    rows = np.random.default_rng(5).normal(size=(4000, 4))
    members = first_groups(rows, np.arange(4000), 2, lambda *_: None)

    def next_longest():
        lengths = np.linalg.norm(rows[members[:, 0]] - rows[members[:, 1]], axis=1)
        return np.sort(lengths)[-20]

    before = next_longest()
    exchange(members, rows, rows, lambda *_: None)
    assert next_longest() < 0.9 * before


def test_nearest_pairs_are_much_shorter_than_random_ones():
    rows = np.random.default_rng(6).normal(size=(3000, 3))
    near, far = pairs.nearest(rows), pairs.at_random(3000, rng=7)
    assert longest(near, rows) < 0.35 * longest(far, rows)


def test_rows_that_are_there_twice_are_paired():
    rows = np.repeat(np.random.default_rng(8).normal(size=(400, 2)), 2, axis=0)
    assert longest(pairs.nearest(rows), rows) == 0.0


def test_the_row_left_out_is_the_farthest():
    rows = np.append(np.random.default_rng(9).normal(size=(10, 1)), [[50.0]], axis=0)
    assert pairs.nearest(rows).left_out.tolist() == [10]


def test_categories_are_matched_as_such():
    rng = np.random.default_rng(10)
    codes = rng.choice([0.0, 1.0, 1000.0], 600)
    rows = np.column_stack([codes, rng.normal(size=600)])
    members = pairs.nearest(rows, categories=[0]).members
    assert (codes[members[:, 0]] != codes[members[:, 1]]).sum() <= 3


def test_equal_values_of_a_column_share_groups():
    households = np.array(["b", "a", "c", "a", "b", "c"])
    members = pairs.by_column(households, name="household").members
    assert (households[members[:, 0]] == households[members[:, 1]]).all()


def test_one_row_of_every_group_is_drawn_each_as_often():
    pairing = pairs.at_random(3000, group_size=3, rng=11)
    for rng in (None, 12):
        counts = np.zeros(3000)
        for _ in range(200):
            drawn = pairing.draw(rng if rng is None else np.random.default_rng(rng + _))
            assert (drawn[:, None] == pairing.members).sum(axis=1).tolist() == [1] * 1000
            counts[drawn] += 1
        places = counts[pairing.members].sum(axis=0)
        expected, deviation = 200 * 1000 / 3, np.sqrt(200 * 1000 * (1 / 3) * (2 / 3))
        assert np.abs(places - expected).max() < 5 * deviation


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pairs.given([[0, 1], [1, 2]], rows=3), "every row once, got row 1 2 times"),
        (lambda: pairs.given([[0, 3]], rows=3), "rows 0 to 2, got 3"),
        (lambda: pairs.given([[0.5, 1]], rows=3), "expected integers"),
        (lambda: pairs.given([[0]], rows=3), "2 or more"),
        (lambda: pairs.nearest([[1.0]]), "at least 2"),
        (lambda: pairs.nearest([[1.0], [np.nan]]), "finite"),
        (lambda: pairs.nearest([[1.0], [2.0]], categories=[1]), "columns 0 to 0"),
        (lambda: pairs.nearest([[1.0], [2.0]], search=[[1.0]]), "expected 2 rows"),
        (lambda: pairs.nearest(np.ones((4, 1)), group_size=1), "group_size"),
        (lambda: pairs.by_column([1.0, np.nan]), "finite"),
        (lambda: pairs.at_random(1), "at least 2"),
    ],
)
def test_what_cannot_be_grouped_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(("count", "columns", "wanted"), [(3, 9, 3), (15, 12, 13), (1000, 20, 13)])
def test_neighbours_among_all_rows_are_those_of_a_tree(count, columns, wanted):
    rng = np.random.default_rng(count)
    # far from zero, where squares of lengths would cancel
    rows = rng.normal(1e6, 1.0, (count, columns))
    points = rows[rng.choice(count, min(count, 40), replace=False)]
    np.testing.assert_array_equal(
        Flat(rows).query(points, wanted), cKDTree(rows).query(points, k=wanted)[1]
    )


@pytest.mark.parametrize("query", ["histogram:a:-9,0,9", Mean(("a",))])
def test_a_column_of_a_frame_pairs_rows_though_the_query_names_others(query):
    a, b = np.random.default_rng(0).normal(size=60), np.arange(60) % 5
    frame = pd.DataFrame({"a": a, "b": b, "told": "a text"})
    prepared = prepare(query, frame, Rows(success=0.6, pairs="column:b"), Effort(trials=0))
    members = prepared.plan.pairing.members
    assert (b[members[:, 0]] == b[members[:, 1]]).all()


@pytest.mark.parametrize("scale", [1e160, 1e300, 1.7e308])
@pytest.mark.parametrize("scaled", [True, False])
def test_rows_whose_squares_overflow_are_in_disjoint_groups_of_their_near_ones(scale, scaled):
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (400, 3)) * scale
    found = pairs.nearest(rows, scaled=scaled)
    assert np.unique(found.members).size == found.members.size
    # as near as the same rows at another scale
    own = pairs.nearest(rows / scale, scaled=scaled)
    assert longest(found, rows / scale) <= 1.2 * longest(own, rows / scale)
