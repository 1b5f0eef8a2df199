"""Maximal leakage against exhaustive games in fractions: any function, prior, side information."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from scipy.integrate import quad, trapezoid

from tacit.guarantees import (
    ApproximateDP,
    InformationBound,
    MaximalLeakage,
    SuccessBound,
    compose_leakage,
)
from tacit.information import (
    channel_leakage,
    code_leakage,
    gaussian_leakage,
    local_dp_leakage,
    response_leakage,
)

from . import oracles
from .registry import certifies

SEEDS = range(20)
PARTS = 1024


def law(source, size):
    """Positive fractions of 1/1024 that add up to 1, some of them tiny."""
    shares = source.multinomial(PARTS - size, source.dirichlet(np.full(size, 0.3))) + 1
    return [Fraction(int(share), PARTS) for share in shares]


def channel(source, inputs, outputs):
    """Rows of fractions of 1/1024, one of them sometimes certain."""
    rows = [law(source, outputs) for _ in range(inputs)]
    if source.random() < 0.5:
        rows[0] = [Fraction(int(y == 0)) for y in range(outputs)]
    return rows


def floats(rows):
    return np.array([[float(entry) for entry in row] for row in rows])


def best(joint):
    """Success of the best guess of U from V, by trying every map from V to U; joint[u][v]."""
    values, seen = range(len(joint)), range(len(joint[0]))
    return max(
        sum(joint[guess[v]][v] for v in seen)
        for guess in itertools.product(values, repeat=len(joint[0]))
    )


def game(source, prior, rows, side, function):
    """Success at a random function of X from side information alone, and with the release."""
    inputs, outputs = range(len(prior)), range(len(rows[0]))
    blind = [
        [sum(prior[x] * function[x][u] * side[x][z] for x in inputs) for z in range(len(side[0]))]
        for u in range(len(function[0]))
    ]
    # a guess may depend on z and y; for each z the best map from y is sought alone
    seen = Fraction(0)
    for z in range(len(side[0])):
        seen += best(
            [
                [
                    sum(prior[x] * function[x][u] * side[x][z] * rows[x][y] for x in inputs)
                    for y in outputs
                ]
                for u in range(len(function[0]))
            ]
        )
    return best(blind), seen


@certifies(MaximalLeakage, SuccessBound)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_game_on_a_finite_channel_is_won_more_often_than_by_the_factor(seed):
    source = np.random.default_rng(seed)
    inputs, outputs = int(source.integers(2, 5)), int(source.integers(2, 5))
    rows = channel(source, inputs, outputs)
    found = channel_leakage(floats(rows))
    exact = sum(max(row[y] for row in rows) for y in range(outputs))
    assert exact <= Fraction(found.factor) <= exact * (1 + Fraction(1, 10**12))
    for _ in range(5):
        prior, side = law(source, inputs), channel(source, inputs, int(source.integers(1, 4)))
        # randomised functions of the secret, and the secret itself
        function = channel(source, inputs, int(source.integers(2, 4)))
        identity = [[Fraction(int(x == u)) for u in range(inputs)] for x in range(inputs)]
        for guessed in (function, identity):
            blind, seen = game(source, prior, rows, side, guessed)
            assert seen <= Fraction(found.factor) * blind
            if blind < 1:
                assert Fraction(found.success(float(blind), "it").success) >= seen


@certifies(MaximalLeakage)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_factor_is_reached_by_some_function_so_no_smaller_one_is_true(seed):
    """A randomised function that splits each x into equally likely parts (Theorem 1's converse)."""
    source = np.random.default_rng([1, seed])
    inputs, outputs = int(source.integers(2, 4)), int(source.integers(2, 4))
    rows, prior = channel(source, inputs, outputs), law(source, inputs)
    found = channel_leakage(floats(rows))
    # each part (x, i) has probability 1/1024, so blind guessing is right in 1/1024 of cases
    seen = sum(max(row[y] * Fraction(1, PARTS) for row in rows) for y in range(outputs))
    assert all(share >= Fraction(1, PARTS) for share in prior)
    assert seen * PARTS >= Fraction(found.factor) * (1 - Fraction(1, 10**12))


@certifies(MaximalLeakage)
@pytest.mark.parametrize("seed", SEEDS)
def test_releases_chosen_by_what_was_seen_multiply(seed):
    source = np.random.default_rng([2, seed])
    inputs, outputs = int(source.integers(2, 4)), 2
    first = channel(source, inputs, outputs)
    later = [channel(source, inputs, int(source.integers(2, 4))) for _ in range(outputs)]
    parts = [channel_leakage(floats(rows)) for rows in (first, *later)]
    worst = max(parts[1:], key=lambda part: part.factor)
    together = compose_leakage([parts[0], worst])
    assert Fraction(together.factor) >= Fraction(parts[0].factor) * Fraction(worst.factor)
    width = max(len(rows[0]) for rows in later)
    joint = [
        [
            first[x][y] * (later[y][x][w] if w < len(later[y][x]) else 0)
            for y in range(outputs)
            for w in range(width)
        ]
        for x in range(inputs)
    ]
    assert sum(max(row[c] for row in joint) for c in range(len(joint[0]))) <= Fraction(
        together.factor
    )
    for _ in range(3):
        prior, side = law(source, inputs), channel(source, inputs, 2)
        blind, seen = game(source, prior, joint, side, channel(source, inputs, 2))
        assert seen <= Fraction(together.factor) * blind


@certifies(MaximalLeakage, InformationBound)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_information_is_at_most_its_nats_under_every_law(seed):
    source = np.random.default_rng([3, seed])
    rows = channel(source, int(source.integers(2, 5)), int(source.integers(2, 5)))
    found = channel_leakage(floats(rows)).information()
    for _ in range(5):
        prior = law(source, len(rows))
        nats, _ = oracles.channel_information(prior, np.array(rows, dtype=object))
        assert found.nats >= nats


@certifies(MaximalLeakage)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_multiplies_by_the_number_of_its_values(seed):
    source = np.random.default_rng([4, seed])
    inputs, outputs = int(source.integers(2, 6)), int(source.integers(1, 4))
    codes = source.integers(outputs, size=inputs)
    rows = [[Fraction(int(code == y)) for y in range(outputs)] for code in codes]
    found = code_leakage(outputs)
    occupied = len(set(codes.tolist()))
    # what the bank shows may be fewer: an unseen secret may get any code
    assert channel_leakage(floats(rows)).factor == occupied <= found.factor
    prior, side = law(source, inputs), channel(source, inputs, 2)
    blind, seen = game(source, prior, rows, side, channel(source, inputs, 2))
    assert seen <= Fraction(found.factor) * blind
    with mp.workdps(oracles.DIGITS):
        assert found.nats >= mp.log(outputs)
    assert code_leakage(2**62 + 1).factor >= 2**62 + 1


@certifies(MaximalLeakage)
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.3, 2.0, 40.0, 700.0])
@pytest.mark.parametrize(("size", "near"), [(2, 1), (7, 1), (7, 3), (1000, 999)])
def test_randomised_response_is_its_closed_form(epsilon, size, near):
    found = response_leakage(size, epsilon, near=near)
    with mp.workdps(oracles.DIGITS):
        weight = mp.exp(mp.mpf(epsilon))
        exact = size * weight / (near * weight + size - near)
        assert found.factor >= exact
        assert found.factor <= exact * (1 + mp.mpf(10) ** -12)
        assert found.nats >= mp.log(exact)


