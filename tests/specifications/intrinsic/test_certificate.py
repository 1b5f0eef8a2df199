"""The certificate of a secret matrix: games on real neighbours, and where there is none."""

import hashlib
import math
import pickle

import numpy as np
import pytest
import scipy.linalg

from tacit.accounting import gaussian, sketch_from_ratio
from tacit.specifications import (
    CountedTogether,
    SecretFactor,
    certify,
    compact_factor,
    measured_stability,
    recover_factor,
)
from tacit.specifications.intrinsic.certificate import REFUSALS

DELTA = 1e-5


def certificate(k, *, std, rank=2, records=100, clip=1.0, violated=None, **together):
    """Of a floor whose noise is ``std`` times what one record moves."""
    floor = (std * 2 * clip / records) ** 2 * rank
    held = certify(
        k, rank=rank, records=records, clip=clip, floor=floor, delta=DELTA,
        together=CountedTogether(**together), violated=violated,
    )  # fmt: skip
    return held, floor


def advantage(held):
    return 2 * held.guarantees[0].success - 1


def exact(one, other, floor, rank):
    left, right = (held @ held.T + floor * np.eye(len(held)) for held in (one, other))
    return sketch_from_ratio(scipy.linalg.eigh(left, right, eigvals_only=True), rank)


@pytest.mark.parametrize("std", [0.7, 2.5, 10.0])
@pytest.mark.parametrize("rank", [1, 4])
def test_no_pair_of_neighbours_is_told_apart_better_than_certified(rank, std):
    rng = np.random.default_rng(0)
    highest = 0.0
    for k in (1, 2, 4):
        held, floor = certificate(k, std=std, rank=rank)
        for tried in range(12):
            one = 10.0 ** rng.uniform(-2, 4, (k, 1)) * rng.normal(size=(k, k)) * math.sqrt(floor)
            if tried == 0:
                # H tells A along one direction, and the record writes it into another one
                one = np.zeros((k, k))
                one[0, 0] = 1e4 * math.sqrt(floor)
            change = (
                rng.normal(size=(k, k)) if tried else np.eye(k)[:, ::-1] * np.eye(k)[-1][:, None]
            )
            change = change * held.difference / np.linalg.norm(change)
            pair = exact(one + change, one, floor, rank)
            assert pair.advantage() <= advantage(held) * (1 + 1e-9)
            assert pair.epsilon(DELTA) <= held.guarantees[1].epsilon * (1 + 1e-9)
            highest = max(highest, pair.advantage() / advantage(held))
    assert highest > 0.5


def test_in_several_dimensions_the_worst_pair_is_nearly_the_plain_gaussian_mechanism():
    held, floor = certificate(2, std=3.98, rank=64)
    one = np.diag([1e5 * math.sqrt(floor), 0.0])
    change = np.array([[0.0, 0.0], [held.difference, 0.0]])
    plain = gaussian(held.difference, held.floor_std).advantage()
    reached = exact(one + change, one, floor, 64).advantage()
    assert 0.95 * plain < reached <= advantage(held) <= plain * (1 + 1e-9)


def test_in_one_dimension_a_secret_matrix_is_worth_a_root_of_two():
    held, _ = certificate(1, std=2.81, rank=64)
    plain = gaussian(held.difference, 3.98 * held.difference).advantage()
    assert advantage(held) == pytest.approx(plain, rel=0.03)


@pytest.mark.parametrize("std", [0.7, 2.5])
def test_a_played_game_stays_below_the_certificate(std):
    rng = np.random.default_rng(3)
    records = rng.normal(size=(20, 4, 6))
    records /= np.linalg.norm(records, axis=(1, 2))[:, None, None]
    other = records.copy()
    other[0] = -other[0]
    held, floor = certificate(4, std=std, records=20)
    draws = 4000

    def released(rows):
        return np.stack(
            [
                compact_factor(rows, rank=2, clip=1.0, floor=floor, delta=DELTA).factor
                for _ in range(draws)
            ]
        )

    left, right = released(records), released(other)
    covariances = [
        (rows.mean(axis=0) @ rows.mean(axis=0).T + floor * np.eye(4)) / 2
        for rows in (records, other)
    ]
    inverses = [np.linalg.inv(held) for held in covariances]
    volumes = [np.linalg.slogdet(held)[1] for held in covariances]

    def preferred(drawn):
        scores = [
            -0.5 * np.einsum("dkr,kl,dlr->d", drawn, inverse, drawn) - volume
            for inverse, volume in zip(inverses, volumes, strict=True)
        ]
        return scores[0] > scores[1]

    found = preferred(left).mean() - preferred(right).mean()
    error = math.sqrt(0.5 / draws)
    assert found <= advantage(held) + 4 * error
    pair = exact(records.mean(axis=0), other.mean(axis=0), floor, 2)
    assert abs(found - pair.advantage()) < 4 * error


