"""Quotients: what is certified of the ball beside Bayes' attacker on what is drawn."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import integrate, special

from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
from tacit.hidden_states import Ball, PredictiveQuotient, Recipe, prepare_quotients
from tacit.hidden_states.quotient.ball import clip_to_ball

from .registry import certifies

SIZES = [1, 2, 3, 8, 16, 64]
RATIOS = [1e-4, 0.1, 1.0, 3.0, 10.0, 1e3]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("radius", [1e-50, 1e-3, 1.0, 4.7, 1e50])
def test_no_clipped_vector_is_longer_than_the_radius(size, kind, radius):
    source = np.random.default_rng(size)
    scales = np.array([1e-3, 1.0, 1.0 + 1e-15, 1.0 + 1e-7, 1e3, 1e9])
    rows = source.normal(size=(60, size))
    rows *= np.resize(scales, 60)[:, None] * radius / np.linalg.norm(rows, axis=1)[:, None]
    limit = np.finfo(kind)
    rows = np.clip(rows, -float(limit.max), float(limit.max)).astype(kind)
    clipped = clip_to_ball(rows, radius)
    for row in clipped.tolist():
        # exact arithmetic on what is held: no rounding hides an excess
        assert sum(Fraction(entry) ** 2 for entry in row) <= Fraction(radius) ** 2
    inside = np.linalg.norm(rows.astype(np.float64) / radius, axis=1) < 1 - 1e-9
    assert np.array_equal(clipped[inside], rows[inside].astype(np.float64))


def test_the_largest_finite_vectors_are_clipped_too():
    largest = np.finfo(np.float64).max
    rows = np.array([[largest, -largest], [largest, 0.0], [5e-324, 0.0], [0.0, 0.0]])
    clipped = clip_to_ball(rows, 2.0)
    assert np.isfinite(clipped).all()
    assert sum(Fraction(entry) ** 2 for entry in clipped[0].tolist()) <= 4
    assert np.allclose(clipped[:2], [[math.sqrt(2), -math.sqrt(2)], [2.0, 0.0]], rtol=1e-12)
    assert np.array_equal(clipped[2:], rows[2:])


def placed(size, radius, count, source):
    """Candidates of a ball: most on its surface, where they are told apart best."""
    rows = source.normal(size=(count, size))
    rows *= radius / np.linalg.norm(rows, axis=1)[:, None]
    rows[::3] *= source.random((len(rows[::3]), 1))
    return rows


@certifies(SuccessBound, MaximalLeakage)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_no_bayes_attacker_beats_the_bound(size, ratio):
    source = np.random.default_rng([size, int(ratio * 1e4)])
    ball = Ball(dimension=size, radius=2.0 * ratio, noise_std=2.0)
    for count in (2, 40):
        held = ball.clipped(placed(size, 3.0 * ratio, count, source))
        trials = 4000
        truth = source.integers(count, size=trials)
        seen = ball.covariance.release(held[truth], rng=source)
        squares = ((seen[:, None] - held) ** 2).sum(axis=2)
        right = float((squares.argmin(axis=1) == truth).mean())
        error = math.sqrt(max(right * (1 - right), 1.0 / trials) / trials)
        bound = ball.success(count)
        assert right <= bound.success + 5 * error
        factor = ball.leakage().factor
        assert bound.success <= max(factor / count * (1 + 1e-9), 1 / count * (1 + 1e-9))


@certifies(SuccessBound)
@pytest.mark.parametrize("ratio", [0.01, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("count", [2, 5, 60])
def test_on_the_line_success_by_quadrature_is_below(ratio, count):
    ball = Ball(dimension=1, radius=ratio)
    held = np.linspace(-ratio, ratio, count)
    # ∫ max_i p(z|i) dz/N: equally spaced, neighbours meet half way
    step = 2 * ratio / (count - 1)
    exact = (1 + (count - 1) * (2 * special.ndtr(step / 2) - 1)) / count
    grid = np.linspace(-ratio - 9, ratio + 9, 40_001)
    largest = np.exp(-0.5 * (grid[:, None] - held) ** 2).max(axis=1) / math.sqrt(2 * math.pi)
    assert integrate.trapezoid(largest, grid) / count == pytest.approx(exact, rel=1e-5)
    assert exact <= ball.success(count).success


@certifies(MaximalLeakage)
@pytest.mark.parametrize("ratio", [0.2, 1.0, 4.0])
def test_many_candidates_of_a_disc_approach_the_factor(ratio):
    """C_eff is attained in the limit, so that the bound is not only true but sharp."""
    ball = Ball(dimension=2, radius=ratio)
    distances = np.linspace(0.0, ratio + 9.0, 20_001)
    # max over the disc of the density at distance r, integrated over the plane
    density = np.exp(-0.5 * np.maximum(distances - ratio, 0.0) ** 2) / (2 * math.pi)
    exact = integrate.trapezoid(density * 2 * math.pi * distances, distances)
    assert ball.leakage().factor >= exact * (1 - 1e-6)
    assert ball.leakage().factor == pytest.approx(exact, rel=1e-4)


@certifies(InformationBound)
@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 6.0])
def test_the_information_of_candidates_stays_below(size, ratio):
    source = np.random.default_rng([size, int(ratio * 10)])
    ball = Ball(dimension=size, radius=ratio)
    held, trials = ball.clipped(placed(size, 2 * ratio, 200, source)), 4000
    truth = source.integers(len(held), size=trials)
    seen = ball.covariance.release(held[truth], rng=source)
    scores = -0.5 * ((seen[:, None] - held) ** 2).sum(axis=2)
    told = scores[np.arange(trials), truth] - special.logsumexp(scores, axis=1)
    told += math.log(len(held))
    assert told.mean() <= ball.information().nats + 5 * told.std() / math.sqrt(trials)


@pytest.fixture(scope="module")
def quotient():
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 8, generator=source)
    behaviours = 3 * rows[:, :5]
    return PredictiveQuotient.fit(
        rows, behaviours, Ball(dimension=3, radius=4.0, noise_std=1.0), Recipe(epochs=3), rng=0
    )


@certifies(SuccessBound)
@pytest.mark.parametrize("far", [1.0, 30.0, 1e6, 1e30])
def test_states_far_from_the_training_ones_tell_no_more(quotient, far):
    source = np.random.default_rng(1)
    states = (far * source.normal(size=(30, 8))).astype(np.float32)
    held, trials = quotient.encode(states), 200
    assert max(sum(Fraction(x) ** 2 for x in row) for row in held.tolist()) <= 16
    right = []
    for seed in range(trials):
        seen = prepare_quotients(quotient, states, rng=seed).draw().details.quotients
        squares = ((seen[:, None] - held) ** 2).sum(axis=2)
        right.append((squares.argmin(axis=1) == np.arange(30)).mean())
    error = np.std(right) / math.sqrt(trials)
    assert np.mean(right) <= quotient.ball.success(30).success + 5 * error


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_states_that_are_no_numbers_are_refused(quotient, bad):
    states = np.zeros((3, 8))
    states[1, 2] = bad
    with pytest.raises(ValueError, match="states: expected finite numbers"):
        quotient.encode(states)
    with pytest.raises(ValueError, match="states: expected finite numbers"):
        prepare_quotients(quotient, states)


def test_weights_of_any_size_stay_in_the_ball(quotient):
    wild = torch.nn.utils.parameters_to_vector(quotient.network.parameters()).clone()
    kept = wild.clone()
    for scale in (1e20, 1e38, float("inf"), float("nan")):
        torch.nn.utils.vector_to_parameters(wild * scale, quotient.network.parameters())
        held = quotient.encode(np.eye(8, dtype=np.float32) * 1e6)
        assert np.isfinite(held).all()
        assert (np.linalg.norm(held, axis=1) <= 4.0).all()
    torch.nn.utils.vector_to_parameters(kept, quotient.network.parameters())


@certifies(MaximalLeakage, InformationBound)
@pytest.mark.parametrize("measure", ["information", "leakage"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("nats", [0.01, 1.0, 6.93, 25.0])
def test_the_ball_of_so_many_nats_certifies_no_more(measure, size, nats):
    ball = Ball.at(size, nats=nats, measure=measure, noise_std=0.3)
    told = (ball.information() if measure == "information" else ball.leakage()).nats
    assert nats * (1 - 1e-6) <= told <= nats
    assert ball.information().nats <= ball.leakage().nats * (1 + 1e-12)
    twice = ball.guarantees(candidates=1000, releases=2)
    assert twice[0].nats >= 2 * ball.leakage().nats
    assert twice[2].nats >= 2 * ball.information().nats
    assert twice[1].success >= ball.success(1000).success
