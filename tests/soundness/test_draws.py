"""Releases of a draw: success on every row and nats told, exact over the declared candidates."""

import numpy as np
import pytest
from scipy.special import xlogy

from tacit import Draw, Effort
from tacit.guarantees import InformationBound, SuccessBound
from tacit.statistics import Query, privatize
from tacit.statistics.draws.candidates import draw_family, subset_rate

from .registry import certifies
from .swaps import pool

# The first of the instances are run every time, all of them by `make test-thorough`.
QUICK, INSTANCES, CHUNKS = 60, 1000, 5
RATES = (0.5, 0.5, 0.3)
# noise for the covariance, and with confidence for the information itself, which takes longer
METHODS = ("exact",) * 9 + ("true-information",)


def first_mean(rows):
    return float(rows[:, 0].mean())


def largest(rows):
    return float(rows[:, 0].max())


def majority(rows):
    return float((rows[:, 0] > 0).mean() > 0.5)


def product(rows):
    return float(np.median(rows[:, 0] * rows[:, 1]))


QUERIES = (first_mean, largest, majority, product)


@certifies(SuccessBound, InformationBound)
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(QUICK), id="quick"),
        *(
            pytest.param(range(chunk, INSTANCES, CHUNKS), marks=pytest.mark.thorough, id=str(chunk))
            for chunk in range(CHUNKS)
        ),
    ],
)
def test_success_on_every_row_and_information_are_within_the_certificate(numbers):
    """Small families and one number: the posterior is integrated over the line of releases."""
    told, successes = [], []
    for number in numbers:
        rng = np.random.default_rng([71, number])
        rows = pool(rng, int(rng.integers(4, 12)), 2)
        rows /= np.abs(rows).max()
        function, rate = QUERIES[number % len(QUERIES)], RATES[number % len(RATES)]
        budget, simulations = 10.0 ** rng.uniform(-2, 0.3), int(rng.integers(4, 40))
        release = privatize(
            Query(function, None, "query"),
            rows,
            Draw(nats=budget, rate=rate, method=METHODS[rng.integers(len(METHODS))]),
            Effort(simulations=simulations, trials=0, workers=1),
            rng=number,
        )
        share = subset_rate(len(rows), rate, simulations)
        family = draw_family(len(rows), share, simulations, np.random.default_rng(number))
        inside = family.memberships(0, len(family)).astype(float)
        outputs = np.array([function(rows[family.members(j)]) for j in range(len(family))])
        variance = release.details.design.covariance.to_dense()[0, 0]
        if variance == 0.0:
            success, nats = noiseless(outputs, inside)
        else:
            success, nats = exact(outputs / np.sqrt(variance), inside)
        assert success <= release.membership.success + 1e-9
        assert nats <= release.information + 1e-9
        assert release.information <= budget
        if variance == 0.0:
            continue
        told.append(nats / budget)
        successes.append((success - 0.5) / (release.membership.success - 0.5))
    assert len(told) > 0.7 * len(numbers)
    # not by drowning everything
    assert np.median(told) > 0.5
    assert max(successes) > 0.5


def exact(spots, inside):
    """Best success on any row, and I(X; Y), of ``y = spots[x] + N(0, 1)`` with x uniform."""
    points, counts, ones = grouped(spots, inside)
    whole = len(spots)
    # a grid around every point: far apart, they have nothing between them
    grid = np.unique(np.concatenate([point + np.arange(-9.0, 9.01, 0.02) for point in points]))
    steps = np.zeros(len(grid))
    gaps = np.minimum(np.diff(grid), 0.02)
    steps[1:] += 0.5 * gaps
    steps[:-1] += 0.5 * gaps
    densities = np.exp(-0.5 * np.square(grid[:, None] - points)) / np.sqrt(2 * np.pi)
    every = densities @ counts / whole
    member = densities @ ones / whole
    success = np.maximum(member, every[:, None] - member).T @ steps
    within = xlogy(densities, densities) @ counts / whole
    nats = float((within - xlogy(every, every)) @ steps)
    # what the trapezoids add above a certainty and above the secret's entropy is theirs
    return min(float(success.max()), 1.0), min(nats, np.log(whole))


def noiseless(outputs, inside):
    """The same where the number itself is published: its groups, and its entropy."""
    _, counts, ones = grouped(outputs, inside)
    success = np.maximum(ones, counts[:, None] - ones).sum(axis=0) / len(outputs)
    shares = counts / len(outputs)
    return success.max(), -float(xlogy(shares, shares).sum())


def grouped(outputs, inside):
    """Distinct outputs, how many candidates give each, and how many of these hold each row."""
    points, place = np.unique(outputs, return_inverse=True)
    counts, ones = np.zeros(len(points)), np.zeros((len(points), inside.shape[1]))
    np.add.at(counts, place, 1.0)
    np.add.at(ones, place, inside)
    return points, counts, ones
