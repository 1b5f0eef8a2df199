"""Guarantees of sampled training against exact pairs: certified >= true."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import random_allocation, subsampled_gaussian
from tacit.accounting.mechanisms.averages import gaussian_average
from tacit.guarantees import ApproximateDP
from tests.accounting.oracles import allocation_delta, replaced_gaussian_delta
from tests.soundness.oracles import hockey_stick
from tests.soundness.registry import certifies

DELTAS = st.floats(-9, -0.5).map(lambda exponent: 10.0**exponent)


@certifies(ApproximateDP)
@given(rate=st.floats(1e-4, 0.999), noise=st.floats(0.2, 20.0), delta=DELTAS)
def test_replaced_records_of_samples_hold(rate, noise, delta):
    guarantee = subsampled_gaussian(rate, noise, 1, "replace").guarantee(delta=delta)
    assert replaced_gaussian_delta(guarantee.epsilon, rate, noise) <= guarantee.delta


@certifies(ApproximateDP)
@settings(deadline=None, max_examples=12)
@given(noise=st.floats(0.3, 10.0), delta=DELTAS)
def test_allocated_records_hold(noise, delta):
    guarantee = random_allocation(noise, steps=2).guarantee(delta=delta)
    for pair in ("remove", "add"):
        truth = allocation_delta(guarantee.epsilon, noise, pair)
        assert truth <= guarantee.delta * (1 + 1e-6) + 1e-14  # of the quadrature


@pytest.mark.thorough
@certifies(ApproximateDP)
@settings(deadline=None, max_examples=5)
@given(noise=st.floats(0.3, 10.0), delta=DELTAS)
def test_exchanged_records_of_an_allocation_hold(noise, delta):
    guarantee = random_allocation(noise, steps=2, neighbours="replace").guarantee(delta=delta)
    truth = allocation_delta(guarantee.epsilon, noise, "replace")
    assert truth <= guarantee.delta * (1 + 1e-6) + 1e-14


@certifies(ApproximateDP)
def test_epochs_of_an_allocation_hold_for_drawn_runs():
    rng, draws, steps, epochs, noise = np.random.default_rng(3), 40_000, 10, 4, 0.9
    guarantee = random_allocation(noise, steps=steps, epochs=epochs).guarantee(delta=1e-2)
    ratio = np.ones(draws)
    for _ in range(epochs):
        z = rng.standard_normal((draws, steps))
        z[:, 0] += 1 / noise
        ratio *= np.exp(z / noise - 1 / (2 * noise**2)).mean(axis=1)
    gains = np.maximum(1 - math.exp(guarantee.epsilon) / ratio, 0)
    error = gains.std() / math.sqrt(draws)
    assert gains.mean() - 5 * error <= guarantee.delta <= gains.mean() + 5 * error + 1e-3


@certifies(ApproximateDP)
@pytest.mark.parametrize("noise", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("place", [8.0, 9.0, 9.3, 10.0])
def test_a_ratio_far_out_holds(noise, place):
    # of one step δ is closed: what a lattice of the ratio has beyond its end is counted in full
    epsilon = (place + 0.5 / noise) / noise
    value = gaussian_average(1 / noise, 1).excess(np.array([epsilon]))[0]
    assert value >= hockey_stick(epsilon, 1 / noise)