@certifies(MaximalLeakage)
@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 2.0])
def test_local_differential_privacy_gives_its_epsilon(epsilon):
    promise = ApproximateDP(
        epsilon=epsilon, delta=0.0, adjacency="any two prompts",
        evidence="theorem", assumptions=(), source="test",
    )  # fmt: skip
    found = local_dp_leakage(promise)
    assert found.nats == epsilon
    assert found.factor >= response_leakage(5, epsilon).factor * (1 - 1e-12)
    loose = ApproximateDP(
        epsilon=epsilon, delta=1e-9, adjacency="any two prompts",
        evidence="theorem", assumptions=(), source="test",
    )  # fmt: skip
    with pytest.raises(ValueError, match="δ = 0"):
        local_dp_leakage(loose)


@certifies(MaximalLeakage)
@pytest.mark.parametrize("dimension", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("radius", "noise_std"), [(1.0, 1.0), (3.0, 0.5), (0.01, 2.0), (10.0, 1.0)]
)
def test_noise_on_a_ball_is_the_integral_of_the_largest_density(dimension, radius, noise_std):
    found = gaussian_leakage(dimension, radius=radius, noise_std=noise_std)
    # ∫ sup_x p(y|x) dy in polar coordinates: constant inside the ball, the noise at t outside
    volume = math.pi ** (dimension / 2) / math.gamma(1 + dimension / 2)
    height = (2 * math.pi * noise_std**2) ** (-dimension / 2)

    def shell(t):
        return (radius + t) ** (dimension - 1) * math.exp(-0.5 * (t / noise_std) ** 2)

    outside = quad(shell, 0, 40 * noise_std, epsabs=0, epsrel=1e-12, limit=400)[0]
    exact = height * volume * (radius**dimension + dimension * outside)
    assert found.factor == pytest.approx(exact, rel=1e-9)
    assert found.factor >= exact * (1 - 1e-11)


