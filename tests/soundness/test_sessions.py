"""Sessions: adaptive queries on one draw, exact by enumeration; kills in the middle."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp, ndtr

from tacit import Draw, Effort, Rows, Table
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.statistics import Session
from tacit.statistics.draws.weights import CandidateWeights

from .registry import certifies
from .swaps import pool

# Three answers each; the first are run every time, all of them by `make test-thorough`.
QUICK, SESSIONS, CHUNKS = 12, 400, 5
QUERIES = ("mean", "sum", "std", "histogram:x0:-1,0,1", "second-moments", "median")

every_session = pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(QUICK), id="quick"),
        *(
            pytest.param(range(chunk, SESSIONS, CHUNKS), marks=pytest.mark.thorough, id=str(chunk))
            for chunk in range(CHUNKS)
        ),
    ],
)


def opened(protect, rows, rng, **fields):
    if protect == "rows":
        return Session(rows, Rows(**fields))
    bounds = [(-3.0, 3.0)] * rows.shape[1]
    adjacency = ["add-remove", "replace"][int(rng.integers(2))]
    return Session(rows, Table(bounds=bounds, adjacency=adjacency, **fields))


@certifies(SuccessBound, GaussianDP)
@pytest.mark.parametrize("protect", ["rows", "table"])
@every_session
def test_squared_distances_of_all_answers_add_up_to_the_budget_at_most(
    protect, numbers, monkeypatch
):
    """Every coin, or row: the queries asked depend on the answers before."""
    few_simulations(monkeypatch)
    for number in numbers:
        rng = np.random.default_rng([53, number])
        rows = np.clip(pool(rng, int(rng.integers(4, 12)), 2), -1e6, 1e6)
        success = float(rng.uniform(0.52, 0.98))
        session = opened(protect, rows, rng, success=success)
        squared, first = 0.0, 0.0
        for share in (0.5, 0.3, 0.2):
            # chosen by the answer before, as an analyst might
            query = QUERIES[int(abs(first) * 7919) % len(QUERIES)]
            offer = session.price(query, share=share)
            squared = squared + moved(offer.question.plan, protect)
            first = float(offer.draw().values[0])
        if all(session.spends):
            assert session.remaining < 1e-6 * session.budget
            with pytest.raises(ValueError, match="left of the budget"):
                session.price("mean", share=1e-9)
        exact = float(ndtr(0.5 * np.sqrt(np.max(squared))))
        assert exact <= session.membership.success <= success


@certifies(SuccessBound, GaussianDP)
@pytest.mark.parametrize("protect", ["rows", "table"])
@pytest.mark.parametrize("query", ["mean", "sum", "histogram:x0:-3,0,3"])
def test_answers_about_the_row_that_moves_most_use_the_budget_up(protect, query, monkeypatch):
    """Rows in the corners of the box: what they move is what was designed for, in every answer."""
    few_simulations(monkeypatch)
    rows = np.array([[3.0, 3.0], [-3.0, -3.0]] * 4)
    rng = np.random.default_rng(71)
    for success in rng.uniform(0.52, 0.98, 4):
        session = opened(protect, rows, rng, success=float(success), **exposed(protect))
        squared = 0.0
        for share in (0.5, 0.3, 0.2):
            offer = session.price(query, share=share)
            squared = squared + moved(offer.question.plan, protect)
            offer.draw()
        exact = float(ndtr(0.5 * np.sqrt(np.max(squared))))
        assert exact <= session.membership.success <= success
        assert (exact - 0.5) / (success - 0.5) > 0.99


def exposed(protect):
    """Pairs of unlike rows."""
    return {"pairs": np.arange(8).reshape(4, 2)} if protect == "rows" else {}


def few_simulations(monkeypatch):
    for name in ("rows.plan.COMPARED", "rows.errors.SIMULATED", "bounded.plan.SIMULATED"):
        monkeypatch.setattr(f"tacit.statistics.{name}", 10)


def moved(plan, protect):
    """Squared distances by which each coin, or row, moves the sums, (m,)."""
    if protect == "rows":
        (swaps,) = plan.pairing.differences(plan.values.values)
        live = plan.noise.live
        if plan.noise.design is None:
            return np.zeros(len(swaps))
        return measured(plan.noise.law.to_dense(), swaps[:, live])
    values = plan.values.values
    if plan.adjacency == "replace":
        values = values - np.roll(values, 1, axis=0)
    total = np.zeros(len(values))
    for chosen, law in plan.noise.parts:
        total += measured(law.to_dense(), values[:, chosen])
    return total


def measured(covariance, rows):
    deviations = np.sqrt(np.diagonal(covariance))
    root = np.linalg.cholesky(
        covariance / np.outer(deviations, deviations) + 1e-13 * np.eye(len(covariance))
    )
    return np.square(np.linalg.solve(root, (rows / deviations).T)).sum(axis=0)


def information(weights, spots, deviation):
    """I(X; Y) of ``y = spots[x] + N(0, σ²)``: E of the log ratio around every spot, in nats."""
    noise = np.linspace(-9.0, 9.0, 601)
    density = np.exp(-0.5 * noise**2) / math.sqrt(2 * math.pi) * (noise[1] - noise[0])
    kept = weights > 1e-30
    shares, white = weights[kept], spots[kept] / deviation
    seen = white[:, None] + noise
    ratios = logsumexp(
        -0.5 * np.square(seen[:, :, None] - white) + 0.5 * noise[None, :, None] ** 2,
        axis=2,
        b=shares,
    )
    return -float(shares @ (ratios @ density))


def exact_posterior(history, count):
    """Weights by 50 digits, from the numbers published and the noise they had."""
    with mpmath.workdps(50):
        logs = [
            sum(
                (-((mpmath.mpf(float(y)) - mpmath.mpf(float(x[j]))) ** 2) / (2 * mpmath.mpf(v)))
                for y, x, v in history
            )
            for j in range(count)
        ]
        top = max(logs) if history else 0
        weights = [mpmath.exp(one - top) if history else mpmath.mpf(1) for one in logs]
        whole = sum(weights)
        return np.array([float(one / whole) for one in weights])


def first_number(rows):
    return float(rows[:, 0].mean())


def largest(rows):
    return float(rows[:, 0].max())


def spread(rows):
    return float(np.ptp(rows[:, 1]))


def shifted(rows):
    return float(np.median(rows[:, 0] * rows[:, 1]))


ASKED = (first_number, largest, spread, shifted)


@certifies(InformationBound)
@every_session
def test_no_answer_tells_more_than_its_nats_given_all_before(numbers):
    """Pools drawn from, queries chosen by answers; posterior and information by other means."""
    checked, used, factors = 0, [], []
    for number in numbers:
        rng = np.random.default_rng([59, number])
        rows = pool(rng, int(rng.integers(4, 9)), 2)
        rows /= np.abs(rows).max()
        budget = float(rng.uniform(0.05, 3.0))
        session = Session(rows, Draw(nats=budget), Effort(simulations=int(rng.integers(4, 20))))
        history, told, last = [], Fraction(0), 0.0
        for share in (0.5, 0.3, 0.2):
            query = ASKED[int(abs(last) * 7919) % len(ASKED)]
            offer = session.price(query, share=share)
            plan = offer.question.plan
            last = float(offer.draw().values[0])
            told += Fraction(offer.spend)
            if plan.noise is None:
                assert offer.spend == 0.0
                continue
            spots, variance = plan.outputs[:, 0], float(plan.noise.diagonal()[0])
            weights = exact_posterior(history, len(spots))
            factors.append(checked_factor(history, weights))
            nats = information(weights, spots, math.sqrt(variance))
            assert nats <= offer.spend * (1 + 1e-9) + 1e-12
            used.append(nats / offer.spend)
            checked += 1
            history.append((last, spots, variance))
        assert told <= Fraction(budget)
    assert checked > 2 * len(numbers)
    # the published grid is fine, but where doubles are as far apart as the noise
    assert np.median(factors) < 1.001
    assert np.median(used) > 0.5


def checked_factor(history, weights):
    """Exact weights are below the factor times those that noise was designed for; return it."""
    bounds = CandidateWeights.uniform(len(weights))
    for y, spots, variance in history:
        law = np.array([[variance]])
        bounds = bounds.after(np.array([y]), spots[:, None], _Law(law))
    found, factor = bounds.weights
    assert (weights <= factor * found * (1 + 1e-9)).all()
    return factor


class _Law:
    def __init__(self, dense):
        self.dense = dense

    def to_dense(self):
        return self.dense


@certifies(InformationBound)
def test_the_whole_of_an_adaptive_session_is_within_its_nats():
    """Two answers, the second query chosen by the first: I(X; Y1, Y2) by quadrature over both."""
    for number in range(2):
        rng = np.random.default_rng([61, number])
        rows = rng.normal(size=(6, 2))
        session = Session(rows, Draw(nats=1.0), Effort(simulations=8))
        first = session.price(first_number, share=0.5).question.plan
        count = len(first.outputs)
        uniform = np.full(count, 1 / count)
        spots, deviation = first.outputs[:, 0], float(np.sqrt(first.noise.diagonal()[0]))
        whole = information(uniform, spots, deviation)
        nodes, weights = np.polynomial.hermite_e.hermegauss(15)
        second = 0.0
        for spot in spots:
            for node, weight in zip(nodes, weights / weights.sum(), strict=True):
                seen = spot + deviation * node
                posterior = CandidateWeights.uniform(count).after(
                    np.array([seen]), first.outputs, first.noise
                )
                query = largest if seen > spots.mean() else spread
                outputs = np.array(
                    [query(rows[session._questions.family.members(j)]) for j in range(count)]
                )
                if np.ptp(outputs) == 0:
                    continue
                law = posterior.noise(outputs[:, None], 0.5, np.ones(1))
                exact = exact_posterior([(seen, spots, deviation**2)], count)
                nats = information(exact, outputs, float(np.sqrt(law.diagonal()[0])))
                second += nats * weight / count
        assert whole <= 0.5
        assert whole + second <= 1.0
        assert whole + second > 0.3


@certifies(SuccessBound)
def test_the_strongest_attacker_on_two_answers_that_are_really_drawn():
    """Told every other coin; the second query is chosen by the first answer. Less is found out."""
    rng = np.random.default_rng(67)
    trials, members = 20_000, np.arange(8).reshape(4, 2)
    session = Session(rng.normal(size=(8, 1)), Rows(mu=1.0, pairs=members))
    plans = [
        session.price(query, share=0.5).question.plan for query in ("mean", "sum", "second-moments")
    ]
    coins = rng.integers(0, 2, (trials, 4))
    drawn = members[np.arange(4), coins]
    answers = [released(plan, drawn) for plan in plans]
    second = answers[0][0][:, 0] > 0
    loudest = np.zeros(2)
    for coin in range(4):
        scores = [
            told(plan, *answer, drawn, members[coin], coin)
            for plan, answer in zip(plans, answers, strict=True)
        ]
        both = scores[0] + np.where(second, scores[1], scores[2])
        right = ((both > 0) == (coins[:, coin] == 1)[None]).mean(axis=1)
        loudest = np.maximum(loudest, right)
    limit = float(ndtr(0.5)) + 5 * 0.5 / math.sqrt(trials)
    assert loudest[0] <= limit
    assert loudest[1] > limit


def released(plan, drawn):
    """Published sums for every draw, and the same with half of the noise."""
    live = plan.noise.live
    clean = plan.values.values[drawn].sum(axis=1)[:, live]
    published = plan.noise.design.release(clean)
    return published, clean + 0.5 * (published - clean)


def told(plan, published, quiet, drawn, pair, coin):
    """Log likelihood ratios of one coin, all others known, (2, trials)."""
    live = plan.noise.live
    values = plan.values.values[:, live]
    others = values[drawn].sum(axis=1) - values[drawn[:, coin]]
    z = values[pair[1]] - values[pair[0]]
    direction = np.linalg.pinv(plan.noise.law.to_dense()) @ z
    middle = others + 0.5 * (values[pair[0]] + values[pair[1]])
    return np.stack([(seen - middle) @ direction for seen in (published, quiet)])


def test_weights_that_are_hardly_known_leave_noise_for_any_weights():
    """The grid of doubles may be wider than a noise: then nothing is assumed of the posterior."""
    rng = np.random.default_rng(3)
    bounds = CandidateWeights(np.full(12, -500.0), np.zeros(12))
    outputs = rng.normal(size=(12, 1))
    noise = bounds.noise(outputs, 0.08, np.ones((1, 1)))
    spots, variance = outputs[:, 0], float(noise.diagonal()[0])
    for law in rng.dirichlet(np.full(12, 0.3), size=200):
        assert information(law, spots, math.sqrt(variance)) <= 0.08 * (1 + 1e-9)
