"""Statistic releases: what is certified holds for the declared source and against the attackers."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from tacit import Draw, Effort
from tacit.attacks import membership_attack
from tacit.covariance import covariance_from_dict
from tacit.guarantees import InformationBound, SuccessBound
from tacit.statistics import privatize
from tacit.statistics.draws.candidates import draw_family, subset_rate
from tacit.statistics.queries import Columns, bind_query
from tacit.statistics.simulation import simulate

from .registry import certifies

POOL_ROWS = 24


def tables():
    rng = np.random.default_rng(0)
    clusters = rng.integers(2, size=(POOL_ROWS, 1)) * 20.0 + rng.normal(size=(POOL_ROWS, 2))
    return {
        "normal": rng.normal(size=(POOL_ROWS, 2)),
        "clusters": clusters,
        "one outlier": np.r_[rng.normal(size=(POOL_ROWS - 1, 2)), [[60.0, -40.0]]],
        "lattice": rng.integers(9, size=(POOL_ROWS, 2)).astype(float),
    }


TABLES = tables()
QUERIES = ("mean", "std", "median", "kmeans:2", "least-squares")


def cases(*further):
    """Every query on every table; one table of each query is left to the quick run."""
    for place, query in enumerate(QUERIES):
        for turn, name in enumerate(TABLES):
            for step, extra in enumerate(further or ((),)):
                quick = (turn - place) % len(TABLES) == 0 and place % len(further or "x") == step
                marks = () if quick else pytest.mark.thorough
                yield pytest.param(name, query, *extra, marks=marks)


def declared(query, table, rate, simulations, seed):
    """The family and outputs of a seeded release, made again step by step."""
    share = subset_rate(len(table), rate, simulations)
    family = draw_family(len(table), share, simulations, np.random.default_rng(seed))
    computed = bind_query(query, Columns(("a", "b"), table))
    outputs = simulate(computed, table, family, workers=1, progress=False)
    return family, outputs


def mixture_information(outputs, covariance, count, seed):
    """I(X; Y) of the declared mixture by sampling, with its standard error."""
    rng = np.random.default_rng(seed)
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, (outputs - outputs.mean(axis=0)).T).T
    noise = rng.normal(size=(count, outputs.shape[1]))
    seen = white[rng.integers(len(white), size=count)] + noise
    squared = ((seen[:, None, :] - white[None]) ** 2).sum(axis=2)
    evidence = logsumexp(-0.5 * squared, axis=1) - math.log(len(white))
    samples = -0.5 * (noise**2).sum(axis=1) - evidence
    return samples.mean(), samples.std(ddof=1) / math.sqrt(count)


@certifies(InformationBound)
@pytest.mark.parametrize(("name", "query"), [*cases()])
def test_information_of_the_declared_mixture(name, query):
    table = TABLES[name]
    for budget in (0.1, 1.0):
        release = privatize(
            query, table, Draw(nats=budget), Effort(simulations=200, trials=0), rng=3
        )
        _, outputs = declared(query, table, 0.5, 200, seed=3)
        estimate, error = mixture_information(
            outputs, release.details.design.covariance.to_dense(), 10_000, seed=4
        )
        assert estimate <= release.information + 4 * error
        assert release.information <= budget


@certifies(SuccessBound)
@pytest.mark.parametrize(
    ("name", "query", "rate", "budget"), [*cases((0.5, 0.05), (0.25, 0.5), (0.5, 0.5))]
)
def test_no_attack_beats_the_membership_bound(name, query, rate, budget):
    """Overall and on the most exposed row: the lower end of the interval stays below the bound."""
    release = privatize(
        query,
        TABLES[name],
        Draw(nats=budget, rate=rate),
        Effort(simulations=200, trials=1500),
        rng=5,
    )
    assert release.attack.success.low <= release.membership.success
    assert release.attack.worst.low <= release.membership.success


def test_the_attack_would_catch_too_little_noise():
    """The same outlier, the noise a hundred times smaller: the bound is broken, visibly."""
    table = TABLES["one outlier"]
    release = privatize("mean", table, Draw(nats=0.05), Effort(simulations=200, trials=0), rng=6)
    family, outputs = declared("mean", table, 0.5, 200, seed=6)
    inside = family.memberships(0, len(family))
    noise = release.details.design.covariance
    honest, weak = (
        membership_attack(outputs, inside, covariance, trials=1500, rng=7)
        for covariance in (noise, noise.scaled(0.01))
    )
    assert honest.worst_interval[0] <= release.membership.success
    assert weak.worst_interval[0] > release.membership.success
    assert weak.worst_record == POOL_ROWS - 1


@certifies(SuccessBound)
def test_one_row_that_decides_everything_meets_its_exact_success():
    """Output = is row 0 in? Success is Φ(1/(2σ)), and the bound is above it, not far."""

    def indicator(rows):
        return float((rows == 1.0).any())

    table = np.zeros((10, 1))
    table[0] = 1.0
    for budget in (0.01, 0.1, 0.4):
        release = privatize(
            indicator, table, Draw(nats=budget), Effort(simulations=100, trials=0), rng=8
        )
        deviation = math.sqrt(release.details.design.covariance.trace())
        exact = stats.norm.cdf(0.5 / deviation)
        assert exact <= release.membership.success
        assert release.membership.success - 0.5 < 1.5 * (exact - 0.5)


def test_the_prior_is_exact_for_whoever_knows_the_candidates():
    """Blind guessing with the list of candidates in hand: right with the stated prior."""
    for rate in (0.5, 0.3):
        release = privatize(
            "mean",
            TABLES["normal"],
            Draw(nats=0.1, rate=rate),
            Effort(simulations=100, trials=0),
            rng=9,
        )
        family, _ = declared("mean", TABLES["normal"], rate, 100, seed=9)
        shares = family.memberships(0, len(family)).mean(axis=0)
        blind = np.maximum(shares, 1 - shares)
        np.testing.assert_allclose(blind, release.membership.prior, rtol=1e-12)


def test_the_noise_written_down_is_the_noise_drawn():
    """Two thousand seeded draws minus their candidates have the covariance in the JSON."""
    table = TABLES["normal"]
    release = privatize("mean", table, Draw(nats=0.3), Effort(simulations=100, trials=0), rng=10)
    stored = covariance_from_dict(release.to_dict()["details"]["design"]["covariance"]).to_dense()
    draws = release.details.design.sample(20_000, 11)
    white = np.linalg.solve(np.linalg.cholesky(stored), draws.T).T
    moments = white.T @ white / len(white)
    assert np.abs(moments - np.eye(2)).max() < 5 * math.sqrt(2 / len(white))
    assert np.abs(1.2 * moments - np.eye(2)).max() > 5 * math.sqrt(2 / len(white))
