"""Disclosure and amplification, against laws that are known."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.specifications import certify, compact_factor, play_risk, risk_bound

NEAR, FAR = np.zeros((5, 2)), np.vstack([[[5.0, 0.0]], np.zeros((4, 2))])


def noisy(std):
    return lambda data, rng: data.mean(axis=0) + std * rng.normal(size=2)


def inside(interval, truth):
    return interval.low <= truth <= interval.high


@pytest.mark.parametrize("std", [0.4, 1.0, 3.0])
def test_two_means_are_told_apart_as_well_as_their_laws_allow(std):
    game = play_risk([NEAR, FAR], noisy(std), draws=6000, rng=0)
    exact = norm.cdf(0.5 / std)
    assert game.specification.success.value <= exact + 4 * math.sqrt(0.25 / 6000)
    assert game.specification.success.value > exact - 0.02
    assert game.disclosure.value == pytest.approx(game.specification.success.value - 0.5)
    assert game.model is None
    assert game.amplification is None
    # the control: a law of half the noise is told apart much better
    assert norm.cdf(1.0 / std) > game.specification.success.high


def test_laws_that_differ_in_spread_alone_are_told_apart():
    def spread(data, rng):
        return (1.0 + 2.0 * (data[0, 0] > 0)) * rng.normal(size=4)

    game = play_risk([NEAR, FAR], spread, draws=3000, rng=1)
    assert game.specification.success.low > 0.8


def test_what_a_specification_adds_to_a_model_is_measured_and_bounded():
    release, model = noisy(1.0), noisy(0.8)
    game = play_risk([NEAR, FAR], release, model, draws=8000, rng=2)
    together = norm.cdf(0.5 * math.hypot(1.0, 1 / 0.8))
    alone = norm.cdf(0.5 / 0.8)
    assert inside(game.both.success, together) or game.both.success.value < together
    assert game.amplification.value == pytest.approx(together - alone, abs=0.02)
    assert game.amplification.low <= game.amplification.value <= game.amplification.high
    bound = risk_bound(2 * norm.cdf(0.5) - 1)
    assert game.amplification.value <= bound
    assert game.disclosure.value <= bound + 4 * math.sqrt(0.25 / 8000)


def test_an_attribute_of_several_values_is_within_its_bound():
    data = [np.vstack([[[float(value), 0.0]], np.zeros((4, 2))]) for value in (-5, 0, 5, 10)]
    game = play_risk(data, noisy(1.5), draws=4000, rng=3)
    furthest = 2 * norm.cdf(3.0 / 1.5 / 2) - 1
    assert game.candidates == 4
    assert game.specification.prior == 0.25
    assert 0.0 < game.disclosure.value <= risk_bound(furthest, 4)


def test_nothing_to_tell_is_told_by_chance():
    game = play_risk([NEAR, NEAR], noisy(1.0), noisy(1.0), draws=3000, rng=4)
    assert inside(game.specification.success, 0.5)
    assert abs(game.amplification.value) < 0.05


def test_views_that_never_vary_give_everything_away():
    game = play_risk([NEAR, FAR], lambda data, _: data.mean(axis=0), draws=100, rng=5)
    assert game.specification.success.value == 1.0


@pytest.mark.parametrize("std", [0.7, 2.5])
def test_a_certified_compact_factor_is_never_told_better(std):
    rng = np.random.default_rng(6)
    records = rng.normal(size=(20, 4, 6))
    records /= np.linalg.norm(records, axis=(1, 2))[:, None, None]
    other = records.copy()
    other[0] = -other[0]
    floor = (std * 2 / 20) ** 2 * 2

    def release(rows, _):
        return compact_factor(rows, rank=2, clip=1.0, floor=floor, delta=1e-5).factor

    game = play_risk([records, other], release, draws=2000, rng=7)
    held = certify(4, rank=2, records=20, clip=1.0, floor=floor, delta=1e-5)
    assert game.specification.success.low <= held.guarantees[0].success


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": [NEAR]}, "candidates"),
        ({"candidates": NEAR}, "candidates"),
        ({"release": None}, "release"),
        ({"model": 3}, "model"),
        ({"draws": 10}, "draws"),
        ({"confidence": 1.0}, "confidence"),
        ({"release": lambda data, rng: [np.nan]}, "release: expected finite"),
        ({"release": lambda data, rng: np.ones(int(rng.integers(1, 4)))}, "one shape"),
        ({"release": lambda data, rng: np.ones(1 + int(data.max()))}, "as many numbers"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    options = {"candidates": [NEAR, FAR], "release": noisy(1.0), "draws": 50, "rng": 0, **changes}
    with pytest.raises(ValueError, match=message):
        play_risk(options.pop("candidates"), options.pop("release"), **options)


@pytest.mark.parametrize(("advantage", "candidates"), [(-0.1, 2), (1.1, 2), (0.1, 1)])
def test_bad_bounds_are_named(advantage, candidates):
    with pytest.raises(ValueError, match=r"advantage|candidates"):
        risk_bound(advantage, candidates)


def test_a_numbers_scale_does_not_hide_what_it_tells():
    def scaled(data, rng):
        return [1e4 * rng.normal(), 1e-4 * (data[0] + rng.normal())]

    game = play_risk([[0.0], [6.0]], scaled, draws=2000, rng=8)
    # Φ(3)
    assert abs(game.specification.success.value - 0.99865) < 0.005


@pytest.mark.parametrize("view", [{"a": 1}, [1j], "x", [[1.0], [1.0, 2.0]], [float("nan")]])
def test_views_that_are_no_numbers_are_named(view):
    with pytest.raises(ValueError, match="release: expected finite numbers"):
        play_risk([NEAR, FAR], lambda *_: view, draws=40, rng=9)