def test_what_is_drawn_has_the_covariance_that_is_certified():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(30, 3, 5))
    drawn = np.concatenate(
        [
            compact_factor(rows, rank=4, clip=1.0, floor=0.02, delta=DELTA).factor.T
            for _ in range(3000)
        ]
    )
    clipped = rows / np.maximum(1.0, np.linalg.norm(rows, axis=(1, 2)))[:, None, None]
    mean = clipped.mean(axis=0)
    expected = (mean @ mean.T + 0.02 * np.eye(3)) / 4
    found = drawn.T @ drawn / len(drawn)
    error = 5 * np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / len(drawn))
    assert (np.abs(found - expected) < error).all()
    assert (np.abs(found - 1.2 * expected) > error).any()


def test_releases_together_promise_less():
    one, _ = certificate(2, std=5.0)
    fresh, _ = certificate(2, std=5.0, releases=4)
    shared, _ = certificate(2, std=5.0, releases=4, shared_factor=True)
    for held in (fresh, shared):
        assert advantage(held) > advantage(one)
        assert held.guarantees[1].epsilon > one.guarantees[1].epsilon
    assert shared.ratio > fresh.ratio == one.ratio
    assert shared.difference == pytest.approx(2 * one.difference)


def test_stacked_releases_under_one_matrix_stay_below_the_certificate():
    rng = np.random.default_rng(5)
    held, floor = certificate(2, std=2.0, releases=2, shared_factor=True)
    single = held.difference / math.sqrt(2)
    for _ in range(15):
        parts = []
        for _ in range(2):
            one = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=(2, 3)) * math.sqrt(floor)
            change = rng.normal(size=(2, 3))
            parts.append((one, one + change * single / np.linalg.norm(change)))
        stacked = [np.concatenate(side) for side in zip(*parts, strict=True)]
        assert exact(stacked[1], stacked[0], floor, 2).advantage() <= advantage(held)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("times", [0.3, 1.0, 2.81])
