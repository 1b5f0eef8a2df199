"""What codes tell, against enumeration over every candidate and every report."""

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.accounting import randomized_response
from tacit.hidden_states.codebooks.certificates import certify, compose
from tacit.hidden_states.codebooks.response import RandomizedCodes


def enumerated(joint):
    """Bayes success and information of a joint law (N, Y), in long double."""
    table = np.asarray(joint, dtype=np.longdouble)
    success = table.max(axis=0).sum()
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(table > 0, table * np.log(table / (rows * columns)), 0)
    return float(success), float(terms.sum())


def joint_of(codes, prior, size):
    table = np.zeros((len(codes), size), dtype=np.longdouble)
    table[np.arange(len(codes)), codes] = prior
    return table


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("law", ["uniform", "zipf", "spread"])
def test_certificates_are_bounds_and_tight(seed, law):
    source = np.random.default_rng(seed)
    codes = source.integers(0, 12, 90)
    prior = {
        "uniform": np.ones(90),
        "zipf": 1 / np.arange(1, 91),
        "spread": np.exp(10 * source.standard_normal(90)),
    }[law]
    found = certify(codes, 15, weights=None if law == "uniform" else prior)
    exact = prior.astype(np.longdouble) / prior.astype(np.longdouble).sum()
    success, nats = enumerated(joint_of(codes, exact, 15))
    assert success <= found.success.success <= success * (1 + 1e-12)
    assert nats <= found.information.nats <= nats + 1e-10
    assert found.information.nats <= math.log(15)
    assert found.success.evidence == found.information.evidence == "theorem"


def test_a_uniform_prior_counts_occupied_cells():
    found = certify(np.arange(50_000) % 4096, 5000)
    assert found.occupied == 4096
    assert Fraction(found.success.success) >= Fraction(4096, 50_000)
    assert found.success.success == pytest.approx(4096 / 50_000, rel=1e-15)
    assert certify([0, 0, 0], 4).information.nats == pytest.approx(0.0, abs=1e-12)
    given = certify(np.arange(50_000) % 4096, 5000, weights=np.ones(50_000))
    assert given.success.success >= 4096 / 50_000
    assert given.success.success == pytest.approx(found.success.success, rel=1e-10)


def test_a_simulated_attacker_does_not_pass_the_bound():
    source = np.random.default_rng(0)
    prior = 1 / np.arange(1.0, 201.0)
    prior /= prior.sum()
    codes = source.integers(0, 20, 200)
    found = certify(codes, 20, weights=prior)
    best = np.array([np.where(codes == code, prior, -1).argmax() for code in range(20)])
    drawn = source.choice(200, 40_000, p=prior)
    hits = (best[codes[drawn]] == drawn).mean()
    stderr = math.sqrt(hits * (1 - hits) / 40_000)
    assert abs(hits - found.success.success) < 5 * stderr
    assert abs(hits - 0.9 * found.success.success) > 5 * stderr


def test_several_releases_are_counted_together():
    source = np.random.default_rng(1)
    codes = source.integers(0, 6, (300, 3))
    joint = certify(codes, 6)
    flat = codes @ np.array([36, 6, 1])
    success, nats = enumerated(joint_of(flat, np.full(300, 1 / 300), 216))
    assert joint.occupied == len(np.unique(flat))
    assert success <= joint.success.success <= success * (1 + 1e-12)
    assert nats <= joint.information.nats <= nats + 1e-10
    blind = compose(6, 3, 300)
    assert joint.success.success <= blind.success.success == pytest.approx(216 / 300)
    assert joint.information.nats <= blind.information.nats
    assert blind.information.nats == pytest.approx(3 * math.log(6))
    one = certify(codes[:, 0], 6)
    assert one.success.success <= joint.success.success
    assert compose(6, 50, 300).success.success == 1.0
    assert compose(6, 50, 300).information.nats == pytest.approx(math.log(300))


def test_composition_under_a_prior_takes_the_largest():
    prior = 1 / np.arange(1.0, 101.0)
    found = compose(3, 2, 100, weights=prior)
    share = math.fsum(prior[:9]) / math.fsum(prior)
    assert share <= found.success.success <= share * (1 + 1e-12)


NEIGHBOURS = np.array([[c, (c + 1) % 7, (c + 6) % 7] for c in range(7)])


def channel(mechanism):
    """P(y | c) in long double, from the definition."""
    weights = np.ones((mechanism.size, mechanism.size), dtype=np.longdouble)
    for code, row in enumerate(mechanism.neighbours):
        weights[code, row] = np.exp(np.longdouble(mechanism.epsilon))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0, 30.0])