@certifies(MaximalLeakage)
@pytest.mark.parametrize("seed", range(4))
def test_an_attacker_of_noise_on_an_interval_stays_below_the_factor(seed):
    """Points of [−R, R] with side information; success by quadrature over the release."""
    source = np.random.default_rng([5, seed])
    radius, std = float(source.uniform(0.2, 3)), 1.0
    points = source.uniform(-radius, radius, 6)
    prior = source.dirichlet(np.ones(6))
    found = gaussian_leakage(1, radius=radius, noise_std=std)
    grid = np.linspace(-radius - 9, radius + 9, 20_001)
    density = np.exp(-0.5 * (grid[:, None] - points) ** 2) / math.sqrt(2 * math.pi)
    seen = trapezoid((density * prior).max(axis=1), grid)
    assert seen <= found.factor * prior.max() + 1e-9


def test_tiny_and_huge_ratios_keep_their_nats():
    tiny = gaussian_leakage(10, radius=1e-30, noise_std=1.0)
    first = 10 * math.gamma(1 + 9 / 2) / math.gamma(1 + 10 / 2) * 1e-30 / math.sqrt(2)
    assert tiny.nats == pytest.approx(first, rel=1e-9)
    assert tiny.nats >= first * (1 - 1e-13)
    huge = gaussian_leakage(768, radius=1e3, noise_std=1.0)
    assert math.isinf(huge.factor)
    assert math.isfinite(huge.nats)
    assert gaussian_leakage(3, radius=0.0, noise_std=1.0).factor == 1.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "rows that add up to 1"),
        ([[1.5, -0.5], [0.5, 0.5]], "probabilities >= 0"),
        ([0.5, 0.5], "2-dimensional"),
        ([[np.nan, 1.0]], "finite"),
    ],
)
def test_what_is_no_channel_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        channel_leakage(rows)


def test_rows_that_add_up_nearly_are_divided_by_their_sum_and_rounded_up():
    rows = np.random.default_rng(0).dirichlet(np.ones(7), size=5)
    found = channel_leakage(rows).factor
    exact = [[Fraction(entry) for entry in row] for row in rows.tolist()]
    sums = [sum(row) for row in exact]
    truth = sum(
        max(row[y] / total for row, total in zip(exact, sums, strict=True)) for y in range(7)
    )
    assert truth <= Fraction(found) <= truth * (1 + Fraction(1, 10**12))
