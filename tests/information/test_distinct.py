"""Equal outputs are one value with their weights together; its entropy is rounded up."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit.covariance import Dense, Diagonal, Isotropic, LowRank, ScaleMixture
from tacit.information import compose_joint, gap_sliced_wasserstein, mixture
from tacit.information.distinct import EqualRows, distinct_outputs, entropy

from . import oracles


def exact_entropy(weights):
    with mp.workdps(700):
        total = mp.fsum(mpf(float(w)) for w in weights)
        shares = [mpf(float(w)) / total for w in weights]
        return -mp.fsum(p * mp.log(p) for p in shares)


WEIGHTS = {
    "two halves": [0.5, 0.5],
    "one output": [1.0],
    "nearly sure": [1.0 - 1e-12, 1e-12],
    "as sure as can be": [1.0 - 2.0**-53, 2.0**-53],
    "tiny": [1.0, 1e-300],
    "not normal": [1.0, 5e-324],
    "hundreds": [1.0 / 300.0] * 300,
    "graded": np.geomspace(1.0, 1e-30, 60) / np.geomspace(1.0, 1e-30, 60).sum(),
    "random": np.random.default_rng(0).dirichlet(np.full(100, 0.1)) + 1e-9,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_entropy_is_never_below_and_hardly_above(name):
    weights = np.asarray(WEIGHTS[name])
    exact = exact_entropy(weights)
    found = entropy(weights)
    with mp.workdps(700):
        assert mpf(found) >= exact
        assert mpf(found) <= exact * (1 + mpf(10) ** -13) + mpf(10) ** -300


def test_rows_are_compared_bit_by_bit_but_for_the_sign_of_zero():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0 + 2.0**-52], [5e-324, 1.0], [0.0, 1.0]])
    equal = EqualRows.of(rows)
    assert equal.first.tolist() == [0, 2, 3]
    assert equal.members.tolist() == [0, 0, 1, 2, 0]
    assert equal.counts.tolist() == [3, 1, 1]
    line = EqualRows.of(np.array([[3.0], [-0.0], [3.0], [0.0], [-3.0]]))
    assert line.first.tolist() == [0, 1, 4]
    assert line.members.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("size", [1, 3])
def test_distinct_rows_stay_as_they_are(size):
    rows = np.random.default_rng(1).normal(size=(50, size))
    points, priors = distinct_outputs(rows, None)
    np.testing.assert_array_equal(points, rows)
    np.testing.assert_array_equal(priors, np.full(50, 1 / 50))


def test_weights_of_equal_outputs_add_up_and_zero_weights_go():
    rows = np.array([[1.0], [2.0], [1.0], [9.0], [-0.0]])
    points, priors = distinct_outputs(rows, np.array([0.1, 0.2, 0.3, 0.0, 0.4]))
    np.testing.assert_array_equal(points, [[1.0], [2.0], [0.0]])
    assert not np.signbit(points).any()
    np.testing.assert_allclose(priors, [0.4, 0.2, 0.4], rtol=1e-15)


def repeated(seed=2):
    """Points on the line with repetitions, and the same as distinct points with weights."""
    source = np.random.default_rng(seed)
    points = np.sort(source.normal(size=7)) * 2.0
    counts = source.integers(1, 9, size=7)
    rows = source.permutation(np.repeat(points, counts))[:, None]
    return rows, points[:, None], counts / counts.sum()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_repeated_rows_and_explicit_weights_are_the_same_secret(seed):
    rows, points, weights = repeated(seed)
    exact = oracles.line_information(points[:, 0], weights)
    for outputs, law in ((rows, None), (points, weights)):
        bound = mixture(outputs, Isotropic(1.0, 1), weights=law, rng=seed)
        assert bound.lower <= exact <= bound.upper
        assert bound.upper - bound.lower < 0.02


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [Isotropic(1e6, 1), ScaleMixture(Isotropic(1e6, 1), [1], [1])])
def test_bounds_without_sampling_do_not_see_the_repetition(noise):
    rows, points, weights = repeated()
    merged = mixture(points, noise, weights=weights, rng=3)
    given = mixture(rows, noise, rng=3)
    assert given.deterministic
    assert given.upper == pytest.approx(merged.upper, rel=1e-12)


@pytest.mark.thorough
def test_the_ceiling_is_the_entropy_of_the_outputs_not_of_the_secrets():
    rows = np.repeat([[0.0], [1.0]], 500, axis=0)
    for noise in (Isotropic(1e-9, 1), ScaleMixture(Isotropic(1e-9, 1), [1.0, 2.0], [0.5, 0.5])):
        bound = mixture(rows, noise, rng=4)
        assert bound.upper == pytest.approx(math.log(2.0), rel=1e-12)
        assert bound.upper >= mp.log(2)
    bare = mixture(np.c_[rows, rows], Diagonal([1.0, 0.0]), rng=4)
    assert bare.upper == pytest.approx(math.log(2.0), rel=1e-12)


def test_signs_of_zero_are_one_output():
    bound = mixture([[0.0], [-0.0], [0.0]], Isotropic(1.0, 1), rng=5)
    assert (bound.lower, bound.upper, bound.deterministic) == (0.0, 0.0, True)


@pytest.mark.thorough
def test_releases_together_merge_what_no_release_tells_apart():
    rows = np.repeat([[-1.0], [1.0]], 200, axis=0)
    other = np.repeat([[2.0], [2.0], [5.0], [5.0]], 100, axis=0)
    joint = compose_joint([(rows, Isotropic(1.0, 1)), (other, Isotropic(0.0, 1))], rng=6)
    assert joint.upper == pytest.approx(math.log(2.0), rel=1e-12)
    wide = compose_joint([(rows, Isotropic(1.0, 1)), (rows, Isotropic(1.0, 1))], rng=7)
    assert 0.5 < wide.upper < 0.51


def test_gaps_do_not_see_the_repetition():
    rows, points, weights = repeated()
    merged = gap_sliced_wasserstein(points, Isotropic(1.0, 1), weights=weights)
    given = gap_sliced_wasserstein(rows, Isotropic(1.0, 1))
    assert given.nats == pytest.approx(merged.nats, rel=1e-3)
    assert given.gaussian == pytest.approx(merged.gaussian, rel=1e-9)


@pytest.mark.parametrize("least", [1e-15, 1e-12, 1e-300])
@pytest.mark.parametrize(
    "noise", [Diagonal([1.0, 0.0]), Dense([[1.0, 0.0], [0.0, 0.0]]), LowRank([[1.0, 0.0]], [[1.0]])]
)
def test_a_bare_coordinate_tells_outputs_apart_however_near_they_are(noise, least):
    """Published as it is, the second coordinate names the output, beside any first one."""
    outputs = [[0.0, 0.0], [1.0, least], [1e3, 3.0 * least]]
    bound = mixture(outputs, noise, rng=8)
    assert bound.upper >= mp.log(3)


@pytest.mark.thorough
@pytest.mark.parametrize("common", [1.0, -3e5, 1e15])
def test_what_outputs_have_in_common_drowns_no_difference(common):
    """Neighbours in double precision, beside noise of their distance."""
    step = math.nextafter(common, math.inf) - common
    outputs = np.array([[common], [common + step], [common + 3.0 * step]])
    noise = Isotropic(step**2, 1)
    exact = oracles.line_information([0.0, 1.0, 3.0])
    joint = compose_joint([(outputs, noise)], rng=9)
    spread = mixture(outputs, ScaleMixture(noise, [1.0], [1.0]), rng=9)
    for bound in (mixture(outputs, noise, rng=9), joint, spread):
        assert bound.lower <= exact <= bound.upper < exact + 0.02
