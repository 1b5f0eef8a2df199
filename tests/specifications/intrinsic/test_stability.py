"""How far one record moves a covariance, against brute force."""

import math

import numpy as np
import pytest
import scipy.linalg

from tacit.specifications import (
    measured_stability,
    ratio_under_floor,
    replacement_difference,
    stability_of_lemma_7_8,
    stability_of_perturbation,
)


def ratios(one, other, floor):
    left, right = (held @ held.T + floor * np.eye(len(held)) for held in (one, other))
    return scipy.linalg.eigh(left, right, eigvals_only=True)


@pytest.mark.parametrize("difference", [1e-6, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("floor", [1e-4, 1.0, 50.0])
def test_the_ratio_is_the_supremum_over_what_was_there(floor, difference):
    lengths = np.concatenate([[0.0], np.logspace(-6, 6, 200_001)]) * math.sqrt(floor)
    tried = ((lengths + difference) ** 2 + floor) / (lengths**2 + floor)
    bound = ratio_under_floor(floor=floor, difference=difference)
    assert tried.max() <= bound
    assert tried.max() == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_neighbours_have_a_larger_ratio(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        one = 10.0 ** rng.uniform(-3, 3, (rows, 1)) * rng.normal(size=(rows, columns))
        change = rng.normal(size=(rows, columns))
        difference = 10.0 ** rng.uniform(-3, 2)
        change *= difference / np.linalg.norm(change, 2)
        floor = 10.0 ** rng.uniform(-3, 2)
        bound = ratio_under_floor(floor=floor, difference=difference)
        found = ratios(one + change, one, floor)
        assert found.max() <= bound * (1 + 1e-9)
        assert found.min() >= (1 - 1e-9) / bound


@pytest.mark.parametrize("share", [0.01, 0.2, 0.9])
def test_the_perturbation_bound_holds_and_is_below_the_lemma(share):
    rng = np.random.default_rng(0)
    shortest = 0.5
    bound = stability_of_perturbation(shortest=shortest, difference=share * shortest)
    longest = 0.0
    for _ in range(300):
        left, right = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
        one = left @ np.diag(shortest * (1 + rng.exponential(size=3))) @ right
        change = rng.normal(size=(3, 3))
        other = one + change * share * shortest / np.linalg.norm(change, 2)
        if np.linalg.svd(other, compute_uv=False).min() < shortest:
            continue
        longest = max(longest, np.linalg.norm(one, 2), np.linalg.norm(other, 2))
        for found in (ratios(one, other, 0.0), ratios(other, one, 0.0)):
            assert np.abs(found - 1).max() <= bound
    lemma = stability_of_lemma_7_8(longest=longest, shortest=shortest, difference=share * shortest)
    assert share > 0.3 or bound <= lemma


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0, 3.0])
def test_where_every_data_set_is_bounded_the_bound_is_tighter_and_finite(share):
    rng = np.random.default_rng(2)
    bound = stability_of_perturbation(shortest=0.5, difference=share / 2, of_all=True)
    assert bound <= stability_of_perturbation(shortest=0.5, difference=share / 2)
    reached = 0.0
    for _ in range(2000):
        left, right = (np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(2))
        one = left @ np.diag(0.5 * (1 + rng.exponential(size=2) ** 3 / 20)) @ right
        change = 0.5 * share * rng.normal(size=(2, 2))
        change = one * share if _ % 2 else change
        other = one + change * min(1.0, share / 2 / np.linalg.norm(change, 2))
        if np.linalg.svd(other, compute_uv=False).min() < 0.5:
            continue
        for found in (ratios(one, other, 0.0), ratios(other, one, 0.0)):
            reached = max(reached, float(np.abs(found - 1).max()))
    assert 0.7 * bound < reached <= bound


def test_small_shares_are_not_rounded_away():
    for of_all in (True, False):
        found = stability_of_perturbation(shortest=1.0, difference=1e-17, of_all=of_all)
        assert 2e-17 <= found <= 2.1e-17
    assert stability_of_lemma_7_8(longest=1.0, shortest=1e-200, difference=1.0) == math.inf
    assert ratio_under_floor(floor=1e-300, difference=1e200) == math.inf


def test_a_mean_of_less_than_full_rank_is_refused_each_time():
    rng = np.random.default_rng(3)
    for _ in range(50):
        rows = rng.normal(size=(4, 5, 3))
        with pytest.raises(ValueError, match="records: expected a mean of full row rank"):
            measured_stability(rows, rows)


def test_beyond_the_smallest_singular_value_there_is_no_bound():
    assert stability_of_perturbation(shortest=1.0, difference=1.0) == math.inf


def test_what_was_measured_is_the_largest_over_all_replacements():
    rng = np.random.default_rng(1)
    records, others = rng.normal(size=(7, 2, 5)), rng.normal(size=(3, 2, 5))
    found = measured_stability(records, others, floor=0.01)
    worst = 0.0
    for place in range(7):
        for other in others:
            changed = records.copy()
            changed[place] = other
            one, two = records.mean(axis=0), changed.mean(axis=0)
            held = np.concatenate([ratios(one, two, 0.01), ratios(two, one, 0.01)])
            worst = max(worst, float(held.max()) - 1)
    assert found.gamma == pytest.approx(worst, rel=1e-9)
    assert found.evidence == "empirical"
    assert found.tried == 21


def test_what_was_measured_is_below_what_the_floor_enforces():
    rng = np.random.default_rng(2)
    records, others = rng.normal(size=(9, 3, 4)), rng.normal(size=(9, 3, 4))
    most = max(float(np.linalg.norm(held)) for held in (*records, *others))
    difference = replacement_difference(most, 9)
    for floor in (0.01, 1.0):
        found = measured_stability(records, others, floor=floor)
        assert found.gamma <= ratio_under_floor(floor=floor, difference=difference) - 1


def test_a_mean_of_too_small_rank_needs_a_floor():
    flat = np.ones((4, 3, 1))
    with pytest.raises(ValueError, match="records: expected a mean of full row rank"):
        measured_stability(flat, flat)
    assert measured_stability(flat, flat, floor=1.0).gamma == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("records", "others", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), "records"),
        (np.ones((2, 3, 1)), np.ones((2, 2, 1)), "replacements"),
        (np.full((2, 3, 1), np.nan), np.ones((2, 3, 1)), "records"),
    ],
)
def test_bad_records_are_named(records, others, message):
    with pytest.raises(ValueError, match=message):
        measured_stability(records, others, floor=1.0)