@pytest.mark.parametrize("near", [NEIGHBOURS[:, :1], NEIGHBOURS])
def test_randomised_codes_are_locally_private_and_certified(epsilon, near):
    mechanism = RandomizedCodes(epsilon, near)
    law = channel(mechanism)
    assert mechanism.inside == pytest.approx(
        float(np.take_along_axis(law, near, axis=1).sum(axis=1)[0]), rel=1e-12
    )
    # As drawn: a rational law whose odds are at most e^ε.
    inside = Fraction(mechanism.inside) / near.shape[1]
    outside = (1 - Fraction(mechanism.inside)) / (7 - near.shape[1])
    assert float(inside / outside) <= math.exp(epsilon)
    assert float(inside / outside) == pytest.approx(math.exp(epsilon), rel=1e-2)
    assert mechanism.guarantee().epsilon == epsilon
    assert mechanism.guarantee(3).epsilon >= 3 * epsilon
    source = np.random.default_rng(0)
    codes = source.integers(0, 6, 40)
    prior = source.random(40)
    for given, exact in ((None, np.full(40, 1 / 40)), (prior, prior / prior.sum())):
        found = mechanism.certify(codes, weights=given)
        success, nats = enumerated(law[codes] * exact[:, None])
        assert success <= found.success.success <= success * (1 + 1e-9) + 1e-12
        assert nats <= found.information.nats <= epsilon + 1e-12


def test_one_near_code_is_k_ary_randomised_response():
    mechanism = RandomizedCodes(2.0, np.arange(9)[:, None])
    profile = randomized_response(2.0, categories=9)
    law = channel(mechanism)
    for epsilon in (0.0, 0.5, 1.5, 2.0):
        exact = float(np.maximum(law[0] - np.exp(epsilon) * law[1], 0).sum())
        assert profile.delta(epsilon) == pytest.approx(exact, abs=1e-12)
    assert profile.delta(mechanism.guarantee().epsilon) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", [3, None])
def test_reports_have_the_law_that_was_certified(seed):
    mechanism = RandomizedCodes(1.5, NEIGHBOURS)
    count = 30_000
    seen = np.bincount(mechanism.release(np.full(count, 2), rng=seed), minlength=7) / count
    law = channel(mechanism)[2].astype(float)
    stderr = np.sqrt(law * (1 - law) / count)
    assert (np.abs(seen - law) < 5.5 * stderr).all()
    wrong = channel(RandomizedCodes(1.2, NEIGHBOURS))[2].astype(float)
    assert (np.abs(seen - wrong) > 5.5 * stderr).any()


def test_bad_input_is_refused():
    cases = [
        ("codes", lambda: certify([0], 3)),
        ("codes", lambda: certify([0, 3], 3)),
        ("codes", lambda: certify([0, -1], 3)),
        ("codes", lambda: certify([0.0, 1.0], 3)),
        ("codes", lambda: certify([[0], [1, 2]], 3)),
        ("codes", lambda: certify(np.zeros((2, 2, 2), int), 3)),
        ("size", lambda: certify([0, 1], 0)),
        ("weights", lambda: certify([0, 1], 2, weights=[1.0])),
        ("weights", lambda: certify([0, 1], 2, weights=[1.0, -1.0])),
        ("weights", lambda: certify([0, 1], 2, weights=[1.0, 0.0])),
        ("weights", lambda: certify([0, 1], 2, weights=[1.0, math.nan])),
        ("releases", lambda: compose(4, 0, 10)),
        ("candidates", lambda: compose(4, 1, 1)),
        ("epsilon", lambda: RandomizedCodes(-1.0, NEIGHBOURS)),
        ("epsilon", lambda: RandomizedCodes(math.inf, NEIGHBOURS)),
        ("neighbours", lambda: RandomizedCodes(1.0, NEIGHBOURS + 1)),
        ("neighbours", lambda: RandomizedCodes(1.0, NEIGHBOURS * 0)),
        ("neighbours", lambda: RandomizedCodes(1.0, np.array([[0, 1], [0, 1]]))),
        ("codes", lambda: RandomizedCodes(1.0, NEIGHBOURS).release([7])),
    ]
    for name, call in cases:
        with pytest.raises(ValueError, match=name):
            call()


def test_weights_whose_sum_is_no_double_are_a_prior():
    found = certify([0, 0, 1], 2, weights=[1e308, 1e308, 1e308])
    assert 2 / 3 <= found.success.success < 2 / 3 + 1e-12
