import math

import numpy as np
import pytest

from tacit.covariance import Dense, Diagonal, Isotropic, LowRank
from tacit.information import contrastive, leave_one_out

from .oracles import largest_miss_count, line_information, plane_information

TRIALS, FAILURE = 100, 0.1
# Nearly always 0; a release of the rare output carries ln 100 nats.
OUTLIERS = ([0.0, 30.0], [0.99, 0.01])
LATTICE = ([-2.0, -1.0, 0.0, 1.0, 2.0], [0.2] * 5)


def sampler(points, weights):
    values = np.asarray(points, dtype=float).reshape(len(points), -1)

    def draw(count, source):
        return values[source.choice(len(values), size=count, p=weights)]

    return draw


@pytest.mark.thorough
@pytest.mark.parametrize("law", [OUTLIERS, LATTICE], ids=["outliers", "lattice"])
def test_both_sides_miss_no_more_often_than_they_say(law):
    points, weights = law
    exact = line_information(points, weights)
    draw, noise = sampler(points, weights), Isotropic(1.0, 1)
    radius = max(abs(p) for p in points)
    limit = largest_miss_count(TRIALS, FAILURE)
    above = below = plain = 0
    for seed in range(TRIALS):
        options = {"confidence": 1 - FAILURE, "rng": seed, "samples": 300}
        upper = leave_one_out(draw, noise, radius=radius, context=200, **options)
        lower = contrastive(draw, noise, context=8, **options)
        above += upper.upper < exact
        plain += upper.estimate < exact
        below += lower.lower > exact
        assert upper.lower == 0.0
        assert math.isinf(lower.upper)
    assert above < limit
    assert below < limit
    # The plug-in mean is no bound, and the same count says so.
    assert plain >= limit


def test_a_gaussian_source_has_the_closed_form():
    """X ~ N(0, ¼ I) in three dimensions, cut at a norm of 8 deviations: I = 3/2 ln 1.25."""

    def draw(count, source):
        return 0.5 * np.clip(source.standard_normal((count, 3)), -4.6, 4.6)

    exact = 1.5 * math.log(1.25)
    upper = leave_one_out(draw, Isotropic(1.0, 3), radius=4.0, context=4_000, rng=0)
    lower = contrastive(draw, Isotropic(1.0, 3), rng=0)
    assert lower.lower < exact < upper.upper < 1.15 * exact
    assert lower.lower > 0.8 * exact
    assert upper.samples == lower.samples == 20_000


@pytest.mark.parametrize("seed", range(3))
def test_correlated_noise_in_the_plane(seed):
    source = np.random.default_rng(seed)
    points = source.normal(size=(6, 2))
    factor = np.array([[1.0, 0.0], [0.7, 0.5]])
    exact = plane_information(np.linalg.solve(factor, points.T).T)
    draw, noise = sampler(points, np.full(6, 1 / 6)), Dense(factor @ factor.T)
    centre = points.mean(axis=0)
    radius = float(np.linalg.norm(points - centre, axis=1).max())
    upper = leave_one_out(draw, noise, radius=radius, centre=centre, confidence=0.999, rng=seed)
    lower = contrastive(draw, noise, confidence=0.999, rng=seed)
    assert lower.lower < exact < upper.upper < exact + 0.1
    assert lower.lower > exact - 0.15


def test_a_larger_context_comes_closer():
    draw = sampler(*LATTICE)
    found = [
        leave_one_out(
            draw, Isotropic(0.1, 1), radius=2.0, context=size, samples=4_000, rng=1
        ).estimate
        for size in (5, 20, 500)
    ]
    exact = line_information(np.array(LATTICE[0]) / math.sqrt(0.1))
    assert found[0] > found[1] > found[2] > exact - 0.05


def test_given_outputs_are_split_and_each_is_used_once():
    outputs = np.random.default_rng(0).uniform(-1, 1, (4_000, 2))
    upper = leave_one_out(outputs, Isotropic(0.5, 2), radius=1.5, samples=10_000, rng=0)
    again = leave_one_out(outputs, Isotropic(0.5, 2), radius=1.5, samples=10_000, rng=0)
    assert upper == again
    lower = contrastive(outputs, Isotropic(0.5, 2), rng=0)
    # The variance of a coordinate is ⅓: ½ logdet(I + S/½) = ln(1 + ⅔).
    assert lower.lower < upper.upper
    assert lower.lower < math.log(1 + (1 / 3) / 0.5)
    assert lower.lower <= math.log(27)