def test_factors_of_other_records_that_tell_the_matrix_are_counted(k, times):
    rng = np.random.default_rng(13)
    rest = {"rank": 8, "records": 1000, "clip": 1.0, "delta": DELTA}
    floor = (times * 2 / 1000) ** 2 * 8
    held = certify(k, floor=floor, together=CountedTogether(shared_factor=True), **rest)
    alone = certify(k, floor=floor, **rest)
    beaten = False
    for tried in range(12):
        # the other factor's records are known: so is the direction that it tells A along
        other = np.eye(k) if not tried else 10.0 ** rng.uniform(-3, 1) * rng.normal(size=(k, k))
        one = np.zeros((k, k)) if not tried else rng.normal(size=(k, k)) * math.sqrt(floor)
        change = np.eye(k)[::-1] * (np.arange(k) == 0) if not tried else rng.normal(size=(k, k))
        change = change * held.difference / np.linalg.norm(change)
        pair = exact(np.vstack([one + change, other]), np.vstack([one, other]), floor, 8)
        assert pair.advantage() <= advantage(held) * (1 + 1e-9)
        assert pair.epsilon(DELTA) <= held.guarantees[1].epsilon * (1 + 1e-9)
        beaten |= pair.advantage() > advantage(alone) * 1.05
    assert beaten == (k == 1)
    rows = np.zeros((1000, k, 4))
    made = compact_factor(
        rows, rank=8, clip=1.0, floor=floor, delta=DELTA, secret=SecretFactor(8, 4)
    )
    assert made.certificate.guarantees == held.guarantees


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": None}, "dims"), ({"dims": 3.0}, "dims"), ({"dims": b"22"}, "dims"),
        ({"dims": []}, "dims"), ({"dims": [2, True]}, "dims"), ({"dims": 10**6}, "dims"),
        ({"floor": 1e-20}, "floor: expected √λ of at least"), ({"floor": 1e-320}, "floor"),
        ({"floor": float("nan")}, "floor"), ({"clip": 1e200}, "floor|clip"),
        ({"violated": []}, "violated"), ({"together": 2}, "together"),
        ({"delta": 0.0}, "delta"), ({"rank": "x"}, "rank"),
    ],
)  # fmt: skip
def test_arguments_of_other_kinds_are_named(changes, message):
    given = {"dims": 2, "rank": 2, "records": 100, "clip": 1.0, "floor": 1e-3, "delta": DELTA}
    given.update(changes)
    with pytest.raises(ValueError, match=message):
        certify(given.pop("dims"), **given)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"shared_factor": "no"}, "shared_factor"),
        ({"shared_factor": np.ones(2)}, "shared_factor"),
        ({"record_rank": 0}, "record_rank"), ({"releases": 1.5}, "releases"),
        ({"releases": 0}, "releases"),
    ],
)  # fmt: skip
def test_what_counts_together_checks_itself(changes, name):
    with pytest.raises(ValueError, match=f"{name}: "):
        CountedTogether(**changes)


def test_a_floor_of_few_bits_is_the_floor_that_is_certified():
    small = np.float16(2.86e-6)
    rest = {"rank": 32, "records": 1000, "clip": 1.0, "delta": DELTA}
    assert certify(2, floor=small, **rest).floor_std == math.sqrt(float(small) / 32)


@pytest.mark.parametrize(
    ("chosen", "factors", "message"),
    [
        (None, [np.eye(2)], "chosen"),
        ((np.eye(2) for _ in range(2)), [np.eye(2)], "chosen"),
        ([np.ones((2, 2, 2))], [np.eye(2)], "chosen"),
        ([np.eye(2), np.ones((1, 3))], [np.eye(2), np.ones((1, 2))], "chosen"),
        ([np.eye(2), np.ones((1, 2))], [np.ones((1, 2)), np.eye(2)], "factors"),
    ],
)
def test_matrices_that_do_not_fit_are_named(chosen, factors, message):
    with pytest.raises(ValueError, match=message):
        recover_factor(chosen, factors)


def test_a_secret_of_another_kind_is_named():
    rest = {"rank": 2, "clip": 1.0, "floor": 0.1, "delta": DELTA}
    with pytest.raises(ValueError, match="secret: expected a SecretFactor or None"):
        compact_factor(np.zeros((5, 2, 3)), secret=np.eye(2), **rest)
    with pytest.raises(ValueError, match="mean"):
        SecretFactor(2, 3).times([[float("nan")] * 3], 2)


def drawn_together(records, secret, floor, *, floor_shared):
    """Two releases of one data set under one matrix, side by side."""
    if floor_shared:
        # [H, √λ I] Aᵀ with all of A shared: the same noise enters both
        mean = [rows.mean(axis=0) for rows in records]
        noise = math.sqrt(floor / 2) * np.random.default_rng().normal(size=(2, 2))
        return np.stack([secret.times(held, 2) + noise for held in mean])
    return np.stack(
        [
            compact_factor(rows, rank=2, clip=1.0, floor=floor, delta=DELTA, secret=secret).factor
            for rows in records
        ]
    )


@pytest.mark.parametrize("floor_shared", [False, True])
def test_a_shared_floor_breaks_what_a_fresh_one_keeps(floor_shared):
    rng = np.random.default_rng(10)
    records = rng.normal(size=(100, 2, 3)) / 9
    other = records.copy()
    other[0] = -other[0] / np.linalg.norm(other[0])
    held, floor = certificate(2, std=3.0, releases=2, shared_factor=True)
    # one data set released twice, the second time in coordinates that the record moves alone
    sides = [(records, records), (records, other)]
    draws, right = 2000, 0
    threshold = 1e-3 * math.sqrt(floor)
    for side in (0, 1):
        for _ in range(draws):
            secret = SecretFactor(2, 3)
            first, second = drawn_together(sides[side], secret, floor, floor_shared=floor_shared)
            right += (np.abs(first - second).max() > threshold) == bool(side)
    found = right / (2 * draws)
    error = 0.5 / math.sqrt(2 * draws)
    if floor_shared:
        assert found > 0.99 > held.guarantees[0].success
    else:
        assert found <= held.guarantees[0].success + 4 * error


