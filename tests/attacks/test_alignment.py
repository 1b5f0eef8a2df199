"""A secret rotation found from pairs, from a population and not at all, against the one drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ortho_group

from tacit.attacks import Alignment, align_pairs, align_population, linked_releases, retrieve

DIM, BANK = 12, 400


@pytest.fixture(scope="module")
def secret():
    return ortho_group.rvs(DIM, random_state=3)


@pytest.fixture(scope="module")
def states():
    source = np.random.default_rng(0)
    return source.normal(size=(BANK, DIM)) @ source.normal(size=(DIM, DIM)) + 3.0


def found(alignment, states, released, count=100):
    return retrieve(
        alignment.of_states(states), alignment.of_releases(released[:count]), np.arange(count)
    )


def sphere(count, seed):
    rows = np.random.default_rng(seed).normal(size=(count, DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("pairs", [DIM, DIM + 1, 5 * DIM])
def test_as_many_pairs_as_numbers_give_the_rotation(secret, states, pairs):
    known = np.random.default_rng(1).normal(size=(pairs, DIM))
    held = align_pairs(known, known @ secret.T)
    assert held.rank == held.width == DIM
    np.testing.assert_allclose(held.releases @ held.states.T, secret, atol=1e-8)
    np.testing.assert_allclose(held.undo(states @ secret.T), states, atol=1e-8)


def test_with_the_rotation_found_the_attack_is_the_unrotated_one(secret, states):
    known = np.random.default_rng(1).normal(size=(DIM, DIM))
    noisy = states + np.random.default_rng(2).normal(size=states.shape)
    plain = retrieve(states, noisy, np.arange(BANK))
    held = align_pairs(known, known @ secret.T)
    turned = retrieve(states, held.undo(noisy @ secret.T), np.arange(BANK))
    assert 0.1 < plain.top1 < 1.0
    assert (turned.top1, turned.mrr) == pytest.approx((plain.top1, plain.mrr), abs=1e-12)


@pytest.mark.parametrize("pairs", [1, 5, DIM - 1])
def test_fewer_pairs_give_their_span_and_no_more(secret, states, pairs):
    known = np.random.default_rng(1).normal(size=(pairs, DIM))
    held = align_pairs(known, known @ secret.T)
    assert (held.rank, held.width) == (pairs, pairs + 1)
    onto = np.linalg.pinv(known) @ known
    np.testing.assert_allclose(held.states @ held.states.T, onto, atol=1e-10)
    np.testing.assert_allclose(held.undo(states @ secret.T), states @ onto, atol=1e-8)
    outside = np.random.default_rng(4).normal(size=(3, DIM)) @ (np.eye(DIM) - onto)
    np.testing.assert_allclose(held.undo(outside @ secret.T), 0.0, atol=1e-8)


def test_repeated_pairs_count_once(secret):
    known = np.repeat(np.random.default_rng(1).normal(size=(2, DIM)), 20, axis=0)
    assert align_pairs(known, known @ secret.T).rank == 2


@pytest.mark.parametrize("pairs", [1, 4])
def test_what_is_compared_is_what_every_rotation_with_these_pairs_keeps(secret, states, pairs):
    known = np.random.default_rng(1).normal(size=(pairs, DIM))
    held = align_pairs(known, known @ secret.T)
    # another rotation that gives these pairs the same releases
    basis = np.linalg.svd(known)[2].T
    inner = np.eye(DIM)
    inner[pairs:, pairs:] = ortho_group.rvs(DIM - pairs, random_state=5)
    other = secret @ basis @ inner @ basis.T
    np.testing.assert_allclose(known @ other.T, known @ secret.T, atol=1e-10)
    assert np.abs(other - secret).max() > 0.1
    for rotation in (secret, other):
        seen = held.of_releases(states @ rotation.T)
        np.testing.assert_allclose(seen, held.of_states(states), atol=1e-8)


def test_norms_alone_name_prompts_and_on_a_sphere_nothing_does(secret, states):
    blind = Alignment.blind(DIM)
    assert found(blind, states, states @ secret.T).top1 == 1.0
    # of equal norms: rounding alone is left, which the rotation draws anew
    bank = sphere(BANK, 6)
    low, high = found(blind, bank, bank @ secret.T).top1_interval
    assert low <= 1.0 / BANK <= high


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_skewed_population_gives_the_rotation_away(secret, rounds):
    source, scales = np.random.default_rng(7), 1.5 ** np.arange(DIM)
    mixed = ortho_group.rvs(DIM, random_state=8)
    public, store = ((source.exponential(size=(4000, DIM)) * scales) @ mixed for _ in range(2))
    held = align_population(public, store @ secret.T, rounds=rounds)
    spread = np.linalg.norm(store - store.mean(axis=0))
    assert np.linalg.norm(held.undo(store @ secret.T) - store) < 0.3 * spread
    assert found(held, store, store @ secret.T).top1 > 0.9


def test_a_population_that_holds_the_prompts_is_matched_exactly(secret):
    source, scales = np.random.default_rng(7), 1.5 ** np.arange(DIM)
    public = source.exponential(size=(1000, DIM)) * scales
    held = align_population(public, public[:600] @ secret.T)
    np.testing.assert_allclose(held.releases @ held.states.T, secret, atol=1e-6)


def test_without_moments_and_norms_nobody_beats_guessing(secret):
    public, bank = sphere(2000, 9), sphere(BANK, 10)
    held = align_population(public, bank @ secret.T)
    low, high = found(held, bank, bank @ secret.T, BANK).top1_interval
    assert low <= 1.0 / BANK <= high


def test_the_same_prompt_is_linked_and_another_is_not(secret, states):
    released = (np.vstack([states, states[:7]]) @ secret.T).astype(np.float32)
    numbers = linked_releases(released)
    np.testing.assert_array_equal(numbers[BANK:], numbers[:7])
    assert len(np.unique(numbers)) == BANK


NAN = np.full((2, DIM), np.nan)
EYE = np.eye(DIM)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: align_pairs(NAN, EYE[:2]), "states"),
        (lambda: align_pairs(EYE[:2], NAN), "released"),
        (lambda: align_pairs(EYE[:0], EYE[:0]), "states"),
        (lambda: align_pairs(EYE[:2], EYE[:3]), "released: expected one for each"),
        (lambda: align_pairs(EYE, EYE[:, :3]), "released: expected 12 columns"),
        (lambda: align_pairs(0.0 * EYE, EYE), "states: expected states that are not all zero"),
        (lambda: align_pairs(EYE, EYE, tolerance=1.0), "tolerance"),
        (lambda: align_population(EYE, np.ones((20, DIM))), "public: expected more rows than 12"),
        (lambda: align_population(np.ones((20, DIM)), EYE), "released: expected more rows than 12"),
        (lambda: align_population(sphere(20, 0), sphere(20, 1), kept=0.0), "kept"),
        (lambda: align_population(sphere(20, 0), sphere(20, 1), rounds=-1), "rounds"),
        (lambda: Alignment(EYE[:, :2], EYE[:, :3], "x"), "releases"),
        (lambda: Alignment(EYE, 2.0 * EYE, "x"), "releases: expected orthonormal"),
        (lambda: Alignment(np.full((DIM, 2), np.nan), EYE[:, :2], "x"), "states"),
        (lambda: Alignment.blind(0), "dim"),
        (lambda: linked_releases(NAN), "released"),
    ],
)
def test_what_is_wrong_is_said(wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_scale_of_states_changes_no_rotation(scale):
    source = np.random.default_rng(0)
    secret = np.linalg.qr(source.normal(size=(4, 4)))[0]
    known, others = source.normal(size=(4, 4)), source.exponential(size=(3, 400, 4))
    found = align_pairs(scale * known, scale * known @ secret.T)
    np.testing.assert_allclose(found.undo(known @ secret.T), known, atol=1e-12)
    public, store = others[0] * np.arange(1, 5), others[1] * np.arange(1, 5)
    blind = align_population(scale * public, scale * store @ secret.T)
    plain = align_population(public, store @ secret.T)
    np.testing.assert_allclose(blind.undo(store), plain.undo(store), atol=1e-6)


def test_a_population_of_zeros_is_named():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match="public: expected some that are not zero"):
        align_population(np.zeros((20, 3)), rows)
    with pytest.raises(ValueError, match="released: expected some that are not zero"):
        align_population(rows, np.zeros((20, 3)))
