"""Every workflow publishes through the one mechanism: the attack on its bits finds nothing."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit import Draw, Effort, privatize
from tacit.classifiers import privatize_logits
from tacit.covariance import Factored
from tacit.covariance.publication import grid_of, rounded_sum
from tacit.design import isotropic
from tacit.statistics.draws import workflow as draws
from tests.soundness.reachable import success_rate

PAIR = (0.0, 1 / 3)


def rule_of(design):
    grid = grid_of(*design.law._sizes())
    return lambda value, noise: rounded_sum(np.full((noise.size, 1), value), noise[:, None], grid)[
        :, 0
    ]


def check(released, truth, candidates, design):
    """At most the likelihood's success, for one who knows the mechanism and for a naive one."""
    deviation = float(design.law._sizes()[0][0])
    certified = float(ndtr(abs(candidates[1] - candidates[0]) / deviation / 2))
    for rule in (rule_of(design), lambda f, n: f + n):
        rate, error = success_rate(released, truth, candidates, deviation, rule)
        assert rate <= certified + 5 * error


def test_statistics(monkeypatch):
    """The draw, with the candidate known to the test alone."""
    truth = np.random.default_rng(0).integers(2, size=400)
    chosen, places = iter(truth), {}

    def query(rows):
        return PAIR[int((rows[:, 0] == 0).any())]

    def drawn(count, rng):
        return places[int(next(chosen))]

    def draw(plan, rng):
        outputs = plan.outputs[:, 0]
        places.update({k: int(np.flatnonzero(outputs == PAIR[k])[0]) for k in range(2)})
        return original(plan, rng)

    original = draws.DrawPlan.draw
    monkeypatch.setattr(draws.DrawPlan, "draw", draw)
    monkeypatch.setattr(draws, "uniform_index", drawn)
    pool = np.arange(8.0)[:, None]
    promise, effort = Draw(nats=0.05, method="exact"), Effort(simulations=2, trials=0)
    released = [privatize(query, pool, promise, effort, rng=seed) for seed in range(truth.size)]
    numbers = np.array([each.values[0] for each in released])
    check(numbers, truth, PAIR, released[0].details.design)


def test_logits():
    truth = np.random.default_rng(1).integers(2, size=1500)
    logits = np.stack([np.array(PAIR)[truth], np.zeros(truth.size)], axis=1)
    logits[:, 1] = np.linspace(0.0, 1.0, truth.size)
    promise, effort = Draw(nats=0.05, method="diagonal"), Effort(trials=0)
    release = privatize_logits(logits, np.zeros((truth.size, 1)), promise, effort, rng=2)
    check(release.details.logits[:, 0], truth, PAIR, release.details.design)


@pytest.mark.parametrize("variance", [0.5, 1e-20, 1e20])
def test_hidden_states(variance):
    pytest.importorskip("torch")
    from tacit.hidden_states import release

    design = isotropic(np.ones(1), variance)
    deviation = float(design.law._sizes()[0][0])
    candidates = tuple(deviation * each for each in PAIR)
    truth = np.random.default_rng(3).integers(2, size=1500)
    found = release(np.array(candidates)[truth][:, None], design, rng=4)
    states = found.details.states
    assert states.dtype == np.float32
    grid_rule = rule_of(design)

    def rule(value, noise):
        return grid_rule(value, noise).astype(np.float32).astype(np.float64)

    certified = float(ndtr(PAIR[1] / 2))
    numbers = states[:, 0].astype(np.float64)
    rate, error = success_rate(numbers, truth, candidates, deviation, rule)
    assert rate <= certified + 5 * error


def test_hidden_states_saturate_where_an_error_would_tell():
    pytest.importorskip("torch")
    from tacit.hidden_states import release

    found = release([[1e300, -1e300, 0.0]], isotropic(np.ones(3), 1.0), rng=0)
    largest = float(np.finfo(np.float32).max)
    assert found.details.states[0, :2].tolist() == [largest, -largest]
    with pytest.raises(ValueError, match="float32 can hold"):
        release([[0.0]], isotropic(np.ones(1), 1e80))


def test_an_estimate_publishes_the_same_way():
    from tacit_lab.stackelberg.noise import FullGaussianNoise

    noise = FullGaussianNoise(lift=np.eye(2), factor=np.array([[1.0, 0.0], [0.5, 2.0]]))
    released = noise.release(np.full((1000, 2), 1 / 3), rng=1)
    assert np.array_equal(released * 2**20, np.round(released * 2**20))
    assert np.abs(np.cov(released.T) - noise.covariance).max() < 0.6
    assert noise.release([0.0, 1.0]).shape == (2,)
    with pytest.raises(ValueError, match="value: expected 2 columns"):
        noise.release([0.0])


def test_a_design_of_rank_one_leaves_bare_coordinates_alone():
    from tacit.design import Design

    design = Design(Factored([[1.0, 0.0]]), 1.0, 0.0, "given", np.empty(0), 0)
    released = design.release([[0.1, 0.1], [0.1, -0.0]])
    assert released[0, 1] == 0.1
    assert math.copysign(1.0, released[1, 1]) == 1.0