def test_without_a_radius_nothing_is_bounded_from_above():
    draw = sampler(*LATTICE)
    found = leave_one_out(draw, Isotropic(1.0, 1), samples=500, rng=0)
    assert math.isinf(found.upper)
    assert math.isfinite(found.estimate)
    assert "radius" in found.method


def test_a_rare_output_that_was_not_seen_is_within_the_bound():
    """All samples are equal, and still the rare output may carry up to the bound's slack."""

    def constant(count, source):
        return np.zeros((count, 1))

    found = leave_one_out(constant, Isotropic(1.0, 1), radius=30.0, samples=1_000, rng=0)
    rare = 1 - 0.01 ** (1 / 1_000)  # unseen in 1,000 draws with probability 1%
    missed = line_information([0.0, 30.0], [1 - rare, rare])
    assert found.upper > missed


def test_a_bare_direction_is_never_bounded_from_above():
    noise = LowRank([[1.0, 0.0]], [[1.0]])
    outputs = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    assert math.isinf(leave_one_out(outputs, noise, radius=2.0, rng=0).upper)
    covered = contrastive(outputs[:, :1], Isotropic(1.0, 1), rng=0)
    assert contrastive(outputs, noise, rng=0).lower == pytest.approx(covered.lower, abs=1e-6)
    assert contrastive(outputs, Diagonal([0.0, 0.0]), rng=0).lower == 0.0


def test_many_nats_stop_at_the_logarithm_of_the_group():
    outputs = 1e3 * np.arange(400.0)[:, None]
    found = contrastive(outputs, Isotropic(1.0, 1), context=10, rng=0)
    assert math.log(10) * 0.5 < found.lower <= math.log(10)


def test_capacity_is_the_bound_where_sampling_says_nothing():
    """In one dimension and within R = σ the capacity bound is ½ ln 2."""
    outputs = np.array([[-1.0], [1.0]] * 30)
    found = leave_one_out(outputs, Isotropic(1.0, 1), radius=1.0, confidence=0.999999, rng=0)
    assert found.deterministic
    assert found.upper == pytest.approx(0.5 * math.log(2), rel=1e-6)
    assert found.upper > 0.5 * math.log(2)


@pytest.mark.parametrize("function", [leave_one_out, contrastive])
def test_bad_arguments_get_a_sentence(function):
    outputs, noise = np.zeros((100, 2)), Isotropic(1.0, 2)
    for value in (0, 1, -1, True, 2.5, "x"):
        with pytest.raises(ValueError, match=r"context|outputs"):
            function(outputs, noise, context=value if value != 1 else 99)
    with pytest.raises(ValueError, match="samples"):
        function(outputs, noise, samples=3)
    with pytest.raises(ValueError, match="confidence"):
        function(outputs, noise, confidence=1.0)
    with pytest.raises(ValueError, match="outputs"):
        function(np.zeros((100, 3)), noise)
    with pytest.raises(ValueError, match="outputs"):
        function([[math.nan, 0.0]], noise)
    with pytest.raises(ValueError, match="rows from the sampler"):
        function(lambda count, source: np.zeros((count - 1, 2)), noise)
    with pytest.raises(ValueError, match="rng"):
        function(outputs, noise, rng=-1)


def test_an_output_outside_the_radius_is_refused():
    with pytest.raises(ValueError, match="radius: expected at least 2"):
        leave_one_out(np.full((100, 1), 2.0), Isotropic(1.0, 1), radius=1.0)
    with pytest.raises(ValueError, match="centre"):
        leave_one_out(np.zeros((100, 1)), Isotropic(1.0, 1), radius=1.0, centre=[0.0, 1.0])
    with pytest.raises(ValueError, match="radius"):
        leave_one_out(np.zeros((100, 1)), Isotropic(1.0, 1), radius=0.0)
