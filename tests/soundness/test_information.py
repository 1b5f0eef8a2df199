"""Information bounds, what they mean for success, and what remains, beside exact sources."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from tacit.conversions import (
    fano_information,
    fano_success,
    information_from_success,
    success_from_information,
)
from tacit.guarantees import InformationBound, ResidualPrivacy, SuccessBound, membership_bound

from . import oracles
from .registry import certifies

UP = 1 + 1e-9  # above the error of the quadrature oracles


def bound_of(nats):
    return InformationBound(
        nats=nats,
        secret="a secret drawn from the source",
        evidence="theorem",
        assumptions=("the source is the one enumerated",),
        source="test",
    )


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize(
    ("ratio", "nats"), [(0.5, 0.11142148), (1.0, 0.33683082), (2.0, 0.63272019)]
)
def test_two_points_in_gaussian_noise(ratio, nats):
    true = oracles.mixture_information([-ratio, ratio], [0.5, 0.5], 1.0)
    assert float(true) == pytest.approx(nats, abs=5e-9)
    bound = bound_of(float(true) * UP).success(0.5, "the sign")
    assert bound.success >= mp.ncdf(mpf(ratio))
    # half the information would not cover this attacker: the comparison can fail
    assert success_from_information(float(true) / 2, 0.5) < mp.ncdf(mpf(ratio))


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize("seed", range(6))
def test_gaussian_mixtures(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    means, weights = rng.normal(scale=2, size=size), rng.dirichlet(np.ones(size))
    nats = float(oracles.mixture_information(means, weights, 1.0))
    success = oracles.mixture_success(means, weights, 1.0)
    prior = float(weights.max() / weights.sum())
    assert bound_of(nats * UP).success(prior, "the component").success >= success - 1e-12


@certifies(InformationBound, SuccessBound)
@given(seed=st.integers(0, 10_000), inputs=st.integers(2, 6), outputs=st.integers(2, 6))
def test_discrete_channels(seed, inputs, outputs):
    rng = np.random.default_rng(seed)
    concentration = 10 ** rng.uniform(-1.5, 1.5)
    prior = rng.dirichlet(np.ones(inputs))
    channel = rng.dirichlet(np.full(outputs, concentration), size=inputs)
    nats, success = oracles.channel_information(prior, channel)
    nats = max(float(nats), 0.0) * UP + 1e-12
    assert bound_of(nats).success(float(prior.max()), "the input").success >= success - 1e-12
    # any task that is a function of the secret is covered too: membership in a subset of inputs
    chosen = rng.integers(0, 2, size=inputs).astype(bool)
    if chosen.any() and not chosen.all():
        joint = prior[:, None] * channel
        inside, outside = joint[chosen].sum(axis=0), joint[~chosen].sum(axis=0)
        blind = float(max(prior[chosen].sum(), prior[~chosen].sum()))
        reached = float(np.maximum(inside, outside).sum())
        assert membership_bound(bound_of(nats), blind).success >= reached - 1e-12


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize("noise_std", [0.5, pytest.param(2.0, marks=pytest.mark.thorough), 8.0])
def test_membership_in_a_noisy_sum(noise_std):
    """Each of four records is in with probability ½; the release is their sum plus noise."""
    records = np.array([1.0, 1.5, -2.0, 0.25])
    members = np.array(list(itertools.product((0, 1), repeat=records.size)))
    sums = members @ records
    nats = float(oracles.mixture_information(sums, np.ones(sums.size), noise_std))
    certified = membership_bound(bound_of(nats * UP)).success
    y = np.linspace(-60, 60, 40_001)
    step = y[1] - y[0]
    density = np.exp(-((y[:, None] - sums) ** 2) / (2 * noise_std**2))
    density /= noise_std * math.sqrt(2 * math.pi) * sums.size
    for record in range(records.size):
        inside = members[:, record] == 1
        either = np.maximum(density[:, inside].sum(axis=1), density[:, ~inside].sum(axis=1))
        assert certified >= float(either.sum()) * step - 1e-6


@given(exponent=st.floats(-300, 3), prior_exponent=st.floats(-100, -1e-9))
def test_success_is_the_upper_end_of_bernoulli_kl(exponent, prior_exponent):
    nats, prior = 10.0**exponent, min(10.0**prior_exponent, 1 - 2**-53)
    success = success_from_information(nats, prior)
    assert success >= prior
    if success < 1:
        assert oracles.bernoulli_kl(success, prior) >= nats
        below = success * (1 - 1e-9)
        assert below <= prior or oracles.bernoulli_kl(below, prior) <= nats


@given(prior=st.floats(1e-12, 1 - 1e-12), share=st.floats(0, 1))
def test_the_budget_for_a_success_keeps_it(prior, share):
    success = min(prior + share * (1 - prior), 1.0)
    nats = information_from_success(success, prior)
    assert nats <= oracles.bernoulli_kl(success, prior)
    assert success_from_information(nats, prior) <= success


@certifies(InformationBound)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 7))
def test_fano_beside_explicit_channels(seed, classes):
    rng = np.random.default_rng(seed)
    uniform = np.full(classes, 1 / classes)
    channel = rng.dirichlet(np.full(classes, 10 ** rng.uniform(-2, 1)), size=classes)
    nats, success = oracles.channel_information(uniform, channel)
    assert fano_information(float(success) * (1 - 1e-12), classes) <= nats + mpf(10) ** -14
    assert fano_success(max(float(nats), 0.0) * UP + 1e-12, classes) >= success - 1e-14


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("accuracy", [0.3, 0.87, 1.0])
def test_fano_is_attained_by_the_symmetric_channel(classes, accuracy):
    if accuracy <= 1 / classes:
        assert fano_information(accuracy, classes) == 0.0
        return
    a, k = mpf(accuracy), mpf(classes)
    true = mp.log(k) + a * mp.log(a)
    if accuracy < 1:
        true += (1 - a) * mp.log((1 - a) / (k - 1))
    certified = fano_information(accuracy, classes)
    assert certified <= true
    assert certified == pytest.approx(float(true), rel=1e-9)
    assert fano_success(float(true) * UP, classes) >= accuracy


@certifies(ResidualPrivacy)
@pytest.mark.parametrize("seed", range(8))
def test_residual_privacy_of_a_discrete_channel(seed):
    """Against the uniform reference what remains is H(X | Y) − ln K."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    prior = rng.dirichlet(np.ones(size))
    channel = rng.dirichlet(np.full(4, 0.5), size=size)
    nats, _ = oracles.channel_information(prior, channel)
    entropy = -mp.fsum(mpf(float(p)) * mp.log(mpf(float(p))) for p in prior)
    intrinsic = float(entropy - mp.log(size))
    guarantee = ResidualPrivacy(
        intrinsic=math.nextafter(min(intrinsic, 0.0), -1.0),
        leaked=math.nextafter(max(float(nats), 0.0), 9.0),
        reference="the uniform law",
        evidence="theorem",
        assumptions=(),
        source="residual-pac, Eq. 9",
    )
    conditional = entropy - nats
    assert guarantee.residual <= conditional - mp.log(size)
    assert guarantee.residual == pytest.approx(float(conditional - mp.log(size)), abs=1e-12)