def test_factors_that_share_a_matrix_have_the_stacked_covariance():
    rng = np.random.default_rng(11)
    parts = [rng.normal(size=(10, 2, 3)) / 9 for _ in range(2)]
    floor, draws = 0.02, 4000
    rows = []
    for _ in range(draws):
        secret = SecretFactor(3, 3)
        shared = [
            compact_factor(held, rank=3, clip=1.0, floor=floor, delta=DELTA, secret=secret)
            for held in parts
        ]
        assert {one.identifier for one in shared} == {secret.identifier}
        rows.append(np.concatenate([one.factor for one in shared]).T)
    drawn = np.concatenate(rows)
    stacked = np.concatenate([held.mean(axis=0) for held in parts])
    expected = (stacked @ stacked.T + floor * np.eye(4)) / 3
    error = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / len(drawn))
    assert (np.abs(drawn.T @ drawn / len(drawn) - expected) < 5 * error).all()


def test_a_secret_matrix_is_neither_shown_nor_stored():
    secret = SecretFactor(2, 3)
    told = repr(secret) + str(vars(secret)["identifier"])
    # whoever guesses A cannot check the guess by what stands beside B
    digest = hashlib.blake2b(secret._entries.tobytes(), digest_size=16).hexdigest()
    assert digest != secret.identifier
    assert len(secret.identifier) == 32
    assert not any(f"{entry:.3f}" in told for entry in secret.times(np.eye(3), 2).ravel())
    with pytest.raises(TypeError, match="not stored"):
        pickle.dumps(secret)
    rows = np.zeros((5, 2, 4))
    rest = {"clip": 1.0, "floor": 0.1, "delta": DELTA}
    with pytest.raises(ValueError, match="secret: expected a matrix of 4 columns, got 3"):
        compact_factor(rows, rank=2, secret=secret, **rest)
    with pytest.raises(ValueError, match="secret: expected a matrix of rank 1, got rank 2"):
        compact_factor(rows[:, :, :3], rank=1, secret=secret, **rest)
    seeded = SecretFactor(2, 3, rng=0)
    assert compact_factor(rows[:, :, :3], rank=2, secret=seeded, **rest).reproducible


def test_a_seed_draws_matrix_and_floor_apart():
    rows = np.random.default_rng(12).normal(size=(5, 3, 3))
    rest = {"rank": 3, "clip": 1.0, "delta": DELTA, "rng": 4}
    with_mean = compact_factor(rows, floor=1e-6, **rest).factor
    alone = compact_factor(np.zeros_like(rows), floor=1.0, **rest).factor
    matrix = np.linalg.lstsq(
        (rows / np.maximum(1, np.linalg.norm(rows, axis=(1, 2)))[:, None, None]).mean(axis=0),
        with_mean, rcond=None,
    )[0].T  # fmt: skip
    assert np.abs(matrix - alone).max() > 0.1


def test_layers_count_as_one_matrix():
    joined, _ = certificate(5, std=3.0)
    layers, _ = certificate([2, 3], std=3.0)
    assert joined.guarantees == layers.guarantees


def test_a_record_of_rank_one_changes_four_ratios_at_most():
    rng = np.random.default_rng(6)
    wide, floor = certificate(9, std=2.0)
    narrow, _ = certificate(9, std=2.0, record_rank=2)
    assert narrow.guarantees[1].epsilon < wide.guarantees[1].epsilon
    for _ in range(15):
        one = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=(9, 9)) * math.sqrt(floor)
        change = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 9))
        change *= narrow.difference / np.linalg.norm(change)
        pair = exact(one + change, one, floor, 2)
        assert pair.epsilon(DELTA) <= narrow.guarantees[1].epsilon * (1 + 1e-9)


