"""Several records of one person in Poisson samples, beside sums in 40 digits and drawn outputs."""

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import subsampled_gaussian, subsampled_group
from tacit.accounting.mechanisms.groups import _binomial_logs
from tacit.guarantees import ApproximateDP
from tests.soundness.registry import certifies


def truth(rate, noise, records, epsilon, *, removed):
    """The hockey stick of Σ Bin(j) N(j, σ²) and N(0, σ²) in 40 digits, its edge by bisection."""
    with mp.workdps(40):
        q, s = mp.mpf(rate), mp.mpf(noise)
        masses = [mp.binomial(records, j) * q**j * (1 - q) ** (records - j)
                  for j in range(records + 1)]  # fmt: skip
        shifts = [j / s for j in range(records + 1)]
        level = mp.exp(-epsilon if removed else epsilon)
        if level <= masses[0]:
            return mp.mpf(0) if removed else 1 - mp.exp(epsilon)
        low, high = mp.mpf(-2000), mp.mpf(2000)
        for _ in range(90):
            x = (low + high) / 2
            ratio = mp.fsum(
                w * mp.exp(m * x - m * m / 2) for w, m in zip(masses, shifts, strict=True)
            )
            low, high = (low, x) if ratio > level else (x, high)
        if removed:
            other = mp.fsum(w * mp.ncdf(x - m) for w, m in zip(masses, shifts, strict=True))
            return mp.ncdf(x) - mp.exp(epsilon) * other
        own = mp.fsum(w * mp.ncdf(m - x) for w, m in zip(masses, shifts, strict=True))
        return own - mp.exp(epsilon) * mp.ncdf(-x)


@pytest.mark.parametrize(
    ("rate", "noise", "records"),
    [
        (0.01, 1.0, 4),
        (0.3, 0.5, 7),
        (1e-5, 0.7, 20),
        (0.9, 3.0, 2),
        (0.5, 20.0, 50),
        (0.01, 0.05, 3),
        (1e-8, 1.0, 4),
        (1 - 1e-9, 1.0, 3),
        (0.2, 1e4, 3),
        (0.1, 1.0, 60),
        pytest.param(0.1, 1.0, 200, marks=pytest.mark.thorough),
    ],
)
@certifies(ApproximateDP)
def test_a_step_is_at_least_the_hockey_stick(rate, noise, records):
    profile = subsampled_group(rate, noise, steps=1, records=records)
    for epsilon in (-50.0, -3.0, -0.1, 0.0, 0.01, 0.3, 2.0, 8.0, 300.0):
        for removed, curve in ((False, profile.forward), (True, profile.backward)):
            exact = truth(rate, noise, records, epsilon, removed=removed)
            found = float(curve(np.array([epsilon]))[0])
            assert exact <= found <= float(exact) * (1 + 1e-6) + 1e-11, (epsilon, removed)


@certifies(ApproximateDP)
def test_composed_steps_are_at_least_what_outputs_show():
    rate, noise, steps, records, count = 0.05, 1.5, 20, 3, 200_000
    profile = subsampled_group(rate, noise, steps, records)
    rng = np.random.default_rng(0)
    taken = rng.binomial(records, rate, size=(count, steps))
    y = taken + noise * rng.normal(size=(count, steps))
    masses = [1, records, records * (records - 1) / 2, 1]
    terms = [m * rate**j * (1 - rate) ** (records - j) * np.exp((j * y - j * j / 2) / noise**2)
             for j, m in enumerate(masses)]  # fmt: skip
    losses = np.log(sum(terms)).sum(axis=1)
    for epsilon in (0.0, 0.5, 2.0):
        gains = np.maximum(-np.expm1(epsilon - losses), 0.0)
        error = gains.std() / np.sqrt(count)
        assert gains.mean() - 4 * error <= profile.delta(epsilon) <= gains.mean() + 4 * error


def test_one_record_is_the_subsampled_gaussian_and_more_are_more():
    one = subsampled_gaussian(0.02, 1.1, 50)
    epsilons = [subsampled_group(0.02, 1.1, 50, records=k).epsilon(1e-5) for k in (1, 2, 5)]
    assert epsilons[0] == one.epsilon(1e-5)
    assert epsilons[0] < epsilons[1] < epsilons[2]


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="records: expected"):
        subsampled_group(0.1, 1.0, 10, records=0)
    with pytest.raises(ValueError, match="sampling_rate"):
        subsampled_group(1.1, 1.0, 10, records=2)


@certifies(ApproximateDP)
@pytest.mark.parametrize("rate", [0.01, 0.5, 0.9])
def test_a_thousand_records_keep_their_masses(rate):
    # log-gamma of 1,000 loses four digits more than a step's rounding allows for
    logs = _binomial_logs(1000, rate)
    with mp.workdps(40):
        q = mp.mpf(rate)
        for j in range(0, 1001, 50):
            exact = mp.log(mp.binomial(1000, j)) + j * mp.log(q) + (1000 - j) * mp.log(1 - q)
            assert abs(exact - logs[j]) < 1e-12 or exact < -600
