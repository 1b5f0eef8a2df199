"""Least noise under the true information: optimality, families, prices, protection, bad input."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from tacit.design import ProtectedCost, gaussian_information, true_information

from ..information.oracles import line_information, plane_information


def clusters(seed=0, inner=0.1):
    source = np.random.default_rng(seed)
    centres = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 60, axis=0)
    return centres + inner * source.normal(size=(120, 2))


def designed(outputs, budget, **options):
    return true_information(outputs, budget, rng=1, progress=False, **options)


def covariance_of(outputs):
    return np.cov(np.asarray(outputs).T, bias=True).reshape(len(outputs[0]), -1)


@pytest.mark.thorough
@pytest.mark.parametrize("budget", [0.3, 0.5, 0.65])
def test_two_points_on_a_line_reach_the_least_noise(budget):
    points = np.array([[-1.0], [1.0]])
    least = brentq(lambda v: line_information(points[:, 0] / math.sqrt(v)) - budget, 0.05, 20.0)
    design = designed(points, budget)
    assert least <= design.cost * (1 + 1e-9)
    assert design.cost <= 1.015 * least
    assert design.confidence == 0.99


@pytest.mark.thorough
def test_the_plane_is_searched_to_its_optimum():
    """No covariance on a dense grid of diagonal ones, scaled to the budget, costs 1% less."""
    outputs, budget = clusters(), 1.0
    design = designed(outputs, budget)

    def cost_of(log_ratio):
        shape = np.array([math.exp(log_ratio), 1.0])

        def excess(log_scale):
            scaled = math.exp(log_scale) * shape
            return plane_information(outputs / np.sqrt(scaled), step=0.2) - budget

        return math.exp(brentq(excess, math.log(1e-4), math.log(10.0), xtol=1e-4)) * shape.sum()

    best = min(cost_of(log_ratio) for log_ratio in np.linspace(-3.0, 5.0, 17))
    assert design.cost <= 1.02 * best
    gaussian = gaussian_information(covariance_of(outputs), budget)
    assert gaussian.cost > 2.0 * design.cost


def test_gaussian_like_outputs_keep_the_log_det_optimum_and_its_theorem():
    outputs = np.random.default_rng(2).normal(size=(800, 3))
    design = designed(outputs, 0.05)
    gaussian = gaussian_information(covariance_of(outputs), 0.05)
    assert design.cost == pytest.approx(gaussian.cost, rel=1e-9)
    assert design.confidence is None
    assert "no cheaper noise" in " ".join(design.notes)


@pytest.mark.parametrize("family", ["full", "diagonal", "scale", "mixture"])
def test_a_budget_of_the_whole_entropy_asks_for_no_noise(family):
    outputs = [[0.0], [1.0], [5.0], [1.0], [-0.0]]
    exact = -sum(p * math.log(p) for p in (0.4, 0.4, 0.2))
    for budget in (2.0, exact * (1 + 1e-13)):
        design = designed(outputs, budget, family=family)
        assert (design.method, design.confidence, design.cost) == ("no-noise", None, 0.0)
        assert exact * (1 - 1e-15) <= design.information <= exact * (1 + 1e-13)
        assert not design.sample(3).any()
    below = designed(outputs, exact * (1 - 1e-9), family=family)
    assert below.rank == 1
    assert below.information < exact


@pytest.mark.thorough
def test_repeated_outputs_are_designed_for_as_one():
    """Sixteen of one and thirty-two of the other: as fast and as cheap as two with weights."""
    rows = np.repeat([[-1.0], [1.0]], [16, 32], axis=0)
    merged = designed([[-1.0], [1.0]], 0.4, weights=[1 / 3, 2 / 3])
    given = designed(rows, 0.4)
    assert given.cost == pytest.approx(merged.cost, rel=1e-9)
    assert given.information == pytest.approx(merged.information, rel=1e-9)
    deviation = math.sqrt(given.cost)
    exact = line_information([-1 / deviation, 1 / deviation], [1 / 3, 2 / 3])
    assert exact <= given.information <= 0.4


@pytest.mark.parametrize(
    ("outputs", "weights", "budget"),
    [
        ([[0.0], [1.0]], [1.0 - 1e-12, 1e-12], 1e-11),
        ([[0.0], [1.0], [2.0]], [1.0 - 2e-6, 1e-6, 1e-6], 1e-5),
        ([[0.0], [1e-300], [1.0]], None, 0.5),
        ([[1.0], [1.0 + 2.0**-52]], None, 0.5),
        ([[0.0], [7.0], [1.0]], [0.5, 0.0, 0.5], 0.5),
        # information that hardly changes with the noise: all but one are as good as one
        ([*[[i * 1e-13] for i in range(12)], [0.0943]], [*[0.08] * 12, 0.04], 0.4076),
    ],
)
def test_extreme_outputs_and_weights_are_certified(outputs, weights, budget):
    design = designed(outputs, budget, weights=weights)
    points = np.asarray(outputs)[:, 0]
    shares = np.full(len(points), 1 / len(points)) if weights is None else np.asarray(weights)
    kept = shares > 0
    standard = (points[kept] - points[0]) / math.sqrt(design.covariance.trace())
    exact = line_information(standard, shares[kept])
    assert exact <= design.information * (1 + 1e-9) + 1e-18
    assert design.information <= budget


@pytest.mark.thorough
def test_richer_families_cost_no_more():
    outputs = clusters(3)
    costs = [designed(outputs, 0.9, family=f).cost for f in ("full", "diagonal", "scale")]
    assert costs[0] <= 1.01 * costs[1]
    assert costs[0] <= 1.01 * costs[2]


@pytest.mark.thorough
def test_noise_of_random_size_saves_near_the_entropy():
    points = np.array([[-1.0], [1.0]])
    gaussian = designed(points, 0.6)
    mixed = designed(points, 0.6, family="mixture")
    assert mixed.noise is not None
    assert mixed.method == "true-information-mixture"
    assert mixed.cost < 0.9 * gaussian.cost
    assert mixed.noise.trace() == pytest.approx(mixed.cost)
    draws = mixed.sample(100_000, rng=0)
    error = float((draws**2).std()) / math.sqrt(len(draws))
    assert abs(float((draws**2).mean()) - mixed.cost) < 5 * error


@pytest.mark.thorough
def test_prices_are_obeyed():
    """Scaling a coordinate and its price together changes nothing."""
    outputs = clusters(4)
    plain = designed(outputs, 0.8)
    scaled = designed(outputs * [1.0, 10.0], 0.8, cost=[1.0, 0.01])
    assert scaled.cost == pytest.approx(plain.cost, rel=0.01)
    turned = np.linalg.qr(np.random.default_rng(5).normal(size=(2, 2)))[0]
    price = turned @ np.diag([1.0, 4.0]) @ turned.T
    dense = designed(outputs @ turned.T, 0.8, cost=price)
    diagonal = designed(outputs, 0.8, cost=[1.0, 4.0])
    assert dense.cost == pytest.approx(diagonal.cost, rel=0.01)


@pytest.mark.thorough
def test_a_protected_subspace_gets_less_noise():
    outputs = np.random.default_rng(6).normal(size=(300, 3))
    plain = designed(outputs, 1.0)
    task = np.array([[1.0], [1.0], [0.0]])
    kept = designed(outputs, 1.0, cost=ProtectedCost(task))
    direction = task[:, 0] / math.sqrt(2.0)
    along = [direction @ d.covariance.to_dense() @ direction for d in (plain, kept)]
    assert along[1] < 0.5 * along[0]
    assert kept.cost >= plain.cost * (1 - 1e-3)
    assert kept.cost == pytest.approx(kept.covariance.trace())


@pytest.mark.thorough
def test_constant_coordinates_and_more_dimensions_than_outputs():
    source = np.random.default_rng(7)
    wide = source.normal(size=(5, 12))
    wide[:, 3] = 2.0
    for family in ("full", "diagonal"):
        design = designed(wide, 0.5, family=family)
        assert design.information <= 0.5
        assert design.rank == 12


def test_weights_are_priors():
    outputs = np.array([[-1.0], [1.0]])
    even = designed(outputs, 0.3)
    uneven = designed(outputs, 0.3, weights=[0.9, 0.1])
    assert uneven.cost < 0.7 * even.cost


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outputs": [[1.0], [1.0]]}, "outputs: expected outputs that differ"),
        ({"outputs": [[math.inf], [1.0]]}, "outputs"),
        ({"outputs": [[0.0], [1e-160]]}, "outputs: expected outputs that spread over"),
        ({"outputs": [[-1e308], [1e308]]}, "outputs: expected outputs that spread over"),
        ({"mi_budget": 0.0}, "mi_budget"),
        ({"family": "flow"}, "family"),
        ({"cost": [0.0]}, "cost"),
        ({"cost": ProtectedCost([[1.0], [0.0]])}, "basis"),
        ({"cost": ProtectedCost([0.0])}, "basis"),
        ({"confidence": 0.0}, "confidence"),
        ({"weights": [1.0]}, "weights"),
    ],
)
def test_bad_input_is_named(change, words):
    arguments = {"outputs": [[0.0], [1.0]], "mi_budget": 0.5, "progress": False, **change}
    with pytest.raises(ValueError, match=words):
        true_information(arguments.pop("outputs"), arguments.pop("mi_budget"), **arguments)


@pytest.mark.thorough
def test_an_axis_may_be_given_away_where_that_is_cheapest():
    """Three levels far apart cost less to reveal, at ln 3 nats, than to hide."""
    axes = np.meshgrid(*[np.arange(3) * scale for scale in (1.0, 2.0, 4.0)])
    outputs = np.stack(axes, axis=-1).reshape(-1, 3)
    hidden = [outputs[:, 0], outputs[:, 1]]
    for family in ("full", "diagonal"):
        design = designed(outputs, 2.0, family=family)
        variances = design.covariance.diagonal()
        assert variances[2] < 1e-6
        left = sum(
            line_information(np.unique(c) / math.sqrt(v))
            for c, v in zip(hidden, variances[:2], strict=True)
        )
        # The two axes that are hidden are independent: what they tell adds up.
        assert left + math.log(3.0) <= design.information + 1e-6 <= 2.0 + 2e-6
        assert design.cost < 0.6 * gaussian_information(covariance_of(outputs), 2.0).cost
