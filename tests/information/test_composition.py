import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.covariance import Dense, Diagonal, Isotropic, LowRank
from tacit.information import InformationBracket, compose_additive, compose_joint, mixture

from .oracles import line_information, plane_information

SIGNS = [[-1.0], [1.0]]


@pytest.mark.thorough
def test_the_sum_and_the_union_bound():
    parts = [mixture(SIGNS, Isotropic(v, 1), confidence=0.995, rng=0) for v in (1.0, 2.0, 4.0)]
    found = compose_additive(parts)
    assert found.upper >= sum(part.upper for part in parts)
    assert found.upper == pytest.approx(sum(part.upper for part in parts))
    assert found.lower == max(part.lower for part in parts)
    assert found.confidence <= 0.985
    assert found.confidence == pytest.approx(0.985)
    assert found.samples == sum(part.samples for part in parts)


def test_bounds_without_sampling_keep_the_confidence():
    sure = InformationBracket(
        lower=0.0,
        estimate=1.0,
        upper=1.0,
        confidence=0.9,
        samples=0,
        method="entropy",
        deterministic=True,
    )
    found = compose_additive([sure] * 20)
    assert found.deterministic
    assert found.confidence > 1 - 1e-15
    unsure = replace(sure, deterministic=False)
    with pytest.raises(ValueError, match="less than 1"):
        compose_additive([unsure] * 20)


@pytest.mark.thorough
def test_repeated_signs_together_tell_what_one_release_of_half_the_noise_tells():
    """Two releases of variance v are worth one of v/2: their mean is sufficient."""
    exact = line_information([-math.sqrt(2), math.sqrt(2)])
    one = line_information([-1.0, 1.0])
    joint = compose_joint([(SIGNS, Isotropic(1.0, 1))] * 2, rng=0)
    assert joint.lower < exact < joint.upper < exact + 0.005
    assert joint.upper < 2 * one
    assert joint.confidence == 0.99


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_two_queries_of_one_secret_are_a_point_in_the_plane(seed):
    source = np.random.default_rng(seed)
    points, weights = source.normal(scale=2, size=(5, 2)), source.dirichlet(np.ones(5))
    exact = plane_information(points, weights)
    releases = [(points[:, :1] * 3.0, Diagonal([9.0])), (points[:, 1:], Isotropic(1.0, 1))]
    joint = compose_joint(releases, weights=weights, confidence=0.999, rng=seed)
    assert joint.lower < exact < joint.upper < exact + 0.02


def test_never_looser_than_the_sum_of_its_parts():
    source = np.random.default_rng(0)
    outputs = source.normal(size=(50, 2))
    noise = Dense([[2.0, 0.5], [0.5, 1.0]])
    parts = [mixture(outputs, noise, confidence=0.995, rng=s, samples=2_000) for s in range(2)]
    joint = compose_joint([(outputs, noise)] * 2, samples=2_000, rng=0)
    assert joint.upper <= compose_additive(parts).upper
    assert joint.upper <= math.log(50)


def test_a_release_that_names_the_secret_leaves_the_entropy():
    bare = LowRank([[1.0, 0.0]], [[1.0]])
    outputs = [[0.0, 0.0], [0.0, 1.0]]
    joint = compose_joint([(outputs, bare), (SIGNS, Isotropic(1.0, 1))], rng=0)
    assert joint.upper == pytest.approx(math.log(2), rel=1e-12)
    assert joint.upper >= math.log(2)


def test_equal_outputs_tell_nothing():
    assert compose_joint([(np.ones((4, 2)), Isotropic(1.0, 2))], rng=0).upper == 0.0


def test_bad_arguments_get_a_sentence():
    for hostile in (None, 1, [], [0.5], ["x"]):
        with pytest.raises(ValueError, match="bounds"):
            compose_additive(hostile)
    for hostile in (None, 1, [], "ab", [SIGNS], [(SIGNS, 1.0)], [(SIGNS, Isotropic(1.0, 2))]):
        with pytest.raises(ValueError, match="releases"):
            compose_joint(hostile)
    noise = Isotropic(1.0, 1)
    with pytest.raises(ValueError, match="one per secret"):
        compose_joint([(SIGNS, noise), ([[0.0]], noise)])
    with pytest.raises(ValueError, match="weights"):
        compose_joint([(SIGNS, noise)], weights=[1.0])
    with pytest.raises(ValueError, match="samples"):
        compose_joint([(SIGNS, noise)], samples=1)
    with pytest.raises(ValueError, match="confidence"):
        compose_joint([(SIGNS, noise)], confidence=0.0)