def test_nine_chosen_submissions_tell_the_matrix():
    rng = np.random.default_rng(7)
    secret = rng.normal(size=(8, 864))
    chosen = [rng.normal(size=(96, 864)) for _ in range(9)]
    found = recover_factor(chosen, [held @ secret.T for held in chosen])
    # 864 equations of as many unknowns: their condition is about 10³
    assert np.abs(found - secret).max() < 1e-9
    assert (
        np.abs(recover_factor(chosen[:8], [c @ secret.T for c in chosen[:8]]) - secret).max() > 0.1
    )


def trained(records, targets, matrix, steps):
    """B after some steps of regression on y = (W + BA) x with W = 0, A in the forward pass."""
    factor = np.zeros((targets.shape[1], len(matrix)))
    for _ in range(steps):
        residual = records @ (factor @ matrix).T - targets
        factor = factor - 0.5 * residual.T @ (records @ matrix.T) / len(records)
    return factor


@pytest.mark.parametrize("steps", [1, 5])
def test_from_the_second_step_on_a_record_without_residual_is_told(steps):
    rng = np.random.default_rng(8)
    records = rng.normal(size=(8, 6))
    targets = 2.0 * rng.normal(size=(8, 2))
    targets[0] = 0.0
    other = records.copy()
    other[0] = 6.0 * rng.normal(size=6)
    # the residual of the record is 0 at θ₀, so that H and the first step are those of its neighbour
    assert np.array_equal(targets[1:].T @ records[1:], targets.T @ records)
    assert np.array_equal(targets[1:].T @ other[1:], targets.T @ other)
    draws = 3000
    drawn = [
        np.stack(
            [
                trained(rows, targets, rng.normal(size=(3, 6)) / 3**0.5, steps).ravel()
                for _ in range(draws)
            ]
        )
        for rows in (records, other)
    ]
    half = draws // 2
    fitted = [np.cov(side[:half].T) for side in drawn]
    means = [side[:half].mean(axis=0) for side in drawn]

    def score(rows, place):
        moved = rows - means[place]
        return (
            -0.5 * np.einsum("di,ij,dj->d", moved, np.linalg.inv(fitted[place]), moved)
            - 0.5 * np.linalg.slogdet(fitted[place])[1]
        )

    chosen = [(score(side[half:], 0) > score(side[half:], 1)).mean() for side in drawn]
    found, error = chosen[0] - chosen[1], math.sqrt(0.5 / half)
    if steps == 1:
        assert abs(found) < 4 * error
    else:
        assert found > 6 * error


@pytest.mark.parametrize("violated", REFUSALS)
def test_where_there_is_no_certificate_it_says_why(violated):
    with pytest.raises(ValueError, match="violated: there is a certificate only where"):
        certificate(2, std=3.0, violated=violated)


def test_a_measured_stability_is_no_certificate():
    rows = np.random.default_rng(9).normal(size=(5, 2, 3))
    measured = measured_stability(rows, rows, floor=0.1)
    with pytest.raises(ValueError, match="evidence about that one"):
        certificate(2, std=3.0, violated=measured)


@pytest.mark.parametrize("floor", [0, 0.0, None])
def test_without_a_floor_there_is_none(floor):
    with pytest.raises(ValueError, match="floor: expected λ > 0"):
        certify(2, rank=2, records=10, clip=1.0, floor=floor, delta=DELTA)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"dims": 0}, "dims"), ({"dims": []}, "dims"), ({"rank": 0}, "rank"),
        ({"records": 0}, "records"), ({"clip": -1.0}, "clip"), ({"clip": math.nan}, "clip"),
        ({"floor": -1.0}, "floor"), ({"floor": math.inf}, "floor"), ({"delta": 0.0}, "delta"),
        ({"violated": 0.1}, "violated"), ({"violated": "x"}, "violated"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(changes, name):
    fields = {
        "dims": 2, "rank": 2, "records": 10, "clip": 1.0, "floor": 0.1, "delta": DELTA, **changes,
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"{name}: "):
        certify(fields.pop("dims"), **fields)
